"""Figures over tasks show the numbers of `emc.statistics`, on each task's own scale, and compare only what can be compared."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from emc import statistics
from emc.envs.registry import make_env
from emc.errors import UserError
from emc.methods import make_method
from emc.report.aggregate import plot_best_on, plot_iqm_bars, plot_profiles, scores_by_method
from emc.report.curves import group_runs
from emc.report.figures import DARK, as_png, colour_of
from emc.runs import RunDirectory
from emc.training.loop import Budget
from tests.report.fabricate import evaluation, new_run, win_rates

RAGGED = {
    "vdn": {"a": np.array([0.0, 0.2, 0.4]), "b": np.array([0.1, 0.3])},
    "emc-vdn": {"a": np.array([0.6, 0.9]), "b": np.array([0.2, 0.8, 1.0, 1.0])},
    "emc-vdn, gamma 0.5": {"a": np.array([0.5]), "b": np.array([0.5])},
}


# Scores.


def test_scores_are_the_last_tests_on_the_scale_of_the_task(tmp_path: Path) -> None:
    grid = [line for seed in (0, 1) for line in win_rates(seed, {100 * i: 0.1 * i for i in range(1, 8)})]
    prey = [evaluation(0, 100, [False], returns=[30.0]), evaluation(0, 200, [False], returns=[10.0])]
    runs = [
        new_run(tmp_path, grid, seeds=(0, 1)),
        new_run(tmp_path, prey, env_name="predator-prey"),
        new_run(tmp_path, method_name="vdn"),  # not tested yet
    ]
    found = scores_by_method(group_runs(runs))
    assert [*found] == ["emc-vdn"]
    np.testing.assert_allclose(found["emc-vdn"]["gridworld"], [0.5, 0.5])  # of 0.3 to 0.7
    np.testing.assert_allclose(found["emc-vdn"]["predator-prey"], [20 / 40])
    best = scores_by_method(group_runs(runs), summary=lambda curve: float(np.max(curve.values)))
    np.testing.assert_allclose(best["emc-vdn"]["gridworld"], [0.7, 0.7])


def test_methods_are_told_apart_by_their_fields_and_tasks_by_theirs(tmp_path: Path) -> None:
    lines, changed = win_rates(0, {100: 0.5}), dataclasses.replace(make_method("vdn"), gamma=0.5)
    hard = make_env("gridworld", slip=0.2)
    settings = [{"method_name": "vdn"}, {"method_name": "vdn", "method": changed}, {"method_name": "vdn", "env": hard}]
    groups = group_runs([new_run(tmp_path, lines, **own) for own in settings])
    found = scores_by_method(groups)
    assert {method: [*own] for method, own in found.items()} == {
        "vdn": ["gridworld", "gridworld, slip 0.2"],
        "vdn, gamma 0.5": ["gridworld"],
    }
    with pytest.raises(UserError, match="vdn on gridworld is there in more than one configuration"):
        scores_by_method(groups, name=lambda group: group.method_name)


def test_returns_without_a_scale_are_refused(tmp_path: Path) -> None:
    run = new_run(tmp_path, [evaluation(0, 100, [False], returns=[3.0])], env_name="mine", env=make_env("predator-prey"))
    with pytest.raises(UserError, match="mine is not won and has no scale"):
        scores_by_method(group_runs([run]))
    won = new_run(tmp_path, win_rates(0, {100: 0.5}), env_name="my grid", env=make_env("gridworld"))
    assert scores_by_method(group_runs([won]))["emc-vdn"]["my grid"].tolist() == [0.5]


def test_runs_of_different_lengths_are_compared_at_the_most_common_one(tmp_path: Path) -> None:
    def run(method: str, steps: int, *rates: float) -> RunDirectory:
        lines = win_rates(0, {1000 * (k + 1): rate for k, rate in enumerate(rates)})
        return new_run(tmp_path, lines, method_name=method, budget=Budget(steps=steps))

    early = [run(method, 5000, *[0.0] * 5) for method in ("vdn", "qmix")]
    long = run("emc-vdn", 10_000, *[0.5] * 5, *[1.0] * 5)
    brief = run("iql", 1000, 0.9)
    found = scores_by_method(group_runs([*early, long, brief]))
    assert {method: {task: values.tolist() for task, values in own.items()} for method, own in found.items()} == {
        "vdn": {"gridworld, at 5k steps": [0.0]},
        "qmix": {"gridworld, at 5k steps": [0.0]},
        "emc-vdn": {"gridworld, at 5k steps": [0.5]},
        "iql": {},
    }


def test_methods_without_a_common_task_are_not_compared() -> None:
    for draw in (plot_iqm_bars, plot_profiles, plot_best_on):
        with pytest.raises(UserError, match="a has no runs on y"):
            draw({"a": {"x": np.ones(1)}, "b": {"x": np.ones(1), "y": np.ones(1)}})
        with pytest.raises(UserError, match="no methods"):
            draw({})


# Figures.


def test_bars_are_intervals_and_markers_the_aggregates() -> None:
    figure = plot_iqm_bars(RAGGED, samples=200)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["Median", "IQM", "Mean", "Optimality gap"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [*RAGGED]
    for axes, aggregate in zip(figure.axes, statistics.AGGREGATES.values(), strict=True):
        for row, scores in enumerate(RAGGED.values()):
            expected = statistics.estimate(scores, aggregate, samples=200)
            bar, line = axes.patches[row], axes.lines[row]
            assert (bar.get_x(), bar.get_x() + bar.get_width()) == pytest.approx((expected.low, expected.high))
            assert (float(line.get_xdata()[0]), float(line.get_ydata()[0])) == pytest.approx((expected.value, row))
    assert figure.axes[0].get_xlim() == figure.axes[1].get_xlim() == figure.axes[2].get_xlim()
    assert figure.get_suptitle().startswith("2 tasks, 1 to 4 runs of each method on each. Bars hold 95% of 200 ")
    assert [axes.get_title(loc="left") for axes in plot_iqm_bars(RAGGED, samples=9, names=("IQM",)).axes] == ["IQM"]
    with pytest.raises(UserError, match="Did you mean IQM"):
        plot_iqm_bars(RAGGED, names=("iqm",))


def test_counts_of_tasks_are_drawn_with_their_intervals() -> None:
    (axes,) = plot_best_on(RAGGED, samples=200).axes
    expected = [*statistics.estimate_best_on(RAGGED, 1 / 32, 200).values()]
    assert len({one.high for one in expected}) > 1  # so that rows can be told apart
    for bar, line, one in zip(axes.patches, axes.lines, expected, strict=True):
        assert (bar.get_x(), bar.get_x() + bar.get_width()) == pytest.approx((one.low, one.high))
        assert float(line.get_xdata()[0]) == one.value
    assert [label.get_text() for label in axes.get_yticklabels()] == [*RAGGED]
    low, high = axes.get_xlim()
    assert low < 0
    assert high > 2  # the tasks that there are
    assert all(tick == round(tick) for tick in axes.get_xticks())


def test_profiles_are_the_shares_of_runs_above_each_score() -> None:
    at = np.array([0.0, 0.35, 0.9, 1.0])
    axes = plot_profiles(RAGGED, thresholds=at, samples=50).axes[0]
    drawn = {str(line.get_label()): np.asarray(line.get_ydata()).tolist() for line in axes.lines}
    assert drawn["vdn"] == [4 / 5, 1 / 5, 0.0, 0.0]
    assert drawn["emc-vdn"] == [1.0, 5 / 6, 2 / 6, 0.0]
    beyond = plot_profiles({"vdn": {"a": np.array([-0.5, 1.5])}}, samples=5).axes[0].lines[0].get_xdata()
    assert (beyond[0], beyond[-1]) == (-0.5, 1.5)


def test_a_method_looks_the_same_in_all_of_them() -> None:
    bars, profiles = plot_iqm_bars(RAGGED, samples=5).axes[0], plot_profiles(RAGGED, samples=5).axes[0]
    colours = [colour_of("vdn"), colour_of("emc-vdn"), colour_of("emc-vdn")]
    assert [line.get_color() for line in bars.lines] == [line.get_color() for line in profiles.lines] == colours
    for drawn in (bars.lines, profiles.lines):
        assert [line.get_marker() for line in drawn] == ["o", "o", "o"]
        assert [line.get_markerfacecolor() for line in drawn] == [*colours[:2], "none"]


def test_they_can_be_drawn_dark_and_with_strange_names() -> None:
    strange = {"$\\frac{1}{": RAGGED["vdn"], "a" * 200: RAGGED["emc-vdn"]}
    for figure in (plot_iqm_bars(strange, DARK, 5), plot_profiles(strange, DARK, samples=5), plot_best_on(strange, DARK, 5)):
        assert as_png(figure).startswith(b"\x89PNG")
