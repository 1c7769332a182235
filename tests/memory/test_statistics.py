"""Memories of means and bounds against a plain dictionary, and what a bound promises in worlds whose optimum is known."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emc.curiosity import Counts
from emc.errors import UserError
from emc.memory import EpisodicMemory
from emc.policies import RecurrentQ
from emc.types import EnvSpec, Episodes, bytes_of
from tests.twins import bits, stacked

PLACES, ACTIONS, LIMIT, GAMMA = 6, 3, 5, 0.5
SPEC = EnvSpec(n_agents=2, n_actions=ACTIONS, obs_size=1, state_size=PLACES, episode_limit=LIMIT)
BEST, MEAN, BOUND = (EpisodicMemory(capacity=512, statistic=statistic) for statistic in ("best", "mean", "bound"))
Move = tuple[int, tuple[int, int], float]  # from a place, by a joint action, for a reward
Path = tuple[list[Move], int, bool]  # moves, the place after them, whether the task ended there


def episodes(paths: list[Path]) -> Episodes:
    """Paths as padded rows."""
    rows, moments = len(paths), LIMIT + 1
    state, action = np.zeros((rows, moments, PLACES), np.float32), np.zeros((rows, LIMIT, 2), np.int32)
    reward, terminated, played = np.zeros((rows, LIMIT), np.float32), np.zeros((rows, LIMIT), bool), np.zeros((rows, LIMIT), bool)
    for row, (moves, last, ended) in enumerate(paths):
        for t, (place, joint, gain) in enumerate(moves):
            state[row, t, place], action[row, t], reward[row, t], played[row, t] = 1.0, joint, gain, True
        state[row, len(moves), last] = 1.0
        terminated[row, len(moves) - 1] = ended
    return Episodes(
        obs=jnp.zeros((rows, moments, 2, 1)),
        state=jnp.asarray(state),
        available=jnp.ones((rows, moments, 2, ACTIONS), bool),
        action=jnp.asarray(action),
        reward=jnp.asarray(reward),
        terminated=jnp.asarray(terminated),
        played=jnp.asarray(played),
    )


@functools.partial(jax.jit, static_argnums=0)
def observe(memory: EpisodicMemory, state: Any, fresh: Episodes) -> Any:
    return memory.observe(state, fresh, GAMMA)


def begin(memory: EpisodicMemory, seed: int = 0) -> Any:
    return memory.init(jax.random.key(seed), SPEC)


def remembered(state: Any, place: int) -> float | None:
    """H of a place, read without the memory's own search."""
    key = np.asarray(state.projection)[place]
    away = np.linalg.norm(np.moveaxis(np.asarray(state.table.key), 1, 2) - key, axis=-1)
    nearest = np.unravel_index(np.argmin(away), away.shape)
    return float(np.asarray(state.table.value)[nearest]) if away[nearest] < 1e-3 else None


class Twin:
    """The same statistics in plain Python."""

    def __init__(self, pessimism: float = 1.0):
        self.c = pessimism
        self.best: dict[int, float] = {}
        self.returns: dict[int, tuple[int, float]] = {}  # how many, and their sum
        self.pairs: dict[tuple[int, tuple[int, int]], dict[str, Any]] = {}
        self.champion: dict[int, tuple[tuple[int, int], float]] = {}
        self.chancy: set[int] = set()
        self.squares = self.recurrences = 0.0

    def mean(self, place: int) -> float:
        number, total = self.returns[place]
        return total / number

    def bound(self, place: int) -> float:
        mean = self.mean(place)
        return max(mean, self.champion[place][1]) if place in self.champion else mean

    def visit(self, place: int, returned: float) -> None:
        self.best[place] = max(self.best.get(place, -math.inf), returned)
        number, total = self.returns.get(place, (0, 0.0))
        self.returns[place] = number + 1, total + returned

    def write(self, paths: list[Path]) -> None:
        # The places at which limits cut episodes are looked up before anything of a batch is written.
        beyond = [(self.bound(last), last, last in self.chancy) if last in self.returns else (0.0, None, False) for _, last, _ in paths]
        for (moves, last, ended), (later, led_to, chancy) in zip(paths, beyond, strict=True):
            returned = 0.0
            if ended:
                self.visit(last, 0.0)
                later, led_to, chancy = self.bound(last), last, False  # a pair that ends the task is worth what it pays
            for step, (place, joint, reward) in enumerate(reversed(moves)):
                returned = reward + GAMMA * returned
                worth = reward + (0.0 if ended and step == 0 else GAMMA * later)
                look, pair = (
                    None if led_to is None else (reward, led_to),
                    self.pairs.setdefault((place, joint), {"n": 0, "q": worth, "random": False, "look": None}),
                )
                pair["n"] += 1
                if pair["n"] > 1:
                    self.recurrences += 1
                    if look is not None and pair["look"] is not None and look != pair["look"]:
                        pair["random"] = True
                        self.squares += (worth - pair["q"]) ** 2
                pair["look"] = look or pair["look"]
                if pair["random"]:
                    pair["q"] += 4 / (3 + pair["n"]) * (worth - pair["q"])
                else:
                    pair["q"] = worth if chancy else max(pair["q"], worth)
                if pair["random"] or chancy:
                    self.chancy.add(place)
                sigma = math.sqrt(self.squares / max(self.recurrences, 1))
                low = pair["q"] - self.c * sigma / math.sqrt(pair["n"])
                self.visit(place, returned)
                if place not in self.champion or self.champion[place][0] == joint or low > self.champion[place][1]:
                    self.champion[place] = (joint, low)
                later, led_to, chancy = self.bound(place), place, place in self.chancy


joint_actions = st.tuples(st.integers(0, ACTIONS - 1), st.integers(0, ACTIONS - 1))
moves = st.lists(st.tuples(st.integers(0, PLACES - 1), joint_actions, st.sampled_from([-2.0, 0.0, 1.0, 4.0])), min_size=1, max_size=LIMIT)
batches = st.lists(st.lists(st.tuples(moves, st.integers(0, PLACES - 1), st.booleans()), min_size=2, max_size=2), min_size=1, max_size=5)


@settings(max_examples=40, deadline=None)
@given(batches)
def test_any_episodes_leave_what_dictionaries_hold(written: list[list[Path]]) -> None:
    twin, states = Twin(), {memory: begin(memory) for memory in (BEST, MEAN, BOUND)}
    for paths in written:
        twin.write(paths)
        states = {memory: observe(memory, state, episodes(paths)) for memory, state in states.items()}
    for place in range(PLACES):
        for memory, known in ((BEST, twin.best.get), (MEAN, twin.mean), (BOUND, twin.bound)):
            found, expected = remembered(states[memory], place), known(place) if place in twin.returns else None
            assert (found is None) == (expected is None)
            if found is not None:
                assert found == pytest.approx(expected, rel=1e-4, abs=1e-4)
    own = states[BOUND].statistic
    assert float(own.squares) == pytest.approx(twin.squares, rel=1e-3, abs=1e-4)
    assert float(own.recurrences) == twin.recurrences
    assert float(BOUND.metrics(states[BOUND])["memory_pairs"]) == len(twin.pairs)
    counted = np.asarray(own.pair_visits)
    assert sorted(counted[counted > 0].tolist()) == sorted(pair["n"] for pair in twin.pairs.values())


def world(seed: int, chance: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Chances to get from place to place by each joint action, rewards of arriving, and the best value; the last place ends the task."""
    rng = np.random.default_rng(seed)
    moves, size = np.zeros((PLACES, ACTIONS**2, PLACES)), PLACES - 1
    for place in range(size):
        for joint in range(ACTIONS**2):
            if chance:
                moves[place, joint] = rng.dirichlet(np.full(PLACES, 0.7))
            else:
                moves[place, joint, rng.integers(PLACES)] = 1.0
    reward = rng.choice([-2.0, -1.0, 0.0, 1.0, 4.0], size=(PLACES, ACTIONS**2, PLACES))
    value = np.zeros(PLACES)
    for _ in range(200):
        value = np.max(np.sum(moves * (reward + GAMMA * value), axis=2), axis=1) * (np.arange(PLACES) < size)
    return moves, reward, value


def wander(moves: np.ndarray, reward: np.ndarray, rng: np.random.Generator, count: int, limit: int = LIMIT) -> list[Path]:
    """Episodes of random actions from random places."""
    paths: list[Path] = []
    while len(paths) < count:
        place, path = int(rng.integers(PLACES - 1)), []
        while len(path) < limit and place != PLACES - 1:
            joint = int(rng.integers(ACTIONS**2))
            after = int(rng.choice(PLACES, p=moves[place, joint]))
            path.append((place, divmod(joint, ACTIONS), float(reward[place, joint, after])))
            place = after
        paths.append((path, place, place == PLACES - 1))
    return paths


@pytest.mark.parametrize("seed", range(4))
def test_without_chance_a_bound_is_between_the_best_return_and_the_optimum(seed: int) -> None:
    moves, reward, value = world(seed, chance=False)
    rng, state, best, above = np.random.default_rng(seed), begin(BOUND), begin(BEST), 0
    for _ in range(30):
        fresh = episodes(wander(moves, reward, rng, 4))
        state, best = observe(BOUND, state, fresh), observe(BEST, best, fresh)
        for place in range(PLACES - 1):
            found, returned = remembered(state, place), remembered(best, place)
            assert (found is None) == (returned is None)
            if found is not None:
                # A cut episode counts as if nothing followed, which may be more than the optimum where that is negative.
                assert returned - 1e-4 <= found <= max(value[place], returned) + 1e-4
                above += found > returned + 1e-3
    assert float(BOUND.metrics(state)["memory_chance"]) == 0.0
    assert above > 0  # somewhere episodes crossed, and more than any of them earned is known
    assert [remembered(state, place) for place in range(PLACES - 1)] == pytest.approx(value[:-1], abs=0.05)


each_pair = (PLACES - 1) * ACTIONS**2
fixed_worlds = st.tuples(
    st.lists(st.integers(0, PLACES - 1), min_size=each_pair, max_size=each_pair),
    st.lists(st.sampled_from([-4.0, -1.0, 0.0, 1.0, 4.0]), min_size=each_pair, max_size=each_pair),
)
plays = st.lists(
    st.tuples(st.integers(0, PLACES - 2), st.lists(st.integers(0, ACTIONS**2 - 1), min_size=LIMIT, max_size=LIMIT)), min_size=1, max_size=25
)


@settings(max_examples=40, deadline=None)
@given(fixed_worlds, plays)
def test_without_chance_and_cuts_no_bound_is_below_the_best_return_or_above_the_optimum(
    fixed: tuple[list[int], list[float]], played: list[tuple[int, list[int]]]
) -> None:
    after, reward = (np.array(one).reshape(PLACES - 1, ACTIONS**2) for one in fixed)
    value = np.zeros(PLACES)  # the last place ends the task
    for _ in range(60):
        value[:-1] = np.max(reward + GAMMA * value[after], axis=1)
    bound, best = begin(BOUND), begin(BEST)
    for place, joints in played:
        path: list[Move] = []
        for joint in joints:
            if place != PLACES - 1:
                path.append((place, divmod(joint, ACTIONS), float(reward[place, joint])))
                place = int(after[place, joint])
        if place != PLACES - 1:
            continue  # the limit would cut it
        fresh = episodes([(path, place, True)])
        bound, best = observe(BOUND, bound, fresh), observe(BEST, best, fresh)
        for visited in range(PLACES):
            found, returned = remembered(bound, visited), remembered(best, visited)
            assert (found is None) == (returned is None)
            if found is not None:
                assert returned - 1e-4 <= found <= value[visited] + 1e-4


def test_where_a_limit_ends_the_task_in_a_place_that_goes_on_otherwise_a_bound_may_be_below_the_best_return() -> None:
    """A leads to B and B to A, for -1 each, and there the task ends: the best return from A is 0, that of ending there.

    To the bound the end is no action: it counts with the mean of A's returns, 0 and -1.5, and A's action is worth -1.5.
    """
    a, b, onwards = 0, 1, (0, 0)
    ended = episodes([([(a, onwards, -1.0), (b, onwards, -1.0)], a, True)])
    bound, best = (observe(memory, begin(memory), ended) for memory in (BOUND, BEST))
    assert [remembered(best, place) for place in (a, b)] == [0.0, -1.0]
    assert [remembered(bound, place) for place in (a, b)] == [-0.75, -1.0]


def test_where_a_limit_cuts_an_episode_a_bound_may_exceed_an_optimum_that_is_negative() -> None:
    """A leads to B for 1, and B ends for -4; A may also end for -1: the best there is at A is -1 (1 - 4 / 2 is no more)."""
    a, b, end, onwards, out = 0, 1, PLACES - 1, (0, 0), (1, 1)
    cut = [([(a, onwards, 1.0)], b, False)]
    known = [([(a, onwards, 1.0), (b, out, -4.0)], end, True), ([(a, out, -1.0)], end, True)]
    state, best = (observe(memory, begin(memory), episodes(cut)) for memory in (BOUND, BEST))
    assert remembered(state, a) == remembered(best, a) == 1.0
    assert remembered(state, b) is None  # where the limit cut it, nothing was seen to follow
    state = observe(BOUND, state, episodes(known))
    assert remembered(state, b) == -4.0
    assert remembered(state, a) == 1.0  # it keeps the highest, as the best return does
    uncut = observe(BOUND, begin(BOUND), episodes(known))
    assert [remembered(uncut, place) for place in (a, b)] == [-1.0, -4.0]


@pytest.mark.parametrize("seed", range(3))
def test_with_chance_a_bound_converges_to_the_optimum_and_the_other_statistics_do_not(seed: int) -> None:
    moves, reward, value = world(seed, chance=True)
    rng, states = np.random.default_rng(seed), {memory: begin(memory) for memory in (BEST, MEAN, BOUND)}
    errors: list[float] = []

    def error(memory: EpisodicMemory) -> float:
        return float(np.mean([abs(remembered(states[memory], place) - value[place]) for place in range(PLACES - 1)]))

    for round_ in range(200):
        fresh = episodes(wander(moves, reward, rng, 64))
        states = {memory: observe(memory, state, fresh) for memory, state in states.items()}
        if round_ in (2, 30, 199):
            errors.append(error(BOUND))
    assert errors[2] < errors[0]
    assert errors[2] < 0.25
    assert error(BEST) > 4 * errors[2]
    assert error(MEAN) > 4 * errors[2]


def test_a_step_that_always_leads_to_a_lottery_is_worth_what_it_pays_on_average_and_not_its_luckiest_run() -> None:
    """One step to a place where 8 is won in one case of eight: half of 1, as it is discounted, and nothing to choose."""
    begins, draws, end = 0, 1, PLACES - 1
    rng, state, twin = np.random.default_rng(0), begin(BOUND), Twin()
    for _ in range(100):
        won = rng.random(32) < 1 / 8
        joints = rng.integers(ACTIONS, size=(32, 2)).tolist()
        paths: list[Path] = [
            ([(begins, (a, b), 0.0), (draws, (0, 0), 8.0 * luck)], end, True) for (a, b), luck in zip(joints, won, strict=True)
        ]
        state = observe(BOUND, state, episodes(paths))
        twin.write(paths)
        assert remembered(state, begins) == pytest.approx(twin.bound(begins), rel=1e-3, abs=1e-3)
    assert remembered(state, draws) == pytest.approx(1.0, abs=0.15)
    assert remembered(state, begins) == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("seed", range(4))
def test_a_bound_converges_to_the_optimum_where_some_steps_are_random_and_others_are_not(seed: int) -> None:
    rng, twin = np.random.default_rng(seed), Twin()
    (moves, reward, _), (fixed, _, _) = world(seed, chance=True), world(seed, chance=False)
    certain = rng.random((PLACES, ACTIONS**2)) < 0.5
    moves = np.where(certain[..., None], fixed, moves)
    value = np.zeros(PLACES)
    for _ in range(200):
        value[:-1] = np.max(np.sum(moves * (reward + GAMMA * value), axis=2), axis=1)[:-1]
    errors: list[float] = []
    for count in (100, 10_000):
        twin.write(wander(moves, reward, rng, count, limit=1_000))  # nothing is cut
        errors.append(max(abs(twin.bound(place) - value[place]) for place in range(PLACES - 1)))
    assert errors[1] < 0.2 < errors[0]


@pytest.mark.parametrize("chance_elsewhere", [False, True])
def test_states_that_never_recur_give_exactly_the_best_return(chance_elsewhere: bool) -> None:
    size = 40
    spec = EnvSpec(n_agents=2, n_actions=ACTIONS, obs_size=1, state_size=size, episode_limit=LIMIT)
    rng = np.random.default_rng(0)
    once = rng.normal(size=(6, LIMIT + 1, size)).astype(np.float32)
    if chance_elsewhere:
        once[:, 0] = once[0, 0]  # all begin alike, and end differently
    fresh = Episodes(
        obs=jnp.zeros((6, LIMIT + 1, 2, 1)),
        state=jnp.asarray(once),
        available=jnp.ones((6, LIMIT + 1, 2, ACTIONS), bool),
        action=jnp.zeros((6, LIMIT, 2), jnp.int32),
        reward=jnp.asarray(rng.integers(-8, 8, (6, LIMIT)).astype(np.float32)),
        terminated=jnp.asarray(np.arange(LIMIT) == LIMIT - 1)[None] & jnp.asarray([[True], [True], [False]] * 2),
        played=jnp.ones((6, LIMIT), bool),
    )
    bound, best = (observe(memory, memory.init(jax.random.key(0), spec), fresh) for memory in (BOUND, BEST))
    sigma = float(BOUND.metrics(bound)["memory_chance"])
    assert (sigma > 0) == chance_elsewhere
    same = np.asarray(bound.table.value == best.table.value)
    assert bits(bound.table.key) == bits(best.table.key)
    assert np.sum(~same) <= chance_elsewhere  # but for the one state that recurs


def test_seeds_under_vmap_remember_like_seeds_alone() -> None:
    rng = np.random.default_rng(1)
    moves, reward, _ = world(1, chance=True)
    paths = [wander(moves, reward, rng, 3), [([(0, (1, 1), 1.0)], 5, True)] * 3]
    for memory in (MEAN, BOUND):
        alone = [observe(memory, begin(memory, seed), episodes(path)) for seed, path in enumerate(paths)]
        begun = stacked(*(begin(memory, seed) for seed in range(2)))
        both = jax.vmap(observe, in_axes=(None, 0, 0))(memory, begun, stacked(*map(episodes, paths)))
        for seed in range(2):
            for one, many in zip(jax.tree.leaves(alone[seed]), jax.tree.leaves(both), strict=True):
                np.testing.assert_allclose(np.asarray(one), np.asarray(many)[seed], rtol=1e-6)


def test_pairs_cost_what_is_said() -> None:
    memory = EpisodicMemory(capacity=16_384, statistic="bound")
    own = jax.eval_shape(lambda: memory.init(jax.random.key(0), SPEC)).statistic
    per_pair = bytes_of((own.pairs, own.pair_visits, own.pair_led_to, own.pair_random)) / 16_384
    assert 32 < per_pair < 34


def test_pessimism_below_zero_is_refused_in_one_line() -> None:
    with pytest.raises(UserError, match=r"^memory\.pessimism=-1\.0[^\n]*$"):
        EpisodicMemory(pessimism=-1.0)


@pytest.mark.parametrize(
    "watches",
    [
        *(EpisodicMemory(capacity=100_000, statistic=statistic) for statistic in ("best", "mean", "bound")),
        EpisodicMemory(capacity=100_000, incentive=True),
        Counts(capacity=100_000),
    ],
    ids=["best", "mean", "bound", "incentive", "counts"],
)
def test_episodes_are_written_in_place_whatever_is_remembered(watches: EpisodicMemory | Counts) -> None:
    """A table that is copied costs as much as it is large, for every state of every episode."""
    if isinstance(watches, Counts):
        state, look = watches.init(jax.random.key(0), SPEC, RecurrentQ(), ()), watches.observe
    else:
        state, look = begin(watches), lambda state, fresh: watches.observe(state, fresh, GAMMA)
    fresh = episodes([([(0, (0, 1), 1.0), (1, (1, 1), 0.0)], 2, True)])
    several = jax.jit(lambda state: jax.lax.fori_loop(0, 3, lambda i, state: look(state, fresh), state), donate_argnums=0)
    assert several.lower(state).compile().memory_analysis().temp_size_in_bytes < 0.01 * bytes_of(state)
