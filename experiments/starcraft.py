"""EMC is the best method on StarCraft micromanagement (section 5.3, 17 maps against RODE, QPLEX, MAVEN, CW- and OW-QMIX).

Best by at least 1/32 on six maps, behind on three, tied on the rest; clearly best on corridor and 3s5z_vs_3s6z, on 6h_vs_8z together with
RODE. The maps here are this package's own re-implementation in JAX: what holds on it need not hold in the game, and its win rates are not
SMAC's. With the real game installed the same arms run as `smac/MAP`.
"""

import numpy as np

from emc.claims import Arm, Claim, Panel, Statement, Verdict, VerdictKind
from emc.claims.figures import plot_aggregates, plot_best, plot_inside
from emc.claims.judgement import SEEDS, ahead, all_of, along_the_way, comparable, sooner, wins

OURS, OTHERS = "emc-qplex", ("rode", "qplex", "maven", "cw-qmix", "ow-qmix")
SUPER_HARD = ("corridor", "3s5z_vs_3s6z", "6h_vs_8z")
HARD = ("1c3s8z_vs_1c3s9z", "5s10z", "7s7z")
EASY = ("2s3z", "3s5z", "1c3s5z", "2s_vs_1sc", "3s_vs_5z", "bane_vs_bane")
REST = ("2c_vs_64zg", "27m_vs_30m", "MMM2", "5m_vs_6m", "10m_vs_11m")
MAPS = (*SUPER_HARD, *HARD, *EASY, *REST)


def panel(name: str, methods: tuple[str, ...], seeds: int, steps: int) -> Panel:
    """Some methods on one map, with the constants that were released for these maps."""
    return Panel(name, tuple(Arm(f"{method} {name} --preset starcraft") for method in methods), steps, tuple(range(1, seeds + 1)))


def best_on_six(evidence):
    """On how many maps EMC's median is above all others by 1/32, and on how many it is below the best."""
    better, worse = [], []
    for name in MAPS:
        samples = [evidence.sample(name, method) for method in (OURS, *OTHERS)]
        if any(sample is None or len(sample.complete) < SEEDS for sample in samples):
            needed = f"not complete; all 17 maps with {SEEDS} seeds of {1 + len(OTHERS)} methods are needed"
            return Verdict(VerdictKind.UNKNOWN, ((name, needed),))
        mine, *theirs = (float(np.median(sample.finals)) for sample in samples)
        better += [name] * (mine >= max(theirs) + 1 / 32)
        worse += [name] * (mine < max(theirs))
    kind = VerdictKind.HOLDS if len(better) >= 6 and len(worse) <= 3 else VerdictKind.FAILS
    return Verdict(kind, (("17 maps", f"best on {len(better)} ({', '.join(better)}), behind on {len(worse)} ({', '.join(worse)})"),))


CLAIM = Claim(
    title="StarCraft-like battles: EMC against RODE, QPLEX, MAVEN and weighted QMIX",
    section="5.3",
    small=(panel("3m", ("qmix", "qplex", OURS), 3, 200_000),),
    paper=tuple(panel(name, (OURS, *OTHERS, "qmix"), 5, 5_000_000 if name in SUPER_HARD else 2_000_000) for name in MAPS),
    statements=(
        Statement("EMC is best by at least 1/32 on six maps and behind on at most three", best_on_six),
        *(Statement(f"{name}: EMC is clearly best", ahead(name, OURS, *OTHERS)) for name in SUPER_HARD[:2]),
        Statement(
            "6h_vs_8z: EMC and RODE are best",
            all_of(
                comparable("6h_vs_8z", OURS, "rode"),
                comparable("6h_vs_8z", "rode", OURS),
                *(ahead("6h_vs_8z", best, *OTHERS[1:]) for best in (OURS, "rode")),
            ),
        ),
        *(Statement(f"{name}: EMC learns fastest", ahead(name, OURS, *OTHERS, measure=along_the_way)) for name in HARD),
        *(Statement(f"{name}: EMC ends highest", ahead(name, OURS, *OTHERS)) for name in HARD),
        *(
            Statement(f"{name}: EMC ends with the best", comparable(name, OURS, *OTHERS, within=1 / 32))
            for name in EASY
            if name != "2s_vs_1sc"
        ),
        Statement(
            "2s_vs_1sc: EMC is second to QPLEX by a hair",
            all_of(comparable("2s_vs_1sc", OURS, "qplex", within=0.05), comparable("2s_vs_1sc", "qplex", OURS, within=0.0)),
        ),
        Statement("bane_vs_bane: EMC comes to win everything", wins("bane_vs_bane", OURS, bar=0.99)),
        Statement("bane_vs_bane: EMC gets there before QPLEX", ahead("bane_vs_bane", OURS, "qplex", measure=sooner)),
        *(
            Statement(f"{name}: MAVEN is worst", all_of(*(ahead(name, other, "maven") for other in (OURS, *OTHERS) if other != "maven")))
            for name in REST
        ),
        *(
            Statement(f"{name}: EMC learns faster than QPLEX", ahead(name, OURS, "qplex", measure=along_the_way))
            for name in ("2s3z", "3s5z", "bane_vs_bane")
        ),
        *(Statement(f"{name}: EMC is comparable to the best other method", comparable(name, OURS, *OTHERS)) for name in REST),
        Statement("3m: EMC is comparable to QMIX and QPLEX", comparable("3m", OURS, "qmix", "qplex"), beyond=True),
    ),
    figures=lambda evidence, theme: (
        plot_aggregates(evidence, theme) | plot_best(evidence, (OURS, *OTHERS), theme) | plot_inside(evidence, "3m", OURS, theme)
    ),
)
