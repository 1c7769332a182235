"""Which stored episodes to learn from.

A sampler turns each episode's priority into a log-weight; drawing without replacement in proportion to the weights is then one Gumbel
top-k, which has exactly the law of sequential proportional draws.
"""

from __future__ import annotations

import abc
import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from emc.parts import Part
from emc.user_input import SMALLEST, check_number


@dataclasses.dataclass(frozen=True)
class Sampler(Part):
    """Which stored episodes to learn from."""

    new_priority: float = dataclasses.field(default=1.0, kw_only=True)  # of an episode before it was first learned from

    @abc.abstractmethod
    def log_weight(self, priority: Float[Array, " M"]) -> Float[Array, " M"]:
        """The logarithm of how likely each episode is to be drawn, up to a constant."""


@dataclasses.dataclass(frozen=True)
class Uniform(Sampler):
    """Every episode is as likely as any other."""

    def log_weight(self, priority: Float[Array, " M"]) -> Float[Array, " M"]:
        """Equal weights."""
        return jnp.zeros_like(priority)


@dataclasses.dataclass(frozen=True)
class Prioritised(Sampler):
    """Weight = priority ** exponent, with the mean squared temporal-difference error as priority; no importance weights."""

    exponent: float = 0.5
    new_priority: float = dataclasses.field(default=100.0, kw_only=True)  # released code: unseen episodes come first

    def __post_init__(self) -> None:
        check_number("replay.exponent", self.exponent, "0 is uniform", low=0.0)
        check_number("replay.new_priority", self.new_priority, "it must be above 0", low=SMALLEST)

    def log_weight(self, priority: Float[Array, " M"]) -> Float[Array, " M"]:
        """Logarithm of the weight."""
        return self.exponent * jnp.log(jnp.maximum(priority, SMALLEST))  # one that is fitted perfectly may still be drawn
