"""Secret Room: three doors lead to three rooms, and success is in one of them (CMAE, ICML 2021).

A wall with three doors divides the board; beyond it two more make three rooms of the rest. A switch on the near side opens all doors, one
in each room its own. In that order the first switch with an agent near it decides which doors are open for the next step; the others do
nothing. Success is both agents beyond the wall and no lower than one row below the first room, which the rules of the released
environment count as well. `emc.envs.board` has the rules that all of CMAE's boards share.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from emc.envs import board
from emc.types import EnvSpec, Timestep
from emc.user_input import check_size

REACH = 1.5  # how near to a switch an agent must be
OPENS = np.array([(True, True, True), (True, False, False), (False, True, False), (False, False, True)])  # doors, by switch


class World(eqx.Module):
    """Where the agents are, and which doors are open."""

    position: Int[Array, "N 2"]  # x and y
    doors: Bool[Array, " 3"]  # from the top
    time: Int[Array, ""]


class SecretRoom(eqx.Module):
    """Four switches, three doors."""

    size: int = eqx.field(default=15, static=True)  # published: 25, and 15 for a small one
    episode_limit: int | None = eqx.field(default=None, static=True)  # published: 300; 150 up to size 15

    def __check_init__(self) -> None:
        check_size("size", self.size, "choose a larger board, such as the default 15.", low=9)
        if self.episode_limit is not None:
            check_size("episode_limit", self.episode_limit, "allow some steps, or leave it out.", low=1)

    @property
    def limit(self) -> int:
        """Steps of an episode."""
        return self.episode_limit or (150 if self.size <= 15 else 300)

    @property
    def spec(self) -> EnvSpec:
        """The sizes of the game."""
        return board.board_spec(self.size, 3, self.limit)

    @property
    def walls(self) -> tuple[int, int]:
        """The rows of the walls between the rooms."""
        return self.size // 3, 2 * self.size // 3

    @property
    def doors(self) -> tuple[int, int, int]:
        """The row in the middle of each door."""
        upper, lower = self.walls
        return upper // 2, (upper + lower) // 2, (lower + self.size) // 2

    @property
    def switches(self) -> Int[np.ndarray, "4 2"]:
        """The one that opens all doors, then those in the rooms."""
        near, far = int(0.2 * self.size), int(0.8 * self.size)
        return np.array([(near, far), *((far, y) for y in self.doors)], np.int32)

    def reset(self, key: PRNGKeyArray) -> tuple[World, Timestep]:
        """Start in the corner, all doors shut."""
        near = self.size // 10
        world = World(jnp.array([(near + 1, near + 1), (near, near)], jnp.int32), jnp.zeros(3, bool), jnp.int32(0))
        return world, self._show(world, jnp.bool(False))

    def step(self, world: World, action: Int[Array, " N"], key: PRNGKeyArray) -> tuple[World, Timestep]:
        """Move the agents, then look who is at a switch."""
        target = board.targets(world.position, action, self.size)
        position = jnp.where(self._blocked(target, world.doors)[:, None], world.position, target)
        pressed = board.near(position, self.switches, REACH)
        first = pressed & (jnp.cumsum(pressed) == 1)
        world = World(position, jnp.any(first[:, None] & OPENS, axis=0), world.time + 1)
        inside = (2 * position[:, 0] >= self.size + 2) & (position[:, 1] <= self.size // 3 + 1)
        return world, self._show(world, jnp.all(inside))

    def occupancy(self, state: Shaped[Array, " S"]) -> Float[Array, "R C"]:
        """How many agents stand on each cell."""
        return board.occupancy(state, self.size)

    def areas(self) -> dict[str, Bool[np.ndarray, "R C"]]:
        """The near side, and each room."""
        y, x = np.mgrid[: self.size, : self.size]
        (upper, lower), beyond = self.walls, x > self.size // 2
        return {
            "before the wall": x < self.size // 2,
            "first room": beyond & (y < upper),
            "second room": beyond & (y > upper) & (y < lower),
            "third room": beyond & (y > lower),
        }

    def draw(self, axes: Any, world: World) -> None:
        """Draw one moment on empty matplotlib axes."""
        y, x = np.mgrid[: self.size, : self.size]
        goal = (2 * x >= self.size + 2) & (y <= self.size // 3 + 1)
        board.draw_board(axes, self.size, self._walled(), goal)
        position, half = np.asarray(world.position), self.size // 2
        for number, (row, is_open) in enumerate(zip(self.doors, np.asarray(world.doors), strict=True), start=1):
            cells = np.array([(half, y) for y in range(max(row - 1, 0), min(row + 2, self.size))])
            board.draw_door(axes, cells, bool(is_open), str(number), self.size)
        pressed = np.asarray(board.near(jnp.asarray(position), self.switches, REACH))
        for place, down, name in zip(self.switches, pressed, "S123", strict=True):
            board.draw_switch(axes, place, REACH, name, bool(down), self.size)
        board.draw_agents(axes, position, self.size)

    def draw_outlines(self, axes: Any) -> None:
        """Draw the border and the walls over a map of the board."""
        y, x = np.mgrid[: self.size, : self.size]
        doorway = (x == self.size // 2) & np.any([np.abs(y - row) <= 1 for row in self.doors], axis=0)
        board.outline(axes, self.size, self._walled() & ~doorway)

    def _walled(self) -> Bool[np.ndarray, "R C"]:
        """Cells that are wall while all doors are shut."""
        y, x = np.mgrid[: self.size, : self.size]
        return (x == self.size // 2) | ((x >= self.size // 2) & np.isin(y, self.walls))

    def _blocked(self, cell: Int[Array, "N 2"], doors: Bool[Array, " 3"]) -> Bool[Array, " N"]:
        (upper, lower), half, x, y = self.walls, self.size // 2, cell[:, 0], cell[:, 1]
        doorway = (x == half) & jnp.any(doors & (jnp.abs(y[:, None] - jnp.array(self.doors)) <= 1), axis=1)
        return ((x == half) | ((x >= half) & ((y == upper) | (y == lower)))) & ~doorway

    def _show(self, world: World, won: Bool[Array, ""]) -> Timestep:
        return board.show(world.position, world.doors, self.size, won, world.time >= self.limit)
