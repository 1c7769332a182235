"""What the words of a command mean; a user's mistake is one line."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import re
import sys
from typing import Any, NoReturn, TextIO

from emc.errors import UserError
from emc.names import in_one_line

USAGE = """emc: cooperative multi-agent reinforcement learning with coordinated exploration

  emc train METHOD ENV [--field value ...]   train; `emc train METHOD ENV --help` lists every field
  emc sweep FILE | --methods A,B --envs C,D  many runs, as many at a time as there are cores; again does only what is missing
  emc reproduce CLAIM [--budget paper]       a claim of the paper: run what is missing, draw the figure, judge each statement
  emc resume RUN                             go on from the last checkpoint, bit for bit
  emc evaluate RUN [--episodes N]            complete greedy episodes with the trained agents
  emc evaluate --script NAME MAP             battles of a scripted player, here or, as smac/MAP, in StarCraft II
  emc render RUN [--out FILE]                an episode of the trained agents as a GIF
  emc report [DIR ...] [--out FILE]          one self-contained page about all runs in there: a table, curves, a page for each run
  emc report [DIR ...] --watch [--port N]    the same page on a loopback address, made anew while runs go on
  emc export DIR ... [--out FILE]            the tests of runs in the JSON format of marl-eval
  emc plan METHOD ENV [--field value ...]    bytes of replay, memory and networks, before anything is compiled
  emc methods                                the methods, a line each
  emc envs                                   the environments, a line each
  emc suite [--episodes N]                   tasks where exploration is the bottleneck: odds of random success, the optimum
  emc optimum ENV [--field value ...]        what the best possible play earns, exactly where the states can be gone through
  emc check-env ENV [--env.field value ...]  does an environment keep its promises? for your own ones
  emc doctor                                 what is installed here, and what the real StarCraft II still needs
  emc docs [PAGE]                            the documentation: its pages, or one of them
  emc demo                                   train EMC on the gridworld until it wins, and show how

METHOD is one of `emc methods`, ENV one of `emc envs` or your own as module:Class; RUN is a directory like
runs/gridworld/emc-vdn/20260101-120000-abc123.
"""


MOST_LETTERS = 300  # of a refusal: a path or a list of names may be far longer than anybody reads


def note(line: str) -> None:
    print(f"emc: {in_one_line(line)}", file=sys.stderr)


def fail(line: str, code: int) -> NoReturn:
    try:
        note(line)
        sys.stderr.flush()
    except OSError:
        leave(sys.stderr)  # the code alone says it then
    raise SystemExit(code)


def leave(output: TextIO) -> None:
    """Write no more to an output that takes nothing; Python would try once more at its end, and complain."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())


def refuse(error: UserError) -> NoReturn:
    """One line of a length that can be read, beginning with what is wrong and ending with what to do."""
    fail(in_one_line(str(error), MOST_LETTERS), error.exit_code)


def take(words: list[str], *names: str) -> list[str]:
    """The flags after the positional words, which must be there."""
    given = [word for word in words[: len(names)] if not word.startswith("-")]
    if len(given) < len(names) and not {"-h", "--help"} & set(words):
        raise UserError(f"{' '.join(names)} expected, got {' '.join(words) or 'nothing'}. See emc --help")
    if len(given) < len(names):
        print(USAGE, end="")
        raise SystemExit(0)
    return words[len(names) :]


def selections(words: list[str], names: set[str]) -> tuple[dict[str, str], list[str]]:
    """Take `--mixer qmix` and the like, which change what fields there are, out of the other flags."""
    chosen: dict[str, str] = {}
    rest: list[str] = []
    waiting = iter(words)
    for word in waiting:
        name, _, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or name not in names:
            rest.append(word)
            continue
        chosen[name] = value or next(waiting, "")
    return chosen, rest


def parse(prog: str, kind: Any, words: list[str], default: Any = None, about: str | None = None) -> Any:
    """Typed flags through tyro, its error box folded into one line."""
    import tyro

    box = io.StringIO()
    config = [tyro.conf.AvoidSubcommands, tyro.conf.FlagConversionOff]
    if not {"-h", "--help"} & {*words}:
        config.append(tyro.conf.HelptextFromCommentsOff)  # reading the source for it takes longer than all the rest
    defaults: dict[str, Any] = {} if default is None else {"default": default}
    try:
        with contextlib.redirect_stderr(box):
            return tyro.cli(kind, args=words, prog=prog, description=about, config=config, **defaults)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
    raise UserError(_one_line(box.getvalue()))


def _one_line(box: str) -> str:
    """What an error box says, without the box."""
    lines = [re.sub(r"[│╭╮╰╯─]|-{3,}", " ", line).strip() for line in box.splitlines()[1:]]
    blocks = [" ".join(block.split()) for block in " ".join(line or "\n" for line in lines).split("\n")]
    said = next(filter(None, blocks), "") or "these flags cannot be understood"
    said = re.sub(r"invalid literal for int\(\) with base 10: ('[^']*')", r"\1 is not a whole number", said)
    said = said.removesuffix(" Expected 1 values.")
    hints = re.findall(r"--[a-z][\w.-]*", box.partition("Perhaps you meant")[2])
    nearest = f" Perhaps you meant {hints[0]}?" if hints and hints[0] != "--help" else ""
    return f"{said}{'' if said.endswith('.') else '.'}{nearest} Add --help to see every field."


@dataclasses.dataclass(frozen=True)
class Nothing:
    """There is nothing to set."""
