"""A run on disk: `<root>/<env>/<method>/<time>-<id>/`.

    manifest.json        what was asked for and what it ran on; written once
    *.jsonl              metrics, append-only
    checkpoints/<step>/  all that resuming needs, the last few
    lock                 held while a process trains here

Reading needs no lock. Writing happens inside `with run:`, which holds it. A resumed run first cuts its JSONL files back to where they were
at the checkpoint, so they end up the same as those of a run that was never interrupted. Before anything is written, what was written before
must still be there. The clock and the randomness of names live here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import re
import secrets
import stat
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, cast, final

from jaxtyping import PyTree

from emc import files
from emc.errors import CheckpointError, FileError, OutputLost, RunError, UserError
from emc.files import explained
from emc.runs.identity import NUMBER, SEAL, identity_of, is_as_sealed, lines_path, must_continue, new_number, own, said_at, seal_of
from emc.runs.jsonl import JsonlFile, Prefix, at, plain, revived
from emc.runs.lock import Lock
from emc.runs.reading import FORMS, METRICS, Line, is_whole, read_lines
from emc.runs.trust import Trust, Trusted
from emc.training import checkpoint

FORMAT, VERSION = "emc-run", 1
MANIFEST, CHECKPOINTS, LOCK = "manifest.json", "checkpoints", "lock"
NONE_YET = "none-yet.json"  # among the checkpoints until there is one: whoever finds lines and neither knows that checkpoints were removed
EPISODE, TABLE = "episode.gif", "metrics.csv"  # that `emc render` draws, and a logger writes
EVENTS, WANDB = "tensorboard", "wandb"  # folders of other loggers
OWN_FOLDERS = (CHECKPOINTS, EVENTS, WANDB)  # with no runs in them


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

    def __init__(self, path: Path, manifest: dict[str, Any], trust: Trust = Trust()) -> None:
        self.path, self.manifest = path, manifest
        self.trust = trust  # which code outside the package its manifest may name
        self.patience = 0.0  # seconds to wait for another process that trains here
        self._lock: Lock | None = None
        self._files: dict[str, JsonlFile] = {}
        self._saved: dict[Path, os.stat_result] = {}  # checkpoints that this process has found or written, and their folder
        self._described: tuple[bytes, os.stat_result] | None = None  # the manifest while this process trains here

    @classmethod
    def create(
        cls, root: str | os.PathLike[str], env_name: str, method_name: str, manifest: Mapping[str, Any], name: str = "", trust: Trusted = ()
    ) -> RunDirectory:
        """Make a new run directory; it appears with its manifest or not at all."""
        now = datetime.datetime.now(datetime.UTC)
        name = folder_name(name or new_name())
        path = Path(root) / folder_name(env_name) / folder_name(method_name) / name
        header = {"format": FORMAT, "version": VERSION, "id": name, NUMBER: new_number(), "created": f"{now:%Y-%m-%dT%H:%M:%SZ}"}
        header |= {"env_name": env_name, "method_name": method_name}
        if clash := {*header, SEAL} & manifest.keys():
            raise ValueError(f"a run's manifest sets {', '.join(sorted(clash))} by itself")
        document = header | plain(manifest)
        document[SEAL] = seal_of(document)
        with explained(Path(root)), files.made_whole(path) as beside:
            files.write_json(beside / MANIFEST, document)
        return cls(path, revived(document), Trust.of(trust))

    @classmethod
    def open(cls, path: str | os.PathLike[str], trust: Trusted = ()) -> RunDirectory:
        """An existing run directory."""
        path = Path(path)
        try:
            there, inside = path.is_dir(), files.is_there(path / MANIFEST)
            if not there:
                raise RunError(f"{path}: no such directory. Name a run directory, like runs/<env>/<method>/<time>-<id>.")
            if not inside:
                raise RunError(f"{path}: not a run directory, it has no {MANIFEST}. Name one like runs/<env>/<method>/<time>-<id>.")
            files.must_be_own(path, [LOCK, *OWN_FOLDERS, EPISODE, TABLE, *FORMS])
            document = files.parsed(files.content_of(path / MANIFEST, "manifest"))
            found, version = document["format"], document["version"]
        except OSError as error:
            raise RunError(f"{path}: {MANIFEST} cannot be read ({error.strerror}).") from error
        except UserError:
            raise
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{path}: {MANIFEST} is damaged or not ours. Restore it, or name another run directory.") from error
        if found != FORMAT:
            raise RunError(f"{path}: {MANIFEST} is not of the format {FORMAT}. Name a run directory that emc made.")
        if version != VERSION:
            raise RunError(f"{path}: has run format version {version!a:.40}, this emc reads {VERSION}. Use the emc that made it.")
        if not is_as_sealed(document):
            raise RunError(f"{path}: {MANIFEST} was changed after the run began, its seal is broken. Restore it, or start a new run.")
        return cls(path, revived(document), Trust.of(trust))

    def __enter__(self) -> RunDirectory:
        """Take the lock, and clear away what a killed process left."""
        with explained(self.path):
            files.must_be_own(self.path, [LOCK, CHECKPOINTS])
            self._lock = Lock(self.path / LOCK, self.patience)
            try:
                self._described = self._manifest_now()
                self._tidy()
                self._note_checkpoints()
            except (OSError, FileError):
                self._release()
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Make the metrics durable and let go of the lock."""
        try:
            with contextlib.nullcontext() if kind is None else contextlib.suppress(UserError):
                self.sync()
        finally:
            self._release()

    def append(self, lines: Iterable[Mapping[str, Any]], file: str = METRICS) -> None:
        """Add lines to a JSONL file: all of them, or none."""
        self.check()
        with explained(self.path / file):
            self._opened(file).append(lines)

    def check(self) -> None:
        """Refuse to go on when what this process has written, or its lock, is no longer there as it left it."""
        if self._lock is None:
            raise RuntimeError("write to a run inside `with run:`")
        with explained(self.path):
            self._lock.check()
            for file in self._files.values():
                file.check()
            for folder, known in self._saved.items():
                if not (files.is_there(folder) and _is_same(os.lstat(folder), known)):
                    raise OutputLost(f"{folder} was removed while the run was training")
            self._check_manifest()

    def sync(self) -> None:
        """Wait until the disk has every line appended."""
        self.check()
        with explained(self.path):
            for file in self._files.values():
                file.sync()
            files.sync_directory(self.path)

    def lines(self, file: str = METRICS, most: int | None = None) -> list[Line]:
        """All lines of one of its files, or the first of them, which must be of its own seeds; none if it has not got that far."""
        seeds = at(self.manifest.get("config"), "seeds")
        return read_lines(self.path / file, {*filter(is_whole, cast(list[Any], seeds))} if isinstance(seeds, list) else None, most)

    def sizes(self) -> dict[str, int]:
        """Bytes in each of its JSONL files; what else is there is somebody else's."""
        paths = [self.path / name for name in sorted({*FORMS, *self._files})]
        return {path.name: os.lstat(path).st_size for path in paths if files.is_there(path)}

    def prefixes(self) -> dict[str, Prefix]:
        """Each JSONL file as far as it is written."""
        with explained(self.path):
            return {name: self._opened(name).prefix for name in self.sizes()}

    def written(self) -> dict[str, Prefix]:
        """The same of those that this process has opened, as it remembers them: whatever has become of them since."""
        return {name: file.prefix for name, file in self._files.items()}

    def truncate(self, sizes: Mapping[str, int]) -> None:
        """Cut the JSONL files back to earlier sizes; files younger than that are removed, and `{}` starts afresh."""
        self.check()
        paths = {lines_path(self.path, name): size for name, size in sizes.items()}
        with explained(self.path):
            for path, size in paths.items():
                found = os.lstat(path).st_size if files.is_there(path) else 0
                if not 0 <= size <= found:
                    raise RunError(f"{path}: has {found} bytes, but had {size} at the checkpoint. Restore it, or start a new run.")
            self._close_files()
            for path in [self.path / name for name in self.sizes()]:
                if path not in paths:
                    path.unlink()
                    continue
                descriptor = files.open_to_write(path)
                try:
                    os.ftruncate(descriptor, paths[path])
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
            files.sync_directory(self.path)
        self.prefixes()  # from here on they are watched

    def begin(self) -> None:
        """Note that there is no checkpoint yet, before the first line is written."""
        self.check()
        folder = self.path / CHECKPOINTS
        with explained(folder):
            folder.mkdir(exist_ok=True)
            files.must_be_folder(folder)
            if not awaits_first_checkpoint(self.path, self.manifest):  # one that does keeps its note: a kill right here must not lose it
                files.remove(folder / NONE_YET)
                files.write_json(folder / NONE_YET, identity_of(self.manifest))
            files.sync_directory(folder)
            files.sync_directory(self.path)
            self._note_checkpoints()

    def save_checkpoint(self, step: int, tree: PyTree, meta: Mapping[str, Any], keep: int = 2) -> None:
        """Write a checkpoint, then remove all but the last `keep`, and any of a later step: a future that was abandoned."""
        if step < 0 or keep < 1:
            raise ValueError(f"step={step} must be at least 0 and keep={keep} at least 1")
        self.sync()
        with explained(self.path / CHECKPOINTS):
            self._tidy()
            try:
                prefixes = self.prefixes()
            except FileError as error:  # what others have put in the place of a file that was not there yet
                raise OutputLost(str(error).removesuffix(".")) from error
            checkpoint.save(self._checkpoint_path(step), tree, said_at(self.manifest, step, meta, prefixes))
            files.remove(self.path / CHECKPOINTS / NONE_YET)
            steps = self.steps()
            kept = [known for known in steps if known <= step][-keep:]
            for old in set(steps) - set(kept):
                files.remove(self._checkpoint_path(old))
            self._note_checkpoints()

    def rescue(self, step: int, tree: PyTree, meta: Mapping[str, Any], prefixes: Mapping[str, Prefix]) -> Path:
        """The run as it was at some moment, in a new directory beside this one, of which files have vanished."""
        path = self.path.with_name(f"{self.path.name}-rescued-{secrets.token_hex(2)}")
        with explained(path), files.made_whole(path) as beside:
            files.write_json(beside / MANIFEST, plain(self.manifest))
            for name, prefix in prefixes.items():
                content = self._files[name].content(prefix.size)
                if zlib.crc32(content) != prefix.checksum:
                    raise RunError(f"{self.path / name} was overwritten, and its lines are lost")
                with files.new_file(beside / name) as file:
                    file.write(content)
                    files.sync(file)
            checkpoint.save(beside / CHECKPOINTS / f"{step:012d}", tree, said_at(self.manifest, step, meta, prefixes))
        return path

    def latest_checkpoint(self, like: PyTree, check: Callable[[int, PyTree, dict[str, Any]], None] = lambda *_: None) -> Restored:
        """The newest good checkpoint, in the structure of `like`; `check` may refuse one for what is in it."""
        warnings: list[str] = []
        for step in reversed(self.steps()):
            folder = self._checkpoint_path(step)
            try:
                tree, content = checkpoint.load(folder, like)
                meta, prefixes = own(folder, self.manifest, content)
                check(step, tree, meta)
            except CheckpointError as error:
                warnings.append(str(error))
                continue
            must_continue(self.path, folder, prefixes)
            return Restored(step, tree, meta, {name: prefix.size for name, prefix in prefixes.items()}, warnings)
        if not warnings and self.sizes() and not awaits_first_checkpoint(self.path, self.manifest):
            raise RunError(f"{self.path}: its checkpoints are gone, so its agents cannot be loaded. Put them back, or train again.")
        if not warnings:
            raise RunError(f"{self.path}: has no checkpoint yet. Wait for its first one, or begin it again with `emc resume`.")
        raise RunError(f"{self.path}: no checkpoint can be used. The newest: {warnings[0]}")

    def must_belong_together(self) -> None:
        """Refuse a run whose newest checkpoint is of another run or saw other lines; nothing is read of its arrays.

        A checkpoint that cannot be read is no reason: the one before it will serve.
        """
        for step in reversed(self.steps()):
            folder = self._checkpoint_path(step)
            try:
                content = checkpoint.described(folder)["meta"]
            except CheckpointError:
                continue
            try:
                _, prefixes = own(folder, self.manifest, content)
            except CheckpointError as error:
                raise RunError(str(error)) from error
            must_continue(self.path, folder, prefixes)
            return

    def steps(self) -> list[int]:
        """Steps that have a checkpoint, oldest first."""
        return sorted(int(path.name) for path in (self.path / CHECKPOINTS).glob("*") if re.fullmatch("[0-9]{12}", path.name))

    def _checkpoint_path(self, step: int) -> Path:
        return self.path / CHECKPOINTS / f"{step:012d}"

    def _opened(self, name: str) -> JsonlFile:
        if name not in self._files:
            self._files[name] = JsonlFile(lines_path(self.path, name))
        return self._files[name]

    def _tidy(self) -> None:
        """Clear away what killed writers left among the checkpoints, and nothing of anybody else's."""
        checkpoint.tidy(self.path / CHECKPOINTS, "[0-9]" * 12)

    def _note_checkpoints(self) -> None:
        folders = [path for path in (self.path / CHECKPOINTS, *map(self._checkpoint_path, self.steps())) if files.is_there(path)]
        for path in folders:
            files.must_be_folder(path)
        inside = [path / name for path in folders for name in (checkpoint.ARRAYS, checkpoint.DESCRIPTION)]
        self._saved = {path: os.lstat(path) for path in [*folders, *filter(files.is_there, inside)]}

    def _manifest_now(self) -> tuple[bytes, os.stat_result]:
        return files.content_of(self.path / MANIFEST, "manifest"), os.lstat(self.path / MANIFEST)

    def _check_manifest(self) -> None:
        """One that was written anew with the same content is the same."""
        path = self.path / MANIFEST
        if self._described is None:
            return
        content, known = self._described
        try:
            now = os.lstat(path)
            if not os.path.samestat(now, known) or (now.st_size, now.st_mtime_ns) != (known.st_size, known.st_mtime_ns):
                anew = self._manifest_now()
                if anew[0] != content:
                    raise OutputLost(f"{path} was changed by somebody else while the run was training")
                self._described = anew
        except (FileNotFoundError, NotADirectoryError, FileError) as error:
            raise OutputLost(f"{path} was removed while the run was training") from error

    def _close_files(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _release(self) -> None:
        self._close_files()
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def awaits_first_checkpoint(path: Path, manifest: Mapping[str, Any]) -> bool:
    """Whether a run has noted that it has never had a checkpoint; a note of another run says nothing."""
    try:
        return files.parsed(files.content_of(path / CHECKPOINTS / NONE_YET, "description")) == identity_of(manifest)
    except (OSError, ValueError):
        return False


def must_be_outside_runs(path: Path) -> None:
    """Refuse to write something else in the place of a run's own files, which nothing could bring back."""
    try:
        place = path.parent.resolve() / path.name  # whatever links and dots lead there
    except RuntimeError as error:  # as Python before 3.13 says it
        raise RunError(f"{path}: a link on the way there leads to itself. Name another file.") from error
    own = {MANIFEST, LOCK, *OWN_FOLDERS, TABLE, *FORMS}
    if any(place.relative_to(folder).parts[0] in own and _is_run(folder) for folder in place.parents):
        raise RunError(f"{path}: is a file of a run, and would be lost. Name another one.")


def _is_run(folder: Path) -> bool:
    """Whether a folder has the manifest of a run, be it damaged."""
    try:
        document = files.parsed(files.content_of(folder / MANIFEST, "manifest"))
    except OSError:
        return False
    except ValueError:
        return True
    return isinstance(document, dict) and cast(dict[str, Any], document).get("format") == FORMAT


def _is_same(one: os.stat_result, other: os.stat_result) -> bool:
    """Whether two looks found the same thing; a number that has become free may soon be that of something else, so its kind counts too."""
    return os.path.samestat(one, other) and stat.S_IFMT(one.st_mode) == stat.S_IFMT(other.st_mode)


def new_name() -> str:
    """A name that no other run has, in the order of time."""
    return f"{datetime.datetime.now(datetime.UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def folder_name(name: str) -> str:
    """A name as one path component."""
    folder = re.sub(r"[^A-Za-z0-9_.+=,-]+", "-", name).strip(".-")
    if not folder:
        raise RunError(f"{name!a:.80} cannot name a directory. Use a name with letters or digits.")
    return folder
