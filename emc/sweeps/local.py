"""The engine for one machine: as many runs at a time as there are cores, each a process of its own with one thread.

Two single-threaded processes train faster than one with two threads. An accelerator has one run at a time, which keeps most of its memory.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from emc.processes import Child, Order
from emc.sweeps.accelerator import Accelerator
from emc.sweeps.engine import Attempt, Engine


class LocalEngine(Engine):
    """A pool of processes on this machine, which end with this one."""

    def __init__(self, workers: int = 0, accelerator: Accelerator | None = None):
        self.workers = workers or (1 if accelerator else len(cores()))
        self.accelerator = accelerator

    def ready(self) -> contextlib.AbstractContextManager[None]:
        """It is here."""
        return contextlib.nullcontext()

    def check(self, root: Path) -> None:
        """Whoever holds the lock can write."""

    def room(self) -> int:
        """As many as were asked for."""
        return self.workers

    def faster_together(self) -> bool:
        """On an accelerator, which one seed does not fill."""
        return self.accelerator is not None

    def memory(self) -> int:
        """A share of what there is."""
        return (self.accelerator.memory if self.accelerator else super().memory()) // self.workers

    def begin(self, order: Order, place: int) -> Attempt:
        """A process on a core of its own, or on the accelerator."""
        child = Child(order)
        if not self.accelerator and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(child.pid, {cores()[place % len(cores())]})
        return child


def cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
