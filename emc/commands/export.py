"""`emc export DIR ...`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from emc.commands.common import Trusting
from emc.commands.messages import say_left_out
from emc.errors import UserError
from emc.files import explained, written_whole
from emc.flags import parse
from emc.report.curves import group_runs
from emc.report.marl_eval import marl_eval
from emc.report.site import Site
from emc.runs.directory import must_be_outside_runs
from emc.user_input import printable

ABOUT = """The tests of runs, named or found below a directory, in the JSON format of marl-eval.

Examples:
  emc export runs
  emc export runs/gridworld runs/3m --out both.json"""


@dataclasses.dataclass(frozen=True)
class Flags(Trusting):
    """The tests of runs as JSON."""

    dirs: Annotated[tuple[Path, ...], Positional, arg(metavar="[DIR ...]")] = ()  # run directories, or directories that hold some
    out: Path = Path("marl-eval.json")


def main(words: list[str]) -> None:
    flags: Flags = parse("emc export", Flags, words, about=ABOUT)
    if not flags.dirs:
        raise UserError("RUN expected: name one or several run directories, or a directory that holds some. See emc export --help")
    must_be_outside_runs(flags.out)
    site = Site(flags.dirs, flags.trust)
    runs = site.runs()
    for problem in site.problems:
        say_left_out(problem)
    if not runs:
        raise UserError(f"{', '.join(map(str, flags.dirs))}: no runs there. Name run directories, or a directory that holds some")
    tree = marl_eval(group_runs(runs))
    with explained(flags.out), written_whole(flags.out) as beside:
        beside.write_text(json.dumps(tree) + "\n")
    print(printable(str(flags.out)))
