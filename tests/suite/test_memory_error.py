"""What is measured of a memory along training: states are told apart as the optimum's tables have them."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.envs import Gridworld
from emc.envs.gridworld import STAY, UP
from emc.memory import EpisodicMemory
from emc.sampling import Uniform
from emc.suite.gridworld import model_of
from emc.training.packing import blank_episodes
from emc.training.replay import Replay
from emc.types import Episodes
from tests.twins import quick

SCRIPT = Path(__file__).parents[2] / "experiments" / "memory_error.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("memory_error", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_state_says_where_both_agents_are(script: ModuleType) -> None:
    env = Gridworld(slip=0.5)
    step = jax.jit(env.step)
    world, now = jax.jit(env.reset)(jax.random.key(0))
    assert (*script.cells(env, np.asarray(now.state)[None]).T[0],) == model_of(env).start
    half = env.columns // 2
    for key in jax.random.split(jax.random.key(1), 30):
        world, now = step(world, jax.random.randint(key, (2,), 0, env.spec.n_actions), key)
        position = np.asarray(world.position) - np.array([(0, 0), (0, half)])
        np.testing.assert_array_equal(script.cells(env, np.asarray(now.state)[None]).T[0], position @ (half, 1))


def episodes(env: Gridworld, *rewards_and_states: tuple[float, list[Any]]) -> Episodes:
    """Each with a reward for its first step, and the states that it visits."""
    blank = blank_episodes(env.spec, (len(rewards_and_states),))
    state, played, reward = (np.array(x) for x in (blank.state, blank.played, blank.reward))
    for row, (first, visited) in enumerate(rewards_and_states):
        state[row, : len(visited)], played[row, : len(visited)], reward[row, 0] = visited, True, first
    given = {"state": state, "played": played, "reward": reward}
    return dataclasses.replace(blank, **{name: jax.device_put(array) for name, array in given.items()})


def test_errors_are_of_visits_in_the_latest_episodes(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: the start is remembered with 3 and visited twice, a cell beside it with 1 and visited once, a step later; before that it was
    visited in an episode that no longer counts. At the start nothing can be won, a step later 1."""
    env, key = Gridworld(), jax.random.key(0)
    world, shown = env.reset(key)
    start, beside = shown.state, env.step(world, jnp.array([STAY, UP]), key)[1].state
    replay = Replay.empty(env.spec, 4)
    for one in ((9.0, [beside]), (0.0, [start, beside]), (0.0, [start])):
        replay = replay.add(episodes(env, one), Uniform())
    value = np.zeros((30, 66, 66))
    value[1] = 1.0
    monkeypatch.setattr(script, "LATEST", 2)
    memory = EpisodicMemory(capacity=256)
    observe = quick(lambda held, fresh: memory.observe(held, fresh, 0.9))
    for seen, wanted in (
        (((3.0, [start]), (1.0, [beside])), {"bias": 2.0, "rms": 2.4495, "found": 1.0}),
        (((3.0, [start]), (2.0, [start])), {"bias": 3.0, "rms": 3.0, "found": 0.6667}),
    ):
        remembered = observe(memory.init(key, env.spec), episodes(env, *seen))
        state = SimpleNamespace(replay=replay, learner=SimpleNamespace(memory=remembered))
        config = SimpleNamespace(env=env, method=SimpleNamespace(memory=memory))
        assert script.errors(config, state, value) == wanted
