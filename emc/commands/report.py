"""`emc report [DIR ...]`."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from emc.commands.common import Trusting, loaded, prepare_jax
from emc.commands.messages import note, say_left_out
from emc.commands.render import drawn
from emc.errors import UserError
from emc.flags import parse
from emc.report.page import write_report
from emc.report.site import Site, best_first
from emc.report.watch import Watch
from emc.runs.directory import EPISODE, RunDirectory, must_be_outside_runs
from emc.runs.trust import Trusted
from emc.user_input import printable

USUAL_PORT = 8642
ABOUT = """One self-contained page about one or several runs, or about all runs in a directory, which is `runs` if none is named.

With --watch the page is not written but served on a loopback address, and made anew while runs go on, until Ctrl-C.

Examples:
  emc report
  emc report runs/gridworld --out gridworld.html
  emc report --watch --port 8000"""


@dataclasses.dataclass(frozen=True)
class Flags(Trusting):
    """One self-contained page."""

    dirs: Annotated[tuple[Path, ...], Positional, arg(metavar="[DIR ...]")] = ()  # run directories, or directories that hold some
    out: Path | None = None  # default: report.html in the directory, or here for several
    episodes: int = 4  # runs to render an episode of, the best of each method first; older ones are shown too. --watch renders none
    watch: bool = False  # serve the page, and make it anew while runs go on
    port: int = USUAL_PORT  # of --watch; 0: any that is free


def main(words: list[str]) -> None:
    flags: Flags = parse("emc report", Flags, words, about=ABOUT)
    roots = [*flags.dirs]
    if not roots:
        if not Path("runs").is_dir():
            raise UserError("RUN expected: name one or several run directories, or a directory that holds some. See emc report --help")
        roots = [Path("runs")]
    if flags.episodes < 0:
        raise UserError(f"--episodes {flags.episodes} must be at least 0")
    if flags.watch:
        if flags.out is not None:
            raise UserError("--watch serves the page and writes no file: leave out either --watch or --out")
        _watch(Site(roots, flags.trust), flags.port)
        return
    if flags.port != USUAL_PORT:
        raise UserError("--port belongs to --watch, which serves the page instead of writing it")
    prepare_jax()
    print(printable(str(reported(roots, flags.out, flags.episodes, flags.trust))))


def _watch(site: Site, port: int) -> None:
    """Serve until Ctrl-C."""
    for root in site.roots:
        if not root.is_dir():
            raise UserError(f"{root}: no such directory. Name a run directory, or one that holds some or will.")
    watch = Watch(site, port, say_left_out)
    print(f"{watch.address} (Ctrl-C ends it)", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        watch.run(threading.Event())


def reported(paths: Sequence[Path], out: Path | None, episodes: int, trust: Trusted) -> Path:
    """Write the page about some runs, with episodes of some of them."""
    if out is not None:
        must_be_outside_runs(out)
    site = Site(paths, trust)
    runs = site.runs()
    for problem in site.problems:
        say_left_out(problem)
    if not runs:
        raise UserError(f"{', '.join(map(str, paths))}: no runs in there. Name run directories, or a directory that holds some.")
    out = out or (paths[0] / "report.html" if len(paths) == 1 else Path("report.html"))
    _render_some(runs, episodes, trust)
    write_report(runs, out, say=say_left_out)
    return out


def _render_some(runs: Sequence[RunDirectory], most: int, trust: Trusted) -> None:
    """Animate an episode of some runs, the best of each method first."""
    playable = [run for run in best_first(runs) if run.steps()] if most else []
    if most and not playable:
        note("no animation: there is no checkpoint to play from")
    for run in playable[:most]:
        try:
            drawn(loaded(run.path, None, trust), str(run.path), run.path / EPISODE)
        except UserError as error:  # the page is worth having without an episode
            note(f"no animation: {error}")
