"""The Python API as a notebook would use it."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import emc
from emc.api import display_for
from emc.cli import main
from emc.curiosity import RND, Counts
from emc.display import LiveDisplay, PlainDisplay
from emc.mixers import VDN
from emc.parts import Actors
from emc.policies import Apart, Maven, RecurrentQ
from emc.report.records import FINISHED, state_of
from emc.runs.beginning import loop_of, with_networks
from emc.runs.config import config_of
from emc.runs.measurements import rows, series
from emc.runs.restoring import restored
from emc.runs.session import Silent
from emc.training import learner as learning
from tests.report.fabricate import evaluation, new_run
from tests.twins import filled, quick

QUICK: dict[str, Any] = {"steps": 60, "evaluate_every": 20, "test_episodes": 2}


def small(**changes: Any) -> emc.Method:
    usual = {"policy": RecurrentQ(hidden=4), "batch_episodes": 2, "replay_episodes": 8} | changes
    return dataclasses.replace(emc.make_method("qmix"), **usual)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> emc.Run:
    return emc.train(small(), "gridworld", runs=tmp_path_factory.mktemp("runs"), method_name="small", seeds=(3, 5), **QUICK)


def same(ours: Any, theirs: Any) -> bool:
    return all(bool(jnp.all(a == b)) for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True))


def test_metrics_are_arrays_by_seed_and_say_what_the_lines_say(run: emc.Run) -> None:
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    steps, values = run.metrics("test_return")
    for place, seed in enumerate((3, 5)):
        own = [line for line in lines if line["kind"] == "eval" and line["seed"] == seed]
        count = len(own)
        assert steps[place, :count].tolist() == [line["steps"] for line in own]
        assert values[place, :count] == pytest.approx([sum(line["return"]) / len(line["return"]) for line in own])
        assert np.all(np.isnan(values[place, count:]))
    assert run.metrics("loss").values.shape[0] == 2
    assert run.metrics().values.shape == run.metrics("test_win_rate").values.shape
    with pytest.raises(emc.UserError, match="Did you mean test_win_rate"):
        run.metrics("test_winrate")


def test_a_seed_with_fewer_points_ends_in_nothing() -> None:
    lines: list[dict[str, Any]] = [{"kind": "train", "seed": 1, "steps": step, "return": 2.0 * step} for step in (10, 20)]
    lines.append({"kind": "train", "seed": 0, "steps": 11, "return": 1.0})
    lines.append({"kind": "eval", "seed": 1, "steps": 20, "return": [1.0, 3.0], "won": [0, 1]})
    steps, values = series(lines, "train_return", (0, 1))
    assert steps.tolist()[1] == [10, 20]
    assert values.tolist()[1] == [20, 40]
    assert steps[0, 0] == 11
    assert math.isnan(values[0, 1])
    assert rows(lines)[1] == {"seed": 1, "steps": 20, "train_return": 40.0, "test_return": 2.0, "test_win_rate": 0.5}


def test_the_score_of_a_run_is_the_median_of_its_seeds_last_five_tests(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    returns = {seed: rng.normal(size=(count, 2)) for seed, count in ((0, 9), (1, 6), (2, 8))}
    lines = [evaluation(seed, 2 * i, [False] * 2, both.tolist()) for seed, own in returns.items() for i, both in enumerate(own)]
    new_run(tmp_path, lines, method_name="qmix", env_name="climbing", seeds=(0, 1, 2))
    (run,) = emc.runs(tmp_path)
    values = run.metrics("test_return").values  # a game of payoffs has no win
    means = sorted(float(np.mean(own[np.isfinite(own)][-5:])) for own in values)
    assert means == pytest.approx(sorted(float(np.mean(own[-5:])) for own in returns.values()))
    assert run.score == pytest.approx(means[1])


def test_a_frame_has_a_row_for_each_seed_and_step(run: emc.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    frame = run.frame()
    assert {"seed", "steps", "test_win_rate", "train_return", "epsilon"} <= {*frame.columns}
    assert sorted(frame["seed"].unique()) == [3, 5]
    assert not frame.duplicated(["seed", "steps"]).any()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(emc.UserError, match="pip install pandas"):
        run.frame()


def test_a_run_draws_its_curve(run: emc.Run) -> None:
    (axes,) = run.figure().axes
    assert "gridworld" in axes.get_title() + axes.get_title("left")


def test_runs_are_listed_and_selected(run: emc.Run) -> None:
    root = run.path.parents[2]
    other = emc.train(small(), "gridworld", runs=root, method_name="other", seeds=(7, 8), **QUICK | {"steps": 20})
    (root / "no run").mkdir(exist_ok=True)
    assert {one.path for one in emc.runs(root)} == {run.path, other.path}
    assert [one.path for one in emc.runs(root, method="small")] == [run.path]
    assert emc.runs(root, env="3m") == []
    assert [one.path for one in emc.runs(str(root), finished=True, where=lambda one: one.config.budget.steps < 60)] == [other.path]
    assert "small on gridworld, 2 seeds" in repr(run)
    with pytest.raises(emc.UserError, match="no such directory"):
        emc.runs(root / "nowhere")


def test_a_batch_of_episodes_acts_as_each_of_them_alone(run: emc.Run) -> None:
    together, rng = run.policy(seed=5), np.random.default_rng(0)
    spec = together.spec
    obs = rng.integers(0, 2, (4, 3, spec.n_agents, spec.obs_size)).astype(np.float32)  # moments, episodes
    available = rng.random((4, 3, spec.n_agents, spec.n_actions)) < 0.7
    available[..., 0] = True
    many: list[Any] = []
    expected: list[Any] = []
    for moment in range(4):
        before = together.values(obs[moment], available[moment])
        assert np.array_equal(before, together.values(obs[moment], available[moment]))  # asking changes nothing
        many.append(together.act(obs[moment], available[moment]))
        assert np.array_equal(np.argmax(np.where(available[moment], before, -np.inf), axis=-1), many[-1])
    alone = run.policy(seed=5)
    for episode in range(3):
        alone.reset()
        expected.append([alone.act(obs[moment, episode], available[moment, episode]) for moment in range(4)])
    assert np.array_equal(np.stack(many, axis=1), np.array(expected))
    with pytest.raises(emc.UserError, match="expects"):
        together.act(obs[0, :2], available[0, :2])
    with pytest.raises(emc.UserError, match="3 episodes were begun, and this is one"):
        together.act(obs[0, 0], available[0, 0])


def test_some_episodes_of_a_batch_begin_again(run: emc.Run) -> None:
    policy, fresh = run.policy(), run.policy()
    spec, rng = policy.spec, np.random.default_rng(1)
    obs = rng.normal(size=(3, 2, spec.n_agents, spec.obs_size)).astype(np.float32)
    available = np.ones((2, spec.n_agents, spec.n_actions), bool)
    for moment in range(2):
        policy.act(obs[moment], available)
    policy.reset(only=[False, True])
    values = policy.values(obs[2], available)
    fresh.reset(episodes=2)
    assert np.allclose(values[1], fresh.values(obs[2], available)[1], atol=1e-6)
    assert not np.allclose(values[0], fresh.values(obs[2], available)[0], atol=1e-6)
    with pytest.raises(emc.UserError, match="mark each of the episodes"):
        policy.reset(only=[True])


def test_agents_that_begin_with_the_state_want_it() -> None:
    env, maven = emc.make_env("gridworld"), Maven(hidden=4)
    spec = env.spec
    net, state = filled(lambda key: maven.init_net(key, spec), 0), quick(lambda key: maven.init(key, spec))(jax.random.key(0))
    policy = emc.LoadedPolicy(Actors(maven, net, state), env)
    obs, available = np.zeros((2, spec.n_agents, spec.obs_size)), np.ones((2, spec.n_agents, spec.n_actions), bool)
    with pytest.raises(emc.UserError, match="reset"):
        policy.act(obs, available)
    policy.reset(state=np.zeros((2, spec.state_size)), episodes=2)
    assert policy.act(obs, available).shape == (2, spec.n_agents)


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_a_finished_run_that_goes_on_equals_one_that_was_asked_for_more(seeds: tuple[int, ...], tmp_path: Path) -> None:
    long = emc.train(small(), "gridworld", runs=tmp_path / "long", seeds=seeds, **QUICK | {"steps": 120})
    short = emc.train(small(), "gridworld", runs=tmp_path / "short", seeds=seeds, **QUICK)
    assert short.finished
    with pytest.raises(emc.UserError, match="--steps N"):
        emc.resume(short)
    with pytest.raises(emc.UserError, match="Ask for more"):
        emc.resume(short, steps=30)
    more = emc.resume(short, steps=120)
    assert more.path == short.path
    assert (more.config.budget.steps, more.finished) == (120, True)
    if len(seeds) == 1:  # of several, those that had their steps write no lines while they wait for the others
        assert (more.path / "metrics.jsonl").read_bytes() == (long.path / "metrics.jsonl").read_bytes()
    assert more.directory.steps()[-1] == long.directory.steps()[-1]
    assert same(more.policy().actors, long.policy().actors)


def test_the_command_goes_on_with_a_finished_run_and_the_report_knows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = emc.train(small(), "gridworld", runs=tmp_path, **QUICK)
    main(["resume", str(short.path), "--steps", "90"])
    assert "finished" in capsys.readouterr().out
    (found,) = emc.runs(tmp_path)
    assert found.steps >= 90
    assert state_of(found.directory) == FINISHED


def test_training_starts_from_the_networks_of_another_run(tmp_path: Path, run: emc.Run) -> None:
    brief = QUICK | {"steps": 1}
    begun = emc.train(small(), "gridworld", runs=tmp_path, seeds=(8, 9), start_from=run, **brief)
    fresh = emc.train(small(), "gridworld", runs=tmp_path, seeds=(8, 9), **brief)
    manifest = json.loads((begun.path / "manifest.json").read_text())
    assert manifest["started_from"]["path"] == str(run.path)
    assert manifest["started_from"]["step"] == max(run.directory.steps())
    for ours, theirs in ((8, 3), (9, 5)):  # nothing was learned yet, so each seed has the agents of its own
        assert same(begun.policy(ours).actors, run.policy(theirs).actors)
        assert not same(fresh.policy(ours).actors, run.policy(theirs).actors)
    assert config_of(begun.directory) != config_of(fresh.directory)
    with pytest.raises(emc.UserError, match="one, or as many"):
        emc.train(small(), "gridworld", runs=tmp_path, seeds=1, start_from=run, **QUICK)
    with pytest.raises(emc.UserError, match="networks of other shapes"):
        emc.train(small(policy=RecurrentQ(hidden=5), mixer=VDN()), "gridworld", runs=tmp_path, seeds=2, start_from=run, **QUICK)
    unit = small(policy=Apart(hidden=4, largest_reward=10.0), curiosity=RND(hidden=4))
    with pytest.raises(emc.UserError, match="a unit of their own"):
        emc.train(unit, "gridworld", runs=tmp_path, seeds=2, start_from=run, **QUICK)
    with pytest.raises(emc.UserError, match="no such directory"):
        emc.train(small(), "gridworld", runs=tmp_path, start_from=tmp_path / "nowhere", **QUICK)


def test_agents_of_each_seed_are_loaded_and_gone_on_with_whatever_else_a_run_keeps(tmp_path: Path) -> None:
    """A unit of rewards for each seed, and an index of counts, whose empty places have infinite keys."""
    method = small(policy=Apart(hidden=4, largest_reward=10.0), curiosity=Counts(capacity=64))
    run = emc.train(method, "climbing", runs=tmp_path, seeds=(3, 5), **QUICK)
    learner = restored(run.directory, run.config)[0].tree.learner
    for place, seed in enumerate(run.config.seeds):
        own = jax.tree.map(lambda leaf, place=place: leaf[place], learner)
        assert same(run.policy(seed).actors, learning.tested(method, own))
    assert emc.resume(run, steps=max(run.directory.steps()) + 20).finished


def test_one_seed_serves_all_and_another_mixer_begins_anew(tmp_path: Path) -> None:
    brief = QUICK | {"steps": 1}
    one = emc.train(small(), "gridworld", runs=tmp_path, **QUICK)
    words = ["--policy.hidden", "4", "--batch-episodes", "2", "--replay-episodes", "8", "--runs", str(tmp_path / "vdn")]
    flags = [word for name, value in brief.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    main(["train", "vdn", "gridworld", *words, *flags, "--seeds", "2", "--start-from", str(one.path)])
    (begun,) = emc.runs(tmp_path / "vdn")
    assert same(begun.policy(0).actors.net, one.policy().actors.net)
    assert same(begun.policy(1).actors.net, one.policy().actors.net)


def test_networks_that_are_taken_over_have_memory_of_their_own(run: emc.Run) -> None:
    """Training overwrites both, and what they were taken from may be somebody else's."""
    state, _ = with_networks(loop_of(run.config).init(), run.config, run.directory)
    values = state.learner.values
    places = [leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves((values.online, values.target))]
    assert len({*places}) == len(places) > 2


def test_progress_is_shown_where_somebody_can_see_it(run: emc.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    assert isinstance(display_for(None, run.config), Silent)
    assert isinstance(display_for(True, run.config), PlainDisplay)
    monkeypatch.setitem(sys.modules, "ipykernel", object())
    assert isinstance(display_for(None, run.config), PlainDisplay)
    assert isinstance(display_for(False, run.config), Silent)
    monkeypatch.delitem(sys.modules, "ipykernel")
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert isinstance(display_for(None, run.config), LiveDisplay)
