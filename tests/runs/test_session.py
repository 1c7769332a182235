"""Training in a run directory, from the host's side."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest

from emc.envs import make_env
from emc.errors import RunError, UserError
from emc.methods import Method
from emc.policies import RecurrentQ
from emc.runs.config import RunConfig
from emc.runs.jsonl import read_metrics
from emc.runs.machine import describe_machine, differences
from emc.runs.session import END, start
from emc.training.loop import Budget

SMALL = Method(policy=RecurrentQ(hidden=4), batch_episodes=2, replay_episodes=8)
ENV = make_env("gridworld", rows=5, columns=6, episode_limit=12)  # small enough that luck ends some episodes early
BUDGET = Budget(steps=150, evaluate_every=40, test_episodes=2)


def config(**changes: object) -> RunConfig:
    return dataclasses.replace(RunConfig("vdn", SMALL, "gridworld", ENV, BUDGET, (0, 1)), **changes)


def test_a_run_ends_when_every_seed_has_had_its_budget_and_tests_all_at_the_end(tmp_path: Path) -> None:
    run = start(config(), tmp_path)
    lines = read_metrics(run.path / "metrics.jsonl")
    tests = {seed: [line["steps"] for line in lines if line["kind"] == "eval" and line["seed"] == seed] for seed in (0, 1)}
    assert tests[0][-1] != tests[1][-1]  # their episodes differ in length, or this would show nothing
    assert min(tests[0][-1], tests[1][-1]) >= BUDGET.steps
    for steps in tests.values():
        assert steps == sorted(set(steps))
        gaps = [later - earlier for earlier, later in itertools.pairwise(steps)]
        assert max(gaps) <= BUDGET.evaluate_every + ENV.spec.episode_limit
    assert all(len(line["won"]) == BUDGET.test_episodes for line in lines if line["kind"] == "eval")
    assert [line["reason"] for line in read_metrics(run.path / END)] == ["budget"]


def test_a_run_may_end_when_it_is_enough(tmp_path: Path) -> None:
    seen: list[float] = []

    def enough(latest: dict[str, float]) -> bool:
        seen.append(latest["eval_win_rate"])
        return len(seen) == 2

    run = start(config(), tmp_path, enough=enough)
    (end,) = read_metrics(run.path / END)
    assert end["reason"] == "enough"
    assert end["steps"] < BUDGET.steps
    assert len(run.steps()) == 1


def test_numbers_that_are_not_finite_stop_the_run_and_the_first_is_named(tmp_path: Path) -> None:
    wild = dataclasses.replace(SMALL, learning_rate=1e30)
    with pytest.raises(RunError, match=r"(parameter_norm|q|target|td_error|loss|gradient_norm) is not a finite number near step \d+\."):
        start(config(method=wild, seeds=(0,)), tmp_path)
    (path,) = tmp_path.glob("*/*/*")
    assert not list(path.glob("checkpoints/*"))  # nothing broken is kept


def test_what_could_never_be_loaded_again_is_not_trained() -> None:
    class Mine(Method):
        pass

    with pytest.raises(UserError, match="could not be resumed or loaded"):
        config(method=Mine())
    with pytest.raises(UserError, match="different whole numbers"):
        config(seeds=(1, 1))


def test_training_is_logged_on_its_own_interval_and_with_every_evaluation(tmp_path: Path) -> None:
    often = dataclasses.replace(BUDGET, log_every=15)
    usual, finer = (
        read_metrics(start(config(budget=budget, seeds=(0,)), tmp_path / name).path / "metrics.jsonl")
        for name, budget in {"usual": BUDGET, "finer": often}.items()
    )
    tests = [line for line in usual if line["kind"] == "eval"]
    assert [line for line in finer if line["kind"] == "eval"] == tests  # looking more often changes nothing
    assert [line["steps"] for line in usual if line["kind"] == "train"] == [line["steps"] for line in tests]
    logged = [line["steps"] for line in finer if line["kind"] == "train"]
    assert set(logged) > {line["steps"] for line in tests}
    limit = ENV.spec.episode_limit
    assert all(later // 15 > earlier // 15 and later - earlier < 15 + limit for earlier, later in itertools.pairwise(logged[1:-1]))
    # No episode is lost or counted twice, wherever lines are written.
    for lines in (usual, finer):
        train = [line for line in lines if line["kind"] == "train"]
        episodes = [0, *(line["episodes"] for line in train)]
        played = [line["length"] * (after - before) for line, before, after in zip(train, episodes, episodes[1:], strict=False)]
        assert sum(played) == pytest.approx(train[-1]["steps"])


def test_going_on_with_other_versions_says_so() -> None:
    machine = describe_machine()
    assert differences(machine) == ""
    other = {**machine, "packages": {**machine["packages"], "jax": "0.1"}, "device": {"platform": "gpu", "kind": "X", "count": 1}}
    assert differences(other).startswith(f"jax was 0.1, is {machine['packages']['jax']}, device was gpu X 1, is ")
    assert "jax was None" in differences("nothing we know")
