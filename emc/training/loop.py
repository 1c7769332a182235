"""The training loop: whole iterations (collect, observe, update) as one compiled program, over any number of seeds.

Rules that keep it fast and exact. Branches depend on the iteration counter, which all seeds share; arithmetic depends on each seed's own
environment steps: a branch that differed between seeds would copy the replay. Sums since the last log line are part of the state, so where
the host interrupts the loop changes nothing.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from emc.envs.base import Environment, HasMap, HasSpec
from emc.errors import UserError
from emc.lanes import Lanes, fold
from emc.methods import Method
from emc.parts import Metrics
from emc.training.learner import LearnerState, Lesson, actors_of, extrinsic_agents, init_learner, learn, observe, tested
from emc.training.replay import Replay
from emc.training.rollout import Outcome, play
from emc.types import EnvSpec, Episodes, shared_maximum
from emc.user_input import check_size


@dataclasses.dataclass(frozen=True)
class Budget:
    """How long to train and how often to look."""

    steps: int = 505_000  # environment steps of training
    evaluate_every: int = 1_000  # environment steps between evaluations
    test_episodes: int = 30  # complete greedy episodes per evaluation
    log_every: int = 0  # environment steps between lines about training; 0: only with each evaluation
    parallel_envs: int = 1  # environments stepped side by side; gradient steps per episode do not depend on it

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            check_size(field.name, vars(self)[field.name], "choose a smaller or larger one", low=0 if field.name == "log_every" else 1)


class Tally(eqx.Module):
    """Sums since the last log line."""

    metrics: Metrics
    broken: dict[str, Bool[Array, ""]]  # which metrics were not finite in the first update that had such a one
    updates: Int[Array, ""]
    episodes: Int[Array, ""]
    returns: Float[Array, ""]
    wins: Int[Array, ""]
    steps: Int[Array, ""]


class Maps(eqx.Module):
    """Where agents went and what was found novel, since the last snapshot; empty where the environment has no map."""

    visits: Float[Array, "R C"]  # agent-steps of collected episodes
    bonus: Float[Array, "R C"]  # summed bonus in training batches, by the cell each step led to
    bonus_visits: Float[Array, "R C"]


class TrainState(eqx.Module):
    """Everything a run is: all that a checkpoint holds."""

    learner: LearnerState
    replay: Replay
    env_steps: Int[Array, ""]
    key: PRNGKeyArray
    test_key: PRNGKeyArray  # evaluations draw from a stream of their own
    tally: Tally
    maps: Maps


def init(method: Method, spec: EnvSpec, seed: int | Int[Array, ""]) -> TrainState:
    """A run before its first step."""
    learner_key, key, test_key = (jax.random.fold_in(jax.random.key(seed), stream) for stream in range(3))
    learner = init_learner(method, spec, learner_key)
    replay = Replay.empty(spec, method.replay_episodes, method.policy.blank_choice(spec))
    return TrainState(learner, replay, jnp.zeros((), jnp.int32), key, test_key, _blank_tally(_measured(method, spec)), blank_maps(spec))


@functools.lru_cache(maxsize=8)  # what JAX keeps of a trace, megabytes of it, goes with the function
def compiled_init(method: Method, spec: EnvSpec) -> Callable[[Int[Array, ""]], TrainState]:
    """The same of a seed, traced once: for `shapes` and for the run that comes after."""
    return jax.jit(functools.partial(init, method, spec))


@functools.lru_cache(maxsize=64)
def shapes(method: Method, spec: EnvSpec, seeds: int = 1) -> TrainState:
    """The shapes of what `init` makes, which tell what a run needs and what its checkpoints hold; whoever looks at many runs asks often."""
    one = jax.eval_shape(compiled_init(method, spec), jnp.int32(0))
    return one if seeds == 1 else jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((seeds, *leaf.shape), leaf.dtype), one)


@functools.lru_cache(maxsize=64)
def _measured(method: Method, spec: EnvSpec) -> tuple[str, ...]:
    """What a gradient step says of itself; following one takes a second, and a run is planned before it begins."""

    def once() -> Lesson:
        key = jax.random.key(0)
        learner, replay = init_learner(method, spec, key), Replay.empty(spec, method.replay_episodes, method.policy.blank_choice(spec))
        return _compiled_learn(method)(learner, replay, key, jnp.zeros((), jnp.int32))[2]

    return tuple(jax.eval_shape(once).metrics)


def _blank_tally(metrics: tuple[str, ...]) -> Tally:
    count = jnp.zeros((), jnp.int32)
    return Tally(
        metrics={name: jnp.zeros(()) for name in metrics},
        broken={name: jnp.zeros((), bool) for name in metrics},
        updates=count,
        episodes=count,
        returns=jnp.zeros(()),
        wins=count,
        steps=count,
    )


def blank_maps(spec: EnvSpec) -> Maps:
    """Nothing seen yet."""
    return Maps(*(jnp.zeros(spec.map_shape) for _ in range(3)))


def first_update(method: Method, parallel_envs: int) -> int:
    """The iteration in which the replay first holds a batch."""
    return -(-method.batch_episodes // parallel_envs) - 1


def updates_at(method: Method, parallel_envs: int, iteration: Int[Array, ""]) -> Int[Array, ""]:
    """Gradient steps of an iteration, once the replay holds a batch."""
    wanted, every = method.updates_per_episode * parallel_envs, method.episodes_per_update
    if wanted % every == 0:
        return jnp.asarray(wanted // every)
    if every % wanted:
        raise UserError(
            f"episodes_per_update={every} does not fit updates_per_episode={method.updates_per_episode} times "
            f"parallel_envs={parallel_envs}: make one a multiple of the other"
        )
    return ((iteration + 1) % (every // wanted) == 0).astype(jnp.int32)


def check_cadence(method: Method, budget: Budget) -> None:
    """Refuse what does not fit together."""
    if method.replay_episodes % budget.parallel_envs:
        raise UserError(
            f"parallel_envs={budget.parallel_envs} must divide replay_episodes={method.replay_episodes}: choose another of the two"
        )
    updates_at(method, budget.parallel_envs, jnp.zeros((), jnp.int32))


def updates_due(method: Method, parallel_envs: int, iteration: Int[Array, ""]) -> Int[Array, ""]:
    """Gradient steps of an iteration: none before the replay holds a batch."""
    return jnp.where(iteration >= first_update(method, parallel_envs), updates_at(method, parallel_envs, iteration), 0)


MOST_STEPS = int(np.iinfo(np.int32).max)  # that can be counted


class Until(NamedTuple):
    """When to stop before all iterations are done: how many steps the seed that is furthest may have, and the one furthest behind."""

    furthest: Int[Array, ""] | int = MOST_STEPS
    slowest: Int[Array, ""] | int = MOST_STEPS

    def is_ahead(self, env_steps: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether neither has come; under `vmap` the same for all seeds."""
        return (shared_maximum(env_steps) < self.furthest) & (-shared_maximum(-env_steps) < self.slowest)


NEVER = Until()


def advance(
    method: Method,
    parallel_envs: int,
    env: Environment,
    state: TrainState,
    iteration: Int[Array, ""],
    iterations: Int[Array, ""],
    until: Until,
) -> TrainState:
    """Run up to `iterations` whole iterations, the first of them numbered `iteration`."""

    def is_going(carry: tuple[Int[Array, ""], TrainState]) -> Bool[Array, ""]:
        return (carry[0] < iteration + iterations) & until.is_ahead(carry[1].env_steps)

    def one(carry: tuple[Int[Array, ""], TrainState]) -> tuple[Int[Array, ""], TrainState]:
        i, state = carry
        return i + 1, _iterate(method, parallel_envs, env, state, updates_due(method, parallel_envs, i))

    return jax.lax.while_loop(is_going, one, (iteration, state))[1]


def _iterate(method: Method, parallel_envs: int, env: Environment, state: TrainState, updates: Int[Array, ""]) -> TrainState:
    key, play_key, learn_key = iteration_keys(state)
    fresh, outcome = play(env, actors_of(method, state.learner), play_key, method.epsilon(state.env_steps), parallel_envs)
    return absorb(method, env, dataclasses.replace(state, key=key), fresh, outcome, learn_key, updates)


def iteration_keys(state: TrainState) -> tuple[PRNGKeyArray, PRNGKeyArray, PRNGKeyArray]:
    """For the next iteration, for collecting episodes in this one, and for learning from them."""
    key, play_key, learn_key = jax.random.split(state.key, 3)
    return key, play_key, learn_key


def absorb(
    method: Method, env: HasSpec, state: TrainState, fresh: Episodes, outcome: Outcome, learn_key: PRNGKeyArray, updates: Int[Array, ""]
) -> TrainState:
    """Keep fresh episodes, and learn."""
    env_steps = state.env_steps + jnp.sum(outcome.length).astype(jnp.int32)
    learner = observe(method, state.learner, fresh, outcome.won)
    replay = state.replay.add(fresh, method.replay)
    tally, maps = _count(state.tally, outcome), _add_visits(env, state.maps, fresh)
    state = TrainState(learner, replay, env_steps, state.key, state.test_key, tally, maps)

    def update(u: Int[Array, ""], state: TrainState) -> TrainState:
        key = jax.random.fold_in(learn_key, u)
        learner, replay, lesson, batch = _compiled_learn(method)(state.learner, state.replay, key, state.env_steps)
        tally, maps = _add_metrics(state.tally, lesson.metrics), _add_bonus(env, state.maps, batch, lesson)
        return dataclasses.replace(state, learner=learner, replay=replay, tally=tally, maps=maps)

    return jax.lax.fori_loop(0, updates, update, state)


@functools.lru_cache(maxsize=8)
def _compiled_learn(method: Method) -> Callable[..., tuple[LearnerState, Replay, Lesson, Lanes]]:
    """Traced once, though the loop comes to it after `_measured`."""
    return jax.jit(functools.partial(_learn, method))


def _learn(
    method: Method, learner: LearnerState, replay: Replay, key: PRNGKeyArray, env_steps: Int[Array, ""]
) -> tuple[LearnerState, Replay, Lesson, Lanes]:
    rows = replay.draw(key, method.replay, method.batch_episodes)
    batch = replay.lay(rows, method.layout(replay.spec), method.policy)
    learner, lesson = learn(method, learner, batch, env_steps)
    return learner, replay.reprioritise(rows, lesson.priority), lesson, batch


def _count(tally: Tally, outcome: Outcome) -> Tally:
    return dataclasses.replace(
        tally,
        episodes=tally.episodes + outcome.won.shape[0],
        returns=tally.returns + jnp.sum(outcome.episode_return),
        wins=tally.wins + jnp.sum(outcome.won).astype(jnp.int32),
        steps=tally.steps + jnp.sum(outcome.length).astype(jnp.int32),
    )


def _add_metrics(tally: Tally, metrics: Metrics) -> Tally:
    healthy = ~jnp.any(jnp.stack(list(tally.broken.values())))
    return dataclasses.replace(
        tally,
        metrics={name: tally.metrics[name] + metrics[name] for name in metrics},
        broken={name: tally.broken[name] | (healthy & ~jnp.isfinite(metrics[name])) for name in metrics},
        updates=tally.updates + 1,
    )


def _where(env: HasMap, episodes: Episodes) -> Float[Array, "B T R C"]:
    """Who stands where after each step."""
    return jax.vmap(jax.vmap(env.occupancy))(episodes.state[:, 1:])


def _add_visits(env: HasSpec, maps: Maps, fresh: Episodes) -> Maps:
    if not isinstance(env, HasMap) or not maps.visits.size:
        return maps
    visits = jnp.einsum("bt,btrc->rc", fresh.played.astype(jnp.float32), _where(env, fresh))
    return Maps(maps.visits + visits, maps.bonus, maps.bonus_visits)


def _add_bonus(env: HasSpec, maps: Maps, batch: Lanes, lesson: Lesson) -> Maps:
    if not isinstance(env, HasMap) or not maps.visits.size:
        return maps

    def mark(weights: tuple[()], carry: tuple[Array, Array], tracks: tuple[()], env: HasMap, data: tuple[Array, ...]) -> Any:
        state, bonus, played = data
        where = jax.vmap(jax.vmap(env.occupancy))(state[1:])
        sums = (jnp.einsum("kw,kwrc->rc", x[:-1].astype(jnp.float32), where) for x in (bonus, played))
        return tuple(total + here for total, here in zip(carry, sums, strict=True)), ()

    bonus, visits = fold(mark, batch, (), (maps.bonus, maps.bonus_visits), (), env, (batch.state, lesson.bonus, batch.played))[0]
    return Maps(maps.visits, bonus, visits)


def evaluate(method: Method, env: Environment, learner: LearnerState, key: PRNGKeyArray, episodes: int) -> Outcome:
    """Complete greedy episodes."""
    return play(env, tested(method, learner), key, jnp.zeros(()), episodes)[1]


def evaluate_beside(method: Method, env: Environment, learner: LearnerState, key: PRNGKeyArray, episodes: int) -> Outcome | None:
    """The same by agents that learnt without a bonus, where there are such beside those that are tested."""
    others = extrinsic_agents(method, learner)
    return None if others is None else play(env, others, jax.random.fold_in(key, 1), jnp.zeros(()), episodes)[1]


class Loop(Protocol):
    """What a run needs of a loop, wherever its environment runs."""

    def init(self) -> TrainState: ...
    def advance(self, state: TrainState, iteration: int, iterations: int, until: Until = NEVER) -> TrainState: ...
    def evaluate(self, state: TrainState, evaluation: int) -> Outcome: ...
    def evaluate_beside(self, state: TrainState, evaluation: int) -> Outcome | None: ...
    def failures(self) -> list[str]: ...
    def close(self) -> None: ...


class Program:
    """The compiled loop of one method on one environment, for one seed or for many side by side."""

    def __init__(self, method: Method, budget: Budget, env: Environment, seeds: tuple[int, ...]):
        check_cadence(method, budget)
        self.env, self.seeds = env, seeds
        self._init, self._advance, self._evaluate, self._beside = _compiled(
            method, budget.parallel_envs, budget.test_episodes, len(seeds) > 1
        )

    def init(self) -> TrainState:
        """The state before the first step."""
        seeds = jnp.asarray(self.seeds)
        return self._init(self.env, seeds if len(self.seeds) > 1 else seeds[0])

    def advance(self, state: TrainState, iteration: int, iterations: int, until: Until = NEVER) -> TrainState:
        """Run whole iterations; `state` is consumed."""
        return self._advance(self.env, state, iteration, iterations, until)

    def evaluate(self, state: TrainState, evaluation: int) -> Outcome:
        """Greedy test episodes, their randomness set by the seed and the number of the evaluation."""
        return self._evaluate(self.env, (state.learner, state.test_key), evaluation)

    def evaluate_beside(self, state: TrainState, evaluation: int) -> Outcome | None:
        """The same by agents that learnt without a bonus, where there are such beside those that are tested."""
        return self._beside(self.env, (state.learner, state.test_key), evaluation)

    def failures(self) -> list[str]:
        """None: there is nothing outside the program that could fail."""
        return []

    def close(self) -> None:
        """Nothing to let go of."""


@functools.lru_cache(maxsize=8)
def _compiled(method: Method, parallel_envs: int, test_episodes: int, many: bool) -> tuple[Callable[..., Any], ...]:
    """Functions to start, advance and test; the environment is an argument, so one compilation serves a sweep over its numbers."""

    def test(
        evaluate: Callable[..., Any], env: Environment, state: tuple[LearnerState, PRNGKeyArray], evaluation: Int[Array, ""]
    ) -> Outcome | None:
        learner, key = state
        return evaluate(method, env, learner, jax.random.fold_in(key, evaluation), test_episodes)

    across = jax.vmap if many else lambda function, in_axes: function
    start = across(lambda env, seed: compiled_init(method, env.spec)(seed), in_axes=(None, 0))
    go_on = across(functools.partial(advance, method, parallel_envs), in_axes=(None, 0, None, None, None))
    tests = (jax.jit(across(functools.partial(test, one), in_axes=(None, 0, None))) for one in (evaluate, evaluate_beside))
    return jax.jit(start), jax.jit(go_on, donate_argnums=1), *tests
