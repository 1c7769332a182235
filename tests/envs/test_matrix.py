"""The matrix games against their tables, path by path; the game of several steps also against a plain-Python twin."""

from __future__ import annotations

import itertools
import json
import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from emc.envs import Environment, NStepGame, OneStepGame, TwoStepGame
from emc.envs.base import Drawable, HasMap
from emc.envs.matrix import World
from emc.types import Timestep
from tests.envs.twins import NStepGameTwin

KEY = jax.random.key(0)
JOINT = list(itertools.product(range(2), range(2)))
GAMES = [OneStepGame(), TwoStepGame(), NStepGame(), NStepGame(steps=1), NStepGame(steps=3, good_branches=4)]


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Types as a user without run-time type checks may give them."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@jax.jit
def reset(env: Environment) -> tuple[World, Timestep]:
    return env.reset(KEY)


@jax.jit
def step(env: Environment, world: World, action: jax.Array) -> tuple[World, Timestep]:
    return env.step(world, action, KEY)


def play(env: Environment, *actions: tuple[int, int]) -> tuple[World, list[Timestep]]:
    """The world after some steps, and all that was shown; only the last step may end the episode."""
    world, shown = jax.device_get(reset(env))
    moments = [shown]
    for action in actions:
        assert not moments[-1].terminated
        world, shown = jax.device_get(step(env, world, np.array(action)))
        moments.append(shown)
    return world, moments


def paid(moments: list[Timestep]) -> list[float]:
    return [float(shown.reward) for shown in moments[1:]]


# The game of one step


def test_one_step_pays_the_published_table_and_ends() -> None:
    published = ((8, -12, -12), (-12, 0, 0), (-12, 0, 0))
    for first, second in itertools.product(range(3), range(3)):
        _, moments = play(OneStepGame(), (first, second))
        assert paid(moments) == [published[first][second]]
        assert moments[-1].terminated
        assert not moments[-1].truncated
        assert moments[-1].won == ((first, second) == (0, 0))


def test_one_step_shows_a_constant() -> None:
    _, moments = play(OneStepGame(), (2, 1))
    for shown in moments:
        np.testing.assert_array_equal(shown.obs, [[1.0], [1.0]])
        np.testing.assert_array_equal(shown.state, [1.0])
    assert not moments[0].terminated
    assert not moments[0].won


def test_one_step_takes_any_square_table_and_every_largest_entry_wins() -> None:
    env = OneStepGame(payoff=((-1, -5, -3, -1), (-9, -2, -2, -4), (-6, -7, -8, -1.5), (-1, -3, -3, -3)))
    assert env.spec.n_actions == 4
    won = set()
    for first, second in itertools.product(range(4), range(4)):
        _, moments = play(env, (first, second))
        assert paid(moments) == [env.payoff[first][second]]
        won |= {(first, second)} if moments[-1].won else set()
    assert won == {(0, 0), (0, 3), (3, 0)}
    assert not env.reset(KEY)[1].won, "nothing is won before a step, however little there is to win"


def test_a_table_can_be_lists_or_numpy_and_survives_json() -> None:
    from emc.runs.config import from_json, to_json

    env = OneStepGame(payoff=((1.0, 2.0), (3.0, 4.5)))
    assert OneStepGame(payoff=[[1, 2], [3, 4.5]]) == env
    assert OneStepGame(payoff=np.array([[1, 2], [3, 4.5]])) == env
    for game in (env, *GAMES):
        assert from_json(json.loads(json.dumps(to_json(game)))) == game


@pytest.mark.usefixtures("unchecked")
def test_one_compilation_serves_all_tables_of_a_size() -> None:
    traces = 0

    @jax.jit
    def reward(env: OneStepGame) -> jax.Array:
        nonlocal traces
        traces += 1
        world, _ = env.reset(KEY)
        return env.step(world, jnp.array([1, 0]), KEY)[1].reward

    for entry in (0, -6.5, 12):
        assert reward(OneStepGame(payoff=((0, 1), (entry, 2)))) == entry
    assert traces == 1


# The game of two steps


@pytest.mark.parametrize(("branch", "table"), [(0, ((7, 7), (7, 7))), (1, ((0, 1), (1, 8)))])
def test_two_steps_pay_the_table_that_agent_0_chose(branch: int, table: tuple[tuple[int, int], ...]) -> None:
    for ignored, (first, second) in itertools.product(range(2), JOINT):
        _, moments = play(TwoStepGame(), (branch, ignored), (first, second))
        assert paid(moments) == [0, table[first][second]]
        assert [bool(shown.terminated) for shown in moments] == [False, False, True]
        assert [bool(shown.won) for shown in moments] == [False, False, table[first][second] == 8]
        assert not moments[-1].truncated


def test_two_steps_show_the_state_to_both_and_nothing_after_the_end() -> None:
    for branch, second in ((0, [0, 1, 0]), (1, [0, 0, 1])):
        _, moments = play(TwoStepGame(), (branch, 1 - branch), (0, 1))
        for shown, state in zip(moments, ([1, 0, 0], second, [0, 0, 0]), strict=True):
            np.testing.assert_array_equal(shown.state, state)
            np.testing.assert_array_equal(shown.obs, [state, state])


# The game of several steps


@pytest.mark.parametrize(
    ("actions", "rewards", "won"),
    [
        ("00 00 00 11", [1, 1, 1, 4], True),
        ("00 00 00 00", [1, 1, 1, 1], False),
        ("00 00 00 01", [1, 1, 1, 1], False),
        ("00 00 00 10", [1, 1, 1, 1], False),
        ("00 11", [1, 0], False),
        ("00 00 01", [1, 1, 0], False),
        ("11 11 11 11", [1, 1, 1, 1], False),
        ("11 11 11 00", [1, 1, 1, 0], False),
        ("11 11 11 01", [1, 1, 1, 0], False),
        ("11 00", [1, 0], False),
        ("11 11 10", [1, 1, 0], False),
        ("01", [0], False),
        ("10", [0], False),
    ],
)
def test_four_steps_by_hand(actions: str, rewards: list[float], won: bool) -> None:
    _, moments = play(NStepGame(steps=4), *((int(first), int(second)) for first, second in actions.split()))
    assert paid(moments) == rewards
    assert [bool(shown.terminated) for shown in moments] == [False] * len(rewards) + [True]
    assert not moments[-1].truncated
    assert moments[-1].won == won
    assert not any(shown.won for shown in moments[:-1])


def test_with_four_good_branches_each_can_be_kept_to() -> None:
    env = NStepGame(steps=3, good_branches=4)
    for branch, last in itertools.product(JOINT, JOINT):
        _, moments = play(env, branch, branch, last)
        final = (4 if last == (1, 1) else 1) if branch == (0, 0) else float(branch == last)
        assert paid(moments) == [1, 1, final]
        assert moments[-1].won == (final == 4)
        other = (1 - branch[0], branch[1])
        assert paid(play(env, branch, other)[1]) == [1, 0]


def test_one_step_alone_rewards_agreement_and_has_no_last_table() -> None:
    for joint in JOINT:
        _, moments = play(NStepGame(steps=1), joint)
        assert paid(moments) == [float(joint[0] == joint[1])]
        assert moments[-1].terminated
        assert moments[-1].won == (joint[0] == joint[1])
        np.testing.assert_array_equal(moments[0].state, [1, 0])
        np.testing.assert_array_equal(moments[1].state, [0, 1])
        assert paid(play(NStepGame(steps=1, good_branches=4), joint)[1]) == [1]


def test_ten_steps_earn_thirteen_at_best_and_ten_on_the_other_branch() -> None:
    _, best = play(NStepGame(), *[(0, 0)] * 9, (1, 1))
    _, other = play(NStepGame(), *[(1, 1)] * 10)
    assert (sum(paid(best)), bool(best[-1].won)) == (13, True)
    assert (sum(paid(other)), bool(other[-1].won)) == (10, False)
    assert NStepGame().best_return == 13


def test_agents_see_the_step_and_the_branch() -> None:
    _, moments = play(NStepGame(steps=3), (1, 1), (1, 1), (1, 0))
    states = ([1, 0, 0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0, 1], [0, 0, 1, 0, 0, 0, 0, 1], [0, 0, 0, 1, 0, 0, 0, 1])
    for shown, state in zip(moments, states, strict=True):
        np.testing.assert_array_equal(shown.state, state)
        np.testing.assert_array_equal(shown.obs, [state, state])
    for branch, joint in enumerate(JOINT):
        np.testing.assert_array_equal(play(NStepGame(steps=3), joint)[1][1].state[4:], np.arange(4) == branch)


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 10])
@pytest.mark.parametrize("good_branches", [2, 4])
def test_every_step_equals_the_twin(steps: int, good_branches: int) -> None:
    env, twin = NStepGame(steps=steps, good_branches=good_branches), NStepGameTwin(steps=steps, good_branches=good_branches)
    generator = np.random.default_rng(steps)
    wins = stumbles = 0
    for episode in range(60):
        world, shown = jax.device_get(reset(env))
        expected = twin.reset()
        assert_same(shown, expected)
        persistent = JOINT[episode % 4]
        while not expected["terminated"]:
            random = generator.random() < 1 / steps or len(twin.past) == steps - 1
            action = JOINT[generator.integers(4)] if random else persistent
            world, shown = jax.device_get(step(env, world, np.array(action)))
            expected = twin.step(*action)
            assert_same(shown, expected)
        wins += expected["won"]
        stumbles += expected["reward"] == 0
    assert wins
    assert stumbles or (steps, good_branches) == (1, 4)


def assert_same(shown: Any, expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        np.testing.assert_array_equal(np.asarray(getattr(shown, name), float), value, err_msg=name)


# All of them


@pytest.mark.parametrize("env", GAMES, ids=repr)
def test_what_is_shown_has_the_shapes_and_types_of_the_spec(env: Environment) -> None:
    spec = env.spec
    world, first = reset(env)
    _, later = step(env, world, np.array([1, 1]))
    for shown in (first, later):
        assert (shown.obs.shape, shown.obs.dtype) == ((2, spec.obs_size), spec.obs_dtype)
        assert (shown.state.shape, shown.state.dtype) == ((spec.state_size,), spec.state_dtype)
        assert (shown.available.shape, shown.available.dtype) == ((2, spec.n_actions), bool)
        assert shown.available.all()
        assert shown.reward.dtype == jnp.float32
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), first) == jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), later)
    assert spec.n_agents == 2
    assert spec.winnable


@pytest.mark.parametrize("env", GAMES, ids=repr)
def test_games_side_by_side_do_not_mix(env: Environment) -> None:
    actions = jnp.array(JOINT)
    worlds, _ = jax.jit(jax.vmap(env.reset))(jax.random.split(KEY, 4))
    _, shown = jax.jit(jax.vmap(partial(env.step, key=KEY)))(worlds, actions)
    for action, reward in zip(JOINT, np.asarray(shown.reward), strict=True):
        assert paid(play(env, action)[1]) == [reward]


def drawn(env: Environment, *actions: tuple[int, int]) -> tuple[list[tuple[float, float]], list[str]]:
    """The corners of the marked entries, and all words, of a drawing."""
    figure = pytest.importorskip("matplotlib.figure")
    axes = figure.Figure().subplots()
    env.draw(axes, jax.tree.map(np.asarray, play(env, *actions)[0]))
    axes.figure.canvas.draw()
    return [patch.get_xy() for patch in axes.patches if patch.get_linewidth() > 2], [text.get_text() for text in axes.texts]


def test_a_drawing_of_one_step_marks_the_chosen_entry() -> None:
    marked, words = drawn(OneStepGame())
    assert marked == []
    assert [words.count(entry) for entry in ("8", "-12")] == [1, 4]
    marked, words = drawn(OneStepGame(), (2, 0))
    assert marked == [(1, 2)]  # to the right, then down
    assert words[-3:] == ["2", "0", "-12"]


def test_a_drawing_of_two_steps_follows_the_branch() -> None:
    assert drawn(TwoStepGame())[0] == []
    assert drawn(TwoStepGame(), (1, 0))[0] == [(1, 1)]
    for branch in (0, 1):
        marked, words = drawn(TwoStepGame(), (branch, 0), (1, 1))
        np.testing.assert_allclose(marked, [(1, branch), (1 + 3.2 * (1 + branch) + 1, 1)])
        assert words[-3:] == ["1", "1", ("7", "8")[branch]]


def test_a_drawing_of_many_steps_shows_the_last_table_and_ten_steps() -> None:
    marked, words = drawn(NStepGame())
    assert marked == []
    assert "step 1 of 10" in words
    marked, words = drawn(NStepGame(), *[(0, 0)] * 9, (1, 1))
    assert marked == [(2, 1)]
    assert "step 10 of 10" in words
    assert words[-30:] == ["0", "0", "1"] * 9 + ["1", "1", "4"]
    _, long = drawn(NStepGame(steps=20), *[(1, 1)] * 15)
    assert len(long) == len(words)
    assert "step 15 of 20" in long


@pytest.mark.parametrize("env", GAMES, ids=repr)
def test_a_game_is_drawn_but_has_no_map(env: Environment) -> None:
    assert isinstance(env, Drawable)
    assert not isinstance(env, HasMap)


@pytest.mark.parametrize(
    ("game", "fields", "message"),
    [
        (OneStepGame, {"payoff": 8}, "payoff=8 is not a table: give rows of numbers"),
        (OneStepGame, {"payoff": (8, 0)}, "payoff=(8, 0) is not a table"),
        (OneStepGame, {"payoff": ()}, "payoff has 0 rows of no entries: give as many rows as columns, and two or more."),
        (OneStepGame, {"payoff": ((1,),)}, "payoff has 1 rows of 1 entries"),
        (OneStepGame, {"payoff": ((1, 2, 3), (4, 5, 6))}, "payoff has 2 rows of 3, 3 entries"),
        (OneStepGame, {"payoff": ((1, 2), (3,))}, "payoff has 2 rows of 2, 1 entries"),
        (OneStepGame, {"payoff": ((1, 2), (math.nan, 0))}, "payoff[1][0]=nan is not a finite number: give what"),
        (OneStepGame, {"payoff": ((1, math.inf), (3, 0))}, "payoff[0][1]=inf is not a finite number"),
        (NStepGame, {"steps": 0}, "steps=0 is not a whole number of at least 1: allow some steps, such as the default 10."),
        (NStepGame, {"steps": 2.5}, "steps=2.5 is not a whole number"),
        (NStepGame, {"good_branches": 3}, "good_branches=3 is neither 2 nor 4: choose 2"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_a_wrong_field_is_refused_in_one_line(game: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        game(**fields)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)
