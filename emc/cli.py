"""The `emc` command: `USAGE` says what there is. A user's mistake is one line on stderr and exit code 2."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Sequence

from emc.commands.messages import fail, leave, refuse
from emc.errors import UserError
from emc.user_input import lookup

USAGE = """emc: cooperative multi-agent reinforcement learning with coordinated exploration

  emc train METHOD ENV [--field value ...]   train; `emc train METHOD ENV --help` lists every field
  emc sweep FILE | --methods A,B --envs C,D  many runs, as many at a time as there are cores; again does only what is missing
  emc reproduce CLAIM [--budget paper]       a claim of the paper: run what is missing, draw the figure, judge each statement
  emc resume RUN                             go on from the last checkpoint, bit for bit
  emc evaluate RUN [--episodes N]            complete greedy episodes with the trained agents
  emc evaluate MAP --script NAME             battles of a scripted player, here or, as smac/MAP, in StarCraft II
  emc render RUN [--out FILE]                an episode of the trained agents as a GIF
  emc report [DIR ...] [--out FILE]          one self-contained page about all runs in there: a table, curves, a page for each run
  emc report [DIR ...] --watch [--port N]    the same page on a loopback address, made anew while runs go on
  emc export DIR ... [--out FILE]            the tests of runs in the JSON format of marl-eval
  emc plan METHOD ENV [--field value ...]    bytes of replay, memory and networks, before anything is compiled
  emc methods                                the methods, a line each
  emc envs                                   the environments, a line each
  emc suite [--episodes N]                   tasks where exploration is the bottleneck: odds of random success, the optimum
  emc optimum ENV [--env.field value ...]    what the best possible play earns, exactly where the states can be gone through
  emc check-env ENV [--env.field value ...]  does an environment keep its promises? for your own ones
  emc doctor                                 what is installed here, and what the real StarCraft II still needs
  emc docs [PAGE]                            the documentation: its pages, or one of them
  emc demo                                   train EMC on the gridworld until it wins, and show how

Every command explains itself: emc COMMAND --help. METHOD is one of `emc methods`, ENV one of `emc envs`
or your own as module:Class; RUN is a directory like runs/gridworld/emc-vdn/20260101-120000-abc123.
"""

COMMANDS = (
    "train",
    "resume",
    "evaluate",
    "render",
    "report",
    "plan",
    "methods",
    "export",
    "sweep",
    "reproduce",
    "envs",
    "suite",
    "optimum",
    "check-env",
    "doctor",
    "docs",
    "demo",
)  # each is a module of emc/commands/ with a `main`


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
    command = lookup("command", words[0], {name: name for name in COMMANDS})
    importlib.import_module(f"emc.commands.{command.replace('-', '_')}").main(words[1:])
