"""What came out in each environment: a panel of curves for each task, in words, and in a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from emc.report.ceilings import ceilings_of
from emc.report.curves import Band, Curve, Group, middle_half, running_mean
from emc.report.markup import Section, chart_box, curves_figure, number_range, score, swatch, table
from emc.report.plots import Json, band, legend
from emc.report.run_titles import about, changes_of, common_changes, count

SHARE = 0.9  # of the best possible play, from which a task counts as solved; where that is not known, of all wins or the best score here
DRAWN = 12  # lines in one panel; more can be switched on
FOLDED = 16  # rows of numbers; more are shown when asked for
CROWDED = 150  # evaluations; above, curves are shown as running means


def by_environment(groups: Sequence[Group]) -> list[list[Group]]:
    """The groups of each environment, in their order."""
    return [[group for group in groups if group.env_name == name] for name in dict.fromkeys(group.env_name for group in groups)]


def by_task(groups: Sequence[Group]) -> list[list[Group]]:
    """The groups of each task, in their order."""
    return [[group for group in groups if group.task == task] for task in dict.fromkeys(group.task for group in groups)]


def headline(groups: Sequence[Group]) -> str:
    """The result on one task in words."""
    ranked = sorted((group for group in groups if group.curves), key=_rank)
    if not ranked:
        return f"Nothing has been evaluated on {groups[0].task} yet."
    best, *others = ranked
    verb = "wins {} of its greedy test episodes" if best.winnable else "earns a mean return of {} in greedy test episodes"
    if best.winnable and not any(np.any(curve.values) for curve in best.curves):
        verb = "has won none of its greedy test episodes ({})"
    steps = max(curve.steps[-1] for curve in best.curves)
    seeds = "one seed" if len(best.final) == 1 else f"median of {len(best.final)} seeds, middle half {_quartiles(best)}"
    result = verb.format(score(float(np.median(best.final)), best.winnable))
    return f"{best.label} {result} after {steps:,.0f} steps ({seeds}){_equals(best, others)}."


def _rank(group: Group) -> tuple[float, int]:
    """The best final score first, among equal ones that of the most seeds."""
    return -float(np.median(group.final)), -len(group.curves)


def _equals(best: Group, others: Sequence[Group]) -> str:
    """How many others have the same score as the best."""
    same = sum(_rank(group)[0] == _rank(best)[0] for group in others)
    won_none = best.winnable and not any(np.any(curve.values) for curve in best.curves)
    verb = ("has" if same == 1 else "have") if won_none else ("does" if same == 1 else "do")
    return f", as {verb} {count(same, 'other')}" if same else ""


def most_telling(groups: Sequence[Group], most: int = DRAWN) -> list[Group]:
    """The best of each method, however many those are, and the next best as long as there is room; in their order."""
    ranked = sorted(range(len(groups)), key=lambda index: _rank(groups[index]))
    firsts = {groups[index].method_name: index for index in reversed(ranked)}
    chosen = [*firsts.values()]
    chosen += [index for index in ranked if index not in chosen][: max(0, most - len(chosen))]
    return [groups[index] for index in sorted(chosen)]


def extent(groups: Sequence[Group]) -> str:
    """How much was measured."""
    curves = [curve for group in groups for curve in group.curves]
    runs, evaluations = sum(len(group.runs) for group in groups), sum(len(curve.steps) for curve in curves)
    measured = f"{count(evaluations, 'evaluation')}, {count(sum(curve.episodes for curve in curves), 'test episode')}"
    return f"{count(runs, 'run')}, {count(len(curves), 'seed')}, {measured}."


def remarks(groups: Sequence[Group]) -> str:
    """How scores are counted, and what is not."""
    said = ["A final score is the mean of a seed’s last five evaluations."]
    repeated = [f"seed {seed} of {_named(group)}" for group in groups for seed in group.left_out]
    if repeated:
        said.append(f"Found in more than one run, and counted once, from the longest: {_some(repeated)}.")
    short = [f"seed {seed} of {_named(group)}" for group in groups for seed in group.short]
    if short:
        said.append(f"Drawn as far as they go but without a final score, because other seeds were given more steps: {_some(short)}.")
    return " ".join(said)


def _named(group: Group) -> str:
    return f"{group.label} on {group.task}"


def _some(names: Sequence[str], most: int = 6) -> str:
    return ", ".join(names) if len(names) <= most else f"{', '.join(names[:most])} and {len(names) - most} more"


def environment_section(groups: Sequence[Group], named: bool, anchor: str) -> Section:
    """The curves on the tasks of one environment and what they come to; `named` where there are others beside it."""
    drawn = [group for group in groups if group.curves]
    if not drawn:
        return Section("", {})
    tasks = by_task(drawn)
    evaluations = max(len(curve.steps) for group in drawn for curve in group.curves)
    window = 2 * round(evaluations / 200) + 1 if evaluations > CROWDED else 1
    plots = _plots(tasks, window)
    several = len(tasks) > 1
    # One environment by itself is named by its title, several tasks of it by their settings.
    title = groups[0].env_name if several else tasks[0][0].task
    heading = f"Results on {title}" if named else "Results"
    panels = "".join(
        f'<div class="panel">{f"<h3>{escape(_setting(own))}</h3>" if several else ""}<p>{escape(headline(own))}</p>'
        f"{chart_box(anchor, place, f'Learning curves. {headline(own)}')}</div>"
        for place, own in enumerate(tasks)
    )
    smooth = '<label class="switch"><input type="checkbox"> every evaluation by itself, not smoothed</label>' if window > 1 else ""
    grid = f'<div class="panels{" few" if len(tasks) < 3 else ""}">{panels}</div>'
    figure = curves_figure(anchor, smooth + grid, _caption(drawn, window, plots))
    return Section(f'<section id="{anchor}"><h2>{escape(heading)}</h2>{figure}{_summary(tasks, anchor)}</section>', {anchor: plots})


def _setting(groups: Sequence[Group]) -> str:
    return groups[0].setting or groups[0].env_name


def _plots(tasks: Sequence[Sequence[Group]], window: int) -> Json:
    """A chart for each task; equal labels look the same in all of them, and lines that few would miss are switched off at first."""
    every = [group for own in tasks for group in own]
    labels = legend({group.label: group.method_name for group in every})
    place = {entry["name"]: number for number, entry in enumerate(labels)}
    shown = {group.label for own in tasks for group in most_telling(own)}
    for entry in labels:
        entry["off"] = entry["name"] not in shown
    grids: list[list[int]] = []
    panels: list[Json] = []
    for own in tasks:
        lines = [{"of": place[group.label]} | band(_smoothed(group, window), grids) for group in own]
        panel: Json = {"percent": own[0].winnable, "unit": "win rate" if own[0].winnable else "mean return", "lines": lines}
        if window > 1:
            panel["raw"] = [{"of": place[group.label]} | band(group.curves, grids) for group in own]
        panel["ceilings"] = [[best.score, f"{best.name} {best.number}"] for best in ceilings_of(group.runs[0] for group in own)]
        panels.append(panel)
    return {"legend": labels, "grids": grids, "panels": panels}


def _smoothed(group: Group, window: int) -> Sequence[Curve]:
    return [running_mean(curve, window) for curve in group.curves] if window > 1 else group.curves


def _caption(drawn: Sequence[Group], window: int, plots: Json) -> str:
    """What the lines are."""
    tested = number_range([round(curve.episodes / len(curve.steps)) for group in drawn for curve in group.curves])
    smoothed = f", running means over {window} evaluations" if window > 1 else ""
    said = [f"Scores of {tested} greedy test episodes per evaluation{smoothed}. A line is the median over seeds,"]
    said.append("the band their middle half (25–75%); where it turns pale, some seeds have not got further.")
    if any(panel["ceilings"] for panel in plots["panels"]):
        said.append("The dotted line is what the best possible play comes to (emc optimum).")
    if off := sum(entry["off"] for entry in plots["legend"]):
        said.append(f"{count(off, 'line')} beside the best of each method can be switched on in the legend; the table has all.")
    runs = [group.runs[0] for group in drawn]
    if shared := common_changes([changes_of(run, runs) for run in runs]):
        said.append(f"All of them with {', '.join(shared)}.")
    return " ".join(said)


def _summary(tasks: Sequence[Sequence[Group]], anchor: str) -> str:
    """What the curves come to, in numbers, task by task."""
    every = [group for own in tasks for group in own]
    winnable = every[0].winnable
    bands = {id(group): middle_half(group.curves) for group in every}
    bars = [_bar(own, [bands[id(group)] for group in own]) for own in tasks]
    blocks: list[tuple[str, list[list[str]]]] = []
    for own, (bar, _) in zip(tasks, bars, strict=True):
        rows: list[list[str]] = []
        for group in own:
            band = bands[id(group)]
            top = int(np.argmax(band.median))
            rows.append(
                [
                    swatch(group.method_name) + escape(group.label),
                    str(len(group.curves)),
                    number_range([curve.steps[-1] for curve in group.curves], about),
                    f"<b>{score(float(np.median(group.final)), winnable)}</b> [{_quartiles(group)}]",
                    f"{score(float(band.median[top]), winnable)} at {about(band.steps[top])}",
                    _first(group, bar),
                ]
            )
        blocks.append((escape(_setting(own)) if len(tasks) > 1 else "", rows))
    names = ["Method", "Seeds", "Steps", "Final median [25–75%]", "Best median"]
    said = dict.fromkeys(f"{100 * bar:.3g}%" if winnable else score(bar, winnable) for bar, _ in bars if bar > 0)
    note = f"Steps to three digits. The last column is the step of the first evaluation of at least {' or '.join(said)}"
    note += "".join(f", {SHARE:.0%} of {what}" for what in dict.fromkeys(what for _, what in bars) if what)
    note += ": the median over seeds, where a seed that never got there counts as later than all others."
    if said:
        first = next(iter(said)) if len(said) == 1 else f"{SHARE:.0%} of the best"
        numbers = table([*names, f"First at {first}"], blocks) + f'<p class="note">{escape(note)}</p>'
    else:  # nobody earned anything, so there is no share of it to reach
        numbers = table(names, [(name, [row[:-1] for row in rows]) for name, rows in blocks])
    folded = f'<details id="{anchor}-numbers"><summary>The same in numbers</summary>{numbers}</details>'
    return folded if len(every) > FOLDED else numbers


def _bar(groups: Sequence[Group], bands: Sequence[Band]) -> tuple[float, str]:
    """From which score a task counts as solved, and what that is a share of, if not of all wins.

    The best possible play depends a little on the discount; where methods differ in it, the lower score counts for all.
    """
    best = min(ceilings_of(group.runs[0] for group in groups), key=lambda ceiling: ceiling.score, default=None)
    if best is not None and best.score > 0 and (best.score, groups[0].winnable) != (1.0, True):
        return SHARE * best.score, "the best possible play" if best.exact else "what can be earned at most"
    if groups[0].winnable:
        return SHARE, ""
    return SHARE * max(float(np.max(band.median)) for band in bands), "the best median here"


def _first(group: Group, bar: float) -> str:
    """When a group's median seed first was as good as that, and how many of its seeds ever were."""
    if bar <= 0:
        return "—"
    firsts = [reached(curve, bar) for curve in group.curves]
    solved = f"({sum(map(math.isfinite, firsts))} of {count(len(firsts), 'seed')})"
    median = float(np.median(firsts))
    return f"{about(median)} {solved}" if math.isfinite(median) else f"— {solved}"


def reached(curve: Curve, bar: float) -> float:
    """The step of the first evaluation that is at least this good; infinite if there is none."""
    return float(min(curve.steps[curve.values >= bar], default=math.inf))


def _quartiles(group: Group) -> str:
    low, high = np.percentile(group.final, (25, 75))
    return f"{100 * low:.0f}–{high:.0%}" if group.winnable else f"{low:.4g} to {high:.4g}"
