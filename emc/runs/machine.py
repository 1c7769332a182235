"""What a run was run with, for its manifest: versions and hardware, and nothing that names a person, a host or a path."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import jax

from emc.runs.jsonl import at

PACKAGES = ("emc-marl", "jax", "jaxlib", "equinox", "optax", "numpy", "safetensors")


def describe_machine() -> dict[str, Any]:
    """Versions, devices and commits."""
    devices = jax.devices()
    return {
        "python": platform.python_version(),
        "packages": {name: version_of(name) for name in PACKAGES},
        "platform": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "device": {"platform": devices[0].platform, "kind": devices[0].device_kind, "count": len(devices)},
        "commit": {"emc": commit_of(source_tree()), "working_directory": commit_of(Path.cwd())},
    }


def differences(before: Any) -> str:
    """What of the machine and the package described before is another now and may change numbers; empty if nothing."""
    now = describe_machine()
    found = {
        **{name: (at(before, "packages", name), now["packages"][name]) for name in ("emc-marl", "jax", "jaxlib")},
        "commit": (at(before, "commit", "emc"), now["commit"]["emc"]),
        **{name: (at(before, name), now[name]) for name in ("platform", "device")},
    }
    return ", ".join(f"{name} was {_words(old)}, is {_words(new)}" for name, (old, new) in found.items() if old != new)


def _words(value: Any) -> str:
    return " ".join(map(str, value.values())) if isinstance(value, dict) else str(value)


def version_of(package: str) -> str | None:
    """Installed version, if installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def source_tree() -> Path | None:
    """Where this package is developed; None when it is merely installed."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "pyproject.toml").is_file() else None


def commit_of(directory: Path | None) -> str | None:
    """The commit checked out there, with `-dirty` when files differ from it; None without git."""
    if directory is None:
        return None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    quiet = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        result = subprocess.run(command, cwd=directory, env=quiet, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip() or None
