"""Replay: a ring of whole episodes with one priority each."""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from emc.lanes import Lanes, Layout, lay
from emc.parts import Policy
from emc.sampling import Sampler
from emc.training.packing import Packed, blank_episodes, lengths, pack, unpack
from emc.types import EnvSpec, Episodes


class Replay(eqx.Module):
    """Stored episodes, packed; row `added % capacity` is the next to be overwritten."""

    spec: EnvSpec = eqx.field(static=True)
    episodes: Packed
    priority: Float[Array, " M"]
    added: Int[Array, ""]

    @staticmethod
    def empty(spec: EnvSpec, capacity: int, choice: PyTree = ()) -> Replay:
        """A ring with nothing in it; `choice` is what a policy records at one step."""
        one = jax.eval_shape(lambda: pack(spec, blank_episodes(spec, (), choice)))
        episodes = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), one)
        return Replay(spec, episodes, jnp.zeros(capacity), jnp.zeros((), jnp.int32))

    @property
    def capacity(self) -> int:
        """How many episodes fit."""
        return self.priority.shape[0]

    def add(self, fresh: Episodes, sampler: Sampler) -> Replay:
        """Store a block of new episodes in place of the oldest; the block's size divides the capacity, so it never wraps."""
        at = self.added % self.capacity
        stored = jax.tree.map(
            lambda ring, new: jax.lax.dynamic_update_slice_in_dim(ring, new, at, 0), self.episodes, pack(self.spec, fresh)
        )
        block = jnp.full(fresh.reward.shape[0], sampler.new_priority)
        priority = jax.lax.dynamic_update_slice_in_dim(self.priority, block, at, 0)
        return Replay(self.spec, stored, priority, self.added + block.shape[0])

    def draw(self, key: PRNGKeyArray, sampler: Sampler, batch: int) -> Int[Array, " B"]:
        """Rows of episodes, without replacement, in proportion to the sampler's weights (Gumbel top-k); the ring must hold a batch."""
        stored = jnp.arange(self.capacity) < self.added
        lots = sampler.log_weight(self.priority) + jax.random.gumbel(key, (self.capacity,))
        return jax.lax.top_k(jnp.where(stored, lots, -jnp.inf), batch)[1]

    def lay(self, rows: Int[Array, " B"], layout: Layout, policy: Policy) -> Lanes:
        """Stored episodes laid out for learning; only what was played of them is read."""
        length = lengths(self.spec, self.episodes.step_flags[rows])
        return lay(
            lambda episode, time: unpack(self.spec, self.episodes, rows[episode], time, length[episode]),
            length,
            self.spec.episode_limit,
            layout,
            partial(policy.inputs, n_actions=self.spec.n_actions),
        )

    def reprioritise(self, rows: Int[Array, " B"], priority: Float[Array, " B"]) -> Replay:
        """Give sampled episodes their new priorities."""
        return eqx.tree_at(lambda replay: replay.priority, self, self.priority.at[rows].set(priority))
