"""Sizes of environments that something can be computed with."""

from __future__ import annotations

from typing import Any

from emc.envs.base import HasSpec, checked_spec
from emc.envs.hosted import Hosted
from emc.errors import UserError

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
    if not is_map_shape(shape := spec.map_shape):
        raise UserError(f"map_shape={shape!r:.40} of {_named(env)} is not a number of rows and one of columns: see `emc docs`")
    if (cells := shape[0] * shape[1]) > MOST_CELLS:
        raise UserError(f"a map of {cells:,} cells is more than can be drawn, {MOST_CELLS:,}: choose smaller sizes")


def is_map_shape(shape: Any) -> bool:
    """Whether that is a number of rows and one of columns."""
    return isinstance(shape, tuple | list) and len(shape) == 2 and all(type(size) is int and size >= 0 for size in shape)


def _named(env: HasSpec) -> str:
    return env.source if isinstance(env, Hosted) else type(env).__name__
