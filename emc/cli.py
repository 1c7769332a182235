"""The `emc` command: `USAGE` in emc/commands/parsing.py says what there is. A user's mistake is one line on stderr and exit code 2."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence

from emc.commands.documentation import docs
from emc.commands.listing import check_env, doctor, envs, methods
from emc.commands.looking import demo, evaluate, export, render, report
from emc.commands.parsing import USAGE, fail, leave, refuse, selections
from emc.commands.suite import optimum, suite
from emc.commands.sweeping import reproduce, sweep
from emc.commands.training import plan, resume, train
from emc.errors import UserError
from emc.names import lookup

COMMANDS: Mapping[str, Callable[[list[str]], None]] = {
    "train": train,
    "resume": resume,
    "evaluate": evaluate,
    "render": render,
    "report": report,
    "plan": plan,
    "methods": methods,
    "export": export,
    "sweep": sweep,
    "reproduce": reproduce,
    "envs": envs,
    "suite": suite,
    "optimum": optimum,
    "check-env": check_env,
    "doctor": doctor,
    "docs": docs,
    "demo": demo,
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit."""
    _open_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        try:
            _run(words)
        finally:
            sys.stdout.flush()  # here, where what goes wrong can be said
    except UserError as error:
        refuse(error)
    except KeyboardInterrupt:
        fail("stopped", 130)
    except BrokenPipeError:
        leave(sys.stdout)
    except OSError as error:
        if error.filename is None:  # an output that was open already
            leave(sys.stdout)
        where = f"{error.filename}: " if error.filename else "writing failed: "
        refuse(UserError(f"{where}{error.strerror or error}. Look at that place, or choose another one"))


def _open_streams() -> None:
    """Outputs that take every text, and, where nobody gave a stream (`>&-`), one that goes nowhere.

    The next file that is opened, perhaps a run's, would get its number and what is printed.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
            os.set_inheritable(opened, opened == number)
            setattr(sys, name, os.fdopen(opened, "r" if number == 0 else "w"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files are any bytes, and some terminals know ASCII only


def _run(words: list[str]) -> None:
    if not words or words[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return
    if words[0] in ("-V", "--version"):
        from emc import __version__

        print(f"emc {__version__}")
        return
    chosen, words = selections(words, {"trust"})
    if not words:
        raise UserError("a command is expected beside --trust module:Class. See emc --help")
    if "trust" in chosen:
        from emc.runs.config import trust
        from emc.sweeps import leave_to_runs

        if words[0] in ("sweep", "reproduce") and "--dry-run" not in words:
            leave_to_runs()  # a module may compute something as soon as it is imported
        trust(chosen["trust"])
    lookup("command", words[0], COMMANDS)(words[1:])
