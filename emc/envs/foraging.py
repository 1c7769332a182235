"""Level-based foraging: food is loaded by agents beside it whose levels add up to its own (Papoudakis et al. 2021; package `lbforaging`).

A name such as `8x8-2p-2f-coop` is the package's without its `Foraging-` and version: a field of 8 x 8 cells, two players, two pieces of
food, each of which takes all of them (up to three); `2s-` before it lets agents see two cells far. Every step equals the package's (2.0),
with what one would not guess: who wants the cell that another wants too stays; the cell of somebody who wanted to leave but was kept
counts as free, so that two may stand on one; and an agent near the upper or left border sees players further away than food.

* The reward is the sum of the players' rewards: loaded food pays its share of all food, so that the best return is 1.
* All actions are always available, as where the package is used; one that cannot be done does nothing. The limit is the end:
  `terminated`.
* The state is the whole field as a team would write it down: all food, then all agents in their order, which is also what agent 0 sees
  when sight is not limited.
* Everyone starts on cells of their own, uniformly, food inside the border and never near other food. The package's second and later
  episodes avoid cells where agents ended the one before; here no episode knows of another.
"""

from __future__ import annotations

import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int8, PRNGKeyArray, Shaped

from emc.errors import UserError
from emc.types import EnvSpec, Timestep
from emc.user_input import Number, check_number, check_size, number

NONE, NORTH, SOUTH, WEST, EAST, LOAD = range(6)
MOVES = np.array([(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1), (0, 0)], np.int32)  # row and column
LARGEST = 100  # cells along a side: places are stored in a byte
HIGHEST = {"max_player_level": 42, "max_food_level": 127}  # levels too: of food as many as those of three players together
NAME = re.compile(r"(?:Foraging-)?(?:(\d+)s-)?(\d+)x(\d+)-(\d+)p-(\d+)f(-coop)?(-ind)?(-pen)?(?:-v3)?")


class World(eqx.Module):
    """Who and what is where; rows and columns."""

    position: Int[Array, "N 2"]
    level: Int[Array, " N"]
    food: Int[Array, "F 2"]  # row by row, from the top
    food_level: Int[Array, " F"]  # 0: loaded, or never there
    spawned: Int[Array, ""]  # levels of all food at the start
    time: Int[Array, ""]


class Foraging(eqx.Module):
    """Food of many levels."""

    size: int = eqx.field(default=8, static=True)
    players: int = eqx.field(default=2, static=True)
    foods: int = eqx.field(default=2, static=True)
    cooperative: bool = eqx.field(default=False, static=True)  # food has the highest level there is
    sight: int | None = eqx.field(default=None, static=True)  # how far agents see; None: everything
    max_food_level: int | None = eqx.field(default=None, static=True)  # None: the three lowest levels of players together
    max_player_level: int = eqx.field(default=2, static=True)
    episode_limit: int = eqx.field(default=50, static=True)
    penalty: Number = eqx.field(default=0.0, converter=number)  # for each player that loads in vain

    def __check_init__(self) -> None:
        check_size("size", self.size, "choose a larger field, such as the default 8.", low=5)
        if self.size > LARGEST:
            raise UserError(f"size={self.size} is more than {LARGEST}: choose a smaller field, such as the default 8.")
        check_size("players", self.players, "nobody forages alone.", low=2)
        check_size("foods", self.foods, "give the players something to load.", low=1)
        if self.sight is not None:
            check_size("sight", self.sight, "let agents see at least the cells beside them.", low=1)
        if self.max_food_level is not None:
            check_size("max_food_level", self.max_food_level, "food has a level of 1 or more.", low=1)
        check_size("max_player_level", self.max_player_level, "players have a level of 1 or more.", low=1)
        for name, highest in HIGHEST.items():
            if (level := getattr(self, name)) is not None and level > highest:
                raise UserError(f"{name}={level} is more than {highest}: choose a lower one, agents see levels in a byte.")
        check_size("episode_limit", self.episode_limit, "allow some steps, such as the default 50.", low=1)
        check_number("penalty", self.penalty, "give the size of the punishment; it is subtracted.", low=0.0)
        if self.players > self.size**2:
            raise UserError(f"players={self.players} exceeds the {self.size**2} cells of the field: raise size or lower players.")

    @property
    def spec(self) -> EnvSpec:
        """The sizes of the game."""
        seen = 3 * (self.foods + self.players)
        return EnvSpec(
            n_agents=self.players,
            n_actions=6,
            obs_size=seen,
            state_size=seen,
            episode_limit=self.episode_limit,
            obs_dtype="int8",
            state_dtype="int8",
            winnable=False,  # scored by its return, as elsewhere; `won` tells that everything was loaded
            map_shape=(self.size, self.size),
            idle_actions=(NONE,),
            move_actions=(NORTH, SOUTH, WEST, EAST),
        )

    def reset(self, key: PRNGKeyArray) -> tuple[World, Timestep]:
        """Place the players, then the food."""
        place_key, level_key, food_key, food_level_key = jax.random.split(key, 4)
        cells = np.stack(np.divmod(np.arange(self.size**2, dtype=np.int32), self.size), axis=1)
        _, taken = jax.lax.top_k(jax.random.uniform(place_key, (self.size**2,)), self.players)
        position = jnp.asarray(cells)[taken]
        level = jax.random.randint(level_key, (self.players,), 1, self.max_player_level + 1)
        highest = jnp.sum(jnp.sort(level)[:3]) if self.max_food_level is None else jnp.int32(self.max_food_level)
        lowest = highest if self.cooperative else jnp.int32(1)
        wanted = jax.random.randint(food_level_key, (self.foods,), lowest, highest + 1)

        inside = np.all((cells > 0) & (cells < self.size - 1), axis=1)
        free = jnp.asarray(inside).at[taken].set(False)
        places: list[Int[Array, ""]] = []
        for draws in jax.random.uniform(food_key, (self.foods, self.size**2)):  # one after the other: each needs room of its own
            place = jnp.where(jnp.any(free), jnp.argmax(jnp.where(free, draws, -1.0)), self.size**2)
            apart = jnp.abs(cells - jnp.stack(jnp.divmod(place, self.size)))
            near = jnp.all(apart <= 1, axis=1) | (jnp.any(apart == 0, axis=1) & jnp.all(apart <= 2, axis=1))
            free &= ~near
            places.append(place)
        place = jnp.stack(places)
        wanted = jnp.where(place < self.size**2, wanted, 0)
        order = jnp.argsort(place)
        food = jnp.stack(jnp.divmod(place[order], self.size), axis=1).astype(jnp.int32)
        world = World(position, level, food, wanted[order], jnp.sum(wanted), jnp.int32(0))
        return world, self._show(world, jnp.float32(0.0))

    def step(self, world: World, action: Int[Array, " N"], key: PRNGKeyArray) -> tuple[World, Timestep]:
        """Move the players, then load."""
        there = world.food_level > 0
        target = world.position + jnp.asarray(MOVES)[action]
        outside = jnp.any((target < 0) | (target >= self.size), axis=1)
        in_food = jnp.any(jnp.all(target[:, None] == world.food, axis=2) & there, axis=1)
        target = jnp.where((outside | in_food)[:, None], world.position, target)
        rivals = jnp.sum(jnp.all(target[:, None] == target, axis=2), axis=1)
        position = jnp.where((rivals > 1)[:, None], world.position, target)

        beside = (jnp.sum(jnp.abs(position[:, None] - world.food), axis=2) == 1) & there
        loads = beside & (action == LOAD)[:, None]  # each player is beside one piece of food at most
        strength, loaders = jnp.sum(loads * world.level[:, None], axis=0), jnp.sum(loads, axis=0)
        loaded = (loaders > 0) & (strength >= world.food_level)
        share = jnp.sum(jnp.where(loaded, world.food_level, 0)) / jnp.maximum(world.spawned, 1)
        reward = share - self.penalty * jnp.sum(jnp.where(loaded, 0, loaders))
        left = jnp.where(loaded, 0, world.food_level)
        world = World(position, world.level, world.food, left, world.spawned, world.time + 1)
        return world, self._show(world, jnp.asarray(reward, jnp.float32))

    def occupancy(self, state: Shaped[Array, " S"]) -> Float[Array, "R C"]:
        """How many agents stand on each cell."""
        place = state[3 * self.foods :].reshape(self.players, 3)[:, :2].astype(jnp.int32)
        rows, columns = (jax.nn.one_hot(place[:, axis], self.size) for axis in (0, 1))
        return jnp.einsum("nr,nc->rc", rows, columns)

    def draw(self, axes: Any, world: World) -> None:
        """Draw one moment on empty matplotlib axes."""
        from matplotlib.patches import Circle, Rectangle

        self.draw_outlines(axes)
        for line in range(self.size + 1):
            axes.plot((-0.5, self.size - 0.5), (line - 0.5, line - 0.5), color="#CDD3CB", linewidth=0.6, zorder=1)
            axes.plot((line - 0.5, line - 0.5), (-0.5, self.size - 0.5), color="#CDD3CB", linewidth=0.6, zorder=1)
        words: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 100 / max(self.size, 8), "fontweight": "bold", "zorder": 5}
        for (row, column), level in zip(np.asarray(world.food), np.asarray(world.food_level), strict=True):
            if level:
                box = Rectangle((column - 0.4, row - 0.4), 0.8, 0.8, facecolor="#D1E7C5", edgecolor="#3B7A1E", linewidth=1.5, zorder=2)
                axes.add_patch(box)
                axes.text(column, row, str(level), color="#2C5C16", **words)
        cells = [tuple(place) for place in np.asarray(world.position).tolist()]
        for agent, (row, column) in enumerate(cells):
            shift = 0.3 * sum(other == (row, column) for other in cells[:agent])  # two may stand on one cell
            axes.add_patch(Circle((column + shift, row), 0.36, facecolor="#0072B2", edgecolor="white", linewidth=1.2, zorder=4))
            axes.text(column + shift, row, str(world.level[agent]), color="white", **words)
        below = {"y": self.size - 0.3, "va": "top", "fontsize": "small"}
        axes.text(x=-0.5, s="● agents and their levels", ha="left", color="#0072B2", **below)
        axes.text(x=self.size - 0.5, s="■ food and its level", ha="right", color="#3B7A1E", **below)
        axes.set_ylim(self.size + 0.3, -0.7)

    def draw_outlines(self, axes: Any) -> None:
        """Draw the border over a map of the field."""
        from matplotlib.patches import Rectangle

        axes.add_patch(Rectangle((-0.5, -0.5), self.size, self.size, fill=False, edgecolor="#30363D", linewidth=1.5, zorder=4))
        axes.set(xlim=(-0.7, self.size - 0.3), ylim=(self.size - 0.3, -0.7), aspect="equal")
        axes.set_axis_off()

    def _show(self, world: World, reward: Float[Array, ""]) -> Timestep:
        """What the players see, and whether it is over."""
        own_first = np.array([[agent, *(other for other in range(self.players) if other != agent)] for agent in range(self.players)])
        sight = self.size if self.sight is None else self.sight
        gone = jnp.all(world.food_level == 0)
        return Timestep(
            obs=jax.vmap(lambda order: self._seen(world, order, sight))(own_first),
            state=self._seen(world, jnp.arange(self.players), self.size),
            available=jnp.ones((self.players, 6), bool),
            reward=reward,
            terminated=gone | (world.time >= self.episode_limit),
            truncated=jnp.bool(False),
            won=gone & (world.time > 0),
        )

    def _seen(self, world: World, order: Int[Array, " N"], sight: int) -> Int8[Array, " O"]:
        """Food and players as the first of the players sees them: from the corner of what it sees."""
        places = world.position[order]
        corner = places[0] - jnp.minimum(sight, places[0])
        food_seen = (world.food_level > 0) & jnp.all(jnp.abs(world.food - places[0]) <= sight, axis=1)
        players_seen = jnp.all((places >= corner) & (places <= corner + 2 * sight), axis=1)
        food, food_level = _first(food_seen, world.food - corner, world.food_level)
        players, level = _first(players_seen, places - corner, world.level[order])
        return _written(food, food_level, players, level)


def _first(seen: Bool[Array, " n"], place: Int[Array, "n 2"], level: Int[Array, " n"]) -> tuple[Int[Array, "n 2"], Int[Array, " n"]]:
    """What is seen, moved up to the front; nothing has level 0."""
    to = seen[:, None] & (jnp.cumsum(seen)[:, None] - 1 == jnp.arange(seen.shape[0]))
    return jnp.einsum("ij,ic->jc", to.astype(jnp.int32), place), jnp.einsum("ij,i->j", to.astype(jnp.int32), level)


def _written(food: Int[Array, "F 2"], food_level: Int[Array, " F"], place: Int[Array, "N 2"], level: Int[Array, " N"]) -> Int8[Array, " O"]:
    """Row, column and level of each, food before players; -1, -1 and 0 for what is not there."""
    where, how = jnp.concatenate([food, place]), jnp.concatenate([food_level, level])
    where = jnp.where(how[:, None] > 0, where, -1)
    return jnp.concatenate([where, how[:, None]], axis=1).reshape(3 * how.shape[0]).astype(jnp.int8)


def fields_of(name: str) -> dict[str, Any]:
    """The fields that a name of the package stands for."""
    found = NAME.fullmatch(name)
    if found is None or found[2] != found[3]:
        raise UserError(f"{name!r} is no name of a foraging field: write one like 8x8-2p-2f-coop, or 2s-8x8-2p-2f for a sight of two cells")
    sight, size, _, players, foods, coop, single, penalty = found.groups()
    fields: dict[str, Any] = {"size": int(size), "players": int(players), "foods": int(foods), "cooperative": coop is not None}
    fields["sight"] = int(sight) if sight else None
    fields["max_food_level"] = 1 if single else None
    return fields | ({"penalty": 0.1} if penalty else {})
