"""Metrics as append-only JSON lines.

Numbers survive bit for bit: floats are written as the shortest decimal that reads back to the same double. JSON has no word for the numbers
that are not finite, so they are written as the strings "NaN", "Infinity" and "-Infinity" and read back as floats.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np

from emc.errors import RunError

TAIL_BYTES = 1 << 16  # in which the last line is looked for
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
SPELT = (b"NaN", b"Infinity", b"\\")  # a line with none of these holds no such number, however it is spelt


def read_metrics(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """All lines of a JSONL file; a last line that a killed writer left unfinished is passed over."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}. Name the .jsonl file of a run directory.") from error
    *complete, _torn = content.split(b"\n")
    lines: list[dict[str, Any]] = []
    for number, line in enumerate(complete, start=1):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise RunError(f"{path}, line {number}: not a JSON object, the file is damaged. Remove that line to read the rest.")
        known = cast(dict[str, Any], value)
        lines.append(revived(known) if any(word in line for word in SPELT) else known)
    return lines


def last_line(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The last whole line of a JSONL file, without reading the rest; None if there is none."""
    try:
        with Path(path).open("rb") as file:
            file.seek(-min(TAIL_BYTES, file.seek(0, os.SEEK_END)), os.SEEK_END)
            *complete, _torn = file.read().split(b"\n")
        value: Any = revived(json.loads(complete[-1]))
    except (OSError, ValueError, IndexError, RecursionError):
        return None
    return cast(dict[str, Any], value) if isinstance(value, dict) else None


def encode(lines: Iterable[Mapping[str, Any]]) -> bytes:
    """One JSON object a line."""
    return b"".join(json.dumps(plain(line), allow_nan=False).encode() + b"\n" for line in lines)


def plain(value: Any) -> Any:
    """The same value in what JSON can say: arrays become numbers or lists, numbers that are not finite become strings."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return float(value) if math.isfinite(value) else str(value).replace("nan", "NaN").replace("inf", "Infinity")
        case np.ndarray() | np.generic() | jax.Array():
            array = np.asarray(value)
            return plain((array.astype(np.float64) if array.dtype.kind in "fV" else array).tolist())
        case Mapping():
            return {str(key): plain(item) for key, item in cast(Mapping[Any, Any], value).items()}
        case list() | tuple():
            return [plain(item) for item in cast(list[Any], value)]
        case _:
            raise TypeError(f"cannot write a {type(value).__name__} as JSON: {value!r}")


def revived(value: Any) -> Any:
    """The inverse of `plain` for numbers that are not finite."""
    match value:
        case str():
            return NOT_FINITE.get(value, value)
        case dict():
            return {key: revived(item) for key, item in cast(dict[str, Any], value).items()}
        case list():
            return [revived(item) for item in cast(list[Any], value)]
        case _:
            return value


class JsonlFile:
    """One JSONL file, open for appending."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a+b", buffering=0)
        self._drop_torn_line()

    def append(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Write whole lines, or nothing."""
        data, before = memoryview(encode(lines)), self.size
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError:
            self._file.truncate(before)
            raise

    @property
    def size(self) -> int:
        """Bytes so far."""
        return os.fstat(self._file.fileno()).st_size

    def sync(self) -> None:
        """Wait until the disk has every line."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Release the file."""
        self._file.close()

    def _drop_torn_line(self) -> None:
        """A line that a killed writer left unfinished would swallow the next one."""
        end, block = self.size, 2**16
        while end > 0:
            start = max(0, end - block)
            self._file.seek(start)
            newline = self._file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end < self.size:
            self._file.truncate(end)
