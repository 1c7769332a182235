"""Names and numbers that a user writes: look them up, check them, and say in one line what is wrong and what to do."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Mapping
from typing import TypeVar

from emc.errors import UserError

V = TypeVar("V")
LARGEST, SMALLEST = 2**31 - 1, 1e-30
Number = float  # as users write it; under a transformation it may be a traced array


class UnknownName(UserError):
    """A name that is not among the known ones."""


def lookup(kind: str, name: str, table: Mapping[str, V]) -> V:
    """The entry called `name`, or an error that lists the known names and suggests the nearest."""
    if name in table:
        return table[name]
    spelt = {known.lower(): known for known in table}
    nearest = difflib.get_close_matches(name.lower(), spelt, n=1, cutoff=0.5)
    hint = f" Did you mean {spelt[nearest[0]]}?" if nearest else ""
    raise UnknownName(f"unknown {kind} {name!r}; known: {', '.join(sorted(table)) or 'none'}.{hint}")


def printable(text: str) -> str:
    """Somebody's text as it is, but for what would move or colour what is printed."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def in_one_line(text: str, most: int = 0) -> str:
    """Somebody's text, printable and without line breaks; where there is a most, the middle of what is longer is left out."""
    said = " ".join(
        "".join(letter if letter.isprintable() else " " if letter.isspace() else ascii(letter)[1:-1] for letter in text).split()
    )
    return said if not most or len(said) <= most else f"{said[: most * 2 // 3 - 5]} ... {said[len(said) - most // 3 :]}"


def number(value: Number) -> Number:
    """A Python or numpy number as a float, so that a sweep over 0, 0.5 and 1 compiles once; arrays pass through."""
    return float(value) if isinstance(value, numbers.Real) else value


def check_number(name: str, value: Number, advice: str, low: float = -math.inf, high: float = math.inf) -> None:
    """Refuse a number that is not finite or lies outside [low, high]; arrays and tracers are not looked at."""
    if isinstance(value, numbers.Real) and not (math.isfinite(value) and low <= value <= high):
        raise UserError(f"{name}={value} is not a finite number{_range(low, high)}: {advice}")


def check_size(name: str, value: int, advice: str, low: int) -> None:
    """Refuse a size that is not a whole number of at least `low`, or does not fit the 32 bits that counters have."""
    if not (isinstance(value, numbers.Integral) and low <= value <= LARGEST):
        raise UserError(
            f"{name}={value} is not a whole number of at least {low}{'' if value < LARGEST else f' and at most {LARGEST}'}: {advice}"
        )


def _range(low: float, high: float) -> str:
    if math.isinf(low) and math.isinf(high):
        return ""
    if math.isinf(high):
        return f" of at least {low:g}"
    if math.isinf(low):
        return f" of at most {high:g}"
    return f" from {low:g} to {high:g}"
