"""Battles: sizes and layouts of SMAC, every rule by hand or against a plain-Python twin, and the tactics each map is known for."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.envs import make_env
from emc.envs.battle import MAPS, Battle, Map, register_map
from emc.envs.battle import terrain as ground
from emc.envs.battle.army import army
from emc.envs.battle.battle import World
from emc.envs.battle.combat import Combat
from emc.envs.battle.forces import Forces, Orders, recruits
from emc.envs.battle.formation import FORMATIONS, TIGHTNESS
from emc.envs.battle.units import UNITS, damage_between
from emc.envs.battle.view import FIRST_TARGET
from emc.envs.check import check
from emc.errors import UserError
from emc.policies.scripted import play
from tests.envs.battle_players import alternate_fire, hold_position
from tests.envs.battle_twin import Soldier, half_second
from tests.twins import SOMEWHAT, WHOLE, at, quick

# limit, actions, observation, state, features of an agent's unit, largest reward: measured on the real SMAC
SMAC_SIZES = {
    "2s3z": (120, 11, 80, 120, 7, 1020),
    "3s5z": (150, 14, 128, 216, 7, 1510),
    "1c3s5z": (180, 15, 162, 270, 8, 1870),
    "5m_vs_6m": (70, 12, 55, 98, 4, 530),
    "10m_vs_11m": (150, 17, 105, 243, 4, 805),
    "27m_vs_30m": (180, 36, 285, 1170, 4, 1850),
    "3s5z_vs_3s6z": (170, 15, 136, 230, 7, 1670),
    "MMM2": (180, 18, 176, 322, 7, 1205),
    "2s_vs_1sc": (300, 7, 17, 27, 5, 510),
    "3s_vs_5z": (250, 11, 48, 68, 5, 1000),
    "6h_vs_8z": (150, 14, 78, 140, 4, 1480),
    "bane_vs_bane": (200, 30, 336, 984, 6, 1260),
    "2c_vs_64zg": (400, 70, 332, 342, 5, 3080),
    "corridor": (400, 30, 156, 282, 5, 1280),
    "5s10z": (200, 21, 240, 510, 7, 2650),
    "7s7z": (200, 20, 224, 462, 7, 2510),
    "1c3s8z_vs_1c3s9z": (180, 19, 225, 415, 8, 2510),
}
FAR = 1e3


def test_all_seventeen_maps_of_the_paper_and_two_small_ones_are_there() -> None:
    assert set(MAPS) == set(SMAC_SIZES) | {"3m", "8m"}


@pytest.mark.parametrize("name", SMAC_SIZES)
def test_sizes_are_those_of_smac(name: str) -> None:
    env = Battle(name)
    spec = env.spec
    sizes = (spec.episode_limit, spec.n_actions, spec.obs_size, spec.state_size, spec.unit_size, env.largest_reward)
    assert sizes == SMAC_SIZES[name]
    _, first = jax.eval_shape(env.reset, jax.random.key(0))
    assert first.obs.shape == (spec.n_agents, spec.obs_size)
    assert first.state.shape == (spec.state_size,)
    assert first.available.shape == (spec.n_agents, spec.n_actions)


def test_an_unknown_map_is_named_with_the_nearest() -> None:
    with pytest.raises(UserError, match="2s3z"):
        Battle("2s4z")


WEST, EAST = (9.0, 16.0), (23.0, 16.0)
AMBUSH = Map("ambush", ((1, "marauder", WEST), (3, "marine", WEST)), ((2, "zealot", EAST), (1, "marine", EAST), (2, "zergling", EAST)), 100)


@pytest.fixture
def own_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registered maps are forgotten again."""
    maps = dict(MAPS)
    for module in ("maps", "battle"):
        monkeypatch.setattr(f"emc.envs.battle.{module}.MAPS", maps)


@pytest.mark.usefixtures("own_maps")
def test_a_map_of_ones_own_may_have_an_enemy_of_other_kinds() -> None:
    register_map(AMBUSH)
    register_map(AMBUSH)  # importing a module twice is no mistake
    env = Battle("ambush")
    bits = 4  # marauder and marine, then zealot and zergling
    assert env.spec.obs_size == 4 + 5 * (5 + 1 + bits) + 3 * (5 + bits) + 1 + bits
    types = [row.argmax() for row in env._view._types]
    assert types == [0, 1, 1, 1, 2, 2, 1, 3, 3]
    assert [finding.promise for finding in check(env) if not finding.kept] == []
    with pytest.raises(UserError, match="another map called ambush"):
        register_map(dataclasses.replace(AMBUSH, limit=99))


@pytest.mark.usefixtures("own_maps")
def test_the_map_of_the_documentation_can_be_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "battle.md").read_text()
    (tmp_path / "my_maps.py").write_text(page.partition("```python my_maps\n")[2].partition("```")[0])
    monkeypatch.syspath_prepend(tmp_path)
    env: Any = make_env("my_maps:Ambush")
    assert (env.spec.n_agents, env.spec.n_actions, env.spec.episode_limit) == (4, 14, 100)
    assert jax.eval_shape(env.reset, jax.random.key(0))[1].obs.shape == (4, env.spec.obs_size)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"enemies": ((2, "zaelot", EAST),)}, "unknown unit on the map ambush 'zaelot'.*Did you mean zealot"),
        ({"allies": ()}, "nobody on one side"),
        ({"allies": ((0, "marine", WEST),)}, "count of marine on the map ambush=0"),
        ({"allies": ((1, "marine", (40.0, 16.0)),)}, "stands outside the map"),
        ({"limit": 0}, "limit of the map ambush=0"),
    ],
)
def test_a_mistake_in_a_map_is_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        dataclasses.replace(AMBUSH, **change)
    assert "\n" not in str(error.value)


def test_a_crowd_that_does_not_fit_is_refused() -> None:
    closet = dataclasses.replace(AMBUSH, terrain=ground.Terrain(((8, 15, 10, 17), (22, 15, 24, 17))), allies=((90, "marine", WEST),))
    with pytest.raises(UserError, match="90 units do not fit"):
        army(closet)


def reachable(grid: np.ndarray, start: tuple[float, float]) -> np.ndarray:
    """The cells that one can walk to."""
    seen, todo = np.zeros_like(grid), [(int(start[0]), int(start[1]))]
    while todo:
        x, y = todo.pop()
        if 0 <= x < 32 and 0 <= y < 32 and grid[x, y] and not seen[x, y]:
            seen[x, y] = True
            todo += [(x + 1, y), (x - 1, y), (x, y + 1), (x, y - 1)]
    return seen


def decoded_terrain() -> dict[str, np.ndarray]:
    """The open cells of the map files."""
    grids: dict[str, np.ndarray] = {}
    names: list[str] = []
    rows: list[str] = []
    for line in [*(Path(__file__).parents[1] / "golden" / "terrain.txt").read_text().splitlines(), "["]:
        if line.startswith("["):
            for name in names:
                grids[name] = np.array([[cell == "." for cell in row] for row in rows])[::-1].T
            names, rows = [part.strip() for part in line.strip("[]").split(",")], []
        elif line and not line.startswith("# "):
            rows.append(line)
    return grids


@pytest.mark.parametrize("name", SMAC_SIZES)
def test_the_ground_is_that_of_the_map_file(name: str) -> None:
    real = decoded_terrain()[name]
    if name == "corridor":  # the choke touches both rooms only at corners
        for x, y in ((11, 12), (12, 11), (13, 14), (14, 13)):
            real[x, y] = True
    start = tuple(army(MAPS[name]).start[0])
    np.testing.assert_array_equal(ground.cells(MAPS[name].terrain.open), reachable(real, start))


@pytest.mark.parametrize("formation", FORMATIONS)
@pytest.mark.parametrize("name", MAPS)
def test_everyone_starts_on_open_ground_and_apart(name: str, formation: str) -> None:
    units = army(MAPS[name], formation)
    grid = ground.walkable(MAPS[name].terrain)
    assert all(grid[int(x), int(y)] for x, y in units.start)
    radius = units.of("radius")
    for i in range(units.size):
        for j in range(i):
            if units.plane[i] == units.plane[j]:
                assert math.dist(units.start[i], units.start[j]) >= TIGHTNESS * (radius[i] + radius[j]) - 1e-3


def as_soldiers(name: str, forces: Forces) -> list[Soldier]:
    units = army(MAPS[name])
    fields = [np.asarray(getattr(forces, field)).tolist() for field in ("x", "y", "life", "shield", "energy", "cooldown", "unhurt")]
    fields += [
        np.asarray(getattr(forces, field)).tolist() for field in ("target", "swing", "swing_target", "recovery", "blow", "blow_target")
    ]
    more = [np.asarray(getattr(forces, field)).tolist() for field in ("speed", "detour", "facing", "bursting", "healing")]
    return [Soldier(unit, bool(allied), *values) for unit, allied, *values in zip(units.units, units.allied, *fields, *more, strict=True)]


def step_key(key: jax.Array) -> jax.Array:
    """Of a step of a random battle that is given this key, the part that the environment gets."""
    return jax.random.split(key, 3)[2]


@functools.cache
def random_battle(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """How a battle begins and goes on, each compiled once for all tests: key, action and jitter beside what is seen.

    Actions are those that are told; where none is, at random.
    """
    env, size = Battle(name), army(MAPS[name]).size

    def begin(key: jax.Array) -> Any:
        world, now = env.reset(key)
        shift = jax.random.uniform(key, (2, size), minval=-0.05, maxval=0.05)  # so that no two distances are equal
        forces = dataclasses.replace(world.forces, x=world.forces.x + shift[0], y=world.forces.y + shift[1])
        return dataclasses.replace(world, forces=forces), now

    def step(key: jax.Array, world: World, now: Any, told: Any = -1) -> Any:
        following, act_key, _ = jax.random.split(key, 3)
        action = jnp.where(told < 0, jax.random.categorical(act_key, jnp.where(now.available, 0.0, -1e9)), told)
        return following, action, jax.random.uniform(step_key(key), (size,)), *env.step(world, action, step_key(key))

    return jax.jit(begin), jax.jit(step)


@pytest.mark.parametrize("name", MAPS)
def test_every_step_equals_a_plain_python_twin(name: str) -> None:
    """From each moment of a random battle; a comparison at the edge of rounding may go the other way now and then."""
    steps = {"2c_vs_64zg": 10, "27m_vs_30m": 10}.get(name, 30)
    begin, step = random_battle(name)
    key, unequal = jax.random.key(3), 0
    world, now = begin(key)
    for _ in range(steps):
        twin = as_soldiers(name, world.forces)
        key, action, jitter, world, now = step(key, world, now)
        half_second(MAPS[name], twin, np.asarray(action).tolist(), np.asarray(jitter).tolist())
        living = np.asarray(world.forces.life) > 0
        same = (living == np.array([one.life > 0 for one in twin])).all()
        for field in ("x", "y", "life", "shield", "energy", "cooldown"):
            ours, theirs = np.asarray(getattr(world.forces, field)), np.array([getattr(one, field) for one in twin])
            same &= np.allclose(ours[living], theirs[living], atol=1e-2 if field in ("x", "y") else 1e-3)  # a crowd magnifies rounding
        unequal += not same
        if now.terminated:
            break
    assert unequal <= 1


@functools.cache
def duel(attacker: str, target: str, seeds: int = 64) -> np.ndarray:
    """Seconds, game loop by game loop, that an attacker within reach needs to kill a target that does not fight back."""
    battle = Map("duel", ((1, attacker, (16.0, 16.0)),), ((1, target, (16.0, 16.0)),), 1000, goal=None)
    units = army(battle)
    units = dataclasses.replace(
        units, start=np.array([(16.0, 16.0), (16.0 + UNITS[attacker].radius + UNITS[target].radius, 16.0)], np.float32)
    )
    combat = Combat(battle, units)
    many = jax.tree.map(lambda leaf: jnp.repeat(leaf[:, None], seeds, axis=1), recruits(units))
    orders = Orders(*(jnp.full((1, seeds), value) for value in (0.0, 0.0, False, 1)))

    def goes_on(now: tuple[Forces, Any, Any, Any]) -> Any:
        forces, _, count, _ = now
        return jnp.any(forces.life[1] > 0) & (count < 1600)

    def loop(now: tuple[Forces, Any, Any, Any]) -> tuple[Forces, Any, Any, Any]:
        forces, key, count, alive = now
        key, draw = jax.random.split(key)
        peaceful = dataclasses.replace(forces, cooldown=forces.cooldown.at[1].set(FAR), x=forces.x.at[1].set(many.x[1]))
        forces = combat.loop(peaceful, orders, jax.random.uniform(draw, forces.x.shape))
        return forces, key, count + 1, alive + (forces.life[1] > 0)

    *_, alive = jax.lax.while_loop(goes_on, loop, (many, jax.random.key(0), jnp.int32(0), jnp.zeros(seeds, jnp.int32)))
    return np.asarray(alive) / 16


def computed_duel(attacker: str, target: str) -> float:
    """The same from the table: hits needed, one attack a period of average length, rounded up to whole loops; regeneration included."""
    one, other = UNITS[attacker], UNITS[target]
    damage = damage_between(one, other)
    life, shield, seconds, hits = other.life, other.shield, 0.0, 0
    mean_period = one.period + 0.03125 + 1 / 32  # jitter, and on average half a loop until the weapon is looked at
    first = (math.ceil(one.damage_point * 16) + bool(one.missile_speed)) / 16  # a missile that flies no distance takes a loop
    while True:
        attack, again = divmod(hits, 2) if one.second_hit else (hits, 0)
        now = attack * mean_period + again * math.ceil(one.second_hit * 16) / 16
        life = min(life + (now - seconds) * other.regeneration, other.life)
        seconds = now
        for _ in range(2 if one.beams else 1):
            absorbed = min(shield, damage)
            shield -= absorbed
            life -= max(damage - absorbed - other.armour, 0.5) if damage > absorbed else 0
        if life <= 0:
            return first + seconds
        hits += 1


DUELS = [
    ("marine", "marine"),
    ("zealot", "zealot"),
    ("stalker", "zealot"),
    ("zealot", "stalker"),
    ("hydralisk", "zealot"),
    ("zealot", "hydralisk"),
    ("marauder", "marine"),
    ("marauder", "marauder"),
    ("zergling", "zealot"),
    ("zergling", "colossus"),
    ("colossus", "zergling"),
    ("colossus", "stalker"),
    ("stalker", "colossus"),
    ("stalker", "spine crawler"),
    ("spine crawler", "stalker"),
    ("marine", "medivac"),
]


@pytest.mark.parametrize(("attacker", "target"), DUELS)
def test_duels_last_as_long_as_the_unit_table_says(attacker: str, target: str) -> None:
    simulated, computed = duel(attacker, target).mean(), computed_duel(attacker, target)
    assert simulated == pytest.approx(computed, rel=0.03, abs=0.07)


def test_duel_times_of_the_fact_sheet() -> None:
    """In environment steps, as computed for SMAC's numbers; without regeneration, which costs a zealot one more attack on a hydralisk."""
    expected = {("marine", "marine"): 12.5, ("zealot", "zealot"): 25, ("stalker", "zealot"): 47, ("zealot", "stalker"): 25}
    expected |= {("hydralisk", "zealot"): 22}
    for (attacker, target), steps in expected.items():
        assert 2 * duel(attacker, target).mean() == pytest.approx(steps, rel=0.1)  # damage point and flight are not in them


def skirmish(
    allies: list[tuple[str, tuple[float, float]]], enemies: list[tuple[str, tuple[float, float]]], **changes: dict[int, float]
) -> tuple[Combat, Forces]:
    """Units wherever they are wanted, and some of their numbers changed."""
    battle = Map(
        "skirmish",
        tuple((1, unit, (float(x), float(y))) for unit, (x, y) in allies),
        tuple((1, unit, (float(x), float(y))) for unit, (x, y) in enemies),
        1000,
        goal=None,
        terrain=ground.PLAIN,
    )
    units = army(battle)
    names = [unit.name for unit in units.units[: units.n_allies]]
    assert names == [unit for unit, _ in allies], "list the allies in the order of their kinds"
    forces = jax.tree.map(lambda leaf: np.array(leaf)[:, None], recruits(units))
    for field, values in changes.items():
        for number, value in values.items():
            getattr(forces, field)[number] = value
    return Combat(battle, units), jax.device_put(forces)


PROGRAMS: dict[tuple[Any, ...], Callable[..., Forces]] = {}


def program(combat: Combat) -> Callable[..., Forces]:
    """Any number of game loops with the same orders, compiled once for each choice of units and ground; weapons without jitter."""

    @jax.jit
    def go_on(forces: Forces, orders: Orders, count: jax.Array) -> Forces:
        third = jnp.full(forces.x.shape, 1 / 3)  # a third of the way from -1/16 to 1/8 is 0
        return jax.lax.fori_loop(0, count, lambda _, now: combat.loop(now, orders, third), forces)

    # Where everybody stands at first is all else that a combat knows, and loops go on from `forces`.
    return PROGRAMS.setdefault((combat.army.units, combat.army.n_allies, combat.map.goal, combat.map.terrain), go_on)


def loops(combat: Combat, forces: Forces, count: int, targets: list[int]) -> Forces:
    """Some game loops in which the agents only attack; weapons without jitter."""
    n = combat.army.n_allies
    orders = Orders(*jax.device_put((*np.zeros((2, n, 1), np.float32), np.zeros((n, 1), bool), np.array(targets, np.int32)[:, None])))
    return program(combat)(forces, orders, count)


def test_damage_falls_on_shields_first_and_armour_only_protects_life() -> None:
    combat, forces = skirmish([("stalker", (10, 10))], [("zealot", (16.5, 10))], shield={1: 4.0}, unhurt={1: 0.0}, cooldown={1: FAR})
    after = loops(combat, forces, 9, [1])
    assert float(after.shield[1, 0]) == 0.0
    assert float(after.life[1, 0]) == pytest.approx(100 - (10 - 4 - 1))  # a zealot is light: no bonus; armour 1


def test_bonus_damage_needs_the_attribute() -> None:
    combat, forces = skirmish([("stalker", (10, 10))], [("stalker", (17, 10))], shield={1: 0.0}, unhurt={1: 0.0}, cooldown={1: FAR})
    assert float(loops(combat, forces, 9, [1]).life[1, 0]) == pytest.approx(80 - (14 - 1))


def test_a_hit_weaker_than_the_armour_still_costs_half_a_point() -> None:
    combat, forces = skirmish([("stalker", (10, 10))], [("zealot", (16.5, 10))], shield={1: 9.5}, unhurt={1: 0.0}, cooldown={1: FAR})
    assert float(loops(combat, forces, 9, [1]).life[1, 0]) == pytest.approx(99.5)


def test_simultaneous_hits_land_one_after_the_other() -> None:
    places: list[tuple[str, tuple[float, float]]] = [("stalker", (10, 10)), ("stalker", (10, 12))]
    combat, forces = skirmish(places, [("zealot", (16.5, 11))], shield={2: 14.0}, unhurt={2: 0.0}, cooldown={2: FAR})
    after = loops(combat, forces, 9, [2, 2])
    assert float(after.life[2, 0]) == pytest.approx(100 - (6 - 1))  # 10 and 4 on the shield, the rest of the second hit on life


def test_a_zealot_hits_twice_and_the_second_time_later() -> None:
    combat, forces = skirmish([("zealot", (10, 10))], [("spine crawler", (11.4, 10))], cooldown={1: FAR})
    life = [300 - float(loops(combat, forces, count, [1]).life[1, 0]) for count in (1, 5, 6, 20, 21)]
    # 8 - 2 a hit; the second .28 s = 4.48 loops after the first, the next attack 1.2 s = 19.2 loops after it; no regeneration at full life
    regained = [count * 0.2734 / 16 for count in (1, 5, 6, 20, 21)]
    assert life == pytest.approx([6 - regained[0], 6 - regained[1], 12 - regained[2], 12 - regained[3], 18 - regained[4]], abs=1e-3)


def test_shields_come_back_after_ten_quiet_seconds() -> None:
    combat, forces = skirmish([("stalker", (2, 2))], [("marine", (30, 30))], shield={0: 10.0}, unhurt={0: 0.0}, cooldown={1: FAR})
    assert float(loops(combat, forces, 159, [-1]).shield[0, 0]) == 10.0
    assert float(loops(combat, forces, 160 + 8, [-1]).shield[0, 0]) == pytest.approx(10 + 2 * 9 / 16)


def test_zerg_regenerate_and_others_do_not() -> None:
    combat, forces = skirmish([("zergling", (2, 2))], [("marine", (30, 30))], life={0: 20.0, 1: 20.0}, cooldown={1: FAR})
    after = loops(combat, forces, 16, [-1])
    assert float(after.life[0, 0]) == pytest.approx(20.2734, abs=1e-3)
    assert float(after.life[1, 0]) == 20.0


def test_a_medivac_heals_for_energy_and_only_the_living_wounded() -> None:
    combat, forces = skirmish([("marine", (10, 10)), ("medivac", (12, 10))], [("marine", (30, 30))], life={0: 10.0}, cooldown={2: FAR})
    after = loops(combat, forces, 16, [-1, 0])
    assert float(after.life[0, 0]) == pytest.approx(19.0, abs=1e-3)
    assert float(after.energy[1, 0]) == pytest.approx(50 - 9 * 0.33 + 0.5625, abs=1e-3)
    full = loops(combat, dataclasses.replace(forces, life=forces.life.at[0].set(45.0)), 16, [-1, 0])
    assert float(full.energy[1, 0]) == pytest.approx(50 + 0.5625, abs=1e-3)


def test_a_heal_begins_with_five_energy_and_goes_on_to_the_last_of_it() -> None:
    combat, forces = skirmish(
        [("marine", (10, 10)), ("medivac", (12, 10))], [("marine", (30, 30))], life={0: 10.0}, energy={1: 4.95}, cooldown={2: FAR}
    )
    assert float(loops(combat, forces, 2, [-1, 0]).life[0, 0]) == 10.0  # 4.985 when the second loop begins
    begun = loops(combat, forces, 3, [-1, 0])
    assert float(begun.life[0, 0]) == pytest.approx(10 + 9 / 16, abs=1e-3)
    assert bool(begun.healing[1, 0])
    # A loop costs 9 / 16 * .33 and brings .5625 / 16: from 5.02 it takes 33 whole ones and a part of the next.
    low = loops(combat, forces, 2 + 33, [-1, 0])
    assert float(low.life[0, 0]) == pytest.approx(10 + 33 * 9 / 16, abs=1e-3)
    over = loops(combat, forces, 2 + 34, [-1, 0])
    assert not bool(over.healing[1, 0])
    assert float(over.energy[1, 0]) == pytest.approx(0.5625 / 16, abs=1e-3)
    assert float(loops(combat, over, 16, [-1, 0]).life[0, 0]) == float(over.life[0, 0])  # and only after nine seconds the next


def test_beams_hit_everyone_across_the_direction_of_fire_twice() -> None:
    foes: list[tuple[str, tuple[float, float]]] = [("zergling", (16, y)) for y in (10.0, 11.2, 8.9, 12.0)] + [("zergling", (17.2, 10.0))]
    numbers = range(1, 6)
    combat, forces = skirmish([("colossus", (10, 10))], foes, life=dict.fromkeys(numbers, 35.0), cooldown=dict.fromkeys(numbers, FAR))
    after = loops(combat, forces, 3, [1])
    # The line reaches 1.25 + .15 to each side and .15 ahead; a zergling has a radius of .375.
    assert [float(life) > 0 for life in after.life[1:, 0]] == [False, False, False, True, True]
    combat, forces = skirmish([("colossus", (10, 10))], [("stalker", (16, 10))], shield={1: 30.0}, unhurt={1: 0.0}, cooldown={1: FAR})
    after = loops(combat, forces, 3, [1])
    assert float(after.life[1, 0]) == pytest.approx(80 - (10 - 1))  # 20 and 10 on the shield, then 10 less the armour


def test_a_baneling_explodes_when_it_attacks_and_when_it_dies() -> None:
    foes: list[tuple[str, tuple[float, float]]] = [("zergling", (10.8, 10.0)), ("zergling", (12.5, 10.0)), ("zergling", (13.5, 10.0))]
    quiet = dict.fromkeys((1, 2, 3), FAR)
    combat, forces = skirmish([("baneling", (10, 10))], foes, cooldown=quiet)
    after = loops(combat, forces, 1, [1])
    assert [float(life) > 0 for life in after.life[:, 0]] == [False, False, False, True]  # within 2.2 of the centre, to its edge

    combat, forces = skirmish([("baneling", (10, 10))], foes, cooldown=quiet | {1: 0.0}, life={0: 4.9}, target={1: 0})
    killed = loops(combat, forces, 4, [-1])  # its damage point is .167 s = 2.67 loops after the first
    assert float(killed.life[0, 0]) == 0
    assert bool(killed.bursting[0, 0])
    burst = loops(combat, killed, 1, [-1])
    assert [float(life) > 0 for life in burst.life[1:, 0]] == [False, False, True]
    assert not bool(loops(combat, burst, 1, [-1]).bursting[0, 0])


def test_banelings_survive_one_explosion_of_another() -> None:
    combat, forces = skirmish([("baneling", (10, 10))], [("baneling", (11, 10))], cooldown={1: FAR})
    assert float(loops(combat, forces, 1, [1]).life[1, 0]) == pytest.approx(10.0, abs=0.1)  # 20 of 30: a baneling is not light


def test_marauders_cannot_hit_what_flies() -> None:
    combat, forces = skirmish([("marauder", (10, 10))], [("medivac", (13, 10))])
    assert float(loops(combat, forces, 30, [1]).life[1, 0]) == 150


def test_an_attack_order_chases_its_target() -> None:
    combat, forces = skirmish([("zealot", (10, 10))], [("spine crawler", (20, 10))], cooldown={1: FAR})
    after = loops(combat, forces, 16, [1])
    assert float(after.x[0, 0]) == pytest.approx(12.25, abs=1e-3)  # 2.25 a second
    after = loops(combat, forces, 16 * 6, [1])
    assert float(after.life[1, 0]) < 300


def test_a_colossus_walks_over_zerglings_and_cliffs() -> None:
    combat, forces = skirmish([("colossus", (10, 10))], [("zergling", (10.2, 10))], cooldown={0: FAR, 1: FAR})
    after = loops(combat, forces, 1, [-1])
    assert float(after.x[1, 0]) == pytest.approx(10.2, abs=1e-4)
    begin, step = random_battle("2c_vs_64zg")
    world, now = begin(jax.random.key(0))
    world = dataclasses.replace(world, forces=dataclasses.replace(world.forces, y=world.forces.y.at[:2].set(14.2)))
    for _ in range(4):
        *_, world, now = step(jax.random.key(1), world, now, 3)
    assert float(world.forces.y[0]) < 14.0 or float(world.forces.life[0]) == 0


@functools.cache
def compiled(name: str) -> tuple[Battle, Callable[..., Any], Callable[..., Any]]:
    """A battle, how it begins and how it goes on, each compiled once for all tests."""
    env = Battle(name)
    return env, jax.jit(env.reset), jax.jit(env.step)


def test_battles_side_by_side_are_the_battles_one_by_one() -> None:
    env, _, step = compiled("3m")
    keys = jax.random.split(jax.random.key(0), (2, 2))
    world, now = jax.jit(jax.vmap(jax.vmap(env.reset)))(keys)
    action = jax.random.categorical(jax.random.key(1), jnp.where(now.available, 0.0, -1e9))
    together, shown = jax.jit(jax.vmap(jax.vmap(env.step)))(world, action, keys)
    for i in range(2):
        for j in range(2):
            alone, seen = step(at((i, j), world), action[i, j], keys[i, j])
            for ours, theirs in zip(jax.tree.leaves((alone, seen)), jax.tree.leaves((together, shown)), strict=True):
                np.testing.assert_allclose(np.asarray(ours, np.float64), np.asarray(theirs, np.float64)[i, j], atol=1e-5)


def test_a_crowd_is_pushed_apart_alone_as_it_is_beside_others() -> None:
    env, _, step = compiled("2s3z")
    n = 4
    spots = jax.random.uniform(jax.random.key(7), (n, len(env.start), 2), minval=15.9, maxval=16.1)  # fewer passes would not part them
    world, _ = quick(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), n), spots)
    stop, keys = jnp.ones((n, env.spec.n_agents), jnp.int32), jax.random.split(jax.random.key(1), n)
    together, _ = jax.jit(jax.vmap(env.step))(world, stop, keys)
    for i in range(n):
        alone, _ = step(jax.tree.map(lambda leaf, i=i: np.asarray(leaf)[i], world), stop[i], keys[i])
        assert np.max(np.abs(alone.forces.x - np.asarray(spots)[i, :, 0])) > 0.5
        for ours, theirs in zip(jax.tree.leaves(alone), jax.tree.leaves(together), strict=True):
            np.testing.assert_allclose(np.asarray(ours, np.float64), np.asarray(theirs, np.float64)[i], atol=1e-4)


@pytest.mark.parametrize("name", ["3m", "MMM2"])
def test_a_step_makes_the_types_that_it_takes_so_that_it_is_compiled_once(name: str) -> None:
    env = Battle(name)
    first, _ = jax.eval_shape(env.reset, jax.random.key(0))
    after, _ = jax.eval_shape(env.step, first, jnp.zeros(env.spec.n_agents, jnp.int32), jax.random.key(0))
    leaves = jax.tree_util.tree_leaves_with_path((first, after))
    assert [jax.tree_util.keystr(path) for path, leaf in leaves if leaf.weak_type] == []  # such as Python's numbers would make
    assert [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(first)] == [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(after)]


def test_a_key_decides_everything() -> None:
    _, reset, step = compiled("3m")
    world, _ = reset(jax.random.key(0))
    once, again = (step(world, jnp.full(3, 4), jax.random.key(5)) for _ in range(2))
    for ours, theirs in zip(jax.tree.leaves(once), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def moment(name: str, steps: int = 12) -> tuple[Battle, World, Any]:
    """A world in the middle of a random battle."""
    begin, step = random_battle(name)
    key = jax.random.key(0)
    world, now = begin(key)
    for _ in range(steps):
        key, _, _, world, now = step(key, world, now)
    return Battle(name), world, now


@pytest.mark.parametrize("name", ["2s3z", "MMM2", "2s_vs_1sc", "bane_vs_bane", "1c3s5z", "corridor", "5m_vs_6m"])
def test_what_agents_see_is_what_smac_shows(name: str) -> None:
    """Observation, state and availability, written out one feature after the other."""
    env, world, now = moment(name)
    battle, units = MAPS[name], army(MAPS[name])
    n, everyone = units.n_allies, units.units
    x, y, life, shield = (np.asarray(getattr(world.forces, field), np.float64) for field in ("x", "y", "life", "shield"))
    ally_shields, enemy_shields = any(u.shield for u in everyone[:n]), any(u.shield for u in everyone[n:])
    order = ("colossus", "stalker", "zealot", "marauder", "marine", "medivac", "baneling", "zergling", "hydralisk")
    kinds = [kind for kind in order if any(u.name == kind for u in everyone[:n])]
    enemy_kinds = ["zealot", "stalker"] if kinds == ["stalker", "zealot"] else kinds

    def about(i: int) -> list[float]:
        features = [life[i] / everyone[i].life]
        if ally_shields if i < n else enemy_shields:
            features.append(shield[i] / everyone[i].shield if everyone[i].shield else 0.0)
        if len(kinds) > 1:
            features += [float(everyone[i].name == kind) for kind in (kinds if i < n else enemy_kinds)]
        return features

    available = np.zeros((n, env.spec.n_actions), bool)
    grid = ground.walkable(battle.terrain)
    for i in range(n):
        if life[i] <= 0:
            available[i, 0] = True
            continue
        available[i, 1] = True
        for action, (dx, dy) in enumerate(((0, 1), (0, -1), (1, 0), (-1, 0)), start=2):
            column, row = int(x[i] + dx), int(y[i] + dy)  # towards 0
            available[i, action] = 0 <= column < 32 and 0 <= row < 32 and grid[column, row]
        targets = range(n) if everyone[i].heals else range(n, len(everyone))
        for number, j in enumerate(targets):
            if life[j] > 0 and math.hypot(x[i] - x[j], y[i] - y[j]) <= 6 and not (everyone[i].heals and everyone[j].heals):
                available[i, FIRST_TARGET + number] = True
    np.testing.assert_array_equal(now.available, available)

    for i in range(n):
        row: list[float] = [float(flag) for flag in available[i, 2:6]]
        for number, j in enumerate([*range(n, len(everyone)), *(k for k in range(n) if k != i)]):
            distance = math.hypot(x[i] - x[j], y[i] - y[j])
            first = float(available[i, FIRST_TARGET + number]) if j >= n else 1.0
            features = [first, distance / 9, (x[j] - x[i]) / 9, (y[j] - y[i]) / 9, *about(j)]
            row += features if distance < 9 and life[j] > 0 else [0.0] * len(features)
        row += about(i)
        expected = row if life[i] > 0 else [0.0] * len(row)
        np.testing.assert_allclose(np.asarray(now.obs)[i], expected, atol=2e-5)

    scale = {"marine": 15, "marauder": 25, "medivac": 200, "stalker": 35, "zealot": 22, "colossus": 24, "hydralisk": 10, "zergling": 11}
    scale |= {"baneling": 1}
    rows: list[float] = []
    for i, unit in enumerate(everyone):
        place = [(x[i] - 16) / (28 if battle.terrain is ground.STRIP else 32), (y[i] - 16) / 32]
        waits = world.forces.energy[i] if unit.heals else world.forces.cooldown[i] * 16
        head, *rest = about(i)
        features = [head, *([float(waits) / scale[unit.name]] if i < n else []), *place, *rest]
        rows += features if life[i] > 0 else [0.0] * len(features)
    for action in np.asarray(world.last_action):
        rows += [float(number == action) for number in range(env.spec.n_actions)]
    np.testing.assert_allclose(now.state, rows, atol=2e-5)

    # What the replay keeps in a bit is 0 or 1, and nothing that is a number is called a flag: life, places, shields and cooldowns stay.
    spec = env.spec
    assert set(np.unique(np.asarray(now.obs)[:, list(spec.obs_flags)])) <= {0.0, 1.0}
    assert set(np.unique(np.asarray(now.state)[list(spec.state_flags)])) <= {0.0, 1.0}
    types = len(kinds) if len(kinds) > 1 else 0
    assert len(spec.obs_flags) == 4 + (len(everyone) - 1) * (1 + types) + types
    assert len(spec.state_flags) == len(everyone) * types + n * spec.n_actions


def test_the_whole_reward_of_a_quick_victory_is_twenty() -> None:
    env, reset, _ = compiled("3m")
    world, _ = reset(jax.random.key(0))
    before = world.forces
    dead = dataclasses.replace(before, life=before.life.at[3:].set(0.0))
    assert float(env._reward(before, dead)) == pytest.approx(20.0)  # 135 life, three kills and the victory
    hurt = dataclasses.replace(before, life=before.life.at[3].add(-6.0))
    assert float(env._reward(before, hurt)) == pytest.approx(6 * 20 / 365)
    assert float(env._reward(hurt, before)) == pytest.approx(6 * 20 / 365)  # SMAC takes the absolute value
    assert float(env._reward(before, dataclasses.replace(before, life=before.life.at[0].set(0.0)))) == 0.0


def test_who_has_won() -> None:
    env, (begin, _) = Battle("MMM2"), random_battle("MMM2")
    world, _ = begin(jax.random.key(0))
    life, n = world.forces.life, 10

    def verdict(life: jax.Array) -> tuple[bool, bool]:
        lost, won = env._verdict(dataclasses.replace(world.forces, life=life))
        return bool(lost), bool(won)

    assert verdict(life) == (False, False)
    assert verdict(life.at[n:].set(0.0)) == (False, True)
    assert verdict(life.at[n:-1].set(0.0)) == (False, True)  # only the enemy's medivac is left
    assert verdict(life.at[: n - 1].set(0.0)) == (True, False)  # only the agents' is
    assert verdict(jnp.zeros_like(life)) == (True, False)  # a draw


def test_the_time_limit_ends_the_episode_as_a_defeat() -> None:
    env, reset, step = compiled("3m")
    world, _ = reset(jax.random.key(0))
    world = dataclasses.replace(world, time=jnp.int32(env.spec.episode_limit - 1))
    _, now = step(world, jnp.ones(3, int), jax.random.key(0))
    assert (bool(now.terminated), bool(now.truncated), bool(now.won)) == (True, False, False)


def won(env: Battle, script: Callable[..., Any], episodes: int = 32, compiled: dict[str, Any] = SOMEWHAT) -> float:
    battles = jax.jit(lambda key: play(env, script, episodes, key).won, compiler_options=compiled)
    return float(jnp.mean(battles(jax.random.key(7))))


def test_a_team_that_holds_the_choke_of_corridor_wins_and_without_walls_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    env = Battle("corridor")
    assert won(env, hold_position(env, 13.0, 13.0)) > 0.65
    monkeypatch.setitem(MAPS, "open corridor", dataclasses.replace(MAPS["corridor"], terrain=ground.PLAIN))
    env = Battle("open corridor")
    assert won(env, hold_position(env, 13.0, 13.0)) < 0.3


def test_zerglings_go_round_the_wall_of_the_ravine() -> None:
    begin, step = random_battle("2c_vs_64zg")
    world, now = begin(jax.random.key(0))
    grid = ground.cells(MAPS["2c_vs_64zg"].terrain.open)
    for i in range(28):
        *_, world, now = step(jax.random.key(i), world, now, 1)
        alive = np.asarray(world.forces.life[2:]) > 0
        cells = np.stack([world.forces.x[2:], world.forces.y[2:]], axis=1).astype(int)
        assert grid[cells[alive, 0], cells[alive, 1]].all()
    assert (np.asarray(world.forces.y[2:]) > 14).sum() > 20 or float(world.forces.life[:2].sum()) == 0


def test_alternating_fire_beats_the_spine_crawler() -> None:
    env = Battle("2s_vs_1sc")
    assert won(env, alternate_fire(env), compiled=WHOLE) > 0.5  # as users have it
