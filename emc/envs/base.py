"""What an environment must answer.

An environment is an `eqx.Module`: sizes are static fields, numbers (a penalty, a noise level) are ordinary fields and therefore
traced under `jit`, so one compilation serves a sweep over them. It never resets by itself. What cannot be written in JAX is a
`HostEnvironment`: it runs in worker processes (`emc.envs.hosted`), and the same learner trains on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from emc.errors import MISTAKES, UserError, in_short
from emc.types import EnvSpec, HostTimestep, Timestep


@runtime_checkable
class HasSpec(Protocol):
    """What is known of any environment, wherever it runs."""

    @property
    def spec(self) -> EnvSpec: ...


@runtime_checkable
class Drawable(HasSpec, Protocol):
    """An environment whose episodes can be drawn."""

    def draw(self, axes: Any, world: PyTree) -> None:
        """Draw one moment on matplotlib axes (`world` holds numpy arrays)."""
        ...


@runtime_checkable
class HasMap(HasSpec, Protocol):
    """One with a map of cells (`spec.map_shape`), on which visits and bonuses are counted."""

    def occupancy(self, state: Shaped[Array, " S"]) -> Float[Array, "R C"]:
        """How many agents stand on each cell of the map."""
        ...

    def draw_outlines(self, axes: Any) -> None:
        """Draw what never moves as outlines over a map; one cell is one unit, the first cell is centred on (0, 0)."""
        ...


@runtime_checkable
class HasAreas(HasMap, Protocol):
    """One whose map has parts worth a name."""

    def areas(self) -> Mapping[str, Bool[np.ndarray, "R C"]]:
        """Which cells of the map (`spec.map_shape`) belong to each area; areas may overlap."""
        ...


@runtime_checkable
class ShowsVision(Drawable, Protocol):
    """One whose agents see a part of it that can be shown."""

    def draw_vision(self, axes: Any, world: PyTree, agent: int) -> None:
        """Shade what an agent does not see, over what `draw` drew."""
        ...


@runtime_checkable
class Environment(HasSpec, Protocol):
    """A pure JAX environment."""

    def reset(self, key: PRNGKeyArray) -> tuple[PyTree, Timestep]:
        """Start an episode."""
        ...

    def step(self, world: PyTree, action: Int[Array, " N"], key: PRNGKeyArray) -> tuple[PyTree, Timestep]:
        """Play one joint action."""
        ...


@runtime_checkable
class HostEnvironment(Protocol):
    """An environment in plain Python, such as a game in another process: it holds its own world, and numpy arrays go in and out."""

    @property
    def spec(self) -> EnvSpec: ...

    def reset(self, seed: int) -> HostTimestep:
        """Start an episode; the same seed starts the same one, where the environment can do that."""
        ...

    def step(self, action: Int[np.ndarray, " N"]) -> HostTimestep:
        """Play one joint action."""
        ...

    def close(self) -> None:
        """Let go of windows, games and files."""
        ...


def checked_spec(name: str, env: Any) -> EnvSpec:
    """What an environment says its sizes are, or one line about what is wrong with that."""
    try:
        spec = env.spec
    except UserError:
        raise
    except MISTAKES as error:  # whatever the user's class does wrong
        raise UserError(f"{name} has no spec that can be used ({in_short(error)})") from error
    if not isinstance(spec, EnvSpec):
        raise UserError(f"{name}: its spec is a {type(spec).__name__}, not an EnvSpec. See emc docs your-environment")
    return spec
