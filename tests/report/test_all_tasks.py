"""Sections about all tasks together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from emc.envs.registry import preset_for
from emc.errors import UserError
from emc.methods import make_method
from emc.report.all_tasks import all_tasks_section, comparable
from emc.report.curves import group_runs
from emc.report.page import build_page
from emc.training.loop import Budget
from tests.report.fabricate import new_run, win_rates


def scores(**tasks: str) -> dict[str, dict[str, np.ndarray]]:
    return {method: {task: np.ones(3) for task in names} for method, names in tasks.items()}


def test_methods_are_compared_on_the_tasks_that_they_share() -> None:
    assert {method: [*own] for method, own in comparable(scores(vdn="ab", qmix="abc")).items()} == {"vdn": ["a", "b"], "qmix": ["a", "b"]}
    assert {*comparable(scores(vdn="ab", qmix="ab", iql="a"))} == {"vdn", "qmix"}  # one that lacks a task is left out, not the task
    found = comparable(scores(vdn="abcd", qmix="abcx", iql="abdx", qplex="ef", qtran="ef"))
    assert {method: [*own] for method, own in found.items()} == {method: ["a", "b"] for method in ("vdn", "qmix", "iql")}
    assert {*comparable(scores(vdn="abcd", qmix="abcd", iql="ab"))} == {"vdn", "qmix"}  # two on four are more than three on two
    many = {f"m{k}": {f"t{task}": np.ones(1) for task in range(40) if (task * 7 + k) % 40 > k % 5} for k in range(40)}
    assert len(comparable(many)) > 1
    assert comparable(scores(vdn="ab", qmix="a")) == {}
    assert comparable(scores(vdn="ab")) == {}
    assert comparable({}) == {}


def test_of_too_many_sets_of_tasks_the_largest_are_considered(monkeypatch: pytest.MonkeyPatch) -> None:
    found = scores(vdn="abcd", qmix="abce", iql="abxy", qplex="abzw", qtran="efghi", maven="efghj")
    assert {*comparable(found)} == {"vdn", "qmix", "iql", "qplex"}  # four on two
    monkeypatch.setattr("emc.report.all_tasks.CONSIDERED", 7)  # without the smallest, which those four share
    assert {method: [*own] for method, own in comparable(found).items()} == {"qtran": [*"efgh"], "maven": [*"efgh"]}


@pytest.mark.parametrize("preset", ["released", ""])  # the same constants everywhere, or those that each environment names
def test_the_section_is_there_when_there_is_something_to_compare(preset: str, tmp_path: Path) -> None:
    runs = [
        new_run(
            tmp_path,
            [line for seed in (0, 1) for line in win_rates(seed, {1000: rate})],
            method_name=method,
            env_name=env,
            seeds=(0, 1),
            method=make_method(method, preset or preset_for(env), env),
        )
        for env in ("gridworld", "3m")
        for method, rate in (("emc-vdn", 1.0), ("vdn", 0.2))
    ]
    section = all_tasks_section(group_runs(runs))
    made = section.html
    assert made.count('class="chart"') == 1
    assert made.count("<rect") == 2 * 4 + 1  # every aggregate of both, and the improvement over the other
    assert "3m" in made
    assert "a run of emc-vdn, the best on average here" in made
    assert "<td>1.00 <small>[1.00, 1.00]</small><svg viewBox" in made
    assert "Left out" not in made
    profiles = section.plots["across"]["panels"][0]["lines"]
    assert [(line["median"][0], line["median"][19], line["median"][21], line["median"][-1]) for line in profiles] == [
        (1, 1, 1, 0),
        (1, 1, 0, 0),
    ]
    assert all_tasks_section(group_runs(runs[:2])).html == ""
    usual = make_method("qmix", preset_for("3m"), "3m")
    third = new_run(tmp_path, win_rates(0, {1000: 0.5}), method_name="qmix", env_name="3m", method=usual)
    assert "Left out, because they lack some of these tasks: qmix." in all_tasks_section(group_runs([*runs, third])).html


def test_runs_that_differ_in_any_field_of_their_budget_are_on_tasks_of_their_own(tmp_path: Path) -> None:
    runs = [
        new_run(tmp_path, win_rates(0, {1000: 0.5}), method_name=method, budget=Budget(test_episodes=episodes))
        for method in ("emc-vdn", "vdn")
        for episodes in (10, 20)
    ]
    made = all_tasks_section(group_runs(runs)).html
    assert "over gridworld, test episodes 10; gridworld, test episodes 20." in made
    assert "Results" in build_page(runs)


def test_aggregates_that_cannot_be_made_are_a_line_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(groups: object) -> None:
        raise UserError("two <configurations>")

    monkeypatch.setattr("emc.report.all_tasks.scores_by_method", refuse)
    made = all_tasks_section(group_runs([new_run(tmp_path, win_rates(0, {1000: 0.5}))])).html
    assert "Nothing to show: two &lt;configurations&gt;." in made
