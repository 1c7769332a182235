"""What curiosity and memory add where everything else is tuned: all methods on the basis of PyMARL2's QMIX (`--preset tuned`).

Not in the paper, which compares methods as each was released. PyMARL2's tuning alone takes QMIX far in the game, also on the hardest of
these maps, so what EMC's parts are worth is asked on that basis too. EMC was released without its memory for 6h_vs_8z and 3s5z_vs_3s6z;
here it has it on every map. On this package's own maps.
"""

from emc.claims import Arm, Claim, Panel, Statement
from emc.claims.figures import plot_aggregates, plot_best
from emc.claims.judgement import ahead, along_the_way

METHODS = ("qmix", "qplex", "emc-qmix", "emc-qplex", "emc-wo-c")
PEERS = ("ow-qmix", "maven", "rode")
REMEMBERING = ("emc-qmix", "emc-qplex")
MAPS = ("2s3z", "5m_vs_6m", "3s_vs_5z", "bane_vs_bane", "MMM2", "corridor", "6h_vs_8z", "3s5z_vs_3s6z")


def panel(name: str, methods: tuple[str, ...], seeds: int, steps: int) -> Panel:
    """Some methods on one map."""
    memory = " --memory episodic --memory.weight 0.01" if name in ("6h_vs_8z", "3s5z_vs_3s6z") else ""
    arms = (Arm(f"{method} {name} --preset tuned{memory if method in REMEMBERING else ''}") for method in methods)
    return Panel(name, tuple(arms), steps, tuple(range(1, seeds + 1)))


CLAIM = Claim(
    title="Battles, every method tuned alike: what curiosity and memory add",
    section="beyond",
    small=tuple(panel(name, METHODS, 3, 300_000) for name in MAPS[:2]),
    paper=tuple(panel(name, METHODS + PEERS, 5, 2_000_000) for name in MAPS),
    statements=tuple(
        Statement(f"{name}: {what}", ahead(name, ours, other, measure=along_the_way))
        for name in MAPS
        for what, ours, other in (
            ("curiosity and memory add to QPLEX", "emc-qplex", "qplex"),
            ("curiosity and memory add to QMIX", "emc-qmix", "qmix"),
            ("curiosity adds to memory", "emc-qplex", "emc-wo-c"),
            ("memory adds to QPLEX", "emc-wo-c", "qplex"),
        )
    ),
    figures=lambda evidence, theme: plot_aggregates(evidence, theme) | plot_best(evidence, (*METHODS[:4], *PEERS), theme),
)
