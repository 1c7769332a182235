"""No curiosity: nothing is novel."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from emc.lanes import Lanes
from emc.parts import Actors, Curiosity, Metrics, Policy
from emc.types import EnvSpec


@dataclasses.dataclass(frozen=True)
class NoCuriosity(Curiosity):
    """Pays no bonus."""

    def init(self, key: PRNGKeyArray, spec: EnvSpec, policy: Policy, policy_net: PyTree) -> tuple[()]:
        return ()

    def learn(
        self, state: tuple[()], batch: Lanes, actors: Actors, gamma: float, env_steps: Int[Array, ""]
    ) -> tuple[tuple[()], Float[Array, "M W"], Metrics]:
        return (), jnp.zeros_like(batch.reward), {}
