"""Episodic memory against episodes computed by hand and against a plain dictionary."""

from __future__ import annotations

import functools
import io

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emc.memory import EpisodicMemory, NoMemory
from emc.parts import Recollection
from emc.types import EnvSpec, Episodes, bytes_of
from tests.twins import laid, stacked

LIMIT = 5
SPEC = EnvSpec(n_agents=1, n_actions=1, obs_size=1, state_size=8, episode_limit=LIMIT)
MEMORY = EpisodicMemory(capacity=256)
PLACES = np.eye(8, dtype=np.float32)  # one state per place


@functools.partial(jax.jit, static_argnums=(0, 3))
def observe(memory, state, fresh, gamma: float = 0.5):
    return memory.observe(state, fresh, gamma)


@functools.partial(jax.jit, static_argnums=(0, 3))
def recall(memory, state, batch, gamma: float = 0.5):
    return recall_in_lanes(memory, state, batch, gamma)


def recall_in_lanes(memory, state, batch, gamma: float):
    """What is recalled of padded episodes, padded too; nothing is where no step is."""
    lanes = laid(batch)
    state, recalled = memory.recall(state, lanes, gamma)
    known = lanes.by_episode(recalled.known) | jnp.any(recalled.known & ~lanes.played)
    return state, Recollection(lanes.by_episode(recalled.target), known)


def begin(memory=MEMORY, spec: EnvSpec = SPEC, seed: int = 0):
    return memory.init(jax.random.key(seed), spec)


def rows_of(states, rewards, terminated: bool, limit: int = LIMIT) -> Episodes:
    """One episode (states around the rewards), padded with zeros."""
    length = len(rewards)
    states = np.asarray(states)
    assert len(states) == length + 1

    def pad(x, size: int):
        return jnp.asarray(np.concatenate([x, np.zeros((size - len(x), *x.shape[1:]), x.dtype)])[None])

    return Episodes(
        obs=jnp.zeros((1, limit + 1, 1, 1), jnp.float32),
        state=pad(states, limit + 1),
        available=jnp.ones((1, limit + 1, 1, 1), bool),
        action=jnp.zeros((1, limit, 1), jnp.int32),
        reward=pad(np.asarray(rewards, np.float32), limit),
        terminated=pad(np.arange(length) == (length - 1 if terminated else -1), limit),
        played=pad(np.ones(length, bool), limit),
    )


def episode(places: list[int], rewards: list[float], terminated: bool = True) -> Episodes:
    return rows_of(PLACES[places], rewards, terminated)


def together(*episodes: Episodes) -> Episodes:
    return jax.device_put(jax.tree.map(lambda *x: np.concatenate(x), *episodes))


def targets(recollection) -> list[list[float | None]]:
    return [
        [float(value) if known else None for value, known in zip(*row, strict=True)]
        for row in zip(np.asarray(recollection.target), np.asarray(recollection.known), strict=True)
    ]


def test_three_steps_by_hand():
    played = episode([0, 1, 2, 3], [1.0, 2.0, 4.0])
    state = observe(MEMORY, begin(), played)
    # Returns: 4 from place 2, 2 + 4/2 = 4 from place 1, 1 + 4/2 = 3 from place 0, 0 at the end.
    _, recollection = recall(MEMORY, state, played)
    assert targets(recollection) == [[1 + 4 / 2, 2 + 4 / 2, 4 + 0 / 2, None, None]]
    _, backwards = recall(MEMORY, state, episode([3, 2, 1, 0], [0.0, 0.0, 0.0]))
    assert targets(backwards) == [[4 / 2, 4 / 2, 3 / 2, None, None]]
    assert float(MEMORY.metrics(state)["memory_entries"]) == 4


def test_a_state_remembers_the_best_of_all_visits():
    state = observe(MEMORY, begin(), episode([0, 1, 2], [0.0, 8.0]))
    state = observe(MEMORY, state, episode([3, 1, 4], [0.0, -1.0]))  # worse: no change
    ask = episode([5, 0, 1, 3], [0.0, 0.0, 0.0])
    assert targets(recall(MEMORY, state, ask)[1]) == [[2.0, 4.0, -0.25, None, None]]
    state = observe(MEMORY, state, episode([3, 1, 4], [0.0, 10.0]))  # better: raised
    assert targets(recall(MEMORY, state, ask)[1]) == [[2.0, 5.0, 2.5, None, None]]


def test_what_an_episode_wrote_is_visible_to_the_next_of_the_same_batch():
    state = observe(
        MEMORY, begin(), together(episode([0, 1, 2], [1.0, 2.0]), episode([0, 1, 3], [1.0, 4.0]), episode([0, 1, 2], [1.0, 0.0]))
    )
    assert float(MEMORY.metrics(state)["memory_entries"]) == 4
    assert targets(recall(MEMORY, state, episode([2, 0, 1], [0.0, 0.0]))[1])[0][:2] == [1.5, 2.0]


def test_a_state_passed_twice_in_one_episode_keeps_the_better_return():
    state = observe(MEMORY, begin(), episode([0, 1, 0, 2], [8.0, -8.0, 2.0]))
    assert float(MEMORY.metrics(state)["memory_entries"]) == 3
    # From place 0: 8 - 4 + 0.5 = 4.5 at first, 2 later; from place 1: -8 + 1.
    assert targets(recall(MEMORY, state, episode([2, 0, 1], [0.0, 0.0]))[1])[0][:2] == [2.25, -3.5]


def test_the_final_state_of_a_cut_episode_is_unknown():
    cut = episode([0, 1, 2], [-1.0, -2.0], terminated=False)
    state = observe(MEMORY, begin(), cut)
    assert targets(recall(MEMORY, state, cut)[1]) == [[-2.0, None, None, None, None]]
    ended = observe(MEMORY, begin(), episode([0, 1, 2], [-1.0, -2.0]))
    assert targets(recall(MEMORY, ended, cut)[1]) == [[-2.0, -2.0, None, None, None]]


@pytest.mark.parametrize("terminated", [True, False])
def test_an_episode_that_fills_its_row_ends_at_the_last_moment(terminated: bool):
    whole = episode([0, 1, 2, 3, 4, 5], [0.0] * LIMIT, terminated)
    state = observe(MEMORY, begin(), whole)
    assert targets(recall(MEMORY, state, whole)[1]) == [[0.0] * 4 + [0.0 if terminated else None]]


def test_padding_is_neither_written_nor_recalled():
    short = episode([0, 1], [1.0])
    state = observe(MEMORY, begin(), short)
    assert float(MEMORY.metrics(state)["memory_entries"]) == 2
    nothing = rows_of(np.zeros((2, 8), np.float32), [3.0], True)  # an all-zero state looks like padding, and is not
    assert targets(recall(MEMORY, state, nothing)[1]) == [[None] * 5]
    state = observe(MEMORY, state, nothing)
    assert float(MEMORY.metrics(state)["memory_entries"]) == 3
    assert targets(recall(MEMORY, state, nothing)[1]) == [[4.5, None, None, None, None]]
    assert targets(recall(MEMORY, state, short)[1]) == [[1.0, None, None, None, None]]
    dirty = eqx.tree_at(lambda e: e.reward, short, short.reward + 7.0 * ~short.played)
    assert targets(recall(MEMORY, observe(MEMORY, begin(), dirty), short)[1]) == [[1.0, None, None, None, None]]


def test_a_row_without_an_episode_writes_nothing():
    empty = jax.tree.map(jnp.zeros_like, episode([0, 1], [1.0]))
    assert float(MEMORY.metrics(observe(MEMORY, begin(), empty))["memory_entries"]) == 0


episodes_of_places = st.lists(
    st.tuples(st.lists(st.tuples(st.integers(0, 7), st.integers(-4, 4)), min_size=1, max_size=LIMIT), st.integers(0, 7), st.booleans()),
    min_size=3,
    max_size=3,
)


@settings(max_examples=40, deadline=None)
@given(st.lists(episodes_of_places, min_size=1, max_size=4), episodes_of_places)
def test_any_episodes_leave_what_a_dictionary_of_maxima_holds(batches, asked):
    def make(drawn) -> Episodes:
        return together(*(episode([*(p for p, _ in steps), last], [float(r) for _, r in steps], end) for steps, last, end in drawn))

    best: dict[int, float] = {}
    state = begin()
    for drawn in batches:
        state = observe(MEMORY, state, make(drawn))
        for steps, last, end in drawn:
            if end:
                best[last] = max(best.get(last, -np.inf), 0.0)
            later = 0.0
            for place, reward in reversed(steps):
                later = reward + 0.5 * later
                best[place] = max(best.get(place, -np.inf), later)
    state, recollection = recall(MEMORY, state, make(asked))
    expected = []
    for steps, last, _ in asked:
        reached = [*(place for place, _ in steps[1:]), last]
        row = [reward + 0.5 * best[place] if place in best else None for (_, reward), place in zip(steps, reached, strict=True)]
        expected.append(row + [None] * (LIMIT - len(row)))
    assert targets(recollection) == expected
    assert float(MEMORY.metrics(state)["memory_entries"]) == len(best)


def test_recalling_a_state_saves_it_from_eviction():
    memory = EpisodicMemory(capacity=16)
    spec = EnvSpec(n_agents=1, n_actions=1, obs_size=1, state_size=40, episode_limit=LIMIT)
    places = np.eye(40, dtype=np.float32)

    def visit(place: int) -> Episodes:
        return rows_of(places[[place, 39]], [float(place)], True)

    state = begin(memory, spec)
    for place in range(15):
        state = observe(memory, state, visit(place))
    state, _ = recall(memory, state, rows_of(places[[39, 0]], [0.0], True))  # leads to place 0, the oldest
    for place in range(15, 25):
        state = observe(memory, state, visit(place))
    answers = [targets(recall(memory, state, rows_of(places[[39, place]], [0.0], True))[1])[0][0] for place in range(25)]
    assert answers == [0.0] + [None] * 10 + [place / 2 for place in range(11, 25)]
    metrics = memory.metrics(state)
    assert {name: float(value) for name, value in metrics.items()} == {"memory_entries": 16, "memory_occupancy": 1, "memory_evictions": 10}


def test_a_wide_state_finds_itself_in_batches_of_another_shape():
    memory = EpisodicMemory(capacity=4096)
    spec = EnvSpec(n_agents=1, n_actions=1, obs_size=1, state_size=2000, episode_limit=7)
    states = np.random.default_rng(0).random((33, 8, 2000)).astype(np.float32)
    rows = [rows_of(one, [0.0] * 7, True, limit=7) for one in states]
    state = begin(memory, spec)
    for row in rows:
        state = observe(memory, state, row)
    assert float(memory.metrics(state)["memory_entries"]) == 33 * 8
    assert np.all(recall(memory, state, together(*rows))[1].known)


def test_the_radius_covers_the_rounding_of_wide_projections():
    states = (np.random.default_rng(0).random((401, 2000)) < 0.5).astype(np.float32)
    projection = np.asarray(begin(spec=EnvSpec(n_agents=1, n_actions=1, obs_size=1, state_size=2000, episode_limit=1)).projection)
    exact = states.astype(np.float64) @ projection
    for size in (1, 2, 31, 401):
        drift = np.asarray(jnp.matmul(states[:size], projection, precision=jax.lax.Precision.HIGHEST)) - exact[:size]
        assert np.max(np.linalg.norm(drift, axis=-1)) < 0.5 * MEMORY.radius


def test_states_that_differ_have_keys_of_their_own():
    """All joint positions of two agents on a grid of 11 by 12, as one-hot rows and columns stored as booleans."""
    memory = EpisodicMemory(capacity=20_000)
    place = np.concatenate([np.repeat(np.eye(11, dtype=bool), 6, axis=0), np.tile(np.eye(6, dtype=bool), (11, 1))], axis=1)
    joint = np.concatenate([np.repeat(place, 66, axis=0), np.tile(place, (66, 1))], axis=1)
    spec = EnvSpec(n_agents=2, n_actions=1, obs_size=1, state_size=34, episode_limit=4355, state_dtype="bool")
    state = observe(memory, begin(memory, spec), rows_of(joint, [0.0] * 4355, True, limit=4355))
    assert float(memory.metrics(state)["memory_entries"]) == 4356
    as_numbers = rows_of(joint.astype(np.float32), [0.0] * 4355, True, limit=4355)
    assert np.all(recall(memory, state, as_numbers)[1].known)


def test_the_projection_follows_the_seed_and_has_the_law_of_the_paper():
    spec = EnvSpec(n_agents=1, n_actions=1, obs_size=1, state_size=5000, episode_limit=1)
    first, again, other = (np.asarray(begin(spec=spec, seed=seed).projection) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.any(first == other)
    assert np.std(first) == pytest.approx(0.5, rel=0.02)
    assert np.mean(first) == pytest.approx(0, abs=0.02)


def test_seeds_under_vmap_remember_like_seeds_alone():
    batches = [episode([0, 1, 2], [1.0, 2.0]), episode([0, 1, 2, 3, 4, 5], [1.0] * LIMIT, terminated=False), episode([6, 7], [-1.0])]

    def run(key, batch: Episodes):
        state = MEMORY.observe(MEMORY.init(key, SPEC), batch, 0.5)
        return recall_in_lanes(MEMORY, state, batch, 0.5)

    keys = jax.random.split(jax.random.key(1), 3)
    every = jax.jit(jax.vmap(run))(keys, stacked(*batches))
    for i, batch in enumerate(batches):
        alone = recall(MEMORY, observe(MEMORY, MEMORY.init(keys[i], SPEC), batch), batch)
        for one, all_of in zip(jax.tree.leaves(alone), jax.tree.leaves(every), strict=True):
            np.testing.assert_allclose(one, np.asarray(all_of)[i], rtol=1e-6)


def test_a_training_loop_carries_the_memory_without_copying_it():
    memory = EpisodicMemory()

    def train(state, batch: Episodes):
        def turn(_, carry):
            state, total = carry
            state, recollection = recall_in_lanes(memory, memory.observe(state, batch, 0.9), batch, 0.9)
            return state, total + recollection.target

        return jax.lax.fori_loop(0, 3, turn, (state, jnp.zeros_like(batch.reward)))

    state, batch = begin(memory), episode([0, 1, 2], [1.0, 2.0])
    compiled = jax.jit(train, donate_argnums=0).lower(state, batch).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 0.01 * bytes_of(state)
    _, total = compiled(state, batch)
    np.testing.assert_allclose(total, [[3 * 2.8, 3 * 2, 0, 0, 0]], rtol=1e-6)


def test_the_state_is_plain_arrays_that_survive_a_file():
    state = observe(MEMORY, begin(), episode([0, 1, 2], [1.0, 2.0]))
    assert all(eqx.is_array(leaf) for leaf in jax.tree.leaves(state))
    file = io.BytesIO()
    np.savez(file, *jax.tree.leaves(state))
    file.seek(0)
    back = jax.tree.unflatten(jax.tree.structure(begin(seed=3)), [jnp.asarray(leaf) for leaf in np.load(file).values()])
    assert targets(recall(MEMORY, back, episode([5, 0, 1], [0.0, 0.0]))[1])[0][:2] == [1.0, 1.0]


def test_no_memory_knows_nothing_and_costs_nothing():
    memory, batch = NoMemory(), episode([0, 1, 2], [1.0, 2.0])
    state = memory.observe(memory.init(jax.random.key(0), SPEC), batch, 0.5)
    assert state == ()
    assert memory.loss_weight == 0.0
    assert memory.metrics(state) == {}
    assert targets(recall(memory, state, batch)[1]) == [[None] * LIMIT]
    assert not np.any(recall(memory, state, batch)[1].target)
    equations = jax.make_jaxpr(lambda b: memory.recall((), b, 0.5))(laid(batch)).eqns
    assert {equation.primitive.name for equation in equations} <= {"broadcast_in_dim"}


def test_the_weight_of_the_loss_is_a_field():
    assert EpisodicMemory(weight=0.01).loss_weight == 0.01
    assert hash(EpisodicMemory()) == hash(EpisodicMemory())


@pytest.mark.parametrize(
    ("fields", "advice"),
    [
        ({"capacity": 0}, "leave memory out"),
        ({"key_size": 0}, "1 to 8"),
        ({"key_size": 20}, "1 to 8"),
        ({"radius": -1.0}, "0.0 for equal keys"),
        ({"radius": float("nan")}, "0.0 for equal keys"),
        ({"radius": 1e-30}, "0.0 for equal keys"),
    ],
)
def test_impossible_sizes_are_refused_with_advice(fields, advice: str):
    with pytest.raises(ValueError, match=advice):
        EpisodicMemory(**fields)


def test_the_state_at_which_a_limit_cut_an_episode_is_written_only_on_request():
    cut = episode([0, 1, 2], [1.0, 2.0], terminated=False)
    for memory, entries in ((MEMORY, 2), (EpisodicMemory(capacity=256, write_cut_states=True), 3)):
        state = observe(memory, begin(memory), cut)
        assert float(memory.metrics(state)["memory_entries"]) == entries
        _, recalled = recall(memory, state, cut)
        assert recalled.known[0, :2].tolist() == [True, entries == 3]
