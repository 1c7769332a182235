"""How commands speak beside their output: one line on stderr each."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import NoReturn, TextIO

from emc.errors import UserError
from emc.user_input import in_one_line

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


def say_left_out(what: str) -> None:
    note(in_one_line(f"left out: {what}", MOST_LETTERS))
