"""A run on disk: its directory, metrics and checkpoints, and the machine it ran on."""

from emc.errors import RunError
from emc.runs.directory import Restored, RunDirectory
from emc.runs.jsonl import read_metrics
from emc.runs.machine import describe_machine

__all__ = ["Restored", "RunDirectory", "RunError", "describe_machine", "read_metrics"]
