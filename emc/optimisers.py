"""Optimisers as PyTorch defines them, so that published learning rates mean what they meant."""

from __future__ import annotations

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax

Params = TypeVar("Params")  # any pytree of weights


def clip_by_global_norm(limit: float) -> optax.GradientTransformation:
    """Scale gradients by limit / (norm + 1e-6) when their joint norm exceeds the limit."""

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        scale = jnp.minimum(1.0, limit / (optax.tree.norm(updates) + 1e-6))
        return jax.tree.map(lambda g: g * scale, updates), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def rmsprop(learning_rate: float, clip: float, decay: float = 0.99, eps: float = 1e-5) -> optax.GradientTransformation:
    """RMSprop with eps outside the root and a second moment that starts at zero, after clipping."""
    return optax.chain(clip_by_global_norm(clip), optax.rmsprop(learning_rate, decay=decay, eps=eps, initial_scale=0.0, eps_in_sqrt=False))


def adam(learning_rate: float, clip: float) -> optax.GradientTransformation:
    """Adam with PyTorch's defaults, after clipping."""
    return optax.chain(clip_by_global_norm(clip), optax.adam(learning_rate, b1=0.9, b2=0.999, eps=1e-8))


def init_optimiser(optimiser: optax.GradientTransformation, params: Any) -> optax.OptState:
    """The optimiser before its first step."""
    return optimiser.init(params)


def descend(optimiser: optax.GradientTransformation, gradient: Any, state: optax.OptState, params: Params) -> tuple[Params, optax.OptState]:
    """One step along a gradient."""
    weights: Any = params
    step, state = optimiser.update(gradient, state, weights)
    return optax.apply_updates(weights, step), state  # pyright: ignore[reportReturnType] - optax's types know no modules
