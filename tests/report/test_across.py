"""Sections about all tasks together."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from emc.report.across import across_section, comparable
from emc.report.curves import group_runs
from tests.report.fabricate import new_run, win_rates


def scores(**tasks: str) -> dict[str, dict[str, np.ndarray]]:
    return {method: {task: np.ones(3) for task in names} for method, names in tasks.items()}


def test_methods_are_compared_on_the_tasks_that_they_share() -> None:
    assert {method: [*own] for method, own in comparable(scores(vdn="ab", qmix="abc")).items()} == {"vdn": ["a", "b"], "qmix": ["a", "b"]}
    assert {*comparable(scores(vdn="ab", qmix="ab", iql="a"))} == {"vdn", "qmix"}  # one that lacks a task is left out, not the task
    assert comparable(scores(vdn="ab", qmix="a")) == {}
    assert comparable(scores(vdn="ab")) == {}
    assert comparable({}) == {}


def test_the_section_is_there_when_there_is_something_to_compare(tmp_path: Path) -> None:
    runs = [
        new_run(
            tmp_path, [line for seed in (0, 1) for line in win_rates(seed, {1000: rate})], method_name=method, env_name=env, seeds=(0, 1)
        )
        for env in ("gridworld", "3m")
        for method, rate in (("emc-vdn", 1.0), ("vdn", 0.2))
    ]
    made = across_section(group_runs(runs))
    assert made.count("<figure>") == 3
    assert "3m" in made
    assert "a run of emc-vdn, the best on average here" in made
    assert across_section(group_runs(runs[:2])) == ""
