"""Where a line of a run's files becomes a record, or a refusal.

Every file of lines has a form: fields that must be there, and of which kind. A line of any other form is damage or not ours; whoever reads
the run is told its number, and nothing behind this module needs to doubt what it is given.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeGuard, cast

from emc import files
from emc.errors import FileError, RunError
from emc.runs.jsonl import each_line, tail

METRICS, MAPS, SPEED, END, LOST = "metrics.jsonl", "maps.jsonl", "speed.jsonl", "end.jsonl", "lost.jsonl"
MOST, LARGEST = 2**63, 1e100  # above, a whole number or any other is not one that training writes
Line = dict[str, Any]


def read_lines(path: Path, seeds: Collection[int] | None = None, most: int | None = None) -> list[Line]:
    """All lines of one of a run's files, or the first of them, none if it has not got that far.

    The steps of a seed, which is one of the run's, never go back.
    """
    fits, reached, lines = FORMS[path.name], dict[int, int](), list[Line]()
    try:
        for line in itertools.islice(each_line(path), most) if files.is_there(path) else ():
            seed = line.get("seed", -1)
            if not fits(line) or line["steps"] < reached.get(seed, 0) or not (seeds is None or seed in seeds or seed == -1):
                raise RunError(f"{path}, line {len(lines) + 1}: not a line that emc writes. Remove that line to see the rest.")
            reached[seed] = line["steps"]
            lines.append(line)
    except FileError as error:
        raise RunError(str(error)) from error
    return lines


def last_lines(path: Path, size: int | None = None) -> list[Line]:
    """The last whole lines of one of a run's files, without reading the rest; those that emc does not write are passed over.

    With a size, the last ones when the file had so many bytes.
    """
    try:
        return [line for line in tail(path, size) if FORMS[path.name](line)]
    except (OSError, FileError):
        return []


def last_line(path: Path) -> Line | None:
    """The last of them; None if there is none."""
    return next(reversed(last_lines(path)), None)


MORE = "more"  # the reason of a line of END that says until which step a run goes on after its end


def end_of(run: Path) -> Line | None:
    """How a run ended; None if it has not, or was told to go on."""
    line = last_line(run / END)
    return None if line is None or line["reason"] == MORE else line


def steps_asked_later(run: Path, size: int | None = None) -> int | None:
    """Until which step a run was last told to go on; None if it never was, or not by the time that END had so many bytes."""
    return next((line["until"] for line in reversed(last_lines(run / END, size)) if line["reason"] == MORE), None)


# What lines look like.


def is_whole(value: Any) -> TypeGuard[int]:
    """Whether a value is a whole number that can be counted to, and no truth value."""
    return type(value) is int and 0 <= value < MOST


def is_number(value: Any) -> bool:
    """Whether a value is a number that can be calculated with, or one that is not finite."""
    return type(value) in (bool, int, float) and (abs(value) < LARGEST or value != value or abs(value) == math.inf)


def are_numbers(values: Any) -> bool:
    """Whether a value is a list of such numbers, and not empty; the usual ones are known at a glance."""
    if not isinstance(values, list) or not values:
        return False
    found = cast(list[Any], values)
    return ({*map(type, found)} <= {bool, float} and sum(map(abs, found)) < LARGEST) or all(map(is_number, found))


def _is_metric(line: Mapping[str, Any]) -> bool:
    """A test with the raw values of its episodes, or what training was like since the last line."""
    if not (is_whole(line.get("seed")) and is_whole(line.get("steps"))):
        return False
    match line.get("kind"):
        case "eval":
            known = [line.get("return"), line.get("won"), *([line["length"]] if "length" in line else [])]
            ours = line.keys() <= {"kind", "seed", "steps", "return", "won", "length"}
            return ours and all(map(are_numbers, known)) and len({len(values) for values in cast(list[list[Any]], known)}) == 1
        case "train":
            return is_whole(line.get("episodes", 0)) and all(is_number(value) for name, value in line.items() if name != "kind")
        case _:
            return False


def _is_map(line: Mapping[str, Any]) -> bool:
    """Three tables of one shape."""
    if not (is_whole(line.get("seed")) and is_whole(line.get("steps"))):
        return False
    tables = [line.get(name) for name in ("visits", "bonus", "bonus_visits")]
    if not all(isinstance(table, list) and table and all(map(are_numbers, cast(list[Any], table))) for table in tables):
        return False
    return len({(len(table), *map(len, table)) for table in cast(list[list[list[Any]]], tables)}) == 1 and _is_even(cast(Any, tables[0]))


def _is_even(table: list[list[Any]]) -> bool:
    return len({*map(len, table)}) == 1


def _is_speed(line: Mapping[str, Any]) -> bool:
    steps = is_whole(line.get("steps")) and is_whole(line.get("steps_since_start"))
    return steps and type(line.get("seconds")) in (int, float) and 0 <= line["seconds"] < LARGEST


def _has_reason(line: Mapping[str, Any]) -> bool:
    return is_whole(line.get("steps")) and isinstance(line.get("reason"), str) and (line["reason"] != MORE or is_whole(line.get("until")))


FORMS: Mapping[str, Callable[[Mapping[str, Any]], bool]] = {
    METRICS: _is_metric,
    MAPS: _is_map,
    SPEED: _is_speed,
    END: _has_reason,
    LOST: _has_reason,
}
