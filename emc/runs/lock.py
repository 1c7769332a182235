"""One training process per run directory: a lock that the operating system drops when its holder dies.

The lock is the operating system's, never the number written in the file, which only serves the message: a dead process holds none, and a
holder on another machine counts like one on this. That goes for NFS too, where Linux keeps such locks on the server (those of a machine
that has died until its lease ends, after about 90 seconds), unless it is mounted with `nolock` or `local_lock`. Where a file system refuses
to lock, that is an error.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

from emc.errors import RunError

LOOK_SECONDS = 0.2


class Lock:
    """Held from construction to `release`; waits for another holder as long as it is told to."""

    def __init__(self, path: Path, patience: float = 0.0) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            deadline = time.monotonic() + patience
            while not claim(self._descriptor):
                if time.monotonic() >= deadline:
                    holder = os.read(self._descriptor, 200).decode(errors="replace").strip() or "unknown"
                    raise RunError(f"{path.parent}: process {holder} is training here. Wait for it to end, or stop it, then try again.")
                time.sleep(LOOK_SECONDS)
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, f"{os.getpid()} on {socket.gethostname()}\n".encode())
            os.fsync(self._descriptor)  # so that other machines see it
        except BaseException:
            os.close(self._descriptor)
            raise

    def release(self) -> None:
        """Let others in; the file stays, since removing it could let two of them in."""
        os.close(self._descriptor)


if sys.platform == "win32":
    import msvcrt

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

    def claim(descriptor: int) -> bool:
        """Lock the file; False if another process has it."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
