"""The training loop for environments in worker processes: one compiled call decides for all of them, another learns.

It gives and takes what the compiled loop does, so runs, checkpoints and reports know no difference. Each worker plays one episode at a
time; an episode whose worker fails is played again from its start, with another seed, and nothing of it is kept.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from emc.envs.hosted import Hosted
from emc.envs.workers import Failure, Workers
from emc.errors import RunError, UserError
from emc.methods import Method
from emc.parts import Actors
from emc.training.learner import actors_of, extrinsic_agents, tested
from emc.training.loop import NEVER, Budget, TrainState, Until, absorb, check_cadence, compiled_init, iteration_keys, updates_due
from emc.training.packing import blank_episodes
from emc.training.rollout import Outcome, begin_compiled, decide
from emc.types import Episodes, HostTimestep


class WorkersFailed(RunError):
    """Workers failed again and again; `state` is the run after `iterations` whole iterations more."""

    def __init__(self, reason: str, state: TrainState | None = None, iterations: int = 0):
        super().__init__(reason)
        self.state, self.iterations = state, iterations


class HostProgram:
    """The loop of one method on one hosted environment, for one seed."""

    def __init__(self, method: Method, budget: Budget, env: Hosted, seeds: tuple[int, ...]):
        if len(seeds) > 1:
            raise UserError(f"{env.source} runs in worker processes, one seed per run: start a run for each of the {len(seeds)} seeds")
        check_cadence(method, budget)
        self.method, self.budget, self.env, self.seed = method, budget, env, next(iter(seeds))
        self._workers: Workers | None = None
        self._absorb = _compiled(method, env)

    def init(self) -> TrainState:
        """The state before the first step."""
        return compiled_init(self.method, self.env.spec)(jnp.int32(self.seed))

    def advance(self, state: TrainState, iteration: int, iterations: int, until: Until = NEVER) -> TrainState:
        """Run whole iterations; `state` is consumed."""
        for done in range(iterations):
            if not until.is_ahead(state.env_steps):
                break
            key, play_key, learn_key = iteration_keys(state)
            epsilon = self.method.epsilon(state.env_steps)
            try:
                fresh, outcome = self._play(actors_of(self.method, state.learner), play_key, epsilon, self.budget.parallel_envs)
            except WorkersFailed as failed:
                raise WorkersFailed(str(failed), state, done) from None
            updates = updates_due(self.method, self.budget.parallel_envs, jnp.int32(iteration + done))
            state = self._absorb(dataclasses.replace(state, key=key), fresh, outcome, learn_key, updates)
        return state

    def evaluate(self, state: TrainState, evaluation: int) -> Outcome:
        """Greedy test episodes, their randomness set by the seed and the number of the evaluation."""
        return self._test(tested(self.method, state.learner), state, jax.random.fold_in(state.test_key, evaluation))

    def evaluate_beside(self, state: TrainState, evaluation: int) -> Outcome | None:
        """The same by agents that learnt without a bonus, where there are such beside those that are tested."""
        others = extrinsic_agents(self.method, state.learner)
        key = jax.random.fold_in(jax.random.fold_in(state.test_key, evaluation), 1)
        return None if others is None else self._test(others, state, key)

    def _test(self, actors: Actors, state: TrainState, key: PRNGKeyArray) -> Outcome:
        try:
            return self._play(actors, key, jnp.zeros(()), self.budget.test_episodes)[1]
        except WorkersFailed as failed:
            raise WorkersFailed(str(failed), state) from None

    def failures(self) -> list[str]:
        """Why workers were started anew since this was last asked."""
        if self._workers is None:
            return []
        found, self._workers.failures = self._workers.failures, []
        return found

    def close(self) -> None:
        """End the workers."""
        if self._workers is not None:
            self._workers.close()
            self._workers = None

    def _play(self, actors: Actors, key: PRNGKeyArray, epsilon: Float[Array, ""], episodes: int) -> tuple[Episodes, Outcome]:
        if self._workers is None:
            self._workers = Workers(self.env, self.budget.parallel_envs)
        return play_hosted(self._workers, actors, key, epsilon, episodes)


def play_hosted(workers: Workers, actors: Actors, key: PRNGKeyArray, epsilon: Float[Array, ""], episodes: int) -> tuple[Episodes, Outcome]:
    """Play `episodes` episodes with epsilon-greedy agents, as many at a time as there are workers."""
    return _Rollout(workers, actors, epsilon, episodes).play(key)


class _Rollout:
    """Whole episodes, each on some worker."""

    def __init__(self, workers: Workers, actors: Actors, epsilon: Float[Array, ""], episodes: int):
        self.workers, self.actors, self.epsilon = workers, actors, epsilon
        self.spec, self.slots = workers.spec, len(workers.workers)
        blank = blank_episodes(self.spec, (episodes,), actors.policy.blank_choice(self.spec))
        self.record: dict[str, PyTree] = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), vars(blank))
        self.won = np.zeros(episodes, bool)
        self.waiting = list(range(episodes))  # rows that nobody plays yet
        self.row = [-1] * self.slots  # what each worker plays; -1: nothing
        self.time = [0] * self.slots
        # Each worker's failures without a whole episode between them: all of them failing once, at one moment, is one misfortune.
        self.in_a_row = [0] * self.slots
        self.attempts = np.zeros(episodes, np.int64)
        spec = self.spec
        self.obs = np.zeros((self.slots, spec.n_agents, spec.obs_size), np.float32)
        self.available = np.ones((self.slots, spec.n_agents, spec.n_actions), bool)
        self.previous = np.full((self.slots, spec.n_agents), -1, np.int32)

    def play(self, key: PRNGKeyArray) -> tuple[Episodes, Outcome]:
        """Play every row to its end."""
        reset_key, begin_key, key = jax.random.split(key, 3)
        rows = len(self.won)
        self.seeds = np.asarray(jax.vmap(jax.random.bits)(jax.random.split(reset_key, rows))).astype(np.int64) >> 1
        self.begin_keys = jax.random.split(begin_key, rows)
        agents = self._begin_episodes(list(range(self.slots)), None)
        while any(row >= 0 for row in self.row):
            key, decide_key, act_key, _ = jax.random.split(key, 4)
            given = (self.obs, self.available, self.previous, decide_key, act_key, self.epsilon)
            agents, action, choice = _decide(self.actors, agents, *given)
            ended = self._step(np.asarray(action), jax.device_get(choice))
            agents = self._begin_episodes(ended, agents)
        episodes = Episodes(**jax.device_put(self.record))
        return episodes, Outcome(jnp.sum(episodes.reward, axis=1), episodes.length, jnp.asarray(self.won))

    def _begin_episodes(self, slots: list[int], agents: PyTree) -> PyTree:
        """Give idle workers an episode each, as long as there are any; what their agents carry begins anew."""
        begun: list[int] = []
        todo = [slot for slot in slots if self.row[slot] < 0]
        while todo and self.waiting:
            asked = []
            for slot in todo:
                if self.waiting:
                    self.row[slot], self.time[slot] = self.waiting.pop(0), 0
                    row = self.row[slot]
                    self.workers.reset(slot, int(self.seeds[row] + self.attempts[row]) % 2**31)
                    asked.append(slot)
            failed = []
            for slot, answer in self.workers.answers(asked).items():
                if isinstance(answer, Failure):
                    self._give_up(slot, answer)
                    failed.append(slot)
                else:
                    self._show(slot, answer)
                    self.previous[slot] = -1
                    begun.append(slot)
            todo = failed
        if not begun and agents is not None:
            return agents
        rows = np.array([max(row, 0) for row in self.row])
        states = np.stack([self.record["state"][row, self.time[slot]] for slot, row in enumerate(rows)])
        fresh = begin_compiled(self.actors, self.spec, states, self.begin_keys[rows])
        if agents is None:
            return fresh
        new = np.isin(np.arange(self.slots), begun)
        return jax.tree.map(lambda old, start: jnp.where(new.reshape(-1, *[1] * (old.ndim - 1)), start, old), agents, fresh)

    def _step(self, action: Int[np.ndarray, "W N"], choice: PyTree) -> list[int]:
        """Play one joint action in every running episode; the workers that are idle afterwards."""
        playing = [slot for slot in range(self.slots) if self.row[slot] >= 0]
        for slot in playing:
            self.workers.step(slot, action[slot])
        ended = []
        for slot, answer in self.workers.answers(playing).items():
            row, t = self.row[slot], self.time[slot]
            if isinstance(answer, Failure):
                self._give_up(slot, answer)
                ended.append(slot)
                continue
            self.record["action"][row, t] = action[slot]
            self.record["reward"][row, t] = answer.reward
            self.record["terminated"][row, t] = answer.terminated
            self.record["played"][row, t] = True
            jax.tree.map(
                lambda track, value, row=row, t=t, slot=slot: track.__setitem__((row, t), value[slot]), self.record["choice"], choice
            )
            self.time[slot] = t + 1
            self.previous[slot] = action[slot]
            self._show(slot, answer)
            self.won[row] |= answer.won
            if answer.terminated or answer.truncated or t + 1 >= self.spec.episode_limit:
                self.row[slot], self.in_a_row[slot] = -1, 0
                ended.append(slot)
        return ended

    def _show(self, slot: int, now: HostTimestep) -> None:
        row, t = self.row[slot], self.time[slot]
        self.obs[slot], self.available[slot] = now.obs, now.available
        for name, value in (("obs", now.obs), ("state", now.state), ("available", now.available)):
            self.record[name][row, t] = value

    def _give_up(self, slot: int, failure: Failure) -> None:
        """Forget what a failed worker played; its episode waits to be played again."""
        row = self.row[slot]
        for track in jax.tree.leaves(self.record):
            track[row] = 0
        self.won[row] = False
        self.row[slot] = -1
        self.attempts[row] += 1
        self.waiting.append(row)
        self.in_a_row[slot] += 1
        if self.in_a_row[slot] >= self.workers.env.patience:
            raise WorkersFailed(
                f"{self.workers.env.source}: a worker failed {self.in_a_row[slot]} times in a row, last because it {failure.reason}"
            )


@jax.jit
def _decide(actors: Actors, agents: PyTree, *given: Any) -> tuple[PyTree, Array, PyTree]:
    decision, action = decide(actors, agents, *given)
    return decision.carry, action, decision.choice


@functools.lru_cache(maxsize=8)
def _compiled(method: Method, env: Hosted) -> Callable[..., TrainState]:
    """The part of an iteration that learns."""

    def learn(state: TrainState, fresh: Episodes, outcome: Outcome, key: PRNGKeyArray, updates: Int[Array, ""]) -> TrainState:
        return absorb(method, env, state, fresh, outcome, key, updates)

    return jax.jit(learn, donate_argnums=0)
