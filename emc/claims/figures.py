"""Figures of claims: learning curves in one panel per task, heat maps of several methods side by side, and what was inside."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from emc.claims.evidence import Evidence, Sample
from emc.claims.judgement import SEEDS
from emc.envs.base import HasMap
from emc.report.aggregate import plot_best_on, plot_iqm_bars, plot_profiles
from emc.report.ceilings import different, draw_ceilings
from emc.report.curves import draw_band, group_runs, middle_half, plot_diagnostics, running_mean, tracks
from emc.report.figures import LIGHT, LOOKS, Look, Theme, legend_below, looks_of, mark, new_figure, style
from emc.report.heatmaps import phases, plot_maps, plot_visit_shares, read_maps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_COLUMNS = 3
MOST_POINTS = 60  # of a line: where there are more tests, each point is the mean of some, or lines hide one another
MOST_VARIANTS = 2  # of a method in one figure that dashes can tell apart


def plot_curves(evidence: Evidence, theme: Theme = LIGHT) -> dict[str, Figure]:
    """The learning curves; panels that share no arm with those before them make a figure with a legend of its own."""
    looks = _looks(evidence, theme)
    groups = [dataclasses.replace(evidence, samples=samples) for samples in _sharing_arms(evidence.samples)]
    return {f"curves-{n}" if n > 1 else "curves": plot_panels(group, theme, looks) for n, group in enumerate(groups, 1)}


def _sharing_arms(samples: Mapping[str, Mapping[str, Sample]]) -> list[dict[str, Mapping[str, Sample]]]:
    """The panels that have been begun, in groups between which no arm is shared, both in the claim's order."""
    begun = {title: arms for title, arms in samples.items() if any(sample.curves for sample in arms.values())}
    groups: list[set[str]] = []
    for title, arms in begun.items():
        near = [group for group in groups if any(arms.keys() & begun[other].keys() for other in group)]
        groups = [group for group in groups if group not in near] + [{title}.union(*near)]
    inside = [{title: begun[title] for title in begun if title in group} for group in groups]
    return sorted(inside, key=lambda group: [*begun].index(next(iter(group))))


def plot_panels(evidence: Evidence, theme: Theme = LIGHT, looks: Mapping[str, Look] | None = None) -> Figure:
    """Median and middle half over seeds of every method, one panel per task that has any; a line is pale where some seeds ended.

    Of many tests each seed's running mean is drawn, and the axis says over how many. `looks` are those that arms have in other figures.
    """
    panels = [(title, [*arms.values()]) for title, arms in evidence.samples.items() if any(sample.curves for sample in arms.values())]
    columns = min(MOST_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    names = [*dict.fromkeys(sample.arm.name for sample in evidence)]
    width = max(4.0 * columns, 7.0)
    across = max(1, min(len(names), int(width / (0.7 + 0.085 * max(map(len, names))))))
    figure, every_axes = new_figure(width, 2.9 * rows + 0.25 * -(-len(names) // across), rows, columns, theme)
    looks = _looks(evidence, theme) if looks is None else looks
    for axes, (title, samples) in zip(every_axes, panels, strict=False):
        _draw_panel(axes, samples, looks, theme, title)
        if evidence.claim.limits is not None:
            axes.set_ylim(*evidence.claim.limits)
    for axes in every_axes[len(panels) :]:
        axes.set_axis_off()
    legend_below(figure, every_axes, across, theme)
    return figure


def _looks(evidence: Evidence, theme: Theme) -> dict[str, Look]:
    """A look for each arm: that of its method, with other dashes where two arms are of one method; where more are, colours of their own."""
    methods = {sample.arm.name: sample.method_name for sample in evidence}
    names = [*methods.values()]
    if max(map(names.count, names)) > MOST_VARIANTS:
        names = [name for name, _ in zip(itertools.cycle(LOOKS), names, strict=False)]
    return dict(zip(methods, looks_of(names, theme), strict=True))


def _draw_panel(axes: Axes, samples: Sequence[Sample], looks: Mapping[str, Look], theme: Theme, title: str) -> None:
    drawn = [sample for sample in samples if sample.curves]
    own = [looks[sample.arm.name] for sample in drawn]
    window = -(-max(len(curve.steps) for sample in drawn for curve in sample.curves) // MOST_POINTS)
    bands = [middle_half([running_mean(curve, window) for curve in sample.curves]) for sample in drawn]
    mark([draw_band(axes, band, look, sample.arm.name, 1.5) for band, look, sample in zip(bands, own, drawn, strict=True)], own)
    winnable = samples[0].config.env.spec.winnable
    means = f", mean of {window} tests" if window > 1 else ""
    style(axes, theme, title, f"test {'win rate' if winnable else 'return'}{means}")
    if winnable:
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.set_ylim(-0.03, 1.03)
    draw_ceilings(axes, different(sample.config for sample in drawn), theme)


def plot_aggregates(evidence: Evidence, theme: Theme = LIGHT) -> dict[str, Figure]:
    """Interquartile means and performance profiles over the panels that all methods have; none before two methods share two panels.

    Of a claim that says which arms are compared, these, with as many seeds as a judge wants.
    """
    compared = evidence.claim.compared
    shared = shared_panels(evidence, SEEDS, compared) if compared else shared_panels(evidence)
    if not shared:
        return {}
    looks = _looks(evidence, theme)  # those of the curves
    return {"aggregates": plot_iqm_bars(shared, theme, looks=looks), "profiles": plot_profiles(shared, theme, looks=looks)}


def plot_best(evidence: Evidence, methods: Sequence[str], theme: Theme = LIGHT) -> dict[str, Figure]:
    """On how many panels each of some methods is best; none before two of them share two panels, with as many seeds as a judge wants."""
    shared = {name: own for name, own in shared_panels(evidence, SEEDS).items() if name in methods}
    return {"best-on": plot_best_on(shared, theme)} if len(shared) > 1 else {}


def shared_panels(evidence: Evidence, seeds: int = 1, arms: Sequence[str] = ()) -> dict[str, dict[str, np.ndarray]]:
    """Scores by method and panel, of panels that all have with so many seeds; none if these, or the methods, are not two at least.

    With `arms` named, those are the methods, and what else a panel has does not matter.
    """
    scores: dict[str, dict[str, np.ndarray]] = {}
    for title, own in evidence.samples.items():
        found = {name: own[name] for name in arms or own if name in own}
        if len(found) == len(arms or own) and all(len(sample.complete) >= seeds for sample in found.values()):
            for name, sample in found.items():
                scores.setdefault(name, {})[title] = sample.finals
    common = {title for own in scores.values() for title in own if all(title in other for other in scores.values())}
    if len(scores) < 2 or len(common) < 2:
        return {}
    return {name: {title: own[title] for title in own if title in common} for name, own in scores.items()}


def plot_areas(evidence: Evidence, panel: str, theme: Theme = LIGHT) -> dict[str, Figure]:
    """How much of their time the agents of each method spent in the named areas of the map; none before any run has maps."""
    runs = {run.path: run for sample in evidence.samples.get(panel, {}).values() for run in sample.runs.values() if read_maps(run)}
    return {"time-in-areas": plot_visit_shares(group_runs([*runs.values()]), theme)} if runs else {}


def plot_heat_maps(evidence: Evidence, panel: str, theme: Theme = LIGHT) -> dict[str, Figure]:
    """Where the agents of each method went and where curiosity paid, early, in the middle and late in training; none without maps."""
    found = [(name, sample.config.env, phases(sample.snapshots())) for name, sample in evidence.samples.get(panel, {}).items()]
    shown = [(name, env, stretches) for name, env, stretches in found if stretches and isinstance(env, HasMap)]
    return {"heat-maps": plot_maps(shown, theme)} if shown else {}


def plot_inside(evidence: Evidence, panel: str, arm: str, theme: Theme = LIGHT) -> dict[str, Figure]:
    """What the training of one method looked like inside: losses, values, rewards, curiosity and memory; none before any run."""
    sample = evidence.sample(panel, arm)
    lines = sample.lines() if sample else []
    return {f"inside-{arm}": plot_diagnostics(lines, theme)} if any("loss" in line for line in lines) else {}


SHARE = "share"
# Of a method with a memory: the share of states that it knows, what it promises beyond Q_tot, and its part in learning.
MEMORY: tuple[tuple[str, str, Callable[[Mapping[str, Any]], float]], ...] = (
    ("states found", SHARE, lambda line: line.get("memory_hit_rate", math.nan)),
    ("target above Q_tot", "mean where found", lambda line: line.get("memory_target", math.nan) - line.get("memory_q", math.nan)),
    ("memory in the loss", SHARE, lambda line: line["memory_loss"] / line["loss"] if line.get("memory_loss") else math.nan),
)


def plot_memory(evidence: Evidence, theme: Theme = LIGHT) -> dict[str, Figure]:
    """What the memory did beside the curves, a row for each task: median and middle half of all methods with one; none before any run."""
    rows: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for title, arms in evidence.samples.items():
        for name, sample in arms.items():
            lines = sample.lines()
            if any(line.get("memory_loss") for line in lines):
                rows.setdefault(title, {})[name] = lines
    if not rows:
        return {}
    figure, every_axes = new_figure(10.0, 2.6 * len(rows) + 0.3, len(rows), len(MEMORY), theme)
    looks = _looks(evidence, theme)
    for number, (title, found) in enumerate(rows.items()):
        for axes, (what, unit, value) in zip(every_axes[len(MEMORY) * number :], MEMORY, strict=False):
            curves = {name: tracks(lines, value) for name, lines in found.items()}
            own = [looks[name] for name in curves]
            mark([draw_band(axes, middle_half(each), looks[name], name, 1.5) for name, each in curves.items()], own)
            style(axes, theme, f"{title}: {what}", unit)
            if unit == SHARE:
                axes.set_ylim(-0.03, 1.03)
                axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    legend_below(figure, every_axes, min(4, max(map(len, rows.values()))), theme)
    return {"memory": figure}
