"""Level-based foraging against the package that defines it, a plain-Python twin, and its rules by hand."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.envs import TASKS, Foraging, make_env
from emc.envs.foraging import EAST, LOAD, NONE, NORTH, SOUTH, WEST, World, fields_of
from emc.envs.registry import task
from emc.errors import UserError
from tests.envs.board_twins import ForagingTwin

KEY = jax.random.key(0)
step = jax.jit(lambda env, world, action: env.step(world, action, KEY))
NAMES = ["8x8-2p-2f-coop", "10x10-3p-3f", "2s-8x8-2p-2f-coop", "2s-10x10-3p-3f", "5x5-4p-4f", "15x15-4p-5f", "2s-12x12-9p-4f"]


def reset(env: Foraging, seed: int) -> tuple[World, Any]:
    return jax.device_get(_reset(env, jax.random.key(seed)))


_reset = jax.jit(lambda env, key: env.reset(key))


def actions_of(env: Foraging, world: World, generator: np.random.Generator) -> list[int]:
    """Random actions that walk towards food more often than not, and load when beside it."""
    chosen = []
    for place in world.position:
        food = world.food[world.food_level > 0]
        apart = food - place
        target = apart[np.argmin(np.abs(apart).sum(axis=1))] if len(food) else np.array([0, 0])
        if generator.random() < 0.4:
            chosen.append(int(generator.integers(6)))
        elif np.abs(target).sum() == 1:
            chosen.append(LOAD)
        elif abs(target[0]) > abs(target[1]):
            chosen.append(SOUTH if target[0] > 0 else NORTH)
        else:
            chosen.append(EAST if target[1] > 0 else WEST)
    return chosen


def assert_same(shown: Any, expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        mine = np.asarray(getattr(shown, name), float)
        assert mine.shape == np.shape(value), name
        assert np.abs(mine - value).max() < 1e-6, name


@pytest.mark.parametrize("name", [*NAMES, "8x8-3p-2f-ind-pen", "8x8-2p-2f-coop-pen"])
def test_every_step_equals_the_twin(name: str) -> None:
    env = Foraging(**fields_of(name))
    twin = ForagingTwin(env.size, env.players, env.foods, env.sight, env.episode_limit, env.penalty)
    generator = np.random.default_rng(0)
    for episode in range(6):
        world, shown = reset(env, episode)
        food = {tuple(place): int(level) for place, level in zip(world.food.tolist(), world.food_level, strict=True) if level}
        expected = twin.reset([tuple(place) for place in world.position.tolist()], world.level.tolist(), food)
        assert_same(shown, expected)
        while not expected["terminated"]:
            actions = actions_of(env, world, generator)
            world, shown = jax.device_get(step(env, world, np.array(actions)))
            expected = twin.step(actions)
            assert_same(shown, expected)


@pytest.mark.parametrize("name", NAMES)
def test_every_step_equals_the_package(name: str) -> None:
    package = pytest.importorskip("lbforaging.foraging", reason="the extra `lbf` is not installed")
    env, generator = Foraging(**fields_of(name)), np.random.default_rng(1)
    theirs = package.ForagingEnv(
        players=env.players, min_player_level=1, max_player_level=2, min_food_level=1, max_food_level=None,
        field_size=(env.size, env.size), max_num_food=env.foods, sight=env.size if env.sight is None else env.sight,
        max_episode_steps=50, force_coop=env.cooperative,
    )  # fmt: skip
    shared = won = 0
    for episode in range(25):
        world, shown = reset(env, 100 + episode)
        theirs.reset(seed=0)
        write_down(theirs, world)
        np.testing.assert_array_equal(shown.obs, np.stack(theirs.test_make_gym_obs()))
        over = False
        while not over:
            actions = actions_of(env, world, generator)
            world, shown = jax.device_get(step(env, world, np.array(actions)))
            obs, rewards, over, truncated, _ = theirs.step(actions)
            np.testing.assert_array_equal(shown.obs, np.stack(obs))
            np.testing.assert_allclose(shown.reward, sum(rewards), atol=1e-6)
            assert [tuple(place) for place in world.position.tolist()] == [tuple(map(int, player.position)) for player in theirs.players]
            assert (bool(shown.terminated), bool(shown.truncated)) == (over, truncated)
            shared += len({player.position for player in theirs.players}) < env.players
        won += bool(shown.won)
        assert bool(shown.won) == (theirs.field.sum() == 0)
    assert won
    assert shared or env.players < 4, "in a crowd two come to stand on one cell"


def write_down(theirs: Any, world: World) -> None:
    """Put the package's environment into a world."""
    theirs.field[:] = 0
    for (row, column), level in zip(world.food, world.food_level, strict=True):
        if level:
            theirs.field[row, column] = level
    for player, place, level in zip(theirs.players, world.position.tolist(), world.level, strict=True):
        player.setup(tuple(place), int(level), theirs.field_size)
    theirs._food_spawned = theirs.field.sum()
    theirs._gen_valid_moves()


@pytest.mark.parametrize(("name", "n"), [("8x8-2p-2f-coop", 800), ("10x10-3p-3f", 800), ("5x5-4p-4f", 200)])  # the last is full, and slow
def test_episodes_begin_like_those_of_the_package(name: str, n: int) -> None:
    package = pytest.importorskip("lbforaging.foraging", reason="the extra `lbf` is not installed")
    env = Foraging(**fields_of(name))
    worlds, _ = jax.device_get(jax.jit(jax.vmap(env.reset))(jax.random.split(KEY, n)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = package.ForagingEnv(
            players=env.players, min_player_level=1, max_player_level=2, min_food_level=1, max_food_level=None,
            field_size=(env.size, env.size), max_num_food=env.foods, sight=env.size, max_episode_steps=50, force_coop=env.cooperative,
        )  # fmt: skip
    mine, others = [], []
    for seed in range(n):
        for player in theirs.players:
            player.position = None  # as in a new one
        theirs.reset(seed=seed)
        places, levels = np.argwhere(theirs.field), theirs.field[theirs.field > 0]
        players = np.array([player.position for player in theirs.players])
        others.append(numbers(places, levels, players, np.array([player.level for player in theirs.players])))
        there = worlds.food_level[seed] > 0
        mine.append(numbers(worlds.food[seed][there], worlds.food_level[seed][there], worlds.position[seed], worlds.level[seed]))
    mine, others = np.array(mine, float), np.array(others, float)
    error = np.sqrt((mine.var(axis=0) + others.var(axis=0)) / n)
    assert (np.abs(mine.mean(axis=0) - others.mean(axis=0)) <= 4.5 * error + 1e-9).all()


def numbers(places: np.ndarray, levels: np.ndarray, players: np.ndarray, strengths: np.ndarray) -> list[float]:
    """What tells one way to begin from another."""
    middle = players.mean(axis=0)
    spread = [
        np.abs(places[0] - places[-1]).sum(),
        np.abs(places - middle).sum(),
        (places == 1).sum(),
        np.abs(players[0] - players[1]).sum(),
    ]
    return [len(places), levels.sum(), (levels**2).sum(), *middle, *strengths, *spread, (levels == strengths.sum()).sum()]


def at(places: list[tuple[int, int]], levels: list[int], food: list[tuple[int, int]], food_levels: list[int]) -> World:
    return World(
        jnp.array(places, jnp.int32), jnp.array(levels, jnp.int32), jnp.array(food, jnp.int32), jnp.array(food_levels, jnp.int32),
        jnp.int32(sum(food_levels)), jnp.int32(0),
    )  # fmt: skip


def play(env: Foraging, world: World, *actions: int) -> tuple[World, Any]:
    return jax.device_get(step(env, world, np.array(actions)))


def test_food_takes_the_levels_of_all_who_load_it() -> None:
    env = Foraging(penalty=0.25)
    world = at([(2, 1), (2, 3)], [1, 2], [(2, 2), (5, 5)], [3, 1])
    after, shown = play(env, world, LOAD, NONE)
    assert (float(shown.reward), after.food_level.tolist()) == (-0.25, [3, 1])
    after, shown = play(env, world, LOAD, LOAD)
    assert (float(shown.reward), after.food_level.tolist()) == (0.75, [0, 1])
    assert shown.obs[0].tolist() == [5, 5, 1, -1, -1, 0, 2, 1, 1, 2, 3, 2]
    assert not shown.terminated
    _, shown = play(env, at([(2, 1), (5, 4)], [1, 2], [(2, 2), (5, 5)], [1, 1]), LOAD, LOAD)
    assert (float(shown.reward), bool(shown.terminated), bool(shown.won)) == (1.0, True, True)


def test_who_wants_the_same_cell_stays_and_the_one_behind_moves_up() -> None:
    env = Foraging(players=3)
    world = at([(3, 3), (3, 5), (3, 2)], [1, 1, 1], [(1, 1), (6, 6)], [1, 1])
    after, _ = play(env, world, EAST, WEST, EAST)
    assert after.position.tolist() == [[3, 3], [3, 5], [3, 3]], "the first was kept, and yet its cell counts as free"
    after, _ = play(env, at([(3, 3), (3, 4), (0, 0)], [1, 1, 1], [(1, 1), (6, 6)], [1, 1]), EAST, WEST, NORTH)
    assert after.position.tolist() == [[3, 4], [3, 3], [0, 0]], "two may change places; the border blocks"
    after, _ = play(env, at([(1, 2), (3, 4), (0, 0)], [1, 1, 1], [(1, 1), (6, 6)], [1, 1]), WEST, NONE, NONE)
    assert after.position.tolist() == [[1, 2], [3, 4], [0, 0]], "food blocks"


def test_names_are_the_packages() -> None:
    assert fields_of("2s-8x8-2p-3f-coop") == {
        "size": 8, "players": 2, "foods": 3, "cooperative": True, "sight": 2, "max_food_level": None,
    }  # fmt: skip
    assert make_env("lbf/15x15-4p-5f") == Foraging(size=15, players=4, foods=5)
    assert "lbf/8x8-2p-2f-coop" in TASKS
    assert task("lbf/5x5-2p-1f").steps == TASKS["lbf/10x10-3p-3f"].steps
    assert make_env("lbf/Foraging-2s-9x9-3p-2f-coop-v3") == make_env("lbf/2s-9x9-3p-2f-coop")
    for wrong in ("lbf/8x9-2p-2f", "lbf/8x8", "lbf/Foraging-8x8-2p-2f-v2"):
        with pytest.raises(UserError, match="is no name of a foraging field"):
            task(wrong)
    with pytest.raises(UserError, match="size=4 is not a whole number of at least 5"):
        make_env("lbf/4x4-2p-1f")


@pytest.mark.parametrize("name", NAMES)
def test_the_map_shows_where_agents_are_and_they_begin_apart(name: str) -> None:
    env = Foraging(**fields_of(name))
    for seed in range(5):
        world, shown = reset(env, seed)
        occupancy = np.asarray(env.occupancy(jnp.asarray(shown.state)))
        assert occupancy.max() == 1
        assert {tuple(place) for place in np.argwhere(occupancy).tolist()} == {tuple(place) for place in world.position.tolist()}
        food = world.food[world.food_level > 0]
        assert ((food > 0) & (food < env.size - 1)).all()
        assert len(food) >= 1


def test_a_drawing_shows_levels_and_only_food_that_is_left() -> None:
    figure = pytest.importorskip("matplotlib.figure")
    axes = figure.Figure().subplots()
    Foraging().draw(axes, jax.device_get(at([(2, 1), (2, 1)], [1, 2], [(2, 2), (5, 5)], [0, 3])))
    assert [text.get_text() for text in axes.texts][:3] == ["3", "1", "2"]


def test_one_compilation_serves_all_penalties() -> None:
    traces = 0

    @jax.jit
    def reward(env: Foraging, world: World) -> jax.Array:
        nonlocal traces
        traces += 1
        return env.step(world, jnp.array([LOAD, NONE]), KEY)[1].reward

    world = at([(2, 1), (0, 0)], [1, 1], [(2, 2), (5, 5)], [2, 1])
    for penalty in (0.0, 0.5, 1.0):
        assert reward(eqx.tree_at(lambda env: env.penalty, Foraging(), jnp.float32(penalty)), world) == -penalty
    assert traces == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"size": 101}, "size=101 is more than 100"),
        ({"players": 1}, "players=1 is not a whole number of at least 2"),
        ({"size": 5, "players": 26}, "players=26 exceeds the 25 cells"),
        ({"penalty": -1.0}, "penalty=-1.0 is not a finite number of at least 0"),
    ],
)
def test_a_wrong_field_is_refused_in_one_line(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        partial(Foraging, **fields)()
    assert str(error.value).startswith(message)
