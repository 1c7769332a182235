"""Where curiosity leads: EMC-QPLEX, QPLEX-Global and QPLEX-Local on the gridworld, early, in the middle and late (section 5.1, figure).

Early on all explore uniformly. Curiosity about the global state (QPLEX-Global) goes on visiting everything alike; about local histories
(QPLEX-Local) it gathers around the goals without coordinating; EMC's intrinsic reward is concentrated where individual values change, so
that its agents find the goals together. *Evenness* is the entropy of visits over the cells that can be entered, divided by the largest
there is.
"""

from emc.claims import Arm, Claim, Panel, Statement
from emc.claims.figures import plot_heat_maps, plot_inside
from emc.claims.heat_map_measures import EARLY, MIDDLE, alike, evenness, paid_in, time_in
from emc.claims.judgement import ahead, fails, wins

METHODS = ("emc-qplex", "qplex-global", "qplex-local")
ARMS = tuple(Arm(f"{method} gridworld") for method in METHODS)
GOALS = "around the goals"


CLAIM = Claim(
    title="Gridworld: where three kinds of curiosity lead",
    section="5.1",
    small=(Panel("p = 2", ARMS, 200_000, (1, 2, 3, 4, 5, 6)),),
    paper=(Panel("p = 2", ARMS, 505_000, (1, 2, 3, 4, 5, 6)),),
    statements=(
        Statement(
            "Early in training all three explore alike (evenness within 0.05)",
            alike("p = 2", *METHODS, measure=evenness(EARLY), within=0.05),
        ),
        Statement(
            "QPLEX-Global stays unbiased: in the middle of training it visits cells more evenly than the other two",
            ahead("p = 2", "qplex-global", "qplex-local", "emc-qplex", measure=evenness(MIDDLE)),
        ),
        Statement(
            "QPLEX-Local gathers around the goals more than QPLEX-Global",
            ahead("p = 2", "qplex-local", "qplex-global", measure=time_in(GOALS)),
        ),
        Statement("QPLEX-Local and QPLEX-Global do not coordinate: they fail", fails("p = 2", "qplex-global", "qplex-local")),
        Statement(
            "EMC's intrinsic reward is concentrated around the goals, more than that of the other two",
            ahead("p = 2", "emc-qplex", "qplex-global", "qplex-local", measure=paid_in(GOALS)),
        ),
        Statement("EMC-QPLEX wins", wins("p = 2", "emc-qplex")),
    ),
    figures=lambda evidence, theme: plot_heat_maps(evidence, "p = 2", theme) | plot_inside(evidence, "p = 2", "emc-qplex", theme),
)
