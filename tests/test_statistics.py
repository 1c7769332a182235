"""Statistics against scipy, rliable, plain Python and hand-computed numbers."""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import scipy  # its statistics are imported when they are asked for

from emc import statistics as s
from emc.configuration import configure
from emc.envs import TASKS
from emc.envs.registry import task as task_of
from emc.errors import UserError
from emc.report.ceilings import on_scale

GOLDEN = json.loads((Path(__file__).parent / "golden" / "rliable.json").read_text())  # made by rliable_numbers.py beside it
THEIR_NAMES = {"mean": s.mean, "median": s.median, "iqm": s.iqm, "optimality_gap": s.optimality_gap}

tables = st.lists(st.lists(st.floats(-2, 3), min_size=1, max_size=9), min_size=1, max_size=5)
quarters = st.lists(st.integers(0, 4).map(lambda n: n / 4), min_size=1, max_size=5)


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
    thresholds = [0.5, -1.0, *flat]
    expected = [sum(x > threshold for x in flat) / len(flat) for threshold in thresholds]
    assert s.profile(given, np.array(thresholds)).tolist() == expected
    twice = s.profile([np.stack([row, row - 1.0]) for row in given], np.array([0.5]))
    assert twice[:, 0].tolist() == [expected[0], sum(x - 1.0 > 0.5 for x in flat) / len(flat)]


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(st.lists(st.tuples(*[st.lists(st.integers(0, 4), min_size=1, max_size=6)] * 2), min_size=1, max_size=4))
def test_the_probability_of_improvement_is_the_u_statistic(pairs: list[tuple[list[int], list[int]]]) -> None:
    expected = np.mean([scipy.stats.mannwhitneyu(a, b).statistic / (len(a) * len(b)) for a, b in pairs])
    ours, theirs = ([np.array(pair[i], float) for pair in pairs] for i in (0, 1))
    assert s.improvement(ours, theirs) == pytest.approx(expected, abs=1e-12)
    assert s.improvement(ours, theirs) + s.improvement(theirs, ours) == pytest.approx(1.0)


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(quarters, min_size=n, max_size=n), min_size=2, max_size=4)))
def test_the_best_method_of_a_task_is_above_all_others_by_the_margin(methods: list[list[list[float]]]) -> None:
    given = {f"method {m}": {f"task {t}": np.array(runs) for t, runs in enumerate(own)} for m, own in enumerate(methods)}
    middles = [[statistics.median(runs) for runs in own] for own in methods]
    for margin in (0.0, 0.25, 0.5):
        found = s.estimate_best_on(given, margin, samples=20)
        for one, mine in zip(found.values(), middles, strict=True):
            others = [own for own in middles if own is not mine]
            assert one.value == sum(all(mine[t] - own[t] >= margin for own in others) for t in range(len(mine)))
            assert 0 <= one.low <= one.high <= len(mine)
        assert margin == 0.0 or sum(one.value for one in found.values()) <= len(methods[0])


def test_how_sure_it_is_that_a_method_is_best_depends_on_its_runs() -> None:
    sure, torn = np.array([0.9, 1.0, 1.0]), np.array([0.0, 1.0])
    found = s.estimate_best_on({"a": {"x": sure, "y": torn}, "b": {"x": 0 * sure, "y": 0 * torn + 0.5}})
    assert found["a"] == s.Estimate(1.0, 1.0, 2.0)  # x always; y if both draws are the run that won, one time in four
    assert found["b"] == s.Estimate(0.0, 0.0, 1.0)
    # The margin is reached and not only surpassed.
    close = {"a": {"x": np.array([17 / 32])}, "b": {"x": np.array([16 / 32])}}
    assert [one.value for one in s.estimate_best_on(close).values()] == [1.0, 0.0]
    assert [one.value for one in s.estimate_best_on(close, 1 / 16).values()] == [0.0, 0.0]
    rounded = {"a": {"x": np.array([0.3])}, "b": {"x": np.array([0.2])}}  # 0.2 + 0.1 is more than 0.3 in binary
    assert [one.value for one in s.estimate_best_on(rounded, 0.1).values()] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("scores", "margin", "message"),
    [
        ({"a": {"x": np.ones(2)}}, 0.1, "two or more"),
        ({"a": {"x": np.ones(2)}, "b": {"y": np.ones(2)}}, 0.1, "x, y"),
        ({"a": {"x": np.ones(2)}, "b": {"x": np.ones(2)}}, -0.1, "margin"),
    ],
)
def test_what_has_no_best_method_is_refused(scores: dict[str, dict[str, np.ndarray]], margin: float, message: str) -> None:
    with pytest.raises(UserError, match=message):
        s.estimate_best_on(scores, margin)


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


def test_hand_computed_aggregates_of_two_tasks() -> None:
    scores = {"a": np.array([0.0, 0.2, 0.4, 2.0]), "b": np.array([0.5, 0.6, 0.7, 1.0])}
    given = list(scores.values())
    assert s.iqm(given) == pytest.approx((0.4 + 0.5 + 0.6 + 0.7) / 4)
    assert s.mean(given) == pytest.approx((0.65 + 0.7) / 2)
    assert s.median(given) == pytest.approx((0.65 + 0.7) / 2)
    assert s.optimality_gap(given) == pytest.approx(1 - (0 + 0.2 + 0.4 + 1 + 0.5 + 0.6 + 0.7 + 1) / 8)
    assert s.profile(given, np.array([-1.0, 0.4, 0.65, 2.0])).tolist() == [1.0, 5 / 8, 3 / 8, 0.0]  # above, not at
    assert s.profile(given, np.array([0.65, -1.0, 0.65])).tolist() == [3 / 8, 1.0, 3 / 8]  # in any order
    assert s.improvement([scores["a"]], [scores["b"]]) == pytest.approx(4 / 16)
    assert [float(s.percentile(share)(given)) for share in (0.0, 0.5, 1.0)] == pytest.approx([0.0, 0.55, 2.0])


@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(tables, st.floats(0.1, 3), st.floats(-2, 2))
def test_aggregates_follow_a_change_of_scale_and_no_change_of_order(numbers: list[list[float]], factor: float, shift: float) -> None:
    given = [np.array(row) for row in numbers]
    moved, turned = [factor * row + shift for row in given], [row[::-1] for row in given[::-1]]
    for aggregate in (s.mean, s.median, s.iqm, s.percentile(0.25)):
        assert aggregate(moved) == pytest.approx(factor * aggregate(given) + shift, abs=1e-9)
        assert aggregate(turned) == pytest.approx(aggregate(given), abs=1e-9)
        assert min(map(np.min, given)) - 1e-9 <= aggregate(given) <= max(map(np.max, given)) + 1e-9


@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(tables, st.sampled_from([*s.AGGREGATES.values(), s.percentile(0.75)]))
def test_intervals_are_made_of_samples_and_grow_with_confidence(numbers: list[list[float]], aggregate: s.Aggregate) -> None:
    scores = {str(task): np.array(row) for task, row in enumerate(numbers)}
    narrow, wide = (s.estimate(scores, aggregate, samples=60, confidence=confidence) for confidence in (0.5, 0.95))
    assert wide.low <= narrow.low <= narrow.high <= wide.high
    constant = s.estimate({"task": np.full(4, 0.25)}, aggregate, samples=20)
    assert constant.value == constant.low == constant.high


def test_how_much_is_held_at_once_changes_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = {"a": np.arange(5.0), "b": np.arange(3.0)}
    monkeypatch.setattr(s, "CHUNK", 30)  # three samples at a time
    blocks = list(s._resampled([s._checked(scores, 10, 0.9)], 10, 0))
    assert [block[0][0].shape for block in blocks] == [(3, 5), (3, 5), (3, 5), (1, 5)]
    assert s.estimate(scores, s.mean, samples=10).value == 1.5
    value, low, high = s.estimate_profile(scores, np.array([1.5]), samples=10)
    assert (value.shape, low.shape, high.shape) == ((1,), (1,), (1,))


# Against rliable: its numbers are kept, and it is asked again where it can be imported.


def golden(name: str) -> dict[str, np.ndarray]:
    return {f"task {task}": np.array(runs) for task, runs in enumerate(zip(*GOLDEN["scores"][name], strict=True))}


@pytest.mark.parametrize("method", GOLDEN["scores"])
def test_aggregates_and_intervals_are_those_that_rliable_gave(method: str) -> None:
    scores = golden(method)
    for name, aggregate in THEIR_NAMES.items():
        theirs, found = GOLDEN["aggregates"][method][name], s.estimate(scores, aggregate, samples=4_000)
        assert found.value == pytest.approx(theirs["value"], abs=1e-12)
        assert (found.low, found.high) == pytest.approx((theirs["low"], theirs["high"]), abs=0.02)


@pytest.mark.parametrize("method", GOLDEN["scores"])
def test_profiles_are_those_that_rliable_gave(method: str) -> None:
    theirs = GOLDEN["profiles"][method]
    value, low, high = s.estimate_profile(golden(method), np.array(GOLDEN["thresholds"]), samples=4_000)
    np.testing.assert_allclose(value, theirs["value"], atol=1e-12)
    np.testing.assert_allclose(low, theirs["low"], atol=0.04)  # shares of 40 runs move in steps of 0.025
    np.testing.assert_allclose(high, theirs["high"], atol=0.04)


@pytest.mark.parametrize("pair", GOLDEN["improvement"])
def test_probabilities_of_improvement_are_those_that_rliable_gave(pair: str) -> None:
    theirs, (ours, others) = GOLDEN["improvement"][pair], pair.split(",")
    found = s.estimate_improvement(golden(ours), golden(others), samples=4_000)
    assert found.value == pytest.approx(theirs["value"], abs=1e-12)
    assert (found.low, found.high) == pytest.approx((theirs["low"], theirs["high"]), abs=0.02)


def test_rliable_still_gives_these_numbers() -> None:
    reason = "rliable cannot be imported here (it needs pandas below 3): only its kept numbers are compared"
    metrics = pytest.importorskip("rliable.metrics", reason=reason, exc_type=Exception)
    library = pytest.importorskip("rliable.library", reason=reason, exc_type=Exception)
    scores = {name: np.array(runs) for name, runs in GOLDEN["scores"].items()}
    for method, runs in scores.items():
        for name in THEIR_NAMES:
            value = getattr(metrics, f"aggregate_{name}")(runs)
            assert value == pytest.approx(GOLDEN["aggregates"][method][name]["value"], abs=1e-12)
    values, _ = library.create_performance_profile(scores, np.array(GOLDEN["thresholds"]), reps=10)
    for method, found in values.items():
        np.testing.assert_allclose(found, GOLDEN["profiles"][method]["value"], atol=1e-12)
    for pair, theirs in GOLDEN["improvement"].items():
        value = metrics.probability_of_improvement(*(scores[name] for name in pair.split(",")))
        assert value == pytest.approx(theirs["value"], abs=1e-12)


# Exact comparisons.


def by_brute_force(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The share of relabellings whose U statistic is at least the observed one."""

    def wins(mine: Sequence[float], yours: Sequence[float]) -> float:
        return sum((a > b) + 0.5 * (a == b) for a in mine for b in yours)

    together, seen = [*ours, *theirs], wins(ours, theirs)
    every = [set(some) for some in itertools.combinations(range(len(together)), len(ours))]
    relabelled = [
        ([x for i, x in enumerate(together) if i in some], [x for i, x in enumerate(together) if i not in some]) for some in every
    ]
    return sum(wins(*sides) >= seen for sides in relabelled) / len(every)


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(st.permutations(range(12)), st.integers(1, 11))
def test_without_ties_the_exact_test_is_scipys(order: list[int], size: int) -> None:
    ours, theirs = [float(x) for x in order[:size]], [float(x) for x in order[size:]]
    expected = scipy.stats.mannwhitneyu(ours, theirs, alternative="greater", method="exact").pvalue
    assert s.ahead(ours, theirs) == pytest.approx(expected, abs=1e-12)


few = st.lists(st.sampled_from([0.0, 0.5, 1.0, math.inf]), min_size=1, max_size=5)


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(few, few)
def test_with_ties_the_exact_test_counts_every_relabelling(ours: list[float], theirs: list[float]) -> None:
    assert s.ahead(ours, theirs) == pytest.approx(by_brute_force(ours, theirs), abs=1e-12)
    assert s.ahead(ours, theirs) + s.ahead(theirs, ours) >= 1.0  # what is seen counts on both sides
    assert s.ahead([*ours, math.inf], theirs) <= 1.0


def test_what_few_runs_can_show_at_most() -> None:
    assert s.ahead([1, 1, 1], [0, 0, 0]) == pytest.approx(1 / 20)
    assert s.ahead([1] * 6, [0] * 6) == pytest.approx(1 / 924)
    assert s.ahead([0, 0, 0], [1, 1, 1]) == s.ahead([1, 1], [1, 1]) == 1.0
    assert s.ahead([2.0], [1.0]) == 0.5
    ours, theirs = np.random.default_rng(0).normal(size=(2, 100))
    assert s.ahead(ours, theirs) == pytest.approx(scipy.stats.mannwhitneyu(ours, theirs, alternative="greater").pvalue, abs=1e-3)


@pytest.mark.parametrize("sides", [([], [1.0]), ([1.0], []), ([math.nan], [1.0]), ([[1.0]], [1.0]), ([1.0] * 101, [0.0] * 100)])
def test_what_cannot_be_compared_is_refused(sides: tuple[list[float], list[float]]) -> None:
    with pytest.raises(UserError):
        s.ahead(*sides)


# Curves.


curves = st.lists(st.tuples(st.integers(1, 50), st.floats(-5, 5)), min_size=1, max_size=8).map(
    lambda points: (np.cumsum([gap for gap, _ in points]).tolist(), [value for _, value in points])
)


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(curves, st.floats(1, 500), st.floats(0.5, 4))
def test_summaries_lie_within_the_curve_and_do_not_depend_on_the_unit_of_steps(
    curve: tuple[list[int], list[float]], until: float, unit: float
) -> None:
    steps, values = curve
    low, high = min(values), max(values)
    for number in (s.final(values), s.area(steps, values, until)):
        assert low - 1e-9 <= number <= high + 1e-9
    assert s.steps_to(steps, values, low, holds=len(values)) == steps[0]
    assert s.steps_to(steps, values, high + 1, holds=1) == math.inf
    assert s.area([unit * step for step in steps], values, unit * until) == pytest.approx(s.area(steps, values, until), abs=1e-9)


def test_a_curve_must_have_points_in_order() -> None:
    for summary in (lambda: s.final([]), lambda: s.area([], [], 10), lambda: s.steps_to([], [], 0.5)):
        with pytest.raises(UserError, match="without points"):
            summary()
    with pytest.raises(UserError, match="increasing order"):
        s.area([2, 1], [0.0, 1.0], 10)
    with pytest.raises(UserError, match="2 steps for 1 values"):
        s.area([1, 2], [0.0], 10)
    for summary in (lambda: s.area([1], [1.0], 0), lambda: s.final([1.0], last=0), lambda: s.steps_to([1], [1.0], 0.5, holds=0)):
        with pytest.raises(UserError):
            summary()


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
    assert s.final(values) == pytest.approx(0.8)  # of the last five


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([30.0], 30.0),
        ([math.inf, 20.0, 10.0], 20.0),  # two of three are more than half, one is not
        ([math.inf, 40.0, 10.0, math.inf], 40.0),  # two of four are half
        ([50.0, 20.0, 30.0, math.inf, 10.0], 30.0),
        ([math.inf, 20.0, math.inf, 10.0, math.inf], math.inf),  # two of five are not
        ([40.0, 10.0, 20.0, 30.0], 20.0),  # not between two runs: by 20 half have got there
    ],
)
def test_half_of_the_runs_got_there_by_a_time_and_those_that_never_did_are_the_last(times: list[float], expected: float) -> None:
    assert s.half_by(times) == expected


@pytest.mark.parametrize("times", [[], [1.0, math.nan]])
def test_half_of_nothing_known_is_refused(times: list[float]) -> None:
    with pytest.raises(UserError, match="half of the runs"):
        s.half_by(times)


def test_quartiles_are_over_runs() -> None:
    middle, low, high = s.quartiles(np.array([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0], [3.0, 1.0], [4.0, 1.0]]))
    assert (middle.tolist(), low.tolist(), high.tolist()) == ([2.0, 1.0], [1.0, 1.0], [3.0, 1.0])


def test_every_task_brings_its_own_scale() -> None:
    for task in TASKS.values():
        low, high = task.scale
        assert high > low
        assert (low, high) == (0.0, 1.0) or not task.make().spec.winnable


@pytest.mark.parametrize(
    ("words", "earned", "score"),
    [
        ("vdn predator-prey", 30.0, 0.75),
        ("vdn predator-prey --env.n-agents 4", 20.0, 1.0),  # two pairs, ten each
        ("qplex penalty", 225.0, 0.9),
        ("qplex penalty --env.episode-limit 10", 100.0, 1.0),  # ten a step
        ("vdn gridworld --env.slip 0.5", 0.93, 0.93),  # a win rate is what it is
    ],
)
def test_returns_are_scaled_by_the_best_play_of_the_task_as_its_fields_make_it(words: str, earned: float, score: float) -> None:
    config = configure(words.split())
    assert on_scale(task_of(config.env_name), config, earned) == pytest.approx(score)
    low, high = task_of(config.env_name).scale
    assert on_scale(task_of(config.env_name), None, earned) == pytest.approx((earned - low) / (high - low))  # of an unknown configuration
