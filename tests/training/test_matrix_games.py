"""What the papers say of matrix games under uniform exploration: who finds the optimal joint action, and who cannot represent it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import jax
import numpy as np
import pytest

from emc.envs import make_env
from emc.methods import make_method
from emc.policies import RecurrentQ
from emc.schedules import Epsilon
from emc.training.loop import Budget, Program
from tests.twins import begun

# Smaller networks that learn faster than those of `experiments/matrix_games.py`, to the same end.
GAMES_PLAYED = {"qtran": 800}  # a third more than it needs on the slowest of four seeds; the others need 300 at most
QUICK = {"learning_rate": 2e-3, "target_interval": 50, "replay_episodes": 1_000, "policy": RecurrentQ(hidden=16)}


@pytest.fixture(scope="module", autouse=True)
def _quick_to_compile() -> Iterator[None]:
    """The programs here run for a blink and compile for long."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "game", "lowest", "highest"),
    [
        # Payoff 8 needs both agents; a mistake of one costs 12, so values that are averaged over the other point to the zeros.
        ("vdn", "one-step-game", -12.0, 0.0),
        ("qmix", "one-step-game", -12.0, 0.0),
        ("qtran", "one-step-game", 8.0, 8.0),
        ("cw-qmix", "one-step-game", 8.0, 8.0),
        ("ow-qmix", "one-step-game", 8.0, 8.0),
        # One branch always pays 7; the other pays 8 to agents that choose well together, which a sum of values cannot say.
        ("vdn", "two-step-game", 7.0, 7.0),
        ("qmix", "two-step-game", 8.0, 8.0),
    ],
)
def test_greedy_agents_earn_what_their_values_can_represent(name: str, game: str, lowest: float, highest: float) -> None:
    method = dataclasses.replace(make_method(name), epsilon=Epsilon(start=1.0, finish=1.0), **QUICK)
    env = make_env(game)
    program = Program(method, Budget(test_episodes=1), env, (0,))
    state = program.advance(begun(method, env), 0, GAMES_PLAYED.get(name, 500))
    assert lowest <= float(np.asarray(program.evaluate(state, 0).episode_return)[0]) <= highest
