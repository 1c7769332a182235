"""Optimisers as PyTorch defines them, so that published learning rates mean what they meant."""

from __future__ import annotations

import abc
import dataclasses
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax

from emc.user_input import SMALLEST, check_number

Params = TypeVar("Params")  # any pytree of weights
MOST_DECAY = 0.999999  # with 1 nothing would ever be averaged


def clip_by_global_norm(limit: float) -> optax.GradientTransformation:
    """Scale gradients by limit / (norm + 1e-6) when their joint norm exceeds the limit."""

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        scale = jnp.minimum(1.0, limit / (optax.tree.norm(updates) + 1e-6))
        return jax.tree.map(lambda g: g * scale, updates), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


@dataclasses.dataclass(frozen=True)
class Optimiser(abc.ABC):
    """How weights follow a gradient."""

    @abc.abstractmethod
    def __call__(self, learning_rate: float, clip: float) -> optax.GradientTransformation:
        """The optimiser, after clipping the gradient's joint norm."""


@dataclasses.dataclass(frozen=True)
class RMSprop(Optimiser):
    """RMSprop with eps outside the root and a second moment that starts at zero."""

    decay: float = 0.99
    eps: float = 1e-5

    def __post_init__(self) -> None:
        check_number("optimiser.decay", self.decay, "0.99 is usual", low=0.0, high=MOST_DECAY)
        check_number("optimiser.eps", self.eps, "it must be above 0", low=SMALLEST)

    def __call__(self, learning_rate: float, clip: float) -> optax.GradientTransformation:
        """The optimiser, after clipping."""
        step = optax.rmsprop(learning_rate, decay=self.decay, eps=self.eps, initial_scale=0.0, eps_in_sqrt=False)
        return optax.chain(clip_by_global_norm(clip), step)


@dataclasses.dataclass(frozen=True)
class Adam(Optimiser):
    """Adam with PyTorch's defaults."""

    decay: float = 0.9  # of the first moment
    second_decay: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        for name in ("decay", "second_decay"):
            check_number(f"optimiser.{name}", vars(self)[name], "PyTorch has 0.9 and 0.999", low=0.0, high=MOST_DECAY)
        check_number("optimiser.eps", self.eps, "it must be above 0", low=SMALLEST)

    def __call__(self, learning_rate: float, clip: float) -> optax.GradientTransformation:
        """The optimiser, after clipping."""
        return optax.chain(clip_by_global_norm(clip), optax.adam(learning_rate, b1=self.decay, b2=self.second_decay, eps=self.eps))


rmsprop, adam = RMSprop(), Adam()


def init_optimiser(optimiser: optax.GradientTransformation, params: Any) -> optax.OptState:
    """The optimiser before its first step."""
    return optimiser.init(params)


def descend(optimiser: optax.GradientTransformation, gradient: Any, state: optax.OptState, params: Params) -> tuple[Params, optax.OptState]:
    """One step along a gradient."""
    weights: Any = params
    step, state = optimiser.update(gradient, state, weights)
    return optax.apply_updates(weights, step), state  # pyright: ignore[reportReturnType] - optax's types know no modules
