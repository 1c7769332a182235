"""Watching a run on a terminal."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from emc.display import LiveDisplay
from emc.runs.session import Status
from emc.sweeps.table import LiveTable


def terminal() -> Console:
    return Console(width=60, height=20, force_terminal=True, file=io.StringIO())


def drawn(console: Console) -> list[str]:
    """The lines of the last drawing, in which the terminal's cursor is behind the last one."""
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().split("\x1b[2K")[-1].split("\n")


def test_ctrl_c_is_shown_on_a_line_of_its_own_so_that_nothing_is_drawn_twice() -> None:
    """A terminal writes ^C where its cursor is. Behind a line as wide as itself that begins another, which nobody would clear."""
    display = LiveDisplay(winnable=True)
    display.console = terminal()
    config: Any = SimpleNamespace(method_name="vdn", env_name="gridworld", seeds=(0,), budget=SimpleNamespace(steps=1000))
    run: Any = SimpleNamespace(path="runs/one", manifest={})
    display.begin(run, config)
    assert display.live is not None
    for steps in (10, 20):
        display.show(Status(steps, 1000, 5.0, 190.0, {"test_win_rate": 0.5}))
        display.live.refresh()
    *shown, last = drawn(display.console)
    display.end()
    assert last == ""
    assert any("20 steps" in line for line in shown)
    table = LiveTable(console := terminal())
    with table as watch:
        watch([])
        table.live.refresh()
        assert drawn(console)[-1] == ""
