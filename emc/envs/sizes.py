"""Sizes of environments that something can be computed with."""

from __future__ import annotations

from emc.envs.base import HasSpec, checked_spec
from emc.envs.hosted import Hosted
from emc.errors import UserError
from emc.types import EnvSpec

# Far above any task that somebody trains on, far below where arrays of one episode or a picture of its map would fill the memory.
MOST = {"n_agents": 2**12, "n_actions": 2**16, "obs_size": 2**20, "state_size": 2**21, "episode_limit": 2**20}
MOST_CELLS = 2**22


def check_sizes(env: HasSpec) -> None:
    """Refuse an environment of sizes that nothing can be computed with."""
    spec = checked_spec(type(env).__name__, env)
    for name, most in MOST.items():
        size = getattr(spec, name)
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise UserError(f"{name}={size!r:.40} of {_named(env)} is not a whole number of at least 1: see emc docs your-environment")
        if size > most:
            raise UserError(f"{name}={size:,} of {_named(env)} is more than anything can be trained with, {most:,}: choose smaller sizes")
    if (cells := _cells(spec)) > MOST_CELLS:
        raise UserError(f"a map of {cells:,} cells is more than can be drawn, {MOST_CELLS:,}: choose smaller sizes")


def _cells(spec: EnvSpec) -> int:
    rows, columns = spec.map_shape
    return rows * columns


def _named(env: HasSpec) -> str:
    return env.source if isinstance(env, Hosted) else type(env).__name__
