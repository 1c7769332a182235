"""Every file of a run is opened here: regular files only, links not followed, no more bytes than its kind may have.

What is anything else is refused in one line. So nothing that a stranger put into a run directory makes a command wait (a pipe), read for
ever (a device, a sparse file) or write somewhere else (a link). Here is also how files come to be: whole, and on the disk.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from emc.errors import FileError, RunError

MIB = 2**20
MOST_BYTES = {  # that a file of a kind may have: far above any real one, far below what could exhaust memory
    "manifest": 16 * MIB,
    "description": 64 * MIB,  # of a checkpoint
    "lines": 128 * MIB,  # where all of them are read at once
    "line": 32 * MIB,
    "picture": 128 * MIB,
    "sweep": 1 * MIB,
    "table": 16 * MIB,
}
MOST_LEVELS = 64  # of lists and objects inside one another
BLOCK = 4 * MIB
NOT_A_LINK = getattr(os, "O_NOFOLLOW", 0)
AT_ONCE = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


# Reading.


def opened(path: Path, most: int | None = None) -> BinaryIO:
    """A regular file, open for reading; an `OSError` if there is none, a refusal if it is something else or larger than it may be."""
    _must_be_regular(path, os.lstat(path))  # before opening, which may already do something where it is a device
    descriptor = _open(path, os.O_RDONLY)
    try:
        known = os.fstat(descriptor)
        _must_be_regular(path, known)
        if most is not None and known.st_size > most:
            raise FileError(f"{path}: has {known.st_size:,} bytes, more than the {most:,} that it may have. It is not one of ours.")
    except BaseException:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def content_of(path: Path, kind: str) -> bytes:
    """All of a small file of a kind."""
    with opened(path, MOST_BYTES[kind]) as file:
        return file.read(MOST_BYTES[kind] + 1)  # it may be growing


def parsed(content: bytes) -> Any:
    """What JSON says; a `ValueError` for what is none, or nested deeper than anything that emc writes."""
    try:
        value = json.loads(content)
    except (RecursionError, MemoryError) as error:
        raise ValueError("too deep or too large") from error
    if content.count(b"[") + content.count(b"{") < MOST_LEVELS:  # most lines: nothing in them can be too deep
        return value
    level = [value]
    for _ in range(MOST_LEVELS):
        level = [inner for one in level for inner in _inside(one)]
        if not level:
            return value
    raise ValueError("too deep")


def _inside(value: Any) -> Iterator[Any]:
    """The lists and objects directly inside a value."""
    items: Any = cast(dict[str, Any], value).values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (item for item in items if isinstance(item, dict | list))


def is_there(path: Path) -> bool:
    """Whether there is anything of that name, be it a link that leads nowhere."""
    return os.path.lexists(path)


def must_be_own(folder: Path, names: Iterator[str] | list[str]) -> None:
    """Refuse a folder with a link among these names: what is read or written there would be somewhere else."""
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISLNK(os.lstat(folder / name).st_mode):
                raise FileError(f"{folder / name}: is a link, and a run's files must be its own. Put there what it leads to, or remove it.")


def must_be_folder(path: Path) -> None:
    """Refuse to work in what is no folder, or a link to one."""
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        raise FileError(f"{path}: is not a folder of its own. Remove it, or choose another directory.")


def _must_be_regular(path: Path, known: os.stat_result) -> None:
    if stat.S_ISLNK(known.st_mode):
        raise FileError(f"{path}: is a link, and a run's files must be its own. Put there what it leads to, or remove it.")
    if not stat.S_ISREG(known.st_mode):
        kind = "a folder" if stat.S_ISDIR(known.st_mode) else "a pipe or a device"
        raise FileError(f"{path}: is {kind}, not a file. Remove it, or name another one.")


def _open(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | NOT_A_LINK | AT_ONCE, 0o644)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):  # what systems say of a link that may not be followed
            raise FileError(f"{path}: is a link, and a run's files must be its own. Put there what it leads to, or remove it.") from error
        raise


# Writing.


def open_to_write(path: Path, flags: int = 0) -> int:
    """A regular file that has no other name, open for reading and writing; it is made if it is not there."""
    with contextlib.suppress(FileNotFoundError):
        _must_be_regular(path, os.lstat(path))
    descriptor = _open(path, os.O_RDWR | os.O_CREAT | flags)
    try:
        known = os.fstat(descriptor)
        _must_be_regular(path, known)
        if known.st_nlink > 1:
            raise FileError(f"{path}: is also known under another name (a hard link), which would change with it. Put a copy in its place.")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def write_json(path: Path, document: Any) -> None:
    """Write a new JSON document and wait for the disk."""
    with new_file(path) as file:
        file.write(json.dumps(document, allow_nan=False, indent=1).encode() + b"\n")
        sync(file)


def new_file(path: Path) -> BinaryIO:
    """A file that was not there before, open for writing."""
    return os.fdopen(_open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb")


def remove(path: Path) -> None:
    """Remove whatever has that name: a folder with all that is in it, a file, or a link but not what it leads to."""
    try:
        folder = stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return
    if not folder:
        path.unlink()
        return
    _clear(path)
    path.rmdir()


def _clear(folder: Path) -> None:
    """Remove all that is in a folder, however deep: what its folders hold is moved up to it first, so that no path becomes too long."""
    while inside := [*folder.iterdir()]:
        for entry in inside:
            if entry.is_symlink() or not entry.is_dir():
                entry.unlink()
                continue
            for inner in [*entry.iterdir()]:
                inner.rename(folder / secrets.token_hex(8))
            entry.rmdir()


def sync(file: BinaryIO) -> None:
    """Wait until the disk has what was written."""
    file.flush()
    os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Wait until the disk has the names in a directory (Windows does this by itself)."""
    if sys.platform != "win32":
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def made_whole(path: Path) -> Generator[Path]:
    """A directory that is filled under another name and then renamed; on failure nothing of it, nor any new parent, remains."""
    beside = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    new = [parent for parent in beside.parents if not parent.exists()]
    try:
        remove(beside)  # of a process that had the same number
        beside.mkdir(parents=True)
        yield beside
        sync_directory(beside)
        beside.rename(path)
        beside = path
        for parent in [path.parent, *(folder.parent for folder in new)]:  # a name is on the disk once its folder is
            sync_directory(parent)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        _take_back(new)
        raise


def _take_back(folders: Sequence[Path]) -> None:
    """Remove folders that were made for something that then was not made, innermost first; one that others use now stays."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


@contextlib.contextmanager
def written_whole(path: Path) -> Generator[Path]:
    """A file that is written under another name, reaches the disk, and is then renamed; on failure nothing of it remains.

    What has its name already must be a file: renaming would put one in the place of a pipe or a device, for root even of /dev/null, and a
    link would be lost.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise FileError(f"{path}: is there and is not a file (but a folder, a link, a pipe or a device). Name another one.")
    beside = path.with_name(f".{path.name[:200]}.tmp-{os.getpid()}")
    new = [parent for parent in beside.parents if not parent.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove(beside)
        new_file(beside).close()  # ours, so that whoever writes it by its name follows no link
        yield beside
        with beside.open("r+b") as file:
            sync(file)
        beside.replace(path)
        new, made = [], new
        for parent in [path.parent, *(folder.parent for folder in made)]:  # a name is on the disk once its folder is
            sync_directory(parent)
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        _take_back(new)


def must_take(path: Path) -> None:
    """Find out now whether a file can be written there later, and leave nothing behind."""
    with contextlib.suppress(_Tried), explained(path), written_whole(path):
        with contextlib.suppress(FileNotFoundError):
            os.lstat(path)  # its folder is there now: is its name one that the system takes?
        raise _Tried


class _Tried(Exception):
    """Nothing was to be written."""


@contextlib.contextmanager
def explained(path: Path) -> Generator[None]:
    """Turn what the operating system refuses into one line that says what to do."""
    try:
        yield
    except OSError as error:
        match error.errno:
            case errno.ENOSPC | errno.EDQUOT:
                advice = "Free some space there, or choose another directory."
            case errno.EACCES | errno.EPERM | errno.EROFS:
                advice = "Choose a directory that you may write to."
            case errno.ENOTDIR | errno.EEXIST:
                advice = "A file stands where a directory should: choose another directory."
            case _:
                advice = "Check the disk, or choose another directory."
        raise RunError(f"cannot write to {path}: {error.strerror or error}. {advice}") from error
    except ValueError as error:
        if "null byte" not in str(error):  # what Python says of a name that no system can have
            raise
        raise RunError(f"cannot write to {path}: a name has a zero byte in it. Choose another directory.") from error
