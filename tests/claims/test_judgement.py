"""Verdicts from curves that are known."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from emc.claims import Arm, Claim, Evidence, Panel, Sample, Verdict, VerdictKind
from emc.claims.heat_map_measures import EARLY, LATE, MIDDLE, alike, evenness, paid_in, time_in
from emc.claims.judgement import ahead, all_of, along_the_way, any_of, comparable, fails, not_behind, sooner, wins
from emc.configuration import configure
from emc.report.curves import Curve
from emc.runs.directory import RunDirectory

HOLDS, FAILS, UNKNOWN = VerdictKind.HOLDS, VerdictKind.FAILS, VerdictKind.UNKNOWN
STEPS = 10_000


def sample(arm: str, ends: Sequence[float], panel: Panel, until: int = STEPS, rise: float = 0.5) -> Sample:
    """One seed per value: nothing until a share `rise` of the panel, then that value in every test."""
    config = configure([arm, "gridworld"])
    steps = np.arange(1_000, until + 1, 1_000, dtype=float)
    curves = [Curve(seed, steps, np.where(steps >= rise * STEPS, end, 0.0), 30 * len(steps)) for seed, end in enumerate(ends, start=1)]
    return Sample(Arm(f"{arm} gridworld"), panel, config, tuple(curves), {})


def evidence(**ends: Sequence[float] | Sample) -> Evidence:
    """Methods on one panel; underscores stand for hyphens."""
    names = [name.replace("_", "-") for name in ends]
    panel = Panel("grid", tuple(Arm(f"{name} gridworld") for name in names), STEPS, (1, 2, 3))
    samples = {
        name: values if isinstance(values, Sample) else sample(name, values, panel)
        for name, values in zip(names, ends.values(), strict=True)
    }
    return Evidence(Claim("a claim", "5.1", (panel,), (panel,), ()), "small", {"grid": samples})


def kind(verdict: Verdict) -> VerdictKind:
    return verdict.kind


@pytest.mark.parametrize(
    ("ends", "won", "failed"),
    [
        ((1.0, 1.0, 0.0), HOLDS, FAILS),
        ((1.0, 0.0, 0.0), FAILS, HOLDS),
        ((0.5, 0.5, 0.5), FAILS, FAILS),  # neither
        ((0.9, 0.9, 0.0), HOLDS, FAILS),  # exactly at the bar
        ((1.0, 1.0), UNKNOWN, UNKNOWN),  # two seeds do not judge a method
    ],
)
def test_winning_and_failing_go_by_the_median_of_three_seeds(ends: Sequence[float], won: VerdictKind, failed: VerdictKind) -> None:
    found = evidence(vdn=ends)
    assert kind(wins("grid", "vdn")(found)) is won
    assert kind(fails("grid", "vdn")(found)) is failed


def test_a_task_with_a_lower_bar_is_won_there_and_says_so() -> None:
    verdict = wins("grid", "vdn", bar=0.837)(evidence(vdn=(0.8, 0.84, 0.86)))
    assert kind(verdict) is HOLDS
    assert "2 of 3 seeds at 0.837 or more" in verdict.facts[0][1]


def test_winning_and_holding_are_nine_tenths_of_the_best_possible_play() -> None:
    panel = Panel("grid", (), STEPS, (1, 2, 3), best=0.93)
    close, short = (sample("vdn", (end,) * 3, panel) for end in (0.84, 0.83))  # nine tenths of 0.93 are 0.837
    assert kind(wins("grid", "vdn")(evidence(vdn=close))) is HOLDS
    assert kind(wins("grid", "vdn")(evidence(vdn=short))) is FAILS
    assert kind(wins("grid", "vdn", bar=0.8)(evidence(vdn=short))) is HOLDS  # a bar that is said counts
    assert kind(wins("grid", "vdn")(evidence(vdn=dataclasses.replace(close, panel=Panel("grid", (), STEPS, (1, 2, 3)))))) is FAILS
    np.testing.assert_array_equal(sooner(close), [-5_000.0] * 3)
    np.testing.assert_array_equal(sooner(short), [-np.inf] * 3)
    for judge in (wins, fails):
        assert "3 of 3 seeds at 0.837 or more" in judge("grid", "vdn")(evidence(vdn=close)).numbers


def test_seeds_that_have_not_got_to_the_end_do_not_count() -> None:
    panel = Panel("grid", (), STEPS, (1, 2, 3))
    short = sample("vdn", (1.0, 1.0, 1.0), panel, until=STEPS - 2_000)
    verdict = wins("grid", "vdn")(evidence(vdn=short))
    assert verdict == Verdict(UNKNOWN, (("grid", "vdn 0 of 3 seeds at 10k"),))
    assert kind(wins("grid", "vdn")(evidence(vdn=sample("vdn", (1.0, 1.0, 1.0), panel, until=STEPS - 1_000)))) is UNKNOWN


def test_a_panel_that_this_budget_lacks_is_said() -> None:
    found = evidence(vdn=(1.0, 1.0, 1.0))
    for judge in (wins("other", "vdn"), fails("grid", "qmix"), ahead("grid", "vdn", "qmix"), comparable("grid", "vdn", "qmix")):
        verdict = judge(found)
        assert kind(verdict) is UNKNOWN
        assert "not part of this budget" in verdict.numbers


def test_ahead_needs_more_than_chance() -> None:
    clear = evidence(emc_vdn=(1.0, 0.9, 0.8), vdn=(0.1, 0.2, 0.3))
    assert kind(ahead("grid", "emc-vdn", "vdn")(clear)) is HOLDS  # one of twenty ways to deal three and three
    assert kind(ahead("grid", "vdn", "emc-vdn")(clear)) is FAILS
    assert kind(ahead("grid", "emc-vdn", "vdn")(evidence(emc_vdn=(1.0, 0.9, 0.2), vdn=(0.1, 0.0, 0.3)))) is UNKNOWN
    assert kind(ahead("grid", "emc-vdn", "vdn")(evidence(emc_vdn=(1.0, 1.0, 1.0), vdn=(1.0, 1.0, 1.0)))) is UNKNOWN


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        ((1.0,) * 5, (0.0,) * 5, HOLDS),
        ((0.5, 0.4, 0.6, 0.5, 0.5), (0.5, 0.6, 0.4, 0.5, 0.5), HOLDS),
        ((0.0,) * 5, (0.9, 0.8, 0.7, 1.0, 1.0), FAILS),
        ((0.0,) * 3, (0.9, 0.8, 0.7), FAILS),  # three are enough to see who is behind
        ((1.0,) * 3, (0.0,) * 3, UNKNOWN),  # and too few to say that nobody is
        ((1.0,) * 5, (1.0, 1.0), UNKNOWN),
    ],
)
def test_not_behind_holds_where_enough_seeds_show_no_other_ahead(
    ours: Sequence[float], theirs: Sequence[float], verdict: VerdictKind
) -> None:
    assert kind(not_behind("grid", "emc-vdn", "vdn")(evidence(emc_vdn=ours, vdn=theirs))) is verdict


def test_ahead_may_be_asked_of_speed() -> None:
    panel = Panel("grid", (), STEPS, (1, 2, 3))
    fast, slow = (sample(name, (1.0, 1.0, 1.0), panel, rise=rise) for name, rise in (("emc-vdn", 0.2), ("vdn", 0.6)))
    found = evidence(emc_vdn=fast, vdn=slow, qmix=(0.0, 0.0, 0.0))
    assert kind(ahead("grid", "emc-vdn", "vdn")(found)) is UNKNOWN  # both win in the end
    for measure in (sooner, along_the_way):
        assert kind(ahead("grid", "emc-vdn", "vdn", "qmix", measure=measure)(found)) is HOLDS
        assert kind(ahead("grid", "vdn", "emc-vdn", measure=measure)(found)) is FAILS
    np.testing.assert_array_equal(sooner(fast), [-2_000.0] * 3)
    np.testing.assert_array_equal(sooner(found.samples["grid"]["qmix"]), [-np.inf] * 3)  # never is later than everything
    said = [fact for _, fact in ahead("grid", "emc-vdn", "vdn", "qmix", measure=sooner)(found).facts]
    assert said == [
        "emc-vdn 2k, vdn 6k (medians of 3 and 3), by chance 0.05",
        "emc-vdn 2k, qmix never (medians of 3 and 3), by chance 0.05",
    ]
    halves = evidence(emc_vdn=(1.0, 1.0, 0.0, 0.0), vdn=(0.0,) * 4)
    assert ahead("grid", "emc-vdn", "vdn", measure=sooner)(halves).facts[0][1].startswith("emc-vdn never, vdn never (medians of 4 and 4)")
    # From 0 to 1 in a straight line between the tests at 1k and 2k, then 1: half of 1k of 10k is lost there, and 1k before it.
    np.testing.assert_allclose(along_the_way(fast), [0.85] * 3)


@pytest.mark.parametrize(
    ("ours", "best", "verdict"),
    [
        ((0.8,) * 5, (0.85,) * 5, HOLDS),
        ((1.0,) * 5, (0.85,) * 5, HOLDS),
        ((0.8,) * 3, (0.85,) * 3, UNKNOWN),  # three seeds could hardly show the contrary
        ((0.7,) * 3, (0.85,) * 3, FAILS),  # but that one is behind they can
        ((0.7, 0.7, 0.9), (0.85,) * 3, UNKNOWN),
        ((0.7, 0.7, 0.7, 0.7, 0.9, 0.9), (0.85, 0.85, 0.85, 0.85, 0.6, 0.6), FAILS),  # no chance, but many seeds
        ((0.0,) * 5, (0.05,) * 5, UNKNOWN),  # where all fail there is nothing to compare
    ],
)
def test_comparable_is_no_further_below_the_best_than_a_tenth(ours: Sequence[float], best: Sequence[float], verdict: VerdictKind) -> None:
    found = evidence(emc_vdn=ours, vdn=best, qmix=(0.0,) * len(best))
    assert kind(comparable("grid", "emc-vdn", "vdn", "qmix")(found)) is verdict


def test_many_seeds_whose_medians_are_not_in_front_contradict_and_few_do_not_decide() -> None:
    assert kind(ahead("grid", "emc-vdn", "vdn")(evidence(emc_vdn=(1.0,) * 6, vdn=(1.0,) * 6))) is FAILS
    assert kind(ahead("grid", "emc-vdn", "vdn")(evidence(emc_vdn=(1.0,) * 5, vdn=(1.0,) * 6))) is UNKNOWN
    four_of_six, two_of_six = (1.0,) * 4 + (0.0,) * 2, (1.0,) * 2 + (0.0,) * 4  # which chance alone gives in one case of six
    assert kind(ahead("grid", "emc-vdn", "vdn")(evidence(emc_vdn=four_of_six, vdn=two_of_six))) is UNKNOWN
    assert kind(ahead("grid", "vdn", "emc-vdn")(evidence(emc_vdn=four_of_six, vdn=two_of_six))) is FAILS


def test_numbers_keep_their_sign() -> None:
    verdict = ahead("grid", "emc-vdn", "vdn")(evidence(emc_vdn=(-0.1,) * 3, vdn=(-0.8,) * 3))
    assert "emc-vdn -0.1, vdn -0.8" in verdict.numbers


def test_one_that_holds_is_enough_for_any() -> None:
    found = evidence(vdn=(1.0,) * 3, qmix=(0.0,) * 3, qplex=(1.0,) * 2)
    assert kind(any_of(wins("grid", "qmix"), wins("grid", "vdn"))(found)) is HOLDS
    assert kind(any_of(wins("grid", "qmix"), wins("grid", "qplex"))(found)) is UNKNOWN
    assert kind(any_of(wins("grid", "qmix"))(found)) is FAILS


def test_one_contradiction_is_enough_and_comes_first() -> None:
    found = evidence(vdn=(1.0,) * 3, qmix=(0.0,) * 3, qplex=(1.0,) * 2)
    verdict = wins("grid", "vdn", "qplex", "qmix")(found)
    assert kind(verdict) is FAILS
    assert verdict.facts[0] == ("grid", "qmix 0.00 [0.00, 0.00] at 10k, 0 of 3 seeds at 0.9 or more")
    assert kind(all_of(wins("grid", "vdn", "qplex"))(found)) is UNKNOWN
    assert kind(all_of(wins("grid", "vdn"), fails("grid", "qmix"))(found)) is HOLDS


def test_returns_are_judged_on_the_scale_of_their_task() -> None:
    panel = Panel("hunt", (), 100_000, (1, 2, 3))
    config = configure(["vdn", "predator-prey"])
    steps = np.arange(10_000, 100_001, 10_000, dtype=float)
    curves = tuple(Curve(seed, steps, np.full(10, 36.0), 160) for seed in (1, 2, 3))
    hunt = Sample(Arm("vdn predator-prey"), panel, config, curves, {})
    found = Evidence(Claim("a claim", "5.1", (), (), ()), "small", {"hunt": {"vdn": hunt}})
    np.testing.assert_allclose(hunt.finals, [0.9] * 3)  # of 40
    assert kind(wins("hunt", "vdn", bar=0.89)(found)) is HOLDS
    assert kind(wins("hunt", "vdn", bar=0.91)(found)) is FAILS


def with_maps(arm: str, panel: Panel, maps: Sequence[np.ndarray], tmp_path) -> Sample:
    """Three seeds with the same visits, a snapshot each thousand steps; what is paid per visit is the number of the row."""
    made = sample(arm, (1.0, 1.0, 1.0), panel)
    runs: dict[int, RunDirectory] = {}
    for seed in (1, 2, 3):
        run = RunDirectory.create(tmp_path, "gridworld", arm, {})
        rows = np.arange(11.0)[:, None]
        with run:
            run.append(
                [
                    {"seed": seed, "steps": 1_000 * number, "visits": visits, "bonus": rows * visits, "bonus_visits": visits}
                    for number, visits in enumerate(maps, start=1)
                ],
                file="maps.jsonl",
            )
        runs[seed] = run
    return Sample(made.arm, panel, made.config, made.curves, runs)


def test_places_are_measured_seed_by_seed(tmp_path) -> None:
    panel = Panel("grid", (), STEPS, (1, 2, 3))
    everywhere, one_cell = np.ones((11, 12)), np.zeros((11, 12))
    one_cell[0, 4] = 132.0  # in the noisy area
    wandering = with_maps("emc-vdn", panel, [everywhere] * 10, tmp_path)
    settled = with_maps("vdn", panel, [everywhere] * 5 + [one_cell] * 5, tmp_path)
    found = evidence(emc_vdn=wandering, vdn=settled)
    noisy = time_in("noisy area")
    np.testing.assert_allclose(noisy(wandering), [12 / 132] * 3)
    np.testing.assert_allclose(noisy(settled), [(12 / 132 + 1) / 2] * 3)
    assert kind(ahead("grid", "vdn", "emc-vdn", measure=noisy)(found)) is HOLDS
    np.testing.assert_allclose(evenness(EARLY)(settled), [1.0] * 3)
    np.testing.assert_allclose(evenness(LATE)(settled), [0.0] * 3, atol=1e-12)
    assert kind(alike("grid", "emc-vdn", "vdn", measure=evenness(EARLY), within=0.05)(found)) is HOLDS
    assert kind(alike("grid", "emc-vdn", "vdn", measure=evenness(LATE), within=0.05)(found)) is FAILS
    np.testing.assert_allclose(evenness(MIDDLE)(settled), [1.0] * 3)  # the tenth that ends at half of the steps
    blind = evidence(emc_vdn=(1.0,) * 3, vdn=(1.0,) * 3)
    for judge in (ahead("grid", "vdn", "emc-vdn", measure=noisy), alike("grid", "vdn", measure=noisy, within=0.1)):
        assert kind(judge(blind)) is UNKNOWN
        assert "0 of 3 seeds have maps" in judge(blind).numbers
    # Rows 0 and 1 pay 0 and 1, the whole map 5 on average.
    np.testing.assert_allclose(paid_in("noisy area")(wandering), [0.1] * 3)
