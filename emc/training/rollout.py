"""Rollout: play whole episodes side by side, each to its own end.

Rows are padded with zeros after their end and never reset inside, and the loop stops when the last episode has ended, so short episodes are
cheap. The environment says what its end means: `terminated` is stored as it is given, and a truncated step simply is not terminated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from emc.envs.base import Environment
from emc.parts import Actors, Step
from emc.policies.exploration import epsilon_greedy
from emc.training.packing import blank_episodes
from emc.types import EnvSpec, Episodes, Timestep, shared_maximum


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
    record: dict[str, PyTree]  # the fields of `Episodes`, time first


def play(env: Environment, actors: Actors, key: PRNGKeyArray, epsilon: Float[Array, ""], episodes: int) -> tuple[Episodes, Outcome]:
    """Play `episodes` episodes with epsilon-greedy agents."""
    spec = env.spec
    reset_key, begin_key, key = jax.random.split(key, 3)
    world, first = jax.vmap(env.reset)(jax.random.split(reset_key, episodes))
    agents = begin(actors, spec, first.state, jax.random.split(begin_key, episodes))
    blank = blank_episodes(spec, (episodes,), actors.policy.blank_choice(spec))
    record = _swapped(vars(blank))
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
        key, decide_key, act_key, world_key = jax.random.split(p.key, 4)
        decision, action = decide(actors, p.agents, p.now.obs, p.now.available, p.previous, decide_key, act_key, epsilon)
        world, after = jax.vmap(env.step)(p.world, action, jax.random.split(world_key, episodes))
        flags = {"terminated": after.terminated, "played": jnp.ones(episodes, bool)}
        record = _note(p.record, p.t, p.running, action=action, reward=after.reward, choice=decision.choice, **flags)
        record = _note(record, p.t + 1, p.running, obs=after.obs, state=after.state, available=after.available)
        running = p.running & ~(after.terminated | after.truncated)
        return _Play(p.t + 1, key, world, decision.carry, after, action, running, p.won | (p.running & after.won), record)

    def unfinished(p: _Play) -> Bool[Array, ""]:
        return (shared_maximum(jnp.any(p.running).astype(jnp.int32)) > 0) & (shared_maximum(p.t) < spec.episode_limit)

    end = jax.lax.while_loop(unfinished, step, start)
    played = Episodes(**_swapped(end.record))
    return played, Outcome(jnp.sum(played.reward, axis=1), played.length, end.won)


def begin(actors: Actors, spec: EnvSpec, state: Shaped[Array, "B S"], keys: Shaped[PRNGKeyArray, " B"]) -> PyTree:
    """What agents carry into the first step of episodes that begin in these global states."""
    return jax.vmap(lambda state, key: actors.policy.begin(actors.net, actors.state, state, key, spec))(state, keys)


begin_compiled = jax.jit(begin, static_argnums=1)  # for whoever plays step by step


def decide(
    actors: Actors,
    agents: PyTree,
    obs: Shaped[Array, "B N O"],
    available: Bool[Array, "B N A"],
    previous: Int[Array, "B N"],
    decide_key: PRNGKeyArray,
    act_key: PRNGKeyArray,
    epsilon: Float[Array, ""],
) -> tuple[Step, Int[Array, "B N"]]:
    """One decision of the agents of many episodes, and the actions that follow from it."""

    def one(carry: PyTree, obs: Array, available: Array, previous: Array, key: PRNGKeyArray) -> Step:
        return actors.policy.step(actors.net, actors.state, carry, obs, available, previous, key, epsilon)

    decision = jax.vmap(one)(agents, obs, available, previous, jax.random.split(decide_key, obs.shape[0]))
    return decision, epsilon_greedy(act_key, decision.q, available, epsilon, decision.preferred)


def _swapped(record: Mapping[str, PyTree]) -> dict[str, Any]:
    """Time first instead of episodes first, or back."""
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), dict(record))


def _note(record: dict[str, PyTree], t: Int[Array, ""] | int, running: Bool[Array, " B"], **values: PyTree) -> dict[str, PyTree]:
    """Write one moment of each running episode; the rest stays padding."""

    def write(track: Array, value: Array) -> Array:
        kept = jnp.where(running.reshape(-1, *[1] * (value.ndim - 1)), value, jnp.zeros((), value.dtype))
        return jax.lax.dynamic_update_index_in_dim(track, kept.astype(track.dtype), t, 0)

    return record | {name: jax.tree.map(write, record[name], value) for name, value in values.items()}
