"""Whether runs that are begun on this machine will be on an accelerator, and how to leave it to them.

A process that has once used an accelerator keeps most of its memory, so whoever begins runs must not touch it: it asks another process.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys

ASK = "import jax; print(jax.default_backend())"


def accelerated() -> bool:
    """Whether JAX trains on something else than processors here."""
    if not _has_plugin():
        return False
    answer = subprocess.run([sys.executable, "-c", ASK], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return answer.returncode == 0 and answer.stdout.split()[-1:] not in ([], ["cpu"])


def _has_plugin() -> bool:
    """Whether JAX was installed with support for any accelerator, which is quicker to find out than whether there is one."""
    found = any(importlib.util.find_spec(name) for name in ("jax_plugins", "libtpu"))
    return found or bool(importlib.metadata.entry_points(group="jax_plugins"))


def leave_to_runs() -> None:
    """Keep this process itself on the processor; those that it begins choose for themselves."""
    import jax

    jax.config.update("jax_platforms", "cpu")
