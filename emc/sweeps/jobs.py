"""One run of a sweep, and what has become of it under a directory of runs."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from emc.errors import UserError
from emc.runs.config import RunConfig, to_json
from emc.runs.directory import CHECKPOINTS, MANIFEST, RunDirectory, folder_name
from emc.runs.jsonl import last_line, plain
from emc.runs.session import SPEED, config_of, is_finished, is_resumable


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
        return shlex.join(self.words)

    @functools.cached_property
    def key(self) -> str:
        """What decides the run's numbers; two jobs with the same key are the same run."""
        return _Kind.of(self.config).key

    @functools.cached_property
    def kin(self) -> str:
        """The same without seeds and length: a longer run of it, or one of several seeds, says all that this one would."""
        return _Kind.of(self.config).kin

    @property
    def folder(self) -> Path:
        """Where its run directories are, below the directory of runs."""
        return Path(folder_name(self.config.env_name)) / folder_name(self.config.method_name)


@dataclasses.dataclass(frozen=True)
class _Kind:
    """What of a configuration tells runs apart."""

    key: str
    kin: str = ""
    seeds: frozenset[int] = frozenset()

    @classmethod
    def of(cls, config: RunConfig) -> _Kind:
        document = plain(to_json(config))
        key = json.dumps(document, sort_keys=True)
        del document["seeds"], document["budget"]["steps"]
        return cls(key, json.dumps(document, sort_keys=True), frozenset(config.seeds))


class Survey:
    """Run directories below a root, by what decides their numbers; looks again only at directories that it has not seen."""

    def __init__(self, root: Path):
        self.root = root
        self._kinds: dict[Path, _Kind] = {}

    def find(self, job: Job) -> Path | None:
        """The run of a job: one that has all its steps if there is one, else the one that can be resumed."""
        serving = [path for path in self._serving(job) if self._is_done(path, job)]
        same = [path for path in self._runs(job.folder) if self._kinds[path].key == job.key and is_resumable(path)]
        return max(serving or same, key=lambda path: (is_finished(path), steps_of(path), path.name), default=None)

    def state(self, job: Job) -> State:
        """Whether a job is done, begun or missing."""
        path = self.find(job)
        return State.MISSING if path is None else State.DONE if self._is_done(path, job) else State.BEGUN

    def kin(self, job: Job) -> list[Path]:
        """All runs that differ from a job in nothing but seeds and length."""
        return [path for path in self._runs(job.folder) if self._kinds[path].kin == job.kin]

    def _serving(self, job: Job) -> list[Path]:
        return [path for path in self.kin(job) if self._kinds[path].seeds >= set(job.config.seeds)]

    def _is_done(self, path: Path, job: Job) -> bool:
        if self._kinds[path].key == job.key and (path / CHECKPOINTS).is_dir():
            return is_finished(path)
        return steps_of(path) >= job.config.budget.steps  # a longer run, or lines that were kept without their checkpoints

    def _runs(self, folder: Path) -> Sequence[Path]:
        found = sorted(manifest.parent for manifest in (self.root / folder).glob(f"*/{MANIFEST}"))
        for path in found:
            if path not in self._kinds:
                self._kinds[path] = _kind_of(path)
        return found


def _kind_of(path: Path) -> _Kind:
    try:
        return _Kind.of(config_of(RunDirectory.open(path)))
    except UserError:
        return _Kind("")  # not ours, or damaged, or an environment that is not trusted: whoever opens it will be told


def steps_of(run: Path) -> int:
    """Environment steps at the last test of a run."""
    line = last_line(run / SPEED)
    return int(line.get("steps", 0)) if line else 0
