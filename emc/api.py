"""The Python API: train a method, load what it learned, act with it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from emc.envs import make_env
from emc.envs.base import Environment
from emc.envs.registry import Task, task
from emc.errors import UserError
from emc.methods import Method, make_method
from emc.parts import Policy
from emc.policies.exploration import greedy
from emc.runs.config import RunConfig
from emc.runs.directory import RunDirectory
from emc.runs.session import Display, Keeping, Silent, config_of, start
from emc.training.loop import Budget, Program


def budget_of(a_task: Task) -> Budget:
    """How long the paper trains on a task and how often it looks."""
    return Budget(a_task.steps, a_task.evaluate_every, a_task.test_episodes)


def train(
    method: str | Method,
    env: str | Environment,
    *,
    preset: str = "released",
    seeds: int | tuple[int, ...] = 1,
    root: str | Path = "runs",
    method_name: str = "custom",
    env_name: str = "custom",
    keeping: Keeping = Keeping(),
    display: Display = Silent(),
    command: str = "",
    **budget: int,
) -> RunDirectory:
    """Train a method on an environment; `seeds` is how many, or which.

    `steps`, `evaluate_every`, `test_episodes` and `parallel_envs` override the task's own.
    """
    default = budget_of(task(env)) if isinstance(env, str) else Budget()
    unknown = set(budget) - {field.name for field in dataclasses.fields(Budget)}
    if unknown:
        raise UserError(f"unknown option {', '.join(sorted(unknown))}; known: {', '.join(f.name for f in dataclasses.fields(Budget))}")
    config = RunConfig(
        method_name=method if isinstance(method, str) else method_name,
        method=make_method(method, preset) if isinstance(method, str) else method,
        env_name=env if isinstance(env, str) else env_name,
        env=make_env(env) if isinstance(env, str) else env,
        budget=dataclasses.replace(default, **budget),
        seeds=tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds),
    )
    return start(config, Path(root), keeping, display, command)


class LoadedPolicy:
    """Trained agents, acting greedily; call `reset` at the start of every episode."""

    def __init__(self, policy: Policy, net: Any, env: Environment, seed: int = 0):
        self.policy, self.net, self.env, self.spec, self.seed = policy, net, env, env.spec, seed
        self._step = jax.jit(policy.step)
        self.reset()

    def reset(self) -> None:
        """Forget the episode so far."""
        self._carry = self.policy.begin(self.net, self.spec)
        self._previous = jnp.full(self.spec.n_agents, -1)

    def act(self, obs: Any, available: Any) -> np.ndarray:
        """The agents' joint action for observations `[agents, size]` and availability `[agents, actions]`."""
        obs, available = np.asarray(obs), np.asarray(available, bool)
        wanted = {"obs": (self.spec.n_agents, self.spec.obs_size), "available": (self.spec.n_agents, self.spec.n_actions)}
        for name, array in {"obs": obs, "available": available}.items():
            if array.shape != wanted[name]:
                raise UserError(f"{name} has shape {array.shape}, this policy expects {wanted[name]}")
        self._carry, q = self._step(self.net, self._carry, obs, self._previous)
        self._previous = greedy(q, jnp.asarray(available))
        return np.asarray(self._previous)


def load(run: str | Path, seed: int | None = None) -> LoadedPolicy:
    """The agents of a run's last good checkpoint; `seed` picks one where the run trained several, else it is the first."""
    directory = RunDirectory.open(run)
    config = config_of(directory)
    chosen = config.seeds[0] if seed is None else seed
    if chosen not in config.seeds:
        raise UserError(f"seed {seed} was not trained in this run; it has {', '.join(map(str, config.seeds))}")
    program = Program(config.method, config.budget, config.env, config.seeds)
    state = directory.latest_checkpoint(jax.eval_shape(program.init)).tree
    net = state.learner.values.online.policy
    if len(config.seeds) > 1:
        net = jax.tree.map(lambda x: x[config.seeds.index(chosen)], net)
    return LoadedPolicy(config.method.policy, jax.tree.map(jnp.asarray, net), config.env, chosen)
