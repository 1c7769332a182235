"""Mistakes that a user can mend: one clear line, exit code 2, no traceback."""

from __future__ import annotations


class UserError(ValueError):
    """What is wrong and what to do about it, in one line."""


class CheckpointError(UserError):
    """A checkpoint that cannot be used: truncated, corrupted, foreign, or of another shape."""


class RunError(UserError):
    """A run directory that cannot be made, opened, locked, read or written."""
