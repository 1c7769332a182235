"""Epsilon-greedy choice among available actions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from emc.parts import Actors


def greedy(q: Float[Array, "*B N A"], available: Bool[Array, "*B N A"]) -> Int[Array, "*B N"]:
    """Each agent's best available action."""
    return jnp.argmax(jnp.where(available, q, -jnp.inf), axis=-1)


def act_greedily(
    actors: Actors,
    carry: PyTree,
    obs: Shaped[Array, "N O"],
    available: Bool[Array, "N A"],
    previous: Int[Array, " N"],
    key: PRNGKeyArray,
) -> tuple[PyTree, Int[Array, " N"]]:
    """One moment of trained agents: what they carry on, and what they do."""
    decide_key, act_key = jax.random.split(key)
    never = jnp.zeros(())
    decision = actors.policy.step(actors.net, actors.state, carry, obs, available, previous, decide_key, never)
    return decision.carry, epsilon_greedy(act_key, decision.q, available, never, decision.preferred)


def values_of(
    actors: Actors,
    carry: PyTree,
    obs: Shaped[Array, "N O"],
    available: Bool[Array, "N A"],
    previous: Int[Array, " N"],
    key: PRNGKeyArray,
) -> Float[Array, "N A"]:
    """What trained agents expect of each action at one moment."""
    return actors.policy.step(actors.net, actors.state, carry, obs, available, previous, key, jnp.zeros(())).q


def epsilon_greedy(
    key: PRNGKeyArray,
    q: Float[Array, "*B N A"],
    available: Bool[Array, "*B N A"],
    epsilon: Float[Array, ""],
    preferred: Bool[Array, "*B N A"] | None = None,
) -> Int[Array, "*B N"]:
    """Each agent on its own: uniform over available actions with probability epsilon, else greedy.

    The greedy choice keeps to the preferred actions; where none of them is available the choice is uniform too.
    """
    allowed = available if preferred is None else available & preferred
    coin_key, action_key = jax.random.split(key)
    explore = (jax.random.uniform(coin_key, q.shape[:-1]) < epsilon) | ~jnp.any(allowed, axis=-1)
    lots = jax.random.uniform(action_key, q.shape)
    return jnp.where(explore, jnp.argmax(jnp.where(available, lots, -1.0), axis=-1), greedy(q, allowed))
