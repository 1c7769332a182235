"""What the team's value is fitted to."""

from emc.losses.td import TD

__all__ = ["TD"]
