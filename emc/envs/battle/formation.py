"""Where units stand when a battle begins.

A map says how many of which kind are created around which point, and in which order. Known of the game are three marines of 3m: they stand
on a square lattice, the first on the point itself, the second north of it, the third north-east, 2820/4096 apart, which is 235/256 of the
width of a marine, and always so. A square spiral that begins north and turns clockwise goes through just these places: it is the default.
The rest is a guess: that larger groups, other kinds and the enemy go on along the spiral, that the lattice of another kind is as much wider
as its units are, and that those created later take the first place of theirs that is free. So other formations can be chosen.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import numpy as np
from jaxtyping import Bool, Float

from emc.envs.battle.units import Unit
from emc.errors import UserError

Point = tuple[float, float]
TIGHTNESS = 235 / 256  # of the widths of two units: how close they are placed


@functools.cache
def spiral(spacing: float) -> Float[np.ndarray, "places 2"]:
    """The square lattice from its centre outwards: north, then clockwise."""
    steps = [(0, 1), (1, 0), (0, -1), (-1, 0)]
    place, places = np.zeros(2), [np.zeros(2)]
    for side in range(4 * RINGS):
        for _ in range(side // 2 + 1):
            place = place + steps[side % 4]
            places.append(place)
    return _kept(spacing * np.array(places))


@functools.cache
def grid(spacing: float) -> Float[np.ndarray, "places 2"]:
    """The square lattice, the nearest places first; of those equally far away, the western, then the southern ones."""
    line = np.arange(-RINGS, RINGS + 1)
    column, row = (axis.ravel() for axis in np.meshgrid(line, line, indexing="ij"))
    return _nearest_first(spacing * np.stack([column, row], axis=-1))


@functools.cache
def hexagonal(spacing: float) -> Float[np.ndarray, "places 2"]:
    """The same on the hexagonal lattice, on which units stand closest."""
    line = np.arange(-RINGS, RINGS + 1)
    column, row = (axis.ravel() for axis in np.meshgrid(line, line, indexing="ij"))
    return _nearest_first(spacing * np.stack([column + 0.5 * (row % 2), np.sqrt(0.75) * row], axis=-1))


RINGS = 48  # of a lattice: more than a map is wide, whatever the unit
FORMATIONS: dict[str, Callable[[float], Float[np.ndarray, "places 2"]]] = {"spiral": spiral, "grid": grid, "hexagonal": hexagonal}


def _nearest_first(places: Float[np.ndarray, "places 2"]) -> Float[np.ndarray, "places 2"]:
    away = np.round(np.hypot(*places.T), 6)
    return _kept(places[np.lexsort((places[:, 1], places[:, 0], away))])


def _kept(places: Float[np.ndarray, "places 2"]) -> Float[np.ndarray, "places 2"]:
    """Remembered for every unit of its size, so nobody may change it."""
    places.setflags(write=False)
    return places


def line_up(point: Point, units: list[Unit], formation: str, ground: Bool[np.ndarray, "x y"]) -> list[Point]:
    """Places around a point on open ground, in the order in which the units are created."""
    placed: list[tuple[Unit, Point]] = []
    for unit in units:
        lattice = FORMATIONS[formation](2 * unit.radius * TIGHTNESS) + point
        at = next(_free(lattice, unit, placed, ground), None)
        if at is None:
            raise UserError(f"{len(units)} units do not fit on the open ground around {point}")
        placed.append((unit, at))
    return [at for _, at in placed]


def _free(
    lattice: Float[np.ndarray, "places 2"], unit: Unit, placed: list[tuple[Unit, Point]], ground: Bool[np.ndarray, "x y"]
) -> Iterator[Point]:
    """The places of a lattice that are open and where nobody is in the way."""
    size = len(ground)
    for x, y in lattice:
        inside = 0 < x < size and 0 < y < size and ground[int(x), int(y)]
        room = (TIGHTNESS * (unit.radius + other.radius) - 1e-6 for other, _ in placed if other.plane is unit.plane)
        away = (np.hypot(x - other_x, y - other_y) for other, (other_x, other_y) in placed if other.plane is unit.plane)
        if inside and all(gap >= least for gap, least in zip(away, room, strict=True)):
            yield float(x), float(y)
