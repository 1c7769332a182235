"""Curves over environment steps: the scores of test episodes, method by method, and what training looked like inside.

The score of an evaluation is the win rate of its greedy episodes, or their mean return where an environment cannot be won. Seeds are
evaluated at slightly different steps, so all are interpolated linearly at the steps of one of them; the median and the middle half
(25-75 %) are taken over seeds at each of those. Nothing is smoothed unless the figure says so.

Runs whose configurations differ in nothing but their seeds and length are one curve. It is called after its method, followed by what
differs from that method's preset, unless that is so in all runs on the environment. A final score is the mean of a seed's last five
evaluations.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from emc.envs.base import Drawable
from emc.files import is_there
from emc.report.ceilings import ceilings_of, draw_ceilings
from emc.report.figures import (
    BLUE,
    BROWN,
    DASHES,
    GREEN,
    LIGHT,
    ORANGE,
    PURPLE,
    VERMILION,
    Look,
    Theme,
    legend_below,
    literal,
    looks_of,
    mark,
    new_figure,
    style,
)
from emc.report.run_titles import LENGTH, configuration, count, cut, known_config, labels_of, names_of, task_titles
from emc.runs import RunDirectory
from emc.runs.jsonl import at
from emc.runs.reading import METRICS
from emc.statistics import final

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

NUMBER = r"\d+(?:\.\d+)?"


@dataclasses.dataclass(frozen=True)
class Curve:
    """One number of one seed, over steps."""

    seed: int
    steps: Float[np.ndarray, " E"]
    values: Float[np.ndarray, " E"]
    episodes: int = 0  # that the values were measured on, in all


@dataclasses.dataclass(frozen=True)
class Band:
    """The middle half of some seeds."""

    steps: Float[np.ndarray, " G"]
    low: Float[np.ndarray, " G"]  # 25 %
    median: Float[np.ndarray, " G"]
    high: Float[np.ndarray, " G"]  # 75 %
    seeds: Int[np.ndarray, " G"]  # how many got this far


@dataclasses.dataclass(frozen=True)
class Group:
    """One method in one configuration on one task, with all its seeds."""

    env_name: str
    task: str  # the environment, and the fields that make this one special
    method_name: str
    label: str
    winnable: bool
    runs: tuple[RunDirectory, ...]
    curves: tuple[Curve, ...]  # the scores of each seed that was evaluated
    left_out: tuple[int, ...] = ()  # seeds found in more than one run; only the longest counts
    short: tuple[int, ...] = ()  # seeds of runs that were to be shorter than others here: drawn as far as they go, without a final score

    @property
    def differs(self) -> str:
        """What the label says beside the method's name."""
        return self.label.removeprefix(self.method_name).strip(", ")

    @property
    def setting(self) -> str:
        """What the task's title says beside the environment's name."""
        return self.task.removeprefix(self.env_name).strip(", ")

    @property
    def asked(self) -> int:
        """How many steps the longest of the runs was to have."""
        return max(map(_asked, self.runs))

    @property
    def final(self) -> Float[np.ndarray, " seeds"]:
        """The final score of each seed."""
        return np.array([final(curve.values.tolist()) for curve in self.curves if curve.seed not in self.short])


def group_runs(runs: Sequence[RunDirectory]) -> list[Group]:
    """The runs by task, method and configuration, seeds and length apart; methods in the order given, an unchanged preset first."""
    members: dict[str, list[RunDirectory]] = {}
    for run in runs:
        members.setdefault(_kind(run), []).append(run)
    firsts = [same[0] for same in members.values()]
    named = zip(task_titles(firsts), labels_of(firsts), members.values(), strict=True)
    groups = [_group(task, label, same) for task, label, same in named]
    envs, methods = ([*dict.fromkeys(names_of(run)[i] for run in runs)] for i in (0, 1))

    def place(group: Group) -> tuple[int, list[tuple[float, str]], int, bool]:
        return envs.index(group.env_name), _naturally(group.task), methods.index(group.method_name), group.label != group.method_name

    return sorted(groups, key=place)


def _kind(run: RunDirectory) -> str:
    """Equal for runs that differ in nothing but their seeds and length."""
    config = {name: value for name, value in configuration(run).items() if name != "seeds"}
    if isinstance(config.get("budget"), dict):
        config["budget"] = {name: value for name, value in config["budget"].items() if (name,) != LENGTH}
    return json.dumps([names_of(run), config], sort_keys=True)


def _naturally(title: str) -> list[tuple[float, str]]:
    """An order in which 2 comes before 10."""
    return [(float(part), "") if re.fullmatch(NUMBER, part) else (math.inf, part) for part in re.split(f"({NUMBER})", title)]


def _group(task: str, label: str, runs: list[RunDirectory]) -> Group:
    env, every = environment_of(runs[0]), [measured(run) for run in runs]
    winnable = env.spec.winnable if env is not None else any(np.any(curve.values) for same in every for curve in same.wins)
    found = [(curve, _asked(run)) for run, same in zip(runs, every, strict=True) for curve in same.scores(winnable)]
    longest = {curve.seed: (curve, asked) for curve, asked in sorted(found, key=lambda one: one[0].steps[-1])}
    repeated = tuple(sorted(seed for seed in longest if sum(curve.seed == seed for curve, _ in found) > 1))
    most = max((asked for _, asked in longest.values()), default=0)
    short = tuple(sorted(seed for seed, (_, asked) in longest.items() if asked < most))
    env_name, method_name = names_of(runs[0])
    curves = tuple(longest[seed][0] for seed in sorted(longest))
    return Group(env_name, task, method_name, label, winnable, tuple(runs), curves, repeated, short)


def _asked(run: RunDirectory) -> int:
    """How long a run was to be."""
    steps = at(configuration(run), "budget", *LENGTH)
    return steps if isinstance(steps, int) else 0


def environment_of(run: RunDirectory) -> Drawable | None:
    """The environment of a run; None if this version of emc cannot make it, or it cannot be drawn."""
    config = known_config(run)
    return config.env if config is not None and isinstance(config.env, Drawable) else None


@dataclasses.dataclass(frozen=True)
class Measured:
    """What pictures need of a run's metrics, which is far less than its lines."""

    wins: tuple[Curve, ...]  # win rates of tests
    returns: tuple[Curve, ...]  # mean returns of tests
    training: Mapping[str, tuple[Curve, ...]]  # the fields of PANELS
    episodes: Mapping[int, int]  # of training, by seed
    steps: Mapping[int, int]  # how far each seed got

    def scores(self, winnable: bool) -> tuple[Curve, ...]:
        """The score of every evaluation, seed by seed."""
        return self.wins if winnable else self.returns


def measured(run: RunDirectory) -> Measured:
    """The metrics of a run; read again only when the file has changed."""
    path = run.path / METRICS
    known = path.lstat() if is_there(path) else None
    stamp = (known.st_size, known.st_mtime_ns) if known else None
    if run not in _MEASURED or _MEASURED[run][0] != stamp:
        _MEASURED[run] = stamp, _measure(read_lines(run))
    return _MEASURED[run][1]


def _measure(lines: Sequence[Mapping[str, Any]]) -> Measured:
    train = [line for line in lines if line.get("kind") == "train"]
    return Measured(
        wins=tuple(scores(lines, winnable=True)),
        returns=tuple(scores(lines, winnable=False)),
        training={field: tuple(tracks(train, lambda line, f=field: line.get(f, np.nan))) for field in FIELDS},
        episodes={line["seed"]: line.get("episodes", 0) for line in train},
        steps={line["seed"]: line["steps"] for line in lines},
    )


_MEASURED: weakref.WeakKeyDictionary[RunDirectory, tuple[tuple[int, int] | None, Measured]] = weakref.WeakKeyDictionary()


def read_lines(run: RunDirectory) -> list[dict[str, Any]]:
    """The metrics of a run, none if it has not got that far."""
    return run.lines(METRICS)


def scores(lines: Iterable[Mapping[str, Any]], winnable: bool) -> list[Curve]:
    """The score of every evaluation, seed by seed."""
    field = "won" if winnable else "return"

    def mean(line: Mapping[str, Any]) -> float:
        return sum(line["won"]) / len(line["won"]) if winnable else float(np.mean(line["return"]))  # NumPy is slow with short lists

    tests = [line for line in lines if line.get("kind") == "eval"]
    return tracks(tests, mean, lambda line: len(line[field]))


def tracks(
    lines: Iterable[Mapping[str, Any]],
    value: Callable[[Mapping[str, Any]], float],
    episodes: Callable[[Mapping[str, Any]], int] = lambda line: 0,
) -> list[Curve]:
    """One number of each line, seed by seed; lines where it is not finite are passed over."""
    found: dict[int, list[tuple[int, float, int]]] = {}
    for line in lines:
        if math.isfinite(number := value(line)):
            found.setdefault(line["seed"], []).append((line["steps"], number, episodes(line)))
    columns = {seed: np.array(rows, float).T for seed, rows in sorted(found.items())}
    return [Curve(seed, steps, values, int(np.sum(counts))) for seed, (steps, values, counts) in columns.items()]


def middle_half(curves: Sequence[Curve], grid: Float[np.ndarray, " G"] | None = None) -> Band:
    """Median and quartiles over seeds at each step of the grid, among the seeds that got that far."""
    steps = common_grid(curves) if grid is None else grid
    table = np.stack([interpolated(curve, steps) for curve in curves])
    missing = np.isnan(table)
    low, median, high = (np.nanpercentile if np.any(missing) else np.percentile)(table, (25, 50, 75), axis=0)  # the first is far slower
    return Band(steps, low, median, high, np.sum(~missing, axis=0))


def running_mean(curve: Curve, window: int) -> Curve:
    """Each value with its neighbours, `window` in all; fewer at the ends."""
    share = np.ones(window)
    sums, counts = (np.convolve(values, share)[window // 2 :][: len(values)] for values in (curve.values, np.ones_like(curve.values)))
    return dataclasses.replace(curve, values=sums / counts)


def until(curve: Curve, end: float) -> Curve:
    """A curve up to its first test at or after a number of steps: a test is late by up to an episode."""
    inside = np.arange(len(curve.steps)) <= np.searchsorted(curve.steps, end)
    episodes = round(curve.episodes * float(np.mean(inside))) if len(inside) else 0
    return dataclasses.replace(curve, steps=curve.steps[inside], values=curve.values[inside], episodes=episodes)


def interpolated(curve: Curve, grid: Float[np.ndarray, " G"]) -> Float[np.ndarray, " G"]:
    """A curve at other steps; its ends hold for one interval more, then it is not a number."""
    interval = np.median(np.diff(curve.steps)) if len(curve.steps) > 1 else 0.0
    inside = (grid >= curve.steps[0] - interval) & (grid <= curve.steps[-1] + interval)
    return np.where(inside, np.interp(grid, curve.steps, curve.values), np.nan)


def common_grid(curves: Sequence[Curve], most: int = 2000) -> Float[np.ndarray, " G"]:
    """The steps at which the seed that got furthest was evaluated, so that one seed alone is not interpolated at all."""
    steps = max(curves, key=lambda curve: curve.steps[-1]).steps
    return steps[:: -(-len(steps) // most)]


# Figures.


def plot_curves(groups: Sequence[Group], theme: Theme = LIGHT, window: int = 1) -> Figure:
    """The scores of some methods on one task; a `window` above 1 is said to be a running mean over so many evaluations."""
    winnable, drawn = groups[0].winnable, [group for group in groups if group.curves]
    columns = max(1, min(3, len(drawn), 84 // (10 + max((len(cut(group.label)) for group in drawn), default=0))))
    figure, (axes,) = new_figure(8.0, 4.4 + 0.22 * -(-len(drawn) // columns), 1, 1, theme)
    looks = looks_of([group.method_name for group in drawn], theme)
    lines: list[Line2D] = []
    for group, look in zip(drawn, looks, strict=True):
        band = middle_half([running_mean(curve, window) for curve in group.curves])
        label = f"{cut(group.label)} ({count(len(group.curves), 'seed')})"
        lines.append(draw_band(axes, band, look, label, width=1.0 if window == 1 and len(band.steps) > 200 else 1.8))
    mark(lines, looks)
    score = "win rate" if winnable else "mean return"
    style(axes, theme, f"{score.capitalize()} on {cut(groups[0].task)}", score, pad=22)
    smoothed = f"running mean over {window} evaluations" if window > 1 else "not smoothed"
    note = f"greedy test episodes, {smoothed}; median over seeds, band 25–75%"
    below_title = axes.annotate(note, (0, 1), (0, 8), xycoords="axes fraction", textcoords="offset points", fontsize=9.5, color=theme.faint)
    below_title.set_in_layout(False)
    if winnable:
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.set_ylim(-0.03, 1.03)
    draw_ceilings(axes, ceilings_of(group.runs[0] for group in drawn), theme)
    legend_below(figure, [axes], columns, theme)
    return figure


Line = tuple[str, str, str]  # a field of the training lines, its name and colour
REWARDS: tuple[Line, ...] = (("reward_extrinsic", "extrinsic", BLUE), ("reward_intrinsic", "intrinsic × η", VERMILION))
PANELS: tuple[tuple[str, str, tuple[Line, ...]], ...] = (
    ("Loss", "loss, log scale", (("loss", "", VERMILION),)),
    ("Temporal-difference error", "mean |error|, log scale", (("td_error", "", VERMILION),)),
    ("Value and its target", "mean over batches", (("target", "target", ORANGE), ("q", "value", BLUE))),
    ("Rewards in training batches", "mean per step", REWARDS),
    ("Curiosity weight", "η, log scale", (("curiosity_weight", "", PURPLE),)),
    ("Exploration", "ε", (("epsilon", "", GREEN),)),
    ("Episodic memory", "share", (("memory_hit_rate", "states found", GREEN), ("memory_occupancy", "slots in use", BROWN))),
    ("Memory target and value", "mean where found", (("memory_target", "memory target", GREEN), ("memory_q", "Q_tot", BLUE))),
)
FIELDS = tuple(dict.fromkeys(field for _, _, wanted in PANELS for field, _, _ in wanted))


def plot_diagnostics(lines: Iterable[Mapping[str, Any]], theme: Theme = LIGHT) -> Figure:
    """What training looked like inside; a number that is absent or zero throughout belongs to a part that the method has not."""
    from matplotlib.ticker import LogLocator, NullLocator

    train = [line for line in lines if line.get("kind") == "train"]
    panels: list[tuple[str, str, list[tuple[list[Curve], str, str]]]] = []
    for title, ylabel, wanted in PANELS:
        found = [(tracks(train, lambda line, f=field: line.get(f, np.nan)), name, colour) for field, name, colour in wanted]
        present = [(curves, name, colour) for curves, name, colour in found if any(np.any(curve.values) for curve in curves)]
        panels += [(title, ylabel, present)] if present else []
    rows = max(1, -(-len(panels) // 3))
    figure, every_axes = new_figure(10.0, 2.6 * rows, rows, 3, theme)
    for axes, (title, ylabel, present) in zip(every_axes, panels, strict=False):
        for (curves, name, colour), dashes in zip(present, DASHES, strict=False):
            draw_band(axes, middle_half(curves), Look(theme.contrast.get(colour, colour), dashes), name, width=1.2)
        style(axes, theme, title, ylabel)
        if "log" in ylabel:
            axes.set_yscale("log")
            low, high = axes.get_ylim()
            if high < 2 * low:  # hardly any change: do not make it look like one
                axes.set_ylim(low / 2, high * 2)
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.yaxis.set_minor_locator(NullLocator())
        if any(name for _, name, _ in present):
            axes.legend(frameon=False, fontsize=9, labelcolor=theme.ink)
    for axes in every_axes[len(panels) :]:
        axes.set_axis_off()
    return figure


def draw_band(axes: Axes, band: Band, look: Look, label: str, width: float = 2.0) -> Line2D:
    """A median and the middle half around it; pale where some seeds have ended."""
    whole = band.seeds == np.max(band.seeds)
    style: Any = {"color": look.colour, "linestyle": look.dashes, "linewidth": width}
    axes.fill_between(band.steps, band.low, band.high, color=look.colour, alpha=0.2, linewidth=0)
    axes.plot(band.steps, band.median, alpha=0.0 if np.all(whole) else 0.5, **style)
    marker = "o" if len(band.steps) == 1 else ""  # a line of one point shows nothing else
    (line,) = axes.plot(band.steps, np.where(whole, band.median, np.nan), label=literal(label), marker=marker, **style)
    return line
