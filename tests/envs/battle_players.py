"""Players made for one test each: they show that a map can be won by what it takes in the game."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from emc.envs.battle import Battle
from emc.envs.battle.battle import World
from emc.envs.battle.view import FIRST_TARGET, NOTHING, STOP
from emc.policies.scripted import Memory, Script, towards
from emc.types import Timestep


def hold_position(env: Battle, x: float, y: float) -> Script:
    """Walk to a point, stay there, and hit what comes close."""
    n = env.spec.n_agents

    def script(world: World, now: Timestep, key: PRNGKeyArray, memory: Memory) -> tuple[Int[Array, " N"], Memory]:
        forces = world.forces
        distance = jnp.hypot(forces.x[n:] - forces.x[:n, None], forces.y[n:] - forces.y[:n, None])
        near = jnp.where(now.available[:, FIRST_TARGET:] & (distance <= 1.5), distance, jnp.inf)
        dx, dy = x - forces.x[:n], y - forces.y[:n]
        away = jnp.maximum(jnp.abs(dx), jnp.abs(dy)) > 0.7
        idle = jnp.where(away, towards(now, dx, dy), STOP)
        action = jnp.where(jnp.isfinite(near).any(axis=1), jnp.argmin(near, axis=1) + FIRST_TARGET, idle)
        return jnp.where(forces.life[:n] > 0, action, NOTHING), memory

    return script


def alternate_fire(env: Battle) -> Script:
    """Two shooters and one building: both shoot; whoever it aims at leaves its reach when it is weak, and rests its shield."""
    n = env.spec.n_agents
    reach = 7 + 0.875 + 0.625

    def script(world: World, now: Timestep, key: PRNGKeyArray, memory: Memory) -> tuple[Int[Array, " N"], Memory]:
        forces = world.forces
        dx, dy = forces.x[n] - forces.x[:n], forces.y[n] - forces.y[:n]
        distance = jnp.hypot(dx, dy)
        others = jnp.arange(n)[::-1]
        inside = distance <= reach
        bold = (forces.life[:n] > 0) & jnp.where(inside, forces.life[:n] + forces.shield[:n] > 50, forces.shield[:n] >= 79)
        covered = (forces.target[n] == others) & (inside & bold)[others]  # the other one is aimed at, and stays
        attack = jnp.where(now.available[:, FIRST_TARGET], FIRST_TARGET, towards(now, dx, dy))
        rest = jnp.where(distance < reach + 0.5, towards(now, 0 * dx, -dy), STOP)
        return jnp.where(forces.life[:n] > 0, jnp.where(covered | bold, attack, rest), NOTHING), memory

    return script
