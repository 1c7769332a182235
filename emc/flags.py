"""Typed flags through tyro; a user's mistake becomes one line.

A switch is said as `--watch` or `--no-watch`; the longer `--watch True`, which the runs of a sweep over both values need, means the same.
"""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Sequence
from typing import Any

import tyro

from emc.errors import UserError

HELP = {"-h", "--help"}


def parse(prog: str, kind: Any, words: Sequence[str], default: Any = None, about: str | None = None) -> Any:
    """The flags of a command, or one line about what is wrong with its words."""
    return _parsed(prog, kind, words, default, about, False)


def parse_some(prog: str, kind: Any, words: Sequence[str], default: Any) -> tuple[Any, list[str]]:
    """The flags among some words that there are, and the other words; help is among these."""
    asked = HELP & {*words}
    given, others = _parsed(prog, kind, [word for word in words if word not in HELP], default, None, True)
    return given, [*others, *asked]


def parse_known(prog: str, kind: Any, words: Sequence[str], about: str, whole: Any = None) -> tuple[Any, list[str]]:
    """The flags that say what others there are, and the other words. Help, about `whole`, is given here if nothing else can be said yet."""
    rest = [word for word in words if word not in HELP]
    asked = len(rest) < len(words)
    try:
        known, others = _parsed(prog, kind, rest, None, about, True)
    except UserError:
        if not asked:
            raise
        known, others = _parsed(prog, whole or kind, ["--help"], None, about, True)
    return known, [*others, *(["--help"] if asked else [])]


def _parsed(prog: str, kind: Any, words: Sequence[str], default: Any, about: str | None, some: bool) -> Any:
    box = io.StringIO()
    given: dict[str, Any] = {} if default is None else {"default": default}
    config = [tyro.conf.AvoidSubcommands]
    if not HELP & {*words}:
        config.append(tyro.conf.HelptextFromCommentsOff)  # reading the source for it takes longer than all the rest
    try:
        with contextlib.redirect_stderr(box), warnings.catch_warnings(action="ignore"):  # of Equinox about arrays as fields
            return tyro.cli(
                kind,
                args=_switches(words),
                prog=prog,
                description=about,
                config=config,
                return_unknown_args=some,
                **given,
            )
    except NameError as error:  # a class of the user's whose fields are of types that nobody knows
        raise UserError(f"{prog}: a field has a type that cannot be found ({error}). Import it, or write another one") from error
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
    raise UserError(_one_line(prog, kind, words, box.getvalue()))


def _switches(words: Sequence[str]) -> list[str]:
    """`--a.b True` as `--a.b`, and `--a.b False` as `--a.no-b`."""
    said: list[str] = []
    for word in words:
        flag, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        if not equals and value in ("True", "False") and said and said[-1].startswith("--") and "=" not in said[-1]:
            flag = said.pop()
        if flag and value in ("True", "False"):
            said.append(flag if value == "True" else re.sub(r"([^.-][^.]*)$", r"no-\1", flag))
        else:
            said.append(word)
    return said


def _one_line(prog: str, kind: Any, words: Sequence[str], box: str) -> str:
    """What an error box says, without the box."""
    title = box.splitlines()[0] if box else ""
    if "Required options" in title or ("Missing value for argument '" in box and "'--" not in box):
        return f"{positionals(kind)} expected, got {' '.join(words) or 'nothing'}. See {prog} --help"
    lines = [re.sub(r"[│╭╮╰╯─]|-{3,}", " ", line).strip() for line in box.splitlines()[1:]]
    blocks = [" ".join(block.split()) for block in " ".join(line or "\n" for line in lines).split("\n")]
    said = next(filter(None, blocks), "") or "these flags cannot be understood"
    said = re.sub(r"invalid literal for int\(\) with base 10: ('[^']*')", r"\1 is not a whole number", said)
    said = said.removesuffix(" Expected 1 values.")
    hints = re.findall(r"--[a-z][\w.-]*", box.partition("Perhaps you meant")[2])
    nearest = f" Perhaps you meant {hints[0]}?" if hints and hints[0] != "--help" else ""
    return f"{said}{'' if said.endswith('.') else '.'}{nearest} Add --help to see every field."


def positionals(kind: Any) -> str:
    """The words that a command begins with, by their names."""
    hints: dict[str, Any] = kind.__annotations__
    return " ".join(name.upper() for name, hint in hints.items() if "Positional" in str(hint))
