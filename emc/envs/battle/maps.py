"""The maps: units, where they stand, what the enemy is ordered to do, the ground and the time limit. A new map is a new row.

Placement, orders and terrain are those of the map files; the table of the EMC paper gives the enemy of MMM2 two marauders, the file three.
How units spread around their point is known of three marines only (`formation.py`), and not how the game numbers the enemy's.
"""

from __future__ import annotations

import dataclasses

from emc.envs.battle import terrain
from emc.envs.battle.formation import line_up
from emc.envs.battle.terrain import SIZE, Terrain
from emc.envs.battle.units import UNITS, Unit
from emc.errors import UserError
from emc.user_input import check_size, lookup

Point = tuple[float, float]
Group = tuple[int, str, Point]  # how many of which unit, around where

WEST, EAST = (9.0, 16.0), (23.0, 16.0)
ENEMY_ORDERS = {
    "created": "as they were created",
    "reversed": "the last created first",
    "sorted": "by kind, then x, then y, as the agents are",
    "shuffled": "by a draw at the beginning of each episode",
}
KIND_ORDER = ("colossus", "stalker", "zealot", "marauder", "marine", "medivac", "baneling", "zergling", "hydralisk", "spine crawler")


@dataclasses.dataclass(frozen=True)
class Map:
    """One scenario."""

    name: str
    allies: tuple[Group, ...]
    enemies: tuple[Group, ...]
    limit: int  # steps
    goal: Point | None = WEST  # the enemy attacks whatever it meets on its way here; None: it hunts the agents, wherever they are
    terrain: Terrain = terrain.STRIP

    def __post_init__(self) -> None:
        check_size(f"limit of the map {self.name}", self.limit, "say how many steps an episode may last.", low=1)
        if not (self.allies and self.enemies):
            raise UserError(f"the map {self.name} has nobody on one side: give both teams units")
        for count, unit, (x, y) in self.allies + self.enemies:
            lookup(f"unit on the map {self.name}", unit, UNITS)
            check_size(f"count of {unit} on the map {self.name}", count, "say how many there are.", low=1)
            if not (0 <= x < SIZE and 0 <= y < SIZE):
                raise UserError(f"{unit} at {(x, y)} stands outside the map {self.name}: x and y go from 0 to {SIZE}")

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds among the agents, in the order of their type bits."""
        present = {unit for _, unit, _ in self.allies}
        return tuple(kind for kind in KIND_ORDER if kind in present)

    @property
    def enemy_kinds(self) -> tuple[str, ...]:
        """The same for the enemy, its other kinds last.

        SMAC numbers stalkers and zealots the other way round where the agents have nothing else.
        """
        present = {unit for _, unit, _ in self.enemies}
        others = tuple(kind for kind in KIND_ORDER if kind in present - {*self.kinds})
        return (self.kinds[::-1] if self.kinds == ("stalker", "zealot") else self.kinds) + others

    @property
    def type_bits(self) -> int:
        """Length of a unit's type in observations: none where the agents are all of one kind."""
        return len(self.enemy_kinds) if len(self.kinds) > 1 else 0

    def team(self, allied: bool, formation: str = "spiral", enemy_order: str = "created") -> list[tuple[Unit, Point]]:
        """Units and their places; agents are numbered by kind, then x, then y, as in SMAC, which takes the enemy as the game lists it."""
        groups = self.allies if allied else self.enemies
        taken: list[tuple[Unit, Point]] = []
        for point in dict.fromkeys(point for _, _, point in groups):
            here = [UNITS[unit] for count, unit, at in groups if at == point for _ in range(count)]
            taken += zip(here, line_up(point, here, formation, terrain.walkable(self.terrain)), strict=True)
        kinds = [*self.kinds, *self.enemy_kinds]
        if allied or enemy_order == "sorted":
            taken.sort(key=lambda one: (kinds.index(one[0].name), *one[1]))
        elif enemy_order == "reversed":
            taken.reverse()
        return taken


def describe(battle: Map) -> str:
    """Who fights whom, in a line."""

    def side(groups: tuple[Group, ...]) -> str:
        counts = {unit: sum(count for count, kind, _ in groups if kind == unit) for _, unit, _ in groups}
        return ", ".join(f"{count} {unit}{'s' if count > 1 else ''}" for unit, count in counts.items()).replace("colossuss", "colossi")

    return f"{side(battle.allies)} against {side(battle.enemies)}"


def _strip(name: str, allies: str, enemies: str, limit: int, ground: Terrain = terrain.STRIP) -> Map:
    """A map with the teams facing each other west and east: `"2 stalker, 3 zealot"`."""

    def groups(text: str, point: Point) -> tuple[Group, ...]:
        return tuple((int(count), unit, point) for count, unit in (part.strip().split(" ", 1) for part in text.split(",")))

    return Map(name, groups(allies, WEST), groups(enemies, EAST), limit, terrain=ground)


MAPS: dict[str, Map] = {
    row.name: row
    for row in (
        _strip("3m", "3 marine", "3 marine", 60),
        _strip("8m", "8 marine", "8 marine", 120),
        _strip("2s3z", "2 stalker, 3 zealot", "2 stalker, 3 zealot", 120),
        _strip("3s5z", "3 stalker, 5 zealot", "3 stalker, 5 zealot", 150),
        _strip("1c3s5z", "1 colossus, 3 stalker, 5 zealot", "1 colossus, 3 stalker, 5 zealot", 180),
        _strip("5m_vs_6m", "5 marine", "6 marine", 70),
        _strip("10m_vs_11m", "10 marine", "11 marine", 150),
        _strip("27m_vs_30m", "27 marine", "30 marine", 180),
        _strip("3s5z_vs_3s6z", "3 stalker, 5 zealot", "3 stalker, 6 zealot", 170),
        _strip("MMM2", "7 marine, 2 marauder, 1 medivac", "8 marine, 3 marauder, 1 medivac", 180),
        Map(
            "2s_vs_1sc",
            ((1, "stalker", (11.12, 10.34)), (1, "stalker", (16.98, 10.37))),
            ((1, "spine crawler", (13.92, 20.04)),),
            300,
            goal=(13.92, 20.04),
            terrain=terrain.HOUSE,
        ),
        _strip("3s_vs_5z", "3 stalker", "5 zealot", 250, terrain.PLAIN),
        Map(
            "6h_vs_8z",
            ((6, "hydralisk", (14.6, 9.49)),),
            ((8, "zealot", (14.41, 16.76)),),
            150,
            goal=(14.6, 9.49),
            terrain=terrain.ROOM,
        ),
        Map(
            "bane_vs_bane",
            ((20, "zergling", (16.0, 11.0)), (4, "baneling", (16.0, 8.0))),
            ((20, "zergling", (16.0, 21.0)), (4, "baneling", (16.0, 24.0))),
            200,
            goal=(16.0, 8.0),
            terrain=terrain.OCTAGON,
        ),
        Map("2c_vs_64zg", ((2, "colossus", (16.0, 16.0)),), ((64, "zergling", (16.0, 9.0)),), 400, goal=None, terrain=terrain.RAVINE),
        Map(
            "corridor",
            ((6, "zealot", (19.04, 19.12)),),
            ((24, "zergling", (27.91, 28.24)),),
            400,
            goal=(4.47, 4.33),
            terrain=terrain.TWO_ROOMS,
        ),
        _strip("5s10z", "5 stalker, 10 zealot", "5 stalker, 10 zealot", 200),
        _strip("7s7z", "7 stalker, 7 zealot", "7 stalker, 7 zealot", 200),
        _strip("1c3s8z_vs_1c3s9z", "1 colossus, 3 stalker, 8 zealot", "1 colossus, 3 stalker, 9 zealot", 180),
    )
}


def register_map(row: Map) -> Map:
    """Let battles be fought on a map of one's own, by its name."""
    if MAPS.setdefault(row.name, row) != row:
        raise UserError(f"there is another map called {row.name}: name yours differently")
    return row
