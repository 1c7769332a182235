"""`emc resume RUN`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from emc.commands.common import Trusting, prepare_jax
from emc.commands.train import report_end
from emc.display import display_for_this_terminal
from emc.flags import parse
from emc.loggers import logged_by, names_in, with_loggers
from emc.runs.directory import RunDirectory
from emc.runs.session import config_of, keeping_of, resume

ABOUT = """Go on with a run from its last good checkpoint, bit for bit. One that is finished goes on with --steps N, N steps in all.

Examples:
  emc resume runs/gridworld/emc-vdn/20260101-120000-abc123
  emc resume RUN --steps 1000000
  emc resume RUN --checkpoint-minutes 1
  emc resume RUN --trust my_envs:Meeting --trust my_parts:Mine"""


@dataclasses.dataclass(frozen=True)
class Flags(Trusting):
    """Go on from the last good checkpoint."""

    run: Annotated[Path, Positional, arg(metavar="RUN")]  # directory of the run
    steps: int | None = None  # how many there are to be in all, to go on with a run that is finished; default: as when the run began
    checkpoint_minutes: float | None = None  # default: as when the run began
    keep_checkpoints: int | None = None  # default: as when the run began
    log: str = ""  # where else numbers go, beside the places that the run began with: tensorboard, wandb, mlflow, csv, or module:Class
    tensorboard: bool = False  # short for --log tensorboard
    wait_seconds: float = 0.0  # for another process that trains this run to let go of it


def main(words: list[str]) -> None:
    flags = parse("emc resume", Flags, words, about=ABOUT)
    run = RunDirectory.open(flags.run, flags.trust)
    prepare_jax()
    log = dict.fromkeys([*logged_by(run), *names_in(f"{flags.log},{'tensorboard' * flags.tensorboard}")])
    display = with_loggers(display_for_this_terminal(config_of(run).env.spec.winnable), [*log])
    given = {"checkpoint_minutes": flags.checkpoint_minutes, "keep_checkpoints": flags.keep_checkpoints}
    keeping = dataclasses.replace(keeping_of(run), **{name: value for name, value in given.items() if value is not None})
    report_end(lambda: resume(run.path, keeping, display, flags.wait_seconds, flags.trust, flags.steps))
