"""One training process per run directory: a lock that the operating system drops when its holder dies.

The lock is the operating system's, never the number written in the file, which only serves the message: a dead process holds none, and a
holder on another machine counts like one on this. That goes for NFS too, where Linux keeps such locks on the server (those of a machine
that has died until its lease ends, after about 90 seconds), unless it is mounted with `nolock` or `local_lock`. Where a file system refuses
to lock, that is an error.

The directory is locked as well as the file in it, so that removing the file admits nobody; where directories cannot be locked (NFS), a
holder whose file is gone notices before it writes again.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from emc import files
from emc.errors import FileError, OutputLost, RunError
from emc.user_input import in_one_line

LOOK_SECONDS = 0.2


class Lock:
    """Held from construction to `release`; waits for another holder as long as it is told to."""

    def __init__(self, path: Path, patience: float = 0.0) -> None:
        self.path = path
        self._folder = open_folder(path.parent)
        self._descriptor = -1
        try:
            deadline = time.monotonic() + patience
            self._wait(deadline, claim_folder, self._folder)  # first: whoever is turned away makes no file
            self._descriptor = files.open_to_write(path)
            self._wait(deadline, claim, self._descriptor)
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, f"{os.getpid()} on {socket.gethostname()}\n".encode())
            os.fsync(self._descriptor)  # so that other machines see it
        except BaseException:
            self.release()
            raise

    def _wait(self, deadline: float, claim: Callable[[int], bool], descriptor: int) -> None:
        while not claim(descriptor):
            if time.monotonic() >= deadline:
                said = f"process {self._holder()} is training here. Wait for it to end, or stop it, then try again."
                raise RunError(f"{self.path.parent}: {said}")
            time.sleep(LOOK_SECONDS)

    def _holder(self) -> str:
        """Who holds it, as far as the file says."""
        try:
            with files.opened(self.path) as file:
                return in_one_line(file.read(200).decode(errors="replace")) or "unknown"
        except (OSError, FileError):
            return "unknown"

    def check(self) -> None:
        """Refuse to go on when the lock no longer keeps others out: it, or its directory, was removed or replaced."""
        for path, descriptor in ((self.path.parent, self._folder), (self.path, self._descriptor)):
            try:
                same = descriptor < 0 or os.path.samestat(os.lstat(path) if path == self.path else path.stat(), os.fstat(descriptor))
            except (FileNotFoundError, NotADirectoryError) as error:
                raise OutputLost(f"{path} was removed while the run was training") from error
            if not same:
                raise OutputLost(f"{path} was replaced by another while the run was training")

    def release(self) -> None:
        """Let others in; the file stays, since removing it could let two of them in."""
        for descriptor in (self._descriptor, self._folder):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptor = self._folder = -1


if sys.platform == "win32":
    import msvcrt

    def open_folder(path: Path) -> int:
        """Nothing: Windows opens no directories, and removes no file that is open."""
        return -1

    def claim_folder(descriptor: int) -> bool:
        """The file alone counts."""
        return True

    def claim(descriptor: int) -> bool:
        """Lock one byte far beyond the holder's number, which others must be able to read; False if another process has it."""
        os.lseek(descriptor, 2**20, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
        return True

else:
    import fcntl

    def open_folder(path: Path) -> int:
        """A directory, to be locked."""
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def claim_folder(descriptor: int) -> bool:
        """Lock the directory; False if another process has it. A file system that locks no directories leaves it to the file."""
        try:
            return claim(descriptor)
        except OSError:
            return True

    def claim(descriptor: int) -> bool:
        """Lock the file; False if another process has it."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
