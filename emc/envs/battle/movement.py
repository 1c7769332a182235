"""Walking, walls and pushing, for many battles side by side (the last axis of every array).

A unit walks straight to its goal, or to the next waypoint where the ground is winding; a wall stops only the part of a move that leads
into it. Then overlapping units push each other apart, a few times over. Of two opponents, one that stood still does not yield to one that
walked; team mates yield alike, so that those behind find their way to the front; a building yields to nobody.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from emc.envs.battle import terrain as ground
from emc.envs.battle.army import Army
from emc.envs.battle.terrain import Terrain

PASSES = 4  # of pushing apart: with one, a crowd leaks through a choke that is held
MAP = (0, 0, ground.SIZE, ground.SIZE)
Places = tuple[Float[Array, "U B"], Float[Array, "U B"]]  # x and y


@dataclasses.dataclass(frozen=True)
class Movement:
    """How the units of a map move."""

    terrain: Terrain
    army: Army

    def after(self, places: Places, goals: Places, walks: Bool[Array, "U B"], alive: Bool[Array, "U B"], seconds: float) -> Places:
        """Where everyone is after walking towards their goals for a moment, and after pushing."""
        (x, y), (goal_x, goal_y) = places, self._waypoints(places, goals) if self.terrain.winding else goals
        dx, dy = goal_x - x, goal_y - y
        left = jnp.sqrt(dx * dx + dy * dy)
        reach = _column(self.army.of("speed") * np.float32(seconds))
        share = jnp.where(walks, jnp.minimum(reach / jnp.maximum(left, 1e-6), 1.0), 0.0)
        moved = share * left > 0.01
        places = self._slide(places, (dx * share, dy * share))
        return jax.lax.fori_loop(0, PASSES, lambda _, places: self._slide(places, self._pushes(places, alive, moved)), places)

    def _waypoints(self, places: Places, goals: Places) -> Places:
        """Where to walk next to reach a point; those that no ground stops walk straight."""
        x, y = goals
        routes = ground.routes(self.terrain)
        place = jnp.asarray(routes.place)
        inside = tuple(jnp.clip(value, 0.0, ground.SIZE - 1.0) for value in goals)  # a move may lead off the map
        here, there = place[_cell(*places)], place[_cell(*inside)]
        way = jnp.asarray(routes.waypoint.reshape(-1))[here * len(routes.waypoint) + there]
        straight = (way == ground.STRAIGHT) | _column(self.army.flies | self.army.walks_on_cliffs)
        return jnp.where(straight, x, way // ground.SIZE + 0.5), jnp.where(straight, y, way % ground.SIZE + 0.5)

    def _pushes(self, places: Places, alive: Bool[Array, "U B"], moved: Bool[Array, "U B"]) -> Places:
        """How far overlapping units push each other."""
        (x, y), army = places, self.army
        numbers = np.arange(army.size, dtype=np.float32)
        # Units of another plane are moved out of the way, the dead each to a place of its own; 1e-4 parts those on the same spot.
        x = x + _column(np.float32(1e-4) * numbers + np.float32(100) * army.plane)
        x = jnp.where(alive, x, _column(np.float32(1000) + np.float32(10) * numbers))
        half = jnp.where(moved, 0.5, 0.0)
        size = jnp.broadcast_to(_column(army.of("separation")), x.shape)
        odd = army.size % 2
        team = jnp.broadcast_to(_column(np.where(army.allied, 1.0, -1.0).astype(np.float32)), x.shape)
        rows = [jnp.pad(value, ((0, odd), (0, 0)), constant_values=-1e6) for value in (x, y, size, half, team)]

        def pair(number: Int[Array, ""], pushed: tuple[Array, Array]) -> tuple[Array, Array]:
            for other in (2 * number, 2 * number + 1):  # two at a time: measured to be the fastest
                their_x, their_y, their_size, their_half, their_team = (
                    jax.lax.dynamic_index_in_dim(row, other, keepdims=False) for row in rows
                )
                dx, dy, touching = x - their_x, y - their_y, size + their_size
                square = touching * touching
                share = 0.5 + jnp.where(team == their_team, 0.0, half - their_half)
                force = jnp.maximum(square - (dx * dx + dy * dy), 0.0) * share / square
                pushed = pushed[0] + force * dx, pushed[1] + force * dy
            return pushed

        push_x, push_y = jax.lax.fori_loop(0, (army.size + odd) // 2, pair, (jnp.zeros_like(x), jnp.zeros_like(y)))
        yields = _column(army.which("speed"))
        return push_x * yields, push_y * yields

    def _slide(self, places: Places, moves: Places) -> Places:
        """Move as far as walls allow, first along x, then along y."""
        (x, y), (dx, dy) = places, moves
        open_cells = ground.cells(self.terrain.open)
        edge = np.float32(ground.SIZE) - np.float32(1e-3)
        box = ground.as_box(open_cells)
        if box:  # no need to look cells up
            x0, y0, x1, y1 = (
                _column(np.where(self.army.flies, whole, side).astype(np.float32)) for side, whole in zip(box, MAP, strict=True)
            )
            inset = np.float32(1e-3)
            return jnp.clip(x + dx, x0, x1 - inset), jnp.clip(y + dy, y0, y1 - inset)
        kinds = np.stack([open_cells, open_cells | ground.cells(self.terrain.cliffs), np.ones_like(open_cells)])
        allowed = jnp.asarray(kinds.reshape(-1))
        offset = _column(np.where(self.army.flies, 2, np.where(self.army.walks_on_cliffs, 1, 0)).astype(np.int32) * open_cells.size)
        to_x = jnp.clip(x + dx, 0, edge)
        x = jnp.where(allowed[offset + _cell(to_x, y)], to_x, x)
        to_y = jnp.clip(y + dy, 0, edge)
        return x, jnp.where(allowed[offset + _cell(x, to_y)], to_y, y)


def _column(constant: np.ndarray) -> np.ndarray:
    """A constant of the map, the same for all battles."""
    return constant[..., None]


def _cell(x: Float[Array, "U B"], y: Float[Array, "U B"]) -> Int[Array, "U B"]:
    """Number of the cell that a point is on."""
    return x.astype(jnp.int32) * ground.SIZE + y.astype(jnp.int32)
