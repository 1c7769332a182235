"""Watching a run: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import datetime
import sys
import time

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from emc.runs.config import RunConfig
from emc.runs.directory import RunDirectory
from emc.runs.session import Display, Status
from emc.user_input import in_one_line

SHOWN = {
    "test_win_rate": "test win rate",
    "test_return": "test return",
    "train_return": "train return",
    "epsilon": "epsilon",
    "curiosity_weight": "curiosity weight",
    "reward_intrinsic": "intrinsic reward",
    "memory_hit_rate": "memory hit rate",
    "td_error": "TD error",
}
PLAIN_SECONDS = 15.0  # between lines where there is no terminal


def display_for_this_terminal(winnable: bool) -> Display:
    """Live where somebody can see it."""
    return LiveDisplay(winnable) if sys.stdout.isatty() else PlainDisplay(winnable)


def _headline(run: RunDirectory, config: RunConfig) -> str:
    seeds = f"seed {config.seeds[0]}" if len(config.seeds) == 1 else f"{len(config.seeds)} seeds"
    match run.manifest.get("preset"):
        case {"name": str(name), "why": str(why)}:
            preset = f", preset {name} ({why})"
        case _:
            preset = ""
    return in_one_line(f"{config.method_name} on {config.env_name}{preset}, {seeds}, {config.budget.steps:,} steps, in {run.path}")


def _clock(seconds: float) -> str:
    return "?" if seconds == float("inf") else str(datetime.timedelta(seconds=round(seconds)))


def _shown(status: Status, winnable: bool) -> dict[str, str]:
    hidden = set() if winnable else {"test_win_rate"}
    hidden |= set() if "memory_entries" in status.latest else {"memory_hit_rate"}
    hidden |= set() if "curiosity_weight" in status.latest else {"reward_intrinsic"}
    return {title: f"{status.latest[name]:.3g}" for name, title in SHOWN.items() if name in status.latest and name not in hidden}


class LiveDisplay:
    """A progress bar and the latest numbers, redrawn in place."""

    def __init__(self, winnable: bool):
        self.winnable, self.console = winnable, Console()
        self.bar = Progress(
            TextColumn("{task.completed:,.0f} steps"),
            BarColumn(bar_width=None),
            TextColumn("{task.percentage:.0f} %"),
            TextColumn("{task.fields[speed]} steps/s"),
            TextColumn("{task.fields[left]} left"),
            expand=True,
        )
        self.live: Live | None = None

    def begin(self, run: RunDirectory, config: RunConfig) -> None:
        self.console.print(_headline(run, config), style="bold", highlight=False, markup=False)
        self.row = self.bar.add_task("training", total=config.budget.steps, speed="-", left="?")
        compiling = Progress(SpinnerColumn(), TextColumn("[dim]compiling[/dim]"), TimeElapsedColumn())  # until there are steps to show
        compiling.add_task("compiling", total=None)
        self.live = Live(compiling, console=self.console, refresh_per_second=4)
        self.live.start()

    def show(self, status: Status) -> None:
        self.bar.update(
            self.row, completed=status.steps, speed=f"{status.steps_per_second:,.0f}", left=_clock(status.seconds_left), refresh=False
        )
        numbers = Table.grid(padding=(0, 2))
        shown = list(_shown(status, self.winnable).items())
        for pairs in (shown[:4], shown[4:]):
            numbers.add_row(*(f"[dim]{title}[/dim] [bold]{value}[/bold]" for title, value in pairs))
        whole = Table.grid(expand=True)
        whole.add_row(self.bar)
        whole.add_row(numbers)
        if self.live is not None:
            self.live.update(Group(whole, Text()))  # an empty line for ^C: behind a full one it would begin another, and all be drawn twice

    def note(self, line: str) -> None:
        self.console.print(in_one_line(line), highlight=False, markup=False)

    def end(self) -> None:
        if self.live is not None:
            self.live.stop()


class PlainDisplay:
    """A line now and then, and one at the end."""

    def __init__(self, winnable: bool):
        self.winnable, self.last = winnable, -PLAIN_SECONDS
        self.waiting: Status | None = None  # the newest that has not been printed
        self.begun: float | None = None  # while compiling

    def begin(self, run: RunDirectory, config: RunConfig) -> None:
        self.note(_headline(run, config))
        self.note("compiling ...")
        self.begun = time.monotonic()

    def show(self, status: Status) -> None:
        if self.begun is not None:
            self.note(f"first steps after {time.monotonic() - self.begun:.0f} s")
            self.begun = None
        self.waiting = status
        if time.monotonic() - self.last >= PLAIN_SECONDS and status.steps < status.total_steps:
            self._print(status)

    def _print(self, status: Status) -> None:
        self.last, self.waiting = time.monotonic(), None
        numbers = ", ".join(f"{title} {value}" for title, value in _shown(status, self.winnable).items())
        self.note(
            f"{status.steps:,} / {status.total_steps:,} steps, {status.steps_per_second:,.0f} steps/s, "
            f"{_clock(status.seconds_left)} left; {numbers}"
        )

    def note(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # whoever was reading has gone; training goes on
            print(in_one_line(line), flush=True)

    def end(self) -> None:
        if self.waiting is not None:
            self._print(self.waiting)
