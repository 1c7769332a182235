"""`emc train METHOD ENV`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable

from emc.commands.common import prepare_jax
from emc.commands.messages import fail
from emc.configuration import configured
from emc.display import display_for_this_terminal
from emc.loggers import names_in, with_loggers
from emc.processes import RUN_NAME
from emc.runs.directory import RunDirectory
from emc.runs.session import Interrupted, Keeping, start
from emc.user_input import printable


def main(words: list[str]) -> None:
    config, where, preset = configured("train", "Train", words)
    prepare_jax()
    log = names_in(f"{where.log},{'tensorboard' * where.tensorboard}")
    display = with_loggers(display_for_this_terminal(config.env.spec.winnable), log)
    keeping = Keeping(where.checkpoint_minutes, where.keep_checkpoints)
    command = shlex.join(["emc", "train", *words])
    name = os.environ.pop(RUN_NAME, "")
    report_end(lambda: start(config, where.runs, keeping, display, command, name=name, preset=preset, trust=where.trust, log=log))


def report_end(train: Callable[[], RunDirectory]) -> None:
    """Train, and say how it ended and what can be done next."""
    try:
        path = train().path
    except Interrupted as stop:
        fail(f"stopped; everything up to step {stop.step} is kept. Go on with: emc resume {stop.run.path}", 130)
    print(f"finished. See it with: emc report {printable(str(path))}")
