"""One training process per run directory: a lock that the operating system drops when its holder dies."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from emc.errors import RunError


class Lock:
    """Held from construction to `release`."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if not claim(self._descriptor):
                holder = os.read(self._descriptor, 32).decode(errors="replace").strip() or "unknown"
                raise RunError(f"{path.parent}: process {holder} is training here. Wait for it to end, or stop it, then try again.")
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, f"{os.getpid()}\n".encode())
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
