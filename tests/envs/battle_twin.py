"""A battle in plain Python, one unit at a time, written from the rules and not from the package's code."""

from __future__ import annotations

import dataclasses
import math

from emc.envs.battle.maps import Map
from emc.envs.battle.terrain import SIZE, STRAIGHT, cells, routes
from emc.envs.battle.units import Plane, Unit

TICK = 1 / 16


@dataclasses.dataclass
class Soldier:
    unit: Unit
    allied: bool
    x: float
    y: float
    life: float
    shield: float
    energy: float
    cooldown: float
    unhurt: float
    target: int
    second_hit: float
    second_target: int
    bursting: bool
    healing: bool
    order_x: float = 0.0
    order_y: float = 0.0
    order_walk: bool = False
    reached: bool = False
    aims: bool = False


def distance(a: Soldier, b: Soldier) -> float:
    return math.hypot(a.x - b.x, a.y - b.y)


def gap(a: Soldier, b: Soldier) -> float:
    return distance(a, b) - a.unit.radius - b.unit.radius


def strength(attacker: Unit, target: Unit) -> float:
    if not attacker.damage or (target.plane is Plane.AIR and not attacker.hits_air):
        return 0.0
    return attacker.damage + (attacker.bonus if attacker.bonus_to in target.attributes else 0.0)


def is_open(battle: Map, unit: Unit, x: float, y: float) -> bool:
    if unit.plane is Plane.AIR:
        return True
    grid = cells(battle.terrain.open)
    if unit.plane is Plane.CLIFF:
        grid = grid | cells(battle.terrain.cliffs)
    return bool(grid[int(x), int(y)])


def slide(battle: Map, one: Soldier, dx: float, dy: float) -> None:
    inside = SIZE - 1e-3
    rectangles = battle.terrain.open
    if len(rectangles) == 1 and one.unit.plane is not Plane.AIR:  # a box: up to its very edge
        x0, y0, x1, y1 = rectangles[0]
        one.x = min(max(one.x + dx, x0), x1 - 1e-3)
        one.y = min(max(one.y + dy, y0), y1 - 1e-3)
        return
    x = min(max(one.x + dx, 0.0), inside)
    if is_open(battle, one.unit, x, one.y):
        one.x = x
    y = min(max(one.y + dy, 0.0), inside)
    if is_open(battle, one.unit, one.x, y):
        one.y = y


def hit(target: Soldier, damage: float, times: int = 1) -> None:
    for _ in range(times):
        absorbed = min(target.shield, damage)
        target.shield -= absorbed
        if damage - absorbed > 0:
            target.life -= max(damage - absorbed - target.unit.armour, 0.5)


def choose(battle: Map, army: list[Soldier], one: Soldier) -> int:
    """The target of a unit of the enemy."""
    if one.unit.heals:
        wounded = [
            (gap(one, mate), i)
            for i, mate in enumerate(army)
            if not mate.allied
            and mate.life > 0
            and mate.life < mate.unit.life
            and "biological" in mate.unit.attributes
            and mate.unit.speed > 0
            and gap(one, mate) <= 5.0
        ]
        return min(wounded)[1] if wounded else -1
    in_reach = [
        i for i, foe in enumerate(army) if foe.allied and foe.life > 0 and strength(one.unit, foe.unit) and gap(one, foe) <= one.unit.reach
    ]
    if one.target in in_reach and (army[one.target].unit.damage or not any(army[i].unit.damage for i in in_reach)):
        return one.target
    noticed = [
        (0 if foe.unit.damage else 1, gap(one, foe), i)
        for i, foe in enumerate(army)
        if foe.allied
        and foe.life > 0
        and strength(one.unit, foe.unit) > 0
        and (battle.goal is None or gap(one, foe) <= max(one.unit.reach, 5.0))
    ]
    return min(noticed)[2] if noticed else -1


def walk(battle: Map, army: list[Soldier], alive: list[bool]) -> None:
    moved = []
    starts = [(one.x, one.y) for one in army]
    for i, one in enumerate(army):
        if one.aims:
            walks, (x, y) = not one.reached, starts[one.target]
        elif one.allied:
            walks, x, y = one.order_walk, one.order_x, one.order_y
        else:
            walks, (x, y) = battle.goal is not None, battle.goal or (0.0, 0.0)
            comrades = [
                (math.dist(starts[i], starts[j]), j)
                for j, mate in enumerate(army)
                if alive[j] and not mate.allied and mate.unit.damage and one.unit.heals
            ]
            if comrades:
                walks, (x, y) = True, starts[min(comrades)[1]]
        if battle.terrain.winding and one.unit.plane is Plane.GROUND:
            ways = routes(battle.terrain)
            column, row = (int(min(max(value, 0.0), SIZE - 1)) for value in (x, y))
            cell = ways.waypoint[ways.place[int(one.x) * SIZE + int(one.y)], ways.place[column * SIZE + row]]
            if cell != STRAIGHT:
                x, y = cell // SIZE + 0.5, cell % SIZE + 0.5
        left = math.hypot(x - one.x, y - one.y)
        length = min(one.unit.speed * TICK, left) if walks and alive[i] else 0.0
        moved.append(length > 0.01)
        if length > 0:
            slide(battle, one, (x - one.x) / left * length, (y - one.y) / left * length)
    for _ in range(4):
        pushes = []
        for i, one in enumerate(army):
            px = py = 0.0
            for j, other in enumerate(army):
                if i == j or not (alive[i] and alive[j]) or one.unit.plane is not other.unit.plane:
                    continue
                dx, dy = one.x - other.x + 1e-4 * (i - j), one.y - other.y
                touching = one.unit.separation + other.unit.separation
                share = 0.5
                if one.allied != other.allied and moved[i] != moved[j]:
                    share = 1.0 if moved[i] else 0.0
                force = max(touching**2 - dx * dx - dy * dy, 0.0) / touching**2 * share
                px, py = px + force * dx, py + force * dy
            pushes.append((px, py) if one.unit.speed else (0.0, 0.0))
        for one, push in zip(army, pushes, strict=True):
            if one.life > 0:
                slide(battle, one, *push)


def on_beam(shooter: tuple[float, float], target: tuple[float, float], foe: Soldier, foe_at: tuple[float, float]) -> bool:
    ahead = (target[0] - shooter[0], target[1] - shooter[1])
    length = math.hypot(*ahead)
    ahead = (ahead[0] / length, ahead[1] / length)
    off = (foe_at[0] - target[0], foe_at[1] - target[1])
    along, across = off[0] * ahead[0] + off[1] * ahead[1], off[1] * ahead[0] - off[0] * ahead[1]
    beyond = max(abs(across) - 1.25, 0.0)
    return math.hypot(along, beyond) <= foe.unit.radius + 0.15


def tick(battle: Map, army: list[Soldier], jitter: list[float]) -> None:
    """One game loop."""
    alive = [one.life > 0 for one in army]
    starts = [(one.x, one.y) for one in army]
    chosen = [one.target if one.allied else choose(battle, army, one) for one in army]
    for one, target in zip(army, chosen, strict=True):
        one.target = target
        one.aims = target >= 0 and alive[target]
        if one.aims and one.unit.heals:
            one.aims = "biological" in army[target].unit.attributes and army[target].unit.speed > 0
        elif one.aims:
            one.aims = strength(one.unit, army[target].unit) > 0
        one.reached = one.aims and gap(one, army[target]) <= one.unit.reach
    before = [(gap_row[:]) for gap_row in [[gap(a, b) for b in army] for a in army]]
    walk(battle, army, alive)

    blows: list[tuple[int, int, int]] = []  # who hits whom, how often
    bursts = [False] * len(army)
    for i, one in enumerate(army):
        one.cooldown = max(one.cooldown - TICK, 0.0)
        fires = alive[i] and one.reached and one.cooldown <= 0 and one.unit.damage > 0
        if fires:
            one.cooldown = one.unit.period - 0.0625 + 0.1875 * jitter[i]
        one.second_hit -= TICK
        again = alive[i] and one.second_hit <= 0
        foes = [j for j, foe in enumerate(army) if foe.allied != one.allied and alive[j] and strength(one.unit, foe.unit) > 0]
        if one.unit.blast:
            bursts[i] = fires or one.bursting
            if bursts[i]:
                blows += [(i, j, 1) for j in foes if before[i][j] + one.unit.radius <= one.unit.blast]
        elif one.unit.beams:
            if fires:
                blows += [(i, j, 2) for j in foes if on_beam(starts[i], starts[one.target], army[j], starts[j])]
        else:
            if fires and one.target in foes:
                blows.append((i, one.target, 1))
            if again and one.second_target in foes:
                blows.append((i, one.second_target, 1))
        if again:
            one.second_hit = 1e9
        if fires and one.unit.second_hit:
            one.second_hit, one.second_target = one.unit.second_hit, one.target
    for i, j, times in blows:
        hit(army[j], strength(army[i].unit, army[j].unit), times)
    struck = {j for _, j, _ in blows}
    for i, one in enumerate(army):
        if one.unit.heals:
            patient = army[one.target] if one.target >= 0 else None
            healed = 0.0
            able = one.energy >= 5 or one.healing
            if patient and one.reached and one.life > 0 and alive[i] and patient.life > 0 and able:
                healed = min(9 * TICK, one.energy / 0.33, patient.unit.life - patient.life)
                patient.life += healed
            one.healing = healed > 0 and one.energy > 9 * TICK * 0.33
            one.energy = min(one.energy - healed * 0.33 + 0.5625 * TICK, 200.0)
    for i, one in enumerate(army):
        one.unhurt = 0.0 if i in struck else one.unhurt + TICK
        if one.unhurt >= 10.0:
            one.shield = min(one.shield + 2 * TICK, one.unit.shield)
        if bursts[i]:
            one.life = 0.0
        dies = alive[i] and one.life <= 0
        one.bursting = dies and bool(one.unit.blast) and not bursts[i]
        if not alive[i] or dies:
            one.life = one.shield = 0.0
        else:
            one.life = min(one.life + one.unit.regeneration * TICK, one.unit.life)


def half_second(battle: Map, army: list[Soldier], actions: list[int], jitter: list[float]) -> None:
    """One step of the environment."""
    n = sum(one.allied for one in army)
    for one, action in zip(army[:n], actions, strict=True):
        north = {2: (0, 2), 3: (0, -2), 4: (2, 0), 5: (-2, 0)}
        one.order_walk = action in north
        dx, dy = north.get(action, (0, 0))
        one.order_x, one.order_y = one.x + dx, one.y + dy
        one.target = -1 if action < 6 else action - 6 if one.unit.heals else n + action - 6
    for _ in range(8):
        tick(battle, army, jitter)
