"""Push-Box: a box that moves only if both agents push the same side of it at the same time (CMAE, ICML 2021).

The box has 3 x 3 cells and stands in the middle; the border is success. First the box: an agent beside one of its sides that moves against
it pushes, and two pushes in one direction move it by a cell. Then the agents, and the box blocks them where it is by then, so that both
follow it. `emc.envs.board` has the rules that all of CMAE's boards share.
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
    """Where the agents and the middle of the box are."""

    position: Int[Array, "N 2"]  # x and y
    box: Int[Array, " 2"]
    time: Int[Array, ""]


class PushBox(eqx.Module):
    """A heavy box."""

    size: int = eqx.field(default=9, static=True)  # published: 15, and 9 for a small one
    episode_limit: int | None = eqx.field(default=None, static=True)  # published: 300; 50 up to size 9

    def __check_init__(self) -> None:
        check_size("size", self.size, "choose a larger board, such as the default 9.", low=9)
        if self.episode_limit is not None:
            check_size("episode_limit", self.episode_limit, "allow some steps, or leave it out.", low=1)

    @property
    def limit(self) -> int:
        """Steps of an episode."""
        return self.episode_limit or (50 if self.size <= 9 else 300)

    @property
    def spec(self) -> EnvSpec:
        """The sizes of the game."""
        return board.board_spec(self.size, 2 * self.size, self.limit)

    def reset(self, key: PRNGKeyArray) -> tuple[World, Timestep]:
        """Start below and to the right of the box."""
        half = self.size // 2
        position = jnp.array([(half + 4, half + 4), (half + 2, half + 2)], jnp.int32)
        world = World(position, jnp.array((half, half), jnp.int32), jnp.int32(0))
        return world, self._show(world, jnp.bool(False))

    def step(self, world: World, action: Int[Array, " N"], key: PRNGKeyArray) -> tuple[World, Timestep]:
        """Move the box if both push, then the agents."""
        move = jnp.asarray(board.MOVES)[action]
        # An agent pushes when it is one step from the box, seen from where it goes, and within the three cells of that side.
        away = world.box - world.position
        along, across = jnp.sum(away * move, axis=1), jnp.sum(jnp.abs(away * move[:, ::-1]), axis=1)
        pushes = (along == 2) & (across <= 1)
        pushed = jnp.all(pushes) & (action[0] == action[1])
        box = jnp.clip(world.box + jnp.where(pushed, move[0], 0), 1, self.size - 2)
        target = board.targets(world.position, action, self.size)
        blocked = jnp.all(jnp.abs(target - box) <= 1, axis=1)
        world = World(jnp.where(blocked[:, None], world.position, target), box, world.time + 1)
        return world, self._show(world, jnp.any((box == 1) | (box == self.size - 2)))

    def occupancy(self, state: Shaped[Array, " S"]) -> Float[Array, "R C"]:
        """How many agents stand on each cell."""
        return board.occupancy(state, self.size)

    def draw(self, axes: Any, world: World) -> None:
        """Draw one moment on empty matplotlib axes."""
        from matplotlib.patches import Rectangle

        y, x = np.mgrid[: self.size, : self.size]
        edge = np.minimum.reduce([x, y, self.size - 1 - x, self.size - 1 - y]) == 0
        board.draw_board(axes, self.size, np.zeros((self.size, self.size), bool), edge)
        left, top = np.asarray(world.box) - 1.5
        axes.add_patch(Rectangle((left + 0.06, top + 0.06), 2.88, 2.88, facecolor="#C98B4B", edgecolor="#7A4A1B", linewidth=2, zorder=4))
        for corners in (((0.3, 2.7), (0.3, 2.7)), ((0.3, 2.7), (2.7, 0.3))):
            axes.plot(left + np.array(corners[0]), top + np.array(corners[1]), color="#7A4A1B", linewidth=1.2, zorder=4)
        board.draw_agents(axes, np.asarray(world.position), self.size)

    def draw_outlines(self, axes: Any) -> None:
        """Draw the border, and where the box stands at first, over a map of the board."""
        from matplotlib.patches import Rectangle

        half = self.size // 2
        board.outline(axes, self.size, np.zeros((self.size, self.size), bool))
        axes.add_patch(Rectangle((half - 1.5, half - 1.5), 3, 3, fill=False, edgecolor=board.INK, linestyle="--", linewidth=1.2, zorder=4))

    def _show(self, world: World, won: Bool[Array, ""]) -> Timestep:
        box = (world.box[:, None] == jnp.arange(self.size)).reshape(2 * self.size)
        return board.show(world.position, box, self.size, won, world.time >= self.limit)
