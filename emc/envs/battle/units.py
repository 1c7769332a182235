"""The units of the seventeen maps, with the Wings of Liberty numbers those maps run on (game data 4.6.2), in seconds of 16 game loops.

StarCraft's "faster" clock runs 1.4 times as fast: numbers quoted for ladder play are not these. Collision uses `separation`, ranges are
measured between the edges of circles of `radius`.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping

LOOPS = 16  # game loops in a second
TICK = 1.0 / LOOPS

ARMOURED, BIOLOGICAL, LIGHT = "armoured", "biological", "light"


class Plane(enum.Enum):
    """What a unit collides with: only others of its own plane."""

    GROUND = "ground"
    AIR = "air"
    CLIFF = "cliff"  # walks over ground units and up cliffs


@dataclasses.dataclass(frozen=True)
class Unit:
    """One kind of unit."""

    name: str
    life: float
    speed: float
    radius: float
    separation: float
    cooldown_scale: float  # SMAC divides the game loops that a weapon still waits by this; for a healer, its energy
    shield: float = 0.0
    armour: float = 0.0  # taken off every hit on life, not on shields
    attributes: frozenset[str] = frozenset()
    plane: Plane = Plane.GROUND
    damage: float = 0.0
    bonus: float = 0.0  # more damage to units with the attribute `bonus_to`
    bonus_to: str = ""
    reach: float = 0.0  # of its weapon or its healing, edge to edge
    period: float = 1.0  # of its weapon
    damage_point: float = 0.167  # seconds from the beginning of an attack until its damage falls, or its missile is launched
    backswing: float = 0.5  # seconds after that in which it does not follow a target
    acceleration: float = 0.0  # 0: at full speed at once
    turn_rate: float = 0.0  # degrees a second that its weapon turns; 0: at once, as all that walk nearly do
    slop: float = 1.0  # how much farther than its reach a target may get before an attack under way is broken off
    missile_speed: float = 0.0  # 0: damage falls at the damage point
    missile_acceleration: float = 0.0
    hits_air: bool = False
    second_hit: float = 0.0  # seconds after the first hit of an attack; 0: there is none
    beams: bool = False  # two hits on everything along a line across the direction of fire
    blast: float = 0.0  # radius of an explosion that costs the unit its life, or follows its death; 0: none
    heals: bool = False
    regeneration: float = 0.0  # life per second

    @property
    def armed(self) -> bool:
        """Whether it has a weapon."""
        return self.damage > 0


def _kind(*attributes: str) -> frozenset[str]:
    return frozenset(attributes)


ZERG = 0.2734  # life per second
UNITS: Mapping[str, Unit] = {
    unit.name: unit
    for unit in (
        Unit(
            "marine",
            45.0,
            2.25,
            0.375,
            0.375,
            15.0,
            attributes=_kind(LIGHT, BIOLOGICAL),
            damage=6.0,
            reach=5.0,
            period=0.8608,
            damage_point=0.05,
            backswing=0.75,
            hits_air=True,
        ),
        Unit(
            "marauder",
            *(125.0, 2.25, 0.5625, 0.5, 25.0),
            armour=1.0,
            attributes=_kind(ARMOURED, BIOLOGICAL),
            damage=10.0,
            bonus=10.0,
            bonus_to=ARMOURED,
            reach=6.0,
            period=1.5,
            damage_point=0.0,
            backswing=0.0,
            missile_speed=20.0,
        ),
        Unit(
            "medivac",
            *(150.0, 2.75, 0.75, 0.75, 200.0),
            armour=1.0,
            attributes=_kind(ARMOURED),
            plane=Plane.AIR,
            acceleration=2.31,
            reach=4.0,
            heals=True,
        ),
        Unit(
            "stalker",
            *(80.0, 2.9531, 0.625, 0.625, 35.0),
            shield=80.0,
            armour=1.0,
            attributes=_kind(ARMOURED),
            damage=10.0,
            bonus=4.0,
            bonus_to=ARMOURED,
            reach=6.0,
            period=1.44,
            missile_speed=18.75,
            hits_air=True,
        ),
        Unit(
            "zealot",
            *(100.0, 2.25, 0.5, 0.375, 22.0),
            shield=50.0,
            armour=1.0,
            attributes=_kind(LIGHT, BIOLOGICAL),
            damage=8.0,
            reach=0.1,
            period=1.2,
            damage_point=0.0,
            second_hit=0.28,
        ),
        Unit(
            "colossus",
            *(200.0, 2.25, 1.0, 0.75, 24.0),
            shield=150.0,
            armour=1.0,
            attributes=_kind(ARMOURED),
            plane=Plane.CLIFF,
            damage=20.0,
            reach=6.0,
            period=2.2,
            damage_point=0.0832,
            slop=0.0,
            beams=True,
        ),
        Unit(
            "zergling",
            *(35.0, 2.9531, 0.375, 0.375, 11.0),
            attributes=_kind(LIGHT, BIOLOGICAL),
            damage=5.0,
            reach=0.1,
            period=0.696,
            regeneration=ZERG,
        ),
        Unit(
            "hydralisk",
            *(80.0, 2.25, 0.625, 0.5, 10.0),
            attributes=_kind(LIGHT, BIOLOGICAL),
            damage=12.0,
            reach=5.0,
            period=0.83,
            damage_point=0.208,
            missile_speed=40.0,
            hits_air=True,
            regeneration=ZERG,
        ),
        Unit(
            "baneling",
            *(30.0, 2.5, 0.375, 0.375, 1.0),
            attributes=_kind(BIOLOGICAL),
            damage=20.0,
            bonus=15.0,
            bonus_to=LIGHT,
            reach=0.25,
            period=0.833,
            damage_point=0.0,
            blast=2.2,
            regeneration=ZERG,
        ),
        Unit(
            "spine crawler",
            *(300.0, 0.0, 0.875, 0.875, 1.0),
            armour=2.0,
            attributes=_kind(ARMOURED, BIOLOGICAL),
            damage=25.0,
            bonus=5.0,
            bonus_to=ARMOURED,
            reach=7.0,
            period=1.6,
            damage_point=0.3332,
            turn_rate=360.0,
            slop=0.0,
            missile_speed=12.0,
            missile_acceleration=140.0,
            regeneration=ZERG,
        ),
    )
}

# Rules that are the same for all.
JITTER = (-0.0625, 0.125)  # seconds added to a weapon's period, uniformly
LEAST_DAMAGE = 0.5  # of a hit, whatever the armour
SCAN = 5.0  # acquired from this far, edge to edge, or from the reach of the weapon where that is more
SHIELD_DELAY, SHIELD_RATE = 10.0, 2.0  # seconds without damage; points per second
FACING, ARC = 315.0, 11.25  # degrees: how a building stands at first, and how nearly a weapon must point at its target to begin
HEAL_RATE, HEAL_COST = 9.0, 0.33  # life per second; energy per life
HEAL_SCAN = 6.0  # how far away, edge to edge, a healer that is left alone finds its patients
HEAL_START = 5.0  # energy without which no heal begins; one that has begun goes on to the last of it
ENERGY_START, ENERGY_MAX, ENERGY_RATE = 50.0, 200.0, 0.5625
BEAM_HALF_LENGTH, BEAM_RADIUS = 1.25, 0.15


def damage_between(attacker: Unit, target: Unit) -> float:
    """Damage of one hit before armour; 0 where the weapon cannot reach that plane."""
    if not attacker.armed or (target.plane is Plane.AIR and not attacker.hits_air):
        return 0.0
    return attacker.damage + (attacker.bonus if attacker.bonus_to in target.attributes else 0.0)
