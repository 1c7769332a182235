"""What prioritised replay accounts for in the gridworld: the released EMC replays by priority, its baselines uniformly.

Not a claim of the paper: a question that its comparison leaves open. EMC-VDN and VDN, each with both kinds of replay.
"""

from emc.claims import Arm, Claim, Panel, Statement
from emc.claims.judgement import fails, wins

ARMS = (
    Arm("emc-vdn gridworld"),
    Arm("emc-vdn gridworld --replay uniform", "emc-vdn, uniform replay"),
    Arm("vdn gridworld"),
    Arm("vdn gridworld --replay prioritised", "vdn, prioritised replay"),
)
SEEDS = (1, 2, 3, 4, 5, 6)

CLAIM = Claim(
    title="Gridworld, p = 2: curiosity and prioritised replay apart",
    section="beyond",
    small=(Panel("p = 2", ARMS, 200_000, SEEDS),),
    paper=(Panel("p = 2", ARMS, 505_000, SEEDS),),
    statements=(
        Statement("EMC-VDN as released, with prioritised replay, wins", wins("p = 2", "emc-vdn")),
        Statement("EMC-VDN with uniform replay, as VDN has it, wins too", wins("p = 2", "emc-vdn, uniform replay")),
        Statement("VDN fails with uniform replay", fails("p = 2", "vdn")),
        Statement("VDN fails with prioritised replay too", fails("p = 2", "vdn, prioritised replay")),
    ),
)
