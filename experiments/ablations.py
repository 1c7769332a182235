"""Curiosity and memory each carry their part (section 5.4): EMC, EMC-wo-C, EMC-wo-M and QPLEX on corridor, 2s3z and 3s5z.

On corridor EMC-wo-C cannot solve the task; on the easy 2s3z and 3s5z it does as well as EMC; EMC needs fewer samples than EMC-wo-M on all
three. On this package's own maps, not in the game.
"""

from emc.claims import Arm, Claim, Panel, Statement
from emc.claims.figures import plot_memory
from emc.claims.judgement import ahead, all_of, along_the_way, comparable, fails

METHODS = ("emc-qplex", "emc-wo-c", "emc-wo-m", "qplex")
MAPS = ("corridor", "2s3z", "3s5z")
STEPS = {name: 5_000_000 if name in ("corridor", "3s5z_vs_3s6z", "6h_vs_8z") else 2_000_000 for name in MAPS}


def panel(name: str, seeds: int, steps: int) -> Panel:
    """The ablations on one map."""
    return Panel(name, tuple(Arm(f"{method} {name} --preset starcraft") for method in METHODS), steps, tuple(range(1, seeds + 1)))


CLAIM = Claim(
    title="Battles: what curiosity and memory each contribute",
    section="5.4",
    small=(panel("2s3z", 3, 100_000),),
    paper=tuple(panel(name, 5, STEPS[name]) for name in MAPS),
    statements=(
        Statement(
            "corridor: without curiosity EMC cannot solve it",
            all_of(fails("corridor", "emc-wo-c"), ahead("corridor", "emc-qplex", "emc-wo-c")),
        ),
        *(Statement(f"{name}: EMC without curiosity is as good as EMC", comparable(name, "emc-wo-c", "emc-qplex")) for name in MAPS[1:]),
        *(
            Statement(
                f"{name}: EMC needs fewer samples than EMC without memory", ahead(name, "emc-qplex", "emc-wo-m", measure=along_the_way)
            )
            for name in MAPS
        ),
    ),
    figures=plot_memory,
)
