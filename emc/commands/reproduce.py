"""`emc reproduce CLAIM`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from emc.claims import gather, jobs_of
from emc.claims.catalogue import claim, claims
from emc.claims.reproduction import checklist, missing, overview, write
from emc.commands.many import ManyFlags
from emc.commands.messages import fail, note
from emc.errors import UserError
from emc.flags import parse
from emc.user_input import printable

ABOUT = """A claim of the paper: run what is missing, draw its figures, and say of each statement whether it holds.

`emc reproduce` alone lists the claims; `all` does all of them. Writes OUT/CLAIM-BUDGET/ with figures as PNG and PDF, curves.csv and
checklist.json. Stopping it loses nothing: the same command goes on.

Examples:
  emc reproduce
  emc reproduce gridworld-penalty --dry-run
  emc reproduce gridworld-penalty --budget paper --workers 4
  emc reproduce all --draw-only --runs results"""


@dataclasses.dataclass(frozen=True)
class Flags(ManyFlags):
    """A claim of the paper."""

    claim: Annotated[tuple[str, ...], Positional, arg(metavar="[CLAIM]")] = ()  # one of those that `emc reproduce` lists, or all
    budget: Literal["small", "paper"] = "small"  # an evening on two cores, or what the paper did
    out: Path = Path("reproductions")
    draw_only: bool = False  # run nothing, and judge what there is


def main(words: list[str]) -> None:
    flags: Flags = parse("emc reproduce", Flags, words, about=ABOUT)
    flags.check()
    if not flags.claim:
        print(overview([*claims().values()]))
        return
    name, *more = flags.claim
    if more:
        raise UserError(f"one claim at a time, or all: got {', '.join(flags.claim)}")
    chosen = [*claims().values()] if name == "all" else [claim(name)]
    jobs = jobs_of([panel for one in chosen for panel in one.panels(flags.budget)])
    trouble = ""
    if flags.dry_run or not flags.draw_only:
        engine = flags.make_engine()
        grouped = flags.grouped(jobs, engine)
        if flags.dry_run:
            flags.say_what_is_left(grouped, engine)
            return
        trouble = flags.run_all(grouped, engine)
    elif not flags.runs.is_dir():
        raise UserError(f"{flags.runs}: no such directory. Name the one that holds the runs with --runs")
    survey = flags.survey(jobs)
    for one in chosen:
        evidence = gather(one, flags.budget, [survey])
        folder = flags.out / f"{one.name}-{flags.budget}"
        write(evidence, folder)
        left, wanted = missing(evidence)
        print(
            f"{checklist(evidence)}\n\n{wanted - left} of {wanted} runs are complete; figures and numbers are in {printable(str(folder))}\n"
        )
    if flags.draw_only and (left_out := survey.left_out()):
        note(left_out)
    if trouble:
        fail(trouble, 1)
