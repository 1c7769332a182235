"""A battle in plain Python, one unit at a time, written from the rules and not from the package's code."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from emc.envs.battle.maps import Map
from emc.envs.battle.terrain import SIZE, STRAIGHT, Terrain, cells, routes, walkable
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
    swing: float
    swing_target: int
    recovery: float
    blow: float
    blow_target: int
    speed: float
    detour: float
    facing: float
    bursting: bool
    healing: bool
    order_target: int = -1
    order_x: float = 0.0
    order_y: float = 0.0
    order_walk: bool = False
    reached: bool = False
    aims: bool = False
    busy: bool = False


def distance(a: Soldier, b: Soldier) -> float:
    return math.hypot(a.x - b.x, a.y - b.y)


def gap(a: Soldier, b: Soldier) -> float:
    return distance(a, b) - a.unit.radius - b.unit.radius


def strength(attacker: Unit, target: Unit) -> float:
    if not attacker.damage or (target.plane is Plane.AIR and not attacker.hits_air):
        return 0.0
    return attacker.damage + (attacker.bonus if attacker.bonus_to in target.attributes else 0.0)


def is_open(battle: Map, unit: Unit, x: float, y: float) -> bool:
    return unit.plane is Plane.AIR or bool(ground(battle.terrain, unit.plane)[int(x), int(y)])


@functools.cache
def ground(terrain: Terrain, plane: Plane) -> np.ndarray:
    return walkable(terrain) | cells(terrain.cliffs) if plane is Plane.CLIFF else walkable(terrain)


def slide(battle: Map, one: Soldier, dx: float, dy: float) -> None:
    inside = SIZE - 1e-3
    rectangles = battle.terrain.open
    if len(rectangles) == 1:  # a box: up to its very edge
        left, bottom, right, top = battle.terrain.playable
        x0, y0, x1, y1 = (left, bottom, right, top) if one.unit.plane is Plane.AIR else rectangles[0]
        x0, y0, x1, y1 = max(x0, left), max(y0, bottom), min(x1, right), min(y1, top)
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


def choose(battle: Map, army: list[Soldier], me: int) -> int:
    """The target of a unit of the enemy."""
    one = army[me]
    if one.unit.heals:
        wounded = [
            (mate.life / mate.unit.life, gap(one, mate), i)
            for i, mate in enumerate(army)
            if not mate.allied
            and 0 < mate.life < mate.unit.life
            and "biological" in mate.unit.attributes
            and mate.unit.speed > 0
            and gap(one, mate) <= 6.0
        ]
        return min(wounded)[2] if wounded else -1
    foes = {i: gap(one, foe) for i, foe in enumerate(army) if foe.allied and foe.life > 0 and strength(one.unit, foe.unit)}
    if battle.goal is None:
        return one.target if one.target in foes else min((away, i) for i, away in foes.items())[1] if foes else -1
    noticed = {i for i, away in foes.items() if away <= max(one.unit.reach, 5.0)}
    threats = {i for i in noticed if army[i].order_target == me or army[i].unit.heals}
    if one.target in foes and (one.target in threats or not threats):
        reach = one.unit.reach + (one.unit.slop if one.swing < 1e8 else 0.0)
        if foes[one.target] <= reach or not any(away <= one.unit.reach for away in foes.values()):
            return one.target
    ranked = [(i not in threats, foes[i], i) for i in noticed]
    return min(ranked)[2] if ranked else -1


def attack(one: Soldier, target: int, army: list[Soldier], alive: bool, jitter: float) -> tuple[bool, bool]:
    """Whether it strikes in this loop, and whether what it sent off before lands."""
    unit = one.unit
    away = gap(one, army[target]) if one.aims else 0.0
    under_way = one.swing < 1e8
    faithful = alive and one.aims and one.swing_target == target and away <= unit.reach + unit.slop
    goes_on = under_way and faithful
    if under_way and not goes_on:
        one.cooldown, one.swing = 0.0, 1e9
    one.cooldown = max(one.cooldown - TICK, 0.0)
    points = True
    if unit.turn_rate and one.aims:
        wanted = math.atan2(army[target].y - one.y, army[target].x - one.x)
        off = (wanted - one.facing + math.pi) % (2 * math.pi) - math.pi
        turned = min(max(off, -math.radians(unit.turn_rate) * TICK), math.radians(unit.turn_rate) * TICK)
        one.facing += turned
        points = abs(off - turned) <= math.radians(11.25)
    changed = one.allied and one.aims and target != one.swing_target
    begins = alive and one.reached and one.cooldown <= 0 and not goes_on and points and unit.damage > 0
    if goes_on:
        one.swing -= TICK
    elif begins:
        one.cooldown, one.swing, one.swing_target = unit.period - 0.0625 + 0.1875 * jitter, unit.damage_point, target
    strikes = (goes_on or begins) and one.swing <= 0
    one.recovery = 0.0 if changed else max(one.recovery - TICK, 0.0)
    if strikes:
        one.swing, one.recovery = 1e9, unit.backswing
    one.blow -= TICK
    if unit.second_hit and not faithful:
        one.blow = 1e9
    lands = one.blow <= 0
    one.blow = 1e9 if lands else one.blow
    if strikes and unit.second_hit:
        one.blow, one.blow_target = unit.second_hit, target
    elif strikes and unit.missile_speed:
        v, a, d = unit.missile_speed, unit.missile_acceleration, max(away, 0.0)
        one.blow, one.blow_target = ((math.sqrt(v * v + 2 * a * d) - v) / a if a else d / v), target
    one.busy = one.swing < 1e8 or one.recovery > 0
    return strikes, lands


def walk(battle: Map, army: list[Soldier], alive: list[bool]) -> None:
    moved, plans = [], []
    starts = [(one.x, one.y) for one in army]
    crowds = any(one.unit.damage and one.unit.reach < 1 for one in army)
    for i, one in enumerate(army):
        if one.aims:
            walks, (x, y) = not one.reached and not one.busy, starts[one.target]
        elif one.allied:
            walks, x, y = one.order_walk, one.order_x, one.order_y
        else:
            walks, (x, y) = battle.goal is not None and not one.busy, battle.goal or (0.0, 0.0)
        walks = walks and alive[i]
        stalks = walks and one.aims and gap(one, army[one.target]) <= 3.0 and one.unit.reach < 1 and crowds
        plans.append([walks, stalks, x, y])
    for i, one in enumerate(army):
        walks, stalks, x, y = plans[i]
        if battle.terrain.winding and one.unit.plane is Plane.GROUND:
            ways = routes(battle.terrain)
            column, row = (int(min(max(value, 0.0), SIZE - 1)) for value in (x, y))
            cell = ways.waypoint[ways.place[int(one.x) * SIZE + int(one.y)], ways.place[column * SIZE + row]]
            if cell != STRAIGHT:
                x, y = int(cell) // SIZE + 0.5, int(cell) % SIZE + 0.5
        left = math.hypot(x - one.x, y - one.y)
        speed = one.unit.speed
        if one.unit.acceleration:
            one.speed = speed = min(one.speed + one.unit.acceleration * TICK, speed) if walks else 0.0
        length = min(speed * TICK, left) if walks else 0.0
        moved.append(length > 0.01)
        plans[i] += [x, y, left, speed * TICK]
        if length > 0:
            turn = math.copysign(math.radians(70), one.detour) if stalks and one.detour else 0.0
            dx, dy = (x - one.x) / left * length, (y - one.y) / left * length
            slide(battle, one, dx * math.cos(turn) - dy * math.sin(turn), dy * math.cos(turn) + dx * math.sin(turn))
    for _ in range(4):
        pushes = []
        for i, one in enumerate(army):
            px = py = 0.0
            for j, other in enumerate(army):
                if i == j or not (alive[i] and alive[j]) or one.unit.plane is not other.unit.plane:
                    continue
                dx, dy = one.x - other.x + 1e-4 * (i - j), one.y - other.y
                touching = one.unit.separation + other.unit.separation
                overlap = touching * touching - dx * dx - dy * dy
                if overlap <= 0:
                    continue
                share = 0.5
                if one.allied != other.allied and moved[i] != moved[j]:
                    share = 1.0 if moved[i] else 0.0
                elif one.allied == other.allied and one.busy != other.busy:
                    share = 0.0 if one.busy else 1.0
                force = overlap / touching**2 * share
                px, py = px + force * dx, py + force * dy
            pushes.append((px, py) if one.unit.speed else (0.0, 0.0))
        for one, push in zip(army, pushes, strict=True):
            if one.life > 0:
                slide(battle, one, *push)
    for i, one in enumerate(army):
        _, stalks, _, _, x, y, left, step = plans[i]
        shorter = math.copysign(max(abs(one.detour) - TICK, 0.0), one.detour)
        if stalks and left - math.hypot(x - one.x, y - one.y) < 0.1 * step and shorter == 0:
            (start_x, start_y) = starts[i]
            left_hand = (x - start_x) * (one.y - start_y) - (y - start_y) * (one.x - start_x) > 0
            one.detour = 0.25 if left_hand else -0.25
        elif crowds:
            one.detour = shorter if stalks else 0.0


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
    chosen = [one.order_target if one.allied else choose(battle, army, i) for i, one in enumerate(army)]
    for one, target in zip(army, chosen, strict=True):
        one.target = target
        one.aims = target >= 0 and alive[target]
        if one.aims and one.unit.heals:
            one.aims = "biological" in army[target].unit.attributes and army[target].unit.speed > 0
        elif one.aims:
            one.aims = strength(one.unit, army[target].unit) > 0
        one.reached = one.aims and gap(one, army[target]) <= one.unit.reach
    blow_targets = [one.blow_target for one in army]
    phases = [attack(one, one.target, army, alive[i], jitter[i]) for i, one in enumerate(army)]
    before = {i: [gap(one, other) for other in army] for i, one in enumerate(army) if one.unit.blast}
    walk(battle, army, alive)

    blows: list[tuple[int, int, int]] = []  # who hits whom, how often
    bursts = [False] * len(army)
    for i, one in enumerate(army):
        fires, lands = phases[i]
        if not (fires or lands or one.bursting):
            continue
        foes = [j for j, foe in enumerate(army) if foe.allied != one.allied and alive[j] and strength(one.unit, foe.unit) > 0]
        if one.unit.blast:
            bursts[i] = fires or one.bursting
            if bursts[i]:
                blows += [(i, j, 1) for j in foes if before[i][j] + one.unit.radius <= one.unit.blast]
        elif one.unit.beams:
            if fires:
                blows += [(i, j, 2) for j in foes if on_beam(starts[i], starts[one.target], army[j], starts[j])]
        else:
            if fires and one.target in foes and not one.unit.missile_speed:
                blows.append((i, one.target, 1))
            if lands and blow_targets[i] in foes:
                blows.append((i, blow_targets[i], 1))
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
        one.order_target = -1 if action < 6 else action - 6 if one.unit.heals else n + action - 6
    for _ in range(8):
        tick(battle, army, jitter)
