"""Heat maps: which snapshots each column sums, what is blank, and what is drawn over them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from emc.envs.gridworld import Gridworld
from emc.envs.predator_prey import PredatorPrey
from emc.errors import UserError
from emc.report.curves import group_runs
from emc.report.figures import DARK, as_png
from emc.report.heatmaps import areas_of, group_maps, phases, plot_maps, plot_visit_shares, read_maps, visit_shares
from tests.report.fabricate import new_run, snapshot

SMALL = Gridworld(rows=5, columns=6)


def full(value: float) -> np.ndarray:
    return np.full((5, 6), float(value))


def test_each_phase_sums_a_tenth_of_the_snapshots() -> None:
    found = phases([snapshot(0, 100 * k, full(k)) for k in range(1, 21)])
    assert [(phase.name, phase.first, phase.last) for phase in found] == [("early", 0, 200), ("middle", 900, 1100), ("late", 1800, 2000)]
    assert [phase.visits[0, 0] for phase in found] == [1 + 2, 10 + 11, 19 + 20]


def test_seeds_are_summed() -> None:
    lines = [snapshot(seed, 100 * k + seed, full(1 + seed), full(3 * seed), full(2)) for k in (1, 2, 3) for seed in (0, 1)]
    early, middle, late = phases(lines)
    assert (early.seeds, early.first, early.last) == (2, 0, 101)
    assert (middle.first, middle.last, late.last) == (101, 201, 301)
    assert middle.visits[2, 2] == 3.0
    assert middle.bonus[2, 2] == 3 / 4


def test_cells_that_nobody_came_to_are_blank() -> None:
    visits, bonus, bonus_visits = full(0), full(0), full(0)
    visits[1, 2], bonus[1, 1], bonus_visits[1, 1] = 7, 6, 4
    (phase,) = phases([snapshot(0, 100, visits, bonus, bonus_visits)])
    assert phase.visits[1, 2] == 7.0
    assert phase.bonus[1, 1] == 1.5
    assert np.sum(np.isnan(phase.visits)) == np.sum(np.isnan(phase.bonus)) == 29


def test_few_snapshots_make_fewer_columns() -> None:
    assert phases([]) == []
    assert [phase.name for phase in phases([snapshot(0, 100, full(1))])] == ["early"]
    two = phases([snapshot(0, 100, full(1)), snapshot(0, 200, full(2))])
    assert [(phase.name, phase.first, phase.last) for phase in two] == [("early", 0, 100), ("late", 100, 200)]


def test_a_seed_that_stopped_early_is_missing_from_later_phases() -> None:
    lines = [snapshot(0, 100 * k, full(1)) for k in (1, 2, 3)] + [snapshot(1, 100, full(5))]
    assert [(phase.seeds, phase.visits[0, 0]) for phase in phases(lines)] == [(2, 6.0), (1, 1.0), (1, 1.0)]


def test_the_figure_has_visits_above_and_intrinsic_reward_below() -> None:
    visits = full(3)
    visits[0, 0] = 0
    figure = plot_maps([("", SMALL, phases([snapshot(0, 1000 * k, visits, full(k), full(2)) for k in (1, 2, 3)]))])
    maps = [axes for axes in figure.axes if axes.images]
    assert len(maps) == 6
    assert [axes.get_title(loc="left") for axes in maps[:3]] == [
        "Early: steps 0 to 1k",
        "Middle: steps 1k to 2k",
        "Late: steps 2k to 3k",
    ]
    shown = np.ma.asarray(maps[0].images[0].get_array())
    assert np.ma.getmaskarray(shown).tolist() == (visits == 0).tolist()
    np.testing.assert_allclose(np.ma.asarray(maps[5].images[0].get_array()), 1.5)
    assert maps[0].images[0].norm.vmax == maps[2].images[0].norm.vmax == 3.0
    assert maps[3].images[0].norm.vmax == 0.5  # each its own scale
    assert as_png(figure, palette=False).startswith(b"\x89PNG")


def test_without_intrinsic_reward_there_is_one_row() -> None:
    figure = plot_maps([("", SMALL, phases([snapshot(0, 1000 * k, full(1)) for k in (1, 2, 3)]))])
    assert sum(bool(axes.images) for axes in figure.axes) == 3


def test_before_the_first_update_the_intrinsic_row_is_blank_and_does_no_harm() -> None:
    figure = plot_maps([("", SMALL, phases([snapshot(0, 1000, full(1), full(0), full(0)), snapshot(0, 2000, full(1), full(1), full(1))]))])
    assert as_png(figure).startswith(b"\x89PNG")


def test_methods_stand_one_above_the_other() -> None:
    curious, plain = (phases([snapshot(0, 1000 * k, full(1), full(paid)) for k in (1, 2, 3)]) for paid in (1, 0))
    figure = plot_maps([("emc-vdn", SMALL, curious), ("vdn", SMALL, plain)])
    maps = [axes for axes in figure.axes if axes.images]
    assert len(maps) == 9  # the second has no intrinsic reward to show
    assert [maps[0].get_title(loc="left"), maps[6].get_title(loc="left")] == ["emc-vdn, early: 0 to 1k", "vdn, early: 0 to 1k"]


def test_the_gridworld_shows_its_wall_goals_and_vision_area() -> None:
    figure = plot_maps([("", SMALL, phases([snapshot(0, 1000, full(1))]))])
    axes = next(axes for axes in figure.axes if axes.images)
    assert [2.5, 2.5] in [np.asarray(line.get_xdata()).tolist() for line in axes.lines]
    boxes = {tuple(np.round(patch.get_extents().transformed(axes.transData.inverted()).bounds, 2)) for patch in axes.patches}
    goals = {(column - 0.4, row + 0.4, 0.8, -0.8) for row, column in SMALL.goals.tolist()}
    assert {tuple(np.round(goal, 2)) for goal in goals} <= boxes
    assert len(axes.patches) == 1 + 1 + 2 + 1  # the ground, the vision area, the goals, the border


def test_predator_and_prey_has_a_border() -> None:
    figure = plot_maps([("", PredatorPrey(grid_size=4), phases([snapshot(0, 1000, np.ones((4, 4)))]))])
    assert len(next(axes for axes in figure.axes if axes.images).patches) == 2


def test_maps_are_read_from_the_run_and_may_be_missing(tmp_path: Path) -> None:
    run = new_run(tmp_path, maps=[snapshot(0, 1000, full(2))])
    assert phases(read_maps(run))[0].visits[0, 0] == 2.0
    (run.path / "maps.jsonl").unlink()
    assert read_maps(run) == []


def test_shares_of_visits_are_counted_snapshot_by_snapshot() -> None:
    area = np.zeros((5, 6), bool)
    area[0, :3] = True
    early, late = full(1), full(0)
    late[0, 0], late[4, 4] = 3, 1
    found = visit_shares(area, [snapshot(0, 100, early), snapshot(1, 110, early), snapshot(0, 200, late), snapshot(0, 300, full(0))])
    assert [curve.seed for curve in found] == [0, 1]
    assert found[0].steps.tolist() == [100, 200]  # nobody was anywhere in the last stretch
    np.testing.assert_allclose(found[0].values, [3 / 30, 3 / 4])


def test_a_line_for_each_method_and_axes_for_each_area(tmp_path: Path) -> None:
    visits, elsewhere = np.zeros((11, 12)), np.zeros((11, 12))
    visits[5, 5], elsewhere[0, 4], elsewhere[10, 10] = 4, 1, 3
    runs = [
        new_run(tmp_path, maps=[snapshot(seed, 100, visits) for seed in (0, 1)] + [snapshot(0, 200, elsewhere)], seeds=(0, 1)),
        new_run(tmp_path, maps=[snapshot(0, 100, elsewhere)], method_name="vdn"),
        new_run(tmp_path, method_name="qmix"),  # nothing yet
    ]
    figure = plot_visit_shares(group_runs(runs), DARK)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["Around the goals", "Vision area", "Noisy area"]
    goals, _, noisy = ({str(line.get_label()): np.asarray(line.get_ydata()) for line in axes.lines} for axes in figure.axes)
    assert goals["the area's share of the map"].tolist() == [12 / 132, 12 / 132]
    assert goals["emc-vdn (2 seeds)"][0] == 1.0
    assert noisy["vdn (1 seed)"].tolist() == [0.25]
    assert not any(label.startswith("qmix") for label in goals)
    assert as_png(figure).startswith(b"\x89PNG")


def test_a_seed_found_twice_shows_the_maps_of_its_longest_run(tmp_path: Path) -> None:
    runs = [new_run(tmp_path, maps=[snapshot(0, steps, full(steps)) for steps in some]) for some in ((100,), (100, 200), (150,))]
    (group,) = group_runs(runs)
    assert [line["steps"] for line in group_maps(group)] == [100, 200]


def test_without_common_areas_there_is_one_line_of_advice(tmp_path: Path) -> None:
    small = new_run(tmp_path, maps=[snapshot(0, 100, full(1))], env=SMALL)
    usual = new_run(tmp_path, maps=[snapshot(0, 100, np.ones((11, 12)))])
    prey = new_run(tmp_path, maps=[snapshot(0, 100, np.ones((10, 10)))], env_name="predator-prey")
    assert [*areas_of(group_runs([small]))] == ["around the goals", "vision area"]
    for runs in ([small, usual], [prey], [new_run(tmp_path, method_name="iql")], []):
        with pytest.raises(UserError, match="no visits to show"):
            plot_visit_shares(group_runs(runs))
