"""The engine for one machine: as many runs at a time as there are cores, each a process of its own with one thread.

Two single-threaded processes train faster than one with two threads. A run that fails is reported with its last words and stops no other;
Ctrl-C reaches every process, which writes its checkpoint and leaves.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from emc.errors import UserError
from emc.runs.lock import Lock
from emc.sweeps.jobs import Job, State, Survey, steps_of

LOOK_SECONDS = 0.5
STOPPED = 130  # exit code of a run that was asked to stop and has written its checkpoint


@dataclasses.dataclass
class Progress:
    """One run as a table shows it."""

    job: Job
    state: State
    steps: int = 0
    began: float = 0.0  # when this process began it; and from which step
    first: int = 0
    reason: str = ""  # why it failed
    run: Path | None = None

    @property
    def total(self) -> int:
        """Steps of the whole run."""
        return self.job.config.budget.steps

    def seconds_left(self, now: float) -> float | None:
        """As fast as it has been here so far; None where nothing is known."""
        gained = self.steps - self.first
        if self.state is not State.RUNNING or gained <= 0:
            return None
        return max(self.total - self.steps, 0) * (now - self.began) / gained


Watch = Callable[[Sequence[Progress]], None]


class LocalEngine:
    """A pool of processes on this machine."""

    def __init__(self, workers: int = 0):
        self.workers = workers or os.cpu_count() or 1

    def run(self, jobs: Sequence[Job], root: Path, watch: Watch) -> list[Progress]:
        """Do what is missing of these jobs; afterwards each is done, failed, or (after Ctrl-C) still to do."""
        try:
            root.mkdir(parents=True, exist_ok=True)
            lock = Lock(root / "sweep.lock")
        except OSError as error:
            raise UserError(f"cannot write to {root}: {error.strerror}. Choose another directory with --runs") from error
        try:
            return _Pool(jobs, root, self.workers, watch).drive()
        finally:
            lock.release()


class _Pool:
    def __init__(self, jobs: Sequence[Job], root: Path, workers: int, watch: Watch):
        self.root, self.workers, self.watch = root, workers, watch
        self.survey = Survey(root)
        self.all = [Progress(job, self.survey.state(job)) for job in jobs]
        self.active: dict[int, tuple[Progress, subprocess.Popen[bytes], Path]] = {}  # by the core that it runs on
        self.stopping = False

    def drive(self) -> list[Progress]:
        waiting = [one for one in self.all if one.state in (State.MISSING, State.BEGUN)]
        for one in self.all:
            self._look(one)
        previous = signal.getsignal(signal.SIGINT)
        try:
            signal.signal(signal.SIGINT, lambda number, frame: self._stop())
            while self.active or (waiting and not self.stopping):
                for core in range(self.workers):
                    if core not in self.active and waiting and not self.stopping:
                        self._begin(waiting.pop(0), core)
                time.sleep(LOOK_SECONDS)
                for core in list(self.active):
                    self._check(core)
                self.watch(self.all)
        except BaseException:
            self._stop()
            for _, process, _ in self.active.values():
                process.wait()
            raise
        finally:
            signal.signal(signal.SIGINT, previous)
        self.watch(self.all)
        return self.all

    def _begin(self, one: Progress, core: int) -> None:
        run = self.survey.find(one.job)
        words = ["resume", str(run)] if run else ["train", *one.job.words, "--runs", str(self.root)]
        log = self.root / f"sweep.{core}.log"
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
        surroundings = {**os.environ, "XLA_FLAGS": flags, "OMP_NUM_THREADS": "1"}
        with log.open("wb") as out:
            # A session of its own: Ctrl-C is for the sweep, which passes it on once.
            process = subprocess.Popen(
                [sys.executable, "-m", "emc", *words],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=surroundings,
                start_new_session=True,
            )
        if hasattr(os, "sched_setaffinity"):
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(process.pid, {cores[core % len(cores)]})
        one.state, one.began, one.first = State.RUNNING, time.monotonic(), one.steps
        self.active[core] = (one, process, log)

    def _check(self, core: int) -> None:
        one, process, log = self.active[core]
        self._look(one)
        code = process.poll()
        if code is None:
            return
        del self.active[core]
        words = log.read_text(errors="replace").strip().splitlines()
        log.unlink()
        state = self.survey.state(one.job)
        if state is State.DONE or (code == STOPPED and self.stopping):
            one.state = state
        else:
            one.state, one.reason = State.FAILED, (words[-1] if words else f"ended with code {code}")

    def _look(self, one: Progress) -> None:
        one.run = one.run or self.survey.find(one.job)
        one.steps = steps_of(one.run) if one.run else 0

    def _stop(self) -> None:
        self.stopping = True
        for _, process, _ in self.active.values():
            process.send_signal(signal.SIGINT)
