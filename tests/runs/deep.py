"""Folders in folders, deeper than a program can call itself and than a path may be long."""

from __future__ import annotations

import os
from pathlib import Path


def dig(top: Path, levels: int) -> None:
    """Make a folder with so many inside one another."""
    top.mkdir()
    folder = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("a", dir_fd=folder)
        inner = os.open("a", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
