"""Every part of every method learns the same from a batch however it is laid out: in few lanes or many, with whatever padding."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.memory import NoMemory
from emc.methods import METHODS, STARCRAFT, Method
from emc.policies import Apart, Maven, Rode
from emc.policies.roles import Roles
from emc.training.learner import LearnerState, Lesson, init_learner, observe, update
from emc.types import EnvSpec, Episodes
from tests.training.covering import covering, paired, parts
from tests.twins import assert_close, quick, random_episodes, stretched

LENGTHS, CUT = [10, 1, 4, 7, 1, 2, 9], [True, False, False, True, True, False, False]
SPEC = EnvSpec(
    n_agents=2, n_actions=6, obs_size=4, state_size=9, episode_limit=10, unit_size=3, idle_actions=(4,), move_actions=(0, 1, 2, 3)
)
LAYOUTS = {"few lanes": (3, 16, 0), "one lane, small blocks, and more padding": (1, 5, 13)}  # lanes, moments of a block, padding
ALSO = {"a lane for each, all of them in one block": (7, 128, 0)}  # as on an accelerator, for what has most parts
MOST = {"rode with qplex-global", "emc-qplex, starcraft"}
FIRST = {
    "qtran with emc-cen",
    "maven with qplex-counts",
    "rode with qplex-global",
    "emc-qplex, starcraft",
}  # what most is different in


def small(method: Method) -> Method:
    """The same method with small networks and a small memory."""
    sizes: dict[str, Any] = {"hidden": 8}
    if isinstance(method.policy, Maven):
        sizes |= {"latents": 3, "past_episodes": 4, "latent_batch": 4}
    if isinstance(method.policy, Rode):
        sizes |= {"clusters": 2, "interval": 3, "role_head": 8, "encoder_hidden": 8, "encoder_code": 4, "embedding": 5}
    memory = method.memory if method.memory == NoMemory() else dataclasses.replace(method.memory, capacity=256)
    return dataclasses.replace(method, policy=dataclasses.replace(method.policy, **sizes), memory=memory)


def distinct() -> dict[str, Method]:
    """Every method once, under the first of its names."""
    named: dict[Method, str] = {}
    for name, entry in METHODS.items():
        named.setdefault(small(entry.method), name)
    for name in ("emc-qmix", "emc-qplex"):
        named.setdefault(small(STARCRAFT[name].method), f"{name}, starcraft")
    return {name: method for method, name in named.items()}


def batch_for(method: Method) -> Episodes:
    """Very different lengths, and decisions such as the policy makes."""
    batch, rng = random_episodes(0, LENGTHS, CUT, SPEC), np.random.default_rng(1)
    if isinstance(method.policy, Maven | Apart):
        choice = np.broadcast_to(rng.integers(0, 3, (7, 1)), (7, 10)) * np.asarray(batch.played)
    elif isinstance(method.policy, Rode):
        choice = rng.integers(0, 3, (7, 4, 2)).repeat(3, axis=1)[:, :10] * np.asarray(batch.played)[..., None]
    else:
        return batch
    return dataclasses.replace(batch, choice=jnp.asarray(choice, jnp.int8))


def start(method: Method, batch: Episodes) -> LearnerState:
    """A learner that has seen the batch; its target is no copy, and its roles are formed.

    Weights are drawn one by one, since most methods share most of them and a program of all draws takes long to compile.
    """

    @quick
    def begin(key: jax.Array, state: LearnerState, other: LearnerState) -> LearnerState:
        policy = state.policy
        if isinstance(method.policy, Rode):
            embedding = jax.random.normal(key, policy.roles.embedding.shape)
            roles = Roles.form(embedding, method.policy.clusters, SPEC.idle_actions, SPEC.move_actions, method.policy.initial_roles, 5)
            policy = dataclasses.replace(policy, roles=roles)
        values = dataclasses.replace(state.values, target=other.values.online)
        return observe(method, dataclasses.replace(state, values=values, policy=policy), batch)

    key = jax.random.key(0)
    return begin(key, *(init_learner(method, SPEC, k) for k in jax.random.split(key)))


@functools.partial(quick, static_argnums=0)
def learn(method: Method, state: LearnerState, batch: Episodes) -> tuple[LearnerState, Lesson]:
    return update(method, state, batch, jnp.int32(0))


def numbers(tree: Any) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    data = {jax.tree_util.keystr(path): x for path, x in leaves}
    return {name: np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x) for name, x in data.items()}


def assert_same(actual: Any, expected: Any) -> None:
    """Whole numbers are equal, others within rounding of the largest of their array."""
    found, wanted = numbers(actual), numbers(expected)
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        if np.issubdtype(array.dtype, np.floating) and np.all(np.isfinite(array)):
            assert_close(found[name], array, 2e-5)
        else:
            np.testing.assert_array_equal(found[name], array, err_msg=name)


PAIRED = paired(distinct())
CHOSEN = covering(distinct() | PAIRED, FIRST | set(PAIRED))


@pytest.mark.parametrize("name", [name if name in FIRST else pytest.param(name, marks=pytest.mark.slow) for name in CHOSEN])
def test_every_part_learns_the_same_however_a_batch_is_laid_out(name: str) -> None:
    method = CHOSEN[name]
    batch = batch_for(method)
    before = start(method, batch)
    found = {}
    for layout, (lanes, block, padding) in (LAYOUTS | (ALSO if name in MOST else {})).items():
        after, lesson = learn(dataclasses.replace(method, lanes=lanes, block=block), before, stretched(batch, padding))
        assert lesson.bonus.shape == (7, 10 + padding)
        assert not np.any(np.asarray(lesson.bonus)[:, 10:])
        found[layout] = after, dataclasses.replace(lesson, bonus=jax.device_put(np.asarray(lesson.bonus)[:, :10]))
    expected = found.pop("few lanes")
    nets = (map(np.asarray, jax.tree.leaves(state.values.online)) for state in (expected[0], before))
    moved = [np.any(new != old) for new, old in zip(*nets, strict=True)]
    assert np.mean(moved) > 0.5  # so that there is something to compare
    for other in found.values():
        assert_same(other, expected)


def test_no_part_of_any_method_is_left_out() -> None:
    every = [small(entry.method) for entry in METHODS.values()] + [small(STARCRAFT[name].method) for name in ("emc-qmix", "emc-qplex")]
    assert set(CHOSEN) >= FIRST >= MOST
    assert {part for method in every for part in parts(method)} == {part for method in CHOSEN.values() for part in parts(method)}
