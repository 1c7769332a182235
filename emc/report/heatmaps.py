"""Maps: where the agents went, and where curiosity paid, early, in the middle and late in training (EMC, section 5.1).

A run keeps maps of about twenty stretches of training. Each column of the figure sums a tenth of them, over all seeds of the run. Visits
are agent-steps of collected episodes. The intrinsic reward of a cell is the mean bonus, weighted as it was paid, of the steps in training
batches that led an agent there; cells that nobody came to are blank. The share of visits that fell into
an area, which the environment names, is a curve with one point for each stretch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from emc.envs.base import HasAreas, HasMap
from emc.errors import UserError
from emc.report.curves import Curve, Group, draw_band, environment_of, middle_half, tracks
from emc.report.figures import LIGHT, Theme, legend_below, literal, looks_of, mark, new_figure, style
from emc.report.run_titles import count, cut, steps_in_words
from emc.runs import RunDirectory
from emc.runs.reading import MAPS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


@dataclasses.dataclass(frozen=True)
class Phase:
    """A stretch of training, summed over seeds."""

    name: str
    first: int  # steps at its begin
    last: int  # and at its end
    seeds: int
    visits: Float[np.ndarray, "R C"]  # not a number where nobody was
    bonus: Float[np.ndarray, "R C"]  # per visit; not a number where nothing is known


def read_maps(run: RunDirectory) -> list[dict[str, Any]]:
    """The maps of a run, none if it has not got that far or its environment has none."""
    return run.lines(MAPS)


def phases(snapshots: Iterable[Mapping[str, Any]]) -> list[Phase]:
    """Early, middle and late training; fewer when there are fewer than three snapshots."""
    seeds: dict[int, list[Mapping[str, Any]]] = {}
    for snapshot in sorted(snapshots, key=lambda snapshot: snapshot["steps"]):
        seeds.setdefault(snapshot["seed"], []).append(snapshot)
    total = max((len(own) for own in seeds.values()), default=0)
    width = max(1, round(total / 10))
    begins = {"early": 0, "middle": (total - width) // 2, "late": total - width} if total > 2 else {"early": 0, "late": 1}
    return [_phase(name, begin, begin + width, [*seeds.values()]) for name, begin in begins.items() if begin < total]


def _phase(name: str, begin: int, end: int, seeds: Sequence[Sequence[Mapping[str, Any]]]) -> Phase:
    there = [own for own in seeds if len(own) > begin]
    visits, bonus, bonus_visits = (
        np.sum([np.asarray(snapshot[field], float) for own in there for snapshot in own[begin:end]], axis=0)
        for field in ("visits", "bonus", "bonus_visits")
    )
    return Phase(
        name,
        first=max(own[begin - 1]["steps"] for own in there) if begin else 0,
        last=max(own[begin:end][-1]["steps"] for own in there),
        seeds=len(there),
        visits=np.where(visits > 0, visits, np.nan),
        bonus=np.divide(bonus, bonus_visits, out=np.full_like(bonus, np.nan), where=bonus_visits > 0),
    )


def was_paid(stretches: Sequence[Phase]) -> bool:
    """Whether there was any intrinsic reward."""
    return any(np.any(np.nan_to_num(phase.bonus) != 0) for phase in stretches)


Row = tuple[str, HasMap, Sequence[Phase]]  # a method, where it was trained, and its stretches of training


def plot_maps(methods: Sequence[Row], theme: Theme = LIGHT) -> Figure:
    """For each method visits above, intrinsic reward below (left out where none was ever paid), one column for each stretch of training."""
    columns = max(len(stretches) for _, _, stretches in methods)
    ratios = [env.spec.map_shape[0] / env.spec.map_shape[1] for _, env, stretches in methods for _ in range(1 + was_paid(stretches))]
    figure, every_axes = new_figure(0.4 + 3.2 * columns, 0.3 + 2.5 * sum(ratios), len(ratios), columns, theme)
    free = iter(every_axes)
    for name, env, stretches in methods:
        above = [next(free) for _ in range(columns)]
        below = [next(free) for _ in range(columns)] if was_paid(stretches) else []
        _draw_phases(above, below, env, stretches, theme)
        for axes, phase in zip(above, stretches, strict=False):
            when = f"{steps_in_words(_rounded(phase.first))} to {steps_in_words(_rounded(phase.last))}"
            title = f"{name}, {phase.name}: {when}" if name else f"{phase.name.capitalize()}: steps {when}"  # long names have little room
            axes.set_title(literal(title), loc="left", fontsize=10 if name else 11, fontweight="bold", color=theme.ink)
        for axes in (*above[len(stretches) :], *below[len(stretches) :]):
            axes.set_axis_off()
    return figure


def _draw_phases(above: Sequence[Axes], below: Sequence[Axes], env: HasMap, stretches: Sequence[Phase], theme: Theme) -> None:
    from matplotlib.colors import Normalize, PowerNorm

    most = max(_extremes(phase.visits)[1] for phase in stretches)
    for axes, phase in zip(above, stretches, strict=False):
        _draw_map(axes, env, phase.visits, "YlGnBu", PowerNorm(0.5, 0.0, most), theme)
    for axes, phase in zip(below, stretches, strict=False):
        _draw_map(axes, env, phase.bonus, "YlOrRd", Normalize(*_extremes(phase.bonus)), theme)
    for axes, words in zip((above[0], *below[:1]), ("visits (square-root colours)", "intrinsic reward per visit"), strict=False):
        axes.text(-0.03, 0.5, words, transform=axes.transAxes, rotation=90, ha="right", va="center", fontsize=10, color=theme.ink)


def areas_of(groups: Sequence[Group]) -> Mapping[str, Bool[np.ndarray, "R C"]]:
    """The named areas of the environment that these groups share; none where it names none or they differ."""
    envs = [environment_of(group.runs[0]) for group in groups]
    areas = [dict(env.areas()) if isinstance(env, HasAreas) else {} for env in envs]
    same = all(_equal_areas(own, areas[0]) for own in areas[1:])
    return areas[0] if areas and same else {}


def _equal_areas(some: Mapping[str, np.ndarray], others: Mapping[str, np.ndarray]) -> bool:
    return [*some] == [*others] and all(np.array_equal(some[name], others[name]) for name in some)


def visit_shares(area: Bool[np.ndarray, "R C"], snapshots: Iterable[Mapping[str, Any]]) -> list[Curve]:
    """The share of agent-steps that fell into an area, in the stretch of training before each snapshot, seed by seed."""

    def share(snapshot: Mapping[str, Any]) -> float:
        visits = np.asarray(snapshot["visits"], float)
        return float(np.sum(visits[area]) / np.sum(visits)) if np.any(visits) else np.nan

    return tracks(snapshots, share)


def group_maps(group: Group) -> list[dict[str, Any]]:
    """The maps of all seeds of a group; of a seed found in more than one run, those of the longest."""
    seeds: dict[int, list[dict[str, Any]]] = {}
    for run in group.runs:
        found: dict[int, list[dict[str, Any]]] = {}
        for snapshot in read_maps(run):
            found.setdefault(snapshot["seed"], []).append(snapshot)
        for seed, own in found.items():
            if seed not in seeds or own[-1]["steps"] > seeds[seed][-1]["steps"]:
                seeds[seed] = own
    return [snapshot for seed in sorted(seeds) for snapshot in seeds[seed]]


def plot_visit_shares(groups: Sequence[Group], theme: Theme = LIGHT) -> Figure:
    """How much of their time agents spent in each named area as training went on, beside the area's share of the map."""
    shown = [(group, maps) for group in groups if (maps := group_maps(group))]
    areas = areas_of([group for group, _ in shown])
    if not areas:
        raise UserError("no visits to show: give runs with maps, all on one environment that names its areas, such as gridworld")
    looks = looks_of([group.method_name for group, _ in shown], theme)
    columns = max(1, min(len(shown) + 1, (36 * len(areas)) // (14 + max(len(cut(group.label)) for group, _ in shown))))
    figure, every_axes = new_figure(0.4 + 3.6 * len(areas), 3.1 + 0.22 * -(-(len(shown) + 1) // columns), 1, len(areas), theme)
    for axes, (name, area) in zip(every_axes, areas.items(), strict=True):
        lines: list[Line2D] = []
        for (group, maps), look in zip(shown, looks, strict=True):
            curves = visit_shares(area, maps)
            label = f"{cut(group.label)} ({count(len(curves), 'seed')})"
            lines.append(draw_band(axes, middle_half(curves), look, label, width=1.6))
        mark(lines, looks)
        size = float(np.mean(area))
        axes.axhline(size, color=theme.faint, linewidth=1.0, linestyle=(0, (1, 2)), zorder=1, label="the area's share of the map")
        style(axes, theme, name[:1].upper() + name[1:], "share of agent-steps")
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
        axes.set_ylim(bottom=0.0)
    legend_below(figure, every_axes, columns, theme)
    return figure


def _draw_map(axes: Axes, env: HasMap, values: Float[np.ndarray, "R C"], colours: str, norm: Any, theme: Theme) -> None:
    rows, columns = values.shape
    axes.fill((-0.5, columns - 0.5, columns - 0.5, -0.5), (-0.5, -0.5, rows - 0.5, rows - 0.5), facecolor="#FFFFFF", zorder=0)
    image = axes.imshow(np.ma.masked_invalid(values), cmap=colours, norm=norm, interpolation="nearest", zorder=1)
    env.draw_outlines(axes)
    bar = axes.figure.colorbar(image, ax=axes, fraction=0.046, pad=0.02)
    bar.ax.tick_params(colors=theme.faint, labelsize=9, length=3)
    bar.ax.yaxis.set_major_formatter(lambda value, _: steps_in_words(value))
    bar.outline.set_visible(False)


def _extremes(values: Float[np.ndarray, "R C"]) -> tuple[float, float]:
    """The smallest and the largest number on a map; some others if there are no two."""
    known = values[~np.isnan(values)]
    low, high = (float(np.min(known)), float(np.max(known))) if known.size else (0.0, 1.0)
    return (low, high) if low < high else (min(low, 0.0), high or 1.0)


def _rounded(steps: int) -> float:
    """Steps to three digits: where a stretch ends depends on where episodes do."""
    return float(f"{steps:.3g}")
