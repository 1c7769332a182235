"""The Python API: train a method, load what it learned, act with it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from emc.envs import make_env
from emc.envs.base import Described
from emc.envs.registry import Task, task, task_of
from emc.errors import UserError
from emc.methods import Method, make_method
from emc.parts import Actors
from emc.policies.exploration import act_greedily
from emc.runs.config import RunConfig
from emc.runs.directory import RunDirectory
from emc.runs.restoring import restored
from emc.runs.session import Display, Keeping, Silent, config_of, loop_of, start
from emc.training.learner import tested
from emc.training.loop import Budget


def budget_of(a_task: Task) -> Budget:
    """How long the paper trains on a task and how often it looks."""
    return Budget(a_task.steps, a_task.evaluate_every, a_task.test_episodes)


def train(
    method: str | Method,
    env: str | Described,
    *,
    preset: str = "released",
    seeds: int | tuple[int, ...] = 1,
    root: str | Path = "runs",
    method_name: str = "custom",
    env_name: str = "",
    keeping: Keeping = Keeping(),
    display: Display = Silent(),
    command: str = "",
    **budget: int,
) -> RunDirectory:
    """Train a method on an environment; `seeds` is how many, or which.

    `steps`, `evaluate_every`, `test_episodes` and `parallel_envs` override the task's own; an environment with changed fields is still of
    its task.
    """
    known = task(env) if isinstance(env, str) else task_of(env)
    default = budget_of(known) if known else Budget()
    unknown = set(budget) - {field.name for field in dataclasses.fields(Budget)}
    if unknown:
        raise UserError(f"unknown option {', '.join(sorted(unknown))}; known: {', '.join(f.name for f in dataclasses.fields(Budget))}")
    config = RunConfig(
        method_name=method if isinstance(method, str) else method_name,
        method=make_method(method, preset, known.name if known else "") if isinstance(method, str) else method,
        env_name=env if isinstance(env, str) else env_name or (known.name if known else "custom"),
        env=make_env(env) if isinstance(env, str) else env,
        budget=dataclasses.replace(default, **budget),
        seeds=tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds),
    )
    return start(config, Path(root), keeping, display, command)


class LoadedPolicy:
    """Trained agents, acting greedily; call `reset` at the start of every episode."""

    def __init__(self, actors: Actors, env: Described, seed: int = 0, step: int = 0, warnings: tuple[str, ...] = ()):
        self.actors, self.env, self.spec, self.seed = actors, env, env.spec, seed
        self.step, self.warnings = step, warnings  # of training, and a line for each newer checkpoint that could not be used
        self._key = jax.random.key(seed)
        self._step = jax.jit(act_greedily)
        self._carry: Any = None
        if not actors.policy.reads_first_state:
            self.reset()

    def reset(self, state: Any = None) -> None:
        """Forget the episode so far; `state` is the global state it begins in, which few methods need."""
        if state is None and self.actors.policy.reads_first_state:
            raise UserError("these agents decide on how to begin from the global state: give it as reset(state=...)")
        first = np.zeros(self.spec.state_size) if state is None else np.asarray(state)
        if first.shape != (self.spec.state_size,):
            raise UserError(f"state has shape {first.shape}, this policy expects {(self.spec.state_size,)}")
        self._key, key = jax.random.split(self._key)
        self._carry = self.actors.policy.begin(self.actors.net, self.actors.state, jnp.asarray(first), key, self.spec)
        self._previous = jnp.full(self.spec.n_agents, -1)

    def act(self, obs: Any, available: Any) -> np.ndarray:
        """The agents' joint action for observations `[agents, size]` and availability `[agents, actions]`."""
        obs, available = np.asarray(obs), np.asarray(available, bool)
        wanted = {"obs": (self.spec.n_agents, self.spec.obs_size), "available": (self.spec.n_agents, self.spec.n_actions)}
        for name, array in {"obs": obs, "available": available}.items():
            if array.shape != wanted[name]:
                raise UserError(f"{name} has shape {array.shape}, this policy expects {wanted[name]}")
        if self._carry is None:
            raise UserError("call reset(state=...) before the first action")
        self._key, key = jax.random.split(self._key)
        self._carry, self._previous = self._step(self.actors, self._carry, obs, available, self._previous, key)
        return np.asarray(self._previous)


def load(run: str | Path, seed: int | None = None) -> LoadedPolicy:
    """The agents of a run's last good checkpoint; `seed` picks one where the run trained several, else it is the first."""
    directory = RunDirectory.open(run)
    directory.must_belong_together()
    config = config_of(directory)
    chosen = config.seeds[0] if seed is None else seed
    if chosen not in config.seeds:
        raise UserError(f"seed {seed} was not trained in this run; it has {', '.join(map(str, config.seeds))}")
    found, _ = restored(directory, config, jax.eval_shape(loop_of(config).init))
    actors = tested(config.method, found.tree.learner)
    if len(config.seeds) > 1:
        actors = jax.tree.map(lambda x: x[config.seeds.index(chosen)], actors)
    return LoadedPolicy(jax.tree.map(jnp.asarray, actors), config.env, chosen, found.step, tuple(found.warnings))
