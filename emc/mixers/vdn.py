"""VDN (Sunehag et al. 2018): the team's value is the sum of the agents' values."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, Shaped

from emc.parts import Mixed, Mixer
from emc.types import AgentValues, EnvSpec


@dataclasses.dataclass(frozen=True)
class VDN(Mixer):
    """A sum, with nothing to learn."""

    def init(self, key: PRNGKeyArray, spec: EnvSpec) -> tuple[()]:
        return ()

    def __call__(self, net: tuple[()], values: AgentValues, state: Shaped[Array, " S"]) -> Mixed:
        return Mixed(jnp.sum(values.chosen, keepdims=True), jnp.zeros(()))
