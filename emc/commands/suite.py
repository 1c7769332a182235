"""`emc suite`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from emc.commands.common import prepare_jax
from emc.errors import UserError
from emc.files import is_there, must_take
from emc.flags import parse
from emc.runs.directory import must_be_outside_runs
from emc.suite.tasks import SUITE, Line, known, read, table, write
from emc.user_input import check_size

ABOUT = """Tasks where exploration is the bottleneck, with the odds of random success and the optimum.

Examples:
  emc suite
  emc suite --tasks pass --episodes 10000"""


@dataclasses.dataclass(frozen=True)
class Flags:
    """The tasks where exploration is the bottleneck, with the odds of random success and the optimum."""

    episodes: int = 0  # measure random play anew, over so many episodes of each task; 0: show what was measured before
    seed: int = 0  # of these episodes
    tasks: str = ""  # only those whose names contain this
    out: Path | None = None  # also write what was measured, as JSON; other tasks that are in there stay


def main(words: list[str]) -> None:
    flags: Flags = parse("emc suite", Flags, words, about=ABOUT)
    if flags.episodes < 0:
        raise UserError(f"--episodes {flags.episodes} must be at least 0")
    if flags.out is not None and not flags.episodes:
        raise UserError("--out writes what is measured: say with --episodes over how many")
    check_size("--seed", flags.seed, "name another one", low=0)
    chosen = [entry for entry in SUITE if flags.tasks in entry.name]
    if not chosen:
        raise UserError(f"no task of the suite is called like {flags.tasks!r}; they are: {', '.join(entry.name for entry in SUITE)}")
    kept = _kept(flags.out) if flags.out is not None else {}
    lines = {} if flags.episodes else read()
    if flags.episodes:
        prepare_jax()
        for entry in chosen:
            lines[entry.name] = known(entry, flags.episodes, flags.seed)
    lines = {entry.name: lines[entry.name] for entry in chosen if entry.name in lines}
    rows = table(lines)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print("\nRandom: uniform among available actions, 95 % intervals. Optimum: exact but for `at most`; won by the best play at gamma 0.9.")
    if flags.out is not None:
        write({**kept, **lines}, flags.out)


def _kept(out: Path) -> dict[str, Line]:
    """What a file holds already; whether it can be written is found out before anything is measured."""
    must_be_outside_runs(out)
    kept = read(out) if is_there(out) else {}
    must_take(out)
    return kept
