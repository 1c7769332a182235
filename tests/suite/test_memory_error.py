"""What is measured of a memory along training: states are told apart as the optimum's tables have them."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace

import jax
import numpy as np
import pytest

from emc.envs import Gridworld
from emc.memory import EpisodicMemory
from emc.sampling import Uniform
from emc.suite.gridworld import model_of
from emc.training.packing import blank_episodes
from emc.training.replay import Replay
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


def test_errors_are_averaged_over_visits(script: ModuleType) -> None:
    """By hand: two episodes of one step each, from the start, of returns -1 and 3; the best is kept."""
    env = Gridworld()
    start = env.reset(jax.random.key(0))[1].state
    blank = blank_episodes(env.spec, (2,))
    states = np.array(blank.state)
    states[:, 0] = start
    first = np.zeros(blank.reward.shape, bool)
    first[:, 0] = True
    given = {"state": states, "played": first, "terminated": first, "reward": first * np.array([[-1.0], [3.0]], np.float32)}
    fresh = dataclasses.replace(blank, **{name: jax.device_put(array) for name, array in given.items()})
    replay = Replay.empty(env.spec, 4).add(fresh, Uniform())
    value, _ = model_of(env).unlimited(0.9)
    promised = 10 * 0.9**9
    memory = EpisodicMemory(capacity=256)
    remembered = quick(lambda held: memory.observe(held, fresh, 0.9))(memory.init(jax.random.key(0), env.spec))
    state = SimpleNamespace(replay=replay, learner=SimpleNamespace(memory=remembered))
    found = script.errors(SimpleNamespace(env=env, method=SimpleNamespace(memory=memory)), state, value)
    assert found == {"bias": round(3 - promised, 4), "rms": round(promised - 3, 4), "found": 1.0}
