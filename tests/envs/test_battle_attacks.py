"""Attacks and targets by hand: when damage falls, what breaks an attack off, who is attacked, healed, surrounded, and where one may go."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.commands.evaluate import main as evaluate
from emc.envs.battle import MAPS, Battle
from emc.envs.battle import terrain as ground
from emc.envs.battle.army import army
from emc.envs.battle.combat import BLOCK, Combat, _by_blocks
from emc.envs.battle.forces import Forces, Orders
from emc.errors import UserError
from tests.envs.test_battle import FAR, compiled, loops, program, random_battle, skirmish, step_key

Placed = list[tuple[str, tuple[float, float]]]


def ordered(combat: Combat, forces: Forces, count: int, target: int, east: float = 0.0) -> Forces:
    """Some game loops in which the only agent attacks, or walks east; weapons without jitter."""
    one = jnp.zeros((1, 1))
    orders = Orders(forces.x[:1] + east, forces.y[:1], one + (east != 0) > 0, jnp.full((1, 1), target))
    return program(combat)(forces, orders, count)


def marching(combat: Combat, x: float, y: float) -> Combat:
    """With an enemy that attacks on its way to a point, instead of hunting."""
    return dataclasses.replace(combat, map=dataclasses.replace(combat.map, goal=(float(x), float(y))))


@pytest.mark.parametrize(
    ("unit", "away", "loop"),
    [
        ("marine", 5.0, 2),  # measured in the game (4.10): an order, and the damage two loops later; .05 s is a part of a loop
        ("marauder", 6.0, 6),  # no damage point; the grenade flies 6 at 20: .3 s = 4.8 loops
        ("stalker", 6.0, 10),  # .167 s = 2.67 loops, then 6 at 18.75: .32 s = 5.12 loops
        ("zergling", 0.1, 4),  # .167 s
        ("hydralisk", 5.0, 7),  # .208 s = 3.33 loops, then 5 at 40: .125 s = 2 loops
        ("colossus", 6.0, 3),  # .0832 s = 1.33 loops
    ],
)
def test_damage_falls_after_the_damage_point_and_the_flight(unit: str, away: float, loop: int) -> None:
    combat, forces = skirmish([(unit, (10, 10))], [("spine crawler", (10, 10))], cooldown={1: FAR})
    distance = away + sum(combat.army.of("radius")) - 1e-3
    forces = dataclasses.replace(forces, x=forces.x.at[1].set(10 + distance))
    life = [float(ordered(combat, forces, count, 1).life[1, 0]) for count in (loop - 1, loop)]
    assert life[0] == 300
    assert life[1] < 299


def test_the_tentacle_takes_six_loops_to_start_and_four_to_arrive() -> None:
    combat, forces = skirmish([("stalker", (10, 10))], [("spine crawler", (10, 10))], facing={1: np.pi})
    forces = dataclasses.replace(forces, x=forces.x.at[1].set(10 + 6 + 0.625 + 0.875))
    # The damage point is .3332 s = 5.33 loops after the first; it flies 6 from 12 with 140: 12 t + 70 t^2 = 6 at t = .219 s = 3.5 loops.
    assert [float(ordered(combat, forces, count, -1).shield[0, 0]) for count in (10, 11)] == [80, 50]
    # .175 s later it begins to come back, from 10 a second: within .6 s, before the next attack, 1.6 s after this one. It delays nothing.
    slow = dataclasses.replace(forces, facing=forces.facing.at[1].set(0.0))
    # Turned away it has to turn 180 - 11.25 degrees first, at 22.5 a loop: 8 loops, of which the attack begins in the last.
    assert [float(ordered(combat, slow, count, -1).shield[0, 0]) for count in (17, 18)] == [80, 50]


def test_an_attack_that_is_broken_off_does_nothing_and_costs_nothing() -> None:
    combat, forces = skirmish([("marine", (10, 10))], [("spine crawler", (15, 10))], cooldown={1: FAR})
    begun = ordered(combat, forces, 1, 1)
    assert float(begun.cooldown[0, 0]) == pytest.approx(0.8608)
    walked = ordered(combat, begun, 1, -1, east=-2.0)
    assert float(ordered(combat, walked, 8, -1).life[1, 0]) == 300
    assert float(walked.cooldown[0, 0]) == 0
    after = ordered(combat, forces, 2, 1)  # one loop later the shot has fallen, and walking away leaves the wait for the next as it is
    assert float(ordered(combat, after, 1, -1, east=-2.0).cooldown[0, 0]) == pytest.approx(0.8608 - 2 / 16)


@pytest.mark.parametrize(
    ("unit", "slop", "count"),
    [
        ("stalker", 1.0, 12),  # its damage point is in loop 4, and the missile flies 6 to 7 at 18.75 a second: at most 6 loops
        ("spine crawler", 0.0, 12),
        ("colossus", 0.0, 4),  # its damage point is in loop 3; later it would have come nearer
    ],
)
def test_a_target_may_get_away_by_the_slop_before_the_damage_point(unit: str, slop: float, count: int) -> None:
    combat, forces = skirmish([("marine", (10, 10))], [(unit, (16, 10))], facing={1: np.pi}, cooldown={0: FAR})
    combat = marching(combat, 16, 10)
    reach = float(combat.army.of("reach")[1] + sum(combat.army.of("radius")))
    forces = dataclasses.replace(forces, x=forces.x.at[0].set(16 - reach + 0.01))
    begun = ordered(combat, forces, 1, -1)
    assert float(begun.swing[1, 0]) < FAR
    assert float(ordered(combat, begun, count, -1).life[0, 0]) < 45
    far = dataclasses.replace(begun, x=begun.x.at[0].add(-0.9))
    assert (float(ordered(combat, far, count, -1).life[0, 0]) < 45) == (slop > 0)


def test_after_an_attack_a_unit_stands_for_its_backswing_unless_it_is_told_something_else() -> None:
    combat, forces = skirmish([("marine", (10, 10))], [("spine crawler", (15, 10))], cooldown={1: FAR})
    shot = ordered(combat, forces, 2, 1)
    away = dataclasses.replace(shot, x=shot.x.at[1].set(20.0))
    # Measured in the game (4.10): a marine whose target leaves follows it 12 loops = .75 s after its shot.
    assert [float(ordered(combat, away, count, 1).x[0, 0]) > 10 for count in (11, 12)] == [False, True]
    assert float(ordered(combat, away, 1, -1, east=2.0).x[0, 0]) == pytest.approx(10 + 2.25 / 16)


def test_a_second_hit_is_lost_when_the_zealot_walks_away() -> None:
    combat, forces = skirmish([("zealot", (10, 10))], [("spine crawler", (11.4, 10))], cooldown={1: FAR})
    once = ordered(combat, forces, 1, 1)
    assert 300 - float(ordered(combat, once, 6, 1).life[1, 0]) == pytest.approx(12, abs=0.2)
    assert 300 - float(ordered(combat, once, 6, -1, east=-2.0).life[1, 0]) == pytest.approx(6, abs=0.2)


def test_the_enemy_turns_to_whoever_attacks_it() -> None:
    places: Placed = [("marine", (12, 10)), ("marine", (13, 10))]
    combat, forces = skirmish(places, [("stalker", (16, 10))], target={2: 1}, cooldown={0: FAR, 1: FAR})
    combat = marching(combat, 2, 10)
    assert int(loops(combat, forces, 1, [-1, -1]).target[2, 0]) == 1  # it keeps whom it has
    assert int(loops(combat, forces, 1, [2, -1]).target[2, 0]) == 0  # the farther one attacks it, the other does not
    assert int(loops(combat, forces, 1, [2, 2]).target[2, 0]) == 1  # both do
    assert int(loops(combat, dataclasses.replace(forces, target=forces.target.at[2].set(-1)), 1, [-1, -1]).target[2, 0]) == 1  # the nearest


def test_the_enemy_runs_after_a_target_until_somebody_else_is_within_reach() -> None:
    places: Placed = [("marine", (10, 10)), ("marine", (18, 10))]
    combat, forces = skirmish(places, [("zealot", (16, 10))], target={2: 0}, cooldown={0: FAR, 1: FAR})
    combat = marching(combat, 30, 10)
    after = loops(combat, forces, 4, [-1, -1])  # the first is more than 5 away, the second within 5
    assert int(after.target[2, 0]) == 0
    assert float(after.x[2, 0]) < 16
    beside = dataclasses.replace(forces, x=forces.x.at[1].set(16.9))
    assert int(loops(combat, beside, 1, [-1, -1]).target[2, 0]) == 1
    gone = dataclasses.replace(forces, life=forces.life.at[0].set(0.0))
    assert int(loops(combat, gone, 1, [-1, -1]).target[2, 0]) == 1


def test_an_enemy_that_is_told_to_attack_the_agents_stays_with_its_target() -> None:
    places: Placed = [("marine", (10, 10)), ("marine", (15, 10))]
    combat, forces = skirmish(places, [("zergling", (16, 10))], target={2: 0}, cooldown={0: FAR, 1: FAR})
    assert int(loops(combat, forces, 1, [-1, -1]).target[2, 0]) == 0  # though the other is beside it
    assert MAPS["2c_vs_64zg"].goal is None


def test_a_medivac_is_as_good_a_target_as_a_marine() -> None:
    places: Placed = [("marine", (11, 10)), ("medivac", (12, 10))]
    combat, forces = skirmish(places, [("stalker", (16, 10))], cooldown={0: FAR})
    combat = marching(combat, 2, 10)
    assert int(loops(combat, forces, 1, [2, -1]).target[2, 0]) == 1  # the nearer one: a medivac always threatens
    near = dataclasses.replace(forces, x=forces.x.at[0].set(14.0))
    assert int(loops(combat, near, 1, [2, -1]).target[2, 0]) == 0


def test_a_medivac_left_alone_heals_the_weakest_within_six_then_the_nearest() -> None:
    foes: Placed = [("marauder", (16, 10)), ("marine", (20, 10)), ("marine", (22, 10)), ("medivac", (14, 10))]
    combat, forces = skirmish([("marine", (2, 2))], foes, life={1: 100.0, 2: 20.0, 3: 20.0}, cooldown={0: FAR})
    combat = marching(combat, 30, 30)
    assert int(loops(combat, forces, 1, [-1]).target[4, 0]) == 2  # 20 / 45 is less than 100 / 125, and of two the nearer is taken
    far = dataclasses.replace(forces, x=forces.x.at[2].set(14 + 6 + 0.75 + 0.375 + 0.1))
    assert int(loops(combat, far, 1, [-1]).target[4, 0]) == 1


def test_an_enemys_medivac_flies_with_its_order_and_gains_speed() -> None:
    combat, forces = skirmish([("marine", (2, 2))], [("marine", (30, 20)), ("medivac", (20, 20))], cooldown={0: FAR})
    combat = marching(combat, 4, 20)
    after = loops(combat, forces, 8, [-1])
    # 2.31 a second and second: after k loops it has 2.31 k / 16, which add up to 2.31 / 256 * (1 + ... + 8).
    assert float(after.x[2, 0]) == pytest.approx(20 - 2.31 / 256 * 36, abs=1e-3)
    assert float(loops(combat, forces, 40, [-1]).speed[2, 0]) == pytest.approx(2.75)


def crowd(unit: str, size: int, seconds: float) -> tuple[Forces, np.ndarray, float]:
    """A crowd that comes from the east upon a lone zealot that does nothing, who of it has hit, and how near two ever came."""
    foes: Placed = [(unit, (18.2 + 0.76 * (i % 4), 15.24 + 0.76 * (i // 4))) for i in range(size)]
    combat, forces = skirmish([("zealot", (16, 16))], foes, cooldown={0: FAR}, life={0: 1e4})
    combat = marching(combat, 4, 16)
    hit, nearest = np.zeros(size, bool), np.inf
    loop = jax.jit(lambda now: loops(combat, dataclasses.replace(now, shot=jnp.full_like(now.shot, -1)), 1, [-1]))
    for _ in range(int(16 * seconds)):
        forces = loop(forces)
        hit |= np.asarray(forces.shot[1:, 0]) >= 0
        x, y = np.asarray(forces.x[:, 0]), np.asarray(forces.y[:, 0])
        nearest = min(nearest, float((np.hypot(x[:, None] - x, y[:, None] - y) + 9 * np.eye(size + 1)).min()))
    return forces, hit, nearest


def test_of_twelve_zerglings_at_least_six_hit_a_lone_zealot_within_three_seconds() -> None:
    _, hit, nearest = crowd("zergling", 12, 3.0)
    assert hit.sum() >= 6
    assert nearest > 0.6  # bodies touch at .75: nobody ever passes through anybody


def test_zealots_surround_a_lone_one() -> None:
    """Who hits stands within .5 + .5 + .1 of its target, and bodies touch at .75: side by side two take 2 asin(.375 / 1.1) = 40 degrees.

    So three hit from one side, within 90 degrees, and five only when they have gone round it, 160 degrees and more.
    """
    forces, hit, nearest = crowd("zealot", 6, 4.0)
    assert hit.sum() >= 5
    assert nearest > 0.6
    x, y = np.asarray(forces.x[:, 0]), np.asarray(forces.y[:, 0])
    within = np.hypot(x[1:] - x[0], y[1:] - y[0]) <= 1.1 + 1e-3
    assert within.sum() >= 5
    angles = np.sort(np.degrees(np.arctan2(y[1:] - y[0], x[1:] - x[0])[within]) % 360)
    apart = np.diff([*angles, angles[0] + 360])
    assert apart.min() > 30  # each from a direction of its own
    assert 360 - apart.max() > 150  # and not from one side


def test_a_move_west_or_south_stays_allowed_within_a_cell_of_the_edge() -> None:
    """SMAC truncates towards 0, so `int(0.4 - 1)` is still the first cell."""
    env, (begin, _) = Battle("3s_vs_5z"), random_battle("3s_vs_5z")
    world, _ = begin(jax.random.key(0))
    for at, allowed in ((0.4, True), (1.2, True)):
        forces = dataclasses.replace(world.forces, x=world.forces.x.at[0].set(at), y=world.forces.y.at[0].set(at))
        assert np.asarray(env._view.available(forces))[0, [3, 5]].tolist() == [allowed, allowed]
    forces = dataclasses.replace(world.forces, x=world.forces.x.at[0].set(31.5), y=world.forces.y.at[0].set(31.5))
    assert np.asarray(env._view.available(forces))[0, [2, 4]].tolist() == [False, False]


def test_the_three_marines_of_3m_stand_as_the_game_puts_them() -> None:
    units = army(MAPS["3m"])
    side = 2820 / 4096
    np.testing.assert_allclose(units.start[:3], [(9, 16), (9, 16 + side), (9 + side, 16 + side)], atol=1e-4)
    _, reset, step = compiled("3m")
    world, now = reset(jax.random.key(0))
    np.testing.assert_allclose(
        now.obs[0][4 + 3 * 5 :][:10], [1, 0.0764974, 0, 0.0764974, 1, 1, 0.10818365, 0.0764974, 0.0764974, 1], atol=1e-6
    )
    _, after = step(world, jnp.array([4, 1, 1]), jax.random.key(1))
    # One step east is 1.125 and changes x in the state by 1.125 / 28; the recorded value begins at -.25.
    assert float(now.state[2]) == pytest.approx(-0.25)
    assert float(after.state[2] - now.state[2]) == pytest.approx(0.0401786, abs=2e-3)  # others push a little
    assert MAPS["3m"].terrain is ground.STRIP


def test_enemies_can_be_numbered_in_several_ways_and_a_wrong_word_is_one_line() -> None:
    created, turned = (army(MAPS["2s3z"], "spiral", order) for order in ("created", "reversed"))
    np.testing.assert_allclose(created.start[5:], turned.start[:4:-1])
    assert [unit.name for unit in turned.units[5:]] == ["zealot"] * 3 + ["stalker"] * 2
    with pytest.raises(UserError, match=r"unknown formation .spirl.*Did you mean spiral"):
        Battle("3m", formation="spirl")
    with pytest.raises(UserError, match="unknown enemy_order"):
        Battle("3m", enemy_order="random")


def test_shuffled_numbers_change_what_agents_see_and_say_and_nothing_else() -> None:
    """The same battle twice, once with a draw of numbers: every enemy's row, slot, mask and attack action moves with its number."""
    plain, shuffled = Battle("MMM2"), Battle("MMM2", enemy_order="shuffled")
    key, n, heals = jax.random.key(5), 10, plain.heals
    reset = jax.jit(shuffled.reset)
    (world, now), (other, seen) = jax.jit(plain.reset)(key), reset(key)
    numbers = np.asarray(other.numbers)
    assert sorted(numbers) == list(range(12))
    assert numbers.tolist() != np.asarray(reset(jax.random.key(6))[0].numbers).tolist()
    (_, step), step_shuffled = random_battle("MMM2"), jax.jit(lambda world, action, key: shuffled.step(world, action, step_key(key)))
    rng, attacked = np.random.default_rng(0), 0
    for moment in range(30):
        available = np.asarray(seen.available)
        action = np.array([rng.choice(np.flatnonzero(row[6:]) + 6 if row[6:].any() else np.flatnonzero(row)) for row in available])
        if moment < 12:
            action = np.where((action < 6) & available[:, 4], 4, action)  # east, to the enemy
        attacks = (action >= 6) & ~heals
        attacked += attacks.sum()
        translated = np.where(attacks, 6 + numbers[np.maximum(action - 6, 0)], action)
        *_, world, now = step(jax.random.key(moment), world, now, jnp.asarray(translated))
        other, seen = step_shuffled(other, jnp.asarray(action), jax.random.key(moment))
        np.testing.assert_allclose(other.forces.x, world.forces.x, atol=1e-5)
        np.testing.assert_allclose(other.forces.life, world.forces.life, atol=1e-4)
        # 4 moves, then 12 enemies with 8 numbers each, the first of them the mask, which for a healer is about agents
        theirs, ours = (np.asarray(one.obs)[:, 4 : 4 + 12 * 8].reshape(n, 12, 8) for one in (now, seen))
        np.testing.assert_allclose(ours[..., 1:], theirs[:, numbers, 1:], atol=1e-5)
        np.testing.assert_array_equal(ours[~heals, :, 0], theirs[~heals][:, numbers, 0])
        np.testing.assert_array_equal(np.asarray(seen.available)[~heals, 6:], np.asarray(now.available)[~heals][:, 6 + numbers])
        np.testing.assert_array_equal(np.asarray(seen.available)[heals], np.asarray(now.available)[heals])
        rows, shown = (np.asarray(one.state)[10 * 7 :][: 12 * 6].reshape(12, 6) for one in (now, seen))
        np.testing.assert_allclose(shown, rows[numbers], atol=1e-5)
    assert attacked > 20


def test_scripts_refuse_numbers_that_they_do_not_see() -> None:
    with pytest.raises(UserError, match="scripts choose units and not numbers"):
        evaluate(["3m", "--script", "nearest", "--enemy-order", "shuffled"])


def test_many_battles_are_fought_in_blocks_that_stay_in_cache() -> None:
    sizes: list[int] = []

    def fight(battles: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        life, hits = battles
        sizes.append(life.shape[-1])
        return life - jnp.sum(hits, axis=0), hits

    life, hits = jnp.arange(100 * 64.0).reshape(100, 64), jnp.arange(3 * 100 * 64.0).reshape(3, 100, 64)
    after, same = _by_blocks(fight, (life, hits), count=64, units=100)
    assert sizes == [16]  # 32 of them would be 3200 units, more than fit
    assert BLOCK == 3000
    np.testing.assert_array_equal(after, life - hits.sum(axis=0))
    np.testing.assert_array_equal(same, hits)
    _by_blocks(fight, (life[:, :24], hits[..., :24]), count=24, units=100)
    assert sizes[1:] == [24]
