"""Pass: one agent holds the switch that opens the door for the other, who then does the same from beyond (CMAE, ICML 2021).

A wall with a door in its middle divides the board. After the moves of a step the door is open for the next one's if some agent is near a
switch; there is one on each side. Both agents beyond the wall is success. `emc.envs.board` has the rules that all of CMAE's boards share.
An agent whom the door shuts in stands inside the wall and may leave it to either side.
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


class World(eqx.Module):
    """Where the agents are, and whether the door is open."""

    position: Int[Array, "N 2"]  # x and y
    door: Bool[Array, ""]
    time: Int[Array, ""]


class Pass(eqx.Module):
    """Two switches, one door."""

    size: int = eqx.field(default=10, static=True)  # published: 30, and 10 for a small one
    episode_limit: int | None = eqx.field(default=None, static=True)  # published: 300; 50 up to size 10

    def __check_init__(self) -> None:
        check_size("size", self.size, "choose a larger board, such as the default 10.", low=5)
        if self.episode_limit is not None:
            check_size("episode_limit", self.episode_limit, "allow some steps, or leave it out.", low=1)

    @property
    def limit(self) -> int:
        """Steps of an episode."""
        return self.episode_limit or (50 if self.size <= 10 else 300)

    @property
    def spec(self) -> EnvSpec:
        """The sizes of the game."""
        return board.board_spec(self.size, 1, self.limit)

    @property
    def switches(self) -> Int[np.ndarray, "2 2"]:
        """One on each side of the wall."""
        near, far = self.size // 10, int(0.8 * self.size)
        return np.array([(near, far), (far, near)], np.int32)

    @property
    def reach(self) -> float:
        """How near to a switch an agent must be."""
        return 1.5 * (self.size // 10)

    def reset(self, key: PRNGKeyArray) -> tuple[World, Timestep]:
        """Start in the corner, the door shut."""
        near = self.size // 10
        world = World(jnp.array([(near + 1, near + 1), (near, near)], jnp.int32), jnp.bool(False), jnp.int32(0))
        return world, self._show(world, jnp.bool(False))

    def step(self, world: World, action: Int[Array, " N"], key: PRNGKeyArray) -> tuple[World, Timestep]:
        """Move the agents, then look who is at a switch."""
        target = board.targets(world.position, action, self.size)
        position = jnp.where(self._blocked(target, world.door)[:, None], world.position, target)
        world = World(position, jnp.any(board.near(position, self.switches, self.reach)), world.time + 1)
        return world, self._show(world, jnp.all(2 * position[:, 0] >= self.size + 2))

    def occupancy(self, state: Shaped[Array, " S"]) -> Float[Array, "R C"]:
        """How many agents stand on each cell."""
        return board.occupancy(state, self.size)

    def areas(self) -> dict[str, Bool[np.ndarray, "R C"]]:
        """The two sides of the wall."""
        x = np.mgrid[: self.size, : self.size][1]
        return {"before the wall": x < self.size // 2, "beyond the wall": x > self.size // 2}

    def draw(self, axes: Any, world: World) -> None:
        """Draw one moment on empty matplotlib axes."""
        x = np.mgrid[: self.size, : self.size][1]
        board.draw_board(axes, self.size, x == self.size // 2, 2 * x >= self.size + 2)
        half, radius, position = self.size // 2, self.size // 10, np.asarray(world.position)
        cells = np.array([(half, y) for y in range(half - radius, half + radius + 1)])
        board.draw_door(axes, cells, bool(world.door), "", self.size)
        pressed = np.asarray(board.near(jnp.asarray(position), self.switches, self.reach))
        for place, down in zip(self.switches, pressed, strict=True):
            board.draw_switch(axes, place, max(self.reach, 0.5), "S", bool(down), self.size)
        board.draw_agents(axes, position, self.size)

    def draw_outlines(self, axes: Any) -> None:
        """Draw the border and the wall over a map of the board."""
        y, x = np.mgrid[: self.size, : self.size]
        board.outline(axes, self.size, (x == self.size // 2) & (np.abs(y - self.size // 2) > self.size // 10))

    def _blocked(self, cell: Int[Array, "N 2"], door: Bool[Array, ""]) -> Bool[Array, " N"]:
        half = self.size // 2
        doorway = jnp.abs(cell[:, 1] - half) <= self.size // 10
        return (cell[:, 0] == half) & ~(door & doorway)

    def _show(self, world: World, won: Bool[Array, ""]) -> Timestep:
        return board.show(world.position, world.door[None], self.size, won, world.time >= self.limit)
