"""Epsilon-greedy choice among available actions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray


def greedy(q: Float[Array, "*B N A"], available: Bool[Array, "*B N A"]) -> Int[Array, "*B N"]:
    """Each agent's best available action."""
    return jnp.argmax(jnp.where(available, q, -jnp.inf), axis=-1)


def epsilon_greedy(
    key: PRNGKeyArray, q: Float[Array, "*B N A"], available: Bool[Array, "*B N A"], epsilon: Float[Array, ""]
) -> Int[Array, "*B N"]:
    """Each agent on its own: uniform over available actions with probability epsilon, else greedy."""
    coin_key, action_key = jax.random.split(key)
    explore = jax.random.uniform(coin_key, q.shape[:-1]) < epsilon
    lots = jax.random.uniform(action_key, q.shape)
    return jnp.where(explore, jnp.argmax(jnp.where(available, lots, -1.0), axis=-1), greedy(q, available))
