"""Every part of every method through the whole loop: it learns, and goes on from a checkpoint as if nothing had happened."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.curiosity import NoCuriosity
from emc.envs import make_env
from emc.envs.gridworld import Gridworld
from emc.memory import NoMemory
from emc.methods import METHODS, PAPER, TUNED, Method, make_method
from emc.policies import Maven, Rode
from emc.runs.restoring import not_finite
from emc.training import checkpoint
from emc.training.loop import Budget, Program, TrainState
from emc.training.plan import plan
from tests.training.covering import covering, paired, parts
from tests.twins import begun, bits

ENV = Gridworld(rows=5, columns=6, episode_limit=4)
SMALL_PARTS = {
    "maven": {"latents": 3, "past_episodes": 5, "latent_batch": 4},
    "rode": {
        "clusters": 2,  # of five actions, of which one is idle: more would leave clusters too small to make roles
        "switch_at": 10,
        "interval": 2,
        "role_head": 8,
        "encoder_hidden": 8,
        "encoder_code": 4,
        "embedding": 7,  # with these numbers and the first seed, two roles hold two moves each
        "kmeans_iterations": 5,
    },
}


def small(name: str, method: Method) -> Method:
    """The same method with the smallest sizes that still do everything."""
    memory = method.memory if method.memory == NoMemory() else dataclasses.replace(method.memory, capacity=64)
    policy = dataclasses.replace(method.policy, hidden=8, **SMALL_PARTS.get(name, {}))
    epsilon = dataclasses.replace(method.epsilon, restart_at=10) if name == "rode" else method.epsilon  # with its roles
    return dataclasses.replace(
        method,
        policy=policy,
        memory=memory,
        epsilon=epsilon,
        batch_episodes=2,
        replay_episodes=4,
        episodes_per_update=min(2, method.episodes_per_update),
    )


def distinct() -> dict[str, Method]:
    """Every method once, under the first of its names, and one with memory and curiosity together as the paper's text has it."""
    named: dict[Method, str] = {}
    for name, entry in METHODS.items():
        named.setdefault(small(name, entry.method), name)
    return {name: method for method, name in named.items()} | {"emc-qplex, paper": small("emc-qplex", PAPER["emc-qplex"].method)}


# Evaluation too, which depends on the policy alone: once for each.
FIRST = {"iql with emc-dec", "maven with qplex-counts", "rode with qplex-global", "emc-apart-vdn", "emc-qplex, paper"}


def weights(state: TrainState) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state.learner.values.online)]


def beside(state: TrainState) -> list[np.ndarray]:
    """What the policy learns beside its network: MAVEN's latent policy, RODE's action encoder; nothing for the others."""
    policy = state.learner.policy
    return [np.asarray(leaf) for leaf in jax.tree.leaves([getattr(policy, name, ()) for name in ("net", "encoder")])]


PAIRED = paired(distinct())
CHOSEN = covering(distinct() | PAIRED, FIRST | set(PAIRED))


@pytest.mark.parametrize("name", [name if name in FIRST else pytest.param(name, marks=pytest.mark.slow) for name in CHOSEN])
def test_every_part_learns_and_resumes_bit_for_bit(name: str, tmp_path: Path) -> None:
    method = CHOSEN[name]
    program = Program(method, Budget(test_episodes=2), ENV, (0,))
    start = begun(method, ENV)
    before, own = weights(start), beside(start)
    half = program.advance(start, 0, 5)  # the first update comes with the second episode; qmix-tuned is between two of them here
    assert half.learner.values.updates == half.tally.updates == 4 // method.episodes_per_update
    metrics = {metric: float(total) for metric, total in half.tally.metrics.items()}
    assert all(np.isfinite(value) for value in metrics.values()), metrics
    assert metrics["loss"] > 0
    assert metrics["gradient_norm"] > 0
    assert all(np.any(new != old) for new, old in zip(weights(half), before, strict=True))
    assert (metrics["reward_intrinsic"] > 0) == (method.curiosity != NoCuriosity())
    assert (metrics["memory_hit_rate"] > 0) == (method.memory != NoMemory())
    assert all(np.any(new != old) for new, old in zip(beside(half), own, strict=True))
    if isinstance(method.policy, Maven):
        assert half.learner.policy.past.added == 5
    if isinstance(method.policy, Rode):
        assert half.learner.policy.roles.formed
        assert len(np.unique(np.asarray(half.learner.policy.roles.space), axis=0)) > 1
    if name in FIRST:
        assert program.evaluate(half, 0).length.shape == (2,)

    checkpoint.save(tmp_path / "half", half, {})
    restored = jax.tree.map(jnp.asarray, checkpoint.load(tmp_path / "half", jax.eval_shape(program.init))[0])
    assert bits(restored) == bits(half)
    assert not list(not_finite(restored.learner))  # or no command would use it
    uninterrupted, resumed = program.advance(half, 5, 3), program.advance(restored, 5, 3)
    assert bits(resumed) == bits(uninterrupted)
    assert resumed.learner.values.updates == 7 // method.episodes_per_update + (method.episodes_per_update > 1)


@pytest.mark.slow
@pytest.mark.parametrize("env_name", ["gridworld", "predator-prey", "push-box", "penalty", "lbf/8x8-2p-2f-coop", "3m"])
def test_tuned_methods_can_be_planned_on_tasks_of_every_kind(env_name: str) -> None:
    env = make_env(env_name)
    own = covering({name: entry.method for name, entry in TUNED.items()}, (), (entry.method for entry in METHODS.values()))
    # EMC's constants are the task's; what else a task changes is its sizes, where those of a game of one step are the least usual.
    for name in ("emc-qplex", "maven", *own) if env_name == "penalty" else ("emc-qplex", "rode"):
        method = make_method(name, "tuned", env_name)
        if name == "rode":
            if not env.spec.idle_actions:  # which it must know
                continue
            method = dataclasses.replace(method, policy=dataclasses.replace(method.policy, clusters=2))
        assert plan(method, env, Budget(), 1).peak > 0


SMALL_TUNED = {name: small(name, entry.method) for name, entry in TUNED.items()}
APART = dataclasses.replace(SMALL_TUNED["emc-apart-vdn"], mixer=SMALL_TUNED["ow-qmix"].mixer, loss=SMALL_TUNED["ow-qmix"].loss)
TUNED_ONLY = covering(SMALL_TUNED | {"ow-qmix with emc-apart-vdn": APART}, {"ow-qmix with emc-apart-vdn"}, CHOSEN.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", TUNED_ONLY)
def test_every_part_of_tuned_methods_learns(name: str) -> None:
    method = TUNED_ONLY[name]
    program = Program(method, Budget(test_episodes=2), ENV, (0,))
    start = begun(method, ENV)
    before = weights(start)
    after = program.advance(start, 0, 6)
    assert after.learner.values.updates == 3
    assert all(np.isfinite(float(total)) for total in after.tally.metrics.values())
    assert all(np.any(new != old) for new, old in zip(weights(after), before, strict=True))


def test_no_part_of_any_method_is_left_out() -> None:
    every = [*(small(name, entry.method) for name, entry in METHODS.items()), small("emc-qplex", PAPER["emc-qplex"].method)]
    assert set(CHOSEN) >= FIRST
    assert {type(method.policy) for method in every} == {type(CHOSEN[name].policy) for name in FIRST}
    assert {part for method in every for part in parts(method)} == {part for method in CHOSEN.values() for part in parts(method)}
