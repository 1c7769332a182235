"""Only EMC wins the coordinated gridworld once arriving alone is punished hard (sections 5.1 and C, nine methods, median of six seeds).

Without a penalty nearly everybody wins; with a small one methods without intrinsic reward fail; with a large one only curiosity about
individual values finds the goal. As released: EMC and the two RND methods replay by priority, the others uniformly. What that accounts
for is the claim `replay`.
"""

from emc.claims import Arm, Claim, Panel, Statement
from emc.claims.figures import plot_aggregates
from emc.claims.judgement import ahead, all_of, fails, sooner, wins

CURIOUS = ("emc-vdn", "emc-qmix", "emc-qplex")
NOVEL = ("qplex-global", "qplex-local")
PLAIN = ("vdn", "qmix", "qplex", "iql")
METHODS = (*CURIOUS, *NOVEL, *PLAIN)


def panel(penalty: float, seeds: int, steps: int) -> Panel:
    """All nine methods at one penalty."""
    arms = tuple(Arm(f"{method} gridworld --env.penalty {penalty:g}") for method in METHODS)
    return Panel(f"p = {penalty:g}", arms, steps, tuple(range(1, seeds + 1)))


CLAIM = Claim(
    title="Gridworld: only EMC wins when arriving alone is punished hard",
    section="5.1",
    small=(panel(0, 3, 200_000), panel(1, 3, 200_000), panel(2, 6, 200_000)),
    paper=tuple(panel(penalty, 6, 505_000) for penalty in (0, 0.5, 1, 1.5, 2)),
    statements=(
        Statement(
            "p = 0: every method but QPLEX and IQL finds the winning policy, and those two do not",
            all_of(wins("p = 0", *CURIOUS, *NOVEL, "vdn", "qmix"), fails("p = 0", "qplex", "iql", bar=0.5)),
        ),
        Statement(
            "p = 0: those that win do so sooner than QPLEX and IQL",
            all_of(*(ahead("p = 0", method, "qplex", "iql", measure=sooner) for method in (*CURIOUS, *NOVEL, "vdn", "qmix"))),
        ),
        Statement("p = 0.5: methods without intrinsic reward fail", fails("p = 0.5", *PLAIN)),
        Statement("p = 0.5: QPLEX-Local and QPLEX-Global still win", wins("p = 0.5", *NOVEL)),
        Statement("p = 0.5: QPLEX-Local is faster than QPLEX-Global", ahead("p = 0.5", "qplex-local", "qplex-global", measure=sooner)),
        Statement("p = 1: QPLEX-Local is faster than QPLEX-Global", ahead("p = 1", "qplex-local", "qplex-global", measure=sooner)),
        Statement(
            "p = 1.5: EMC-VDN, EMC-QMIX and EMC-QPLEX win, all others fail",
            all_of(wins("p = 1.5", *CURIOUS), fails("p = 1.5", *NOVEL, *PLAIN)),
        ),
        Statement("p = 2: EMC-VDN, EMC-QMIX and EMC-QPLEX win", wins("p = 2", *CURIOUS)),
        Statement("p = 2: QPLEX-Global and QPLEX-Local fail", fails("p = 2", *NOVEL)),
        Statement("p = 2: VDN, QMIX, QPLEX and IQL fail", fails("p = 2", *PLAIN)),
    ),
    figures=plot_aggregates,
)
