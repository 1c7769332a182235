"""Intrinsic rewards: how novel each step of a batch is."""

from emc.curiosity.counts import Counts
from emc.curiosity.none import NoCuriosity
from emc.curiosity.rnd import RND
from emc.curiosity.value import ValueCuriosity

__all__ = ["RND", "Counts", "NoCuriosity", "ValueCuriosity"]
