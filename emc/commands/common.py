"""What commands share: the flags of those that read runs, a run's agents, and JAX as they use it."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import jax
from tyro.conf import UseAppendAction

from emc.api import LoadedPolicy, load, shipped
from emc.commands.messages import note
from emc.errors import UserError
from emc.runs.trust import Trusted
from emc.user_input import lookup


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trusting:
    """The flags of a command that reads runs."""

    trust: UseAppendAction[tuple[str, ...]] = ()  # code outside emc that a run may be made of, as module:Class


@dataclasses.dataclass(frozen=True)
class Nothing:
    """There is nothing to set."""


def loaded(run: Path, trained_seed: int | None, trust: Trusted, policy: str = "") -> LoadedPolicy:
    """A run's agents, or those that come with the package for a task; what had to be passed over to find them is said."""
    if policy:
        lookup("--policy", policy, {"shipped": None})
        if trained_seed is not None or trust:
            raise UserError("--trained-seed and --trust are for runs: the policy that comes with emc needs neither")
        return shipped(str(run))
    found = load(run, trained_seed, trust=trust)
    for warning in found.warnings:
        note(f"skipped a checkpoint: {warning}")
    return found


def prepare_jax() -> None:
    """Keep compiled programs between runs; the user's own settings win."""
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        jax.config.update("jax_compilation_cache_dir", str(cache / "emc" / "xla"))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
