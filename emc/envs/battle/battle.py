"""Small battles on the maps of the StarCraft Multi-Agent Challenge (Samvelyan et al. 2019), without StarCraft.

This is a re-implementation in JAX, not the game: results on it are not SMAC results. It runs on SMAC's clock (a step is 8 loops of 1/16 s)
with the game's own unit data, map layouts and orders, and shows agents what SMAC shows, so networks and settings carry over unchanged.
No computer player commands the enemy: the game's automatic targeting does. `emc docs battle` says what of all this is known of the game,
what policies trained in the real game support, and what is a guess.

Reward: damage done to life and shields, 10 for a kill, 200 for the victory, scaled so that all of it together is 20. As in SMAC the
absolute value is taken, so a step in which the enemy only regenerates pays a little. Killing everyone wins; whoever is left with healers
only has lost. The time limit is part of the task: the episode ends there as `terminated`, a defeat.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from emc.envs.battle.army import Army, army
from emc.envs.battle.combat import Combat
from emc.envs.battle.forces import Forces, recruits, side_by_side
from emc.envs.battle.formation import FORMATIONS
from emc.envs.battle.maps import ENEMY_ORDERS, MAPS, Map
from emc.envs.battle.view import View
from emc.types import EnvSpec, Timestep
from emc.user_input import lookup

KILL, VICTORY, SCALE = 10.0, 200.0, 20.0


class World(eqx.Module):
    """A battle."""

    forces: Forces
    last_action: Int[Array, " N"]  # -1 before the first
    time: Int[Array, ""]
    numbers: Int[Array, " E"] | None = None  # which of the enemy has which number; None: as in the tables


class Battle(eqx.Module):
    """A fight between the agents' units and the computer's."""

    map: str = eqx.field(default="2s3z", static=True)
    formation: str = eqx.field(default="spiral", static=True)  # how units stand at the start, where that is not known
    enemy_order: str = eqx.field(default="created", static=True)  # how the enemy's units are numbered, which is not known

    def __check_init__(self) -> None:
        lookup("map", self.map, MAPS)
        lookup("formation", self.formation, FORMATIONS)
        lookup("enemy_order", self.enemy_order, ENEMY_ORDERS)

    @property
    def spec(self) -> EnvSpec:
        """The sizes of the game."""
        return _spec(MAPS[self.map], self.formation, self.enemy_order)

    def reset(self, key: PRNGKeyArray, start: Float[Array, "U 2"] | None = None) -> tuple[World, Timestep]:
        """Line up both teams, as the formation says or at the places given; this is the same every time, but for shuffled numbers."""
        forces = recruits(self._army)
        if start is not None:
            forces = dataclasses.replace(forces, x=start[:, 0], y=start[:, 1])
        n, numbers = self._army.n_allies, None
        if self.enemy_order == "shuffled":
            numbers = jax.random.permutation(key, self._army.size - n)
        world = World(forces, jnp.full(n, -1, jnp.int32), jnp.int32(0), numbers)
        return world, self._timestep(world, jnp.float32(0.0))

    def step(self, world: World, action: Int[Array, " N"], key: PRNGKeyArray) -> tuple[World, Timestep]:
        """Half a second of battle."""
        jitter = jax.random.uniform(key, (self._army.size,))
        orders = self._view.orders(world.forces, action, world.numbers)
        forces = side_by_side(self._combat.half_second)(world.forces, orders, jitter)
        after = World(forces, action, world.time + 1, world.numbers)
        return after, self._timestep(after, self._reward(world.forces, forces))

    def _timestep(self, world: World, reward: Float[Array, ""]) -> Timestep:
        available = self._view.available(world.forces, world.numbers)
        lost, won = self._verdict(world.forces)
        return Timestep(
            obs=self._view.observations(world.forces, available, world.numbers),
            state=self._view.state(world.forces, world.last_action, world.numbers),
            available=available,
            reward=reward,
            terminated=lost | won | (world.time >= self.spec.episode_limit),
            truncated=jnp.bool(False),
            won=won,
        )

    def _verdict(self, forces: Forces) -> tuple[Bool[Array, ""], Bool[Array, ""]]:
        """Whether the agents have lost, and whether they have won; a draw is a loss."""
        n = self._army.n_allies
        fighting = (forces.life > 0) & self._army.has("armed")
        lost = ~jnp.any(fighting[:n])
        return lost, ~jnp.any(fighting[n:]) & ~lost

    def _reward(self, before: Forces, after: Forces) -> Float[Array, ""]:
        n = self._army.n_allies
        health = jnp.sum((before.life + before.shield - after.life - after.shield)[n:])
        kills = jnp.sum((before.life > 0)[n:] & (after.life <= 0)[n:])
        _, won = self._verdict(after)
        return (jnp.abs(health + KILL * kills) + VICTORY * won) * (SCALE / self.largest_reward)

    @property
    def largest_reward(self) -> float:
        """What everything together pays before it is scaled."""
        enemies = self._army.units[self._army.n_allies :]
        return VICTORY + sum(KILL + unit.life + unit.shield for unit in enemies)

    @property
    def start(self) -> Float[np.ndarray, "U 2"]:
        """Where everyone stands when a battle begins."""
        return self._army.start

    @property
    def heals(self) -> Bool[np.ndarray, " N"]:
        """Which agents heal instead of attacking."""
        return self._army.has("heals")[: self._army.n_allies]

    @property
    def harms(self) -> Bool[np.ndarray, "N U"]:
        """Whom each agent's weapon can hurt."""
        return self._army.damage[: self._army.n_allies] > 0

    @property
    def reach(self) -> Float[np.ndarray, "N E"]:
        """How far the centre of each enemy may be for each agent to hit it without a step."""
        n, reach, radius = self._army.n_allies, self._army.of("reach"), self._army.of("radius")
        return reach[:n, None] + radius[:n, None] + radius[n:]

    def life_share(self, world: World) -> Float[Array, " U"]:
        """Of each unit's life, how much is left."""
        return world.forces.life / self._army.of("life")

    def occupancy(self, state: Shaped[Array, " S"]) -> Float[Array, "R C"]:
        """Where the agents' units are that still fight; north is up."""
        spec = self.spec
        units = state[: spec.n_agents * spec.unit_size].reshape(spec.n_agents, spec.unit_size).astype(jnp.float32)
        rows, columns = spec.map_shape
        left, bottom, right, top = MAPS[self.map].terrain.playable
        column = jnp.floor(units[:, 2] * (right - left) + columns / 2)
        row = rows - 1 - jnp.floor(units[:, 3] * (top - bottom) + rows / 2)
        on = (row[:, None, None] == np.arange(rows)[:, None]) & (column[:, None, None] == np.arange(columns))
        return jnp.sum(on & (units[:, 0] > 0)[:, None, None], axis=0).astype(jnp.float32)

    def draw(self, axes: Any, world: World) -> None:
        """Draw one moment on empty matplotlib axes."""
        from emc.envs.battle.drawing import draw

        draw(axes, MAPS[self.map], self._army, world.forces)

    def draw_vision(self, axes: Any, world: World, agent: int) -> None:
        """Shade what one agent does not see."""
        from emc.envs.battle.drawing import draw_vision

        draw_vision(axes, world.forces, agent)

    def draw_outlines(self, axes: Any) -> None:
        """Draw the walls as outlines over a map."""
        from emc.envs.battle.drawing import draw_outlines

        draw_outlines(axes, MAPS[self.map])

    @property
    def _army(self) -> Army:
        return army(MAPS[self.map], self.formation, self.enemy_order)

    @property
    def _combat(self) -> Combat:
        return Combat(MAPS[self.map], self._army)

    @property
    def _view(self) -> View:
        return View(MAPS[self.map], self._army)


@functools.cache
def _spec(battle: Map, formation: str, enemy_order: str) -> EnvSpec:
    return View(battle, army(battle, formation, enemy_order)).spec
