"""A run on disk: `<root>/<env>/<method>/<time>-<id>/`.

    manifest.json        what was asked for and what it ran on; written once
    *.jsonl              metrics, append-only
    checkpoints/<step>/  all that resuming needs, the last few
    lock                 held while a process trains here

Reading needs no lock. Writing happens inside `with run:`, which holds it. A resumed run first cuts its JSONL files back to where they were
at the checkpoint, so they end up the same as those of a run that was never interrupted. The clock and the randomness of names live here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import json
import os
import re
import secrets
import shutil
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, final

from jaxtyping import PyTree

from emc.errors import CheckpointError, RunError
from emc.runs.jsonl import JsonlFile, plain, revived
from emc.runs.lock import Lock
from emc.training import checkpoint

FORMAT, VERSION = "emc-run", 1
MANIFEST, METRICS, CHECKPOINTS, LOCK = "manifest.json", "metrics.jsonl", "checkpoints", "lock"
EPISODE = "episode.gif"  # that `emc render` draws


@dataclasses.dataclass(frozen=True)
class Restored:
    """A checkpoint that was found good."""

    step: int
    tree: PyTree
    meta: dict[str, Any]
    sizes: dict[str, int]  # of the JSONL files when it was written, for `RunDirectory.truncate`
    warnings: list[str]  # one line for each newer checkpoint that had to be refused


@final
class RunDirectory:
    """One run; `with run:` trains in it."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path, self.manifest = path, manifest
        self.patience = 0.0  # seconds to wait for another process that trains here
        self._lock: Lock | None = None
        self._files: dict[str, JsonlFile] = {}

    @classmethod
    def create(
        cls, root: str | os.PathLike[str], env_name: str, method_name: str, manifest: Mapping[str, Any], name: str = ""
    ) -> RunDirectory:
        """Make a new run directory; it appears with its manifest or not at all."""
        now = datetime.datetime.now(datetime.UTC)
        name = folder_name(name or new_name())
        path = Path(root) / folder_name(env_name) / folder_name(method_name) / name
        header = {"format": FORMAT, "version": VERSION, "id": name, "created": f"{now:%Y-%m-%dT%H:%M:%SZ}"}
        header |= {"env_name": env_name, "method_name": method_name}
        if clash := header.keys() & manifest.keys():
            raise ValueError(f"a run's manifest sets {', '.join(sorted(clash))} by itself")
        document = header | plain(manifest)
        with explained(Path(root)), made_whole(path) as beside:
            checkpoint.write_durably(beside / MANIFEST, document)
        return cls(path, revived(document))

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RunDirectory:
        """An existing run directory."""
        path = Path(path)
        if not path.is_dir():
            raise RunError(f"{path}: no such directory. Name a run directory, like runs/<env>/<method>/<time>-<id>.")
        if not (path / MANIFEST).is_file():
            raise RunError(f"{path}: not a run directory, it has no {MANIFEST}. Name one like runs/<env>/<method>/<time>-<id>.")
        try:
            document = revived(json.loads((path / MANIFEST).read_bytes()))
            found, version = document["format"], document["version"]
        except OSError as error:
            raise RunError(f"{path}: {MANIFEST} cannot be read ({error.strerror}).") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise RunError(f"{path}: {MANIFEST} is damaged or not ours. Restore it, or name another run directory.") from error
        if found != FORMAT:
            raise RunError(f"{path}: {MANIFEST} is not of the format {FORMAT}. Name a run directory that emc made.")
        if version != VERSION:
            raise RunError(f"{path}: has run format version {version!a:.40}, this emc reads {VERSION}. Use the emc that made it.")
        return cls(path, document)

    def __enter__(self) -> RunDirectory:
        """Take the lock, and clear away what a killed process left."""
        with explained(self.path):
            self._lock = Lock(self.path / LOCK, self.patience)
            try:
                checkpoint.tidy(self.path / CHECKPOINTS)
            except OSError:
                self._release()
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Make the metrics durable and let go of the lock."""
        try:
            with contextlib.nullcontext() if kind is None else contextlib.suppress(RunError):
                self.sync()
        finally:
            self._release()

    def append(self, lines: Iterable[Mapping[str, Any]], file: str = METRICS) -> None:
        """Add lines to a JSONL file: all of them, or none."""
        self._must_hold_lock()
        with explained(self.path / file):
            if file not in self._files:
                self._files[file] = JsonlFile(self._jsonl_path(file))
            self._files[file].append(lines)

    def sync(self) -> None:
        """Wait until the disk has every line appended."""
        with explained(self.path):
            for file in self._files.values():
                file.sync()
            checkpoint.sync_directory(self.path)

    def sizes(self) -> dict[str, int]:
        """Bytes in each JSONL file."""
        return {path.name: path.stat().st_size for path in sorted(self.path.glob("*.jsonl"))}

    def truncate(self, sizes: Mapping[str, int]) -> None:
        """Cut the JSONL files back to earlier sizes; files younger than that are removed, and `{}` starts afresh."""
        self._must_hold_lock()
        paths = {self._jsonl_path(name): size for name, size in sizes.items()}
        with explained(self.path):
            for path, size in paths.items():
                found = path.stat().st_size if path.exists() else 0
                if not 0 <= size <= found:
                    raise RunError(f"{path}: has {found} bytes, but had {size} at the checkpoint. Restore it, or start a new run.")
            self._close_files()
            for path in sorted(self.path.glob("*.jsonl")):
                if path in paths:
                    os.truncate(path, paths[path])
                else:
                    path.unlink()

    def save_checkpoint(self, step: int, tree: PyTree, meta: Mapping[str, Any], keep: int = 2) -> None:
        """Write a checkpoint, then remove all but the last `keep`, and any of a later step: a future that was abandoned."""
        self._must_hold_lock()
        if step < 0 or keep < 1:
            raise ValueError(f"step={step} must be at least 0 and keep={keep} at least 1")
        self.sync()
        with explained(self.path / CHECKPOINTS):
            content = {"step": step, "sizes": self.sizes(), "meta": plain(meta)}
            checkpoint.tidy(self.path / CHECKPOINTS)
            checkpoint.save(self._checkpoint_path(step), tree, content)
            steps = self.steps()
            kept = [known for known in steps if known <= step][-keep:]
            for old in set(steps) - set(kept):
                shutil.rmtree(self._checkpoint_path(old))

    def latest_checkpoint(self, like: PyTree) -> Restored:
        """The newest good checkpoint, in the structure of `like`."""
        warnings: list[str] = []
        for step in reversed(self.steps()):
            try:
                tree, content = checkpoint.load(self._checkpoint_path(step), like)
                meta, sizes = dict(content["meta"]), {str(name): int(size) for name, size in content["sizes"].items()}
                return Restored(step, tree, revived(meta), sizes, warnings)
            except CheckpointError as error:
                warnings.append(str(error))
            except (KeyError, TypeError, ValueError, AttributeError):
                warnings.append(f"{self._checkpoint_path(step)}: was not written by a run.")
        if not warnings:
            raise RunError(f"{self.path}: has no checkpoint yet. Wait for its first one, or begin it again with `emc resume`.")
        raise RunError(f"{self.path}: no checkpoint can be used. The newest: {warnings[0]}")

    def steps(self) -> list[int]:
        """Steps that have a checkpoint, oldest first."""
        return sorted(int(path.name) for path in (self.path / CHECKPOINTS).glob("*") if re.fullmatch("[0-9]{12}", path.name))

    def _checkpoint_path(self, step: int) -> Path:
        return self.path / CHECKPOINTS / f"{step:012d}"

    def _jsonl_path(self, name: str) -> Path:
        """Checked, since sizes may come from a stranger's checkpoint."""
        if not re.fullmatch(r"[A-Za-z0-9_-]+\.jsonl", name):
            raise RunError(f"{name!a:.80} is not a name for a metrics file. Use letters, digits, - and _, ending in .jsonl.")
        return self.path / name

    def _must_hold_lock(self) -> None:
        if self._lock is None:
            raise RuntimeError("write to a run inside `with run:`")

    def _close_files(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _release(self) -> None:
        self._close_files()
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def new_name() -> str:
    """A name that no other run has, in the order of time."""
    return f"{datetime.datetime.now(datetime.UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def folder_name(name: str) -> str:
    """A name as one path component."""
    folder = re.sub(r"[^A-Za-z0-9_.+=,-]+", "-", name).strip(".-")
    if not folder:
        raise RunError(f"{name!a:.80} cannot name a directory. Use a name with letters or digits.")
    return folder


@contextlib.contextmanager
def made_whole(path: Path) -> Generator[Path]:
    """A directory that is filled under another name and then renamed; on failure nothing of it, nor any new parent, remains."""
    beside = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    new = [parent for parent in (beside, *beside.parents) if not parent.exists()]
    try:
        beside.mkdir(parents=True)
        yield beside
        checkpoint.sync_directory(beside)
        beside.rename(path)
        checkpoint.sync_directory(path.parent)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        with contextlib.suppress(OSError):
            for parent in new[1:]:
                parent.rmdir()
        raise


@contextlib.contextmanager
def written_whole(path: Path) -> Generator[Path]:
    """A file that is written under another name, reaches the disk, and is then renamed; on failure nothing of it remains."""
    beside = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield beside
        with beside.open("r+b") as file:
            checkpoint.sync(file)
        beside.replace(path)
        checkpoint.sync_directory(path.parent)
    finally:
        beside.unlink(missing_ok=True)


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
