"""Every method of the paper: what it is made of, that it learns, and what a method refuses to be."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.curiosity import NoCuriosity, ValueCuriosity
from emc.envs.gridworld import Gridworld
from emc.errors import UserError
from emc.losses import TD
from emc.memory import EpisodicMemory, NoMemory
from emc.methods import METHODS, PAPER, PARTS, PRESETS, Method, make_method
from emc.mixers import QMIX, QPLEX, VDN, Independent
from emc.policies import RecurrentQ
from emc.sampling import Prioritised, Uniform
from emc.schedules import DecayingWeight, Epsilon
from emc.training import loop
from emc.training.learner import LearnerState, Lesson, init_learner, observe, update
from emc.training.rollout import play
from emc.types import Episodes
from tests.twins import quick

ENV = Gridworld(rows=5, columns=6, episode_limit=4)
POLICY = RecurrentQ(hidden=8)


def small(method: Method) -> Method:
    """The same method with the smallest sizes that still do everything."""
    memory = method.memory if method.memory == NoMemory() else dataclasses.replace(method.memory, capacity=64)
    return dataclasses.replace(method, policy=POLICY, memory=memory, batch_episodes=2, replay_episodes=4)


def distinct() -> dict[str, Method]:
    """Every preset of every method once, under the first of its names."""
    named: dict[Method, str] = {}
    for preset, entries in PRESETS.items():
        for name, entry in entries.items():
            named.setdefault(small(entry.method), f"{name}, {preset}")
    return {name: method for method, name in named.items()}


# What is not among these puts together parts that these hold already.
FIRST = {"iql, released", "qmix, released", "emc-vdn, released", "emc-qplex, paper"}


@functools.cache
def played() -> Episodes:
    """Two episodes of the gridworld."""
    net = quick(lambda key: POLICY.init_net(key, ENV.spec))(jax.random.key(0))
    return quick(lambda net, key: play(ENV, POLICY, net, key, jnp.ones(()), 2)[0])(net, jax.random.key(1))


@pytest.mark.parametrize("name", [name if name in FIRST else pytest.param(name, marks=pytest.mark.slow) for name in distinct()])
def test_every_method_learns_on_the_gridworld(name: str) -> None:
    method, batch = distinct()[name], played()
    shape = jax.eval_shape(lambda: loop.init(method, ENV, 0))
    after = jax.eval_shape(lambda state: loop.advance(method, 1, ENV, state, jnp.int32(0), jnp.int32(2)), shape)
    assert after == shape  # the loop carries what it started with

    @quick
    def two_updates(state: LearnerState, batch: Episodes) -> tuple[LearnerState, Lesson]:
        def one(state: LearnerState, env_steps: jax.Array) -> tuple[LearnerState, Lesson]:
            return update(method, state, batch, env_steps)

        return jax.lax.scan(one, observe(method, state, batch), jnp.array([10, 20]))

    start = quick(lambda key: init_learner(method, ENV.spec, key))(jax.random.key(2))
    state, lessons = two_updates(start, batch)
    assert state.values.updates == 2
    for metric, track in lessons.metrics.items():
        assert np.all(np.isfinite(np.asarray(track))), metric
    assert np.all(np.asarray(lessons.metrics["loss"]) > 0)
    assert np.all(np.asarray(lessons.metrics["gradient_norm"]) > 0)
    assert np.all(np.isfinite(np.asarray(lessons.priority)))
    moved = [
        np.any(np.asarray(a) != np.asarray(b))
        for a, b in zip(*map(jax.tree.leaves, (start.values.online, state.values.online)), strict=True)
    ]
    assert all(moved)
    assert (np.asarray(lessons.metrics["reward_intrinsic"]) > 0).all() == (method.curiosity != NoCuriosity())
    assert (np.asarray(lessons.metrics["memory_hit_rate"]) > 0).all() == (method.memory != NoMemory())


TOY_QPLEX = QPLEX(kernels=4, layers=2, hypernet=64, weighted=True)
TOY_CURIOSITY = ValueCuriosity(
    weight=DecayingWeight(start=0.2, rate=0.9, every=5_000, floor=0.01),
    mixer=VDN(),
    loss=TD(double_q=True),
    soft_update=0.005,
    target_scale=10.0,
    squared=False,
    look_ahead=True,
    learning_rate=5e-4,
    predictor_learning_rate=5e-4,
    gradient_clip=10.0,
    target_interval=200,
)
SHARED = Method(
    policy=RecurrentQ(hidden=64),
    mixer=VDN(),
    loss=TD(double_q=True),
    curiosity=NoCuriosity(),
    memory=NoMemory(),
    replay=Uniform(),
    epsilon=Epsilon(start=1.0, finish=0.05, steps=50_000),
    gamma=0.9,
    learning_rate=5e-4,
    gradient_clip=10.0,
    batch_episodes=32,
    replay_episodes=5_000,
    updates_per_episode=1,
    target_interval=200,
)
PRIORITISED = Prioritised(exponent=0.5, new_priority=100.0)
RELEASED = {
    "iql": {"mixer": Independent()},
    "vdn": {"mixer": VDN()},
    "qmix": {"mixer": QMIX(embed=32, hypernet=64)},
    "qplex": {"mixer": TOY_QPLEX},
    "emc-vdn": {"curiosity": TOY_CURIOSITY, "replay": PRIORITISED},
    "emc-qmix": {"mixer": QMIX(embed=32, hypernet=64), "curiosity": TOY_CURIOSITY, "replay": PRIORITISED},
    "emc-qplex": {"mixer": TOY_QPLEX, "curiosity": TOY_CURIOSITY, "replay": PRIORITISED},
    "emc-wo-c": {
        "mixer": TOY_QPLEX,
        "memory": EpisodicMemory(weight=0.1, capacity=1_000_000, key_size=4),
        "replay": PRIORITISED,
    },
    "emc-wo-m": {"mixer": TOY_QPLEX, "curiosity": TOY_CURIOSITY, "replay": PRIORITISED},
}
PAPERS_CURIOSITY = dataclasses.replace(
    TOY_CURIOSITY,
    weight=DecayingWeight(start=0.0001, rate=0.9, every=200_000, floor=0.0),
    loss=TD(double_q=False),
    soft_update=0.05,
    target_scale=1.0,
    squared=True,
    look_ahead=False,
)


@pytest.mark.parametrize("name", RELEASED)
def test_the_released_constants_are_those_of_the_released_code(name: str) -> None:
    assert METHODS[name].method == dataclasses.replace(SHARED, **RELEASED[name])
    assert make_method(name) == METHODS[name].method


@pytest.mark.parametrize("name", [name for name in RELEASED if name.startswith("emc")])
def test_the_papers_constants_are_those_of_its_text(name: str) -> None:
    method = PAPER[name].method
    assert method == dataclasses.replace(
        SHARED,
        mixer=METHODS[name].method.mixer,
        loss=TD(double_q=False),
        curiosity=NoCuriosity() if name == "emc-wo-c" else PAPERS_CURIOSITY,
        memory=NoMemory() if name == "emc-wo-m" else EpisodicMemory(weight=0.1),
        gamma=0.9,
    )
    assert make_method(name, "paper") == method


def test_the_quick_methods_exist() -> None:
    assert set(distinct()) >= FIRST


def test_the_papers_preset_leaves_the_baselines_alone() -> None:
    assert set(PAPER) == set(METHODS)
    assert [name for name in METHODS if PAPER[name] == METHODS[name]] == [name for name in METHODS if not name.startswith("emc")]


def test_a_new_episode_weighs_ten_in_the_released_replay() -> None:
    replay = METHODS["emc-vdn"].method.replay
    assert math.exp(float(replay.log_weight(jnp.array([replay.new_priority]))[0])) == pytest.approx(10.0, rel=1e-5)


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match=r"^unknown method 'emc-qplx'; known: [^\n]*Did you mean emc-qplex\?$"):
        make_method("emc-qplx")
    with pytest.raises(UserError, match=r"^unknown preset 'papers'; known: paper, released. Did you mean paper\?$"):
        make_method("vdn", "papers")


@pytest.mark.parametrize("kind", PARTS)
def test_every_part_that_can_be_swapped_fits_a_method(kind: str) -> None:
    for part in PARTS[kind].values():
        assert vars(dataclasses.replace(SHARED, **{kind: part}))[kind] == part


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"batch_episodes": 64, "replay_episodes": 32},
            r"batch_episodes=64 exceeds replay_episodes=32: .* Lower the batch or raise the replay\.",
        ),
        ({"gamma": 1.1}, r"gamma=1\.1 must lie between 0 and 1"),
        ({"gamma": -0.1}, r"gamma=-0\.1 must lie between 0 and 1"),
        ({"gamma": math.nan}, r"gamma=nan must lie between 0 and 1"),
        ({"learning_rate": 0.0}, r"learning_rate=0\.0 must be a number above 0"),
        ({"learning_rate": math.nan}, r"learning_rate=nan must be a number above 0"),
        ({"gradient_clip": math.inf}, r"gradient_clip=inf must be a number above 0"),
        ({"gradient_clip": -1.0}, r"gradient_clip=-1\.0 must be a number above 0"),
        ({"batch_episodes": 0}, r"batch_episodes=0 is not a whole number of at least 1: .*"),
        ({"replay_episodes": 0}, r"replay_episodes=0 is not a whole number of at least 1: .*"),
        ({"updates_per_episode": 0}, r"updates_per_episode=0 is not a whole number of at least 1: .*"),
        ({"target_interval": -5}, r"target_interval=-5 is not a whole number of at least 1: .*"),
    ],
)
def test_numbers_that_make_no_sense_are_refused_in_one_line(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=f"^{message}$") as caught:
        dataclasses.replace(SHARED, **change)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("change", [{"gamma": 0.0}, {"gamma": 1.0}, {"batch_episodes": 32, "replay_episodes": 32}])
def test_numbers_at_the_edge_of_sense_are_taken(change: dict[str, Any]) -> None:
    method = dataclasses.replace(SHARED, **change)
    assert {name: vars(method)[name] for name in change} == change


def test_methods_can_be_compared_and_hashed() -> None:
    assert hash(METHODS["vdn"].method) == hash(SHARED)
    assert METHODS["emc-vdn"].method != SHARED
