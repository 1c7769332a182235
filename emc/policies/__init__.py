"""Who decides: policies turn histories into action values, exploration turns values into actions."""

from emc.policies.recurrent import RecurrentQ

__all__ = ["RecurrentQ"]
