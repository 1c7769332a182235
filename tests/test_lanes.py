"""Lanes: where every moment stands, what a loop along them computes, and how much of it there is."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from emc.lanes import ACCELERATOR_BLOCK, BLOCK, MOST_ROWS, Lanes, Layout, ahead, along, arrange, backwards, fold, lay_episodes, layout_for
from emc.losses import TD
from emc.losses.fitting import ValueFunction
from emc.mixers import VDN
from emc.parts import Actors, Mixed, Nets, Policy
from emc.policies import RecurrentQ
from emc.sampling import Uniform
from emc.training.replay import Replay
from emc.types import AgentValues, Episodes
from tests.twins import (
    SPEC,
    along_steps,
    as_numpy,
    assert_close,
    assert_trees_close,
    at,
    bits,
    by_moment,
    filled,
    laid,
    quick,
    random_episodes,
    stacked,
    stretched,
)

LIMIT = 21
WIDTH = 3
SIZES = [(1, 1), (4, 1), (5, 2), (7, 3), (9, 4), (8, 8)]  # episodes and lanes
lengths_and_lanes = st.sampled_from(SIZES).flatmap(
    lambda size: st.tuples(st.lists(st.integers(0, LIMIT), min_size=size[0], max_size=size[0]), st.just(size[1]))
)


@functools.partial(quick, static_argnums=(1, 2))
def places(length: jax.Array, limit: int, lanes: int) -> Any:
    return arrange(length, limit, Layout(lanes, BLOCK))


@hypothesis.settings(max_examples=80, deadline=None)
@hypothesis.given(lengths_and_lanes)
def test_every_moment_of_every_episode_stands_once_and_is_followed_by_the_next(drawn: tuple[list[int], int]) -> None:
    lengths, lanes = drawn
    found = jax.tree.map(np.asarray, places(np.array(lengths), LIMIT, lanes))
    each = -(-len(lengths) // lanes)
    size = found.time.shape[0]
    assert found.episode.shape == found.time.shape == found.first.shape == (size, lanes)
    assert size % (BLOCK if each * (LIMIT + 1) > 2 * BLOCK else each * (LIMIT + 1)) == 1  # whole blocks, and a moment to look ahead to
    assert size > each * (LIMIT + 1)
    inside = found.episode < len(lengths)
    moments = sorted((int(e), int(t)) for e, t in zip(found.episode[inside], found.time[inside], strict=True))
    assert moments == [(e, t) for e, length in enumerate(lengths) for t in range(length + 1)]
    assert not np.any(found.time[~inside])
    np.testing.assert_array_equal(found.first, inside & (found.time == 0))
    for lane in range(lanes):
        used = int(np.sum(inside[:, lane]))
        assert np.all(inside[:used, lane])  # end to end
        assert found.first[0, lane]
        for m in range(used):
            e, t = found.episode[m, lane], found.time[m, lane]
            if t < lengths[e]:
                assert (found.episode[m + 1, lane], found.time[m + 1, lane]) == (e, t + 1)
    assert found.longest == np.max(np.sum(inside, axis=0))
    assert found.longest <= each * (LIMIT + 1)  # so what is reserved for full episodes is always enough
    assert found.longest <= sum(length + 1 for length in lengths) / lanes + max(lengths) + 1
    if lanes == len(lengths):
        assert found.longest == max(lengths) + 1


def test_the_longest_is_placed_first_and_each_next_one_where_most_room_is_left() -> None:
    lengths = [5, 14, 2, 9, 4, 3]
    found = as_numpy(places(np.array(lengths), LIMIT, 3))
    rows = [[(int(e), int(t)) for e, t in zip(found.episode[:, lane], found.time[:, lane], strict=True)] for lane in range(3)]
    starts = [[e for e, t in row if e < 6 and t == 0] for row in rows]
    assert starts == [[1], [3, 5], [0, 4, 2]]  # 14; 9 and 3; 5, 4 and 2
    assert int(found.longest) == 14 + 1


@pytest.mark.parametrize(
    ("episodes", "agents", "usual", "asked", "expected"),
    [
        (32, 2, 1.0, 0, 32),
        (32, 2, 0.4, 0, 16),
        (32, 10, 0.4, 0, 8),
        (32, 100, 1.0, 0, 1),
        (32, 200, 0.4, 0, 1),
        (8, 2, 1.0, 3, 3),
        (2, 2, 1.0, 7, 2),
    ],
)
def test_a_processor_gets_about_so_many_agents_side_by_side_unless_lanes_are_asked_for(
    episodes: int, agents: int, usual: float, asked: int, expected: int
) -> None:
    assert layout_for(episodes, agents, usual, asked) == Layout(expected, BLOCK)
    assert asked or expected == 1 or expected * agents <= MOST_ROWS
    assert layout_for(episodes, agents, usual, asked, block=7).block == 7


def test_an_accelerator_gets_a_lane_for_each_episode_and_large_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert layout_for(32, 27, 0.4) == Layout(32, ACCELERATOR_BLOCK)
    assert layout_for(32, 27, 0.4, lanes=4, block=16) == Layout(4, 16)


def batch_of(seed: int, lengths: Sequence[int], limit: int) -> Episodes:
    return random_episodes(seed, lengths, spec=dataclasses.replace(SPEC, episode_limit=limit))


@functools.partial(quick, static_argnums=1)
def lay_quickly(episodes: Episodes, lanes: int) -> Lanes:
    return laid(episodes, lanes)


@functools.partial(quick, static_argnums=1)
def there_and_back(episodes: Episodes, lanes: int, values: jax.Array) -> tuple[Lanes, dict[str, jax.Array]]:
    """Lanes, and what they hold in padded rows again."""
    got = laid(episodes, lanes)
    back = {
        name: by_moment(got, vars(got)[name])
        for name in ("state", "inputs", "available", "choice")
        if not isinstance(vars(got)[name], tuple)
    }
    back |= {name: got.by_episode(vars(got)[name]) for name in ("action", "reward", "terminated", "played")}
    given = along_steps(got, values)
    back |= {"given": got.by_episode(given), "reached": got.by_episode(ahead(got.state))}
    return got, back | {"sums": got.per_episode(jnp.where(got.played, got.reward, 1e4))}


@hypothesis.settings(max_examples=25, deadline=None)
@hypothesis.given(
    lengths=st.lists(st.integers(1, LIMIT), min_size=5, max_size=5), lanes=st.sampled_from([1, 2, 5]), seed=st.integers(0, 10_000)
)
def test_what_is_laid_is_what_was_played_and_zero_elsewhere(lengths: list[int], lanes: int, seed: int) -> None:
    batch = batch_of(seed, lengths, LIMIT)
    batch = dataclasses.replace(batch, choice=jax.device_put(np.random.default_rng(seed).integers(1, 9, (5, LIMIT, 2)).astype(np.int8)))
    values = np.random.default_rng(seed + 1).normal(size=(5, LIMIT, 2)).astype(np.float32)
    got, back = as_numpy(there_and_back(batch, lanes, jax.device_put(values)))
    batch = as_numpy(batch)
    np.testing.assert_array_equal(got.length, lengths)
    np.testing.assert_array_equal(back["inputs"][..., : SPEC.obs_size], batch.obs)
    for name in ("state", "available", "action", "reward", "terminated", "played"):
        np.testing.assert_array_equal(back[name], vars(batch)[name])
    played = np.asarray(batch.played)[..., None]
    np.testing.assert_array_equal(back["given"], values * played)  # whatever is laid along lanes comes back as it was
    np.testing.assert_array_equal(back["reached"], np.asarray(batch.state)[:, 1:] * played)  # for a step, what it led to
    before, owner = np.split(back["inputs"][..., SPEC.obs_size :], [SPEC.n_actions], axis=-1)
    for b, length in enumerate(lengths):
        assert not np.any(before[b, 0])
        np.testing.assert_array_equal(before[b, 1 : length + 1], np.eye(3)[np.asarray(batch.action[b, :length])])
        np.testing.assert_array_equal(owner[b, : length + 1], np.broadcast_to(np.eye(2), (length + 1, 2, 2)))
        choice = back["choice"][b]
        np.testing.assert_array_equal(choice[:length], batch.choice[b, :length])
        np.testing.assert_array_equal(choice[length], batch.choice[b, length - 1])
    outside, unplayed = ~np.asarray(got.inside), ~np.asarray(got.played)
    for track in (got.inputs, got.state, got.available, got.choice):
        assert not np.any(np.asarray(track)[outside])
    for track in (got.action, got.reward, got.terminated):
        assert not np.any(np.asarray(track)[unplayed])
    assert int(got.moments) == np.max(np.sum(~outside, axis=0))
    assert_close(back["sums"], np.sum(np.asarray(batch.reward, np.float64), axis=1), 1e-5)


@pytest.mark.parametrize(("dtype", "lanes"), [("float32", 1), ("float32", 5), ("bool", 3), ("uint8", 3), ("bfloat16", 3), ("float16", 5)])
def test_stored_episodes_are_laid_bit_for_bit_as_padded_ones(dtype: str, lanes: int) -> None:
    flags = {"obs_flags": (1,), "state_flags": (0, 2)} if dtype in ("bfloat16", "float16") else {}  # as battles have it
    spec = dataclasses.replace(SPEC, episode_limit=LIMIT, obs_dtype=dtype, state_dtype=dtype, **flags)
    whole, rng = random_episodes(7, [LIMIT, 1, 8, 13, 2], [True, False, True, False, False], spec), np.random.default_rng(0)

    def stored_as(x: jax.Array, places: tuple[int, ...]) -> jax.Array:
        array = np.array(np.round(np.abs(x)) if dtype in ("bool", "uint8") else x, jnp.dtype(dtype))
        array[..., list(places)] = array[..., list(places)] > 0
        return jax.device_put(array)

    obs, state = stored_as(whole.obs, spec.obs_flags), stored_as(whole.state, spec.state_flags)
    choice = jax.device_put((rng.integers(1, 9, (5, LIMIT)) * np.asarray(whole.played)).astype(np.int8))
    batch = dataclasses.replace(whole, obs=obs, state=state, choice=choice)
    ring = quick(lambda batch: Replay.empty(spec, 5, jnp.int8(0)).add(batch, Uniform()))(batch)
    rows = jnp.array([3, 0, 4, 1, 2])
    stored = quick(lambda ring: ring.lay(rows, Layout(lanes, BLOCK), RecurrentQ()))(ring)
    padded = lay_quickly(jax.device_put(jax.tree.map(lambda x: np.asarray(x)[np.asarray(rows)], batch)), lanes)
    assert jax.tree.structure(stored) == jax.tree.structure(padded)
    assert bits(stored) == bits(padded)


def test_more_padding_changes_no_moment() -> None:
    batch = batch_of(1, [5, 1, 9, 3], 9)
    short, long = lay_quickly(batch, 2), lay_quickly(stretched(batch, 30), 2)
    assert int(short.moments) == int(long.moments)
    for name in ("inputs", "state", "available", "action", "reward", "terminated", "played", "first", "time", "episode"):
        a, b = (np.asarray(vars(x)[name]) for x in (short, long))
        np.testing.assert_array_equal(a[: int(short.moments)], b[: int(short.moments)])


# Loops along lanes against the plain computation on whole arrays.


def work(weights: Any, tracks: Any, fixed: Any, data: Any) -> tuple[jax.Array, jax.Array]:
    """Something of everything, within a moment and from one to the next."""
    before, after = data[:-1], data[1:]
    mixed = jnp.tanh(tracks @ weights["square"] + before * fixed) * after
    return mixed, jnp.sum(mixed * weights["row"], axis=-1)


def running(weights: Any, carry: jax.Array, tracks: Any, fixed: Any, data: Any) -> tuple[jax.Array, jax.Array]:
    """Something that remembers."""

    def one(h: jax.Array, at: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        h = jnp.tanh(h * weights["row"] + at[0] @ weights["square"] + fixed * at[1])
        return h, h

    return jax.lax.scan(one, carry, (tracks, data[:-1]))


def numbers(seed: int, size: int, lanes: int = 2) -> tuple[Any, jax.Array, jax.Array, jax.Array, jax.Array]:
    rng = np.random.default_rng(seed)
    weights = {"square": rng.normal(size=(WIDTH, WIDTH)), "row": rng.normal(size=WIDTH)}
    rest = (
        rng.normal(size=(size, lanes, WIDTH)),
        rng.normal(size=WIDTH),
        rng.normal(size=(size, lanes, WIDTH)),
        rng.normal(size=(lanes, WIDTH)),
    )
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (weights, *rest))


def reads(seed: int, moments: jax.Array, *tracks: jax.Array) -> jax.Array:
    """A number that depends on every moment of the lanes and on none beyond their end."""
    total = jnp.zeros(())
    for i, track in enumerate(tracks):
        share = jnp.asarray(np.random.default_rng(seed + i).normal(size=track.shape), jnp.float32)
        there = (jnp.arange(track.shape[0]) < moments).reshape(-1, *[1] * (track.ndim - 1))
        total += jnp.sum(jnp.where(there, share * track, 0.0))
    return total


def along_in_one(weights: Any, tracks: Any, fixed: Any, data: Any) -> Any:
    """The plain computation: all moments at once."""
    out = work(weights, tracks[:-1], fixed, data)
    return jax.tree.map(lambda x: jnp.concatenate([x, jnp.zeros_like(x[:1])]), out)


def lanes_of(lengths: jax.Array, limit: int = LIMIT, lanes: int = 2) -> Lanes:
    """Episodes of such lengths that show nothing."""
    batch = Episodes(
        obs=jnp.zeros((lengths.shape[0], limit + 1, 1, 1)),
        state=jnp.zeros((lengths.shape[0], limit + 1, 1)),
        available=jnp.ones((lengths.shape[0], limit + 1, 1, 1), bool),
        action=jnp.zeros((lengths.shape[0], limit, 1), jnp.int32),
        reward=jnp.zeros((lengths.shape[0], limit)),
        terminated=jnp.zeros((lengths.shape[0], limit), bool),
        played=jnp.arange(limit) < lengths[:, None],
    )
    return lay_episodes(batch, Layout(lanes, BLOCK), functools.partial(RecurrentQ().inputs, n_actions=1))


def both_along(lengths: jax.Array, seed: jax.Array, given: Any) -> tuple[Any, Any]:
    """Value and slopes of what is computed along lanes: block by block, and in one piece."""
    lanes = lanes_of(lengths)
    weights, tracks, fixed, data, _ = given

    def ours(weights: Any, tracks: Any) -> jax.Array:
        return reads(5, lanes.moments, *along(work, lanes, weights, tracks, fixed, data))

    def plain(weights: Any, tracks: Any) -> jax.Array:
        return reads(5, lanes.moments, *along_in_one(weights, tracks, fixed, data))

    return tuple(jax.value_and_grad(f, argnums=(0, 1))(weights, tracks) for f in (ours, plain))


def both_folded(lengths: jax.Array, seed: jax.Array, given: Any) -> tuple[Any, Any]:
    """The same of what is carried along; the last carry is that after all blocks."""
    lanes = lanes_of(lengths)
    weights, tracks, fixed, data, start = given
    size = tracks.shape[0]
    computed = -(-lanes.moments // BLOCK) * BLOCK

    def ours(weights: Any, tracks: Any, start: Any) -> jax.Array:
        last, out = fold(running, lanes, weights, start, tracks, fixed, data)
        return reads(5, lanes.moments, out) + jnp.sum(jnp.sin(last))

    def plain(weights: Any, tracks: Any, start: Any) -> jax.Array:
        out = running(weights, start, tracks[:-1], fixed, data)[1]
        last = jax.lax.dynamic_index_in_dim(out, computed - 1, keepdims=False)
        return reads(5, lanes.moments, jnp.concatenate([out, jnp.zeros((size - out.shape[0], *out.shape[1:]))])) + jnp.sum(jnp.sin(last))

    return tuple(jax.value_and_grad(f, argnums=(0, 1, 2))(weights, tracks, start) for f in (ours, plain))


SIZE = -(-3 * (LIMIT + 1) // BLOCK) * BLOCK + 1  # of the lanes below: three episodes each at most
quick_along, quick_folded = quick(both_along), quick(both_folded)
seeds_along, seeds_folded = quick(jax.vmap(both_along)), quick(jax.vmap(both_folded))
six = st.lists(st.integers(1, LIMIT), min_size=6, max_size=6)


@pytest.mark.parametrize("both", [quick_along, quick_folded], ids=["along", "fold"])
@hypothesis.settings(max_examples=15, deadline=None)
@hypothesis.given(lengths=six, seed=st.integers(0, 10_000))
def test_a_loop_along_lanes_has_the_value_and_the_derivative_of_the_whole(both: Any, lengths: list[int], seed: int) -> None:
    ours, plain = both(jnp.array(lengths), jnp.int32(seed), numbers(seed, SIZE))
    assert_trees_close(ours, plain, 1e-4)


@pytest.mark.parametrize("both", [seeds_along, seeds_folded], ids=["along", "fold"])
@hypothesis.settings(max_examples=8, deadline=None)
@hypothesis.given(lengths=st.tuples(six, six, six), seed=st.integers(0, 10_000))
def test_seeds_of_different_lengths_go_along_side_by_side_as_each_alone(both: Any, lengths: Sequence[list[int]], seed: int) -> None:
    given = stacked(*(numbers(seed + i, SIZE) for i in range(3)))
    ours, plain = both(np.array(lengths), np.arange(3), given)
    for i in range(3):
        assert_trees_close(*at(i, (ours, plain)), 1e-4)


def test_seeds_side_by_side_share_one_number_of_moments() -> None:
    lengths = jnp.array([[1, 1, 1, 1], [20, 3, 1, 1], [5, 5, 5, 5]])
    moments = quick(lambda each: lanes_of(each).moments)
    alone = [int(moments(each)) for each in lengths]
    together = quick(jax.vmap(lambda each: lanes_of(each).moments))(lengths)
    assert together.tolist() == [max(alone)] * 3
    assert len(set(alone)) == 3


def test_nothing_beyond_the_last_block_is_looked_at_and_it_counts_as_zero() -> None:
    weights, tracks, fixed, data, start = numbers(0, SIZE)
    lanes = quick(lanes_of)(jnp.array([2, 3, 1, 1, 1, 4]))
    computed = -(-int(lanes.moments) // BLOCK) * BLOCK
    assert computed + BLOCK < SIZE
    spoil = jnp.arange(SIZE)[:, None, None]
    bad_tracks, bad_data = jnp.where(spoil >= computed, jnp.nan, tracks), jnp.where(spoil > computed, jnp.nan, data)

    def ours(weights: Any, tracks: Any, start: Any, data: Any) -> tuple[jax.Array, Any]:
        out = along(work, lanes, weights, tracks, fixed, data)
        last, more = fold(running, lanes, weights, start, tracks, fixed, data)
        return reads(3, lanes.moments, *out, more) + jnp.sum(last), (out, more)

    run = quick(jax.value_and_grad(ours, argnums=(0, 1, 2), has_aux=True))
    clean, garbled = run(weights, tracks, start, data), run(weights, bad_tracks, start, bad_data)
    assert bits(clean) == bits(garbled)
    for track in jax.tree.leaves(clean[0][1]):
        assert np.any(np.asarray(track)[: int(lanes.moments)])
        assert not np.any(np.asarray(track)[computed:])
    assert not np.any(np.asarray(clean[1][1])[computed:])  # nor does a gradient flow there


def test_garbage_where_a_shorter_lane_has_ended_reaches_nothing_that_is_masked() -> None:
    """Beyond the end of its own lane, before that of the longest."""
    batch = batch_of(0, [9, 3, 2], 9)
    lanes = lay_quickly(batch, 3)
    outside = ~np.asarray(lanes.inside)[..., None]
    assert np.any(outside[: int(lanes.moments)])
    data = jnp.asarray(np.where(outside, np.nan, np.asarray(lanes.state)))

    def total(weights: jax.Array) -> jax.Array:
        out = along(lambda w, _, __, data: jnp.tanh(data[:-1] @ w), lanes, weights, data=data)
        return jnp.sum(jnp.where(lanes.played[..., None], out, 0.0))

    weights = jnp.asarray(np.random.default_rng(0).normal(size=(SPEC.state_size, 2)), jnp.float32)
    states = jnp.asarray(np.asarray(batch.state)[:, :-1][np.asarray(batch.played)])
    assert float(quick(total)(weights)) == pytest.approx(float(jnp.sum(jnp.tanh(states @ weights))), rel=1e-4)


def test_no_gradient_flows_to_what_is_fixed_or_data() -> None:
    weights, tracks, fixed, data, start = numbers(1, SIZE)
    lanes = quick(lanes_of)(jnp.array([4, 9, 2, 1, 1, 1]))

    def total(fixed: Any, data: Any) -> jax.Array:
        last, out = fold(running, lanes, weights, start, tracks, fixed, data)
        return reads(0, lanes.moments, *along(work, lanes, weights, tracks, fixed, data), out) + jnp.sum(last)

    assert not any(np.any(np.asarray(leaf)) for leaf in quick(jax.grad(total, argnums=(0, 1)))(fixed, data))


def test_going_backwards_meets_the_moments_from_the_last_to_the_first() -> None:
    batch = batch_of(3, [5, 2, 1, 7, 7], 9)
    lanes = lay_quickly(batch, 2)
    rewards = np.asarray(lanes.reward, np.float64)
    last = int(lanes.moments)
    step = quick(lambda lanes: backwards(lambda later, at: 0.9 * later * at[1] + at[0], lanes, jnp.zeros(2), (lanes.reward, lanes.played)))
    sums = step(lanes)
    expected = np.zeros_like(rewards)
    for m in reversed(range(last)):
        expected[m] = rewards[m] + 0.9 * (expected[m + 1] if m + 1 < last else 0.0) * np.asarray(lanes.played)[m]
    assert_close(sums, expected, 1e-5)
    assert not np.any(np.asarray(sums)[last:])
    for b, length in enumerate([5, 2, 1, 7, 7]):
        whole = np.sum(0.9 ** np.arange(length) * np.asarray(batch.reward, np.float64)[b, :length])
        assert float(lanes.by_episode(sums)[b, 0]) == pytest.approx(whole, rel=1e-4, abs=1e-6)


# How much is computed.


@functools.partial(quick, static_argnums=(1, 2))
def counted(length: jax.Array, limit: int, lanes: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Blocks that a loop along lanes works through, how many of them its derivative does again, and moments of a recurrent network."""
    batch = lanes_of(length, limit, lanes)
    tracks = jnp.zeros((*batch.time.shape, 1))

    def count(weights: jax.Array, carry: jax.Array, tracks: Any, fixed: Any, data: Any) -> tuple[jax.Array, jax.Array]:
        return carry + weights, tracks[..., 0]  # the derivative of the last carry by the weights is the number of times

    def blocks(weights: jax.Array) -> jax.Array:
        return fold(count, batch, weights, jnp.zeros(()), tracks, (), ())[0]

    done, again = jax.value_and_grad(blocks)(jnp.ones(()))
    return done * BLOCK, again * BLOCK, batch.moments


def count_of(lengths: Sequence[int], limit: int, lanes: int) -> int:
    """Moments of each lane that are computed; all three ways of counting agree up to a block."""
    forth, back, steps = (int(x) for x in counted(np.array(lengths), limit, lanes))
    assert forth == back
    assert steps <= forth < steps + BLOCK
    return forth


def test_what_is_computed_does_not_grow_with_the_limit() -> None:
    lengths = [11, 3, 7, 20, 1, 16, 9, 5]
    assert len({count_of(lengths, limit, 3) for limit in (20, 50, 400)}) == 1
    assert count_of([50] * 8, 50, 3) > 2 * count_of(lengths, 50, 3)  # it could


def test_what_is_computed_grows_with_what_was_played() -> None:
    once, twice = count_of([40, 31, 39, 20], 200, 2), count_of([80, 62, 78, 40], 200, 2)
    assert 2 * once - 2 * BLOCK <= twice <= 2 * once + 2 * BLOCK
    more = count_of([40, 31, 39, 20] * 2, 200, 2)  # as many more episodes
    assert 2 * once - 2 * BLOCK <= more <= 2 * once + 2 * BLOCK


def test_one_very_long_episode_among_short_ones_costs_little_more_than_the_sum() -> None:
    lengths = [300] + [9] * 31
    moments, padded = sum(length + 1 for length in lengths), 301 * 32
    for lanes in (2, 4, 8):
        count = count_of(lengths, 300, lanes)
        assert count <= moments / lanes + 301 + BLOCK
        assert lanes * count < 0.3 * padded
    assert count_of([300] + [9] * 3, 300, 4) < 301 + BLOCK  # in lanes beside it short ones cost nothing


@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(lengths=st.lists(st.integers(1, 60), min_size=12, max_size=12), lanes=st.sampled_from([1, 3, 5, 12]))
def test_what_is_computed_is_bounded_by_what_was_played_and_the_longest_episode(lengths: list[int], lanes: int) -> None:
    moments = sum(length + 1 for length in lengths)
    count = count_of(lengths, 60, lanes)
    assert moments / lanes <= count + BLOCK
    assert count <= moments / lanes + max(lengths) + 1 + BLOCK


CALLS: list[int] = []


@dataclasses.dataclass(frozen=True)
class Counting(VDN):
    """A sum that tells when it is asked: once for every moment of every lane."""

    def __call__(self, net: Any, values: AgentValues, state: jax.Array) -> Mixed:
        jax.debug.callback(lambda _: CALLS.append(1), state[0])
        return super().__call__(net, values, state)


def mixed_moments(lengths: Sequence[int], limit: int, lanes: int, policy: Policy = RecurrentQ(hidden=2)) -> int:
    """How many moments a mixer answers for in one step of learning: of the values, of the target, and of the values again for the slope."""
    batch = batch_of(0, lengths, limit)
    function = ValueFunction(policy, Counting(), TD(), optax.sgd(0.0), 0.9, 200)
    net = filled(lambda key: policy.init_net(key, SPEC), 0)
    state = function.start(Nets(net, (), ()))

    @quick
    def learn(batch: Episodes) -> Any:
        along_lanes = laid(batch, lanes)
        return function.update(state, along_lanes, along_lanes.reward, Actors(policy, net, ()))[2]["loss"], along_lanes.moments

    CALLS.clear()
    jax.block_until_ready(learn(batch))
    jax.effects_barrier()
    return len(CALLS)


def test_a_mixer_is_asked_about_what_was_played_and_not_about_padding() -> None:
    lengths = [7, 3, 12, 1]
    asked = mixed_moments(lengths, 100, 2)
    blocks = -(-(13 + 2) // BLOCK)  # the lanes hold 12 and 1, 7 and 3
    assert asked == 3 * blocks * BLOCK * 2
    assert mixed_moments(lengths, 1_000, 2) == asked
    assert mixed_moments(lengths, 12, 2) == 2 * 2 * 26  # lanes of at most 26 moments are one block, which is not computed again
    assert mixed_moments([2 * length for length in lengths], 100, 2) <= 2 * asked
    assert mixed_moments([100] * 4, 100, 2) > 10 * asked  # it could be as much
