"""The coordinated gridworld against its rules, a plain-Python twin, episodes of the released environment, and measured statistics."""

from __future__ import annotations

import itertools
import math
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from emc.envs.base import HasAreas
from emc.envs.gridworld import DOWN, LEFT, RIGHT, STAY, UP, Chance, Gridworld, World
from emc.types import Timestep
from tests.envs.twins import GridworldTwin
from tests.twins import WHOLE

GOLDEN = Path(__file__).parents[1] / "golden" / "gridworld_episodes.npz"
MANY = 20_000


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Types as a user without run-time type checks may give them."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@jax.jit
def reset(env: Gridworld, key: jax.Array) -> tuple[World, Timestep]:
    return env.reset(key)


@jax.jit
def step(env: Gridworld, world: World, action: jax.Array, key: jax.Array) -> tuple[World, Timestep, Chance]:
    """A step, and what it drew."""
    return *env.step(world, action, key), env.chance(key)


def at(first: tuple[int, int], second: tuple[int, int], time: int = 0) -> World:
    return World(position=jnp.array([first, second], jnp.int32), time=jnp.int32(time))


def play(env: Gridworld, world: World, first: int, second: int, seed: int = 0) -> tuple[World, Timestep]:
    return step(env, world, np.array([first, second]), jax.random.key(seed))[:2]


def many_steps(env: Gridworld, world: World, actions: list[int], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions and rewards after the same step with many keys."""
    position, reward = _many_steps(env, world, jnp.array(actions), jax.random.split(jax.random.key(seed), MANY))
    return np.asarray(position), np.asarray(reward)


@jax.jit
@partial(jax.vmap, in_axes=(None, None, None, 0))
def _many_steps(env: Gridworld, world: World, action: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    world, shown = env.step(world, action, key)
    return world.position, shown.reward


def deviation(probability: float, n: int = MANY) -> float:
    """Standard error of a share."""
    return math.sqrt(probability * (1 - probability) / n)


@partial(jax.jit, static_argnums=1, compiler_options=WHOLE)  # millions of steps
def random_episodes(env: Gridworld, n: int, key: jax.Array) -> Any:
    """Rewards and wins in `n` episodes of uniformly random available actions, each followed for as many steps as the limit allows."""

    def episode(key: jax.Array) -> Any:
        world, shown = env.reset(key)

        def move(now: Any, key: jax.Array) -> Any:
            world, available, over = now
            preference = jax.random.uniform(key, available.shape)
            world, shown = env.step(world, jnp.argmax(jnp.where(available, preference, -1.0), axis=1), key)
            flags = (jnp.where(over, 0.0, shown.reward), ~over & shown.won)
            return (world, shown.available, over | shown.terminated), flags

        keys = jax.random.split(key, env.episode_limit)
        _, flags = jax.lax.scan(move, (world, shown.available, jnp.bool(False)), keys)
        return flags

    return jax.vmap(episode)(jax.random.split(key, n))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"vision": "origin"},
        {"vision": "pomdp"},
        {"vision": "full_observation"},
        {"slip": 1.0, "rows": 5, "columns": 6},
        {"slip": 0.3, "noisy_reward": 0.5, "penalty": 0.5},
        {"observation_noise": 3, "noisy_reward": 0.1},
        {"rows": 8, "columns": 6, "win_reward": 1.0, "episode_limit": 10, "noisy_reward": 1.0},
        {"rows": 16, "columns": 20, "slip": 0.5, "noisy_reward": 1.0, "vision": "pomdp", "episode_limit": 60},
    ],
    ids=lambda fields: "-".join(f"{name}={value}" for name, value in fields.items()) or "default",
)
def test_every_step_equals_the_twin(fields: dict[str, Any]) -> None:
    env, twin, generator = Gridworld(**fields), GridworldTwin(**fields), np.random.default_rng(0)
    met = {"alone": False, "won": False, "seen": False, "limit": False}
    for episode in range(12):
        keys = jax.random.split(jax.random.key(episode), env.episode_limit + 1)
        world, shown = reset(env, keys[0])
        assert_same(shown, twin.reset(np.asarray(shown.obs)[:, 2 * (env.rows + env.columns) :]))
        for key in keys[1:]:
            actions = [drawn_towards_the_goal(twin, agent, generator) for agent in (0, 1)]
            world, shown, draws = jax.device_get(step(env, world, np.array(actions), key))
            expected = twin.step(actions, draws.slip, draws.choice, float(draws.reward), draws.obs)
            assert_same(shown, expected)
            met["alone"] |= expected["reward"] == -env.penalty
            met["won"] |= expected["won"]
            met["seen"] |= bool(expected["obs"][0, env.rows + env.columns : 2 * (env.rows + env.columns)].any())
            met["limit"] |= expected["terminated"] and not expected["won"]
            if expected["terminated"]:
                break
    assert all(met.values()), f"the episodes must visit every rule: {met}"


def assert_same(shown: Any, expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        mine = np.asarray(getattr(shown, name), float)
        assert mine.shape == np.shape(value), name
        assert np.abs(mine - value).max() < 1e-5, name


def drawn_towards_the_goal(twin: GridworldTwin, agent: int, generator: np.random.Generator) -> int:
    """A random action, sometimes unavailable, that leads to the goal more often than not and then sometimes stays."""
    row, column = twin.agents[agent]
    down, right = twin.rows // 2 - row, twin.columns // 2 - 1 + agent - column
    if generator.random() < 0.5:
        return int(generator.integers(5))
    if down:
        return DOWN if down > 0 else UP
    if right:
        return RIGHT if right > 0 else LEFT
    return STAY


def test_the_episodes_of_the_released_environment_replay_exactly() -> None:
    golden = np.load(GOLDEN)
    env = Gridworld(penalty=float(golden["penalty"]))
    golden = {name: golden[name] for name in ("obs", "state", "available", "action", "reward", "terminated", "won", "length")}
    assert golden["won"].any()
    assert (golden["length"] == 30).any()
    for episode, length in enumerate(golden["length"]):
        world, shown = reset(env, jax.random.key(episode))
        for time in range(length + 1):
            for name in ("obs", "state", "available"):
                assert np.array_equal(getattr(shown, name), golden[name][episode, time]), f"{name} of episode {episode} at {time}"
            if time < length:
                world, shown, _ = jax.device_get(step(env, world, golden["action"][episode, time], jax.random.key(time)))
                for name in ("reward", "terminated", "won"):
                    assert getattr(shown, name) == golden[name][episode, time], f"{name} of episode {episode} at {time}"


def test_random_play_has_the_measured_statistics() -> None:
    n, chunk = 200_000, 10_000
    batches = [random_episodes(Gridworld(), chunk, key) for key in jax.random.split(jax.random.key(0), n // chunk)]
    reward, won = (np.concatenate([np.asarray(batch[entry]) for batch in batches]) for entry in (0, 1))
    penalised = (reward == -2.0).sum(axis=1)
    win, penalty, steps = random_play_solved()
    assert (win, penalty, steps) == pytest.approx((4.0e-4, 0.084, 0.158), rel=0.03)  # measured with the released environment
    assert abs(won.any(axis=1).mean() - win) < 4 * deviation(win, n)
    assert abs((penalised > 0).mean() - penalty) < 4 * deviation(penalty, n)
    assert abs(penalised.mean() - steps) < 4 * penalised.std() / math.sqrt(n)


def random_play_solved() -> tuple[float, float, float]:
    """Chance to win, chance of any penalty and mean penalised steps of random play on 11 x 12, from the joint distribution of positions."""
    cells = [(row, column) for row in range(11) for column in range(6)]  # agent 0's side; agent 1's is its image in a half turn
    moves = np.zeros((66, 66))
    for start, (row, column) in enumerate(cells):
        reached = [(row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1), (row, column)]
        reached = [cells.index(cell) for cell in reached if cell in cells]
        moves[start, reached] = 1 / len(reached)
    goal = cells.index((5, 5))
    alone = np.zeros((66, 66), bool)
    alone[goal] = alone[:, goal] = True
    alone[goal, goal] = False
    joint, clean = np.zeros((66, 66)), np.zeros((66, 66))
    joint[0, 0] = clean[0, 0] = 1.0
    win = penalty = steps = 0.0
    for _ in range(30):
        joint, clean = moves.T @ joint @ moves, moves.T @ clean @ moves
        win += joint[goal, goal]
        joint[goal, goal] = clean[goal, goal] = 0.0
        steps += joint[alone].sum()
        penalty += clean[alone].sum()
        clean[alone] = 0.0
    return win, penalty, steps


def test_the_shortest_path_takes_ten_steps_and_earns_ten() -> None:
    env = Gridworld()
    world, shown = reset(env, jax.random.key(0))
    total = 0.0
    for time in range(10):
        assert not shown.terminated
        world, shown = play(env, world, DOWN if time < 5 else RIGHT, UP if time < 5 else LEFT)
        total += float(shown.reward)
    assert total == 10.0
    assert shown.terminated
    assert shown.won


def test_waiting_alone_on_the_goal_is_punished_at_every_step() -> None:
    env = Gridworld(penalty=1.5)
    world = at((5, 4), (10, 11))
    rewards = []
    for action in (RIGHT, STAY, STAY, LEFT):
        world, shown = play(env, world, action, STAY)
        rewards.append(float(shown.reward))
        assert not shown.terminated
    assert rewards == [-1.5, -1.5, -1.5, 0.0]


def test_the_time_limit_terminates_and_a_win_on_the_last_step_counts() -> None:
    env = Gridworld()
    _, shown = play(env, at((0, 0), (10, 11), time=28), STAY, STAY)
    assert not shown.terminated
    _, shown = play(env, at((0, 0), (10, 11), time=29), STAY, STAY)
    assert shown.terminated
    assert not shown.truncated
    assert not shown.won
    _, shown = play(env, at((5, 4), (5, 7), time=29), RIGHT, LEFT)
    assert shown.terminated
    assert shown.won
    assert shown.reward == 10.0


def test_an_agent_that_walks_into_the_wall_or_the_border_stays() -> None:
    env = Gridworld()
    for start, action in (((0, 0), UP), ((0, 0), LEFT), ((10, 5), DOWN), ((10, 5), RIGHT)):
        world, _ = play(env, at(start, (0, 6)), action, LEFT)
        np.testing.assert_array_equal(world.position, [start, (0, 6)])


def test_the_default_map_has_the_published_areas() -> None:
    env = Gridworld()
    np.testing.assert_array_equal(env.goals, [(5, 5), (5, 6)])
    np.testing.assert_array_equal(env.vision_area, [(3, 3), (7, 8)])
    np.testing.assert_array_equal(env.noisy_area, [(0, 3), (1, 8)])


def test_on_other_sizes_the_areas_stay_around_the_goals_and_at_the_top() -> None:
    for rows, columns in itertools.product(range(5, 24), range(6, 26, 2)):
        env = Gridworld(rows=rows, columns=columns)
        (top, left), (bottom, right) = env.vision_area
        assert 0 <= top < bottom < rows
        assert 0 <= left < right < columns
        assert (bottom - top + 1, right - left + 1) == (5, 6)
        assert (env.goals.min(axis=0) - 2).tolist() == [top, left]
        (noise_top, noise_left), (noise_bottom, noise_right) = env.noisy_area
        assert (noise_left, noise_right) == (left, right)
        assert noise_top == 0
        assert noise_bottom == top - 2  # one quiet row between


def test_areas_are_masks_of_the_map() -> None:
    for env in (Gridworld(), Gridworld(rows=8, columns=6), Gridworld(rows=5, columns=6)):
        areas = env.areas()
        assert isinstance(env, HasAreas)
        assert ("noisy area" in areas) == (env.rows >= 8)
        for row, column in itertools.product(range(env.rows), range(env.columns)):
            away = min(max(abs(row - goal[0]), abs(column - goal[1])) for goal in env.goals)
            assert areas["around the goals"][row, column] == (away <= 1)
            (top, left), (bottom, right) = env.vision_area
            assert areas["vision area"][row, column] == (top <= row <= bottom and left <= column <= right)
    noisy = np.argwhere(Gridworld().areas()["noisy area"])
    assert noisy.tolist() == [[row, column] for row in (0, 1) for column in range(3, 9)]


def test_a_slip_from_the_interior_follows_its_law() -> None:
    start = at((5, 2), (5, 9))
    position, _ = many_steps(Gridworld(slip=1.0), start, [UP, STAY], seed=0)
    moves = [(-1, 0), (1, 0), (0, -1), (0, 1), (0, 0)]
    for agent, law in ((0, (0.4, 0.2, 0.2, 0.2, 0.0)), (1, (0.2, 0.2, 0.2, 0.2, 0.2))):
        for move, probability in zip(moves, law, strict=True):
            share = np.all(position[:, agent] - np.asarray(start.position[agent]) == move, axis=1).mean()
            assert abs(share - probability) <= 4 * deviation(probability), (agent, move)


def test_a_slip_in_the_corner_draws_from_the_two_moves_there() -> None:
    position, _ = many_steps(Gridworld(slip=1.0), at((0, 0), (10, 11)), [DOWN, STAY], seed=1)
    down, right = (np.all(position[:, 0] == cell, axis=1).mean() for cell in ((1, 0), (0, 1)))
    assert abs(down - 2 / 3) < 4 * deviation(2 / 3)
    assert down + right == pytest.approx(1.0)


def test_slips_happen_with_the_given_probability_to_each_agent_on_its_own() -> None:
    start = at((5, 2), (5, 9))
    position, _ = many_steps(Gridworld(slip=0.3), start, [STAY, STAY], seed=2)
    moved = np.any(position != start.position, axis=2)
    single = 0.3 * 0.8  # one draw in five keeps the intended action
    for share, probability in ((moved[:, 0].mean(), single), (moved[:, 1].mean(), single), (moved.all(axis=1).mean(), single**2)):
        assert abs(share - probability) < 4 * deviation(probability)


def test_noise_on_the_reward_is_gaussian_and_only_in_its_area() -> None:
    def rewards(first: tuple[int, int], second: tuple[int, int]) -> np.ndarray:
        return many_steps(Gridworld(noisy_reward=0.5), at(first, second), [STAY, STAY], seed=3)[1]

    inside = np.sort(rewards((1, 3), (10, 11)) / 0.5)
    normal = np.array([0.5 * (1 + math.erf(value / math.sqrt(2))) for value in inside])
    assert np.abs(normal - (np.arange(MANY) + 0.5) / MANY).max() < 1.95 / math.sqrt(MANY)  # Kolmogorov-Smirnov, p = 0.001
    for first, second in (((0, 0), (0, 8)), ((0, 4), (0, 8))):  # the other agent is enough; one draw, not one for each
        assert rewards(first, second).std() == pytest.approx(0.5, rel=4 / math.sqrt(2 * MANY))
    for first, second in (((2, 3), (10, 11)), ((1, 2), (10, 11)), ((3, 5), (1, 9))):
        assert not rewards(first, second).any()


def test_noise_on_the_observation_is_fresh_at_every_moment_and_repeated_in_the_state() -> None:
    env = Gridworld(observation_noise=4)
    assert (env.spec.obs_size, env.spec.state_size, env.spec.obs_dtype, env.spec.state_dtype) == (50, 100, "float32", "float32")
    world, first = reset(env, jax.random.key(0))
    world, second = play(env, world, STAY, STAY, seed=1)
    world, third = play(env, world, STAY, STAY, seed=2)
    draws = np.concatenate([np.asarray(shown.obs)[:, 46:].ravel() for shown in (first, second, third)])
    assert len(set(draws.tolist())) == 24
    np.testing.assert_array_equal(second.state, np.concatenate(list(second.obs)))
    np.testing.assert_array_equal(second.obs[:, :46], reset(Gridworld(), jax.random.key(0))[1].obs)


def test_the_sizes_are_those_of_the_released_configuration() -> None:
    spec = Gridworld().spec
    assert (spec.n_agents, spec.n_actions, spec.obs_size, spec.state_size, spec.episode_limit) == (2, 5, 46, 92, 30)
    assert (spec.obs_dtype, spec.state_dtype, spec.winnable, spec.map_shape) == ("bool", "bool", True, (11, 12))


@pytest.mark.parametrize("fields", [{}, {"observation_noise": 2}, {"rows": 8, "columns": 6}])
def test_what_is_shown_has_the_shapes_and_types_of_the_spec(fields: dict[str, Any]) -> None:
    env = Gridworld(**fields)
    spec = env.spec
    world, first = reset(env, jax.random.key(0))
    _, later = play(env, world, RIGHT, STAY)
    for shown in (first, later):
        assert (shown.obs.shape, shown.obs.dtype) == ((2, spec.obs_size), spec.obs_dtype)
        assert (shown.state.shape, shown.state.dtype) == ((spec.state_size,), spec.state_dtype)
        assert (shown.available.shape, shown.available.dtype) == ((2, 5), bool)
        assert shown.reward.dtype == jnp.float32
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), first) == jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), later)


@pytest.mark.usefixtures("unchecked")
def test_one_compilation_serves_a_sweep_over_the_numbers() -> None:
    traces = 0

    @jax.jit
    def reward(env: Gridworld) -> jax.Array:
        nonlocal traces
        traces += 1
        return env.step(at((5, 4), (10, 11)), jnp.array([RIGHT, STAY]), jax.random.key(0))[1].reward

    for penalty in (0, 0.5, 1, 1.5, np.float64(2.0)):
        assert reward(Gridworld(penalty=penalty)) == -penalty
    reward(Gridworld(slip=0.1, noisy_reward=1, win_reward=3))
    assert traces == 1
    reward(Gridworld(rows=13))
    assert traces == 2


def test_a_batch_of_environments_with_different_penalties_can_be_mapped() -> None:
    penalties = jnp.array([0.0, 0.5, 2.0])
    envs = eqx.tree_at(lambda env: env.penalty, Gridworld(), penalties)
    axes = eqx.tree_at(lambda env: env.penalty, jax.tree.map(lambda _: None, Gridworld()), 0, is_leaf=lambda leaf: leaf is None)

    @jax.jit
    @partial(jax.vmap, in_axes=(axes,))
    def reward(env: Gridworld) -> jax.Array:
        return env.step(at((5, 4), (10, 11)), jnp.array([RIGHT, STAY]), jax.random.key(0))[1].reward

    rewards = reward(envs)
    np.testing.assert_array_equal(rewards, -penalties)


@pytest.mark.parametrize("noise", [0, 2])
def test_occupancy_counts_each_agent_once_where_it_stands(noise: int) -> None:
    env = Gridworld(observation_noise=noise)
    _, shown = play(env, at((5, 4), (9, 9)), STAY, STAY)
    expected = np.zeros((11, 12))
    expected[5, 4] = expected[9, 9] = 1
    np.testing.assert_array_equal(env.occupancy(shown.state), expected)
    np.testing.assert_array_equal(env.occupancy(jnp.zeros_like(shown.state)), np.zeros((11, 12)))


def test_a_drawing_shows_both_agents_and_the_noisy_area_only_where_there_is_one() -> None:
    figure = pytest.importorskip("matplotlib.figure")
    world = jax.tree.map(np.asarray, at((2, 3), (8, 9)))
    quiet, noisy = figure.Figure().subplots(1, 2)
    Gridworld().draw(quiet, world)
    Gridworld(noisy_reward=0.1).draw(noisy, world)
    assert len(noisy.patches) == len(quiet.patches) + 1
    centres = [tuple(patch.center) for patch in quiet.patches if hasattr(patch, "center")]
    assert centres == [(3, 2), (9, 8)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"rows": 4}, "rows=4 is not a whole number of at least 5"),
        ({"rows": 11.0}, "rows=11.0 is not a whole number"),
        ({"columns": 4}, "columns=4 is not a whole number of at least 6"),
        ({"columns": 11}, "columns=11 is odd, but the wall stands in the middle: choose 12"),
        ({"episode_limit": 0}, "episode_limit=0 is not"),
        ({"observation_noise": -1}, "observation_noise=-1 is not"),
        ({"vision": "revesed"}, "unknown vision rule 'revesed'; known: full_observation, origin, pomdp, reversed. Did you mean reversed?"),
        ({"penalty": -1.0}, "penalty=-1.0 is not a finite number of at least 0"),
        ({"penalty": math.nan}, "penalty=nan is not a finite number"),
        ({"noisy_reward": -0.1}, "noisy_reward=-0.1 is not"),
        ({"noisy_reward": math.inf}, "noisy_reward=inf is not"),
        (
            {"noisy_reward": 0.1, "rows": 7},
            "noisy_reward=0.1 is not a finite number of at most 0: with rows=7 there is no noisy area, use 8",
        ),
        ({"slip": 1.01}, "slip=1.01 is not a finite number from 0 to 1: give a probability; write 0.2 for 20 %."),
        ({"slip": -0.01}, "slip=-0.01 is not"),
        ({"win_reward": math.nan}, "win_reward=nan is not"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_a_wrong_field_is_refused_in_one_line(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        Gridworld(**fields)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("unchecked")
def test_an_environment_can_be_made_from_traced_numbers() -> None:
    @jax.jit
    def reward(penalty: jax.Array) -> jax.Array:
        return Gridworld(penalty=penalty).step(at((5, 4), (10, 11)), jnp.array([RIGHT, STAY]), jax.random.key(0))[1].reward

    assert reward(jnp.float32(0.75)) == -0.75
