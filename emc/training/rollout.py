"""Rollout: play whole episodes side by side, each to its own end.

Rows are padded with zeros after their end and never reset inside, and the loop stops when the last episode has ended, so short episodes are
cheap. The environment says what its end means: `terminated` is stored as it is given, and a truncated step simply is not terminated.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from emc.envs.base import Environment
from emc.parts import Policy
from emc.policies.exploration import epsilon_greedy
from emc.training.replay import blank_episodes
from emc.types import Episodes, Timestep, shared_maximum


class Outcome(eqx.Module):
    """How episodes ended."""

    episode_return: Float[Array, " B"]
    length: Int[Array, " B"]
    won: Bool[Array, " B"]


class _Play(eqx.Module):
    """What the loop carries; recorded arrays lead with time."""

    t: Int[Array, ""]
    key: PRNGKeyArray
    world: PyTree
    agents: PyTree
    now: Timestep
    previous: Int[Array, "B N"]
    running: Bool[Array, " B"]
    won: Bool[Array, " B"]
    record: Episodes


def play(
    env: Environment, policy: Policy, net: PyTree, key: PRNGKeyArray, epsilon: Float[Array, ""], episodes: int
) -> tuple[Episodes, Outcome]:
    """Play `episodes` episodes with epsilon-greedy agents."""
    spec = env.spec
    reset_key, key = jax.random.split(key)
    world, first = jax.vmap(env.reset)(jax.random.split(reset_key, episodes))
    agents = jax.tree.map(lambda x: jnp.broadcast_to(x, (episodes, *x.shape)), policy.begin(net, spec))
    record = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), blank_episodes(spec, (episodes,), "int32"))
    start = _Play(
        t=jnp.zeros((), jnp.int32),
        key=key,
        world=world,
        agents=agents,
        now=first,
        previous=jnp.full((episodes, spec.n_agents), -1),
        running=jnp.ones(episodes, bool),
        won=jnp.zeros(episodes, bool),
        record=_note(record, 0, jnp.ones(episodes, bool), obs=first.obs, state=first.state, available=first.available),
    )

    def step(p: _Play) -> _Play:
        key, act_key, world_key = jax.random.split(p.key, 3)
        agents, q = policy.step(net, p.agents, p.now.obs, p.previous)
        action = epsilon_greedy(act_key, q, p.now.available, epsilon)
        world, after = jax.vmap(env.step)(p.world, action, jax.random.split(world_key, episodes))
        record = _note(
            p.record, p.t, p.running, action=action, reward=after.reward, terminated=after.terminated, played=jnp.ones(episodes, bool)
        )
        record = _note(record, p.t + 1, p.running, obs=after.obs, state=after.state, available=after.available)
        running = p.running & ~(after.terminated | after.truncated)
        return _Play(p.t + 1, key, world, agents, after, action, running, p.won | (p.running & after.won), record)

    def unfinished(p: _Play) -> Bool[Array, ""]:
        return (shared_maximum(jnp.any(p.running).astype(jnp.int32)) > 0) & (shared_maximum(p.t) < spec.episode_limit)

    end = jax.lax.while_loop(unfinished, step, start)
    played = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), end.record)
    return played, Outcome(jnp.sum(played.reward, axis=1), played.length, end.won)


def _note(record: Episodes, t: Int[Array, ""] | int, running: Bool[Array, " B"], **values: Any) -> Episodes:
    """Write one moment of each running episode; the rest stays padding."""
    names = list(values)

    def write(track: Array, value: Array) -> Array:
        kept = jnp.where(running.reshape(-1, *[1] * (value.ndim - 1)), value, jnp.zeros((), value.dtype))
        return jax.lax.dynamic_update_index_in_dim(track, kept.astype(track.dtype), t, 0)

    where = lambda e: tuple(vars(e)[name] for name in names)  # noqa: E731
    return eqx.tree_at(where, record, tuple(write(vars(record)[name], values[name]) for name in names))
