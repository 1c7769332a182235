"""Counts of joint states by hand: what a step led to, how often anybody was there."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.curiosity import Counts
from emc.errors import UserError
from emc.parts import Actors
from emc.schedules import DecayingWeight
from emc.types import Episodes
from tests.twins import SPEC, Table, laid, quick, random_episodes

CURIOSITY = Counts(weight=DecayingWeight(start=0.5), capacity=64)
PLACES = np.random.default_rng(0).normal(size=(6, SPEC.state_size)).astype(np.float32)


def walks(*places: list[int]) -> Episodes:
    """Episodes through given places, padded."""
    batch = random_episodes(0, [len(walk) - 1 for walk in places])
    state = np.zeros(batch.state.shape, np.float32)
    for row, walk in enumerate(places):
        state[row, : len(walk)] = PLACES[walk]
    return dataclasses.replace(batch, state=jnp.asarray(state))


@quick
def seen(fresh: Episodes, asked: Episodes) -> tuple[jax.Array, jax.Array]:
    state = CURIOSITY.observe(CURIOSITY.init(jax.random.key(0), SPEC, Table(), ()), fresh)
    lanes = laid(asked)
    _, bonus, report = CURIOSITY.learn(state, lanes, Actors(Table(), (), ()), 0.9, jnp.int32(0))
    return lanes.by_episode(bonus) + jnp.sum(jnp.where(lanes.played, 0.0, bonus)), report["curiosity_states"]


def test_the_bonus_is_one_over_the_root_of_the_visits_to_where_a_step_led() -> None:
    bonus, states = seen(walks([0, 1, 2, 1], [0, 3]), walks([0, 1, 3, 5], [2, 0]))
    # Visits: place 0 twice, 1 twice, 2 and 3 once, 5 never.
    expected = [[0.5 / np.sqrt(2), 0.5, 0.5, 0.0], [0.5 / np.sqrt(2), 0.0, 0.0, 0.0]]
    np.testing.assert_allclose(np.asarray(bonus), expected, rtol=1e-6)
    assert float(states) == 4


def test_padding_is_not_counted() -> None:
    nowhere = jax.tree.map(jnp.zeros_like, walks([0, 1], [0, 1]))
    assert float(seen(nowhere, walks([0, 1], [1, 0]))[1]) == 0


@pytest.mark.parametrize("fields", [{"key_size": 9}, {"radius": 0.0}, {"capacity": 0}])
def test_impossible_sizes_are_refused_in_one_line(fields: dict[str, float]) -> None:
    with pytest.raises(UserError, match=r"^[^\n]+$"):
        Counts(**fields)
