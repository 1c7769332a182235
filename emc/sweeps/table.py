"""Watching a sweep: a live table on a terminal, a line for every change elsewhere."""

from __future__ import annotations

import collections
import datetime
import sys
import time
from collections.abc import Mapping, Sequence

from rich.console import Console, Group, JustifyMethod
from rich.live import Live
from rich.table import Table
from rich.text import Text

from emc.sweeps.engine import Progress, Watch
from emc.sweeps.jobs import Job, State

STYLES = {State.DONE: "green", State.RUNNING: "bold", State.FAILED: "red", State.BEGUN: "", State.MISSING: "dim"}
ORDER = (State.RUNNING, State.FAILED, State.BEGUN, State.MISSING, State.DONE)  # what is cut off when the terminal is too small comes last
COLUMNS: Mapping[str, JustifyMethod] = {"seed": "right", "state": "left", "steps": "right", "score": "right", "left": "right"}
MOST_FAILURES = 5  # whose reasons are shown, the last of them; all are listed at the end


class LiveTable:
    """All runs, redrawn in place; only their names give way on a narrow terminal."""

    def __init__(self, console: Console | None = None) -> None:
        self.live = Live(console=console or Console(), refresh_per_second=2)

    def __enter__(self) -> Watch:
        self.live.start()
        return self._show

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def _show(self, runs: Sequence[Progress]) -> None:
        names = dict(zip((one.job.key for one in runs), short_names([one.job for one in runs]), strict=True))
        failed = [one for one in runs if one.reason][-MOST_FAILURES:]
        failures = [Text(f"{names[one.job.key]}, seed {_seeds(one.job)}: {one.reason}", STYLES[State.FAILED]) for one in failed]
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
        table.add_column("run", overflow="fold")
        for column, justify in COLUMNS.items():
            table.add_column(column, justify=justify, no_wrap=True)
        rows = max(self.live.console.height - 6 - 2 * len(failures), 5)
        for one in sorted(runs, key=lambda one: ORDER.index(one.state))[:rows]:
            left = one.seconds_left(time.monotonic())
            known = (_seeds(one.job), one.state.value, f"{one.steps:,} / {one.total:,}", _score(one), "" if left is None else _clock(left))
            table.add_row(Text(names[one.job.key]), *known, style=STYLES[one.state])
        self.live.update(Group(Text(summary(runs)), *failures, table, Text()))  # the last line is where a terminal shows ^C


def short_names(jobs: Sequence[Job]) -> list[str]:
    """What tells runs apart but for their seeds: of their words those that they do not all share, else method and environment."""
    parts = [_parts(job.words) for job in jobs]
    shared = set[str].intersection(*map(set, parts)) if parts else set[str]()
    own = [[part for part in one if part not in shared and not part.startswith(("--seed ", "--seeds "))] for one in parts]
    return [" ".join(some or job.words[:2]) for some, job in zip(own, jobs, strict=True)]


def _seeds(job: Job) -> str:
    """One seed, or the first and the last."""
    first, last = job.config.seeds[0], job.config.seeds[-1]
    return str(first) if first == last else f"{first}-{last}"


def _score(one: Progress) -> str:
    """A win rate or a return; nothing before the first test."""
    return "" if one.score is None else f"{one.score:.0%}" if one.winnable else f"{one.score:.4g}"


def _parts(words: Sequence[str]) -> list[str]:
    """Names, and flags with their values."""
    parts: list[str] = []
    for word in words:
        if parts and parts[-1].startswith("--") and not word.startswith("--"):
            parts[-1] += f" {word}"
        else:
            parts.append(word)
    return parts


class PlainTable:
    """A line for every run that begins or ends."""

    def __init__(self) -> None:
        self.known: dict[str, State] = {}

    def __enter__(self) -> Watch:
        return self._show

    def __exit__(self, *_: object) -> None: ...

    def _show(self, runs: Sequence[Progress]) -> None:
        first = not self.known
        for one in runs:
            if self.known.get(one.job.key) is not one.state and (not first or one.state is State.RUNNING):
                print(f"{one.state.value}: {one.job.name}{f' ({one.reason})' if one.reason else ''}; {summary(runs)}", flush=True)
            self.known[one.job.key] = one.state


def table_for_this_terminal() -> LiveTable | PlainTable:
    """Live where somebody can see it."""
    return LiveTable() if sys.stdout.isatty() else PlainTable()


def summary(runs: Sequence[Progress], now: float | None = None) -> str:
    """How many of what, and how long the rest may take."""
    counts = collections.Counter(one.state for one in runs)
    words = [f"{counts[state]} {state.value}" for state in reversed(ORDER) if counts[state]]
    left = _seconds_left(runs, time.monotonic() if now is None else now)
    return ", ".join(words) + ("" if left is None else f"; about {_clock(left)} left")


def _seconds_left(runs: Sequence[Progress], now: float) -> float | None:
    """The steps that are left at the speed of all that was done here, and no less than the slowest that goes on needs.

    The speed of those that go on would say too little when others have just ended, and that of all too much when few are left.
    """
    here = [one for one in runs if one.began]
    gained = sum(one.steps - one.first for one in here)
    if gained <= 0:
        return None
    steps = sum(max(one.total - one.steps, 0) for one in runs if one.state not in (State.DONE, State.FAILED))
    alone = (left for one in here if (left := one.seconds_left(now)) is not None)
    return max(steps * (now - min(one.began for one in here)) / gained, *alone, 0.0)


def _clock(seconds: float) -> str:
    """Hours, minutes and seconds; beyond a day, which leaves little room for names, days and hours."""
    whole = datetime.timedelta(seconds=round(seconds))
    return f"{whole.days} d {whole.seconds // 3600} h" if whole.days else str(whole)
