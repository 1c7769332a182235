"""PettingZoo's parallel environments, as cooperative ones: every agent gets the same reward, the sum or the mean of all.

Agents that leave early stay in the padded arrays: they observe zeros and may only do action 0. Observations of different lengths are padded
to the longest, action spaces of different sizes to the largest; an observation that is one of n becomes a one-hot vector. The global state
is the environment's own where it has one, else all observations together. Action masks are taken from `info["action_mask"]` or from
observations that hold an `action_mask`.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np
from jaxtyping import Int

from emc.errors import UserError
from emc.types import EnvSpec, HostTimestep


class PettingZoo:
    """One such environment behind `HostEnvironment`; `name` is its module, such as mpe2.simple_spread_v3 or pettingzoo.sisl.pursuit_v4."""

    def __init__(self, name: str, reward: str = "sum", episode_limit: int = 0, **fields: Any):
        try:
            module = importlib.import_module(name)
        except ImportError as error:
            raise UserError(f"pettingzoo/{name}: cannot import {name} ({error}). Install the package that has it") from error
        if not hasattr(module, "parallel_env"):
            raise UserError(f"pettingzoo/{name}: {name} has no parallel_env. Name the module of a parallel environment")
        self._init(module.parallel_env(**fields), reward, episode_limit)

    @classmethod
    def around(cls, env: Any, reward: str = "sum", episode_limit: int = 0) -> PettingZoo:
        """The adapter around a parallel environment that exists already."""
        self = cls.__new__(cls)
        self._init(env, reward, episode_limit)
        return self

    def _init(self, env: Any, reward: str, episode_limit: int) -> None:
        if reward not in ("sum", "mean"):
            raise UserError(f"reward={reward} is neither sum nor mean: say how the agents' rewards become the team's")
        self.env, self.reward = env, reward
        self.agents: list[str] = list(env.possible_agents)
        self.action_spaces = [env.action_space(agent) for agent in self.agents]
        if not all(map(_finite, self.action_spaces)):
            raise UserError("an agent's actions are not a finite choice: only Discrete action spaces can be learnt here")
        self.obs_spaces = [_observed_space(env.observation_space(agent)) for agent in self.agents]
        limit = episode_limit or int(getattr(env.unwrapped, "max_cycles", 0) or env.metadata.get("max_cycles", 0) or 0)
        if not limit:
            raise UserError("the environment does not say how long an episode may last: give episode_limit=N")
        env.reset(seed=0)  # only then is there a state
        self.has_state = _has_state(env)
        obs_size = max(map(_length, self.obs_spaces))
        self.spec = EnvSpec(
            n_agents=len(self.agents),
            n_actions=max(int(space.n) for space in self.action_spaces),
            obs_size=obs_size,
            state_size=int(np.asarray(env.state()).size) if self.has_state else obs_size * len(self.agents),
            episode_limit=limit,
            winnable=False,
        )
        self.time = 0

    def reset(self, seed: int) -> HostTimestep:
        """Start an episode."""
        self.time = 0
        obs, infos = self.env.reset(seed=seed)
        return self._shown(obs, infos, list(self.env.agents))

    def step(self, action: Int[np.ndarray, " N"]) -> HostTimestep:
        """Play one joint action."""
        self.time += 1
        acting = list(self.env.agents)
        numbers = {agent: int(action[i]) + _first(self.action_spaces[i]) for i, agent in enumerate(self.agents)}
        obs, rewards, ended, stopped, infos = self.env.step({agent: numbers[agent] for agent in acting})
        total = float(sum(rewards.values()))
        reward = total / len(self.agents) if self.reward == "mean" else total
        cut = [agent for agent in acting if stopped.get(agent, False) and not ended.get(agent, False)]
        # Some environments keep those who are done among their agents.
        present = [agent for agent in self.env.agents if not (ended.get(agent, False) or stopped.get(agent, False))]
        late = bool(present) and self.time >= self.spec.episode_limit
        truncated = late or (not present and bool(cut))
        # What was cut has a value beyond its last moment, so that moment must be seen.
        shown = self._shown(obs, infos, present or cut)
        return HostTimestep(shown.obs, shown.state, shown.available, reward, terminated=not (present or truncated), truncated=truncated)

    def close(self) -> None:
        """Close its window, if it has one."""
        self.env.close()

    def _shown(self, obs: dict[str, Any], infos: dict[str, Any], present: list[str]) -> HostTimestep:
        table = np.zeros((len(self.agents), self.spec.obs_size), np.float32)
        available = np.zeros((len(self.agents), self.spec.n_actions), bool)
        for i, agent in enumerate(self.agents):
            if agent in obs and agent in present:
                seen = _vector(obs[agent], self.obs_spaces[i])
                table[i, : seen.size] = seen
                actions = int(self.action_spaces[i].n)
                available[i, :actions] = _mask(obs[agent], infos.get(agent, {}), actions)
            available[i, 0] |= not available[i].any()  # somebody who may do nothing, or has left
        state = np.asarray(self.env.state(), np.float32).ravel() if self.has_state else table.ravel()
        return HostTimestep(table, state, available)


def _finite(space: Any) -> bool:
    """Whether a space is a choice of one among n; a vector of such has an `n` too, but also a shape."""
    return hasattr(space, "n") and not space.shape


def _first(space: Any) -> int:
    """The number of a finite space's first element."""
    return int(getattr(space, "start", 0))


def _observed_space(space: Any) -> Any:
    """The space of what an agent sees, without its action mask."""
    if hasattr(space, "spaces"):
        if not (isinstance(space.spaces, dict) and "observation" in space.spaces):
            raise UserError("observations are a collection without an entry called observation: wrap the environment to give one vector")
        space = space.spaces["observation"]
    if not _finite(space) and getattr(space, "shape", None) is None:
        raise UserError(f"observations of the kind {type(space).__name__} are no vector: wrap the environment to give one")
    return space


def _length(space: Any) -> int:
    return int(space.n) if _finite(space) else math.prod(space.shape)


def _vector(obs: Any, space: Any) -> np.ndarray:
    """An observation as a vector; one of n possible ones as a one-hot vector."""
    seen = obs["observation"] if isinstance(obs, dict) else obs
    if _finite(space):
        return np.eye(int(space.n), dtype=np.float32)[int(seen) - _first(space)]
    return np.asarray(seen, np.float32).ravel()


def _mask(obs: Any, info: dict[str, Any], actions: int) -> np.ndarray:
    """What an agent may do."""
    mask = info.get("action_mask", obs.get("action_mask") if isinstance(obs, dict) else None)
    return np.ones(actions, bool) if mask is None else np.asarray(mask).astype(bool)


def _has_state(env: Any) -> bool:
    try:
        return np.asarray(env.state()).size > 0
    except (NotImplementedError, AttributeError):
        return False
