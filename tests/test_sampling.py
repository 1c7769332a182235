"""What weight an episode has, and that drawing follows the weights exactly."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.errors import UserError
from emc.sampling import Prioritised, Sampler, Uniform
from emc.training.replay import Replay
from emc.types import EnvSpec
from tests.twins import quick

SPEC = EnvSpec(n_agents=1, n_actions=2, obs_size=1, state_size=1, episode_limit=1)
DRAWS = 20_000


def weights(sampler: Sampler, priorities: list[float]) -> list[float]:
    return np.exp(np.asarray(sampler.log_weight(jnp.array(priorities)), np.float64)).tolist()


def test_a_prioritised_episode_weighs_the_root_of_its_priority() -> None:
    assert weights(Prioritised(), [100.0, 4.0, 0.25]) == pytest.approx([10.0, 2.0, 0.5], rel=1e-5)
    assert weights(Prioritised(exponent=1.0), [100.0, 4.0]) == pytest.approx([100.0, 4.0], rel=1e-5)
    assert weights(Prioritised(exponent=0.0), [100.0, 4.0]) == pytest.approx([1.0, 1.0])


def test_a_new_prioritised_episode_weighs_ten() -> None:
    assert weights(Prioritised(), [Prioritised().new_priority]) == pytest.approx([10.0], rel=1e-5)


def test_an_episode_without_error_keeps_a_weight_that_is_finite_and_next_to_nothing() -> None:
    (nothing,) = weights(Prioritised(), [0.0])
    assert 0.0 < nothing < 1e-10
    assert np.all(np.isfinite(Prioritised().log_weight(jnp.array([0.0, 1e-38]))))


def test_uniform_weights_do_not_depend_on_priorities() -> None:
    assert weights(Uniform(), [0.0, 1.0, 1e9]) == [1.0, 1.0, 1.0]


def sequential_law(weight: list[float], draws: int) -> dict[tuple[int, ...], float]:
    """The probability of every ordered draw without replacement, one proportional draw after the other."""
    law = {}
    for order in itertools.permutations(range(len(weight)), draws):
        probability, left = 1.0, sum(weight)
        for row in order:
            probability *= weight[row] / left
            left -= weight[row]
        law[order] = probability
    return law


@quick
def many_draws(priority: jax.Array, added: jax.Array, keys: jax.Array) -> dict[str, jax.Array]:
    ring = Replay(SPEC, Replay.empty(SPEC, priority.shape[0]).episodes, priority, added)
    samplers = {"uniform": Uniform(), "prioritised": Prioritised()}
    return {name: jax.vmap(lambda key: ring.draw(key, sampler, 2))(keys) for name, sampler in samplers.items()}  # noqa: B023


def test_drawing_has_exactly_the_law_of_sequential_proportional_draws() -> None:
    priority = [9.0, 1.0, 0.25, 4.0, 1e6]  # the last row is not filled yet
    rows = many_draws(jnp.array(priority), jnp.int32(4), jax.random.split(jax.random.key(0), DRAWS))
    for name, weight in {"uniform": [1.0] * 4, "prioritised": [3.0, 1.0, 0.5, 2.0]}.items():
        law = sequential_law(weight, 2)
        assert sum(law.values()) == pytest.approx(1.0)
        drawn, counts = np.unique(np.asarray(rows[name]), axis=0, return_counts=True)
        seen = {tuple(order): count for order, count in zip(drawn.tolist(), counts.tolist(), strict=True)}
        assert set(seen) == set(law)
        for order, probability in law.items():
            five_errors = 5 * math.sqrt(DRAWS * probability * (1 - probability))
            assert abs(seen[order] - DRAWS * probability) < five_errors, (name, order)


@pytest.mark.parametrize(("exponent", "new"), [(-0.1, 100.0), (math.nan, 100.0), (0.5, 0.0), (0.5, -1.0), (0.5, math.nan)])
def test_priorities_that_make_no_sense_are_refused_in_one_line(exponent: float, new: float) -> None:
    with pytest.raises(UserError, match=r"^replay\.(exponent|new_priority)=[^\n]*$"):
        Prioritised(exponent, new_priority=new)
