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
