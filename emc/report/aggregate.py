"""Scores over tasks, and figures of them: aggregates, performance profiles and who is best, each with its bootstrap interval.

Scores are given method by method and task by task, one number per run, on the task's own scale (`on_scale`), so that no method in a
figure moves another. Methods are compared on the same tasks only. Tasks may have different numbers of runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from emc.envs.registry import TASKS
from emc.errors import UserError
from emc.report.ceilings import on_scale
from emc.report.curves import Curve, Group, until
from emc.report.figures import LIGHT, Look, Theme, legend_below, literal, looks_of, mark, new_figure, style
from emc.report.run_titles import (
    LENGTH,
    configuration,
    count,
    cut,
    differences,
    distinct,
    in_words,
    known_config,
    method_label,
    steps_in_words,
)
from emc.runs.jsonl import at
from emc.statistics import AGGREGATES, Estimate, Scores, estimate, estimate_best_on, estimate_profile, final
from emc.user_input import lookup

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

MethodScores = Mapping[str, Scores]  # by method, then by task
SAMPLES = 2_000
CONFIDENCE = 0.95


# Scores.


def last_tests(curve: Curve) -> float:
    """The score of a run: the mean of its last tests."""
    return final(curve.values.tolist())


def scores_by_method(
    groups: Sequence[Group], summary: Callable[[Curve], float] = last_tests, name: Callable[[Group], str] | None = None
) -> dict[str, dict[str, np.ndarray]]:
    """One number for each seed on its task's scale, by method and task; methods are told apart by all their fields, or by a `name`.

    Where runs on a task are of different lengths, all are compared at the most common one; shorter ones have no score there.
    """
    tested = [group for group in groups if group.curves]
    methods = _method_names(tested) if name is None else [name(group) for group in tested]
    tasks = _task_names(tested)
    lengths = {task: [own.asked for own, other in zip(tested, tasks, strict=True) if task == other] for task in tasks}
    found: dict[str, dict[str, np.ndarray]] = {}
    for group, method, task in zip(tested, methods, tasks, strict=True):
        end = max(lengths[task], key=lambda length: (lengths[task].count(length), length))
        own, named = found.setdefault(method, {}), task
        if len({*lengths[task]}) > 1:
            named = f"{task}, at {steps_in_words(end)} steps"
        if group.asked < end:
            continue
        if named in own:
            raise UserError(f"{method} on {task} is there in more than one configuration: give the runs of one of them")
        curves = [until(curve, end) for curve in group.curves if group.asked == end or curve.seed not in group.short]
        own[named] = np.array([normalised(group, summary(curve)) for curve in curves])
    return found


def normalised(group: Group, score: float) -> float:
    """A score of a group on the scale of its task."""
    task = TASKS.get(group.env_name)
    if task is None and not group.winnable:
        raise UserError(f"{group.env_name} is not won and has no scale, so its returns cannot stand beside other tasks: leave it out")
    return on_scale(task, known_config(group.runs[0]), score) if task else score  # of 0 to 1: a win rate


def _method_names(groups: Sequence[Group]) -> list[str]:
    """Methods by all their fields. A method that everywhere has the constants that the environment names is one, whatever these are."""
    runs = [group.runs[0] for group in groups]
    labels = [method_label(run, runs) for run in runs]
    changed = {group.method_name for group, label in zip(groups, labels, strict=True) if label != group.method_name}
    fields = [configuration(run).get("method") if group.method_name in changed else None for group, run in zip(groups, runs, strict=True)]
    keys = [json.dumps([group.method_name, own], sort_keys=True) for group, own in zip(groups, fields, strict=True)]
    first = dict(reversed([*zip(keys, labels, strict=True)]))
    return distinct([first[key] for key in keys], keys)


def _task_names(groups: Sequence[Group]) -> list[str]:
    """The tasks, with those fields of the budget, apart from its length, in which runs on one of them differ."""
    budgets = [{name: value for name, value in _budget(group).items() if (name,) != LENGTH} for group in groups]
    names: list[str] = []
    for group, budget in zip(groups, budgets, strict=True):
        rivals = [other for own, other in zip(groups, budgets, strict=True) if own.task == group.task]
        varied = dict.fromkeys(path for rival in rivals for path, _, _ in differences(rival, rivals[0]))
        names.append(", ".join([group.task, *(in_words(path, at(budget, *path)) for path in varied)]))
    return distinct(names, [json.dumps([group.task, budget], sort_keys=True) for group, budget in zip(groups, budgets, strict=True)])


def _budget(group: Group) -> dict[str, Any]:
    budget = configuration(group.runs[0]).get("budget")
    return budget if isinstance(budget, dict) else {}


# Figures.


def plot_iqm_bars(
    scores: MethodScores,
    theme: Theme = LIGHT,
    samples: int = SAMPLES,
    names: Sequence[str] = tuple(AGGREGATES),
    looks: Mapping[str, Look] | None = None,
) -> Figure:
    """Aggregates over all tasks side by side, a row for each method: a bar is the interval, a marker the number itself.

    `looks` says how each method is drawn where its name alone would not.
    """
    same = _same_tasks(scores)
    chosen = {name: lookup("aggregate", name, AGGREGATES) for name in names}
    figure, every_axes = new_figure(1.6 + 2.4 * len(chosen), 1.35 + 0.32 * len(same), 1, len(chosen), theme)
    own_looks = [looks[name] for name in same] if looks else _looks([*same], theme)
    for axes, (name, aggregate) in zip(every_axes, chosen.items(), strict=True):
        found = [estimate(own, aggregate, samples, CONFIDENCE) for own in same.values()]
        _draw_rows(axes, found, own_looks)
        style(axes, theme, name[:1].upper() + name[1:], "", xlabel="lower is better" if name == "optimality gap" else "higher is better")
        _name_rows(axes, [*same] if axes is every_axes[0] else [""] * len(same), theme)
    _share_scale([axes for axes, name in zip(every_axes, chosen, strict=True) if name != "optimality gap"])
    _note(figure, f"{extent_of(same)} Bars hold {_interval(samples)}", theme)
    return figure


def plot_best_on(scores: MethodScores, theme: Theme = LIGHT, samples: int = SAMPLES) -> Figure:
    """On how many tasks each method is best by one test episode of 32, a row for each method."""
    same = _same_tasks(scores)
    figure, (axes,) = new_figure(6.4, 1.35 + 0.32 * len(same), 1, 1, theme)
    _draw_rows(axes, [*estimate_best_on(same, 1 / 32, samples, CONFIDENCE).values()], _looks([*same], theme))
    style(axes, theme, "Tasks on which a method is best by at least 1/32", "", xlabel="higher is better")
    _name_rows(axes, [*same], theme)
    axes.set_xlim(-0.2, len(next(iter(same.values()))) + 0.2)
    axes.locator_params(axis="x", integer=True)
    _note(figure, f"{extent_of(same)} Bars hold {_interval(samples)}", theme)
    return figure


def plot_profiles(
    scores: MethodScores,
    theme: Theme = LIGHT,
    thresholds: Float[np.ndarray, " k"] | None = None,
    samples: int = SAMPLES,
    looks: Mapping[str, Look] | None = None,
) -> Figure:
    """For every score the share of runs above it, over all tasks; a line that lies higher everywhere is better. `looks` as above."""
    same = _same_tasks(scores)
    at = thresholds_of(same) if thresholds is None else thresholds
    columns = max(1, min(3, len(same), 84 // (10 + max(len(cut(label)) for label in same))))
    figure, (axes,) = new_figure(8.0, 4.4 + 0.22 * -(-len(same) // columns), 1, 1, theme)
    own_looks = [looks[name] for name in same] if looks else _looks([*same], theme)
    lines: list[Line2D] = []
    for (label, own), look in zip(same.items(), own_looks, strict=True):
        value, low, high = estimate_profile(own, at, samples, CONFIDENCE)
        axes.fill_between(at, low, high, color=look.colour, alpha=0.12, linewidth=0, step="post")
        drawn: Any = {"color": look.colour, "linestyle": look.dashes, "linewidth": 1.8, "drawstyle": "steps-post"}
        lines += axes.plot(at, value, label=literal(cut(label)), **drawn)
    mark(lines, own_looks)
    style(axes, theme, "Performance profiles", "share of runs that score more", xlabel="score")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_ylim(-0.03, 1.03)
    legend_below(figure, [axes], columns, theme)
    _note(figure, f"{extent_of(same)} Bands hold {_interval(samples)}", theme)
    return figure


def _draw_rows(axes: Axes, found: Sequence[Estimate], looks: Sequence[Look]) -> None:
    """One interval below the other, the first on top."""
    for row, (one, look) in enumerate(zip(found, looks, strict=True)):
        axes.barh(row, one.high - one.low, left=one.low, height=0.56, color=look.colour, alpha=0.45, linewidth=0, zorder=2)
        face = look.colour if look.filled else "none"
        axes.plot([one.value], [row], marker=look.marker, markersize=6, color=look.colour, markerfacecolor=face, linestyle="", zorder=3)
    axes.set_ylim(len(found) - 0.4, -0.6)
    axes.use_sticky_edges = False  # room beside a bar that ends where the axis would


def _name_rows(axes: Axes, names: Sequence[str], theme: Theme) -> None:
    axes.set_yticks(range(len(names)), [literal(cut(name, 44)) for name in names], color=theme.ink, fontsize=10)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color=theme.rule, linewidth=0.7)
    axes.margins(x=0.08)
    axes.locator_params(axis="x", nbins=5)


def _share_scale(every_axes: Sequence[Axes]) -> None:
    """Equal numbers at equal places."""
    limits = np.array([axes.get_xlim() for axes in every_axes])
    for axes in every_axes:
        axes.set_xlim(np.min(limits), np.max(limits))


def _note(figure: Figure, words: str, theme: Theme) -> None:
    """What the numbers stand for, in small print at the top."""
    figure.suptitle(words, x=0.01, ha="left", fontsize=9, color=theme.faint)


def _same_tasks(scores: MethodScores) -> MethodScores:
    """The scores as they are, if all methods have the same tasks."""
    if not scores:
        raise UserError("there are no methods to compare: give at least one")
    every = {task for own in scores.values() for task in own}
    for method, own in scores.items():
        if missing := sorted(every - own.keys()):
            raise UserError(f"{method} has no runs on {', '.join(missing)}: compare methods on the tasks that all of them have")
    return scores


def _looks(labels: Sequence[str], theme: Theme) -> list[Look]:
    """A label begins with the method's name; what follows says what is special."""
    return looks_of([method_of(label) for label in labels], theme)


def method_of(label: str) -> str:
    """The method's name, which a label begins with."""
    return re.split(r",| \(| #", label)[0]


def thresholds_of(scores: MethodScores, points: int = 201) -> Float[np.ndarray, " k"]:
    """From 0 to 1, or as far as scores go beyond."""
    every = np.concatenate([np.asarray(runs, float) for own in scores.values() for runs in own.values()])
    return np.linspace(min(0.0, float(np.min(every))), max(1.0, float(np.max(every))), points)


def extent_of(scores: MethodScores) -> str:
    """How many tasks and runs there are."""
    runs = sorted({len(runs) for own in scores.values() for runs in own.values()})
    each = count(runs[0], "run") if len(runs) == 1 else f"{runs[0]} to {count(runs[-1], 'run')}"
    return f"{count(len(next(iter(scores.values()))), 'task')}, {each} of each method on each."


def _interval(samples: int) -> str:
    return f"{CONFIDENCE:.0%} of {samples:,} stratified bootstrap samples."
