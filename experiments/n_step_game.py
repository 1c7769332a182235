"""MAVEN commits to the better branch of its game of ten steps, QMIX does not (MAVEN, NeurIPS 2019, section 3; six seeds).

The better branch shows only at its end, so agents have to explore it together for a whole episode. Epsilon falls over 10k steps, to 0.05
or to 0 as named; with QMIX's own constants and with MAVEN's discount and hypernetworks. The score is what the better branch pays, 13.
"""

from emc.claims import Arm, Claim, Panel, Statement
from emc.claims.judgement import ahead, fails, wins

QUICK = "--epsilon.steps 10000"
MAVEN = f"maven n-step-game {QUICK} --policy.information-weight 1"
ARMS = (
    Arm(MAVEN),
    Arm(f"qmix n-step-game {QUICK}"),
    Arm(f"qmix n-step-game {QUICK} --gamma 0.99 --mixer.layers 1", "qmix, maven's constants"),
)
GREEDY = (Arm(f"{MAVEN} --epsilon.finish 0"), Arm(f"qmix n-step-game {QUICK} --epsilon.finish 0"))
PANELS = tuple(Panel(title, arms, 105_000, (0, 1, 2, 3, 4, 5)) for title, arms in (("epsilon to 0.05", ARMS), ("epsilon to 0", GREEDY)))

CLAIM = Claim(
    title="MAVEN's game of ten steps: committing to a branch",
    section="beyond",
    small=PANELS,
    paper=PANELS,
    statements=(
        Statement("MAVEN finds the better branch", wins("epsilon to 0.05", "maven")),
        Statement("QMIX does not find the better branch", fails("epsilon to 0.05", "qmix", bar=0.8)),
        Statement("MAVEN is ahead of QMIX", ahead("epsilon to 0.05", "maven", "qmix", "qmix, maven's constants")),
        Statement("With epsilon to 0 MAVEN is ahead of QMIX", ahead("epsilon to 0", "maven", "qmix")),
    ),
)
