"""Replay: a ring of whole episodes with one priority each."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from emc.sampling import Sampler
from emc.types import EnvSpec, Episodes


class Replay(eqx.Module):
    """Stored episodes, in compact types; row `added % capacity` is the next to be overwritten."""

    episodes: Episodes
    priority: Float[Array, " M"]
    added: Int[Array, ""]

    @staticmethod
    def empty(spec: EnvSpec, capacity: int, choice: PyTree = ()) -> Replay:
        """A ring with nothing in it; `choice` is what a policy records at one step."""
        episodes = blank_episodes(spec, (capacity,), "int8" if spec.n_actions <= 128 else "int32", choice)
        return Replay(episodes, jnp.zeros(capacity), jnp.zeros((), jnp.int32))

    @property
    def capacity(self) -> int:
        """How many episodes fit."""
        return self.priority.shape[0]

    def add(self, fresh: Episodes, sampler: Sampler) -> Replay:
        """Store a block of new episodes in place of the oldest; the block's size divides the capacity, so it never wraps."""
        at = self.added % self.capacity
        stored = jax.tree.map(
            lambda ring, new: jax.lax.dynamic_update_slice_in_dim(ring, new.astype(ring.dtype), at, 0), self.episodes, fresh
        )
        block = jnp.full(fresh.reward.shape[0], sampler.new_priority)
        priority = jax.lax.dynamic_update_slice_in_dim(self.priority, block, at, 0)
        return Replay(stored, priority, self.added + block.shape[0])

    def sample(self, key: PRNGKeyArray, sampler: Sampler, batch: int) -> tuple[Int[Array, " B"], Episodes]:
        """Draw episodes without replacement in proportion to the sampler's weights (Gumbel top-k); the ring must hold a batch."""
        stored = jnp.arange(self.capacity) < self.added
        lots = sampler.log_weight(self.priority) + jax.random.gumbel(key, (self.capacity,))
        rows = jax.lax.top_k(jnp.where(stored, lots, -jnp.inf), batch)[1]
        drawn = jax.tree.map(lambda ring: ring[rows], self.episodes)
        return rows, eqx.tree_at(lambda e: e.action, drawn, drawn.action.astype(jnp.int32))

    def reprioritise(self, rows: Int[Array, " B"], priority: Float[Array, " B"]) -> Replay:
        """Give sampled episodes their new priorities."""
        return eqx.tree_at(lambda replay: replay.priority, self, self.priority.at[rows].set(priority))


def blank_episodes(spec: EnvSpec, shape: tuple[int, ...], action_dtype: str, choice: PyTree = ()) -> Episodes:
    """All padding."""
    steps, moments, agents = spec.episode_limit, spec.episode_limit + 1, spec.n_agents
    return Episodes(
        obs=jnp.zeros((*shape, moments, agents, spec.obs_size), spec.obs_dtype),
        state=jnp.zeros((*shape, moments, spec.state_size), spec.state_dtype),
        available=jnp.zeros((*shape, moments, agents, spec.n_actions), bool),
        action=jnp.zeros((*shape, steps, agents), action_dtype),
        reward=jnp.zeros((*shape, steps)),
        terminated=jnp.zeros((*shape, steps), bool),
        played=jnp.zeros((*shape, steps), bool),
        choice=jax.tree.map(lambda x: jnp.zeros((*shape, steps, *x.shape), x.dtype), choice),
    )
