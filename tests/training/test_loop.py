"""The compiled loop: what an iteration does, and what interrupting it or running seeds side by side must not change."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.curiosity import ValueCuriosity
from emc.errors import UserError
from emc.memory import EpisodicMemory
from emc.methods import Method
from emc.policies import RecurrentQ
from emc.sampling import Prioritised
from emc.schedules import Epsilon
from emc.training.learner import actors_of
from emc.training.loop import NEVER, Budget, Program, TrainState, Until, evaluate, first_update, updates_at
from emc.training.rollout import play
from emc.types import Timestep
from tests.twins import Scripted, World, as_numpy, assert_close, bits, laid, quick, unpacked

METHOD = Method(
    policy=RecurrentQ(hidden=8),
    curiosity=ValueCuriosity(),
    memory=EpisodicMemory(capacity=64),
    replay=Prioritised(),
    epsilon=Epsilon(start=1.0, finish=0.0, steps=1),  # random in the first iteration, greedy from then on
    batch_episodes=4,
    replay_episodes=8,
    updates_per_episode=2,
    target_interval=3,
)
BUDGET = Budget(steps=1_000, test_episodes=12, parallel_envs=2)
SEED = 4
TRACES: list[str] = []


class Counted(Scripted):
    """The scripted environment, and how often its step was traced."""

    def step(self, world: World, action: jax.Array, key: jax.Array) -> tuple[World, Timestep]:
        TRACES.append("step")
        return super().step(world, action, key)


@pytest.fixture(scope="module", autouse=True)
def _quick_to_compile() -> Iterator[None]:
    """The programs here run for a blink and compile for long."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module")
def program() -> Program:
    return Program(METHOD, BUDGET, Counted(), (SEED,))


def run(program: Program, *portions: int) -> TrainState:
    """A fresh run, advanced by portions of iterations; arrays on the host."""
    state, done = program.init(), 0
    for portion in portions:
        state = program.advance(state, done, portion)
        done += portion
    return jax.tree.map(lambda x: x, state)


@pytest.fixture(scope="module")
def four(program: Program) -> TrainState:
    """After four iterations: eight episodes, exactly as many as the replay holds."""
    return run(program, 4)


def test_where_the_loop_is_interrupted_changes_nothing(program: Program) -> None:
    at_once, halved, stepwise = run(program, 6), run(program, 2, 4), run(program, 1, 1, 1, 1, 1, 1)
    assert at_once.learner.values.updates > 0
    assert bits(at_once) == bits(halved)  # key, replay, memory, sums and maps included
    assert bits(at_once) == bits(stepwise)


@pytest.mark.parametrize("until", [Until(furthest=1), Until(furthest=9), Until(slowest=9), Until(furthest=9, slowest=1), NEVER])
def test_the_loop_ends_with_the_first_iteration_that_has_enough_steps(program: Program, until: Until) -> None:
    stepwise, iterations = program.init(), 0
    while iterations < 6 and int(stepwise.env_steps) < min(until):
        stepwise = program.advance(stepwise, iterations, 1)
        iterations += 1
    assert bits(program.advance(program.init(), 0, 6, until)) == bits(stepwise)
    assert int(stepwise.replay.added) == iterations * BUDGET.parallel_envs


def test_no_update_happens_before_the_replay_holds_a_batch(program: Program) -> None:
    before, after = run(program), run(program, 1)
    assert after.replay.added == 2
    assert after.learner.values.updates == 0
    assert after.tally.updates == 0
    assert bits(after.learner.values) == bits(before.learner.values)
    assert bits(after.learner.curiosity) == bits(before.learner.curiosity)
    assert not np.any(np.asarray(list(after.tally.metrics.values())))


@pytest.mark.parametrize(("batch", "parallel"), [(4, 1), (4, 2), (4, 3), (4, 4), (4, 8), (32, 5), (1, 1)])
def test_the_first_update_comes_with_the_first_full_batch(batch: int, parallel: int) -> None:
    method, budget = dataclasses.replace(METHOD, batch_episodes=batch, replay_episodes=40), Budget(parallel_envs=parallel)
    iteration = first_update(method, budget.parallel_envs)
    assert (iteration + 1) * parallel >= batch
    assert iteration * parallel < batch


@pytest.mark.parametrize(
    ("updates", "episodes", "parallel", "expected"),
    [(1, 1, 1, [1, 1, 1, 1]), (2, 1, 4, [8, 8, 8, 8]), (1, 8, 8, [1, 1, 1, 1]), (1, 4, 8, [2, 2, 2, 2]), (1, 8, 4, [0, 1, 0, 1])],
)
def test_gradient_steps_come_with_so_many_episodes(updates: int, episodes: int, parallel: int, expected: list[int]) -> None:
    method = dataclasses.replace(METHOD, updates_per_episode=updates, episodes_per_update=episodes)
    assert [int(updates_at(method, parallel, jnp.int32(i))) for i in range(4)] == expected


def test_gradient_steps_that_never_come_out_even_are_refused() -> None:
    with pytest.raises(UserError, match="episodes_per_update=8 does not fit updates_per_episode=1 times parallel_envs=3"):
        updates_at(dataclasses.replace(METHOD, updates_per_episode=1, episodes_per_update=8), 3, jnp.int32(0))


def test_gradient_steps_per_episode_do_not_depend_on_parallel_environments(program: Program, four: TrainState) -> None:
    assert run(program, 2).learner.values.updates == 1 * 2 * 2
    assert four.learner.values.updates == 3 * 2 * 2  # learning iterations, environments, updates per episode
    assert four.tally.updates == 12
    assert four.learner.curiosity.values.updates == 12


def test_environment_steps_are_the_steps_that_were_played(four: TrainState) -> None:
    stored = unpacked(four.replay.spec, four.replay.episodes)
    played = np.asarray(stored.played)
    assert four.replay.added == 8
    assert np.all(played[:, 0])
    assert np.sum(played) < played.size  # padding does not count
    assert four.env_steps == np.sum(played)
    assert four.tally.steps == np.sum(played)
    assert four.tally.episodes == 8
    assert float(four.tally.returns) == pytest.approx(float(np.sum(stored.reward)), rel=1e-5)
    script = np.asarray(stored.state[:, 0])
    assert four.tally.wins == sum(drawn <= 5 and not cut and drawn % 2 == 1 for _, drawn, cut, *_ in script)


def test_every_played_state_is_in_the_memory(four: TrainState) -> None:
    stored = unpacked(four.replay.spec, four.replay.episodes)
    states = set()
    for state, length, ended in zip(
        np.asarray(stored.state),
        np.asarray(stored.length),
        np.any(stored.terminated, axis=1),
        strict=True,
    ):
        states |= {tuple(moment) for moment in state[: length + int(ended)]}
    assert four.learner.memory.table.entries == len(states)


def test_visits_are_agent_steps_by_the_cell_that_each_step_led_to(four: TrainState) -> None:
    stored = unpacked(four.replay.spec, four.replay.episodes)
    visits, lengths = np.asarray(four.maps.visits), np.asarray(stored.length)
    assert np.sum(visits) == 2 * four.env_steps
    expected = [np.sum(lengths >= column) if column else 0 for column in range(6)]  # both agents walk one column a step
    assert visits.tolist() == [expected, expected]


def test_the_bonus_is_mapped_to_the_cells_that_earned_it(program: Program) -> None:
    two = run(program, 2)  # four updates, each on all four episodes
    visits, earned = np.asarray(two.maps.visits), np.asarray(two.maps.bonus)
    np.testing.assert_allclose(two.maps.bonus_visits, 4 * visits, rtol=1e-6)
    assert np.all((earned > 0) == (visits > 0))
    mean = float(two.tally.metrics["reward_intrinsic"]) / 4
    assert np.sum(earned) == pytest.approx(4 * mean * np.sum(visits), rel=1e-4)


def test_drawn_episodes_get_the_priority_of_their_last_lesson_and_others_keep_theirs(program: Program, four: TrainState) -> None:
    two = np.asarray(run(program, 2).replay.priority)  # every update drew all four episodes
    assert np.all((two[:4] > 0) & (two[:4] != 100.0))
    assert not np.any(two[4:])
    assert len(np.unique(np.asarray(four.replay.priority))) > 4


def test_every_iteration_plays_new_episodes(four: TrainState) -> None:
    stored = unpacked(four.replay.spec, four.replay.episodes)
    episodes = np.asarray(stored.state).reshape(4, -1)  # two rows for each iteration
    assert len(np.unique(episodes, axis=0)) == 4


def test_epsilon_follows_the_environment_steps_before_each_iteration(program: Program) -> None:
    start, replay = run(program), run(program, 2).replay
    episodes = unpacked(replay.spec, replay.episodes)
    lanes = laid(episodes)
    q = np.asarray(lanes.by_episode(quick(METHOD.policy.unroll)(start.learner.values.online.policy, (), lanes).q))
    best = np.argmax(np.where(np.asarray(episodes.available)[:, :-1], q, -np.inf), axis=-1)
    same = [
        np.array_equal(np.asarray(episodes.action)[b][played], best[b][played]) for b, played in enumerate(np.asarray(episodes.played)[:4])
    ]
    assert same[2:] == [True, True]
    assert not all(same[:2])


def test_a_number_of_the_environment_can_change_without_compiling_again(program: Program, four: TrainState) -> None:
    program.evaluate(four, 0)
    traces = len(TRACES)
    assert traces > 0
    returns, tests = [], []
    for pay in (0.0, 1.0, 3.0):
        other = Program(METHOD, BUDGET, Counted(pay=pay), (SEED,))
        state = run(other, 4)
        returns.append(float(state.tally.returns))
        tests.append(float(np.sum(other.evaluate(state, 0).episode_return)))
    assert len(TRACES) == traces
    assert returns[1] == float(four.tally.returns)
    assert returns[0] < returns[1] < returns[2]
    assert len(set(tests)) == 3


def test_an_evaluation_is_complete_greedy_episodes_that_leave_no_trace(program: Program, four: TrainState) -> None:
    before = bits(four)
    outcome = program.evaluate(four, 0)
    assert bits(four) == before
    assert outcome.length.shape == (12,)
    assert bits(outcome) == bits(program.evaluate(four, 0))
    assert bits(outcome) != bits(program.evaluate(four, 1))
    key = jax.random.key(9)
    greedy = quick(lambda learner: play(Counted(), actors_of(METHOD, learner), key, jnp.zeros(()), 12)[1])(four.learner)
    assert bits(quick(lambda learner: evaluate(METHOD, Counted(), learner, key, 12))(four.learner)) == bits(greedy)


def fields(tree: Any, discrete: bool) -> list[np.ndarray]:
    leaves = [jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x for x in jax.tree.leaves(tree)]
    return [np.asarray(x) for x in leaves if jnp.issubdtype(x.dtype, jnp.floating) != discrete]


@pytest.mark.slow
def test_seeds_side_by_side_are_the_seeds_alone(program: Program) -> None:
    several = Program(METHOD, BUDGET, Counted(), (3, SEED, 5))
    together = several.advance(several.init(), 0, 6)
    steps = [np.asarray(several.advance(several.init(), 0, n).env_steps) for n in range(7)]
    for line in {int(x) for x in np.concatenate(steps)} - {0}:
        furthest, slowest = (several.advance(several.init(), 0, 6, until).replay.added for until in (Until(line), Until(slowest=line)))
        reached = [[np.max(now) >= line for now in steps], [np.min(now) >= line for now in steps]]
        assert [set(x.tolist()) for x in (furthest, slowest)] == [{2 * (when.index(True) if any(when) else 6)} for when in reached]
    apart = jax.tree.map(lambda x: x[1] if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else np.asarray(x)[1], together)
    alone = run(program, 6)
    assert jax.tree.structure(apart) == jax.tree.structure(alone)
    for a, b in zip(fields(apart, discrete=True), fields(alone, discrete=True), strict=True):
        np.testing.assert_array_equal(a, b)  # every draw, every action, every counter
    for a, b in zip(fields(apart, discrete=False), fields(alone, discrete=False), strict=True):
        if np.all(np.isfinite(b)):
            assert_close(a, b, 1e-3)  # of the largest number in each array: other shapes round differently, 20 updates amplify it
    assert len({tuple(row) for row in np.asarray(together.env_steps)[:, None].tolist()}) > 1
    outcome, lone = several.evaluate(together, 0), program.evaluate(alone, 0)
    np.testing.assert_array_equal(outcome.length[1], lone.length)


def test_a_replay_that_blocks_of_episodes_do_not_fill_evenly_is_refused() -> None:
    with pytest.raises(UserError, match=r"^parallel_envs=3 must divide replay_episodes=8[^\n]*$"):
        Program(METHOD, Budget(parallel_envs=3), Scripted(), (0,))


@pytest.mark.parametrize("field", ["steps", "evaluate_every", "test_episodes", "parallel_envs"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_budget_of_nothing_is_refused(field: str, value: int) -> None:
    with pytest.raises(UserError, match=rf"^{field}={value} is not a whole number of at least 1[^\n]*$"):
        Budget(**{field: value})


def test_a_fresh_run_differs_by_seed_only(program: Program) -> None:
    again, other = Program(METHOD, BUDGET, Counted(), (SEED,)).init(), Program(METHOD, BUDGET, Counted(), (SEED + 1,)).init()
    assert bits(again) == bits(program.init())
    assert bits(other.learner.values.online) != bits(again.learner.values.online)
    assert as_numpy(again.env_steps) == 0
