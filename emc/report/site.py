"""The runs below some directories, and the page about them; what has not changed since the last look is not read again."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from emc.errors import UserError
from emc.files import is_there
from emc.report.curves import group_runs, measured
from emc.report.page import Memo, build_page
from emc.report.records import stamp, state_of
from emc.runs import RunDirectory
from emc.runs.directory import MANIFEST, OWN_FOLDERS
from emc.runs.trust import Trusted
from emc.statistics import final


class Site:
    """The page about all runs below some paths; each path is a run directory or holds some, at any depth."""

    def __init__(self, roots: Sequence[Path], trust: Trusted = ()) -> None:
        self.roots, self.trust = roots, trust
        self.problems: list[str] = []  # why runs of a directory were left out at the last look
        self._memo = Memo()

    def runs(self) -> list[RunDirectory]:
        """What is there now. A run that was named must be readable; one that was merely found is left out if it is not."""
        found: dict[Path, RunDirectory] = {}
        self.problems = []
        for root in self.roots:
            named = not root.is_dir() or (root / MANIFEST).exists()
            for path in [root] if named else run_directories(root):
                try:
                    run = self._opened(path)
                    self._memo(("together", path), stamp(run), run.must_belong_together)
                    measured(run)
                    found.setdefault(path.resolve(), run)
                except UserError as error:
                    if named:
                        raise
                    self.problems.append(str(error))
        return [*found.values()]

    def signature(self, runs: Sequence[RunDirectory]) -> tuple[Any, ...]:
        """Changes whenever the page would."""
        return tuple((str(run.path), stamp(run), state_of(run)) for run in runs)

    def page(
        self,
        runs: Sequence[RunDirectory],
        version: str = "",
        say: Callable[[str], None] = lambda line: None,
    ) -> str:
        """The page as it is now; pictures that are missing from it are said."""
        return build_page(runs, memo=self._memo, version=version, say=say)

    def _opened(self, path: Path) -> RunDirectory:
        manifest = path / MANIFEST
        written = manifest.lstat().st_mtime_ns if is_there(manifest) else None
        return self._memo(("run", path), written, lambda: RunDirectory.open(path, self.trust))


def run_directories(root: Path) -> Iterator[Path]:
    """Every run directory below another, in the order of their paths."""
    left = [root]
    while left:  # not os.walk, which calls itself for every level
        folder = left.pop()
        try:
            inside = [*os.scandir(folder)]
        except OSError:
            continue
        if any(entry.name == MANIFEST for entry in inside):
            yield folder
        names = (entry.name for entry in inside if entry.is_dir(follow_symlinks=False) and entry.name not in OWN_FOLDERS)
        left += [folder / name for name in sorted(names, reverse=True) if not name.startswith(".") and ".tmp-" not in name]


def best_first(runs: Sequence[RunDirectory]) -> list[RunDirectory]:
    """The best run of each method on each task, then the second best of each, and so on."""
    ranked = [sorted(group.runs, key=functools.partial(_final, group.winnable), reverse=True) for group in group_runs(runs)]
    return [run for rank in itertools.zip_longest(*ranked) for run in rank if run is not None]


def _final(winnable: bool, run: RunDirectory) -> float:
    return float(np.median([final(curve.values.tolist()) for curve in measured(run).scores(winnable)] or [-np.inf]))
