"""Scripted players for battles, as functions of one world, and a loop that plays them: to measure maps, not to learn from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from emc.envs.battle import Battle
from emc.envs.battle.battle import World
from emc.envs.battle.forces import NOBODY
from emc.envs.battle.view import EAST, FIRST_TARGET, NORTH, NOTHING, SOUTH, STOP, WEST
from emc.types import Timestep

FAR = 1e6  # more than anybody's strength
Memory = Int[Array, " N"]  # whom each agent is after, by number, or NOBODY; at first nobody
Script = Callable[[World, Timestep, PRNGKeyArray, Memory], tuple[Int[Array, " N"], Memory]]


class Played(NamedTuple):
    """How scripted battles ended."""

    episode_return: Array
    won: Array
    length: Array


def play(env: Battle, script: Script, episodes: int, key: PRNGKeyArray, start: Float[Array, "U 2"] | None = None) -> Played:
    """Play battles side by side, each to its own end; `start` puts the units elsewhere than the environment does."""
    reset_key, key = jax.random.split(key)
    world, now = jax.vmap(lambda key: env.reset(key, start))(jax.random.split(reset_key, episodes))

    def step(carry: Any, _: None) -> tuple[Any, None]:
        world, now, memory, key, running, total = carry
        key, script_key, world_key = jax.random.split(key, 3)
        action, memory = jax.vmap(script)(world, now, jax.random.split(script_key, episodes), memory)
        world, after = jax.vmap(env.step)(world, action, jax.random.split(world_key, episodes))
        total = Played(total[0] + running * after.reward, total[1] | (running & after.won), total[2] + running)
        return (world, after, memory, key, running & ~after.terminated, total), None

    nothing = Played(jnp.zeros(episodes), jnp.zeros(episodes, bool), jnp.zeros(episodes, int))
    memory = jnp.full((episodes, env.spec.n_agents), NOBODY)
    first = (world, now, memory, key, jnp.ones(episodes, bool), nothing)
    (*_, total), _ = jax.lax.scan(step, first, None, length=env.spec.episode_limit)
    return total


def towards(now: Timestep, dx: Array, dy: Array) -> Int[Array, " N"]:
    """A move along the longer way, or along the other where that one is blocked, or none."""
    east, north = jnp.where(dx > 0, EAST, WEST), jnp.where(dy > 0, NORTH, SOUTH)
    longer = jnp.abs(dx) > jnp.abs(dy)

    def free(action: Array) -> Array:
        return jnp.take_along_axis(now.available, action[:, None], axis=1)[:, 0]

    first, second = jnp.where(longer, east, north), jnp.where(longer, north, east)
    return jnp.where(free(first), first, jnp.where(free(second), second, STOP))


def random_play(env: Battle) -> Script:
    """Any available action."""
    return lambda world, now, key, memory: (jax.random.categorical(key, jnp.where(now.available, 0.0, -jnp.inf)), memory)


def attack_nearest(env: Battle) -> Script:
    """Attack the nearest enemy that may be attacked, or walk to the nearest one; healers heal the most wounded."""
    return _attack(env, lambda distance, strength: distance)


def focus_fire(env: Battle) -> Script:
    """The same, but attack the weakest of the enemies that can be hit from where one stands, so that fire comes together."""
    reach = env.reach
    return _attack(env, lambda distance, strength: jnp.where(distance <= reach, strength, FAR + distance))


def _attack(env: Battle, cost: Callable[[Array, Array], Array]) -> Script:
    n, enemies = env.spec.n_agents, env.spec.n_actions - FIRST_TARGET
    heals = env.heals

    def script(world: World, now: Timestep, key: PRNGKeyArray, memory: Memory) -> tuple[Int[Array, " N"], Memory]:
        forces, targets = world.forces, now.available[:, FIRST_TARGET:]
        dx, dy = (value[n:] - value[:n, None] for value in (forces.x, forces.y))
        distance = jnp.hypot(dx, dy)
        price = cost(distance, (forces.life + forces.shield)[n:])
        if heals.any():  # a healer's targets are agents, by number
            life = jnp.pad(env.life_share(world)[:n], (0, max(enemies - n, 0)), constant_values=1.0)[:enemies]
            price = jnp.where(heals[:, None], life, price)
        price = jnp.where(targets, price, jnp.inf)
        closest = jnp.argmin(jnp.where(forces.life[n:] > 0, distance, jnp.inf), axis=1)[:, None]
        walk = towards(now, *(jnp.take_along_axis(value, closest, axis=1)[:, 0] for value in (dx, dy)))
        action = jnp.where(targets.any(axis=1), jnp.argmin(price, axis=1) + FIRST_TARGET, walk)
        return jnp.where(forces.life[:n] > 0, action, NOTHING), memory

    return script


def heuristic(env: Battle, rest: bool = False) -> Script:
    """SMAC's own scripted player (`heuristic_ai`): everyone attacks the nearest enemy until it is dead, then the next nearest.

    Attacks are ordered from wherever an agent is; with `rest` (`heuristic_rest`) only where the action is available, and an agent walks
    along the longer way towards its target meanwhile. Healers heal the nearest wounded until it is well.
    """
    n = env.spec.n_agents
    heals, harms = env.heals, env.harms

    def script(world: World, now: Timestep, key: PRNGKeyArray, memory: Memory) -> tuple[Int[Array, " N"], Memory]:
        forces = world.forces
        alive = forces.life > 0
        dx, dy = (value - value[:n, None] for value in (forces.x, forces.y))
        wounded = alive[:n] & (env.life_share(world)[:n] < 1) & ~heals
        wanted = jnp.where(heals[:, None], jnp.pad(wounded, (0, len(alive) - n)), jnp.pad(alive[n:], (n, 0)) & harms)
        whom = jnp.where(heals, memory, n + memory)
        still = (memory != NOBODY) & jnp.take_along_axis(wanted, jnp.maximum(whom, 0)[:, None], axis=1)[:, 0]
        nearest = jnp.argmin(jnp.where(wanted, jnp.hypot(dx, dy), jnp.inf), axis=1)
        whom = jnp.where(still, whom, nearest)
        some = wanted.any(axis=1)
        memory = jnp.where(some, jnp.where(heals, whom, whom - n), NOBODY)
        action = jnp.where(some, FIRST_TARGET + memory, STOP)
        if rest:
            away_x, away_y = (jnp.take_along_axis(value, whom[:, None], axis=1)[:, 0] for value in (dx, dy))
            sideways, upwards = jnp.where(away_x > 0, EAST, WEST), jnp.where(away_y > 0, NORTH, SOUTH)
            walk = jnp.where(jnp.abs(away_x) > jnp.abs(away_y), sideways, upwards)
            free = jnp.take_along_axis(now.available, action[:, None], axis=1)[:, 0]
            action = jnp.where(free, action, walk)
        return jnp.where(alive[:n], action, NOTHING), memory

    return script


SCRIPTS: dict[str, Callable[[Battle], Script]] = {
    "random": random_play,
    "nearest": attack_nearest,
    "focus-fire": focus_fire,
    "heuristic": heuristic,
    "heuristic-rest": lambda env: heuristic(env, rest=True),
}
