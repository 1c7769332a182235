"""Schedules in environment steps."""

from __future__ import annotations

import dataclasses
import math

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from emc.errors import UserError
from emc.user_input import check_size


@dataclasses.dataclass(frozen=True)
class Epsilon:
    """Exploration rate: linear from `start` to `finish` over `steps` environment steps, then constant, perhaps until it starts again."""

    start: float = 1.0
    finish: float = 0.05
    steps: int = 50_000
    restart_at: int = 0  # environment steps at which it starts again from the top; 0: never (RODE: its switch_at)
    restart_steps: int = 70_000  # environment steps from `start` to `finish` then

    def __post_init__(self) -> None:
        for name, value in (("start", self.start), ("finish", self.finish)):
            if not 0.0 <= value <= 1.0:
                raise UserError(f"epsilon.{name}={value} must lie between 0 and 1")
        check_size("epsilon.steps", self.steps, "50000 is usual", low=1)
        check_size("epsilon.restart_at", self.restart_at, "0 never starts again", low=0)
        check_size("epsilon.restart_steps", self.restart_steps, "70000 is usual", low=1)

    def __call__(self, env_steps: Int[Array, ""]) -> Float[Array, ""]:
        share = jnp.minimum(env_steps.astype(jnp.float32) / self.steps, 1.0)
        if self.restart_at:
            since = env_steps - self.restart_at
            share = jnp.where(since > 0, jnp.minimum(since.astype(jnp.float32) / self.restart_steps, 1.0), share)
        return self.start + (self.finish - self.start) * share


class WeightState(eqx.Module):
    """A decaying weight and when it last decayed."""

    value: Float[Array, ""]
    last: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class DecayingWeight:
    """Curiosity weight eta: multiplied by `rate` every `every` environment steps until it falls to `floor`."""

    start: float = 0.2
    rate: float = 0.9
    every: int = 5_000
    floor: float = 0.01  # released code; the paper has none

    def __post_init__(self) -> None:
        for name, value in (("start", self.start), ("floor", self.floor)):
            if not (math.isfinite(value) and value >= 0):
                raise UserError(f"weight.{name}={value} must be a number of at least 0")
        if not 0.0 < self.rate <= 1.0:
            raise UserError(f"weight.rate={self.rate} must lie above 0 and at most 1")
        check_size("weight.every", self.every, "5000 is usual", low=1)

    def init(self) -> WeightState:
        """The weight before the first decay."""
        return WeightState(jnp.asarray(self.start, jnp.float32), jnp.zeros((), jnp.int32))

    def advance(self, state: WeightState, env_steps: Int[Array, ""]) -> WeightState:
        """Decay if due. As in the released code the weight may fall below the floor once and is then set to it."""
        due = env_steps - state.last >= self.every
        decayed = jnp.where(state.value > self.floor, state.value * self.rate, self.floor)
        return WeightState(jnp.where(due, decayed, state.value), jnp.where(due, env_steps, state.last))
