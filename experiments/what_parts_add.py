"""What each part of EMC adds: curiosity, episodic memory and prioritised replay, on and off.

Not a table of the paper: the released EMC has curiosity and prioritised replay on small tasks and no memory, its baselines have none of the
three. All eight combinations on VDN.
"""

import itertools

from emc.claims import Arm, Claim, Panel, Statement
from emc.claims.figures import plot_aggregates
from emc.claims.judgement import ahead, along_the_way

TASKS = {"gridworld, p = 2": "gridworld", "gridworld, ξ = 0.3": "gridworld --env.slip 0.3", "Push-Box 9": "push-box"}
BEST = {"gridworld, ξ = 0.3": 0.998}  # what the best possible play scores, where it is not 1
PARTS = ("curiosity", "memory", "priorities")
EVERY = [present for count in range(4) for present in itertools.combinations(PARTS, count)]


def arm(env: str, present: tuple[str, ...]) -> Arm:
    """VDN with some of the parts."""
    method = "emc-vdn" if "curiosity" in present else "vdn"
    memory = "--memory episodic" if "memory" in present else "--memory none"
    replay = "--replay prioritised" if "priorities" in present else "--replay uniform"
    return Arm(f"{method} {env} {memory} {replay}", " + ".join(present) or "nothing")


def panel(title: str, seeds: int) -> Panel:
    """All combinations on one task."""
    return Panel(title, tuple(arm(TASKS[title], present) for present in EVERY), 200_000, tuple(range(1, seeds + 1)), BEST.get(title, 1.0))


CLAIM = Claim(
    title="What curiosity, memory and prioritised replay add",
    section="beyond",
    small=tuple(panel(title, 3) for title in TASKS),
    paper=tuple(panel(title, 6) for title in TASKS),
    statements=tuple(
        Statement(
            f"{title}: {part} add{'' if part == 'priorities' else 's'} to the other two",
            ahead(title, " + ".join(PARTS), " + ".join(other for other in PARTS if other != part), measure=along_the_way),
        )
        for title in TASKS
        for part in PARTS
    ),
    figures=plot_aggregates,
    compared=tuple(" + ".join(present) or "nothing" for present in reversed(EVERY)),
)
