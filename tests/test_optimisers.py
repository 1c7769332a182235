"""Optimisers against PyTorch's update rules written in NumPy, over several steps and across the clip."""

from __future__ import annotations

from typing import Any

import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from emc.errors import UserError
from emc.optimisers import Adam, RMSprop, adam, clip_by_global_norm, rmsprop
from tests.twins import assert_close, quick

Arrays = dict[str, np.ndarray]
SHAPES = {"weight": (3, 4), "bias": (3,)}


def clipped(gradient: Arrays, limit: float) -> Arrays:
    """torch.nn.utils.clip_grad_norm_."""
    norm = np.sqrt(sum(np.sum(g**2) for g in gradient.values()))
    return {name: g * min(1.0, limit / (norm + 1e-6)) for name, g in gradient.items()}


def torch_rmsprop(weights: Arrays, gradients: list[Arrays], lr: float, clip: float) -> list[Arrays]:
    """torch.optim.RMSprop(lr, alpha=0.99, eps=1e-5) after clipping: all weights after each step."""
    square = {name: np.zeros_like(w) for name, w in weights.items()}
    history = []
    for gradient in gradients:
        for name, g in clipped(gradient, clip).items():
            square[name] = 0.99 * square[name] + 0.01 * g**2
            weights = weights | {name: weights[name] - lr * g / (np.sqrt(square[name]) + 1e-5)}
        history.append(weights)
    return history


def torch_adam(weights: Arrays, gradients: list[Arrays], lr: float, clip: float) -> list[Arrays]:
    """torch.optim.Adam(lr, betas=(0.9, 0.999), eps=1e-8) after clipping: all weights after each step."""
    first = {name: np.zeros_like(w) for name, w in weights.items()}
    second = {name: np.zeros_like(w) for name, w in weights.items()}
    history = []
    for t, gradient in enumerate(gradients, start=1):
        for name, g in clipped(gradient, clip).items():
            first[name] = 0.9 * first[name] + 0.1 * g
            second[name] = 0.999 * second[name] + 0.001 * g**2
            step = first[name] / (1 - 0.9**t) / (np.sqrt(second[name] / (1 - 0.999**t)) + 1e-8)
            weights = weights | {name: weights[name] - lr * step}
        history.append(weights)
    return history


def ours(optimiser: optax.GradientTransformation, weights: Arrays, gradients: list[Arrays]) -> list[Arrays]:
    """All weights after each step."""

    @quick
    def step(weights: Any, state: Any, gradient: Any) -> tuple[Any, Any]:
        change, state = optimiser.update(gradient, state, weights)
        return optax.apply_updates(weights, change), state

    weights = {name: jnp.asarray(w, jnp.float32) for name, w in weights.items()}
    state, history = optimiser.init(weights), []
    for gradient in gradients:
        weights, state = step(weights, state, {name: jnp.asarray(g, jnp.float32) for name, g in gradient.items()})
        history.append(jax.tree.map(np.asarray, weights))
    return history


def arrays(seed: int, size: float) -> Arrays:
    rng = np.random.default_rng(seed)
    return {name: size * rng.normal(size=shape) for name, shape in SHAPES.items()}


# The joint norm of the second and the fourth gradient is above the clip of 10; the third has none; the fifth is nearly nothing.
GRADIENTS = [arrays(1, 0.5), arrays(2, 30.0), arrays(3, 0.0), arrays(4, 4.0), arrays(5, 1e-4), arrays(6, 1.0)]


@pytest.mark.parametrize(("optimiser", "twin"), [(rmsprop, torch_rmsprop), (adam, torch_adam)])
def test_updates_are_pytorchs_over_many_steps_and_across_the_clip(optimiser: Any, twin: Any) -> None:
    norms = [np.sqrt(sum(np.sum(g**2) for g in gradient.values())) for gradient in GRADIENTS]
    assert [norm > 10 for norm in norms] == [False, True, False, True, False, False]
    start = arrays(0, 1.0)
    for actual, expected in zip(ours(optimiser(5e-4, clip=10.0), start, GRADIENTS), twin(start, GRADIENTS, 5e-4, 10.0), strict=True):
        for name in SHAPES:
            assert_close(actual[name], expected[name], 1e-6)
            total = expected[name] - start[name]
            assert_close(actual[name] - start[name], total, 1e-3)  # weights hardly move, so their change is checked for itself


def test_eps_of_rmsprop_is_added_outside_the_root() -> None:
    # After one gradient of 1e-4 the root of the mean square is 0.1 * 1e-4, as large as eps: half of what it would be without eps.
    (after,) = ours(rmsprop(5e-4, clip=10.0), {"weight": np.zeros(1)}, [{"weight": np.array([1e-4])}])
    assert after["weight"][0] == pytest.approx(-5e-4 * 1e-4 / (1e-5 + 1e-5), rel=1e-4)


def test_the_first_step_of_adam_is_the_learning_rate() -> None:
    (after,) = ours(adam(5e-4, clip=10.0), {"weight": np.zeros(2)}, [{"weight": np.array([0.3, -2.0])}])
    np.testing.assert_allclose(after["weight"], [-5e-4, 5e-4], rtol=1e-5)


def test_numbers_of_an_optimiser_are_its_fields() -> None:
    assert (rmsprop, adam) == (RMSprop(decay=0.99, eps=1e-5), Adam(decay=0.9, second_decay=0.999, eps=1e-8))
    gradients = [{"weight": np.array([0.5])}, {"weight": np.array([1.0])}]
    (_, after) = ours(RMSprop(decay=0.5, eps=0.1)(0.01, clip=10.0), {"weight": np.zeros(1)}, gradients)
    expected = 0.5 / (np.sqrt(0.125) + 0.1) + 1.0 / (np.sqrt(0.0625 + 0.5) + 0.1)
    assert after["weight"][0] == pytest.approx(-0.01 * expected, rel=1e-5)
    (_, after) = ours(Adam(decay=0.5, second_decay=0.75, eps=0.1)(0.01, clip=10.0), {"weight": np.zeros(1)}, gradients)
    second = (0.75 * 0.0625 + 0.25) / (1 - 0.75**2)
    expected = 0.5 / (0.5 + 0.1) + (0.5 * 0.25 + 0.5) / (1 - 0.5**2) / (np.sqrt(second) + 0.1)
    assert after["weight"][0] == pytest.approx(-0.01 * expected, rel=1e-5)


@pytest.mark.parametrize(
    ("optimiser", "fields"),
    [
        (RMSprop, {"decay": 1.5}),
        (RMSprop, {"eps": 0.0}),
        (Adam, {"decay": -0.1}),
        (Adam, {"second_decay": float("nan")}),
        (Adam, {"eps": -1e-8}),
    ],
)
def test_impossible_numbers_are_refused_by_name(optimiser: Any, fields: dict[str, float]) -> None:
    with pytest.raises(UserError, match=rf"^optimiser\.{next(iter(fields))}="):
        optimiser(**fields)


numbers = hnp.arrays(np.float32, (4,), elements=st.integers(-1000, 1000).map(lambda n: n / 10))


@hypothesis.settings(max_examples=50, deadline=None)
@hypothesis.given(one=numbers, two=numbers)
def test_clipping_keeps_the_direction_and_bounds_the_joint_norm(one: np.ndarray, two: np.ndarray) -> None:
    gradient = {"one": one, "two": two}
    actual = jax.tree.map(np.asarray, _clip(gradient))
    norm = np.sqrt(np.sum(one.astype(np.float64) ** 2) + np.sum(two.astype(np.float64) ** 2))
    if norm <= 9.99:
        np.testing.assert_array_equal(actual["one"], one)
        np.testing.assert_array_equal(actual["two"], two)
    for name, expected in clipped({k: v.astype(np.float64) for k, v in gradient.items()}, 10.0).items():
        np.testing.assert_allclose(actual[name], expected, rtol=1e-5)
    assert np.sqrt(np.sum(actual["one"] ** 2) + np.sum(actual["two"] ** 2)) <= 10.0 * (1 + 1e-5)


@quick
def _clip(gradient: Arrays) -> Arrays:
    clip = clip_by_global_norm(10.0)
    return clip.update(gradient, clip.init(gradient))[0]


def test_the_clip_is_scaled_by_the_norm_plus_a_millionth() -> None:
    clip = clip_by_global_norm(1e-6)
    gradient = {"weight": jnp.array([3e-6])}
    after = clip.update(gradient, clip.init(gradient))[0]
    assert float(after["weight"][0]) == pytest.approx(3e-6 * 1e-6 / (3e-6 + 1e-6), rel=1e-4)
