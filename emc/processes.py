"""Commands of `emc` in processes of their own, which never outlive the process that began them.

A child's standard input is a pipe whose other end its parent holds. However the parent ends, the operating system closes that end, and the
child, which waits for nothing else there, ends at once: what it had written by then is as good as after any other kill.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from emc.allocator import huge_pages
from emc.files import content_of

FOLLOW = "EMC_FOLLOW_STDIN"  # set for a process that is to end with its standard input
RUN_NAME = "EMC_RUN_NAME"  # what `emc train` is to call its run directory
STOPPED = 130  # exit code of a run that was asked to stop and has written its checkpoint
LOOK_SECONDS = 0.2
PATIENCE_SECONDS = 120.0  # longer than a file server remembers the lock of a machine that has died
TAIL_BYTES = 4096


@dataclasses.dataclass(frozen=True)
class Order:
    """A run to be done: begun if its directory is not there yet, else gone on with."""

    run: str  # its directory, chosen before it is begun so that no second one can take its place
    root: str
    train: tuple[str, ...]  # the words after `emc train`
    resume: tuple[str, ...] = ()  # flags that `emc resume` needs for it

    def command(self) -> list[str]:
        """The words after `emc`; asked where the run is done, which sees its directory first."""
        if Path(self.run).is_dir():
            return ["resume", self.run, "--wait-seconds", str(PATIENCE_SECONDS), *self.resume]
        return ["train", *self.train, "--runs", self.root]


@dataclasses.dataclass(frozen=True)
class End:
    """How a process ended."""

    code: int
    words: str = ""  # the last line that it wrote
    lost: bool = False  # by no fault of its own: whoever ran it is gone

    @property
    def stopped(self) -> bool:
        """Whether it was asked to stop, and did."""
        return self.code in (STOPPED, -signal.SIGTERM)

    @property
    def reason(self) -> str:
        """Why it failed, in one line."""
        if self.code < 0:
            return f"was killed by {signal.Signals(-self.code).name}"
        return self.words or f"ended with code {self.code}"


class Child:
    """One order carried out in a process with one thread."""

    def __init__(self, order: Order, surroundings: Mapping[str, str] | None = None, directory: str | None = None):
        inherited = {**os.environ, **(surroundings or {})}
        flags = f"{inherited.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
        own = {"XLA_FLAGS": flags, "OMP_NUM_THREADS": "1", FOLLOW: "1", RUN_NAME: Path(order.run).name}
        self._end: End | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115, open as long as the process runs
        # A session of its own: Ctrl-C is for the parent, which passes it on once.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "emc", *order.command()],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**inherited, **huge_pages(inherited), **own},
            cwd=directory,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def end(self) -> End | None:
        """How it ended; None while it goes on."""
        code = self._process.poll()
        if code is not None and self._end is None:
            self._end = End(code, self._last_words())
            self._process.communicate()
            self._log.close()
        return self._end

    def stop(self, at_once: bool = False) -> None:
        """Ask it to write its checkpoint and leave, or only to leave. Not by SIGINT, which a parent may have blocked for its children."""
        if at_once:
            self._process.kill()
        else:
            self._process.terminate()

    def _last_words(self) -> str:
        self._log.seek(-min(TAIL_BYTES, self._log.seek(0, os.SEEK_END)), os.SEEK_END)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


def attend(order: Order, sign: tuple[str, str], surroundings: Mapping[str, str], directory: str) -> End:
    """Carry out an order on whatever machine this is, to its end; an interruption asks it to stop."""
    if complaint := unseen(*sign):
        return End(1, complaint)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell began this machine's worker in the background
    child = Child(order, surroundings, directory if Path(directory).is_dir() else None)
    while True:
        try:
            while (end := child.end()) is None:
                time.sleep(LOOK_SECONDS)
            return end
        except KeyboardInterrupt:
            child.stop()


def unseen(path: str, content: str) -> str:
    """What is wrong if this machine does not see a file as the one that wrote it does, or may not write beside it; empty if nothing is."""
    folder = Path(path).parent
    try:
        same = content_of(Path(path), "sweep").decode() == content
    except (OSError, ValueError):
        same = False
    if not same:
        return f"{socket.gethostname()} does not see {folder} as this machine does: choose a directory on shared storage with --runs"
    return "" if os.access(folder, os.W_OK) else f"{socket.gethostname()} may not write to {folder}: choose another directory with --runs"


def follow_parent() -> None:
    """End with standard input, if whoever began this process asked for that."""
    if os.environ.pop(FOLLOW, ""):
        threading.Thread(target=_follow, daemon=True).start()


def _follow() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)
