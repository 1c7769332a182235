"""EMC solves the gridworld also when agents slip, up to one action in five (appendix, stochastic setting).

With probability ξ an agent's action is replaced by a random one. EMC should be clearly ahead and solve the task up to 20 %; 30 and 50 %
should be hard for everyone. The study is about the memory, which the released EMC has not on small tasks: the paper's budget has it with
two weights. The scale stays that of the task without slips, although nobody can win every episode at 50 %.
"""

from emc.claims import Arm, Claim, Panel, Statement
from emc.claims.judgement import ahead, all_of, along_the_way, any_of, fails, wins

LEVELS = (0, 5, 10, 20, 30, 50)
SOLVED = tuple(f"ξ = {percent} %" for percent in LEVELS[:4])
HARD = tuple(f"ξ = {percent} %" for percent in LEVELS[4:])
OTHERS = ("vdn", "qmix", "qplex")
REMEMBERED = ("0.1", "0.01")  # weights of a memory; the released EMC has none on small tasks

WITH_MEMORY = tuple(f"emc-vdn, memory {weight}" for weight in REMEMBERED)


def panel(percent: int, methods: tuple[str, ...], seeds: int, steps: int, weights: tuple[str, ...] = ()) -> Panel:
    """Some methods at one probability of slipping, and EMC-VDN with a memory of some weights."""
    slips = f"gridworld --env.slip {percent / 100:g}"
    plain = tuple(Arm(f"{method} {slips}") for method in methods)
    arms = (
        *plain,
        *(Arm(f"emc-vdn {slips} --memory episodic --memory.weight {weight}", f"emc-vdn, memory {weight}") for weight in weights),
    )
    return Panel(f"ξ = {percent} %", arms, steps, tuple(range(1, seeds + 1)))


CLAIM = Claim(
    title="Gridworld with slips: EMC solves it up to one action in five",
    section="appendix",
    small=tuple(panel(percent, ("emc-vdn", "vdn"), 3, 200_000) for percent in (0, 20, 50)),
    paper=tuple(panel(percent, ("emc-vdn", *OTHERS), 6, 505_000, REMEMBERED) for percent in LEVELS),
    statements=(
        *(Statement(f"{title}: EMC-VDN solves the task", wins(title, "emc-vdn", bar=0.8)) for title in SOLVED),
        *(Statement(f"{title}: EMC-VDN is ahead of VDN", ahead(title, "emc-vdn", "vdn", measure=along_the_way)) for title in SOLVED),
        *(Statement(f"{title}: hard for EMC-VDN and VDN", fails(title, "emc-vdn", "vdn", bar=0.5)) for title in HARD),
        *(
            Statement(f"{title}: EMC-VDN with a memory solves the task too", any_of(*(wins(title, arm, bar=0.8) for arm in WITH_MEMORY)))
            for title in SOLVED
        ),
        *(
            Statement(f"{title}: hard for QMIX, QPLEX and EMC-VDN with a memory too", fails(title, "qmix", "qplex", *WITH_MEMORY, bar=0.5))
            for title in HARD
        ),
        Statement(
            "Up to 20 % EMC-VDN is ahead of QMIX and QPLEX too",
            all_of(*(ahead(title, "emc-vdn", "qmix", "qplex", measure=along_the_way) for title in SOLVED)),
        ),
    ),
)
