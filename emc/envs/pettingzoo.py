"""PettingZoo's parallel environments, as cooperative ones: every agent gets the same reward, the sum or the mean of all.

Agents that leave early stay in the padded arrays: they observe zeros and may only do action 0. Observations of different lengths are padded
to the longest, action spaces of different sizes to the largest. The global state is the environment's own where it has one, else all
observations together. Action masks are taken from `info["action_mask"]` or from observations that hold an `action_mask`.
"""

from __future__ import annotations

import importlib
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
        spaces = [env.action_space(agent) for agent in self.agents]
        if not all(hasattr(space, "n") for space in spaces):
            raise UserError("an agent's actions are not a finite choice: only Discrete action spaces can be learnt here")
        self.actions = [int(space.n) for space in spaces]
        first, _ = env.reset(seed=0)
        self.obs_size = max(_observed(first[agent]).size for agent in self.agents)
        limit = episode_limit or int(getattr(env.unwrapped, "max_cycles", 0) or env.metadata.get("max_cycles", 0) or 0)
        if not limit:
            raise UserError("the environment does not say how long an episode may last: give episode_limit=N")
        self.has_state = _has_state(env)
        self.spec = EnvSpec(
            n_agents=len(self.agents),
            n_actions=max(self.actions),
            obs_size=self.obs_size,
            state_size=int(np.asarray(env.state()).size) if self.has_state else self.obs_size * len(self.agents),
            episode_limit=limit,
            winnable=False,
        )
        self.time = 0

    def reset(self, seed: int) -> HostTimestep:
        """Start an episode."""
        self.time = 0
        obs, infos = self.env.reset(seed=seed)
        return self._shown(obs, infos)

    def step(self, action: Int[np.ndarray, " N"]) -> HostTimestep:
        """Play one joint action."""
        self.time += 1
        chosen = {agent: int(action[i]) for i, agent in enumerate(self.agents) if agent in self.env.agents}
        obs, rewards, _, truncations, infos = self.env.step(chosen)
        total = float(sum(rewards.values()))
        reward = total / len(self.agents) if self.reward == "mean" else total
        gone = not self.env.agents
        cut = (gone and any(truncations.values())) or (not gone and self.time >= self.spec.episode_limit)
        shown = self._shown(obs, infos)
        ended = gone and not cut
        return HostTimestep(shown.obs, shown.state, shown.available, reward, terminated=ended, truncated=cut)

    def close(self) -> None:
        """Close its window, if it has one."""
        self.env.close()

    def _shown(self, obs: dict[str, Any], infos: dict[str, Any]) -> HostTimestep:
        table = np.zeros((len(self.agents), self.obs_size), np.float32)
        available = np.zeros((len(self.agents), self.spec.n_actions), bool)
        for i, agent in enumerate(self.agents):
            if agent not in obs or agent not in self.env.agents:
                available[i, 0] = True
                continue
            seen = _observed(obs[agent])
            table[i, : seen.size] = seen
            available[i, : self.actions[i]] = _mask(obs[agent], infos.get(agent, {}), self.actions[i])
        state = np.asarray(self.env.state(), np.float32).ravel() if self.has_state else table.ravel()
        return HostTimestep(table, state, available)


def _observed(obs: Any) -> np.ndarray:
    """An observation as a vector."""
    return np.asarray(obs["observation"] if isinstance(obs, dict) else obs, np.float32).ravel()


def _mask(obs: Any, info: dict[str, Any], actions: int) -> np.ndarray:
    """What an agent may do."""
    mask = info.get("action_mask", obs.get("action_mask") if isinstance(obs, dict) else None)
    return np.ones(actions, bool) if mask is None else np.asarray(mask).astype(bool)


def _has_state(env: Any) -> bool:
    try:
        return np.asarray(env.state()).size > 0
    except (NotImplementedError, AttributeError):
        return False
