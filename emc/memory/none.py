"""The memory that knows nothing: a method without the memory term of Eq. 5 has this one."""

from __future__ import annotations

import dataclasses
from typing import final

import jax.numpy as jnp
from jaxtyping import Array, Bool, PRNGKeyArray, PyTree

from emc.lanes import Lanes
from emc.parts import Memory, Metrics, Recollection
from emc.types import EnvSpec, Episodes


@final
@dataclasses.dataclass(frozen=True)
class NoMemory(Memory):
    """Nothing is written and nothing is known."""

    @property
    def loss_weight(self) -> float:
        return 0.0

    def init(self, key: PRNGKeyArray, spec: EnvSpec) -> PyTree:
        return ()

    def observe(self, state: PyTree, fresh: Episodes, gamma: float, won: Bool[Array, " B"] | None = None) -> PyTree:
        return state

    def recall(self, state: PyTree, batch: Lanes, gamma: float) -> tuple[PyTree, Recollection]:
        return state, Recollection(target=jnp.zeros_like(batch.reward), known=jnp.zeros_like(batch.played))

    def metrics(self, state: PyTree) -> Metrics:
        return {}
