"""The hashed index against a plain list that is searched from end to end."""

from __future__ import annotations

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from emc.memory import index
from emc.types import bytes_of
from tests.twins import WHOLE

AXES = 4
N = 64  # keys per call, so that every test shares a few compilations
RADII = [0.0, 1e-4, 0.3]
SEEDS = st.integers(0, 2**32 - 1)


@functools.partial(jax.jit, static_argnames="radius")
def insert(table: index.Table, keys, values, wanted, radius: float) -> index.Table:
    return index.insert(table, keys, values, wanted, radius)


@functools.partial(jax.jit, static_argnames="radius")
def lookup(table: index.Table, keys, wanted, radius: float) -> index.Match:
    return index.lookup(table, keys, wanted, radius)


@jax.jit
def refresh(table: index.Table, match: index.Match) -> index.Table:
    return index.refresh(table, match)


def padded(keys, values=()):
    """Keys and values filled up to `N`, and which of them count."""
    keys, values = np.asarray(keys, np.float32).reshape(-1, AXES), np.asarray(values, np.float32)
    rows = np.zeros((N, AXES), np.float32)
    rows[: len(keys)] = keys
    numbers = np.zeros(N, np.float32)
    numbers[: len(values)] = values
    return rows, numbers, np.arange(N) < len(keys)


def write(table: index.Table, keys, values, radius: float) -> index.Table:
    return insert(table, *padded(keys, values), radius=radius)


def read(table: index.Table, keys, radius: float) -> list[float | None]:
    """What the table knows about each key."""
    rows, _, wanted = padded(keys)
    match = lookup(table, rows, wanted, radius=radius)
    values, found = np.asarray(table.value[match.bucket, match.way]), np.asarray(match.found)
    return [float(values[i]) if found[i] else None for i in range(len(keys))]


def stored_keys(table: index.Table) -> np.ndarray:
    keys = np.asarray(table.key).transpose(0, 2, 1).reshape(-1, AXES)
    return keys[np.isfinite(keys[:, 0])]


def clustered(rng: np.random.Generator, count: int, radius: float, scale: float) -> np.ndarray:
    """Keys in clusters about as wide as the radius, some of them twice, some on the borders of cells."""
    width = index.cell_width(radius)
    centres = rng.normal(size=(6, AXES)) * scale
    centres[:3] = np.round(centres[:3] / width) * width
    keys = centres[rng.integers(6, size=count)] + rng.normal(size=(count, AXES)) * 0.5 * radius * rng.integers(0, 3, size=(count, 1))
    return keys.astype(np.float32)


@dataclasses.dataclass
class Twin:
    """The same memory as a list without a limit; examples that float32 and float64 may judge differently are thrown away."""

    radius: float
    keys: list[np.ndarray] = dataclasses.field(default_factory=list)
    values: list[float] = dataclasses.field(default_factory=list)

    def nearest(self, key: np.ndarray) -> int | None:
        if not self.keys:
            return None
        distances = np.linalg.norm(np.asarray(self.keys, np.float64) - key.astype(np.float64), axis=1)
        best = int(np.argmin(distances))
        close = np.sort(distances[distances <= 1.01 * self.radius])
        assume(not np.any(np.abs(close - self.radius) < 1e-5 * self.radius))
        assume(len(close) < 2 or close[1] - close[0] > 1e-5 * self.radius)
        return best if distances[best] <= self.radius else None

    def write(self, key: np.ndarray, value: float) -> None:
        found = self.nearest(key)
        if found is None:
            self.keys.append(key)
            self.values.append(value)
        else:
            self.values[found] = max(self.values[found], value)

    def read(self, key: np.ndarray) -> float | None:
        found = self.nearest(key)
        return None if found is None else self.values[found]


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.sampled_from(RADII), st.sampled_from([0.0, 1e-3, 1.0, 300.0, 1e5]))
def test_lookup_finds_the_nearest_stored_key_within_the_radius_and_nothing_else(seed: int, radius: float, scale: float):
    rng = np.random.default_rng(seed)
    table = write(index.empty(4096, AXES), clustered(rng, N, radius, scale), np.zeros(N), radius)
    rng = np.random.default_rng(seed)  # the same centres again, other keys around them
    queries = clustered(rng, N, radius, scale)[::-1] + np.float32(0.3 * radius) * rng.normal(size=(N, AXES)).astype(np.float32)
    match = lookup(table, queries, np.ones(N, bool), radius=radius)
    held = stored_keys(table)
    answers = np.asarray(table.key)[np.asarray(match.bucket), :, np.asarray(match.way)]
    for query, answer, found in zip(queries.astype(np.float64), answers, np.asarray(match.found), strict=True):
        nearest = np.min(np.linalg.norm(held - query, axis=1))
        if abs(nearest - radius) > 1e-5 * radius:
            assert found == (nearest <= radius)
        if found:
            assert np.linalg.norm(answer - query) == pytest.approx(nearest, rel=1e-5, abs=1e-30)


def test_more_doubtful_keys_than_are_searched_at_once_are_all_searched():
    rng, radius, count = np.random.default_rng(0), 0.01, 3 * index.CHUNK + 7
    width = index.cell_width(radius)
    keys = (np.round(10 * rng.normal(size=(count, AXES)) / width) * width + 0.3 * radius).astype(np.float32)  # beside borders
    step = rng.normal(size=(count, AXES))
    queries = (keys + 0.9 * radius * step / np.linalg.norm(step, axis=1, keepdims=True)).astype(np.float32)
    table = insert(index.empty(100_000, AXES), keys, np.arange(count, dtype=np.float32), np.ones(count, bool), radius=radius)
    assert int(table.entries) == count
    home = index._bucket(table, index._cell(jnp.asarray(queries), radius))
    assert np.sum(home != index._bucket(table, index._cell(jnp.asarray(keys), radius))) > index.CHUNK  # across a border
    match = lookup(table, queries, np.ones(count, bool), radius=radius)
    assert np.all(match.found)
    np.testing.assert_array_equal(table.value[match.bucket, match.way], np.arange(count))


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.sampled_from(RADII[1:]), st.sampled_from([1e-3, 1.0, 300.0]))
def test_writing_key_after_key_equals_a_list_searched_from_end_to_end(seed: int, radius: float, scale: float):
    rng = np.random.default_rng(seed)
    keys, values = clustered(rng, 3 * N, radius, scale), rng.normal(size=3 * N).astype(np.float32)
    keys[N : N + 10] = keys[:10]
    table, twin = index.empty(4096, AXES), Twin(radius)
    for start in range(0, 3 * N, N):
        table = write(table, keys[start : start + N], values[start : start + N], radius)
        for key, value in zip(keys[start : start + N], values[start : start + N], strict=True):
            twin.write(key, float(value))
        assume(int(table.evictions) == 0)  # a cluster can outgrow its bucket
        assert int(table.entries) == len(twin.keys) == len(stored_keys(table))
        assert read(table, keys[start : start + N], radius) == [twin.read(key) for key in keys[start : start + N]]


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.lists(st.integers(0, 9), min_size=1, max_size=3 * N))
def test_a_better_return_is_never_forgotten_while_nothing_was_evicted(seed: int, visits: list[int]):
    rng = np.random.default_rng(seed)
    places, values = rng.normal(size=(10, AXES)).astype(np.float32), rng.normal(size=len(visits)).astype(np.float32)
    table, best = index.empty(4096, AXES), {}
    for start in range(0, len(visits), N):
        some = slice(start, start + N)
        table = write(table, places[visits[some]], values[some], 1e-4)
        for visit, value in zip(visits[some], values[some], strict=True):
            best[visit] = max(best.get(visit, -np.inf), float(value))
        assert read(table, places, 1e-4) == [best.get(place) for place in range(10)]
    assert int(table.evictions) == 0
    assert int(table.entries) == len(best)


@settings(max_examples=100, deadline=None)
@given(SEEDS, st.sampled_from([0.0, 1e-5, 1e-4, 3e-4, 0.01, 0.3]), st.floats(-6, 9))
def test_the_two_cells_of_an_axis_hold_every_float_within_the_radius(seed: int, radius: float, magnitude: float):
    rng = np.random.default_rng(seed)
    keys = (rng.choice([-1, 1], size=(500, 1)) * 10.0**magnitude * rng.uniform(0.5, 2, size=(500, 1))).astype(np.float32)
    width = index.cell_width(radius)
    keys[:250] = np.round(keys[:250] / width) * width  # on borders
    keys[:50] = np.sign(keys[:50]) * 2.0 ** np.round(np.log2(np.abs(keys[:50]) + 1e-30))  # where the spacing of floats changes
    offsets = radius * rng.choice([-1, -0.999, -0.5, 0, 0.5, 0.999, 1], size=(500, 1))
    others = (keys.astype(np.float64) + offsets).astype(np.float32)
    near = np.abs(others.astype(np.float64) - keys) <= radius * (1 + 1e-6)
    keys, others = jnp.asarray(keys), jnp.asarray(others)
    cell, home, beside = index._cell(others, radius), index._cell(keys, radius), index._beside(keys, radius, radius)
    assert np.all(np.asarray((cell == home) | (cell == beside)) | ~near)


def test_a_key_is_visible_to_the_next_key_of_the_same_batch():
    key = [0.1, -0.2, 0.3, -0.4]
    table = write(index.empty(4096, AXES), [key, key, key], [-5.0, -2.0, -3.0], 1e-4)
    assert int(table.entries) == 1
    assert read(table, [key], 1e-4) == [-2.0]


def test_a_hit_keeps_the_first_key_so_that_entries_never_wander():
    start, step = np.zeros(AXES), np.array([0.6e-4, 0, 0, 0])
    table = write(index.empty(4096, AXES), [start, start + step, start + 2 * step], [1.0, 2.0, 3.0], 1e-4)
    assert int(table.entries) == 2  # the third is 1.2 radii from the first
    assert read(table, [start, start + 2 * step], 1e-4) == [2.0, 3.0]


def test_negative_zero_and_zero_are_one_key():
    table = write(index.empty(4096, AXES), [[0.0] * AXES], [1.0], 0.0)
    assert read(table, [[-0.0] * AXES], 0.0) == [1.0]


def test_a_radius_of_zero_asks_for_equal_keys():
    key = np.full(AXES, 0.7, np.float32)
    table = write(index.empty(4096, AXES), [key], [1.0], 0.0)
    assert read(table, [key, np.nextafter(key, np.float32(1))], 0.0) == [1.0, None]


def test_keys_that_are_unwanted_or_not_finite_are_neither_written_nor_found():
    rows = np.zeros((N, AXES), np.float32)
    rows[0], rows[1], rows[2] = 1.0, np.nan, [1.0, np.inf, 1.0, 1.0]
    wanted = np.arange(N) < 3
    table = insert(index.empty(4096, AXES), rows, np.ones(N, np.float32), wanted, radius=1e-4)
    assert int(table.entries) == 1
    assert int(table.clock) == 1
    match = lookup(table, rows, np.ones(N, bool), radius=1e-4)
    assert np.flatnonzero(match.found).tolist() == [0]
    assert not np.any(lookup(table, rows, np.zeros(N, bool), radius=1e-4).found)


def test_a_table_of_one_bucket_forgets_the_least_recently_used():
    rng = np.random.default_rng(0)
    keys = rng.normal(size=(200, AXES)).astype(np.float32)
    slots = 8
    table, used = index.empty(slots, AXES), list[int]()  # least recently used first
    for _ in range(300):
        i = int(rng.integers(200))
        if rng.random() < 0.5:
            table = write(table, [keys[i]], [float(i)], 1e-4)
            used = [*(j for j in used if j != i), i][-slots:]
        elif used:
            j = used[int(rng.integers(len(used)))]
            rows, _, wanted = padded([keys[j]])
            table = refresh(table, lookup(table, rows, wanted, radius=1e-4))
            used = [*(k for k in used if k != j), j]
        else:
            continue
        asked = rng.integers(200, size=20).tolist() + used
        assert read(table, keys[asked], 1e-4) == [float(j) if j in used else None for j in asked]
    assert int(table.entries) == slots
    assert int(table.evictions) > 20


def test_eviction_outlives_the_wrap_of_the_clock():
    keys = np.random.default_rng(0).normal(size=(index.WAYS + 8, AXES)).astype(np.float32)
    table = index.empty(index.WAYS, AXES)
    table = eqx.tree_at(lambda t: t.clock, table, jnp.uint32(2**32 - 10))
    table = write(table, keys, np.arange(len(keys)), 1e-4)
    assert int(table.clock) == index.WAYS + 8 - 10
    assert [value is None for value in read(table, keys, 1e-4)] == [i < 8 for i in range(len(keys))]


@pytest.mark.parametrize("capacity", [8, 64])
def test_a_full_table_still_finds_all_it_holds(capacity: int):
    rng = np.random.default_rng(capacity)
    keys = rng.normal(size=(10 * N, AXES)).astype(np.float32)
    table = index.empty(capacity, AXES)
    slots = table.value.size
    assert slots == capacity
    for start in range(0, len(keys), N):
        table = write(table, keys[start : start + N], np.arange(start, start + N), 1e-4)
        assert read(table, keys[[start + N - 1]], 1e-4) == [float(start + N - 1)]
    assert int(table.entries) == slots == len(stored_keys(table))
    assert int(table.entries) + int(table.evictions) == len(keys)
    known = [value for start in range(0, len(keys), N) for value in read(table, keys[start : start + N], 1e-4)]
    assert sum(value is not None for value in known) == slots
    assert all(value in (None, i) for i, value in enumerate(known))


def test_a_crowded_cell_keeps_its_latest_keys_and_counts_the_others():
    grid = np.stack(np.meshgrid(*[np.arange(4)] * AXES), axis=-1).reshape(-1, AXES)[:N]
    keys = (0.25 + 1.2e-4 * (grid + 0.5)).astype(np.float32)  # further apart than the radius, and yet in one cell
    assert len(np.unique(np.asarray(index._cell(jnp.asarray(keys), 1e-4)), axis=0)) == 1
    table = write(index.empty(4096, AXES), keys, np.arange(N), 1e-4)
    assert int(table.entries) == index.WAYS
    assert int(table.evictions) == N - index.WAYS
    assert read(table, keys, 1e-4) == [None] * (N - index.WAYS) + [float(i) for i in range(N - index.WAYS, N)]


def test_tables_under_vmap_answer_like_tables_alone():
    rng, radius = np.random.default_rng(0), 0.3
    keys = np.stack([clustered(rng, N, radius, 1.0) for _ in range(3)])
    values, wanted = rng.normal(size=(3, N)).astype(np.float32), rng.random((3, N)) < np.array([[0.9], [0.1], [0.5]])
    queries = keys + np.float32(0.4 * radius) * rng.normal(size=keys.shape).astype(np.float32)

    def use(table: index.Table, keys, values, wanted, queries):
        table = index.insert(table, keys, values, wanted, radius)
        match = index.lookup(table, queries, wanted, radius)
        return index.refresh(table, match), match

    tables = jax.tree.map(lambda x: jnp.stack([x] * 3), index.empty(4096, AXES))
    together, matches = jax.jit(jax.vmap(use))(tables, keys, values, wanted, queries)
    for i in range(3):
        table = insert(index.empty(4096, AXES), keys[i], values[i], wanted[i], radius=radius)
        match = lookup(table, queries[i], wanted[i], radius=radius)
        for one, all_of in zip(jax.tree.leaves(refresh(table, match)), jax.tree.leaves(together), strict=True):
            np.testing.assert_array_equal(one, all_of[i])
        np.testing.assert_array_equal(match.found, matches.found[i])
        found = np.asarray(match.found)
        assert 0 < np.sum(found) < np.sum(wanted[i])
        np.testing.assert_array_equal(np.asarray(match.bucket)[found], np.asarray(matches.bucket[i])[found])
        np.testing.assert_array_equal(np.asarray(match.way)[found], np.asarray(matches.way[i])[found])


@pytest.mark.parametrize("tables", [0, 3], ids=["alone", "under vmap"])
def test_inside_a_donated_loop_the_table_is_written_in_place(tables: int):
    def use(table: index.Table, keys):
        def turn(i, table: index.Table) -> index.Table:
            table = index.insert(table, keys + i, keys[:, 0], keys[:, 1] > 0, 1e-4)
            return index.refresh(table, index.lookup(table, keys, keys[:, 0] > 0, 1e-4))

        return jax.lax.fori_loop(0, 5, turn, table)

    table, keys = index.empty(1_000_000, AXES), jnp.ones((N, AXES))
    if tables:
        use = jax.vmap(use)
        table, keys = (jax.tree.map(lambda x: jnp.stack([x] * tables), tree) for tree in (table, keys))
    compiled = jax.jit(use, donate_argnums=0).lower(table, keys).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 0.1 * bytes_of(table)
    before = table.key.unsafe_buffer_pointer()
    assert compiled(table, keys).key.unsafe_buffer_pointer() == before


def test_random_keys_fill_half_the_table_before_one_in_a_thousand_is_evicted():
    keys = np.random.default_rng(0).normal(size=(50_000, AXES)).astype(np.float32)
    filled = jax.jit(lambda table, keys: index.insert(table, keys, keys[:, 0], jnp.ones(len(keys), bool), 1e-4), compiler_options=WHOLE)
    table = filled(index.empty(100_000, AXES), keys)
    assert int(table.evictions) < 1e-3 * len(keys)
    table = filled(table, -keys)
    assert 0.08 < int(table.evictions) / 100_000 < 0.12
