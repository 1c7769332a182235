"""Trained agents without their run: what is written comes back, what is damaged is refused, what is shipped plays as it says."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import emc
from emc.cli import main
from emc.envs import make_env
from emc.errors import CheckpointError, UserError
from emc.methods import make_method
from emc.runs import policies
from emc.runs.config import RunConfig
from emc.training import learner
from emc.training.loop import Budget
from emc.training.rollout import play
from tests.twins import bits


def some_agents(method_name: str = "rode") -> policies.Kept:
    method, env = make_method(method_name, "released", "3m"), make_env("3m")
    actors = learner.tested(method, learner.init_learner(method, env.spec, jax.random.key(3)))
    return policies.Kept(actors, RunConfig(method_name, method, "3m", env, Budget(), (4,)), 4, 1000, 2.5, 10)


@pytest.mark.parametrize("method", ["vdn", "maven", "rode", "emc-apart-vdn"])
def test_agents_come_back_as_they_were(tmp_path: Path, method: str) -> None:
    kept = some_agents(method)
    policies.save(tmp_path / "agents", kept)
    found = policies.load(tmp_path / "agents")
    assert dataclasses.replace(found, actors=kept.actors) == kept
    assert found.actors.policy == kept.actors.policy
    assert bits(found.actors) == bits(kept.actors)
    assert jax.tree.leaves(found.actors)


def one_nan(array: np.ndarray) -> np.ndarray:
    array[(0,) * array.ndim] = np.nan
    return array


def test_weights_that_are_not_finite_or_belong_to_others_are_refused(tmp_path: Path) -> None:
    kept = some_agents("vdn")
    broken = dataclasses.replace(kept, actors=jax.tree.map(lambda x: jax.device_put(one_nan(np.array(x))), kept.actors))
    policies.save(tmp_path / "broken", broken)
    with pytest.raises(CheckpointError, match="not a finite number"):
        policies.load(tmp_path / "broken")
    policies.save(tmp_path / "other", dataclasses.replace(some_agents("maven"), config=kept.config))
    with pytest.raises(CheckpointError):
        policies.load(tmp_path / "other")


@pytest.mark.parametrize("name", policies.shipped())
def test_a_shipped_policy_plays_as_well_as_it_says(name: str) -> None:
    kept, policy = policies.load_shipped(name), emc.shipped(name)
    assert kept.config.env_name == name
    assert kept.episodes >= 1_000
    outcome = jax.jit(lambda key: play(policy.env, policy.actors, key, jnp.zeros(()), 64)[1])(jax.random.key(7))
    scores = np.asarray(outcome.won if policy.spec.winnable else outcome.episode_return, float)
    spread = max(float(scores.std()), 0.05 * abs(kept.score))
    assert abs(scores.mean() - kept.score) < 5 * spread / 8  # five standard errors of 64 episodes


def test_the_package_has_policies_for_the_gridworld_and_a_battle() -> None:
    assert {"gridworld", "3m"} <= {*policies.shipped()}
    assert policies.load_shipped("gridworld").score >= 0.9
    assert sum(path.stat().st_size for path in policies.SHIPPED.rglob("*")) < 2_000_000


def test_commands_take_a_shipped_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    main(["evaluate", "gridworld", "--policy", "shipped", "--episodes", "8"])
    assert "win rate 1.000" in capsys.readouterr().out
    main(["render", "gridworld", "--policy", "shipped"])
    assert (tmp_path / "gridworld.gif").read_bytes().startswith(b"GIF8")
    assert capsys.readouterr().out == "gridworld.gif\n"


@pytest.mark.parametrize("name", ["gridwolrd", "../shipped/gridworld", "", "/etc"])
def test_a_task_without_a_shipped_policy_is_one_line(name: str) -> None:
    with pytest.raises(UserError, match="unknown shipped policy"):
        emc.shipped(name)
