"""Ground: where units may stand, and the way round what is between.

A unit's centre stays on open cells; along a wall it slides. Where the arena is not convex, units that cannot walk straight to their goal
head for the farthest cell on a shortest path that they can walk straight to. All of it is tables, made once from a terrain's rectangles.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from jaxtyping import Bool, Float, Int

SIZE = 32  # cells along each side of every map
Rectangle = tuple[int, int, int, int]  # x and y of its first cell, x and y after its last


@dataclasses.dataclass(frozen=True)
class Terrain:
    """An arena as open rectangles of cells."""

    open: tuple[Rectangle, ...]
    cliffs: tuple[Rectangle, ...] = ()  # only units that walk on cliffs may stand here
    winding: bool = False  # not convex: units must find their way
    playable: Rectangle = (0, 0, SIZE, SIZE)  # what of it the game lets units use; the state is scaled by its width and height


STRIP = Terrain(((0, 8, 32, 24),), playable=(2, 0, 30, 32))  # known of 3m: 28 wide, not where, nor how high
PLAIN = Terrain(((0, 0, 32, 32),))
HOUSE = Terrain(((8, 8, 20, 20), (10, 20, 18, 22), (12, 22, 16, 24)))
ROOM = Terrain(((8, 10, 22, 18), (10, 8, 20, 20)))
OCTAGON = Terrain(((6, 10, 26, 22), (8, 8, 24, 24), (10, 6, 22, 26)))
RAVINE = Terrain(
    ((4, 6, 28, 8), (2, 8, 30, 10), (0, 10, 32, 12), (0, 12, 4, 14), (28, 12, 32, 14), (0, 14, 32, 16), (2, 16, 30, 18), (8, 18, 24, 20)),
    cliffs=((4, 12, 28, 14),),
    winding=True,
)
TWO_ROOMS = Terrain(
    (
        *((2, 2, 12, 12), (12, 12, 14, 14)),
        *((11, 12, 12, 13), (12, 11, 13, 12), (13, 14, 14, 15), (14, 13, 15, 14)),  # without them the rooms touch at corners only
        *((14, 14, 26, 16), (14, 16, 28, 18), (12, 18, 30, 22), (14, 22, 30, 24), (16, 24, 30, 26), (18, 26, 30, 28), (20, 28, 30, 30)),
    ),
    winding=True,
)


def cells(rectangles: tuple[Rectangle, ...]) -> Bool[np.ndarray, "x y"]:
    """The cells that some rectangle covers."""
    grid = np.zeros((SIZE, SIZE), bool)
    for x0, y0, x1, y1 in rectangles:
        grid[x0:x1, y0:y1] = True
    return grid


def walkable(terrain: Terrain) -> Bool[np.ndarray, "x y"]:
    """The cells on which units may stand."""
    return cells(terrain.open) & cells((terrain.playable,))


def as_box(grid: Bool[np.ndarray, "x y"]) -> Rectangle | None:
    """The rectangle that is exactly the open cells, if they are one."""
    xs, ys = np.nonzero(grid.any(axis=1))[0], np.nonzero(grid.any(axis=0))[0]
    x0, x1, y0, y1 = (int(edge) for edge in (xs[0], xs[-1] + 1, ys[0], ys[-1] + 1))
    return (x0, y0, x1, y1) if grid[x0:x1, y0:y1].all() else None


@dataclasses.dataclass(frozen=True)
class Routes:
    """For every two cells: where to walk next."""

    place: Int[np.ndarray, " cells"]  # number of the open cell nearest to each cell of the map
    waypoint: Int[np.ndarray, "open open"]  # from, to -> the cell of the map to walk to; `STRAIGHT` where nothing is in the way


STRAIGHT = SIZE * SIZE


@functools.cache
def routes(terrain: Terrain) -> Routes:
    """The ways between all open cells of a terrain."""
    grid = walkable(terrain)
    where = np.argwhere(grid)
    n = len(where)
    numbers = np.full((SIZE, SIZE), -1)
    numbers[grid] = np.arange(n)
    every = np.stack(np.meshgrid(np.arange(SIZE), np.arange(SIZE), indexing="ij"), axis=-1).reshape(-1, 1, 2)
    place = np.argmin(np.sum((every - where) ** 2, axis=-1), axis=1)

    distance = np.where(np.eye(n, dtype=bool), 0.0, np.inf)
    for dx, dy in ((1, 0), (0, 1), (1, 1), (1, -1)):
        x, y = where[:, 0] + dx, where[:, 1] + dy
        inside = (x < SIZE) & (y < SIZE) & (y >= 0)
        x, y = np.minimum(x, SIZE - 1), np.clip(y, 0, SIZE - 1)
        free = inside & grid[x, y] & grid[where[:, 0], y] & grid[x, where[:, 1]]  # no cutting of corners
        here, there = np.nonzero(free)[0], numbers[x, y][free]
        distance[here, there] = distance[there, here] = np.hypot(dx, dy)
    step = distance.copy()
    for via in range(n):
        distance = np.minimum(distance, distance[:, via, None] + distance[None, via])

    straight = _clear(grid, where)
    waypoint = np.full((n, n), STRAIGHT)
    for goal in range(n):
        left = distance[:, goal]
        follower = np.argmin(np.where(step < np.inf, step + left, np.inf) + 1e6 * np.eye(n), axis=1)  # the next cell on a shortest path
        for start in np.nonzero(~straight[:, goal] & np.isfinite(left))[0]:
            at = follower[start]
            while straight[start, follower[at]] and at != goal:
                at = follower[at]
            waypoint[start, goal] = where[at, 0] * SIZE + where[at, 1]
    return Routes(place.astype(np.int32), waypoint.astype(np.int32))


def _clear(grid: Bool[np.ndarray, "x y"], where: Int[np.ndarray, "n 2"]) -> Bool[np.ndarray, "n n"]:
    """Whether the straight line between the centres of two cells stays on open ground, with a little room to its sides."""
    centre = where + 0.5
    clear = np.ones((len(where), len(where)), bool)
    along = centre[None] - centre[:, None]
    length = np.maximum(np.linalg.norm(along, axis=-1, keepdims=True), 1e-9)
    aside = np.stack([-along[..., 1], along[..., 0]], axis=-1) / length * 0.3
    for share in np.linspace(0.0, 1.0, 2 * SIZE):
        for side in (-1.0, 1.0):
            point: Float[np.ndarray, "n n 2"] = centre[:, None] + share * along + side * aside
            x, y = np.clip(point.astype(int), 0, SIZE - 1).transpose(2, 0, 1)
            clear &= grid[x, y]
    return clear
