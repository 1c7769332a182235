"""A run on disk: its directory, metrics and checkpoints, and the machine it ran on. Called, `emc.runs("runs")`, it lists runs."""

import importlib
import sys
import types
from typing import Any

from emc.errors import RunError
from emc.runs.directory import Restored, RunDirectory
from emc.runs.jsonl import read_metrics
from emc.runs.machine import describe_machine

__all__ = ["Restored", "RunDirectory", "RunError", "describe_machine", "read_metrics"]


class _Runs(types.ModuleType):
    """The package, which can be called as well: what lists runs for a user has the same name."""

    def __call__(self, *roots: Any, **chosen: Any) -> Any:
        return importlib.import_module("emc.api").runs(*roots, **chosen)


sys.modules[__name__].__class__ = _Runs
