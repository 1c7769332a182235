"""Watching a sweep: a live table on a terminal, a line for every change elsewhere."""

from __future__ import annotations

import collections
import datetime
import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table

from emc.sweeps.engine import Progress, Watch
from emc.sweeps.jobs import State

STYLES = {State.DONE: "green", State.RUNNING: "bold", State.FAILED: "red", State.BEGUN: "", State.MISSING: "dim"}
ORDER = (State.RUNNING, State.FAILED, State.BEGUN, State.MISSING, State.DONE)  # what is cut off when the terminal is too small comes last


class LiveTable:
    """All runs, redrawn in place."""

    def __init__(self) -> None:
        self.live = Live(console=Console(), refresh_per_second=2)

    def __enter__(self) -> Watch:
        self.live.start()
        return self._show

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def _show(self, runs: Sequence[Progress]) -> None:
        rows = max(self.live.console.height - 6, 5)
        table = Table(box=None, title=summary(runs), title_justify="left")
        for column in ("run", "state", "steps", "left"):
            table.add_column(column, justify="right" if column in ("steps", "left") else "left", no_wrap=True)
        for one in sorted(runs, key=lambda one: ORDER.index(one.state))[:rows]:
            left = one.seconds_left(time.monotonic())
            share = f"{one.steps:,} / {one.total:,}"
            table.add_row(one.job.name, one.reason or one.state.value, share, "" if left is None else _clock(left), style=STYLES[one.state])
        self.live.update(table)


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
    """The steps that are left at the speed of the runs that are going on now."""
    going = [one for one in runs if one.state is State.RUNNING and one.steps > one.first]
    speed = sum((one.steps - one.first) / (now - one.began) for one in going)
    steps = sum(max(one.total - one.steps, 0) for one in runs if one.state not in (State.DONE, State.FAILED))
    return steps / speed if speed else None


def _clock(seconds: float) -> str:
    return str(datetime.timedelta(seconds=round(seconds)))
