"""Statistics against scipy, plain Python and hand-computed numbers."""

from __future__ import annotations

import itertools
import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats

from emc import statistics as s
from emc.envs import TASKS
from emc.errors import UserError

tables = st.lists(st.lists(st.floats(-2, 3), min_size=1, max_size=9), min_size=1, max_size=5)


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(tables)
def test_aggregates_are_those_of_scipy_and_plain_python(numbers: list[list[float]]) -> None:
    given = [np.array(row) for row in numbers]
    flat = [x for row in numbers for x in row]
    means = [sum(row) / len(row) for row in numbers]
    assert s.iqm(given) == pytest.approx(scipy.stats.trim_mean(flat, 0.25), abs=1e-12)
    assert s.mean(given) == pytest.approx(sum(means) / len(means), abs=1e-12)
    assert s.median(given) == pytest.approx(sorted(means)[len(means) // 2] if len(means) % 2 else np.median(means), abs=1e-12)
    assert s.optimality_gap(given) == pytest.approx(sum(1 - min(x, 1) for x in flat) / len(flat), abs=1e-12)
    for threshold in (-1.0, 0.5):
        assert s.profile(given, np.array([threshold]))[0] == sum(x > threshold for x in flat) / len(flat)


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(st.lists(st.tuples(*[st.lists(st.integers(0, 4), min_size=1, max_size=6)] * 2), min_size=1, max_size=4))
def test_the_probability_of_improvement_is_the_u_statistic(pairs: list[tuple[list[int], list[int]]]) -> None:
    expected = np.mean([scipy.stats.mannwhitneyu(a, b).statistic / (len(a) * len(b)) for a, b in pairs])
    ours, theirs = ([np.array(pair[i], float) for pair in pairs] for i in (0, 1))
    assert s.improvement(ours, theirs) == pytest.approx(expected, abs=1e-12)
    assert s.improvement(ours, theirs) + s.improvement(theirs, ours) == pytest.approx(1.0)


def test_samples_draw_the_runs_of_each_task_among_themselves() -> None:
    scores = {"easy": np.array([10.0, 11.0]), "hard": np.array([0.0])}
    seen = {
        tuple(sorted(table[i].tolist()))
        for some in s._resampled([s._checked(scores, 40, 0.9)], 40, 0)
        for table in some[0]
        for i in range(40)
    }
    assert seen == {(10.0, 10.0), (10.0, 11.0), (11.0, 11.0), (0.0,)}


def test_an_interval_is_the_percentiles_of_every_equally_likely_sample() -> None:
    runs = [0.0, 1.0, 5.0]
    every = sorted(sum(some) / 3 for some in itertools.product(runs, repeat=3))  # all 27 samples of the mean
    found = s.estimate({"task": np.array(runs)}, s.mean, samples=200_000, confidence=0.8)
    assert found.value == 2.0
    assert (found.low, found.high) == (pytest.approx(every[2], abs=0.35), pytest.approx(every[24], abs=0.35))
    assert s.estimate({"task": np.array(runs)}, s.mean, samples=500) == s.estimate({"task": np.array(runs)}, s.mean, samples=500)


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(0)
    held = 0
    for trial in range(200):
        scores = {task: rng.normal(loc, 1.0, 30) for task, loc in (("a", 0.0), ("b", 2.0))}
        interval = s.estimate(scores, s.mean, samples=400, seed=trial)
        held += interval.low <= 1.0 <= interval.high
    assert 0.88 <= held / 200 <= 0.99


def test_a_profile_falls_and_its_interval_holds_it() -> None:
    rng = np.random.default_rng(1)
    thresholds = np.linspace(-0.1, 1.1, 13)
    value, low, high = s.estimate_profile({"a": rng.random(8), "b": rng.random(5)}, thresholds, samples=500)
    assert np.all(np.diff(value) <= 0)
    assert value[0] == 1.0
    assert value[-1] == 0.0
    assert np.all((low <= value) & (value <= high))


def test_methods_are_compared_on_the_same_tasks_only() -> None:
    ours, theirs = {"a": np.array([1.0, 1.0]), "b": np.array([1.0])}, {"b": np.array([0.0]), "a": np.array([0.0, 0.0])}
    assert s.estimate_improvement(ours, theirs, samples=50) == s.Estimate(1.0, 1.0, 1.0)
    with pytest.raises(UserError, match="only one of the two methods has c"):
        s.estimate_improvement(ours, {**theirs, "c": np.array([1.0])})


@pytest.mark.parametrize("scores", [{}, {"a": np.array([])}, {"a": np.array([[1.0]])}, {"a": np.array([np.nan])}])
def test_what_has_no_statistics_is_refused(scores: dict[str, np.ndarray]) -> None:
    with pytest.raises(UserError):
        s.estimate(scores, s.iqm)


def test_curves_meet_on_a_grid_and_end_where_they_end() -> None:
    found = s.on_grid([10, 20, 40], [0.0, 1.0, 0.5], np.array([5.0, 10.0, 15.0, 30.0, 40.0, 41.0]))
    np.testing.assert_allclose(found, [np.nan, 0.0, 0.5, 0.75, 0.5, np.nan])


def test_the_area_is_the_mean_height() -> None:
    assert s.area([0, 10], [0.0, 1.0], 10) == pytest.approx(0.5)
    assert s.area([0, 10], [0.0, 1.0], 20) == pytest.approx(0.75)  # the last value holds
    assert s.area([5, 10], [1.0, 1.0], 10) == pytest.approx(1.0)
    assert s.area([0, 10, 20], [0.0, 1.0, 9.0], 10) == pytest.approx(0.5)  # what comes later does not count


def test_a_threshold_must_hold_for_some_tests() -> None:
    steps, values = [1, 2, 3, 4, 5, 6], [0.0, 1.0, 0.0, 1.0, 1.0, 1.0]
    assert s.steps_to(steps, values, 0.9) == 4
    assert s.steps_to(steps, values, 0.9, holds=1) == 2
    assert s.steps_to(steps, values, 0.9, holds=4) == math.inf
    assert s.steps_to([1], [1.0], 0.9) == math.inf
    assert s.final(values, last=2) == 1.0


def test_quartiles_are_over_runs() -> None:
    middle, low, high = s.quartiles(np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0], [3.0, 1.0], [4.0, 1.0]]))
    assert (middle.tolist(), low.tolist(), high.tolist()) == ([2.0, 1.0], [1.0, 1.0], [3.0, 1.0])


def test_aggregates_and_intervals_agree_with_rliable() -> None:
    library = pytest.importorskip("rliable.library", reason="rliable cannot be imported here", exc_type=Exception)
    metrics = pytest.importorskip("rliable.metrics", exc_type=Exception)
    scores = np.random.default_rng(0).random((10, 4))
    ours = {str(task): scores[:, task] for task in range(4)}
    pairs = {s.mean: metrics.aggregate_mean, s.median: metrics.aggregate_median, s.iqm: metrics.aggregate_iqm}
    for mine, theirs in {**pairs, s.optimality_gap: metrics.aggregate_optimality_gap}.items():
        value, interval = library.get_interval_estimates({"x": scores}, lambda x, f=theirs: np.array([f(x)]), reps=4_000)
        found = s.estimate(ours, mine, samples=4_000)
        assert found.value == pytest.approx(float(value["x"][0]))
        assert (found.low, found.high) == pytest.approx(tuple(interval["x"][:, 0]), abs=0.02)


def test_every_task_brings_its_own_scale() -> None:
    for task in TASKS.values():
        low, high = task.scale
        assert high > low
        assert (low, high) == (0.0, 1.0) or not task.make().spec.winnable
    assert TASKS["predator-prey"].score(30.0) == 0.75
