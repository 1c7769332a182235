"""Curves say what the seeds did: hand-computed medians, quartiles and interpolation, and names that tell configurations apart."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from emc.envs.registry import make_env
from emc.errors import UserError
from emc.methods import METHODS, make_method
from emc.report.curves import (
    Curve,
    common_grid,
    group_runs,
    interpolated,
    middle_half,
    plot_curves,
    plot_diagnostics,
    read_lines,
    running_mean,
    scores,
    until,
)
from emc.report.figures import DARK, LIGHT, LOOKS, Theme, as_png, colour_of, legend_below, look_of, looks_of, new_figure
from emc.report.run_titles import configuration, in_words
from emc.report.tasks import environment_section, headline, most_telling
from emc.runs import RunDirectory
from emc.sampling import Uniform
from emc.training.loop import Budget
from tests.report.fabricate import evaluation, new_run, training, win_rates

ROOT = Path(__file__).parents[2]


def curve(*points: tuple[float, float], seed: int = 0) -> Curve:
    steps, values = np.array(points, float).T
    return Curve(seed, steps, values)


# Numbers.


def test_a_score_is_the_win_rate_of_one_evaluation() -> None:
    (found,) = scores([training(3, 10), evaluation(3, 10, [True, False, True, True]), evaluation(3, 20, [False] * 4)], winnable=True)
    assert found.seed == 3
    assert found.steps.tolist() == [10, 20]
    assert found.values.tolist() == [0.75, 0.0]
    assert found.episodes == 8


def test_where_nothing_can_be_won_a_score_is_the_mean_return() -> None:
    (found,) = scores([evaluation(0, 10, [False, False], returns=[3.0, -1.0])], winnable=False)
    assert found.values.tolist() == [1.0]


def test_between_evaluations_a_curve_is_a_straight_line() -> None:
    found = interpolated(curve((0, 0.0), (10, 1.0), (20, 0.5)), np.array([0.0, 5.0, 10.0, 12.0, 20.0]))
    np.testing.assert_allclose(found, [0.0, 0.5, 1.0, 0.9, 0.5])


def test_beyond_its_ends_a_curve_holds_for_one_interval_and_then_says_nothing() -> None:
    found = interpolated(curve((20, 0.2), (30, 0.4), (40, 0.8)), np.array([9.0, 10.0, 50.0, 51.0]))
    np.testing.assert_allclose(found, [np.nan, 0.2, 0.8, np.nan])


def test_the_band_is_the_median_and_the_middle_half_of_the_seeds() -> None:
    seeds = [curve((0, value), (10, 2 * value), seed=i) for i, value in enumerate((0.0, 0.1, 0.2, 0.3, 1.0))]
    band = middle_half(seeds, np.array([0.0, 5.0, 10.0]))
    np.testing.assert_allclose(band.low, [0.1, 0.15, 0.2])
    np.testing.assert_allclose(band.median, [0.2, 0.3, 0.4])
    np.testing.assert_allclose(band.high, [0.3, 0.45, 0.6])
    assert band.seeds.tolist() == [5, 5, 5]


def test_quartiles_of_two_seeds_lie_between_them() -> None:
    band = middle_half([curve((0, 0.0), (1, 0.0)), curve((0, 1.0), (1, 1.0))], np.array([0.0]))
    np.testing.assert_allclose([band.low[0], band.median[0], band.high[0]], [0.25, 0.5, 0.75])


def test_a_seed_that_ended_early_no_longer_counts() -> None:
    band = middle_half([curve((0, 0.0), (10, 0.0)), curve((0, 1.0), (10, 1.0), (20, 1.0), (30, 1.0))], np.array([10.0, 20.0, 30.0]))
    assert band.seeds.tolist() == [2, 2, 1]
    np.testing.assert_allclose(band.median, [0.5, 0.5, 1.0])


def test_the_common_grid_is_that_of_the_seed_that_got_furthest() -> None:
    curves = [curve((30, 0), (1010, 0), (2020, 0)), curve((20, 0), (1005, 0), (2030, 0)), curve((25, 0), (1000, 0))]
    assert common_grid(curves).tolist() == [20.0, 1005.0, 2030.0]
    assert middle_half(curves).seeds.tolist() == [3, 3, 2]
    assert common_grid(curves, most=2).tolist() == [20.0, 2030.0]


def test_a_running_mean_uses_fewer_neighbours_at_the_ends() -> None:
    found = running_mean(curve((0, 0.0), (1, 3.0), (2, 6.0), (3, 0.0)), 3)
    np.testing.assert_allclose(found.values, [1.5, 3.0, 3.0, 3.0])
    assert running_mean(curve((0, 4.0)), 5).values.tolist() == [4.0]


# Names and groups.


def labels(runs: list[RunDirectory]) -> list[str]:
    return [group.label for group in group_runs(runs)]


def test_seeds_in_one_directory_and_in_several_make_one_curve(tmp_path: Path) -> None:
    together = new_run(tmp_path, win_rates(0, {30: 0.0, 1000: 0.5}) + win_rates(1, {30: 0.0, 1000: 0.7}), seeds=(0, 1))
    alone = new_run(tmp_path, win_rates(2, {30: 0.0, 1000: 0.9}), seeds=(2,))
    (group,) = group_runs([together, alone])
    assert group.label == "emc-vdn"
    assert [own.seed for own in group.curves] == [0, 1, 2]
    np.testing.assert_allclose(group.final, [0.25, 0.35, 0.45])  # the mean of both tests
    assert group.runs == (together, alone)


def test_no_runs_make_no_groups() -> None:
    assert group_runs([]) == []


def test_a_seed_that_was_run_twice_counts_once_and_is_named(tmp_path: Path) -> None:
    short = new_run(tmp_path, win_rates(0, {30: 0.0, 1000: 0.2}))
    long = new_run(tmp_path, win_rates(0, {30: 0.0, 1000: 0.2, 2000: 0.8}))
    (group,) = group_runs([long, short])
    np.testing.assert_allclose(group.final, [1.0 / 3])
    assert group.left_out == (0,)


def test_a_label_names_what_differs_from_the_preset(tmp_path: Path) -> None:
    changed = dataclasses.replace(make_method("emc-vdn"), replay=Uniform(), gamma=0.99)
    runs = [new_run(tmp_path, method=changed), new_run(tmp_path), new_run(tmp_path, method_name="vdn")]
    assert labels(runs) == ["emc-vdn", "emc-vdn, uniform replay, gamma 0.99", "vdn"]
    assert labels(runs[:1]) == ["emc-vdn, uniform replay, gamma 0.99"]


def test_a_label_names_another_preset_as_a_whole(tmp_path: Path) -> None:
    paper = new_run(tmp_path, method=make_method("emc-vdn", "paper"))
    assert labels([paper, new_run(tmp_path)]) == ["emc-vdn", "emc-vdn, preset paper"]


def test_what_all_runs_on_an_environment_have_changed_is_in_no_label(tmp_path: Path) -> None:
    changed = [dataclasses.replace(make_method("vdn"), gamma=0.5, batch_episodes=n) for n in (8, 16)]
    runs = [new_run(tmp_path, win_rates(0, {30: 0.0}), method_name="vdn", method=own) for own in changed]
    assert labels(runs) == ["vdn, batch episodes 8", "vdn, batch episodes 16"]
    assert "All of them with gamma 0.5." in environment_section(group_runs(runs), False, "task-1").html


def test_every_setting_of_an_environment_is_a_task_of_its_own(tmp_path: Path) -> None:
    envs = [make_env("gridworld", **fields) for fields in ({"penalty": 2.0}, {"penalty": 10.0}, {"penalty": 0.0}, {"slip": 0.2})]
    groups = group_runs([new_run(tmp_path, env=env) for env in envs])
    assert [group.label for group in groups] == ["emc-vdn"] * 4
    assert [group.task for group in groups] == [
        f"gridworld, {words}" for words in ("penalty 0", "penalty 2", "penalty 2, slip 0.2", "penalty 10")
    ]
    assert groups[0].setting == "penalty 0"
    (alone,) = group_runs([new_run(tmp_path, env=make_env("gridworld", slip=0.2))])
    assert (alone.task, group_runs([new_run(tmp_path)])[0].task) == ("gridworld, slip 0.2", "gridworld")


def test_runs_of_different_lengths_are_one_and_the_longest_have_a_final_score(tmp_path: Path) -> None:
    short = new_run(tmp_path, win_rates(0, {30: 0.0, 3000: 0.2}), seeds=(0,), budget=Budget(steps=3000))
    long = new_run(tmp_path, win_rates(1, {30: 0.0, 3000: 0.4, 6000: 0.8}), seeds=(1,), budget=Budget(steps=6000))
    (group,) = group_runs([short, long])
    assert (group.label, group.short, group.asked) == ("emc-vdn", (0,), 6000)
    assert [curve.seed for curve in group.curves] == [0, 1]
    np.testing.assert_allclose(group.final, [0.4])


def test_a_curve_is_cut_after_its_first_test_that_is_not_too_early() -> None:
    whole = curve((10, 0.1), (20, 0.2), (31, 0.3))
    for end, length in ((5, 1), (10, 1), (20, 2), (21, 3), (99, 3)):
        assert len(until(whole, end).steps) == length


def test_different_configurations_never_share_a_label(tmp_path: Path) -> None:
    base = make_method("emc-vdn")
    many = [
        dataclasses.replace(base, gamma=0.5, learning_rate=0.1, gradient_clip=1.0, batch_episodes=n, target_interval=3) for n in (8, 16)
    ]
    found = labels([new_run(tmp_path, method=method) for method in [*many, base]])
    assert found == ["emc-vdn", *(f"emc-vdn, gamma 0.5, learning rate 0.1, 3 more changes #{i}" for i in (1, 2))]


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("replay",), {"type": "Uniform"}, "uniform replay"),
        (("memory",), {"type": "NoMemory"}, "no memory"),
        (("memory",), {"type": "EpisodicMemory", "weight": 0.1}, "episodic memory"),
        (("mixer",), {"type": "QMIX", "width": 32}, "QMIX mixer"),
        (("curiosity", "soft_update"), 0.05, "curiosity soft update 0.05"),
        (("loss", "double_q"), False, "loss double q off"),
        (("vision",), "full", "vision full"),
    ],
)
def test_changed_fields_are_put_in_words(path: tuple[str, ...], value: object, words: str) -> None:
    assert in_words(path, value) == words


def test_a_run_that_this_version_cannot_rebuild_still_has_a_curve(tmp_path: Path) -> None:
    run = new_run(tmp_path, win_rates(0, {30: 0.0, 1000: 0.5}))
    run.manifest["config"]["env"]["type"] = "Unheard"
    run.manifest["method_name"] = "unheard"
    (group,) = group_runs([run])
    assert group.winnable
    assert group.label == "unheard"
    np.testing.assert_allclose(group.final, [0.25])


# Figures.


def test_a_method_has_the_same_colour_in_every_figure(tmp_path: Path) -> None:
    few = group_runs([new_run(tmp_path, win_rates(0, {30: 0.0, 1000: 0.5}), method_name="vdn")])
    many = group_runs([new_run(tmp_path, win_rates(0, {30: 0.0, 1000: 0.5}), method_name=name) for name in ("qmix", "iql", "vdn")])
    drawn = [{line.get_label(): line.get_color() for line in plot_curves(groups).axes[0].lines} for groups in (few, many)]
    assert drawn[0]["vdn (1 seed)"] == drawn[1]["vdn (1 seed)"] == colour_of("vdn")
    assert colour_of("somebody's own") == colour_of("somebody's own")
    assert colour_of("iql", DARK) != colour_of("iql", LIGHT)


FIGURES = (  # what is shown together, in the paper and here
    "iql vdn qmix qplex qplex-global qplex-local emc-vdn emc-qmix emc-qplex emc-td emc-ind",  # gridworld, with the ablations
    "vdn cw-qmix ow-qmix qmix qplex maven qplex-global qplex-local emc-vdn emc-qmix emc-qplex",  # predator-prey
    "emc-qplex qplex qmix rode maven cw-qmix vdn qtran qmix-tuned",  # StarCraft-like maps
    "emc-qplex qplex emc-wo-c emc-wo-m",  # ablations
    "emc-qplex emc-td emc-ind emc-cen emc-dec",  # design choices
    "emc-vdn vdn emc-td emc-ind",  # noise
)
VISIONS = {  # linear RGB as people without one kind of cone see it (Machado et al. 2009)
    "all cones": np.eye(3),
    "no red": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    "no green": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
    "no blue": np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]),
}


def linear(colour: str) -> np.ndarray:
    """Linear RGB of `#RRGGBB`."""
    share = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def lab(light: np.ndarray) -> np.ndarray:
    """CIE L*a*b*, in which distances are about what an eye makes of them."""
    to_xyz = np.array([(0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505)])
    xyz = to_xyz @ np.clip(light, 0, 1) / to_xyz.sum(axis=1)
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("shown", FIGURES)
@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_methods_of_one_figure_of_the_paper_have_colours_apart_for_every_eye(shown: str, vision: str, theme: Theme) -> None:
    seen = [lab(VISIONS[vision] @ linear(colour_of(name, theme))) for name in shown.split()]
    assert min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(seen, 2)) > 10


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_every_colour_shows_on_its_paper(theme: Theme) -> None:
    def luminance(colour: str) -> float:
        return float(np.array([0.2126, 0.7152, 0.0722]) @ linear(colour)) + 0.05

    for name in METHODS:
        ratio = luminance(colour_of(name, theme)) / luminance(theme.paper)
        assert max(ratio, 1 / ratio) > 2


def test_every_method_has_a_look_of_its_own_that_print_keeps() -> None:
    assert set(LOOKS) == set(METHODS)
    for theme in (LIGHT, DARK):
        assert len({colour_of(name, theme) for name in LOOKS}) == len(METHODS)
    assert len({(look.dashes, look.marker) for look in LOOKS.values()}) == len(METHODS)
    assert look_of("somebody's own") == look_of("Somebody's own")
    assert look_of("somebody's own").marker not in {look.marker for look in LOOKS.values()}


def test_a_look_does_not_depend_on_what_else_is_shown() -> None:
    for shown in (*FIGURES, " ".join(reversed([*METHODS]))):
        assert looks_of(shown.split()) == [look_of(name) for name in shown.split()]


def test_markers_keep_to_their_line_and_apart_from_those_of_others(tmp_path: Path) -> None:
    rates = {name: {100 * i: 0.5 for i in range(points)} for name, points in (("vdn", 80), ("qmix", 40))}
    runs = [new_run(tmp_path, win_rates(0, own), method_name=name) for name, own in rates.items()]
    runs.append(new_run(tmp_path, win_rates(0, {0: 0.5}), method_name="iql"))
    lines = [line for line in plot_curves(group_runs(runs)).axes[0].lines if not str(line.get_label()).startswith("_")]
    assert [line.get_marker() for line in lines] == ["o", "s", "D"]
    at = [np.asarray(line.get_xdata())[line.get_markevery()].tolist() for line in lines]
    assert len(at[0]) == 8
    assert 3 <= len(at[1]) <= 4  # as far apart, on a line half as long
    assert at[2] == [0.0]
    assert not set(at[0]) & set(at[1])


def test_variants_of_a_method_share_its_colour_and_differ_in_dashes(tmp_path: Path) -> None:
    runs = [new_run(tmp_path, win_rates(0, {30: 0, 1000: 1}), method=dataclasses.replace(make_method("vdn"), gamma=g)) for g in (0.5, 0.6)]
    lines = [line for line in plot_curves(group_runs(runs)).axes[0].lines if not str(line.get_label()).startswith("_")]
    assert lines[0].get_color() == lines[1].get_color()
    assert lines[0].get_linestyle() != lines[1].get_linestyle()
    assert [line.get_markerfacecolor() for line in lines] == [lines[0].get_color(), "none"]


def test_the_line_drawn_is_the_median(tmp_path: Path) -> None:
    lines = [line for seed, rate in enumerate((0.1, 0.2, 0.9)) for line in win_rates(seed, {30: 0.0, 1030: rate})]
    groups = group_runs([new_run(tmp_path, lines, seeds=(0, 1, 2))])
    axes = plot_curves(groups).axes[0]
    line = next(line for line in axes.lines if line.get_label() == "emc-vdn (3 seeds)")
    np.testing.assert_allclose(line.get_xdata(), [30, 1030])
    np.testing.assert_allclose(line.get_ydata(), [0.0, 0.2])
    assert axes.get_title(loc="left") == "Win rate on gridworld"
    assert "not smoothed" in axes.texts[0].get_text()
    assert "running mean over 5 evaluations" in plot_curves(groups, window=5).axes[0].texts[0].get_text()


def test_dollar_signs_and_strange_letters_in_names_do_no_harm(tmp_path: Path) -> None:
    run = new_run(tmp_path, win_rates(0, {30: 0.0}), method_name="$\\frac{1}{", method=make_method("vdn"))
    run.manifest["env_name"] = "a$b\ud800\x00"
    image = as_png(plot_curves(group_runs([run])))
    assert image.startswith(b"\x89PNG")
    assert as_png(plot_curves(group_runs([run]))) == image


def test_diagnostics_leave_out_what_the_method_has_not() -> None:
    values = {
        "loss": 0.1,
        "td_error": 0.2,
        "q": 1.0,
        "target": 1.1,
        "reward_extrinsic": 0.3,
        "reward_intrinsic": 0.0,
        "memory_hit_rate": 0.0,
    }
    figure = plot_diagnostics([training(0, 30)] + [training(0, steps, **values) for steps in (1000, 2000)])
    shown = {axes.get_title(loc="left") for axes in figure.axes if axes.axison}
    assert shown == {"Loss", "Temporal-difference error", "Value and its target", "Rewards in training batches", "Exploration"}
    rewards = next(axes for axes in figure.axes if axes.get_title(loc="left").startswith("Rewards"))
    assert {str(line.get_label()) for line in rewards.lines if not str(line.get_label()).startswith("_")} == {"extrinsic"}
    assert as_png(figure).startswith(b"\x89PNG")


def test_diagnostics_show_curiosity_and_memory_where_there_are_any() -> None:
    pairs = {
        "Rewards in training batches": {"extrinsic": ("reward_extrinsic", 0.3), "intrinsic × η": ("reward_intrinsic", 0.1)},
        "Episodic memory": {"states found": ("memory_hit_rate", 0.9), "slots in use": ("memory_occupancy", 0.02)},
        "Memory target and value": {"memory target": ("memory_target", 2.0), "Q_tot": ("memory_q", 1.5)},
    }
    values = dict(pair for panel in pairs.values() for pair in panel.values())
    figure = plot_diagnostics([training(0, steps, **values) for steps in (1000, 2000)])
    shown = {axes.get_title(loc="left"): axes for axes in figure.axes if axes.axison}
    for title, lines in pairs.items():
        drawn = {str(line.get_label()): float(np.asarray(line.get_ydata())[0]) for line in shown[title].lines}
        assert {name: value for name, value in drawn.items() if not name.startswith("_")} == {name: v for name, (_, v) in lines.items()}
        assert shown[title].get_legend() is not None


def test_a_legend_names_the_lines_of_all_axes_once_each() -> None:
    figure, (left, right) = new_figure(6.0, 3.0, 1, 2, LIGHT)
    legend_below(figure, [left, right], 3, LIGHT)
    assert not figure.legends  # nothing is drawn yet
    for axes, names in ((left, "ab"), (right, "bc")):
        for name in names:
            axes.plot([0, 1], [0, 1], label=name)
    legend_below(figure, [left, right], 3, LIGHT)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b", "c"]


def test_importing_the_report_loads_no_plotting() -> None:
    program = "import sys, emc.report.page, emc.report.animation; print(*({'matplotlib', 'PIL'} & {*sys.modules}))"
    result = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


@pytest.mark.parametrize(
    "line", [{"kind": "eval", "seed": 0}, {"steps": 3, "kind": "train"}, {"kind": "eval", "seed": 0, "steps": 3, "won": []}]
)
def test_lines_that_are_not_ours_are_named(tmp_path: Path, line: dict[str, object]) -> None:
    run = new_run(tmp_path, [evaluation(0, 10, [True]), line])
    with pytest.raises(UserError, match="line 2: not a line that emc writes"):
        read_lines(run)


def test_a_run_from_before_a_field_existed_has_its_default(tmp_path: Path) -> None:
    run = new_run(tmp_path, win_rates(0, {10: 0.5}))
    del run.manifest["config"]["budget"]["log_every"]
    assert configuration(run)["budget"]["log_every"] == 0


@pytest.mark.parametrize("method", [*LOOKS, "one of my own"])
def test_many_variants_of_one_method_all_look_different(method: str) -> None:
    assert len({*looks_of([method] * 24)}) == 24
    assert len({look.colour for look in looks_of([method] * 24)}) == 1


def test_of_many_lines_the_best_of_every_method_are_drawn_and_the_others_can_be(tmp_path: Path) -> None:
    methods = [dataclasses.replace(make_method("vdn"), gamma=0.5 + 0.01 * k) for k in range(14)]
    runs = [new_run(tmp_path, win_rates(0, {30: 0.3 + 0.05 * k}, episodes=20), method_name="vdn", method=m) for k, m in enumerate(methods)]
    runs.append(new_run(tmp_path, win_rates(0, {30: 0.0}), method_name="iql"))  # the worst of all, and a method of its own
    drawn = most_telling(group_runs(runs))
    assert [group.label for group in drawn] == [*(f"vdn, gamma {0.5 + 0.01 * k:.12g}" for k in range(3, 14)), "iql"]  # in their order
    section = environment_section(group_runs(runs), False, "task-1")
    assert "3 lines beside the best of each method can be switched on in the legend" in section.html
    assert section.html.count("<tr>") == 1 + 15
    plot = section.plots["task-1"]
    assert [entry["name"] for entry in plot["legend"] if entry["off"]] == [f"vdn, gamma {0.5 + 0.01 * k:.12g}" for k in range(3)]
    assert len(plot["panels"][0]["lines"]) == 15
    assert not any(entry["off"] for entry in environment_section(group_runs(runs[:12]), False, "task-1").plots["task-1"]["legend"])


def test_every_task_has_a_panel_and_a_label_looks_the_same_in_all(tmp_path: Path) -> None:
    runs = [
        new_run(tmp_path, win_rates(0, {30: 0.0, 1000: rate}), method_name=name, env=make_env("gridworld", penalty=penalty))
        for penalty in (0.0, 1.0, 2.0)
        for name, rate in (("vdn", 0.2), ("emc-vdn", 1.0))
    ]
    section = environment_section(group_runs(runs), True, "task-1")
    assert [section.html.count(f"<h3>penalty {penalty}</h3>") for penalty in (0, 1, 2)] == [1, 1, 1]
    plot = section.plots["task-1"]
    assert [entry["name"] for entry in plot["legend"]] == ["vdn", "emc-vdn"]
    assert plot["legend"][0]["colours"] == [colour_of("vdn", LIGHT), colour_of("vdn", DARK)]
    assert [[line["of"] for line in panel["lines"]] for panel in plot["panels"]] == [[0, 1]] * 3
    assert plot["panels"][0]["lines"][1]["median"] == [0, 1]
    assert plot["grids"] == [[30, 1000]]


def test_equals_share_the_headline(tmp_path: Path) -> None:
    def run(method_name: str, seeds: int, rate: float = 1.0) -> RunDirectory:
        lines = [line for seed in range(seeds) for line in win_rates(seed, {30: rate})]
        return new_run(tmp_path, lines, method_name=method_name, seeds=range(seeds))

    said = headline(group_runs([run("vdn", 1), run("qmix", 3), run("iql", 2), run("qplex", 5, 0.5)]))
    assert said.startswith(
        "qmix wins 100% of its greedy test episodes after 30 steps (median of 3 seeds, middle half 100–100%), as do 2 others."
    )
    assert "(one seed), as does 1 other." in headline(group_runs([run("vdn", 1), run("iql", 1)]))
    assert "other" not in headline(group_runs([run("vdn", 1), run("qplex", 5, 0.5)]))
    assert "as have 2 others" in headline(group_runs([run(name, 1, 0.0) for name in ("vdn", "qmix", "iql")]))
