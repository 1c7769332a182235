"""What is novel: intrinsic rewards."""

from emc.curiosity.none import NoCuriosity
from emc.curiosity.rnd import RND
from emc.curiosity.value import ValueCuriosity

__all__ = ["RND", "NoCuriosity", "ValueCuriosity"]
