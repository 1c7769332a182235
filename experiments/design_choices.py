"""Predicting individual values is the right curiosity (appendix): EMC against EMC-TD, EMC-Ind, EMC-Cen and EMC-Dec.

On corridor, 3s5z_vs_3s6z and 6h_vs_8z EMC should be ahead of all four, and EMC-Ind of EMC-TD on the first two. On this package's own
maps, not in the game; the small budget asks the same of the gridworld, which the paper did only for TD and Ind, with noise (the claim
`noise`).
"""

from emc.claims import Arm, Claim, Panel, Statement
from emc.claims.judgement import ahead, along_the_way

OTHERS = ("emc-td", "emc-ind", "emc-cen", "emc-dec")
MAPS = ("corridor", "3s5z_vs_3s6z", "6h_vs_8z")
STEPS = {name: 5_000_000 if name in ("corridor", "3s5z_vs_3s6z", "6h_vs_8z") else 2_000_000 for name in MAPS}


def panel(name: str, flags: str, seeds: int, steps: int) -> Panel:
    """The five kinds of curiosity on one task."""
    return Panel(name, tuple(Arm(f"{method} {name}{flags}") for method in ("emc-qplex", *OTHERS)), steps, tuple(range(1, seeds + 1)))


CLAIM = Claim(
    title="Which error makes the best curiosity",
    section="appendix",
    small=(panel("gridworld", "", 3, 200_000),),
    paper=tuple(panel(name, " --preset starcraft", 5, STEPS[name]) for name in MAPS),
    statements=(
        *(Statement(f"{name}: EMC is ahead of EMC-TD, -Ind, -Cen and -Dec", ahead(name, "emc-qplex", *OTHERS)) for name in MAPS),
        *(Statement(f"{name}: EMC-Ind is clearly below EMC", ahead(name, "emc-qplex", "emc-ind")) for name in MAPS),
        *(Statement(f"{name}: EMC-Ind is ahead of EMC-TD", ahead(name, "emc-ind", "emc-td")) for name in MAPS[:2]),
        Statement(
            "gridworld, p = 2, without noise: EMC is ahead of all four",
            ahead("gridworld", "emc-qplex", *OTHERS, measure=along_the_way),
            beyond=True,
        ),
    ),
)
