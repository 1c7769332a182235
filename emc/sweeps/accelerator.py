"""The accelerator that runs begun on this machine will be on, and how to leave it to them.

A process that has once used an accelerator keeps most of its memory, so whoever begins runs must not touch it: it asks another process.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import os
import subprocess
import sys

from emc.envs.hosted import Hosted
from emc.runs.config import MOST_SEEDS
from emc.runs.sizes import planned
from emc.sweeps.jobs import Job

ASK = "import jax; device = jax.devices()[0]; print(device.platform, (device.memory_stats() or {}).get('bytes_limit', 0))"
ASK_SECONDS = 120
FILLED = 0.8  # of the memory at most, since what a run needs is an estimate
LIBRARIES = ("TPU_LIBRARY_PATH", "PJRT_NAMES_AND_LIBRARY_PATHS")  # variables that name an accelerator's library to JAX


@dataclasses.dataclass(frozen=True)
class Accelerator:
    """What JAX trains on here, if not on processors."""

    memory: int = 0  # bytes that a process may have of it; 0 where it does not say


def seeds_in_one_run(job: Job, memory: int = 0) -> int:
    """How many seeds of a job one run may train at a time, in some bytes of memory: one where they cannot be compiled together."""
    config = job.config
    if isinstance(config.env, Hosted):
        return 1
    fit = int(FILLED * memory / planned(dataclasses.replace(config, seeds=config.seeds[:1])).peak) if memory else MOST_SEEDS
    return max(1, min(MOST_SEEDS, fit))


def find_accelerator() -> Accelerator | None:
    """That of this machine; None if JAX trains on processors here."""
    if not _may_have_one():
        return None
    try:
        answer = subprocess.run(
            [sys.executable, "-c", ASK], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=ASK_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    words = answer.stdout.split()[-2:]
    if answer.returncode or len(words) < 2 or words[0] == "cpu":
        return None
    return Accelerator(int(words[1]))


def _may_have_one() -> bool:
    """Whether JAX was installed with support for any accelerator, which is quicker to find out than whether there is one."""
    installed = any(importlib.util.find_spec(name) for name in ("jax_plugins", "libtpu"))
    return installed or any(map(os.environ.get, LIBRARIES)) or bool(importlib.metadata.entry_points(group="jax_plugins"))


def leave_to_runs() -> None:
    """Keep this process itself on the processor, before it computes anything; those that it begins choose for themselves."""
    import jax

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_platform_name", "cpu")
