"""Records that flow through the package, and the legend of their axes.

Legend: `B` episodes, `T` steps, `T1 = T + 1` moments around them, `N` agents, `A` actions, `O` observation, `S` state, `H` hidden,
`K` values per step (1 for a team value, N for independent learners), `X` context (what a policy tells its mixer beside the state),
`R C` rows and columns of a map; `M` moments along `W` lanes, the layout that learning works on (`lanes`).
What belongs to step t has T entries; what surrounds it has T1.
"""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped

from emc.errors import UserError

UNAVAILABLE = -9_999_999.0  # finite, so that masked values survive arithmetic on padding


@dataclasses.dataclass(frozen=True)
class EnvSpec:
    """The fixed sizes of an environment: all that a network or a buffer needs to know before the first step."""

    n_agents: int
    n_actions: int
    obs_size: int
    state_size: int
    episode_limit: int
    obs_dtype: str = "float32"  # as stored; "bool" where every feature is 0 or 1
    state_dtype: str = "float32"
    obs_flags: tuple[int, ...] = ()  # places of features that are 0 or 1, beside numbers: the replay stores each in a bit
    state_flags: tuple[int, ...] = ()
    unit_size: int = 0  # features per agent at the head of the state (StarCraft-like maps); 0 where there is no such layout
    winnable: bool = True  # whether `won` means anything; otherwise results are reported as returns
    usual_length: float = 1.0  # of an episode, as a share of the longest in a batch; it changes speed and rounding, nothing else
    map_shape: tuple[int, int] = (0, 0)  # rows and columns of the map that `HasMap.occupancy` counts on
    idle_actions: tuple[int, ...] = ()  # that do nothing, the always available one first; RODE needs to know
    move_actions: tuple[int, ...] = ()  # that only move the agent; RODE needs to know

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, list):  # says the same, but compiled programs could not be looked up by it
                object.__setattr__(self, name, tuple(cast(list[int], value)))
        for name in ("obs_dtype", "state_dtype"):
            value = getattr(self, name)
            if not (isinstance(value, str) and _is_number_type(value)):
                raise UserError(f'{name}={value!r} is not the name of a type of numbers: write one like "float32", "int8" or "bool"')
        if not 0.0 < self.usual_length <= 1.0:
            raise UserError(f"usual_length={self.usual_length} is a share of the longest episode: it must lie above 0 and be at most 1")


def _is_number_type(name: str) -> bool:
    try:
        kind = jnp.dtype(name)
    except TypeError:
        return False
    return any(jnp.issubdtype(kind, family) for family in (jnp.bool_, jnp.integer, jnp.floating))


class Timestep(eqx.Module):
    """What an environment shows after a reset or a step; reward and flags belong to the action that led here."""

    obs: Shaped[Array, "N O"]
    state: Shaped[Array, " S"]
    available: Bool[Array, "N A"]
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]  # the episode is over and there is nothing beyond: no bootstrap
    truncated: Bool[Array, ""]  # the episode was cut by a limit that is not part of the task: bootstrap
    won: Bool[Array, ""]


@dataclasses.dataclass(frozen=True)
class HostTimestep:
    """The same from an environment in plain Python: numpy arrays, or lists that make such."""

    obs: Any  # [agents, size]
    state: Any  # [size]
    available: Any  # [agents, actions]
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    won: bool = False


class Episodes(eqx.Module):
    """Whole episodes in padded rows; a row never continues into another episode, and everything after its end is zero."""

    obs: Shaped[Array, "*B T1 N O"]
    state: Shaped[Array, "*B T1 S"]
    available: Bool[Array, "*B T1 N A"]
    action: Int[Array, "*B T N"]
    reward: Float[Array, "*B T"]
    terminated: Bool[Array, "*B T"]  # no bootstrap at this step
    played: Bool[Array, "*B T"]  # False on padding
    choice: PyTree = ()  # decisions of each step that cannot be recomputed (a latent, a role), "*B T ..."; () if there are none

    @property
    def length(self) -> Int[Array, "*B"]:
        """Steps played in each episode."""
        return jnp.sum(self.played, axis=-1)


class AgentValues(eqx.Module):
    """What a mixer may see of the agents at one moment (or, mapped, at many)."""

    chosen: Float[Array, "*B N"]  # Q_i of the action taken
    greedy: Float[Array, "*B N"]  # max over available actions of Q_i
    action: Int[Array, "*B N"]


class Unroll(eqx.Module):
    """A policy run along lanes: `M` moments of `W` lanes (see `lanes`)."""

    q: Float[Array, "M W N A"]
    hidden: Float[Array, "M H W N"]  # features first, as recurrent networks have it
    context: Float[Array, "M W X"]  # what the mixer reads beside the state, a constant to it; nothing for most


@jax.custom_batching.custom_vmap
def shared_maximum(value: Int[Array, ""]) -> Int[Array, ""]:
    """The value itself; under `vmap` the largest of all, the same for all.

    As a bound for loops: one whose bound differs under `vmap` copies all it carries at every turn.
    """
    return value


@shared_maximum.def_vmap
def _shared_maximum_of_all(size: int, batched: list[bool], value: Int[Array, " K"]) -> tuple[Int[Array, ""], bool]:
    return shared_maximum(jnp.max(value)), False


def masked_mean(values: Float[Array, "..."], mask: Bool[Array, "..."] | Float[Array, "..."]) -> Float[Array, ""]:
    """Mean of `values` where `mask` holds; zero when it holds nowhere."""
    weights = jnp.broadcast_to(mask, values.shape).astype(values.dtype)
    return jnp.sum(values * weights) / jnp.maximum(jnp.sum(weights), 1.0)


def bytes_of(tree: PyTree) -> int:
    """Size of all arrays (or array shapes) in a pytree."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
