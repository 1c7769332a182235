"""Independent learners (IQL): no mixing, every agent fits its own value to the team's reward."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, Shaped

from emc.parts import Mixed, Mixer
from emc.types import AgentValues, EnvSpec


@dataclasses.dataclass(frozen=True)
class Independent(Mixer):
    """One value per agent."""

    def init(self, key: PRNGKeyArray, spec: EnvSpec) -> tuple[()]:
        return ()

    def __call__(self, net: tuple[()], values: AgentValues, state: Shaped[Array, " S"]) -> Mixed:
        return Mixed(values.chosen, jnp.zeros(()))
