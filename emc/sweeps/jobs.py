"""One run of a sweep, and what has become of it under a directory of runs."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emc.runs.config import RunConfig, to_json
from emc.runs.directory import MANIFEST, folder_name
from emc.runs.jsonl import last_line, plain
from emc.runs.session import SPEED, is_finished


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
        return json.dumps(plain(to_json(self.config)), sort_keys=True)

    @property
    def folder(self) -> Path:
        """Where its run directories are, below the directory of runs."""
        return Path(folder_name(self.config.env_name)) / folder_name(self.config.method_name)


class Survey:
    """Run directories below a root, by what decides their numbers; looks again only at directories that it has not seen."""

    def __init__(self, root: Path):
        self.root = root
        self._keys: dict[Path, str] = {}

    def find(self, job: Job) -> Path | None:
        """The run of a job: a finished one if there is one, else the furthest."""
        runs = [path for path in self._runs(job.folder) if self._keys[path] == job.key]
        return max(runs, key=lambda path: (is_finished(path), steps_of(path), path.name), default=None)

    def state(self, job: Job) -> State:
        """Whether a job is done, begun or missing."""
        path = self.find(job)
        return State.MISSING if path is None else State.DONE if is_finished(path) else State.BEGUN

    def _runs(self, folder: Path) -> Sequence[Path]:
        found = [manifest.parent for manifest in (self.root / folder).glob(f"*/{MANIFEST}")]
        for path in found:
            if path not in self._keys:
                self._keys[path] = _key_of(path)
        return found


def _key_of(path: Path) -> str:
    try:
        document: Any = json.loads((path / MANIFEST).read_bytes())
        return json.dumps(document["config"], sort_keys=True)
    except (OSError, ValueError, KeyError, TypeError):
        return ""  # not ours, or damaged: whoever opens it will be told


def steps_of(run: Path) -> int:
    """Environment steps at the last test of a run."""
    line = last_line(run / SPEED)
    return int(line.get("steps", 0)) if line else 0
