"""What the team's value is fitted to."""

from emc.losses.joint import CentralTD, Qtran
from emc.losses.td import TD
from emc.losses.weighted import Weighted

__all__ = ["TD", "CentralTD", "Qtran", "Weighted"]
