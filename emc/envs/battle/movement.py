"""Walking, walls and pushing, for many battles side by side (the last axis of every array).

A unit walks straight to its goal, or to the next waypoint where the ground is winding; a wall stops only the part of a move that leads
into it. Then overlapping units push each other apart, a few times over. Of two opponents, one that stood still does not yield to one that
walked; of two team mates, one in the middle of an attack does not yield to one that is not, others yield alike; a building yields to
nobody.

Bodies flow round bodies: whoever walks up to its target and gets nowhere, because others stand in between, goes round the target for a
moment, to the side to which the others push it, and then tries again.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from emc.envs.battle import terrain as ground
from emc.envs.battle.army import Army
from emc.envs.battle.forces import column
from emc.envs.battle.terrain import Terrain
from emc.envs.battle.units import TICK

PASSES = 4  # of pushing apart: with one, a crowd leaks through a choke that is held
FEW = 8  # units: the compiler makes one function of a loop over so few, a longer one is better written out
LOOSE = 10  # units: so few seldom touch, and a single battle of them stops pushing when nobody is pushed
DETOUR = 0.25  # seconds that a unit goes round its target before it tries to reach it again
DETOUR_ANGLE = np.deg2rad(70.0)  # away from the straight way: nearly along the circle, a little inwards
BLOCKED = 0.1  # of a step: whoever comes less than this nearer to its target is blocked
CROWD = 3.0  # a detour is for the last stretch, edge to edge: farther away a crowd is just slow
Places = tuple[Float[Array, "U B"], Float[Array, "U B"]]  # x and y


class Way(eqx.Module):
    """Where everyone wants to go in a loop."""

    x: Float[Array, "U B"]
    y: Float[Array, "U B"]
    walks: Bool[Array, "U B"]
    stalks: Bool[Array, "U B"]  # walks the last stretch to a target
    fights: Bool[Array, "U B"]  # is in the middle of an attack, up to the end of its backswing


@dataclasses.dataclass(frozen=True)
class Movement:
    """How the units of a map move."""

    terrain: Terrain
    army: Army

    def after(
        self, places: Places, way: Way, alive: Bool[Array, "U B"], speed: Float[Array, "U B"], detour: Float[Array, "U B"]
    ) -> tuple[Places, Float[Array, "U B"], Float[Array, "U B"]]:
        """Where everyone is a loop later, how fast those are that accelerate, and how long everyone still goes round its target."""
        army = self.army
        goals = self._waypoints(places, (way.x, way.y)) if self.terrain.winding else (way.x, way.y)
        (x, y), (goal_x, goal_y) = places, goals
        dx, dy = goal_x - x, goal_y - y
        left = jnp.sqrt(dx * dx + dy * dy)
        if army.has("acceleration").any():
            faster = jnp.minimum(speed + column(army.of("acceleration") * np.float32(TICK)), column(army.of("speed")))
            speed = jnp.where(column(army.has("acceleration")), jnp.where(way.walks, faster, 0.0), column(army.of("speed")))
            reach = speed * TICK
        else:
            reach = jnp.broadcast_to(column(army.of("speed") * np.float32(TICK)), left.shape)
        share = jnp.where(way.walks, jnp.minimum(reach / jnp.maximum(left, 1e-6), 1.0), 0.0)
        moved = share * left > 0.01
        walk_x, walk_y = dx, dy
        if self._crowds:
            round_it = way.stalks & (detour != 0)
            ahead = jnp.where(round_it, np.float32(np.cos(DETOUR_ANGLE)), 1.0)
            aside = jnp.where(round_it, np.float32(np.sin(DETOUR_ANGLE)) * jnp.sign(detour), 0.0)
            walk_x, walk_y = dx * ahead - dy * aside, dy * ahead + dx * aside
        places = self._slide(places, (walk_x * share, walk_y * share))

        places = self._apart(places, alive, moved, way.fights)
        if self._crowds:
            nearer = left - jnp.sqrt((goal_x - places[0]) ** 2 + (goal_y - places[1]) ** 2)
            blocked = way.stalks & (nearer < BLOCKED * reach)
            left_hand = dx * (places[1] - y) - dy * (places[0] - x) > 0  # where the others have pushed it
            shorter = jnp.sign(detour) * jnp.maximum(jnp.abs(detour) - TICK, 0.0)
            afresh = blocked & (shorter == 0)
            detour = jnp.where(afresh, jnp.where(left_hand, DETOUR, -DETOUR), jnp.where(way.stalks, shorter, 0.0))
        return places, speed, detour

    @property
    def _crowds(self) -> bool:
        """Whether anybody on the map has to come close to its target."""
        return bool((self.army.has("armed") & (self.army.of("reach") < 1)).any())

    def _waypoints(self, places: Places, goals: Places) -> Places:
        """Where to walk next to reach a point; those that no ground stops walk straight."""
        x, y = goals
        routes = ground.routes(self.terrain)
        place = jnp.asarray(routes.place)
        inside = tuple(jnp.clip(value, 0.0, ground.SIZE - 1.0) for value in goals)  # a move may lead off the map
        here, there = place[_cell(*places)], place[_cell(*inside)]
        way = jnp.asarray(routes.waypoint.reshape(-1))[here * len(routes.waypoint) + there]
        straight = (way == ground.STRAIGHT) | column(self.army.flies | self.army.walks_on_cliffs)
        return jnp.where(straight, x, way // ground.SIZE + 0.5), jnp.where(straight, y, way % ground.SIZE + 0.5)

    def _apart(self, places: Places, alive: Bool[Array, "U B"], moved: Bool[Array, "U B"], fights: Bool[Array, "U B"]) -> Places:
        """Everyone after all passes of pushing."""

        def push(places: Places) -> tuple[Places, Places]:
            pushes = self._pushes(places, alive, moved, fights)
            return self._slide(places, pushes), pushes

        if places[0].shape[-1] > 1 or self.army.size > LOOSE:
            return jax.lax.fori_loop(0, PASSES, lambda _, places: push(places)[0], places)

        def again(carry: tuple[Int[Array, ""], Places]) -> tuple[Int[Array, ""], Places]:
            number, places = carry
            places, pushes = push(places)
            return jnp.where(jnp.any((pushes[0] != 0) | (pushes[1] != 0)), number + 1, PASSES), places

        # After a pass that pushes nobody no other would: most loops have only that one.
        return jax.lax.while_loop(lambda carry: carry[0] < PASSES, again, (jnp.int32(0), places))[1]

    def _pushes(self, places: Places, alive: Bool[Array, "U B"], moved: Bool[Array, "U B"], fights: Bool[Array, "U B"]) -> Places:
        """How far overlapping units push each other: written out unit by unit, it compiles to one vectorised pass over everyone."""
        (x, y), army = places, self.army
        numbers = np.arange(army.size, dtype=np.float32)
        # Units of another plane are moved out of the way, the dead each to a place of its own; 1e-4 parts those on the same spot.
        x = x + column(np.float32(1e-4) * numbers + np.float32(100) * army.plane)
        x = jnp.where(alive, x, column(np.float32(1000) + np.float32(10) * numbers))
        half, soft = jnp.where(moved, 0.5, 0.0), jnp.where(fights, 0.0, 0.5)  # how it yields to opponents and to team mates
        size = army.of("separation")
        squares, mates = jnp.asarray((size[:, None] + size) ** 2), jnp.asarray(army.allied[:, None] == army.allied)

        def add(other: Int[Array, ""] | int, pushed: Places) -> Places:
            their_x, their_y, their_half, their_soft, square, mate = (
                jax.lax.dynamic_index_in_dim(value, other, keepdims=False) for value in (x, y, half, soft, squares, mates)
            )
            dx, dy, square = x - their_x, y - their_y, square[:, None]
            share = (0.5 + jnp.where(mate[:, None], soft - their_soft, half - their_half)) * (1 / square)
            force = jnp.maximum(square - (dx * dx + dy * dy), 0.0) * share
            return pushed[0] + force * dx, pushed[1] + force * dy

        nothing = jnp.zeros_like(x), jnp.zeros_like(y)
        push_x, push_y = jax.lax.fori_loop(0, army.size, add, nothing, unroll=army.size > FEW)
        yields = column(army.has("speed"))
        return push_x * yields, push_y * yields

    def _slide(self, places: Places, moves: Places) -> Places:
        """Move as far as walls allow, first along x, then along y."""
        (x, y), (dx, dy) = places, moves
        open_cells = ground.walkable(self.terrain)
        edge = np.float32(ground.SIZE) - np.float32(1e-3)
        box = ground.as_box(open_cells)
        if box:  # no need to look cells up
            sides = zip(box, self.terrain.playable, strict=True)
            x0, y0, x1, y1 = (column(np.where(self.army.flies, whole, side).astype(np.float32)) for side, whole in sides)
            inset = np.float32(1e-3)
            return jnp.clip(x + dx, x0, x1 - inset), jnp.clip(y + dy, y0, y1 - inset)
        kinds = np.stack([open_cells, open_cells | ground.cells(self.terrain.cliffs), np.ones_like(open_cells)])
        allowed = jnp.asarray(kinds.reshape(-1))
        offset = column(np.where(self.army.flies, 2, np.where(self.army.walks_on_cliffs, 1, 0)).astype(np.int32) * open_cells.size)
        to_x = jnp.clip(x + dx, 0, edge)
        x = jnp.where(allowed[offset + _cell(to_x, y)], to_x, x)
        to_y = jnp.clip(y + dy, 0, edge)
        return x, jnp.where(allowed[offset + _cell(x, to_y)], to_y, y)


def _cell(x: Float[Array, "U B"], y: Float[Array, "U B"]) -> Int[Array, "U B"]:
    """Number of the cell that a point is on."""
    return x.astype(jnp.int32) * ground.SIZE + y.astype(jnp.int32)
