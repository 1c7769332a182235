"""Environments in plain Python, for worker processes to run."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from emc.envs.gridworld import Gridworld
from emc.types import EnvSpec, HostTimestep


class Race:
    """Two agents must choose the same of two actions three times in a row; it remembers its seed in the state."""

    spec = EnvSpec(n_agents=2, n_actions=3, obs_size=2, state_size=2, episode_limit=6)

    def reset(self, seed: int) -> HostTimestep:
        self.seed, self.time, self.streak = seed, 0, 0
        return self._shown(0.0)

    def step(self, action: np.ndarray) -> HostTimestep:
        self.time += 1
        self.streak = self.streak + 1 if action[0] == action[1] else 0
        return self._shown(float(action[0] == action[1]))

    def close(self) -> None:
        pass

    def _shown(self, reward: float) -> HostTimestep:
        obs = np.array([[i, self.time] for i in range(2)], np.float32)
        available = np.array([[True, True, False]] * 2)
        state = np.array([self.seed % 1000, self.streak], np.float32)
        won = self.streak >= 3
        over = self.time >= self.spec.episode_limit
        return HostTimestep(obs, state, available, reward, terminated=won, truncated=over and not won, won=won)


class HostGridworld:
    """The gridworld, which is deterministic, as if it were not written in JAX."""

    def __init__(self) -> None:
        self.env = Gridworld(episode_limit=12)
        self.spec = self.env.spec
        self._reset, self._step = jax.jit(self.env.reset), jax.jit(self.env.step)

    def reset(self, seed: int) -> HostTimestep:
        self.world, now = self._reset(jax.random.key(seed))
        return self._shown(now)

    def step(self, action: np.ndarray) -> HostTimestep:
        self.world, now = self._step(self.world, action, jax.random.key(0))
        return self._shown(now)

    def close(self) -> None:
        pass

    def _shown(self, now: Any) -> HostTimestep:
        now = jax.device_get(now)
        flags = (bool(now.terminated), bool(now.truncated), bool(now.won))
        return HostTimestep(np.asarray(now.obs, np.float32), np.asarray(now.state, np.float32), now.available, float(now.reward), *flags)


class Unreliable(Race):
    """Fails in the way it is told, on the given share of its steps."""

    def __init__(self, how: str = "die", share: float = 0.1):
        self.how, self.share = how, share
        self.random = np.random.default_rng(os.getpid())

    def step(self, action: np.ndarray) -> HostTimestep:
        if self.random.random() < self.share:
            if self.how == "die":
                os.kill(os.getpid(), 9)
            if self.how == "hang":
                time.sleep(3600)
            raise RuntimeError("something went wrong in the game")
        return super().step(action)


class Numbered(Race):
    """Knows how many were made before it, and is killed where it is told: those `starting` as they start, those `playing` at a step."""

    def __init__(self, folder: str, starting: tuple[int, ...] = (), playing: tuple[int, ...] = ()):
        self.number = next(number for number in range(1000) if _taken(Path(folder) / str(number)))
        self.doomed = self.number in playing
        if self.number in starting:
            os.kill(os.getpid(), 9)

    def step(self, action: np.ndarray) -> HostTimestep:
        if self.doomed:
            os.kill(os.getpid(), 9)
        return super().step(action)


def _taken(path: Path) -> bool:
    """Whether nobody had this file before."""
    try:
        path.open("x").close()
    except FileExistsError:
        return False
    return True


class Misshapen(Race):
    """Shows observations of another size than it says."""

    def _shown(self, reward: float) -> HostTimestep:
        shown = super()._shown(reward)
        return HostTimestep(np.zeros((2, 5)), shown.state, shown.available)


class Wordy(Race):
    """Shows words."""

    def _shown(self, reward: float) -> HostTimestep:
        shown = super()._shown(reward)
        return HostTimestep([["here", "now"]] * 2, shown.state, shown.available)


class Careful(Race):
    """Takes a moment to close, and leaves a note that it did."""

    def __init__(self, note: str):
        self.note = Path(note)

    def step(self, action: np.ndarray) -> HostTimestep:
        raise EOFError("the game has closed its pipe")

    def close(self) -> None:
        time.sleep(0.3)
        self.note.touch()


class Seeded(Race):
    """Takes its seed where it is made, and can be told more with each step."""

    def __init__(self, seed: int = 0):
        self.own = seed

    def reset(self, seed: int) -> HostTimestep:
        return super().reset(self.own)

    def step(self, action: np.ndarray, pace: int = 1, sound: bool = False) -> HostTimestep:
        return super().step(action)


class OldGame:
    """PyMARL's interface."""

    def __init__(self, limit: int = 4):
        self.limit = limit

    def get_env_info(self) -> dict[str, Any]:
        return {"n_agents": 2, "n_actions": 2, "obs_shape": 1, "state_shape": 1, "episode_limit": self.limit}

    def reset(self, seed: int = 0) -> None:
        self.state = np.array([seed + "1"]) if seed < 0 else np.array([seed])  # pyright: ignore[reportOperatorIssue]

    def step(self, actions: list[int]) -> Any:
        return 1.0, False, {"solved": True}

    def get_obs(self) -> Any:
        return [self.state, self.state]

    def get_state(self) -> Any:
        return self.state

    def get_avail_actions(self) -> Any:
        return [[1, 1]] * 2

    def close(self) -> None:
        pass


class Moody(Race):
    """Takes no notice of its seed."""

    def __init__(self) -> None:
        self.games = 0

    def reset(self, seed: int) -> HostTimestep:
        self.games += 1
        return super().reset(self.games)
