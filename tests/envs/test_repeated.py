"""Climbing and Penalty against their published tables and a plain-Python twin."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
import pytest

from emc.envs import Climbing, Penalty
from tests.envs.board_twins import RepeatedTwin

KEY = jax.random.key(0)
step = jax.jit(lambda env, world, action: env.step(world, action, KEY))
PUBLISHED = {"climbing": [[11, -30, 0], [-30, 7, 6], [0, 0, 5]], "penalty": [[10, 0, -100], [0, 2, 0], [-100, 0, 10]]}
GAMES: list[tuple[Any, Any]] = [
    (Climbing(), PUBLISHED["climbing"]),
    (Climbing(k=-7.5, episode_limit=3), [[11, -7.5, 0], [-7.5, 7, 6], [0, 0, 5]]),
    (Penalty(), PUBLISHED["penalty"]),
    (Penalty(k=0.0), [[10, 0, 0], [0, 2, 0], [0, 0, 10]]),
    (Penalty(k=-25.0, episode_limit=1), [[10, 0, -25], [0, 2, 0], [-25, 0, 10]]),
]


@pytest.mark.parametrize(("env", "table"), GAMES, ids=[repr(env) for env, _ in GAMES])
def test_every_step_equals_the_twin(env: Any, table: list[list[float]]) -> None:
    twin, generator = RepeatedTwin(table, env.episode_limit), np.random.default_rng(0)
    pairs = list(itertools.product(range(3), range(3)))
    best = max(pairs, key=lambda pair: table[pair[0]][pair[1]])
    for episode in range(4):
        world, shown = jax.device_get(env.reset(KEY))
        expected = twin.reset()
        assert_same(shown, expected)
        for time in range(env.episode_limit):
            pair = best if episode == 0 else pairs[(time + episode) % 9] if episode == 1 else pairs[generator.integers(9)]
            world, shown = jax.device_get(step(env, world, np.array(pair)))
            expected = twin.step(*pair)
            assert_same(shown, expected)
        assert shown.terminated
        assert episode or shown.won


def assert_same(shown: Any, expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        np.testing.assert_array_equal(np.asarray(getattr(shown, name), float), value, err_msg=name)


def test_a_drawing_marks_what_was_played_last() -> None:
    figure = pytest.importorskip("matplotlib.figure")
    world, _ = jax.device_get(Climbing().reset(KEY))
    for pair in ((0, 0), (2, 1)):
        world, _ = jax.device_get(step(Climbing(), world, np.array(pair)))
    axes = figure.Figure().subplots()
    Climbing().draw(axes, world)
    words = [text.get_text() for text in axes.texts]
    assert "step 2 of 25" in words
    assert [patch.get_xy() for patch in axes.patches if patch.get_linewidth() > 2] == [(2, 2)]
    assert words[-6:] == ["0", "0", "11", "2", "1", "0"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"k": 3.0}, "k=3.0 is not a finite number of at most 0"), ({"episode_limit": 0}, "episode_limit=0 is not a whole number")],
)
@pytest.mark.parametrize("game", [Climbing, Penalty])
def test_a_wrong_field_is_refused_in_one_line(game: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        game(**fields)
    assert str(error.value).startswith(message)
