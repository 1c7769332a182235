"""Metrics as append-only JSON lines.

Numbers survive bit for bit: floats are written as the shortest decimal that reads back to the same double. JSON has no word for the numbers
that are not finite, so they are written as the strings "NaN", "Infinity" and "-Infinity" and read back as floats.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import jax
import numpy as np

from emc import files
from emc.errors import OutputLost, RunError

TAIL_BYTES = 1 << 16  # in which the last lines are looked for
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
SPELT = (b"NaN", b"Infinity", b"\\")  # a line with none of these holds no such number, however it is spelt


class Prefix(NamedTuple):
    """A file as far as it was written at some moment."""

    size: int
    checksum: int | None = None  # None in checkpoints that are older than checksums of lines


def read_metrics(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """All lines of a JSONL file; a last line that a killed writer left unfinished is passed over."""
    return [*each_line(path)]


def each_line(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """The same one by one, so that whoever refuses one has not read the rest."""
    most, number = files.MOST_BYTES["line"], 1
    try:
        with files.opened(Path(path), files.MOST_BYTES["lines"]) as file:
            while (line := file.readline(most + 1)).endswith(b"\n"):
                yield _decoded(path, line, number)
                number += 1
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}. Name the .jsonl file of a run directory.") from error
    if len(line) > most:
        raise RunError(f"{path}, line {number}: is longer than any that emc writes, the file is damaged. Restore it from a copy.")


def _decoded(path: str | os.PathLike[str], line: bytes, number: int) -> dict[str, Any]:
    try:
        value = files.parsed(line)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise RunError(f"{path}, line {number}: not a JSON object, the file is damaged. Remove that line to read the rest.")
    known = cast(dict[str, Any], value)
    return revived(known) if any(word in line for word in SPELT) else known


def tail(path: Path, size: int | None = None) -> list[dict[str, Any]]:
    """The last whole lines of a JSONL file, as many as end it in some tens of kilobytes; what is no JSON object is passed over.

    With a size, of the file as it was when it had so many bytes.
    """
    with files.opened(path) as file:
        end = file.seek(0, os.SEEK_END)
        end = end if size is None else min(end, size)
        file.seek(start := max(end - TAIL_BYTES, 0))
        *complete, _torn = file.read(end - start).split(b"\n")
    found: list[dict[str, Any]] = []
    for line in complete:
        with contextlib.suppress(ValueError, RecursionError):
            value: Any = revived(files.parsed(line))
            found += [cast(dict[str, Any], value)] if isinstance(value, dict) else []
    return found


def count_lines(path: Path, size: int) -> int:
    """Whole lines in the first bytes of a file; none where there is no such file."""
    if not files.is_there(path):
        return 0
    with files.opened(path) as file:
        blocks = iter(lambda: file.read(min(files.BLOCK, size - file.tell())), b"")
        return sum(block.count(b"\n") for block in blocks)


def checksum_of(file: BinaryIO, size: int) -> int:
    """Of the first bytes of a file; the file may be shorter."""
    found = 0
    file.seek(0)
    while size > 0 and (block := file.read(min(files.BLOCK, size))):
        found, size = zlib.crc32(block, found), size - len(block)
    return found


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


def at(value: Any, *path: str) -> Any:
    """What a nested document holds there; None if it goes no deeper."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


class JsonlFile:
    """One JSONL file, open for appending; knows how long it must be, and the checksum of all that is in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.fdopen(files.open_to_write(path, os.O_APPEND), "a+b", buffering=0)
        self._drop_torn_line()
        self._size = self._found().st_size
        self._checksum = checksum_of(cast(BinaryIO, self._file), self._size)

    def append(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Write whole lines, or nothing."""
        data = encode(lines)
        left = memoryview(data)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError:
            self._file.truncate(self._size)
            raise
        self._size, self._checksum = self._size + len(data), zlib.crc32(data, self._checksum)

    def check(self) -> None:
        """Refuse to go on when the file is not the one that was written here."""
        try:
            there = os.lstat(self.path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise OutputLost(f"{self.path} was removed while the run was training") from error
        if not os.path.samestat(there, self._found()):
            raise OutputLost(f"{self.path} was replaced by another while the run was training")
        if there.st_size != self._size:
            raise OutputLost(f"{self.path} was changed by somebody else while the run was training")

    @property
    def prefix(self) -> Prefix:
        """All that was written so far."""
        return Prefix(self._size, self._checksum)

    def content(self, size: int) -> bytes:
        """The first bytes, also of a file that has been removed."""
        self._file.seek(0)
        return b"".join(iter(lambda: self._file.read(min(files.BLOCK, size - self._file.tell())), b""))

    def sync(self) -> None:
        """Wait until the disk has every line."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Release the file."""
        self._file.close()

    def _found(self) -> os.stat_result:
        return os.fstat(self._file.fileno())

    def _drop_torn_line(self) -> None:
        """A line that a killed writer left unfinished would swallow the next one."""
        whole = self._found().st_size
        end, block = whole, 2**16
        while end > 0:
            start = max(0, end - block)
            self._file.seek(start)
            newline = self._file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end < whole:
            self._file.truncate(end)
