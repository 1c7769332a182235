"""What engines share: which runs are missing, the order in which they are begun, what a table shows, Ctrl-C and the lock.

An engine says how many runs it has room for and begins them. A run that fails is reported with its last words and stops no other; one whose
worker is lost is begun again and goes on from its checkpoint; Ctrl-C asks every run to write its checkpoint and leave.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Protocol

from emc.errors import RunError, UserError
from emc.processes import End, Order
from emc.runs.config import outside
from emc.runs.directory import new_name
from emc.runs.lock import Lock
from emc.runs.session import interruptible
from emc.sweeps.jobs import Job, State, Survey, score_of, steps_of, trusted_by
from emc.training.plan import available_bytes

LOOK_SECONDS = 0.5
MOST_LOSSES = 5  # of the workers of one run, without getting any further
LOCK = "sweep.lock"


@dataclasses.dataclass
class Progress:
    """One run as a table shows it."""

    job: Job
    state: State
    steps: int = 0
    score: float | None = None  # of its last tests
    began: float = 0.0  # when this process began it; and from which step
    first: int = 0
    reason: str = ""  # why it failed
    run: Path | None = None
    losses: int = 0  # of its workers, since it last got further

    @property
    def total(self) -> int:
        """Steps of the whole run."""
        return self.job.config.budget.steps

    @property
    def winnable(self) -> bool:
        """Whether its score is a win rate."""
        return self.job.config.env.spec.winnable

    def seconds_left(self, now: float) -> float | None:
        """As fast as it has been here so far; None where nothing is known."""
        gained = self.steps - self.first
        if self.state is not State.RUNNING or gained <= 0:
            return None
        return max(self.total - self.steps, 0) * (now - self.began) / gained


Watch = Callable[[Sequence[Progress]], None]


class Attempt(Protocol):
    """One run going on somewhere."""

    def end(self) -> End | None:
        """How it ended; None while it goes on."""
        ...

    def stop(self, at_once: bool = False) -> None:
        """Ask it to write its checkpoint and leave, or only to leave."""
        ...


class Engine(Protocol):
    """Where runs are done."""

    def ready(self) -> contextlib.AbstractContextManager[None]:
        """Reach the place where runs are done, and let go of it afterwards."""
        ...

    def check(self, root: Path) -> None:
        """Refuse a directory of runs that cannot be written from there."""
        ...

    def room(self) -> int:
        """How many runs there are to be at a time, now."""
        ...

    def faster_together(self) -> bool:
        """Whether seeds side by side in one run take less time there than each in a run of its own."""
        return False

    def memory(self) -> int:
        """Bytes that one run may have there: as many as this machine has, if nothing else is known; 0 where that cannot be told."""
        return available_bytes() or 0

    def begin(self, order: Order, place: int) -> Attempt:
        """Begin or go on with a run, in the lowest place that is free."""
        ...

    def run(self, jobs: Sequence[Job], root: Path, watch: Watch, note: Callable[[str], None] = lambda line: None) -> list[Progress]:
        """Do what is missing of these jobs; afterwards each is done, failed, or (after Ctrl-C) still to do. Takes note of runs left out."""
        root = root.absolute()
        with self.ready(), _alone_in(root):
            self.check(root)
            pool = _Pool(self, jobs, root, watch)
            if left_out := pool.survey.left_out():
                note(left_out)
            return pool.drive()


@contextlib.contextmanager
def _alone_in(root: Path) -> Generator[None]:
    """One sweep at a time per directory of runs."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = Lock(root / LOCK)
    except RunError as error:
        raise UserError(
            f"another sweep is running in {root}. Wait for it to end, or stop it, or choose another directory with --runs"
        ) from error
    except OSError as error:
        raise UserError(f"cannot write to {root}: {error.strerror}. Choose another directory with --runs") from error
    try:
        yield
    finally:
        lock.release()


class _Pool:
    def __init__(self, engine: Engine, jobs: Sequence[Job], root: Path, watch: Watch):
        self.engine, self.root, self.watch = engine, root, watch
        self.survey = Survey(root, trusted_by(jobs))
        self.all = [Progress(job, state, run=run) for job in jobs for state, run in [self.survey.look(job)]]
        self.waiting = [one for one in self.all if one.state in (State.MISSING, State.BEGUN)]
        self.active: dict[int, tuple[Progress, Attempt]] = {}  # by the place that it has
        self.stopping = False

    def drive(self) -> list[Progress]:
        for one in self.all:
            self._look(one)
        try:
            with interruptible() as interrupted:
                while self.active or (self.waiting and not self.stopping):
                    if interrupted and not self.stopping:
                        self._stop()
                    if not self.stopping:
                        self._fill()
                    time.sleep(LOOK_SECONDS)
                    for place in list(self.active):
                        self._check(place)
                    self.watch(self.all)
        except BaseException as error:
            self._stop(at_once=isinstance(error, KeyboardInterrupt))
            while any(attempt.end() is None for _, attempt in self.active.values()):
                time.sleep(LOOK_SECONDS)
            raise
        self.watch(self.all)
        return self.all

    def _fill(self) -> None:
        for place in range(self.engine.room()):
            if self.waiting and place not in self.active:
                self._begin(self.waiting.pop(0), place)

    def _begin(self, one: Progress, place: int) -> None:
        one.run = one.run or self.root / one.job.folder / new_name()
        trusted = tuple(word for source in outside(one.job.config) for word in ("--trust", source))  # this sweep names it
        order = Order(str(one.run), str(self.root), one.job.words, trusted)
        one.state, one.began, one.first = State.RUNNING, time.monotonic(), one.steps
        self.active[place] = (one, self.engine.begin(order, place))

    def _check(self, place: int) -> None:
        one, attempt = self.active[place]
        self._look(one)
        end = attempt.end()
        if end is None:
            return
        del self.active[place]
        one.state = State.DONE if end.code == 0 else self.survey.state(one.job)
        if one.state is State.DONE or (self.stopping and (end.stopped or end.lost)):
            return
        one.losses = (1 if one.steps > one.first else one.losses + 1) if end.lost else 0
        if 0 < one.losses <= MOST_LOSSES:
            self.waiting.insert(0, one)
        else:
            one.state, one.reason = State.FAILED, end.reason

    def _look(self, one: Progress) -> None:
        if one.run:
            one.steps, one.score = steps_of(one.run), score_of(one.run, one.winnable)

    def _stop(self, at_once: bool = False) -> None:
        self.stopping = True
        for _, attempt in self.active.values():
            attempt.stop(at_once)
