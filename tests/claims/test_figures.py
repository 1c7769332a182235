"""What claims draw: lines that can be told apart, however many tests and arms there are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emc.claims import Arm, Claim, Evidence, Panel, Sample, evidence
from emc.claims.figures import MOST_POINTS, plot_aggregates, plot_best, plot_curves, plot_memory, plot_panels, shared_panels
from emc.configuration import configure
from emc.report.curves import Curve

STEPS = 10_000


def drawn(arms: dict[str, str], tests: int) -> tuple[list[Any], str]:
    """The lines of some arms, given with their methods, whose tests are lost and won in turn, and what stands at the axis."""
    panel = Panel("grid", tuple(Arm(f"{method} gridworld", name) for name, method in arms.items()), STEPS, (1, 2))
    steps, values = np.linspace(1.0, STEPS, tests), np.arange(tests) % 2.0
    curves = tuple(Curve(seed, steps, values, 30 * tests) for seed in (1, 2))
    samples = {arm.name: Sample(arm, panel, configure([arms[arm.name], "gridworld"]), curves, {}) for arm in panel.arms}
    (axes,) = plot_panels(Evidence(Claim("a claim", "5.1", (panel,), (panel,), ()), "small", {"grid": samples})).axes
    lines = [line for line in axes.lines if not line.get_label().startswith("_")]
    assert [line.get_label() for line in lines] == [*arms]
    return lines, axes.get_ylabel()


@pytest.mark.parametrize(
    ("tests", "label", "heights"),
    [(MOST_POINTS, "test win rate", {0.0, 1.0}), (MOST_POINTS + 1, "test win rate, mean of 2 tests", {0.5})],
)
def test_of_many_tests_means_are_drawn_and_said_to_be(tests: int, label: str, heights: set[float]) -> None:
    (line,), said = drawn({"vdn": "vdn"}, tests)
    assert said == label
    assert {*line.get_ydata()[:-1]} == heights  # the last has no neighbour


def test_panels_that_share_no_arm_have_a_figure_and_a_legend_of_their_own() -> None:
    arms = {"one": ("vdn",), "other": ("iql",), "two": ("qmix",), "both": ("vdn", "qmix"), "not begun": ("iql", "vdn")}
    panels = {title: Panel(title, tuple(map(Arm, (f"{name} gridworld" for name in names))), STEPS, (1,)) for title, names in arms.items()}
    curve = Curve(1, np.array([1.0, STEPS]), np.array([0.0, 1.0]), 60)
    samples = {
        title: {
            arm.name: Sample(arm, panel, configure([arm.name, "gridworld"]), () if title == "not begun" else (curve,), {})
            for arm in panel.arms
        }
        for title, panel in panels.items()
    }
    every = (*panels.values(),)
    figures = plot_curves(Evidence(Claim("a claim", "5.1", every, every, ()), "small", samples))
    shown = {name: [axes.get_title("left") for axes in figure.axes if axes.axison] for name, figure in figures.items()}
    assert shown == {"curves": ["one", "two", "both"], "curves-2": ["other"]}
    legends = [[text.get_text() for text in figure.legends[0].get_texts()] for figure in figures.values()]
    assert legends == [["vdn", "qmix"], ["iql"]]


def colours(arms: dict[str, str]) -> set[str]:
    return {line.get_color() for line in drawn(arms, 3)[0]}


def test_arms_of_one_method_have_its_colour_until_they_are_too_many() -> None:
    names = ("one", "two", "three", "four")
    assert len(colours(dict.fromkeys(names[:2], "vdn"))) == 1
    assert len(colours(dict.fromkeys(names, "vdn"))) == 4


def test_what_is_counted_over_panels_waits_for_two_that_every_method_has_finished() -> None:
    panels = [Panel(title, tuple(Arm(f"{name} gridworld") for name in ("vdn", "qmix")), STEPS, (1, 2, 3)) for title in ("one", "two")]

    def evidence(ends: dict[tuple[str, str], float], seeds: tuple[int, ...] = (1, 2, 3)) -> Evidence:
        samples = {
            panel.title: {
                arm.name: Sample(
                    arm,
                    panel,
                    configure([arm.name, "gridworld"]),
                    tuple(Curve(seed, np.array([1.0, ends.get((panel.title, arm.name), STEPS)]), np.ones(2), 60) for seed in seeds),
                    {},
                )
                for arm in panel.arms
            }
            for panel in panels
        }
        return Evidence(Claim("a claim", "5.1", tuple(panels), tuple(panels), ()), "small", samples)

    (best,) = plot_best(evidence({}), ("vdn", "qmix", "iql")).values()
    assert [label.get_text() for label in best.axes[0].get_yticklabels()] == ["vdn", "qmix"]
    assert plot_best(evidence({}), ("vdn",)) == plot_best(evidence({}, (1, 2)), ("vdn", "qmix")) == {}
    assert [*plot_aggregates(evidence({}))] == ["aggregates", "profiles"]
    short = evidence({("two", "qmix"): STEPS / 2})
    assert plot_best(short, ("vdn", "qmix")) == plot_aggregates(short) == {}


def test_arms_that_are_compared_are_put_together_over_the_panels_that_have_all_of_them_with_enough_seeds() -> None:
    def scored(title: str, seeds: int, *names: str) -> dict[str, Sample]:
        panel = Panel(title, tuple(Arm(f"{name} gridworld") for name in names), STEPS, tuple(range(1, seeds + 1)))
        curves = tuple(Curve(seed, np.array([1.0, STEPS]), np.ones(2), 60) for seed in panel.seeds)
        return {arm.name: Sample(arm, panel, configure([arm.name, "gridworld"]), curves, {}) for arm in panel.arms}

    samples = {
        "one": scored("one", 3, "vdn", "qmix", "iql"),
        "two": scored("two", 5, "iql", "qmix", "vdn"),
        "no qmix": scored("no qmix", 5, "vdn", "iql"),
        "few": scored("few", 2, "vdn", "qmix"),
    }
    claim = Claim("a claim", "5.1", (), (), (), compared=("vdn", "qmix"))
    found = Evidence(claim, "small", samples)
    shared = shared_panels(found, 3, claim.compared)
    assert {name: {title: len(scores) for title, scores in own.items()} for name, own in shared.items()} == {
        "vdn": {"one": 3, "two": 5},
        "qmix": {"one": 3, "two": 5},
    }
    rows = [label.get_text() for label in plot_aggregates(found)["aggregates"].axes[0].get_yticklabels()]
    assert rows == ["vdn", "qmix"]  # the one in question first, and none that is not compared
    assert shared_panels(found, 4, claim.compared) == shared_panels(found, 3, ("vdn", "qplex")) == {}  # one panel only, and none


def test_what_a_memory_did_is_drawn_for_the_methods_that_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: of ten states nine are found, the target is a half above Q_tot, and three quarters of the loss are the memory's."""
    panel = Panel("grid", (Arm("emc-qplex gridworld", "with"), Arm("qplex gridworld", "without")), STEPS, (1,))
    line = {"kind": "train", "seed": 1, "loss": 2.0, "memory_hit_rate": 0.9, "memory_target": 1.5, "memory_q": 1.0, "memory_loss": 1.5}
    found = {"with": line, "without": {"kind": "train", "seed": 1, "loss": 2.0}}
    later = {
        "memory_hit_rate": 0.1,
        "memory_target": 9.0,
        "steps": 2 * STEPS,
    }  # than the claim looks

    def lines_of(run: SimpleNamespace) -> list[dict[str, Any]]:
        own = found[run.path]
        return [own | {"steps": steps} for steps in (1_000, STEPS)] + [own | later, own | later | {"seed": 2, "steps": STEPS}]

    monkeypatch.setattr(evidence, "read_lines", lines_of)
    samples = {
        arm.name: Sample(arm, panel, configure(arm.words.split()), (), {1: SimpleNamespace(path=arm.name)})  # type: ignore[dict-item]
        for arm in panel.arms
    }
    claim = Claim("a claim", "5.1", (panel,), (panel,), ())
    heights = []
    for axes in plot_memory(Evidence(claim, "small", {"grid": samples}))["memory"].axes:
        (line_drawn,) = (line for line in axes.lines if line.get_label() == "with")
        heights.append([*np.asarray(line_drawn.get_ydata(), float)])
        assert "without" not in {line.get_label() for line in axes.lines}
    np.testing.assert_allclose(heights, [[0.9, 0.9], [0.5, 0.5], [0.75, 0.75]])
    assert plot_memory(Evidence(claim, "small", {"grid": {"without": samples["without"]}})) == {}
