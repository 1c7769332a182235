"""TensorBoard event files beside a run's own JSONL, for those who watch there (extra: tensorboard)."""

from __future__ import annotations

from typing import Any

from emc.errors import UserError
from emc.runs.config import RunConfig
from emc.runs.directory import EVENTS, RunDirectory
from emc.runs.session import Display, Status


class TensorBoardDisplay:
    """Passes everything on to another display and writes scalars on the way."""

    def __init__(self, inner: Display):
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise UserError("TensorBoard files need an extra package: pip install 'emc-marl[tensorboard]'") from error
        self.inner, self._open = inner, SummaryWriter
        self._writer: Any = None
        self._written: dict[str, float] = {}

    def begin(self, run: RunDirectory, config: RunConfig) -> None:
        self._writer = self._open(str(run.path / EVENTS))
        self.inner.begin(run, config)

    def show(self, status: Status) -> None:
        if status.latest is not self._written:  # a new evaluation makes a new record
            self._written = status.latest
            for name, value in status.latest.items():
                self._writer.add_scalar(name, value, status.steps)
        self.inner.show(status)

    def note(self, line: str) -> None:
        self.inner.note(line)

    def end(self) -> None:
        self._writer.close()
        self.inner.end()
