"""A level of the Laser Learning Environment behind the interface of PyMARL: both by their own authors."""

from __future__ import annotations

from typing import Any


def level(number: int = 3, steps: int = 30) -> Any:
    """The level; its agents must leave the room together, one blocking a laser for the other."""
    from lle import LLE
    from marlenv.adapters.pymarl_adapter import PymarlAdapter

    return PymarlAdapter(LLE.level(number).obs_type("layered").state_type("state").build(), steps)
