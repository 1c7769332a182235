"""What curves can come to at best: the optimum of a task as a thin line, where it is known (`emc optimum`)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from emc.envs.registry import Task
from emc.errors import UserError
from emc.report.figures import Theme
from emc.report.run_titles import known_config
from emc.runs import RunDirectory
from emc.runs.config import RunConfig
from emc.suite import known_optimum

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST = 3  # lines in one figure; above, they would say nothing


@dataclasses.dataclass(frozen=True)
class Ceiling:
    """The best score there is: a win rate, or a return where nothing is won."""

    score: float
    exact: bool
    percent: bool

    @property
    def name(self) -> str:
        """What the line is."""
        return "optimum" if self.exact else "upper bound"

    @property
    def number(self) -> str:
        """Where it is."""
        return f"{100 * self.score:.4g}%" if self.percent else f"{self.score:.4g}"


def ceiling_of(config: RunConfig | None) -> Ceiling | None:
    """The ceiling of a configuration, for the discount of its method; None where none is known."""
    if config is None:
        return None
    try:
        hash(config.env)
    except TypeError:  # somebody's own environment with a field that cannot be looked up, such as an array
        return None
    return _ceiling(config.env, config.method.gamma)


@functools.lru_cache(1000)
def _ceiling(env: object, gamma: float) -> Ceiling | None:
    try:
        best = known_optimum(env, gamma, whole=False)  # pyright: ignore[reportArgumentType]
    except UserError:
        return None
    return Ceiling(round(best.score, 6), best.exact, best.best.win_rate is not None)


def on_scale(task: Task, config: RunConfig | None, score: float) -> float:
    """A win rate, or a return where nothing is won, on the task's own scale, whatever else is compared with it.

    Where returns count, 1 is the best possible play of the task as its fields make it, or the upper bound of it where no more is known.
    """
    low, high = task.scale
    best = ceiling_of(config) if config is not None and not config.env.spec.winnable else None
    return (score - low) / ((best.score if best and best.score > low else high) - low)


def ceilings_of(runs: Iterable[RunDirectory]) -> list[Ceiling]:
    """The different ceilings of some runs."""
    return different(known_config(run) for run in runs)


def different(configs: Iterable[RunConfig | None]) -> list[Ceiling]:
    """The different ceilings of some configurations; those that look the same are one, and too many are none."""
    found = {ceiling.number: ceiling for config in configs if (ceiling := ceiling_of(config)) is not None}
    return [*found.values()] if len(found) <= MOST else []


def draw_ceilings(axes: Axes, ceilings: Iterable[Ceiling], theme: Theme) -> None:
    """A thin line for each, with its name and number at the right end, above, where no curve goes; the legend is about methods."""
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=2.5, foreground=theme.paper)]
    for ceiling in ceilings:
        axes.axhline(ceiling.score, color=theme.faint, linewidth=1.0, linestyle=(0, (1, 1.6)), label="_ceiling", zorder=1.5)
        where: Any = {"xycoords": axes.get_yaxis_transform(), "textcoords": "offset points", "ha": "right", "va": "bottom"}
        text = axes.annotate(f"{ceiling.name} {ceiling.number}", (1, ceiling.score), (-2, 2), fontsize=8.5, color=theme.faint, **where)
        text.set(path_effects=halo, zorder=4)
        text.set_in_layout(False)
