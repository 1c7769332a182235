"""The stag hunt against its rules, a plain-Python twin, and measured statistics."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from emc.envs.predator_prey import CATCH, DOWN, GONE, LEFT, RIGHT, STAY, UP, Chance, PredatorPrey, World
from emc.types import Timestep
from tests.envs.twins import PredatorPreyTwin

Cell = tuple[int, int]
ENV = PredatorPrey()


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Types as a user without run-time type checks may give them."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@jax.jit
def reset(env: PredatorPrey, key: jax.Array) -> tuple[World, Timestep]:
    return env.reset(key)


@jax.jit
def step(env: PredatorPrey, world: World, action: jax.Array, key: jax.Array) -> tuple[World, Timestep, Chance]:
    """A step, and what it drew."""
    return *env.step(world, action, key), env.chance(key)


def at(predators: list[Cell], prey: list[Cell], time: int = 0) -> World:
    """The default game with only these left in it."""

    def cells(places: list[Cell]) -> jax.Array:
        return jnp.array([(row + 2) * 14 + column + 2 for row, column in places] + [GONE] * (8 - len(places)), jnp.int32)

    return World(predators=cells(predators), prey=cells(prey), time=jnp.int32(time))


def places(env: PredatorPrey, cells: Any) -> list[Cell | None]:
    """Row and column of each cell, None for who has left."""
    radius, stride = env.vision_radius, env.grid_size + 2 * env.vision_radius
    return [None if cell == GONE else (int(cell) // stride - radius, int(cell) % stride - radius) for cell in np.asarray(cells)]


def play(world: World, actions: list[int], when: Callable[[Chance], bool] = lambda chance: True) -> tuple[list[Any], list[Any], Timestep]:
    """Where everyone is after one step of the default game, with the first key whose draws satisfy `when`."""
    seed = next(seed for seed in range(len(chances().choice)) if when(jax.tree.map(lambda draw: draw[seed], chances())))  # noqa: B023
    world, shown, _ = jax.device_get(step(ENV, world, np.array(actions + [STAY] * (8 - len(actions))), KEYS[seed]))
    return places(ENV, world.predators), places(ENV, world.prey), shown


KEYS = jax.random.split(jax.random.key(0), 20_000)


@cache
def chances() -> Chance:
    """What each of the keys draws."""
    return jax.device_get(jax.jit(jax.vmap(ENV.chance))(KEYS))


@pytest.mark.parametrize(
    "fields",
    [
        {"episode_limit": 60},
        {"grid_size": 4, "n_agents": 4, "n_prey": 6, "vision_radius": 1, "episode_limit": 25, "punishment": -0.5},
        {"grid_size": 6, "n_agents": 6, "n_prey": 2, "vision_radius": 3, "episode_limit": 40, "capture_reward": 1.0},
    ],
    ids=["default", "crowded", "few-prey"],
)
def test_every_step_equals_the_twin(fields: dict[str, Any]) -> None:
    env, twin, generator = PredatorPrey(**fields), PredatorPreyTwin(**fields), np.random.default_rng(0)
    met = {"captured": False, "lone": False, "limit": False, "over": env.grid_size == 10}  # no such luck on the large grid
    for episode in range(16):
        keys = jax.random.split(jax.random.key(episode), env.episode_limit + 1)
        world, shown = jax.device_get(reset(env, keys[0]))
        expected = twin.reset(places(env, world.predators), places(env, world.prey))
        assert_same(shown, expected)
        for key in keys[1:]:
            actions = [eager_action(available, generator) for available in expected["available"]]
            world, shown, draws = jax.device_get(step(env, world, np.array(actions), key))
            expected = twin.step(actions, draws.predator_turn, draws.prey_turn, draws.choice)
            assert_same(shown, expected)
            assert places(env, world.predators) == twin.predators
            assert places(env, world.prey) == twin.prey
            met["captured"] |= expected["reward"] > 0
            met["lone"] |= expected["reward"] < 0
            met["limit"] |= expected["truncated"]
            met["over"] |= expected["terminated"]
            if expected["terminated"]:
                break
    assert all(met.values()), f"the episodes must visit every rule: {met}"


def eager_action(available: np.ndarray, generator: np.random.Generator) -> int:
    """A random action, sometimes unavailable, often a catch where there is something to catch."""
    if available[CATCH] and generator.random() < 0.3:
        return CATCH
    return int(generator.integers(6)) if generator.random() < 0.2 else int(generator.choice(np.flatnonzero(available)))


def assert_same(shown: Timestep, expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        assert np.array_equal(np.asarray(getattr(shown, name)), np.asarray(value)), name


def test_random_play_has_the_measured_statistics() -> None:
    n = 600
    # Random play does not look at rewards: these tell captures and lone catches apart.
    reward, played = jax.device_get(random_episodes(PredatorPrey(capture_reward=1000.0, punishment=-1.0), n, jax.random.key(0)))
    captures = np.ceil(reward / 1000).sum(axis=1)
    lone = 1000 * captures - reward.sum(axis=1)
    total = 10 * captures - 2 * lone
    for mine, known, error in ((total, -96.8, 1.3), (captures, 0.48, math.sqrt(0.48 / 400)), (lone, 50.8, 1.3 / 2)):
        assert abs(mine.mean() - known) < 4 * math.hypot(mine.std() / math.sqrt(n), error), (mine.mean(), known)
    assert captures.max() <= 4
    assert played.sum(axis=1).mean() == pytest.approx(200, abs=0.5)


@partial(jax.jit, static_argnums=1)
def random_episodes(env: PredatorPrey, n: int, key: jax.Array) -> Any:
    """Rewards and steps of `n` episodes of uniformly random available actions."""

    def episode(key: jax.Array) -> Any:
        world, shown = env.reset(key)

        def move(now: Any, key: jax.Array) -> Any:
            world, available, over = now
            for_policy, for_step = jax.random.split(key)
            preference = jax.random.uniform(for_policy, available.shape)
            world, shown = env.step(world, jnp.argmax(jnp.where(available, preference, -1.0), axis=1), for_step)
            return (world, shown.available, over | shown.terminated), (jnp.where(over, 0.0, shown.reward), ~over)

        _, flags = jax.lax.scan(move, (world, shown.available, jnp.bool(False)), jax.random.split(key, env.episode_limit))
        return flags

    return jax.vmap(episode)(jax.random.split(key, n))


def test_a_reset_places_everyone_uniformly_on_cells_of_their_own() -> None:
    n = 4_000
    world, shown = jax.device_get(jax.jit(jax.vmap(ENV.reset))(KEYS[:n]))
    crowd = np.sort(np.concatenate([world.predators, world.prey], axis=1), axis=1)
    assert (np.diff(crowd, axis=1) > 0).all()
    grids = shown.state.reshape(n, 10, 10, 3)
    assert (grids.sum(axis=(1, 2)) == [8, 8, 0]).all()
    for channel in (0, 1):
        share = grids[..., channel].mean(axis=0)
        squares = ((share - 0.08) ** 2 / (0.08 * 0.92 / n)).sum()  # nearly chi-squared with 99 degrees of freedom
        assert abs(squares - 99) < 4 * math.sqrt(2 * 99)
    near = shown.available[:, :, CATCH].mean(axis=1)
    assert near.mean() == pytest.approx(0.26, abs=0.005 + 4 * near.std() / math.sqrt(n))  # measured, to two digits


@pytest.mark.parametrize("first", [0, 1])
def test_the_first_of_two_predators_that_want_a_cell_gets_it(first: int) -> None:
    predators, _, _ = play(at([(5, 4), (5, 6)], [(0, 0)]), [RIGHT, LEFT], lambda draws: turns(draws.predator_turn, first, 1 - first))
    assert predators[first] == (5, 5)
    assert predators[1 - first] == [(5, 4), (5, 6)][1 - first]


def test_a_predator_can_enter_a_cell_only_after_its_owner_left() -> None:
    world = at([(5, 5), (5, 4)], [(0, 0)])
    predators, _, _ = play(world, [RIGHT, RIGHT], lambda draws: turns(draws.predator_turn, 0, 1))
    assert predators[:2] == [(5, 6), (5, 5)]
    predators, _, _ = play(world, [RIGHT, RIGHT], lambda draws: turns(draws.predator_turn, 1, 0))
    assert predators[:2] == [(5, 6), (5, 4)]


def test_predators_that_face_each_other_cannot_swap() -> None:
    for order in ((0, 1), (1, 0)):
        predators, _, _ = play(at([(5, 5), (5, 6)], [(0, 0)]), [RIGHT, LEFT], lambda draws, order=order: turns(draws.predator_turn, *order))
        assert predators[:2] == [(5, 5), (5, 6)]


def test_a_predator_moves_in_the_four_directions_and_never_onto_prey_or_over_the_border() -> None:
    for action, cell in ((RIGHT, (5, 6)), (DOWN, (6, 5)), (LEFT, (5, 4)), (UP, (4, 5)), (STAY, (5, 5)), (CATCH, (5, 5))):
        assert play(at([(5, 5)], [(0, 0)]), [action])[0][0] == cell
        if action < STAY:
            assert play(at([(5, 5)], [cell]), [action])[0][0] == (5, 5)
    for action, cell in ((RIGHT, (3, 9)), (DOWN, (9, 3)), (LEFT, (3, 0)), (UP, (0, 3))):
        assert play(at([cell], [(6, 6)]), [action])[0][0] == cell


@pytest.mark.parametrize("catchers", [[(4, 5), (5, 6)], [(4, 5), (5, 6), (5, 4)], [(4, 5), (5, 6), (5, 4), (6, 5)]])
def test_a_capture_pays_once_and_everyone_who_took_part_leaves(catchers: list[Cell]) -> None:
    watcher = (7, 6)
    predators, prey, shown = play(at([*catchers, watcher], [(5, 5), (0, 0)]), [CATCH] * len(catchers) + [STAY])
    assert shown.reward == 10.0
    assert not shown.terminated
    assert predators == [None] * len(catchers) + [watcher] + [None] * (7 - len(catchers))
    assert prey[0] is None
    assert prey[1] in ((0, 1), (1, 0))
    only_stay = np.arange(6) == STAY
    for gone in range(len(catchers)):
        assert not shown.obs[gone].any()
        assert np.array_equal(shown.available[gone], only_stay)
    assert shown.obs[len(catchers)].sum() == 1, "who remains sees only itself"
    assert shown.state.sum() == 2, "one predator and one prey are left on the grid"


def test_those_who_have_left_no_longer_act_and_block_nobody() -> None:
    for action in (RIGHT, DOWN, LEFT, UP, CATCH):
        predators, _, shown = play(at([(5, 5)], [(0, 0)]), [STAY] + [action] * 7)
        assert predators == [(5, 5)] + [None] * 7
        assert shown.reward == 0.0


def test_a_predator_beside_a_captured_prey_that_did_not_catch_stays_in_the_game() -> None:
    predators, _, shown = play(at([(4, 5), (5, 6), (6, 5)], [(5, 5), (0, 0)]), [CATCH, CATCH, STAY])
    assert shown.reward == 10.0
    assert predators[:3] == [None, None, (6, 5)]


def test_a_lone_catch_is_punished_and_the_prey_moves_on() -> None:
    predators, prey, shown = play(at([(4, 5), (6, 5)], [(5, 5)]), [CATCH, STAY])
    assert shown.reward == -2.0
    assert predators[:2] == [(4, 5), (6, 5)]
    assert prey[0] in ((5, 4), (5, 6))


def test_a_catch_from_a_diagonal_cell_is_no_catch() -> None:
    _, _, shown = play(at([(4, 4), (6, 6), (5, 7)], [(5, 5)]), [CATCH, CATCH, CATCH])
    assert shown.reward == 0.0


def test_a_lone_catcher_beside_two_prey_is_punished_twice() -> None:
    _, _, shown = play(at([(5, 5)], [(5, 4), (5, 6)]), [CATCH])
    assert shown.reward == -4.0


def test_a_catcher_that_left_with_an_earlier_prey_counts_no_longer() -> None:
    world = at([(5, 4), (5, 6)], [(5, 5), (5, 7)])  # the second catcher touches both prey
    predators, _, shown = play(world, [CATCH, CATCH], lambda draws: turns(draws.prey_turn, 0, 1))
    assert shown.reward == 10.0
    assert predators[:2] == [None, None]
    predators, _, shown = play(world, [CATCH, CATCH], lambda draws: turns(draws.prey_turn, 1, 0))
    assert shown.reward == 8.0
    assert predators[:2] == [None, None]


def test_two_catchers_between_two_prey_capture_only_the_first() -> None:
    world = at([(4, 5), (5, 4)], [(4, 4), (5, 5)])
    for first in (0, 1):
        _, prey, shown = play(world, [CATCH, CATCH], lambda draws, first=first: turns(draws.prey_turn, first, 1 - first))
        assert shown.reward == 10.0
        assert prey[first] is None
        assert prey[1 - first] is not None


def test_prey_move_one_after_the_other() -> None:
    world = at([(1, 0)], [(0, 0), (0, 1)])  # the first prey is boxed in until the second one moves
    _, prey, _ = play(world, [STAY], lambda draws: turns(draws.prey_turn, 0, 1))
    assert prey[0] == (0, 0)
    _, prey, _ = play(world, [STAY], lambda draws: turns(draws.prey_turn, 1, 0))
    assert prey[0] == (0, 1)
    assert prey[1] in ((0, 2), (1, 1))


def test_predators_move_before_a_prey_is_tested() -> None:
    _, _, shown = play(at([(5, 4), (3, 5)], [(5, 5)]), [CATCH, DOWN])
    assert shown.reward == -2.0, "who moves beside a prey does not catch it in the same step"
    world = at([(5, 4), (4, 5), (4, 6)], [(5, 5), (0, 0)])
    predators, _, shown = play(world, [CATCH, CATCH, DOWN])
    assert shown.reward == 10.0
    assert predators[2] == (5, 6)


@pytest.mark.parametrize(
    ("predators", "free"),
    [([(9, 9)], [(5, 6), (6, 5), (5, 4), (4, 5)]), ([(4, 5)], [(5, 6), (6, 5), (5, 4)]), ([(4, 5), (5, 4)], [(5, 6), (6, 5)])],
)
def test_a_prey_moves_to_each_free_cell_beside_it_equally_often(predators: list[Cell], free: list[Cell]) -> None:
    prey = places(ENV, first_prey(at(predators, [(5, 5)]), KEYS))
    assert set(prey) == set(free)
    share = 1 / len(free)
    for cell in free:
        assert abs(prey.count(cell) / len(prey) - share) < 4 * math.sqrt(share * (1 - share) / len(prey))


@jax.jit
@partial(jax.vmap, in_axes=(None, 0))
def first_prey(world: World, key: jax.Array) -> jax.Array:
    """Where the first prey is after a step in which the predators stay."""
    return ENV.step(world, jnp.full(8, STAY), key)[0].prey[0]


def test_a_prey_with_no_free_cell_beside_it_rests() -> None:
    assert play(at([(0, 1), (1, 0)], [(0, 0)]), [STAY, STAY])[1][0] == (0, 0)
    assert play(at([(4, 5), (5, 4), (6, 5), (5, 6)], [(5, 5)]), [STAY] * 4)[1][0] == (5, 5)


def test_the_orders_are_fresh_uniform_permutations() -> None:
    n = len(KEYS)
    for turn in (chances().predator_turn, chances().prey_turn):
        assert (np.sort(turn, axis=1) == np.arange(8)).all()
        for who in range(8):
            counts = np.bincount(turn[:, who], minlength=8)
            assert ((counts - n / 8) ** 2 / (n / 8)).sum() < 29.9  # chi-squared with 7 degrees of freedom, p = 1e-4
    together = (chances().predator_turn[:, 0] < chances().predator_turn[:, 1]) == (chances().prey_turn[:, 0] < chances().prey_turn[:, 1])
    assert abs(together.mean() - 0.5) < 4 * 0.5 / math.sqrt(n)
    first = chances().choice[chances().prey_turn == 0]
    assert abs(first.mean() - 0.5) < 4 / math.sqrt(12 * n), "where a prey goes does not depend on when it moves"


def test_the_last_capture_terminates() -> None:
    _, _, shown = play(at([(4, 5), (5, 6), (0, 0)], [(5, 5)]), [CATCH, CATCH, STAY])
    assert (shown.terminated, shown.truncated, shown.won) == (True, False, False)
    _, _, shown = play(at([(4, 5), (5, 6)], [(5, 5), (0, 0)]), [CATCH, CATCH])
    assert (shown.terminated, shown.truncated) == (True, False), "no predator is left"


def test_the_time_limit_truncates_unless_the_game_is_over() -> None:
    _, _, shown = play(at([(5, 5)], [(0, 0)], time=198), [STAY])
    assert (shown.terminated, shown.truncated) == (False, False)
    _, _, shown = play(at([(5, 5)], [(0, 0)], time=199), [STAY])
    assert (shown.terminated, shown.truncated) == (False, True)
    _, _, shown = play(at([(4, 5), (5, 6)], [(5, 5)], time=199), [CATCH, CATCH])
    assert (shown.terminated, shown.truncated) == (True, False)


def test_an_agent_in_the_corner_sees_zeros_beyond_the_border() -> None:
    # The prey is boxed in, so it is seen where it was placed.
    _, _, shown = play(at([(0, 1), (1, 0), (9, 9), (0, 9)], [(0, 0)]), [STAY] * 4)
    window = shown.obs[0].reshape(5, 5, 3)
    assert [tuple(place) for place in np.argwhere(window)] == [(2, 1, 1), (2, 2, 0), (3, 1, 0)]
    assert shown.obs[2].sum() == shown.obs[3].sum() == 1
    assert shown.available[0].tolist() == [True, True, True, False, True, True]
    assert shown.available[2].tolist() == [False, False, True, True, True, False]


def test_the_sizes_are_those_of_the_released_configuration() -> None:
    spec = ENV.spec
    assert (spec.n_agents, spec.n_actions, spec.obs_size, spec.state_size, spec.episode_limit) == (8, 6, 75, 300, 200)
    assert (spec.obs_dtype, spec.state_dtype, spec.winnable, spec.map_shape) == ("bool", "bool", False, (10, 10))


def test_what_is_shown_has_the_shapes_and_types_of_the_spec() -> None:
    world, first = reset(ENV, jax.random.key(0))
    _, later, _ = step(ENV, world, jnp.full(8, STAY), jax.random.key(1))
    for shown in (first, later):
        assert (shown.obs.shape, shown.obs.dtype) == ((8, 75), bool)
        assert (shown.state.shape, shown.state.dtype) == ((300,), bool)
        assert (shown.available.shape, shown.available.dtype) == ((8, 6), bool)
        assert shown.reward.dtype == jnp.float32
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), first) == jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), later)


@pytest.mark.usefixtures("unchecked")
def test_one_compilation_serves_a_sweep_over_the_numbers() -> None:
    traces = 0
    world = at([(5, 5)], [(5, 4)])

    @jax.jit
    def reward(env: PredatorPrey) -> jax.Array:
        nonlocal traces
        traces += 1
        return env.step(world, jnp.full(8, CATCH), jax.random.key(0))[1].reward

    for punishment in (0, -0.5, -2, np.float64(-4.0)):
        assert reward(PredatorPrey(punishment=punishment, capture_reward=1 - punishment)) == punishment
    assert traces == 1


def test_occupancy_counts_the_predators_that_still_hunt() -> None:
    _, _, shown = play(at([(5, 5), (2, 3)], [(0, 0)]), [STAY, STAY])
    expected = np.zeros((10, 10))
    expected[5, 5] = expected[2, 3] = 1
    assert np.array_equal(ENV.occupancy(jnp.asarray(shown.state)), expected)


def test_a_drawing_shows_who_is_left() -> None:
    figure = pytest.importorskip("matplotlib.figure")
    patches = pytest.importorskip("matplotlib.patches")
    axes = figure.Figure().subplots()
    ENV.draw(axes, jax.tree.map(np.asarray, at([(5, 4), (2, 3)], [(0, 9)])))
    assert [patch.center for patch in axes.patches if isinstance(patch, patches.Circle)] == [(4, 5), (3, 2)]
    assert [patch.xy for patch in axes.patches if isinstance(patch, patches.RegularPolygon)] == [(9, 0)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"grid_size": 1}, "grid_size=1 is not a whole number of at least 2"),
        ({"grid_size": 3}, "n_agents + n_prey = 16 exceeds the 9 cells of the grid"),
        ({"n_agents": 1}, "n_agents=1 is not a whole number of at least 2: a capture takes two predators."),
        ({"n_prey": 0}, "n_prey=0 is not"),
        ({"vision_radius": 0}, "vision_radius=0 is not"),
        ({"episode_limit": 0.5}, "episode_limit=0.5 is not"),
        ({"punishment": 2.0}, "punishment=2.0 is not a finite number of at most 0: it is added to the reward"),
        ({"punishment": math.nan}, "punishment=nan is not"),
        ({"capture_reward": -math.inf}, "capture_reward=-inf is not a finite number: "),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_a_wrong_field_is_refused_in_one_line(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        PredatorPrey(**fields)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def turns(turn: np.ndarray, first: int, second: int) -> bool:
    """Whether one acts before the other."""
    return bool(turn[first] < turn[second])
