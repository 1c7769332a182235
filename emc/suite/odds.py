"""How often agents succeed that choose uniformly among their available actions: measured, many episodes side by side."""

from __future__ import annotations

import dataclasses
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from emc.envs.base import Environment
from emc.errors import UserError

Moment = tuple[Array, PyTree, Array, Array, Array, Array]  # time, worlds, what is available, over, won, return
SIDE_BY_SIDE = 4096
MOST_EPISODES = 10**8


@dataclasses.dataclass(frozen=True)
class Odds:
    """What random play came to."""

    episodes: int
    wins: int
    mean_return: float
    seed: int = 0

    def interval(self, z: float = 1.96) -> tuple[float, float]:
        """Wilson's interval of the chance to win."""
        n, share = self.episodes, self.wins / self.episodes
        middle, width = share + z**2 / (2 * n), z * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
        return max(0.0, (middle - width) / (1 + z**2 / n)), min(1.0, (middle + width) / (1 + z**2 / n))


def measure(env: Environment, episodes: int, seed: int = 0) -> Odds:
    """Play so many random episodes."""
    if not 1 <= episodes <= MOST_EPISODES:
        raise UserError(f"{episodes} episodes cannot be played: give a number from 1 to {MOST_EPISODES:,}")
    size = min(episodes, SIDE_BY_SIDE)
    wins, total = 0, 0.0
    for block in range(-(-episodes // size)):
        won, returns = _some(env, jax.random.fold_in(jax.random.key(seed), block), size)
        counted = min(size, episodes - block * size)
        wins += int(np.sum(np.asarray(won)[:counted]))
        total += float(np.sum(np.asarray(returns, float)[:counted]))
    return Odds(episodes, wins, total / episodes, seed)


@partial(jax.jit, static_argnums=2)
def _some(env: Environment, key: PRNGKeyArray, size: int) -> tuple[Bool[Array, " B"], Float[Array, " B"]]:
    """Whether each of some episodes was won, and what it earned; stops when all are over."""

    def begin(key: PRNGKeyArray) -> tuple[PyTree, Bool[Array, "N A"]]:
        world, shown = env.reset(key)
        return world, shown.available

    def turn(world: PyTree, available: Bool[Array, "N A"], key: PRNGKeyArray) -> tuple[PyTree, Array, Array, Array, Array]:
        choose, chance = jax.random.split(key)
        lots = jnp.where(available, jax.random.uniform(choose, available.shape), -1.0)
        world, shown = env.step(world, jnp.argmax(lots, axis=1), chance)
        return world, shown.available, shown.reward, shown.terminated | shown.truncated, shown.won

    def step(now: Moment) -> Moment:
        time, world, available, over, won, earned = now
        keys = jax.random.split(jax.random.fold_in(key, time), size)
        world, available, reward, ended, success = jax.vmap(turn)(world, available, keys)
        return time + 1, world, available, over | ended, won | (success & ~over), earned + jnp.where(over, 0.0, reward)

    world, available = jax.vmap(begin)(jax.random.split(jax.random.fold_in(key, 0), size))
    nothing = jnp.zeros(size, bool)
    first = (jnp.int32(1), world, available, nothing, nothing, jnp.zeros(size))
    _, _, _, _, won, earned = jax.lax.while_loop(lambda now: ~jnp.all(now[3]), step, first)
    return won, earned
