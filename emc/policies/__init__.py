"""Who decides: policies turn histories into action values, exploration turns values into actions."""

from emc.policies.apart import Apart
from emc.policies.maven import Maven
from emc.policies.recurrent import RecurrentQ
from emc.policies.rode import Rode

__all__ = ["Apart", "Maven", "RecurrentQ", "Rode"]
