"""One run of a sweep, and what has become of it under a directory of runs."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import json
import shlex
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from emc.errors import UserError
from emc.runs.config import RunConfig, outside, to_json
from emc.runs.directory import CHECKPOINTS, MANIFEST, RunDirectory, folder_name
from emc.runs.jsonl import plain
from emc.runs.reading import METRICS, SPEED, last_line, last_lines, read_lines
from emc.runs.restoring import is_finished, is_resumable
from emc.runs.session import config_of
from emc.runs.trust import Trust, Trusted
from emc.statistics import final
from emc.user_input import in_one_line

SETTLED_SECONDS = 2  # after a change until a file system's clock is sure to show the next one


class State(enum.Enum):
    """What has become of a run."""

    MISSING = "to do"
    BEGUN = "to resume"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclasses.dataclass(frozen=True)
class Job:
    """One run: the words after `emc train`, and what they mean."""

    words: tuple[str, ...]
    config: RunConfig = dataclasses.field(compare=False)

    @property
    def name(self) -> str:
        """The command without `emc train`."""
        return in_one_line(shlex.join(self.words))

    @functools.cached_property
    def kind(self) -> Kind:
        """What tells it from other runs."""
        return Kind.of(self.config)

    @property
    def key(self) -> str:
        """What decides the run's numbers; two jobs with the same key are the same run."""
        return self.kind.key

    @property
    def folder(self) -> Path:
        """Where its run directories are, below the directory of runs."""
        return Path(folder_name(self.config.env_name)) / folder_name(self.config.method_name)


@dataclasses.dataclass(frozen=True)
class Kind:
    """What of a configuration tells runs apart."""

    key: str  # all that decides numbers
    kin: str  # the same without seeds and length: a longer run of it, or one of several seeds, says all that this one would
    seeds: tuple[int, ...]
    steps: int

    @classmethod
    def of(cls, config: RunConfig) -> Kind:
        """That of a run with this configuration."""
        document = plain(to_json(config))
        key = json.dumps(document, sort_keys=True)
        del document["seeds"], document["budget"]["steps"]
        return cls(key, json.dumps(document, sort_keys=True), config.seeds, config.budget.steps)


def trusted_by(jobs: Iterable[Job]) -> Trust:
    """The code outside the package that jobs name: whoever asks for them trusts it."""
    return Trust({source for job in jobs for source in outside(job.config)})


class Survey:
    """Run directories below a root, by what decides their numbers; reads a manifest once and lists a folder when it changes."""

    def __init__(self, root: Path, trust: Trusted = ()):
        self.root, self.trust = root, Trust.of(trust)
        self._folders: dict[Path, _Folder] = {}

    def look(self, job: Job) -> tuple[State, Path | None]:
        """What has become of a job, and its run: one that has all its steps if there is one, else one that can be resumed."""
        folder = self._folder(job)
        alike = folder.alike(job)
        same = {path for path in alike if folder.kinds[path].key == job.key}
        done = [path for path in alike if _is_done(path, job, folder.kinds[path])]
        found = max(done or filter(is_resumable, same), key=lambda path: (is_finished(path), steps_of(path), path.name), default=None)
        return State.DONE if done else State.BEGUN if found else State.MISSING, found

    def begun_with_others(self, job: Job) -> tuple[int, ...]:
        """The seeds of a run of several that was begun, can be resumed, and will have done this job; empty if there is none."""
        folder = self._folder(job)
        kinds = {path: folder.kinds[path] for path in folder.alike(job)}
        several = [path for path, kind in kinds.items() if kind.steps == job.config.budget.steps and _follow_one_another(kind.seeds)]
        furthest = max(filter(is_resumable, several), key=lambda path: (steps_of(path), path.name), default=None)
        return kinds[furthest].seeds if furthest else ()

    def find(self, job: Job) -> Path | None:
        """The run of a job, if there is one that is done or can be resumed."""
        return self.look(job)[1]

    def state(self, job: Job) -> State:
        """Whether a job is done, begun or missing."""
        return self.look(job)[0]

    def kin(self, job: Job) -> list[Path]:
        """All runs that differ from a job in nothing but seeds and length."""
        return [*self._folder(job).by_kin.get(job.kind.kin, ())]

    def leave_out(self, path: Path, why: str) -> None:
        """Count a run no longer, and say why with the others."""
        for folder in self._folders.values():
            if folder.kinds.pop(path, None):
                folder.unread[path] = why
                folder.index([*folder.kinds, *folder.unread])

    def left_out(self) -> str:
        """How many directories where jobs were looked for cannot be read, in one line; empty if there is none."""
        unread = {path: why for folder in self._folders.values() for path, why in folder.unread.items()}
        if not unread:
            return ""
        path, why = next(iter(unread.items()))
        count = "1 run directory" if len(unread) == 1 else f"{len(unread)} run directories"
        return (
            f"{count} below {self.root} cannot be read and will not be counted; the first: {why if str(path) in why else f'{path}: {why}'}"
        )

    def _folder(self, job: Job) -> _Folder:
        folder = self._folders.setdefault(job.folder, _Folder(self.root / job.folder, self.trust))
        folder.refresh()
        return folder


class _Folder:
    """The runs of one method on one environment."""

    def __init__(self, path: Path, trust: Trust):
        self.path, self.trust = path, trust
        self.kinds: dict[Path, Kind] = {}
        self.by_kin: dict[str, list[Path]] = {}
        self.by_seed: dict[tuple[str, int], list[Path]] = {}
        self.unread: dict[Path, str] = {}  # and why
        self._changed = 0  # when something last came or went; 0 if that may have happened since it was listed
        self._bare: list[Path] = []  # have no manifest yet: somebody may be copying them here

    def refresh(self) -> None:
        """List the runs, unless nothing has come or gone since."""
        try:
            changed = self.path.stat().st_mtime_ns
        except OSError:
            changed = 0
        if changed and changed == self._changed and not any(map(_has_manifest, self._bare)):
            return
        self._changed = changed if time.time_ns() - changed > SETTLED_SECONDS * 10**9 else 0
        inside = sorted(path for path in self.path.glob("*") if path.is_dir() and ".tmp-" not in path.name)
        there = [path for path in inside if _has_manifest(path)]
        self._bare = sorted({*inside} - {*there})
        if there != sorted([*self.kinds, *self.unread]):
            self.index(there)

    def alike(self, job: Job) -> list[Path]:
        """All runs that differ from a job in nothing but length and further seeds."""
        return [
            path for path in self.by_seed.get((job.kind.kin, job.config.seeds[0]), ()) if {*self.kinds[path].seeds} >= {*job.kind.seeds}
        ]

    def index(self, there: Sequence[Path]) -> None:
        """Find the runs that are there by what they are; those that are known are not read again."""
        known = self.kinds | self.unread
        read = {path: known[path] if path in known else _kind_of(path, self.trust) for path in there}
        self.kinds = {path: kind for path, kind in read.items() if isinstance(kind, Kind)}
        self.unread = {path: why for path, why in read.items() if isinstance(why, str)}
        self.by_kin, self.by_seed = {}, {}
        for path, kind in self.kinds.items():
            self.by_kin.setdefault(kind.kin, []).append(path)
            for seed in kind.seeds:
                self.by_seed.setdefault((kind.kin, seed), []).append(path)


def _has_manifest(path: Path) -> bool:
    return (path / MANIFEST).exists()


def _is_done(path: Path, job: Job, kind: Kind) -> bool:
    if kind.key == job.key and (path / CHECKPOINTS).is_dir():
        return is_finished(path)
    if kind.steps >= job.config.budget.steps and is_finished(path):
        return True
    # A longer run, one of further seeds, or lines that were kept without their checkpoints.
    return steps_of(path) >= job.config.budget.steps and (
        len(kind.seeds) == 1 or _slowest(path, job.config.seeds) >= job.config.budget.steps
    )


def _follow_one_another(seeds: Sequence[int]) -> bool:
    """Several seeds as `emc train --seed --seeds` names them."""
    return len(seeds) > 1 and [*seeds] == [*range(seeds[0], seeds[0] + len(seeds))]


def _slowest(run: Path, seeds: Iterable[int]) -> int:
    """Environment steps at the last test of the one of these seeds that is behind the others; SPEED knows the one that is ahead."""
    last: dict[int, int] = {}
    with contextlib.suppress(UserError):
        last = {line["seed"]: line["steps"] for line in read_lines(run / METRICS) if line["kind"] == "eval"}
    return min(last.get(seed, 0) for seed in seeds)


def _kind_of(path: Path, trust: Trust) -> Kind | str:
    """What a run is, or why nobody can say: not ours, or damaged, or code that is not trusted."""
    try:
        run = RunDirectory.open(path, trust)
        run.must_belong_together()
        return Kind.of(config_of(run))
    except UserError as error:
        return str(error)


def steps_of(run: Path) -> int:
    """Environment steps at the last test of a run."""
    line = last_line(run / SPEED)
    return line["steps"] if line else 0


def score_of(run: Path, winnable: bool) -> float | None:
    """The win rate or return of a run so far: the median over seeds of the mean of their last tests; None before the first."""
    tests: dict[int, list[float]] = {}
    for line in last_lines(run / METRICS):
        if line["kind"] == "eval":
            values: list[float] = line["won" if winnable else "return"]
            tests.setdefault(line["seed"], []).append(sum(values) / len(values))
    return statistics.median(map(final, tests.values())) if tests else None
