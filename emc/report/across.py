"""What came out over all tasks together."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from emc.envs.registry import TASKS
from emc.errors import UserError
from emc.report.aggregate import MethodScores, plot_improvement, plot_iqm_bars, plot_profiles, scores_by_method
from emc.report.curves import Group
from emc.report.markup import figure

HEADING = "All tasks together"
CONSIDERED = 500  # sets of tasks at most, the largest ones, among which the best to compare on is looked for


def across_section(groups: Sequence[Group]) -> str:
    """Aggregates over tasks with their intervals; nothing where fewer than two methods share two tasks."""
    scaled = [group for group in groups if group.curves and (group.winnable or group.env_name in TASKS)]
    try:
        every = scores_by_method(scaled)
    except UserError as error:  # the rest of the page is worth having
        return f"<section><h2>{HEADING}</h2><p>{escape(f'Nothing to show: {error}.')}</p></section>"
    scores = comparable(every)
    if not scores:
        return ""
    tasks = [*next(iter(scores.values()))]
    best = max(scores, key=lambda method: sum(float(own.mean()) for own in scores[method].values()))
    note = f"Final scores, the mean of a seed's last five tests on each task's own scale, over {'; '.join(tasks)}."
    if left_out := [method for method in every if method not in scores]:
        note += f" Left out, because they lack some of these tasks: {'; '.join(left_out)}."
    drawn = [
        figure(lambda theme: plot_iqm_bars(scores, theme), "Aggregates over tasks, method by method.", f"{note} Bars are 95% intervals."),
        figure(
            lambda theme: plot_profiles(scores, theme),
            "Performance profiles.",
            "The share of runs that score above each value; bands are 95%.",
        ),
        figure(
            lambda theme: plot_improvement(scores, best, theme),
            f"Probability that a run of {best} is better than one of each other method.",
            f"How likely a run of {best}, the best on average here, is better than one of another method. A tie counts half.",
        ),
    ]
    return f"<section><h2>{HEADING}</h2>{''.join(drawn)}</section>"


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
