"""How the agents' values make the team's."""

from emc.mixers.independent import Independent
from emc.mixers.qmix import QMIX
from emc.mixers.qplex import QPLEX, AttentionQPLEX
from emc.mixers.unrestricted import Unrestricted
from emc.mixers.vdn import VDN

__all__ = ["QMIX", "QPLEX", "VDN", "AttentionQPLEX", "Independent", "Unrestricted"]
