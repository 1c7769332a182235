"""Curiosity that needs no weight: one fixed setting is as good as the best hand-set weight on every task.

Not a claim of the paper, whose curiosity has a weight η for each task. `emc-apart` keeps the bonus in a value function of its own; EMC
has its released η and a tenth and ten times of it. All replay by priority. The setting stands if no η is better on any task with 95 %,
and if it survives rewards that are ten times smaller or larger.
"""

from emc.claims import Arm, Claim, Panel, Statement
from emc.claims.judgement import ahead, all_of, along_the_way, not_behind, wins

WEIGHTS = {"η / 10": (0.02, 0.001), "η": (0.2, 0.01), "10 η": (2.0, 0.1)}  # where it starts and where it ends
TASKS = {  # what emc train is told, the mixer, steps
    "gridworld, p = 2": ("gridworld", "vdn", 200_000),
    "gridworld, p = 0": ("gridworld --env.penalty 0", "vdn", 200_000),
    "gridworld, ξ = 0.3": ("gridworld --env.slip 0.3", "vdn", 200_000),
    "Push-Box 9": ("push-box", "vdn", 200_000),
    "predator-prey": ("predator-prey", "vdn", 200_000),
    "penalty, k = -100": ("penalty", "qplex", 50_000),
}
MORE = {
    "gridworld, p = 1": ("gridworld --env.penalty 1", "vdn", 200_000),
    "gridworld, σ = 0.5": ("gridworld --env.noisy-reward 0.5", "vdn", 200_000),
    "Pass 10": ("pass", "vdn", 500_000),
    "Secret Room 15": ("secret-room", "vdn", 500_000),
    "foraging 10x10": ("lbf/10x10-3p-3f", "vdn", 1_000_000),
}
SCALED = {
    "p = 2, rewards / 10": ("gridworld --env.penalty 0.2 --env.win-reward 1", "vdn", 200_000),
    "p = 2, rewards x 10": ("gridworld --env.penalty 20 --env.win-reward 100", "vdn", 200_000),
}


def panel(title: str, task: tuple[str, str, int], seeds: int, peers: bool = False) -> Panel:
    """One setting, three weights and no curiosity on one task; its peers too if asked."""
    env, mixer, steps = task
    curious = (
        Arm(f"emc-{mixer} {env} --curiosity.weight.start {start:g} --curiosity.weight.floor {floor:g}", f"EMC, {label}")
        for label, (start, floor) in WEIGHTS.items()
    )
    others = (
        Arm(f"emc-{mixer} {env} --curiosity rnd", "RND"),
        Arm(f"qmix {env} --preset tuned", "tuned QMIX"),
    )
    arms = (
        Arm(f"emc-apart-{mixer} {env}", "apart"),
        *curious,
        Arm(f"{mixer} {env} --replay prioritised", "no curiosity"),
        *(others if peers else ()),
    )
    return Panel(title, arms, steps, tuple(range(1, seeds + 1)))


def survives(title: str, task: tuple[str, str, int], seeds: int) -> Panel:
    """The one setting, and the released weight, with rewards on another scale."""
    env, mixer, steps = task
    arms = (Arm(f"emc-apart-{mixer} {env}", "apart"), Arm(f"emc-{mixer} {env}", "EMC, η"))
    return Panel(title, arms, steps, tuple(range(1, seeds + 1)))


CURIOUS = tuple(f"EMC, {label}" for label in WEIGHTS)
CLAIM = Claim(
    title="One setting for all tasks: the bonus apart from the policy",
    section="beyond",
    small=(
        *(panel(title, TASKS[title], 5) for title in TASKS),
        *(survives(title, task, 3) for title, task in SCALED.items()),
    ),
    paper=(
        *(panel(title, task, 5, peers=True) for title, task in (TASKS | MORE).items()),
        *(survives(title, task, 5) for title, task in SCALED.items()),
    ),
    statements=(
        *(
            Statement(f"{title}: no weight set by hand is better than the one setting", not_behind(title, "apart", *CURIOUS))
            for title in (TASKS | MORE)
        ),
        *(
            Statement(f"{title}: nor is one better along the way", not_behind(title, "apart", *CURIOUS, measure=along_the_way))
            for title in (TASKS | MORE)
        ),
        *(Statement(f"{title}: the one setting solves it", wins(title, "apart")) for title in (TASKS | MORE | SCALED)),
        *(
            Statement(f"{title}: it is ahead of no curiosity", ahead(title, "apart", "no curiosity", measure=along_the_way))
            for title in (TASKS | MORE)
        ),
        Statement(
            "On no task RND or the tuned QMIX is better",
            all_of(*(not_behind(title, "apart", "RND", "tuned QMIX") for title in (TASKS | MORE))),
        ),
    ),
)
