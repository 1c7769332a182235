"""Figures of claims: learning curves in one panel per task, and heat maps of several methods side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from emc.claims.evidence import Evidence, Sample
from emc.envs.base import Drawn
from emc.report.curves import LIGHT, Look, Theme, draw_band, looks_of, mark, middle_half, new_figure, steps_in_words, style
from emc.report.heatmaps import draw_map, extremes, phases, rounded

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_COLUMNS = 3


def plot_panels(evidence: Evidence, theme: Theme = LIGHT) -> Figure:
    """Median and middle half over seeds of every method, one panel per task that has any; a line is pale where some seeds ended."""
    panels = [(title, [*arms.values()]) for title, arms in evidence.samples.items() if any(sample.curves for sample in arms.values())]
    columns = min(MOST_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    names = [*dict.fromkeys(sample.arm.name for sample in evidence)]
    width = max(4.0 * columns, 7.0)
    across = max(1, min(len(names), int(width / (0.5 + 0.085 * max(map(len, names))))))
    figure, every_axes = new_figure(width, 2.9 * rows + 0.25 * -(-len(names) // across), rows, columns, theme)
    looks = _looks(evidence, theme)
    shown: dict[str, Artist] = {}
    for axes, (title, samples) in zip(every_axes, panels, strict=False):
        _draw_panel(axes, samples, looks, theme, title)
        if evidence.claim.limits is not None:
            axes.set_ylim(*evidence.claim.limits)
        handles, labels = axes.get_legend_handles_labels()
        shown |= dict(zip(labels, handles, strict=True))
    for axes in every_axes[len(panels) :]:
        axes.set_axis_off()
    if shown:
        figure.legend(
            [*shown.values()], [*shown], loc="outside lower center", ncols=across, frameon=False, fontsize=10, labelcolor=theme.ink
        )
    return figure


def _looks(evidence: Evidence, theme: Theme) -> dict[str, Look]:
    """A look for each arm, that of its method, varied where several arms are of one method."""
    methods = {sample.arm.name: sample.method_name for sample in evidence}
    return dict(zip(methods, looks_of([*methods.values()], theme), strict=True))


def _draw_panel(axes: Axes, samples: Sequence[Sample], looks: dict[str, Look], theme: Theme, title: str) -> None:
    drawn = [sample for sample in samples if sample.curves]
    own = [looks[sample.arm.name] for sample in drawn]
    lines = [draw_band(axes, middle_half(sample.curves), look, sample.arm.name, 1.5) for sample, look in zip(drawn, own, strict=True)]
    mark(lines, own)
    winnable = samples[0].config.env.spec.winnable
    style(axes, theme, title, "test win rate" if winnable else "test return")
    if winnable:
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.set_ylim(-0.03, 1.03)


def plot_heat_maps(evidence: Evidence, panel: str, theme: Theme = LIGHT) -> Figure | None:
    """Where the agents of each method went and where curiosity paid, early, in the middle and late in training; None without any map."""
    from matplotlib.colors import Normalize, PowerNorm

    found = [(name, sample.config.env, phases(sample.snapshots())) for name, sample in evidence.samples.get(panel, {}).items()]
    found = [(name, env, stretches) for name, env, stretches in found if stretches and isinstance(env, Drawn)]
    if not found:
        return None
    columns = max(len(stretches) for _, _, stretches in found)
    rows, width = found[0][1].spec.map_shape
    figure, every_axes = new_figure(0.6 + 3.2 * columns, 0.3 + 2 * 2.6 * rows / width * len(found), 2 * len(found), columns, theme)
    for number, (name, env, stretches) in enumerate(found):
        most = max(extremes(stretch.visits)[1] for stretch in stretches)
        above, below = (every_axes[(2 * number + row) * columns :][:columns] for row in (0, 1))
        for axes, stretch in zip(above, stretches, strict=False):
            draw_map(axes, env, stretch.visits, "YlGnBu", PowerNorm(0.5, 0.0, most), theme)
            ends = " to ".join(steps_in_words(rounded(step)) for step in (stretch.first, stretch.last))
            axes.set_title(f"{name}, {stretch.name}: {ends}", loc="left", fontsize=10, fontweight="bold", color=theme.ink)
        for axes, stretch in zip(below, stretches, strict=False):
            draw_map(axes, env, stretch.bonus, "YlOrRd", Normalize(*extremes(stretch.bonus)), theme)
        for axes, words in ((above[0], "visits"), (below[0], "intrinsic reward per visit")):
            axes.text(-0.03, 0.5, words, transform=axes.transAxes, rotation=90, ha="right", va="center", fontsize=10, color=theme.ink)
        for axes in (*above[len(stretches) :], *below[len(stretches) :]):
            axes.set_axis_off()
    return figure
