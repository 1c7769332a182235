"""What came out over all tasks together."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from emc.envs.registry import TASKS
from emc.errors import UserError
from emc.report.aggregate import CONFIDENCE, SAMPLES, MethodScores, extent_of, method_of, scores_by_method, thresholds_of
from emc.report.curves import Group
from emc.report.markup import Section, chart_box, curves_figure, swatch
from emc.report.plots import Json, legend, rounded
from emc.statistics import AGGREGATES, Estimate, Scores, estimate, estimate_improvement, estimate_profile

ANCHOR, HEADING = "across", "All tasks together"
PROFILE_POINTS = 101
CONSIDERED = 500  # sets of tasks at most, the largest ones, among which the best to compare on is looked for


def all_tasks_section(groups: Sequence[Group]) -> Section:
    """Aggregates over tasks with their intervals; nothing where fewer than two methods share two tasks."""
    scaled = [group for group in groups if group.curves and (group.winnable or group.env_name in TASKS)]
    try:
        every = scores_by_method(scaled)
    except UserError as error:  # the rest of the page is worth having
        return Section(f'<section id="{ANCHOR}"><h2>{HEADING}</h2><p>{escape(f"Nothing to show: {error}.")}</p></section>', {})
    scores = comparable(every)
    if not scores:
        return Section("", {})
    best = max(scores, key=lambda method: sum(float(own.mean()) for own in scores[method].values()))
    columns = [*(f"{name[:1].upper()}{name[1:]}" for name in AGGREGATES), f"{best} is better"]
    names = "".join(f'<th scope="col">{escape(name)}</th>' for name in ["Method", *columns])
    rows = "".join(
        f'<tr><th scope="row">{swatch(method_of(method))}{escape(method)}</th>{_cells(own, mine, place)}</tr>'
        for place, (method, own) in enumerate(scores.items())
        for mine in [None if method == best else scores[best]]
    )
    note = f"{extent_of(scores)} Final scores on each task’s own scale, over {'; '.join(next(iter(scores.values())))}. Bars hold 95% of"
    note += f" {SAMPLES:,} stratified bootstrap samples. The last column is the probability that a run of {best}, the best on average here,"
    note += " is better than one of the method; a tie counts half. Of the optimality gap less is better, of all else more."
    if left_out := [method for method in every if method not in scores]:
        note += f" Left out, because they lack some of these tasks: {'; '.join(left_out)}."
    alt = "Performance profiles: the share of runs that score above each value, method by method."
    numbers = f'<table class="intervals"><thead><tr>{names}</tr></thead><tbody>{rows}</tbody></table>'
    caption = "The share of runs that score above each value; bands are 95%. A line that lies higher is better."
    profiles = curves_figure(ANCHOR, f"<h3>Performance profiles</h3>{chart_box(ANCHOR, 0, alt)}", caption)
    return Section(
        f'<section id="{ANCHOR}"><h2>{HEADING}</h2><div class="scroll" tabindex="0">{numbers}</div>'
        f'<p class="note">{escape(note)}</p>{profiles}</section>',
        {ANCHOR: _profiles(scores)},
    )


def _cells(own: Scores, mine: Scores | None, place: int) -> str:
    """Every aggregate of a method and its interval, and how likely the best method is better."""
    found = [estimate(own, aggregate, SAMPLES, CONFIDENCE) for aggregate in AGGREGATES.values()]
    cells = "".join(_interval(one, place) for one in found)
    return cells + ("<td>—</td>" if mine is None else _interval(estimate_improvement(mine, own, SAMPLES, CONFIDENCE), place, half=True))


def _interval(one: Estimate, place: int, half: bool = False) -> str:
    """A number, and its interval as a bar that the script colours as the method's line."""
    low, value, high = (min(1.0, max(0.0, part)) for part in (one.low, one.value, one.high))
    middle = '<line class="half" x1="50" x2="50" y1="0" y2="10"/>' if half else ""
    owner, width = f'data-of="{ANCHOR}.{place}"', max(100 * (high - low), 0.8)
    bar = f'<rect class="interval" x="{100 * low:.1f}" y="2" width="{width:.1f}" height="6" {owner}/>'
    dot = f'<circle class="dot" cx="{100 * value:.1f}" cy="5" r="3" {owner}/>'
    picture = f'<svg viewBox="-4 0 108 10" aria-hidden="true"><line class="rule" x1="0" x2="100" y1="5" y2="5"/>{middle}{bar}{dot}</svg>'
    return f"<td>{one.value:.2f} <small>[{one.low:.2f}, {one.high:.2f}]</small>{picture}</td>"


def _profiles(scores: MethodScores) -> Json:
    at = thresholds_of(scores, PROFILE_POINTS)
    lines: list[Json] = []
    for place, own in enumerate(scores.values()):
        value, low, high = estimate_profile(own, at, SAMPLES, CONFIDENCE)
        lines.append({"of": place, "grid": 0, "median": rounded(value), "low": rounded(low), "high": rounded(high)})
    labels = legend({method: method_of(method) for method in scores})
    panel = {"percent": True, "unit": "share of runs", "along": "score", "lines": lines, "ceilings": list[Any]()}
    return {"legend": labels, "grids": [rounded(at)], "panels": [panel]}


def comparable(scores: MethodScores) -> MethodScores:
    """The most methods times tasks of which each method has been on each task; none unless those are two methods and two tasks."""
    shared: set[frozenset[str]] = set()
    for own in dict.fromkeys(frozenset(own) for own in scores.values()):
        shared |= {own} | {own & other for other in shared}
        shared = {*sorted(shared, key=lambda tasks: (-len(tasks), sorted(tasks)))[:CONSIDERED]}
    blocks = [(tasks, [method for method, own in scores.items() if tasks <= own.keys()]) for tasks in shared if len(tasks) > 1]
    tasks, methods = max(
        (block for block in blocks if len(block[1]) > 1),
        key=lambda block: (len(block[0]) * len(block[1]), len(block[1]), sorted(block[0])),
        default=(frozenset[str](), list[str]()),
    )
    return {method: {task: runs for task, runs in scores[method].items() if task in tasks} for method in methods}
