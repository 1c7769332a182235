"""EMU's incentive by hand: counters of visits and wins, and what is paid on top of the reward."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.errors import UserError
from emc.memory import EpisodicMemory
from emc.methods import METHODS
from emc.mixers import VDN
from emc.parts import Prospect, Recollection
from emc.training.learner import incentive, init_learner, learn, observe
from tests.memory.test_statistics import GAMMA, Move, episodes, remembered
from tests.memory.test_statistics import SPEC as PLACES
from tests.twins import laid, quick

MEMORY = EpisodicMemory(weight=0.0, capacity=64, incentive=True)
STAY = (0, 0)


def path(*steps: tuple[int, float]) -> list[Move]:
    return [(place, STAY, reward) for place, reward in steps]


def test_best_returns_stay_what_they_are_and_visits_and_wins_are_counted() -> None:
    fresh = episodes([(path((0, 0.0), (1, 4.0)), 2, True), (path((0, 0.0), (1, 0.0), (1, 1.0)), 3, True)])
    won = jnp.array([True, False])
    state = quick(lambda fresh: MEMORY.observe(MEMORY.init(jax.random.key(0), PLACES), fresh, GAMMA, won))(fresh)
    plain = dataclasses.replace(MEMORY, incentive=False)
    best = quick(lambda fresh: plain.observe(plain.init(jax.random.key(0), PLACES), fresh, GAMMA))(fresh)
    assert [remembered(state, place) for place in range(6)] == [remembered(best, place) for place in range(6)]

    @quick
    def prospects(state: Any, fresh: Any) -> tuple[jax.Array, jax.Array]:
        lanes = laid(fresh)
        prospect = MEMORY.recall(state, lanes, GAMMA)[1].prospect
        assert prospect is not None
        return lanes.by_episode(prospect.share), lanes.by_episode(prospect.value)

    share, value = map(np.asarray, prospects(state, fresh))
    # Place 1 was visited three times, once in an episode that was won; place 2 once, in that one; place 3 in the other.
    np.testing.assert_allclose(share[0, :2], [1 / 3, 1.0])
    np.testing.assert_allclose(share[1, :3], [1 / 3, 1 / 3, 0.0])
    np.testing.assert_allclose(value[1, :3], [4.0, 4.0, 0.0])


def test_what_is_missing_to_the_best_return_is_paid_as_far_as_visits_have_led_to_wins() -> None:
    lanes = laid(episodes([(path((0, 0.0), (1, 4.0)), 2, True), (path((0, 0.0), (1, 0.0), (1, 1.0)), 3, False)]))
    everywhere = jnp.ones_like(lanes.reward)
    recalled = Recollection(everywhere, lanes.played, Prospect(4.0 * everywhere, 0.25 * everywhere))
    paid = lanes.by_episode(incentive(recalled, 3.0 * everywhere[..., None], lanes, GAMMA))
    each = GAMMA * 0.25 * 1.0
    np.testing.assert_allclose(np.asarray(paid)[:, :3], [[each, 0.0, 0.0], [each, each, each]])  # nothing where the task ended
    assert not np.any(np.asarray(incentive(recalled, 5.0 * everywhere[..., None], lanes, GAMMA)))
    assert not np.any(np.asarray(incentive(Recollection(everywhere, lanes.played), everywhere[..., None], lanes, GAMMA)))


def test_the_incentive_moves_the_targets() -> None:
    fresh = episodes([(path((0, 0.0), (1, 40.0)), 2, True), (path((0, 0.0), (1, 0.0), (4, 1.0)), 3, True)])
    target = {}
    for won in (True, False):
        method = dataclasses.replace(METHODS["qplex-emu"].method, mixer=VDN(), memory=MEMORY, lanes=2)

        @quick
        def step(fresh: object, method: object = method, won: bool = won) -> jax.Array:
            learner = observe(method, init_learner(method, PLACES, jax.random.key(0)), fresh, jnp.full(2, won))
            return learn(method, learner, laid(fresh), jnp.int32(0))[1].metrics["target"]

        target[won] = float(step(fresh))
    assert target[True] > target[False] + 1.0


def test_an_incentive_needs_best_returns() -> None:
    with pytest.raises(UserError, match=r"^memory\.incentive[^\n]*memory\.statistic=mean[^\n]*$"):
        EpisodicMemory(incentive=True, statistic="mean")
