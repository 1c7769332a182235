"""EMC hunts where other methods leave the prey alone (section 5.2; eight predators, a lone attempt is punished; 40 is the best return).

WQMIX should be the only baseline to find the optimum, QPLEX, QMIX, MAVEN, QPLEX-Global and QPLEX-Local fail, and EMC-VDN, EMC-QMIX and
EMC-QPLEX do well. The paper does not say how it anneals epsilon: over 50k steps, as its other small task does. Plain VDN learns this task
when epsilon is annealed over 1M steps, a public finding, so both are here, and VDN with the prioritised replay that the released
configurations give to EMC and not to VDN. CW- and OW-QMIX have alpha = 0.1.
"""

from emc.claims import Arm, Claim, Panel, Statement
from emc.claims.judgement import ahead, all_of, any_of, fails, wins

EMC = ("emc-vdn", "emc-qmix", "emc-qplex")
WEIGHTED = ("ow-qmix", "cw-qmix")
OTHERS = ("qplex", "qmix", "maven", "qplex-global", "qplex-local")
SHORT, LONG = "epsilon over 50k", "epsilon over 1M"
PRIORITISED = "vdn, prioritised replay"  # which the released configurations give to EMC and not to VDN
WELL = 0.75  # of the best return


def panel(title: str, methods: tuple[str, ...], seeds: int, steps: int) -> Panel:
    """Some methods with one way to anneal epsilon, and VDN with EMC's replay."""
    words = f"predator-prey{' --epsilon.steps 1000000' if title == LONG else ''}"
    arms = [Arm(f"{method} {words}") for method in methods]
    arms += [Arm(f"vdn {words} --replay prioritised", PRIORITISED)] if "emc-vdn" in methods else []
    return Panel(title, tuple(arms), steps, tuple(range(1, seeds + 1)))


CLAIM = Claim(
    title="Predator-prey: EMC catches what others leave alone",
    section="5.2",
    small=(panel(SHORT, ("emc-vdn", "vdn", "qmix", "ow-qmix"), 3, 200_000), panel(LONG, ("vdn",), 3, 400_000)),
    paper=tuple(panel(title, (*EMC, *WEIGHTED, *OTHERS, "vdn", "qtran", "iql"), 5, 1_100_000) for title in (SHORT, LONG)),
    statements=(
        Statement("EMC-VDN does well", wins(SHORT, "emc-vdn", bar=WELL)),
        Statement("EMC-QMIX and EMC-QPLEX do well", wins(SHORT, "emc-qmix", "emc-qplex", bar=WELL)),
        Statement("WQMIX, in one of its forms, finds the optimum", any_of(*(wins(SHORT, method) for method in WEIGHTED))),
        Statement("QMIX fails", fails(SHORT, "qmix")),
        Statement("QPLEX, MAVEN, QPLEX-Global and QPLEX-Local fail", fails(SHORT, "qplex", "maven", "qplex-global", "qplex-local")),
        Statement("QTRAN fails", fails(SHORT, "qtran")),
        Statement("VDN fails, and EMC-VDN is ahead of it", all_of(fails(SHORT, "vdn"), ahead(SHORT, "emc-vdn", "vdn"))),
        Statement("VDN does well when epsilon is annealed over 1M steps", wins(LONG, "vdn", bar=WELL), beyond=True),
        Statement("EMC-VDN is ahead of VDN also where VDN replays by priority", ahead(SHORT, "emc-vdn", PRIORITISED), beyond=True),
        Statement("VDN does well where it replays by priority", wins(SHORT, PRIORITISED, bar=WELL), beyond=True),
    ),
    limits=(-20.0, 41.0),  # untrained agents earn far less, which would flatten everything else
)
