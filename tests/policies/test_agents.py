"""Recurrent or feed-forward, shared or not, with or without id and last action: against loops in NumPy, one agent after the other."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.curiosity import RND
from emc.lanes import Lanes
from emc.methods import METHODS, Method
from emc.nets import AgentNet
from emc.policies import Maven, RecurrentQ, Rode
from emc.policies.agents import make_bodies, unroll_bodies
from emc.training.learner import init_learner, update
from emc.types import EnvSpec, Episodes
from tests.training.covering import covering, paired
from tests.twins import SPEC, as_numpy, by_moment, filled, gru, gru_weights, laid, quick, random_episodes

KINDS = [*itertools.product([True, False], repeat=4)]  # recurrent, shared, see_id, see_action


def policy_of(recurrent: bool, shared: bool, see_id: bool, see_action: bool) -> RecurrentQ:
    return RecurrentQ(hidden=5, recurrent=recurrent, shared=shared, see_id=see_id, see_action=see_action)


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0.0)


def of_agent(net: Any, agent: int, shared: bool) -> Any:
    return net if shared else jax.tree.map(lambda leaf: leaf[agent], net)


def expected_values(policy: RecurrentQ, net: Any, episodes: Episodes) -> np.ndarray:
    obs, action = np.asarray(episodes.obs, np.float64), np.asarray(episodes.action)
    batch, moments, n_agents, _ = obs.shape
    actions = episodes.available.shape[-1]
    q = np.zeros((batch, moments, n_agents, actions))
    for b, i in itertools.product(range(batch), range(n_agents)):
        own, h = as_numpy(of_agent(net, i, policy.shared)), np.zeros(policy.hidden)
        for t in range(moments):
            x = [obs[b, t, i]]
            if policy.see_action:
                x.append(np.eye(actions)[action[b, t - 1, i]] if t else np.zeros(actions))
            if policy.see_id:
                x.append(np.eye(n_agents)[i])
            inner = relu(own.encode.weight @ np.concatenate(x) + own.encode.bias)
            h = gru(gru_weights(own.memory), inner, h) if policy.recurrent else relu(own.inner.weight @ inner + own.inner.bias)
            q[b, t, i] = own.decode.weight @ h + own.decode.bias
    return q


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_those_of_a_loop_over_agents_and_moments(kind: tuple[bool, bool, bool, bool]) -> None:
    policy = policy_of(*kind)
    net = filled(lambda key: policy.init_net(key, SPEC), 3)
    episodes = random_episodes(1, [3, 5, 1])
    lanes = laid(episodes, policy=policy)
    values = quick(lambda net: by_moment(lanes, policy.unroll(net, (), lanes).q))(net)
    expected, seen = expected_values(policy, net, episodes), np.arange(episodes.obs.shape[1]) <= np.asarray(episodes.length)[:, None]
    assert np.allclose(np.asarray(values)[seen], expected[seen], atol=1e-5)
    carry, previous = policy.begin(net, (), jnp.zeros(SPEC.state_size), jax.random.key(0), SPEC), jnp.full(SPEC.n_agents, -1)
    decide, episodes = quick(lambda *seen: policy.step(net, (), *seen, jax.random.key(0), jnp.zeros(()))), as_numpy(episodes)
    for t in range(3):  # acting sees the same
        step = decide(carry, episodes.obs[0, t], episodes.available[0, t], previous)
        assert np.allclose(step.q, expected[0, t], atol=1e-5)
        carry, previous = step.carry, episodes.action[0, t]


@pytest.mark.parametrize("recurrent", [True, False])
def test_the_gradient_of_networks_of_their_own_is_that_of_each_agent_alone(recurrent: bool) -> None:
    policy = policy_of(recurrent, False, True, True)
    net = filled(lambda key: policy.init_net(key, SPEC), 4)
    lanes = laid(random_episodes(2, [4, 2, 5]), policy=policy)
    weight = jnp.asarray(np.random.default_rng(0).normal(size=lanes.available.shape))

    def total(net: Any, lanes: Lanes, weight: jax.Array, policy: RecurrentQ) -> jax.Array:
        run = policy.unroll(net, (), lanes)
        return jnp.sum(run.q * weight * lanes.inside[..., None, None])

    together = jax.jit(jax.grad(total), static_argnums=3)(net, lanes, weight, policy)
    one = dataclasses.replace(policy, shared=True)
    for agent in range(SPEC.n_agents):
        alone = dataclasses.replace(lanes, inputs=lanes.inputs[:, :, agent : agent + 1], available=lanes.available[:, :, agent : agent + 1])
        own = jax.jit(jax.grad(total), static_argnums=3)(of_agent(net, agent, False), alone, weight[:, :, agent : agent + 1], one)
        for ours, theirs in zip(jax.tree.leaves(of_agent(together, agent, False)), jax.tree.leaves(own), strict=True):
            assert np.allclose(ours, theirs, atol=1e-4)


def test_a_feed_forward_gradient_is_that_of_plain_layers() -> None:
    policy = policy_of(False, True, True, True)
    net = filled(lambda key: policy.init_net(key, SPEC), 5)
    lanes = laid(random_episodes(3, [4, 2, 5]), policy=policy)
    weight = jnp.asarray(np.random.default_rng(1).normal(size=lanes.available.shape)) * lanes.inside[..., None, None]

    def plain(net: Any) -> jax.Array:
        inner = jax.nn.relu(lanes.inputs @ net.encode.weight.T + net.encode.bias)
        hidden = jax.nn.relu(inner @ net.inner.weight.T + net.inner.bias)
        return jnp.sum(weight * (hidden @ net.decode.weight.T + net.decode.bias))

    def unrolled(net: Any) -> jax.Array:
        return jnp.sum(weight * policy.unroll(net, (), lanes).q)

    found, expected = (quick(jax.grad(total))(net) for total in (unrolled, plain))
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.allclose(ours, theirs, atol=1e-4)


def test_agents_of_their_own_begin_apart_and_the_default_is_what_it_was() -> None:
    key = jax.random.key(7)
    own = RecurrentQ(hidden=4, shared=False).init_net(key, SPEC)
    assert own.encode.weight.shape[0] == SPEC.n_agents
    assert not np.allclose(own.encode.weight[0], own.encode.weight[1])
    usual = RecurrentQ(hidden=4).init_net(key, SPEC)
    before = AgentNet.init(key, SPEC.obs_size + SPEC.n_actions + SPEC.n_agents, 4, SPEC.n_actions)
    assert all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(usual), jax.tree.leaves(before), strict=True))


@pytest.mark.parametrize("policy", [Maven(hidden=4), Rode(hidden=4, clusters=2)])
@pytest.mark.parametrize(("recurrent", "shared"), [(True, False), (False, True), (False, False)])
def test_bodies_without_outputs_know_all_forms(policy: Any, recurrent: bool, shared: bool) -> None:
    policy = dataclasses.replace(policy, recurrent=recurrent, shared=shared)
    q = dataclasses.replace(RecurrentQ(hidden=4), recurrent=recurrent, shared=shared)
    net = filled(lambda key: make_bodies(policy, key, SPEC), 2)
    lanes = laid(random_episodes(4, [3, 2]), policy=q)
    whole = filled(lambda key: q.init_net(key, SPEC), 9)
    names = [field.name for field in dataclasses.fields(net)]
    same = dataclasses.replace(whole, **{name: getattr(net, name) for name in names})
    assert np.allclose(unroll_bodies(net, lanes), q.unroll(same, (), lanes).hidden, atol=1e-6)


def small(method: Method, **fields: Any) -> Method:
    policy = dataclasses.replace(method.policy, hidden=4, **fields)
    return dataclasses.replace(method, policy=policy, batch_episodes=2, replay_episodes=4)


ROOMY = EnvSpec(n_agents=2, n_actions=5, obs_size=3, state_size=4, episode_limit=4, idle_actions=(0,), move_actions=(1, 2))
FORMS = {"recurrent": False, "shared": False, "see_id": False, "see_action": False}


EVERY = {name: entry.method for name, entry in METHODS.items()}
FIRST = {"emc-qplex", "maven with qplex-counts", "rode with qplex-global", "emc-apart-vdn"}  # each policy, and what reads its networks
CHOSEN = covering(EVERY | paired(EVERY), FIRST | {*paired(EVERY)})
assert CHOSEN.keys() >= FIRST


@pytest.mark.slow
@pytest.mark.parametrize("name", CHOSEN)
def test_every_part_of_every_method_takes_a_gradient_step_with_every_form_of_agents(name: str) -> None:
    method = CHOSEN[name]
    if isinstance(method.policy, Rode):
        method = dataclasses.replace(method, policy=dataclasses.replace(method.policy, clusters=2))
    for fields in ({"recurrent": False}, {"shared": False}, FORMS) if name in FIRST else (FORMS,):
        chosen = small(method, **fields)
        episodes = random_episodes(5, [3, 4], spec=ROOMY)
        choice = jax.tree.map(lambda leaf: jnp.zeros((2, 4, *leaf.shape), leaf.dtype), chosen.policy.blank_choice(ROOMY))
        batch = dataclasses.replace(episodes, choice=choice)
        shapes = jax.eval_shape(lambda key, m=chosen: init_learner(m, ROOMY, key), jax.random.key(0))
        after, lesson = jax.eval_shape(lambda state, b, m=chosen: update(m, state, b, jnp.zeros((), jnp.int32)), shapes, batch)
        assert jax.tree.structure(after) == jax.tree.structure(shapes)
        assert lesson.priority.shape == (2,)


def test_a_bonus_from_histories_reads_what_agents_read() -> None:
    policy = policy_of(True, True, False, False)
    state = RND(of="history", hidden=4, embedding=3).init(jax.random.key(0), SPEC, policy, ())
    assert state.random.encode.weight.shape == (4, SPEC.obs_size)
