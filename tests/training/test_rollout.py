"""Whole episodes against a plain replay of the scripted environment's rules."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.parts import Actors
from emc.policies import RecurrentQ
from emc.training.rollout import Outcome, play
from emc.types import Episodes
from tests.twins import Scripted, as_numpy, at, bits, filled, laid, quick

ENV, POLICY, LIMIT, EPISODES = Scripted(), RecurrentQ(hidden=4), 5, 40
NET = filled(lambda key: POLICY.init_net(key, ENV.spec), 0)


@functools.partial(quick, static_argnums=2)
def _rollout(key: jax.Array, epsilon: jax.Array, episodes: int) -> tuple[Episodes, Outcome]:
    return play(ENV, Actors(POLICY, NET, ()), key, epsilon, episodes)


@functools.cache
def rollout(seed: int, epsilon: float, episodes: int = EPISODES) -> tuple[Episodes, Outcome]:
    return as_numpy(_rollout(jax.random.key(seed), jnp.float32(epsilon), episodes))


def script(record: Episodes, b: int) -> tuple[int, int, bool]:
    """How long the episode was, how long it was drawn to be, and whether it was drawn to be cut."""
    _, drawn, cut = record.state[b, 0, :3]
    return min(int(drawn), LIMIT), int(drawn), bool(cut)


def test_the_batch_holds_every_kind_of_ending() -> None:
    record, _ = rollout(0, 1.0)
    kinds = {(script(record, b)[1], script(record, b)[2]) for b in range(EPISODES)}
    assert {length for length, _ in kinds} == set(range(1, LIMIT + 2))
    assert {cut for _, cut in kinds} == {True, False}


def test_every_moment_up_to_the_final_observation_is_what_the_environment_showed() -> None:
    record, _ = rollout(0, 1.0)
    for b in range(EPISODES):
        length, drawn, cut = script(record, b)
        for t in range(length + 1):  # the final observation included
            action = record.action[b, t - 1] if t else np.zeros(2)
            np.testing.assert_array_equal(record.state[b, t], [t + 1, drawn, cut, *action])
            for i in range(2):
                np.testing.assert_array_equal(record.obs[b, t, i], [t + 1, drawn, cut, 10 * i + action[i]])
                assert record.available[b, t, i].tolist() == [(t + i) % 3 != a for a in range(3)]
        for t in range(length):
            first, second = record.action[b, t]
            assert record.reward[b, t] == pytest.approx((t + 1) + first - 0.5 * second)


def test_only_a_terminated_episode_is_stored_as_terminated_and_only_at_its_last_step() -> None:
    record, _ = rollout(0, 1.0)
    for b in range(EPISODES):
        length, drawn, cut = script(record, b)
        ends = not cut and drawn <= LIMIT  # neither cut by the environment nor left running at the limit
        assert record.terminated[b].tolist() == [ends and t == length - 1 for t in range(LIMIT)]
        assert record.played[b].tolist() == [t < length for t in range(LIMIT)]
        assert record.length[b] == length


def test_rows_are_zero_after_their_end() -> None:
    record, _ = rollout(0, 1.0)
    shorter = 0
    for b in range(EPISODES):
        length, _, _ = script(record, b)
        shorter += length < LIMIT
        for track in (record.obs, record.state, record.available):
            assert not np.any(track[b, length + 1 :])
        for track in (record.action, record.reward, record.terminated, record.played):
            assert not np.any(track[b, length:])
    assert shorter > 5


def test_outcomes_are_return_length_and_win_of_each_episode() -> None:
    record, outcome = rollout(0, 1.0)
    for b in range(EPISODES):
        length, drawn, cut = script(record, b)
        expected = sum((t + 1) + record.action[b, t, 0] - 0.5 * record.action[b, t, 1] for t in range(length))
        assert outcome.episode_return[b] == pytest.approx(expected, rel=1e-6)
        assert outcome.length[b] == length
        assert outcome.won[b] == (drawn <= LIMIT and not cut and drawn % 2 == 1)  # what is won after the end does not count
    assert 0 < np.sum(outcome.won) < EPISODES


def test_a_batch_of_one_is_a_batch() -> None:
    for seed in range(3):
        record, outcome = rollout(seed, 1.0, 1)
        length, _, _ = script(record, 0)
        assert record.reward.shape == (1, LIMIT)
        assert outcome.length.tolist() == [length]


class Counted(Scripted):
    """Tells the host of every step."""

    def step(self, *arguments: Any) -> Any:
        jax.debug.callback(lambda: STEPS.append(1))
        return super().step(*arguments)


STEPS: list[int] = []


def test_no_step_is_computed_after_the_longest_episode() -> None:
    counted = jax.jit(lambda key: play(Counted(), Actors(POLICY, NET, ()), key, jnp.ones(()), 2)[1].length)
    longest = []
    for seed in range(40):
        STEPS.clear()
        longest.append(int(jnp.max(counted(jax.random.key(seed)))))
        jax.effects_barrier()
        assert len(STEPS) == longest[-1]  # a step of both at once
    assert {*longest} >= {2, 3, 4, LIMIT}  # even and odd, before the limit and at it


def test_with_epsilon_one_every_available_action_is_as_likely_and_no_other_is_taken() -> None:
    counts: dict[tuple[int, int], list[int]] = {}
    for seed in range(10):
        record, _ = rollout(seed, 1.0)
        for b, t in zip(*np.nonzero(record.played), strict=True):
            for i in range(2):
                assert record.available[b, t, i, record.action[b, t, i]]
                counts.setdefault((t, i), [0, 0, 0])[record.action[b, t, i]] += 1
    for (t, i), count in counts.items():
        n, available = sum(count), [a for a in range(3) if (t + i) % 3 != a]
        for a in available:
            assert abs(count[a] - n / 2) < 5 * math.sqrt(n / 4), (t, i, count)


@quick
def _values(record: Episodes) -> jax.Array:
    lanes = laid(record, 8)
    return lanes.by_episode(POLICY.unroll(NET, (), lanes).q)


def values_along(record: Episodes) -> np.ndarray:
    """What the agents thought at each step."""
    return np.asarray(_values(jax.tree.map(jnp.asarray, record)))


def greedy_actions(record: Episodes) -> np.ndarray:
    q = values_along(record)
    return np.argmax(np.where(record.available[:, :-1], q, -np.inf), axis=-1)


def test_with_epsilon_zero_every_action_is_the_best_available_one_whatever_the_key() -> None:
    taken: dict[tuple[float, ...], np.ndarray] = {}
    for seed in range(2):
        record, _ = rollout(seed, 0.0)
        best = greedy_actions(record)
        assert np.array_equal(record.action[record.played], best[record.played])
        for b in range(EPISODES):  # the same script, the same episode
            first = taken.setdefault(tuple(record.state[b, 0]), record.action[b])
            assert np.array_equal(first, record.action[b])
    assert len(taken) < 2 * EPISODES
    masked = values_along(record).argmax(axis=-1)
    assert np.any(masked[record.played] != best[record.played])  # the unavailable would have been preferred somewhere


def test_with_epsilon_in_between_agents_explore_that_often_each_on_its_own() -> None:
    same, both, n = 0, 0, 0
    for seed in range(10):
        record, _ = rollout(seed, 0.6)
        agree = (record.action == greedy_actions(record))[record.played]
        same, both, n = same + np.sum(agree), both + np.sum(np.all(agree, axis=-1)), n + len(agree)
    share = 1 - 0.6 + 0.6 / 2  # two actions are available
    assert abs(same / (2 * n) - share) < 5 * math.sqrt(share * (1 - share) / (2 * n))
    assert abs(both / n - share**2) < 5 * math.sqrt(share**2 * (1 - share**2) / n)


def test_the_same_key_plays_the_same_episodes() -> None:
    one, again, other = (_rollout(jax.random.key(seed), jnp.float32(0.5), EPISODES) for seed in (7, 7, 8))
    assert bits(one) == bits(again)
    assert bits(one) != bits(other)


def test_episodes_are_the_same_beside_others_under_vmap() -> None:
    keys = jax.random.split(jax.random.key(3), 3)
    together, outcomes = quick(jax.vmap(lambda key: play(ENV, Actors(POLICY, NET, ()), key, jnp.float32(0.5), 2)))(keys)
    lengths = set()
    for i, key in enumerate(keys):
        alone, outcome = _rollout(key, jnp.float32(0.5), 2)
        assert bits(at(i, together)) == bits(alone)
        assert bits(at(i, outcomes)) == bits(outcome)
        lengths.add(int(jnp.max(outcome.length)))
    assert len(lengths) > 1  # some had to wait for others
