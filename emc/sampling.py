"""Which stored episodes to learn from.

A sampler turns each episode's priority into a log-weight; drawing without replacement in proportion to the weights is then one Gumbel
top-k, which has exactly the law of sequential proportional draws.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from emc.errors import UserError
from emc.parts import Part

SMALLEST = 1e-30  # an episode fitted perfectly may still be drawn when nothing else is left


@dataclasses.dataclass(frozen=True)
class Uniform(Part):
    """Every episode is as likely as any other."""

    new_priority: float = 1.0

    def log_weight(self, priority: Float[Array, " M"]) -> Float[Array, " M"]:
        """Equal weights."""
        return jnp.zeros_like(priority)


@dataclasses.dataclass(frozen=True)
class Prioritised(Part):
    """Weight = priority ** exponent, with the mean squared temporal-difference error as priority; no importance weights."""

    exponent: float = 0.5
    new_priority: float = 100.0  # released code: unseen episodes come first

    def __post_init__(self) -> None:
        if not (self.exponent >= 0 and self.new_priority > 0):
            raise UserError(f"replay: exponent={self.exponent} must be at least 0 and new_priority={self.new_priority} above 0")

    def log_weight(self, priority: Float[Array, " M"]) -> Float[Array, " M"]:
        """Logarithm of the weight."""
        return self.exponent * jnp.log(jnp.maximum(priority, SMALLEST))


Sampler = Uniform | Prioritised
