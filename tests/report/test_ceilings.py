"""The optimum as a line: where it is, what it is called, and when there is none."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from emc.envs import Gridworld, Penalty, PredatorPrey, make_env
from emc.methods import make_method
from emc.report.ceilings import Ceiling, ceiling_of, ceilings_of
from emc.report.curves import group_runs, plot_curves
from emc.report.page import write_report
from emc.runs import RunDirectory
from tests.report.fabricate import evaluation, new_run, win_rates


def drawn(runs: list[RunDirectory]) -> tuple[list[float], list[str], list[str]]:
    """Where the flat lines are, what is written in the axes, and the legend."""
    figure = plot_curves(group_runs(runs))
    (axes,) = figure.axes
    flat = [float(line.get_ydata()[0]) for line in axes.lines if line.get_label() == "_ceiling"]  # pyright: ignore
    words = [text.get_text() for text in axes.texts if text.get_text().startswith(("optimum", "upper"))]
    return flat, words, [text.get_text() for text in figure.legends[0].get_texts()]


def test_a_win_rate_has_the_win_rate_of_the_best_play(tmp_path: Path) -> None:
    run = new_run(tmp_path, win_rates(0, {10: 0.0, 20: 0.5}), env=Gridworld(slip=0.5))
    flat, words, legend = drawn([run])
    assert flat == pytest.approx([0.929627], abs=1e-6)
    assert words == ["optimum 92.96%"]
    assert legend == ["emc-vdn (1 seed)"], "the legend is about methods"


def test_the_page_has_the_line_in_both_pictures_and_says_what_it_is(tmp_path: Path) -> None:
    run = new_run(tmp_path, win_rates(0, {10: 0.0, 20: 0.5}), env=Gridworld(slip=0.5))
    write_report([run], tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "The dotted line is what the best possible play comes to" in page
    assert page.count('"ceilings":[[0.929627,"optimum 92.96%"]]') == 2  # among the results, and with the run


def test_a_return_has_the_return_and_a_bound_is_called_one(tmp_path: Path) -> None:
    lines = [evaluation(0, steps, [False] * 2, [value, value]) for steps, value in ((10, -3.0), (20, 12.0))]
    assert drawn([new_run(tmp_path / "a", lines, env_name="penalty", env=Penalty(k=-25.0))])[:2] == ([250.0], ["optimum 250"])
    run = new_run(tmp_path / "b", lines, env_name="predator-prey", env=PredatorPrey())
    assert drawn([run])[:2] == ([40.0], ["upper bound 40"])
    (axes,) = plot_curves(group_runs([run])).axes
    assert axes.get_ylim()[1] > 40, "the line is in the picture"


def test_discounts_and_slips_have_lines_of_their_own_and_too_many_have_none(tmp_path: Path) -> None:
    def run(slip: float, gamma: float, place: str) -> RunDirectory:
        method = dataclasses.replace(make_method("vdn"), gamma=gamma)
        return new_run(tmp_path / place, win_rates(0, {10: 0.0}), method_name="vdn", method=method, env=Gridworld(slip=slip))

    two = [run(0.5, 0.9, "a"), run(0.5, 0.99, "b"), run(0.5, 0.9, "c")]
    assert len(ceilings_of(two)) == 2
    assert ceilings_of([*two, run(0.3, 0.9, "d"), run(0.4, 0.9, "e")]) == []
    assert ceilings_of([run(0.0, 0.9, "f"), run(0.0, 0.5, "g")]) == [Ceiling(1.0, exact=True, percent=True)]


class Tabled(eqx.Module):
    """Somebody's own environment, which cannot be hashed."""

    table: jax.Array


def test_where_no_optimum_is_known_there_is_no_line(tmp_path: Path) -> None:
    config: Any = SimpleNamespace(env=Tabled(jnp.zeros(3)), method=make_method("vdn"))
    assert ceiling_of(config) is None
    assert ceiling_of(None) is None
    env: Any = make_env("3m")
    run = new_run(tmp_path, win_rates(0, {10: 0.0}), env_name="3m", env=env)
    assert drawn([run])[:2] == ([], [])
