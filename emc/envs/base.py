"""What an environment must answer.

An environment is an `eqx.Module`: sizes are static fields, numbers (a penalty, a noise level) are ordinary fields and therefore
traced under `jit`, so one compilation serves a sweep over them. It never resets by itself.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Shaped

from emc.types import EnvSpec, Timestep


@runtime_checkable
class Environment(Protocol):
    """A pure JAX environment."""

    @property
    def spec(self) -> EnvSpec: ...

    def reset(self, key: PRNGKeyArray) -> tuple[PyTree, Timestep]:
        """Start an episode."""
        ...

    def step(self, world: PyTree, action: Int[Array, " N"], key: PRNGKeyArray) -> tuple[PyTree, Timestep]:
        """Play one joint action."""
        ...

    def occupancy(self, state: Shaped[Array, " S"]) -> Float[Array, "R C"]:
        """How many agents stand on each cell of the map (`spec.map_shape`); an empty array where there is no map."""
        ...

    def draw(self, axes: Any, world: PyTree) -> None:
        """Draw one moment on matplotlib axes (`world` holds numpy arrays)."""
        ...

    def draw_outlines(self, axes: Any) -> None:
        """Draw what never moves as outlines over a map; one cell is one unit, the first cell is centred on (0, 0)."""
        ...
