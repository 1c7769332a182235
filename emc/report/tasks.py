"""What came out on each task: in words, as curves, and in a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from emc.report.ceilings import ceilings_of
from emc.report.curves import Curve, Group, middle_half, plot_curves, task_title
from emc.report.markup import between, figure, score, swatch, table
from emc.report.names import about, count

WIN_RATE = 0.9  # a task counts as solved from here
SHARE = 0.9  # or from this share of the best score in the report, where it cannot be won
DRAWN = 12  # lines in one figure at most
CROWDED = 150  # evaluations; above, curves are shown as running means too


def by_task(groups: Sequence[Group]) -> list[list[Group]]:
    """The groups of each environment, in their order."""
    return [[group for group in groups if group.env_name == name] for name in dict.fromkeys(group.env_name for group in groups)]


def headline(groups: Sequence[Group]) -> str:
    """The result on one task in words."""
    ranked = sorted((group for group in groups if group.curves), key=_rank)
    if not ranked:
        return f"Nothing has been evaluated on {groups[0].env_name} yet."
    best, *others = ranked
    verb = "wins {} of its greedy test episodes" if best.winnable else "earns a mean return of {} in greedy test episodes"
    if best.winnable and not any(np.any(curve.values) for curve in best.curves):
        verb = "has won none of its greedy test episodes ({})"
    steps = max(curve.steps[-1] for curve in best.curves)
    seeds = "one seed" if len(best.curves) == 1 else f"median of {len(best.curves)} seeds, middle half {_quartiles(best)}"
    result = verb.format(score(float(np.median(best.final)), best.winnable))
    said = f"{best.label} {result} after {steps:,.0f} steps ({seeds}){_equals(best, others)}."
    rest = [f"{group.label}: {score(float(np.median(group.final)), group.winnable)}" for group in others]
    return f"{said} {'; '.join(rest)}." if 0 < len(rest) < 7 else said


def _rank(group: Group) -> tuple[float, int]:
    """The best final score first, among equal ones that of the most seeds."""
    return -float(np.median(group.final)), -len(group.curves)


def _equals(best: Group, others: Sequence[Group]) -> str:
    """How many others have the same score as the best."""
    same = sum(_rank(group)[0] == _rank(best)[0] for group in others)
    won_none = best.winnable and not any(np.any(curve.values) for curve in best.curves)
    verb = ("has" if same == 1 else "have") if won_none else ("does" if same == 1 else "do")
    return f", as {verb} {count(same, 'other')}" if same else ""


def best_of(groups: Sequence[Group], most: int = DRAWN) -> list[Group]:
    """The groups with the best final scores, in their order."""
    best = sorted(range(len(groups)), key=lambda index: _rank(groups[index]))[:most]
    return [groups[index] for index in sorted(best)]


def extent(groups: Sequence[Group]) -> str:
    """How much was measured."""
    curves = [curve for group in groups for curve in group.curves]
    runs, evaluations = sum(len(group.runs) for group in groups), sum(len(curve.steps) for curve in curves)
    measured = f"{count(evaluations, 'evaluation')}, {count(sum(curve.episodes for curve in curves), 'test episode')}"
    repeated = [f"seed {seed} of {group.label}" for group in groups for seed in group.left_out]
    note = f" Found in more than one run, and counted once, from the longest: {', '.join(repeated)}." if repeated else ""
    return f"{count(runs, 'run')}, {count(len(curves), 'seed')}, {measured}. A final score is the last evaluation of a seed.{note}"


def task_section(groups: Sequence[Group], named: bool, anchor: str) -> str:
    """The curves of one task and what they come to; `named` where there are others beside it."""
    drawn = [group for group in groups if group.curves]
    if not drawn:
        return ""
    evaluations = max(len(curve.steps) for group in drawn for curve in group.curves)
    window = 2 * round(evaluations / 200) + 1 if evaluations > CROWDED else 1
    tested = between([round(curve.episodes / len(curve.steps)) for group in drawn for curve in group.curves])
    caption = (
        f"Scores of {tested} greedy test episodes per evaluation, {evaluations:,} evaluations. The line is the median over seeds, the band "
        "their middle half (25–75%); where a line turns pale, some seeds have not got further."
    )
    lines = best_of(drawn)
    if ceilings_of(group.runs[0] for group in lines):
        caption += " The dotted line is what the best possible play comes to (emc optimum)."
    if len(lines) < len(drawn):
        caption += f" Of {len(drawn)} lines only the best {len(lines)} are drawn; the table has all."
    alt = f"Learning curves. {headline(groups)}"
    figures = figure(lambda theme: plot_curves(lines, theme, window), alt, caption, vector=True)
    if window > 1:
        raw = figure(lambda theme: plot_curves(lines, theme), f"{alt} Not smoothed.", "The same scores, not smoothed.")
        figures += f"<details><summary>Every evaluation by itself, not smoothed</summary>{raw}</details>"
    heading = f"Results on {task_title(groups)}" if named else "Results"
    said = f"<p>{escape(headline(groups))}</p>" if named else ""
    return f'<section id="{anchor}"><h2>{escape(heading)}</h2>{said}{figures}{_summary(drawn)}</section>'


def _summary(groups: Sequence[Group]) -> str:
    """What the curves come to, in numbers."""
    winnable, bands = groups[0].winnable, [middle_half(group.curves) for group in groups]
    bar = WIN_RATE if winnable else SHARE * max(float(np.max(band.median)) for band in bands)
    rows: list[list[str]] = []
    for group, band in zip(groups, bands, strict=True):
        top = int(np.argmax(band.median))
        firsts = [reached(curve, bar) for curve in group.curves]
        solved = f"{sum(map(math.isfinite, firsts))} of {count(len(firsts), 'seed')}"
        median = float(np.median(firsts))
        rows.append(
            [
                swatch(group.method_name) + escape(group.label),
                str(len(group.curves)),
                between([curve.steps[-1] for curve in group.curves], about),
                f"<b>{score(float(np.median(group.final)), winnable)}</b> [{_quartiles(group)}]",
                f"{score(float(band.median[top]), winnable)} at {about(band.steps[top])}",
                f"{about(median)} ({solved})" if math.isfinite(median) else f"— ({solved})",
            ]
        )
    names = ["Method", "Seeds", "Steps", "Final median [25–75%]", "Best median"]
    note = f"Steps to three digits. The last column is the step of the first evaluation of at least {score(bar, winnable)}"
    note += "" if winnable else f", {SHARE:.0%} of the best median here"
    note += ": the median over seeds, where a seed that never got there counts as later than all others."
    if bar <= 0:  # nobody earned anything, so there is no share of it to reach
        return table(names, [row[:-1] for row in rows])
    return table([*names, f"First at {score(bar, winnable)}"], rows) + f'<p class="note">{escape(note)}</p>'


def reached(curve: Curve, bar: float) -> float:
    """The step of the first evaluation that is at least this good; infinite if there is none."""
    return float(min(curve.steps[curve.values >= bar], default=math.inf))


def _quartiles(group: Group) -> str:
    low, high = np.percentile(group.final, (25, 75))
    return f"{100 * low:.0f}–{high:.0%}" if group.winnable else f"{low:.4g} to {high:.4g}"
