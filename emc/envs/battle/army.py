"""Both teams of a map as tables: one row per unit, the agents first. Everything here is a constant of the map."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from jaxtyping import Bool, Float

from emc.envs.battle.maps import Map
from emc.envs.battle.units import BIOLOGICAL, SCAN, Plane, Unit, damage_between


@dataclasses.dataclass(frozen=True)
class Army:
    """The units of a map."""

    units: tuple[Unit, ...]
    n_allies: int
    start: Float[np.ndarray, "U 2"]

    @property
    def size(self) -> int:
        """Units of both teams."""
        return len(self.units)

    def of(self, field: str) -> Float[np.ndarray, " U"]:
        """A number of every unit."""
        return np.array([getattr(unit, field) for unit in self.units], np.float32)

    def has(self, field: str) -> Bool[np.ndarray, " U"]:
        """Whether something holds for, or is not zero in, each unit."""
        return np.array([bool(getattr(unit, field)) for unit in self.units])

    @functools.cached_property
    def allied(self) -> Bool[np.ndarray, " U"]:
        """Whether a unit is an agent's."""
        return np.arange(self.size) < self.n_allies

    @functools.cached_property
    def damage(self) -> Float[np.ndarray, "U U"]:
        """Damage of one hit of each unit on each other, before armour; 0 within a team."""
        table = np.array([[damage_between(attacker, target) for target in self.units] for attacker in self.units], np.float32)
        return np.where(self.allied[:, None] != self.allied, table, np.float32(0))

    @functools.cached_property
    def healable(self) -> Bool[np.ndarray, "U U"]:
        """Whom each unit could heal."""
        patient = np.array([BIOLOGICAL in unit.attributes and unit.speed > 0 for unit in self.units])
        return self.has("heals")[:, None] & patient & (self.allied[:, None] == self.allied)

    @functools.cached_property
    def plane(self) -> Float[np.ndarray, " U"]:
        """The number of each unit's plane: only units of one plane collide."""
        return np.array([list(Plane).index(unit.plane) for unit in self.units], np.float32)

    @functools.cached_property
    def scan(self) -> Float[np.ndarray, " U"]:
        """How far away, edge to edge, a unit picks its own targets."""
        return np.maximum(self.of("reach"), np.float32(SCAN))

    @functools.cached_property
    def walks_on_cliffs(self) -> Bool[np.ndarray, " U"]:
        """Whether a cliff is no obstacle."""
        return np.array([unit.plane is Plane.CLIFF for unit in self.units])

    @functools.cached_property
    def flies(self) -> Bool[np.ndarray, " U"]:
        """Whether nothing on the ground is an obstacle."""
        return np.array([unit.plane is Plane.AIR for unit in self.units])


@functools.cache
def army(battle: Map, formation: str = "spiral", enemy_order: str = "created") -> Army:
    """Both teams of a map."""
    allies, enemies = (battle.team(allied, formation, enemy_order) for allied in (True, False))
    both = allies + enemies
    return Army(tuple(unit for unit, _ in both), len(allies), np.array([at for _, at in both], np.float32))
