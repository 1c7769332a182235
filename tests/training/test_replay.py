"""The replay ring against a plain Python list."""

from __future__ import annotations

import dataclasses
import functools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.sampling import Prioritised, Sampler, Uniform
from emc.training.packing import pack
from emc.training.replay import Replay
from emc.types import EnvSpec, Episodes, bytes_of
from tests.twins import SPEC, bits, quick, random_episodes, unpacked


@functools.partial(quick, static_argnums=2)
def add(ring: Replay, fresh: Episodes, sampler: Sampler) -> Replay:
    return ring.add(fresh, sampler)


@functools.partial(quick, static_argnums=(2, 3))
def sample(ring: Replay, key: jax.Array, sampler: Sampler, batch: int) -> tuple[jax.Array, Episodes]:
    rows = ring.draw(key, sampler, batch)
    return rows, unpacked(ring.spec, jax.tree.map(lambda x: x[rows], ring.episodes))


reprioritise = quick(Replay.reprioritise)


@functools.cache
def block_of(seed: int, size: int) -> Episodes:
    """Different in every row and at every seed."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, SPEC.episode_limit + 1, size)
    return random_episodes(seed, lengths.tolist(), cut=(rng.random(size) < 0.5).tolist())


def row_of(episodes: Episodes, row: int) -> list[bytes]:
    return [np.asarray(leaf)[row].tobytes() for leaf in jax.tree.leaves(episodes)]


@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(
    sizes=st.sampled_from([(4, 1), (4, 2), (6, 3), (4, 4)]),
    blocks=st.integers(1, 9),
    seed=st.integers(0, 20),
    sampler=st.sampled_from([Uniform(), Prioritised()]),
    data=st.data(),
)
def test_the_ring_holds_what_a_list_of_the_newest_would(
    sizes: tuple[int, int], blocks: int, seed: int, sampler: Sampler, data: st.DataObject
) -> None:
    capacity, size = sizes
    ring, batch = Replay.empty(SPEC, capacity), 2
    twin: dict[int, tuple[list[bytes], float]] = {}  # row -> episode and priority
    for i in range(blocks):
        fresh = block_of(seed * 10 + i, size)
        ring = add(ring, fresh, sampler)
        for j in range(size):
            twin[(i * size + j) % capacity] = (row_of(fresh, j), sampler.new_priority)
        assert ring.added == (i + 1) * size
        assert len(twin) == min((i + 1) * size, capacity)
        if len(twin) >= batch:
            key = data.draw(st.integers(0, 2**31), label="key")
            rows, episodes = sample(ring, jax.random.key(key), sampler, batch)
            assert len(set(rows.tolist())) == batch  # no repeats
            for k, row in enumerate(rows.tolist()):
                assert row_of(episodes, k) == twin[row][0]  # a row that was never filled is not in the twin
            priority = np.array([3.0, 0.5], np.float32) + i
            ring = reprioritise(ring, rows, jnp.asarray(priority))
            twin |= {row: (twin[row][0], p) for row, p in zip(rows.tolist(), priority.tolist(), strict=True)}
        expected = [twin[row][1] if row in twin else 0.0 for row in range(capacity)]
        assert ring.priority.tolist() == expected  # and nobody else's changed


def test_when_the_ring_holds_exactly_a_batch_all_of_it_is_drawn() -> None:
    ring = add(Replay.empty(SPEC, 8), block_of(0, 4), Prioritised())
    for seed in range(5):
        rows, _ = sample(ring, jax.random.key(seed), Prioritised(), 4)
        assert sorted(rows.tolist()) == [0, 1, 2, 3]


def test_a_fitted_episode_is_drawn_only_when_nothing_else_is_left() -> None:
    ring = add(Replay.empty(SPEC, 4), block_of(0, 4), Prioritised())
    ring = reprioritise(ring, jnp.array([2]), jnp.array([0.0]))
    for seed in range(30):
        assert 2 not in sample(ring, jax.random.key(seed), Prioritised(), 2)[0].tolist()
    assert sorted(sample(ring, jax.random.key(0), Prioritised(), 4)[0].tolist()) == [0, 1, 2, 3]


def test_an_overwritten_episode_starts_with_the_weight_of_a_new_one() -> None:
    ring = add(Replay.empty(SPEC, 4), block_of(0, 4), Prioritised())
    ring = reprioritise(ring, jnp.arange(4), jnp.array([1.0, 2.0, 3.0, 4.0]))
    ring = add(ring, block_of(1, 2), Prioritised())
    assert ring.priority.tolist() == [100.0, 100.0, 3.0, 4.0]


@pytest.mark.parametrize("dtype", ["float32", "bool", "uint8"])
def test_episodes_are_stored_compactly_and_come_back_bit_for_bit(dtype: str) -> None:
    spec = dataclasses.replace(SPEC, obs_dtype=dtype, state_dtype=dtype)
    whole = block_of(3, 4)
    obs, state = (
        jnp.asarray(np.round(np.abs(np.asarray(x))) if dtype != "float32" else np.asarray(x), dtype) for x in (whole.obs, whole.state)
    )
    fresh = dataclasses.replace(whole, obs=obs, state=state)
    ring = add(Replay.empty(spec, 4), fresh, Uniform())
    moments, numbers = SPEC.episode_limit + 1, (0 if dtype == "bool" else 1)
    features, flags = SPEC.n_agents * SPEC.obs_size + SPEC.state_size, SPEC.n_agents * SPEC.n_actions
    bits_each = flags + (0 if numbers else features)
    size = moments * (numbers * features * np.dtype(dtype).itemsize + -(-bits_each // 8))  # numbers in their type, flags in bits
    size += SPEC.episode_limit * (SPEC.n_agents + 4) + 2  # actions in a byte, rewards in four, and two bits a step
    assert bytes_of(ring.episodes) == 4 * size
    assert drawn(ring, 4) == bits(fresh)


@functools.partial(quick, static_argnums=0)
def there_and_back(spec: EnvSpec, episodes: Episodes) -> Episodes:
    return unpacked(spec, pack(spec, episodes))


@hypothesis.settings(max_examples=15, deadline=None)
@hypothesis.given(
    obs_flags=st.sets(st.integers(0, SPEC.obs_size - 1)), state_flags=st.sets(st.integers(0, SPEC.state_size - 1)), seed=st.integers(0, 9)
)
def test_flags_among_numbers_come_back_at_their_places(obs_flags: set[int], state_flags: set[int], seed: int) -> None:
    spec = dataclasses.replace(SPEC, obs_flags=tuple(sorted(obs_flags)), state_flags=tuple(sorted(state_flags)))
    whole, rng = block_of(seed, 2), np.random.default_rng(seed)

    def with_flags(values: jax.Array, places: set[int]) -> jax.Array:
        array = np.array(values)
        array[..., list(places)] = rng.integers(0, 2, (*array.shape[:-1], len(places)))
        return jax.device_put(array)

    fresh = dataclasses.replace(whole, obs=with_flags(whole.obs, obs_flags), state=with_flags(whole.state, state_flags))
    assert bits(there_and_back(spec, fresh)) == bits(fresh)
    plain = bytes_of(Replay.empty(SPEC, 2).episodes)
    assert bytes_of(Replay.empty(spec, 2).episodes) <= plain - 2 * (SPEC.episode_limit + 1) * 3 * max(len(state_flags), len(obs_flags))


def drawn(ring: Replay, count: int) -> list[bytes]:
    """Everything that is stored, in order, by sampling all of it."""
    rows, back = sample(ring, jax.random.key(0), Uniform(), count)
    order = np.argsort(np.asarray(rows))
    return bits(jax.tree.map(lambda x: np.asarray(x)[order], back))


@pytest.mark.parametrize("n_actions", [100, 128, 129, 300])
def test_every_action_of_a_large_action_set_survives_storage(n_actions: int) -> None:
    fresh = block_of(0, 2)
    action = jnp.asarray(np.linspace(0, n_actions - 1, fresh.action.size).reshape(fresh.action.shape), jnp.int32)
    ring = Replay.empty(dataclasses.replace(SPEC, n_actions=n_actions), 2)
    available = jnp.ones((*fresh.available.shape[:-1], n_actions), bool)
    fresh = dataclasses.replace(fresh, available=available, action=action)
    rows, back = sample(add(ring, fresh, Uniform()), jax.random.key(0), Uniform(), 2)
    assert int(jnp.max(back.action)) == n_actions - 1
    np.testing.assert_array_equal(back.action, np.asarray(action)[np.asarray(rows)])
