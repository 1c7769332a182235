"""Curves over environment steps: the scores of test episodes, method by method, and what training looked like inside.

The score of an evaluation is the win rate of its greedy episodes, or their mean return where an environment cannot be won. Seeds are
evaluated at slightly different steps, so all are interpolated linearly at the steps of one of them; the median and the middle half
(25-75 %) are taken over seeds at each of those. Nothing is smoothed unless the figure says so.

Runs whose configurations differ in nothing but their seeds are one curve. It is called after its method, followed by what differs from that
method's preset and from the other runs. Equal methods have equal colours, dashes and markers in every figure.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import itertools
import json
import math
import re
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from jaxtyping import Float, Int, UInt8

from emc.envs.base import Drawn
from emc.envs.registry import TASKS
from emc.errors import UserError
from emc.methods import PRESETS
from emc.runs import RunDirectory, read_metrics
from emc.runs.config import RunConfig, to_json
from emc.runs.directory import METRICS
from emc.runs.session import config_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


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
    """One method in one configuration on one environment, with all its seeds."""

    env_name: str
    method_name: str
    label: str
    winnable: bool
    runs: tuple[RunDirectory, ...]
    curves: tuple[Curve, ...]  # the scores of each seed that was evaluated
    left_out: tuple[int, ...] = ()  # seeds found in more than one run; only the longest counts

    @property
    def differs(self) -> str:
        """What the label says beside the method's name."""
        return self.label.removeprefix(self.method_name).strip(", ")

    @property
    def final(self) -> Float[np.ndarray, " seeds"]:
        """The last score of each seed."""
        return np.array([curve.values[-1] for curve in self.curves])


def group_runs(runs: Sequence[RunDirectory]) -> list[Group]:
    """The runs by environment, method and configuration, each in the order given, but an unchanged preset before its variants."""
    members: dict[str, list[RunDirectory]] = {}
    for run in runs:
        config = {name: value for name, value in configuration(run).items() if name != "seeds"}
        members.setdefault(json.dumps([_names(run), config], sort_keys=True), []).append(run)
    labels = _labels([same[0] for same in members.values()])
    groups = [_group(label, same) for label, same in zip(labels, members.values(), strict=True)]
    envs, methods = ([*dict.fromkeys(_names(run)[i] for run in runs)] for i in (0, 1))

    def place(group: Group) -> tuple[int, int, bool]:
        return envs.index(group.env_name), methods.index(group.method_name), group.label != group.method_name

    return sorted(groups, key=place)


def _group(label: str, runs: list[RunDirectory]) -> Group:
    env, every = environment_of(runs[0]), [measured(run) for run in runs]
    winnable = env.spec.winnable if env is not None else any(np.any(curve.values) for same in every for curve in same.wins)
    found = [curve for same in every for curve in same.scores(winnable)]
    longest = {curve.seed: curve for curve in sorted(found, key=lambda curve: curve.steps[-1])}
    repeated = tuple(sorted(seed for seed in longest if sum(curve.seed == seed for curve in found) > 1))
    return Group(*_names(runs[0]), label, winnable, tuple(runs), tuple(longest[seed] for seed in sorted(longest)), repeated)


def environment_of(run: RunDirectory) -> Drawn | None:
    """The environment of a run; None if this version of emc cannot make it, or it cannot be drawn."""
    config = _config(run)
    return config.env if config is not None and isinstance(config.env, Drawn) else None


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
    stamp = (path.stat().st_size, path.stat().st_mtime_ns) if path.exists() else None
    if run not in _MEASURED or _MEASURED[run][0] != stamp:
        _MEASURED[run] = stamp, _measure(read_lines(run))
    return _MEASURED[run][1]


def _measure(lines: Sequence[Mapping[str, Any]]) -> Measured:
    train = [line for line in lines if line.get("kind") == "train"]
    fields = dict.fromkeys(field for _, _, wanted in PANELS for field, _, _ in wanted)
    return Measured(
        wins=tuple(scores(lines, winnable=True)),
        returns=tuple(scores(lines, winnable=False)),
        training={field: tuple(tracks(train, lambda line, f=field: line.get(f, np.nan))) for field in fields},
        episodes={line["seed"]: line.get("episodes", 0) for line in train},
        steps={line["seed"]: line["steps"] for line in lines},
    )


_MEASURED: weakref.WeakKeyDictionary[RunDirectory, tuple[tuple[int, int] | None, Measured]] = weakref.WeakKeyDictionary()


def read_lines(run: RunDirectory) -> list[dict[str, Any]]:
    """The metrics of a run, none if it has not got that far."""
    path = run.path / METRICS
    lines = read_metrics(path) if path.exists() else []
    for number, line in enumerate(lines, start=1):
        if not all(isinstance(line.get(name), int) for name in ("seed", "steps")) or (line.get("kind") == "eval" and not _tested(line)):
            raise UserError(f"{path}, line {number}: not a line that emc writes. Remove that line to see the rest.")
    return lines


def _tested(line: Mapping[str, Any]) -> bool:
    """Whether a line has the test episodes that an evaluation must have."""
    return all(isinstance(line.get(name), list) and line[name] for name in ("return", "won"))


def scores(lines: Iterable[Mapping[str, Any]], winnable: bool) -> list[Curve]:
    """The score of every evaluation, seed by seed."""
    field = "won" if winnable else "return"
    tests = [line for line in lines if line.get("kind") == "eval"]
    return tracks(tests, lambda line: float(np.mean(line[field])), lambda line: len(line[field]))


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

BLACK, ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"
BROWN, INDIGO, WINE = "#7A4A12", "#332288", "#882255"
SOLID, DASHED, DOTTED, DOT_DASHED = DASHES = ("solid", (0, (5, 2)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))


MARKS = 8  # markers on a line, about


@dataclasses.dataclass(frozen=True)
class Look:
    """How a line is drawn."""

    colour: str
    dashes: Any = SOLID
    marker: str = ""
    filled: bool = True


# Colours of Okabe and Ito, which stay apart for every kind of colour vision (their yellow is too pale for a line), and three darker ones
# beside them. No two methods that the paper shows in one figure share a colour; no two at all share dashes and marker, which print keeps.
LOOKS: Mapping[str, Look] = {
    "emc-vdn": Look(VERMILION, SOLID, "o"),
    "emc-qmix": Look(ORANGE, SOLID, "s"),
    "emc-qplex": Look(PURPLE, SOLID, "^"),
    "vdn": Look(BLUE, DASHED, "o"),
    "qmix": Look(GREEN, DASHED, "s"),
    "qplex": Look(SKY, DASHED, "^"),
    "iql": Look(BLACK, DASHED, "D"),
    "qtran": Look(BROWN, DASHED, "v"),
    "qmix-tuned": Look(WINE, DASHED, "X"),
    "cw-qmix": Look(WINE, DOTTED, "s"),
    "ow-qmix": Look(BLUE, DOTTED, "D"),
    "maven": Look(BLACK, DOTTED, "v"),
    "rode": Look(ORANGE, DOTTED, "P"),
    "qplex-global": Look(BROWN, DOT_DASHED, "^"),
    "qplex-local": Look(INDIGO, DOT_DASHED, "v"),
    "emc-wo-c": Look(GREEN, DOT_DASHED, "s"),
    "emc-wo-m": Look(ORANGE, DOT_DASHED, "o"),
    "emc-td": Look(GREEN, DOTTED, "^"),
    "emc-ind": Look(BLACK, DOT_DASHED, "D"),
    "emc-cen": Look(BROWN, DOTTED, "o"),
    "emc-dec": Look(INDIGO, DOTTED, "X"),
}
OTHERS = tuple(Look(*look) for look in itertools.product(sorted({look.colour for look in LOOKS.values()}), DASHES, "<>*hp"))


@dataclasses.dataclass(frozen=True)
class Theme:
    """What a figure is drawn on, and with."""

    paper: str = "#FFFFFF"
    ink: str = "#1F2328"
    faint: str = "#59636E"
    rule: str = "#D9DEE4"
    contrast: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])  # colours that would not show on this paper


LIGHT = Theme()
DARK = Theme(
    paper="#171B21",
    ink="#E6EAEF",
    faint="#9AA4AF",
    rule="#343B44",
    contrast={BLACK: "#F4F4F4", SKY: "#80C1F5", BLUE: "#2A74BC", BROWN: "#D8A76C", INDIGO: "#8648FC", WINE: "#CD2340"},
)


def look_of(method_name: str, theme: Theme = LIGHT, variant: int = 0) -> Look:
    """A method's colour, dashes and marker, the same in every figure; variants of it differ in dashes and have empty markers."""
    name = method_name.lower()
    own = LOOKS.get(name, OTHERS[zlib.crc32(name.encode("utf-8", "replace")) % len(OTHERS)])
    dashes = DASHES[(DASHES.index(own.dashes) + variant) % len(DASHES)]
    return Look(theme.contrast.get(own.colour, own.colour), dashes, own.marker, filled=variant == 0)


def looks_of(method_names: Sequence[str], theme: Theme = LIGHT) -> list[Look]:
    """The looks of all lines of one figure, some of which may be variants of one method."""
    return [look_of(name, theme, variant=[*method_names[:i]].count(name)) for i, name in enumerate(method_names)]


def colour_of(method_name: str, theme: Theme = LIGHT) -> str:
    """A method's colour, the same in every figure."""
    return look_of(method_name, theme).colour


def plot_curves(groups: Sequence[Group], theme: Theme = LIGHT, window: int = 1) -> Figure:
    """The scores of some methods on one environment; a `window` above 1 is said to be a running mean over so many evaluations."""
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
    style(axes, theme, f"{score.capitalize()} on {cut(task_title(groups))}", score, pad=22)
    smoothed = f"running mean over {window} evaluations" if window > 1 else "not smoothed"
    note = f"greedy test episodes, {smoothed}; median over seeds, band 25–75%"
    below_title = axes.annotate(note, (0, 1), (0, 8), xycoords="axes fraction", textcoords="offset points", fontsize=9.5, color=theme.faint)
    below_title.set_in_layout(False)
    if winnable:
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.set_ylim(-0.03, 1.03)
    if drawn:
        legend_below(figure, axes, columns, theme)
    return figure


def legend_below(figure: Figure, axes: Axes, columns: int, theme: Theme) -> None:
    """What the lines mean, under all axes of a figure, long enough to show dashes."""
    handles, labels = axes.get_legend_handles_labels()
    where: Any = {"loc": "outside lower center", "ncols": columns, "handlelength": 3.4}
    figure.legend(handles, labels, frameon=False, fontsize=10, labelcolor=theme.ink, **where)


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


def mark(lines: Sequence[Line2D], looks: Sequence[Look]) -> None:
    """Put their markers on the lines of a figure, a few on each, none above another's."""
    steps = [np.asarray(line.get_xdata(), float) for line in lines]
    gap = max((own[-1] - own[0] for own in steps), default=0.0) / MARKS
    for number, (line, look, own) in enumerate(zip(lines, looks, steps, strict=True)):
        wanted = own[0] + gap * (np.arange(MARKS) + (number + 0.5) / len(lines))
        at = np.unique(np.searchsorted(own, wanted[wanted <= own[-1]])).tolist() or [0]
        line.set(marker=look.marker, markevery=at, markersize=5.5)
        line.set(markerfacecolor=look.colour if look.filled else "none", markeredgecolor=look.colour)


def new_figure(width: float, height: float, rows: int, columns: int, theme: Theme) -> tuple[Figure, list[Axes]]:
    """An empty figure of some inches and its axes, row by row, away from pyplot's global state."""
    from matplotlib.figure import Figure

    figure = Figure((width, height), dpi=160, layout="constrained", facecolor=theme.paper)
    figure.get_layout_engine().set(h_pad=0.09, w_pad=0.06)  # type: ignore[union-attr]
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def style(axes: Axes, theme: Theme, title: str, ylabel: str, pad: float = 6, xlabel: str = "environment steps") -> None:
    """Steps or scores along the bottom, faint rules, and no frame."""
    axes.set_title(literal(title), loc="left", fontsize=11, fontweight="bold", color=theme.ink, pad=pad)
    axes.set_xlabel(xlabel, fontsize=9.5, color=theme.faint)
    axes.set_ylabel(ylabel, fontsize=9.5, color=theme.faint)
    axes.xaxis.set_major_formatter(lambda value, _: steps_in_words(value))
    axes.set_facecolor(theme.paper)
    axes.grid(axis="y", color=theme.rule, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(colors=theme.faint, labelsize=9.5, length=3)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(theme.faint)
    axes.margins(x=0.01)


def steps_in_words(steps: float) -> str:
    """A number of steps on an axis: 500, 20k, 1.5M."""
    return f"{steps / 1e6:g}M" if abs(steps) >= 1e6 else f"{steps / 1e3:g}k" if abs(steps) >= 1e3 else f"{steps:g}"


def as_png(figure: Figure, palette: bool = True) -> bytes:
    """A figure as PNG, with a palette of 256 colours where that is enough."""
    from PIL import Image

    small = io.BytesIO()
    image = Image.fromarray(pixels(figure))
    (image.quantize(256, dither=Image.Dither.NONE) if palette else image).save(small, "png", optimize=True)
    return small.getvalue()


def pixels(figure: Figure) -> UInt8[np.ndarray, "rows columns 3"]:
    """A figure as it looks; drawn once, where `savefig` would draw it twice."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def as_svg(figure: Figure) -> bytes:
    """A figure as SVG, the same bytes every time."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    raw = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "emc"}):
        FigureCanvasSVG(figure).print_svg(raw, metadata={"Date": None, "Creator": None})
    return raw.getvalue()


def literal(text: str) -> str:
    """Text that matplotlib takes as it is: dollar signs mean dollars, and what cannot be printed is a dot."""
    return "".join(c if c.isprintable() else "·" for c in text).replace("$", r"\$")


def cut(text: str, most: int = 70) -> str:
    """Text that is not too long for a legend."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def count(number: int, noun: str) -> str:
    """So many of something."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


# Names.


def _labels(runs: Sequence[RunDirectory]) -> list[str]:
    """A name for each of these runs, which all differ."""
    labels = [_briefly([*_method_changes(run, runs), *_task_changes(run, runs)]) for run in runs]
    keys = [(_names(run), label) for run, label in zip(runs, labels, strict=True)]
    return [f"{key[1]} #{keys[: i + 1].count(key)}" if keys.count(key) > 1 else key[1] for i, key in enumerate(keys)]


def method_label(run: RunDirectory, among: Sequence[RunDirectory]) -> str:
    """The method's name and what differs from its preset, whatever the task."""
    return _briefly(_method_changes(run, among))


def distinct(labels: Sequence[str], keys: Sequence[str]) -> list[str]:
    """The labels, with a number where equal ones stand for different things."""
    meant = {label: [*dict.fromkeys(key for own, key in zip(labels, keys, strict=True) if own == label)] for label in labels}
    pairs = zip(labels, keys, strict=True)
    return [f"{label} #{meant[label].index(key) + 1}" if len(meant[label]) > 1 else label for label, key in pairs]


def _briefly(phrases: Sequence[str]) -> str:
    return ", ".join(phrases if len(phrases) < 5 else [*phrases[:3], f"{len(phrases) - 3} more changes"])


def _method_changes(run: RunDirectory, among: Sequence[RunDirectory]) -> list[str]:
    """The method's name, and what differs from its preset."""
    _, method_name = _names(run)
    title, usual = nearest_preset(run)
    if usual is None:
        usual = next(configuration(rival).get("method") for rival in among if _names(rival)[1] == method_name)
    method = configuration(run).get("method", usual)
    return [title, *(in_words(path, found) for path, found, _ in differences(method, usual))]


def _task_changes(run: RunDirectory, among: Sequence[RunDirectory]) -> list[str]:
    """What of the task differs among the runs on this environment."""
    rivals = [configuration(rival) for rival in among if _names(rival)[0] == _names(run)[0]]
    changes: list[tuple[tuple[str, ...], Any]] = []
    for part in ("env", "budget"):
        varied = {path for rival in rivals for path, _, _ in differences(rival.get(part), rivals[0].get(part))}
        changes += [(path, at(configuration(run), part, *path)) for path in sorted(varied)]
    return [in_words(path, value) for path, value in changes]


def nearest_preset(run: RunDirectory) -> tuple[str, Any]:
    """What the preset that a run's method is nearest to is called, and its configuration; None if no preset has the name."""
    name = _names(run)[1]
    known = _presets(name)
    if not known:
        return name, None
    preset = min(known, key=lambda preset: len([*differences(configuration(run).get("method"), known[preset])]))
    return (name if preset == next(iter(PRESETS)) else f"{name} ({preset})"), known[preset]


@functools.cache
def _presets(method_name: str) -> Mapping[str, Any]:
    return {preset: to_json(table[method_name].method) for preset, table in PRESETS.items() if method_name in table}


def task_title(groups: Sequence[Group]) -> str:
    """The environment, with what differs from its defaults in all of these groups."""
    usual = usual_environment(groups[0].runs[0])
    changes = [differences(configuration(group.runs[0]).get("env", usual), usual) if usual else () for group in groups]
    words = [[in_words(path, value) for path, value, _ in own] for own in changes]
    return ", ".join([groups[0].env_name, *(phrase for phrase in words[0] if all(phrase in own for own in words))])


def usual_environment(run: RunDirectory) -> Any:
    """The default configuration of a run's environment; None if there is no task of that name."""
    name = _names(run)[0]
    return _usual_environment(name) if name in TASKS else None


@functools.cache
def _usual_environment(env_name: str) -> Any:
    return to_json(TASKS[env_name].make())


def differences(found: Any, usual: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Where two configurations differ, and the two values there; a part of another type is one difference."""
    if isinstance(found, dict) and isinstance(usual, dict) and found.get("type") == usual.get("type"):
        for name in dict.fromkeys([*cast(dict[str, Any], usual), *cast(dict[str, Any], found)]):
            yield from differences(found.get(name), usual.get(name), (*path, str(name)))
    elif found != usual:
        yield path, found, usual


def in_words(path: Sequence[str], value: Any) -> str:
    """A changed field, briefly: `gamma 0.99`, `uniform replay`, `no memory`."""
    field = path[-1].replace("_", " ") if path else "configuration"
    match value:
        case {"type": str(kind)}:
            words = " ".join(w if w.isupper() else w.lower() for w in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[^A-Z]+", kind))
            return words if words.lower().endswith(field) else f"{words} {field}"
        case bool():
            said = "on" if value else "off"
        case int() if value >= 10_000:
            said = steps_in_words(value)
        case float():
            said = f"{value:.12g}"
        case _:
            said = str(value)
    return f"{' '.join(path).replace('_', ' ') or field} {said:.40}"


def at(value: Any, *path: str) -> Any:
    """What a nested document holds there; None if it goes no deeper."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def configuration(run: RunDirectory) -> dict[str, Any]:
    """Every field of a run; those that are younger than the run have their defaults."""
    if run not in _CONFIGURATIONS:
        config, asked = _config(run), run.manifest.get("config")
        _CONFIGURATIONS[run] = to_json(config) if config is not None else cast(dict[str, Any], asked) if isinstance(asked, dict) else {}
    return _CONFIGURATIONS[run]


def _config(run: RunDirectory) -> RunConfig | None:
    """What a run was asked to do; None if this version of emc cannot make it."""
    if run not in _CONFIGS:
        try:
            _CONFIGS[run] = config_of(run)
        except UserError:
            _CONFIGS[run] = None
    return _CONFIGS[run]


# A manifest is written once, and comparing many runs asks for each of them many times.
_CONFIGS: weakref.WeakKeyDictionary[RunDirectory, RunConfig | None] = weakref.WeakKeyDictionary()
_CONFIGURATIONS: weakref.WeakKeyDictionary[RunDirectory, dict[str, Any]] = weakref.WeakKeyDictionary()


def _names(run: RunDirectory) -> tuple[str, str]:
    return str(run.manifest.get("env_name")), str(run.manifest.get("method_name"))
