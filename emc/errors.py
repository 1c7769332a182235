"""Mistakes that a user can mend: one clear line, exit code 2, no traceback."""

from __future__ import annotations

MISTAKES = (Exception, SystemExit, GeneratorExit)  # what somebody's own code may raise: all but Ctrl-C


def in_short(error: BaseException) -> str:
    """What an exception of somebody's own code says, in one line."""
    try:
        said = str(error)
    except MISTAKES:  # it cannot even say that
        said = ""
    return f"{type(error).__name__}: {next(iter(said.splitlines()), '')}".removesuffix(": ")


class UserError(ValueError):
    """What is wrong and what to do about it, in one line."""

    exit_code = 2


class FileError(UserError):
    """A file that is not what it should be: a link, a pipe, a device, or too large."""


class CheckpointError(UserError):
    """A checkpoint that cannot be used: truncated, corrupted, foreign, or of another shape."""


class RunError(UserError):
    """A run directory that cannot be made, opened, locked, read or written."""


class OutputLost(RunError):
    """What a run had written was removed or changed while it trained: no mistake in the command, but the run is not whole."""

    exit_code = 1
