"""QTRAN's three losses and the central critic against plain loops, what each of them trains, and what QTRAN's theory promises."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.errors import UserError
from emc.losses import CentralTD, Qtran
from emc.losses.joint import QtranNet
from emc.mixers import VDN
from emc.parts import Actors, Fit, Nets, Policy, Seen, ValueLoss
from emc.policies import RecurrentQ
from emc.types import Episodes, masked_mean
from tests.twins import (
    SPEC,
    Given,
    Minds,
    along_steps,
    as_numpy,
    assert_close,
    assert_trees_close,
    filled,
    fit_by_episode,
    greedy_actions,
    joint_value,
    laid,
    mlp,
    quick,
    random_episodes,
    spoilt,
)

GAMMA = 0.7
LENGTHS, CUT = [4, 2, 3], [True, False, True]
BATCH = random_episodes(0, LENGTHS, CUT)
GIVEN = Given((3, 5, 2, 3), hidden=4)
QTRAN, CENTRAL = Qtran(width=5), CentralTD(width=5)
JOINT_ALONE = Qtran(width=5, optimum_weight=0.0, bound_weight=0.0)


def nets_of(loss: ValueLoss, policy: Policy, seed: int) -> Nets:
    return filled(lambda key: Nets(policy.init_net(key, SPEC), (), loss.init_net(key, SPEC, policy)), seed)


def fit(loss: ValueLoss, policy: Policy, online: Nets, target: Nets, acting: Any, batch: Episodes, reward: jax.Array) -> Fit:
    """A loss on a batch; `acting` are the weights that choose."""
    actors, lanes = Actors(policy, acting, ()), laid(batch)
    seen = (Seen(nets, actors.unroll_with(nets.policy, lanes)) for nets in (online, target))
    return fit_by_episode(lanes, loss(actors, VDN(), *seen, lanes, along_steps(lanes, reward), GAMMA))


fit_quickly = functools.partial(quick, static_argnums=(0, 1))(fit)


@functools.partial(quick, static_argnums=(0, 1))
def loss_and_gradient(
    loss: ValueLoss, policy: Policy, nets: tuple[Nets, Nets, Any], batch: Episodes, reward: jax.Array
) -> tuple[jax.Array, tuple[Nets, Nets, Any]]:
    """The mean over played steps, and how it depends on the online weights, the target's and those that act."""
    return jax.value_and_grad(lambda n: masked_mean(fit(loss, policy, *n, batch, reward).loss, batch.played[..., None]))(nets)


def qtran_terms(online: Nets, target: Nets, batch: Episodes, reward: Any) -> dict[str, np.ndarray]:
    """The joint value, its error, and what the other two losses square, step by step; zero on padding."""
    (online, target), e = as_numpy((online, target)), as_numpy(batch)
    terms = {name: np.zeros(e.reward.shape) for name in ("q", "error", "optimum", "bound")}
    for b, t in zip(*np.nonzero(e.played), strict=True):
        state, hidden, q, taken = e.state[b, t], online.policy.hidden[b, t], online.policy.q[b, t], e.action[b, t]
        best = greedy_actions(q, e.available[b, t])
        later = greedy_actions(online.policy.q[b, t + 1], e.available[b, t + 1])  # the online agents choose
        after = joint_value(target.loss.joint, e.state[b, t + 1], target.policy.hidden[b, t + 1], later)
        value = float(mlp(online.loss.value, state)[0])
        terms["q"][b, t] = joint_value(online.loss.joint, state, hidden, taken)
        terms["error"][b, t] = terms["q"][b, t] - (np.asarray(reward)[b, t] + GAMMA * (not e.terminated[b, t]) * after)
        terms["optimum"][b, t] = q[0, best[0]] + q[1, best[1]] - joint_value(online.loss.joint, state, hidden, best) + value
        terms["bound"][b, t] = q[0, taken[0]] + q[1, taken[1]] - terms["q"][b, t] + value
    return terms


@pytest.mark.parametrize("weights", [(1.0, 0.1), (0.0, 0.0), (2.0, 0.0), (0.0, 3.0)], ids=["released", "joint", "optimum", "bound"])
def test_qtrans_three_losses_are_those_of_a_plain_loop(weights: tuple[float, float]) -> None:
    loss = Qtran(5, *weights)
    online, target = (nets_of(loss, GIVEN, seed) for seed in (1, 2))
    answer = fit_quickly(loss, GIVEN, online, target, online.policy, BATCH, BATCH.reward)
    terms, played = qtran_terms(online, target, BATCH, BATCH.reward), np.asarray(BATCH.played)
    assert np.any(terms["bound"] < -0.5)
    assert np.any(terms["bound"] > 0.5)  # so that the minimum matters
    expected = terms["error"] ** 2 + weights[0] * terms["optimum"] ** 2 + weights[1] * np.minimum(terms["bound"], 0.0) ** 2
    assert_close(answer.q[..., 0] * played, terms["q"], 1e-5)
    assert_close(answer.error[..., 0] * played, terms["error"], 1e-5)
    assert_close(answer.loss[..., 0] * played, expected, 1e-5)
    assert not np.any(np.asarray(answer.regulariser))


def test_qtrans_weights_and_width_are_the_released_ones() -> None:
    assert Qtran() == Qtran(width=64, optimum_weight=1.0, bound_weight=0.1)
    net: QtranNet = jax.eval_shape(lambda key: Qtran().init_net(key, SPEC, RecurrentQ()), jax.random.key(0))
    size = 64 + SPEC.n_actions
    assert [layer.weight.shape for layer in net.joint.encode.layers] == [(size, size), (size, size)]
    assert [layer.weight.shape for layer in net.joint.value.layers] == [(64, SPEC.state_size + size), (64, 64), (1, 64)]
    assert [layer.weight.shape for layer in net.value.layers] == [(64, SPEC.state_size), (64, 64), (1, 64)]


def test_only_the_temporal_difference_trains_the_joint_value_and_the_agents_hidden_states() -> None:
    nets = (*(nets_of(QTRAN, GIVEN, seed) for seed in (1, 2)), nets_of(QTRAN, GIVEN, 3).policy)
    _, (alone, _, _) = loss_and_gradient(JOINT_ALONE, GIVEN, nets, BATCH, BATCH.reward)
    assert all(np.any(np.asarray(leaf)) for leaf in jax.tree.leaves((alone.loss.joint, alone.policy.hidden)))
    assert not any(np.any(np.asarray(leaf)) for leaf in jax.tree.leaves((alone.loss.value, alone.policy.q)))
    terms = qtran_terms(nets[0], nets[1], BATCH, BATCH.reward)
    for weights in ((5.0, 0.0), (0.0, 5.0)):
        _, (gradient, _, _) = loss_and_gradient(Qtran(5, *weights), GIVEN, nets, BATCH, BATCH.reward)
        assert_trees_close(gradient.loss.joint, alone.loss.joint, 1e-5)
        assert_close(gradient.policy.hidden, alone.policy.hidden, 1e-5)
        assert all(np.any(np.asarray(leaf)) for leaf in jax.tree.leaves(gradient.loss.value))
        expected, slopes = np.zeros(GIVEN.shape), np.zeros(GIVEN.shape[:2])
        for b, t in zip(*np.nonzero(np.asarray(BATCH.played)), strict=True):
            # Of the optimum: at the greedy actions, whose values keep their gradient. Of the bound: at those taken, where it is broken.
            optimum, bound = 2 * weights[0] * terms["optimum"][b, t] / 9, 2 * weights[1] * min(terms["bound"][b, t], 0.0) / 9
            slopes[b, t] = optimum + bound
            for i, best in enumerate(greedy_actions(np.asarray(nets[0].policy.q[b, t]), np.asarray(BATCH.available[b, t]))):
                expected[b, t, i, best] += optimum
                expected[b, t, i, BATCH.action[b, t, i]] += bound
        assert_close(gradient.policy.q, expected, 1e-5)
        assert float(gradient.loss.value.layers[-1].bias[0]) == pytest.approx(np.sum(slopes), rel=1e-4)


def test_the_joint_error_reaches_the_agents_memory_and_not_their_values() -> None:
    policy = RecurrentQ(hidden=4)
    nets = (*(nets_of(QTRAN, policy, seed) for seed in (1, 2)), nets_of(QTRAN, policy, 3).policy)
    _, (alone, _, _) = loss_and_gradient(JOINT_ALONE, policy, nets, BATCH, BATCH.reward)
    _, (full, _, _) = loss_and_gradient(QTRAN, policy, nets, BATCH, BATCH.reward)
    assert all(np.any(np.asarray(leaf)) for leaf in jax.tree.leaves((alone.policy.encode, alone.policy.memory)))
    assert not any(np.any(np.asarray(leaf)) for leaf in jax.tree.leaves(alone.policy.decode))
    assert all(np.any(np.asarray(leaf)) for leaf in jax.tree.leaves(full))


@pytest.mark.parametrize("loss", [QTRAN, CENTRAL], ids=["qtran", "central"])
def test_no_gradient_reaches_the_target_or_those_who_act(loss: ValueLoss) -> None:
    nets = (*(nets_of(loss, GIVEN, seed) for seed in (1, 2)), nets_of(loss, GIVEN, 3).policy)
    value, (_, target, acting) = loss_and_gradient(loss, GIVEN, nets, BATCH, BATCH.reward)
    assert not any(np.any(np.asarray(leaf)) for leaf in jax.tree.leaves((target, acting)))
    other = loss_and_gradient(loss, GIVEN, (nets[0], nets[0], nets[2]), BATCH, BATCH.reward)[0]
    assert float(other) != pytest.approx(float(value), rel=1e-3)  # although the target matters


@pytest.mark.parametrize("loss", [QTRAN, CENTRAL], ids=["qtran", "central"])
def test_padding_and_garbage_in_it_change_neither_loss_nor_gradient(loss: ValueLoss) -> None:
    policy = RecurrentQ(hidden=4)
    nets = (*(nets_of(loss, policy, seed) for seed in (1, 2)), nets_of(loss, policy, 3).policy)
    clean = loss_and_gradient(loss, policy, nets, BATCH, BATCH.reward)
    assert_trees_close(loss_and_gradient(loss, policy, nets, *spoilt(BATCH, 6)), clean, 1e-4)


def all_joint_actions(hidden: np.ndarray, state: np.ndarray) -> Episodes:
    """One game as many episodes of one step: each plays another joint action from the same beginning."""
    joint = np.array(list(itertools.product(range(3), repeat=2)))
    return Episodes(
        obs=jnp.zeros((9, 2, 2, SPEC.obs_size)),
        state=jnp.broadcast_to(jnp.asarray(state, jnp.float32), (9, 2, SPEC.state_size)),
        available=jnp.ones((9, 2, 2, 3), bool),
        action=jnp.asarray(joint[:, None], jnp.int32),
        reward=jnp.zeros((9, 1)),
        terminated=jnp.ones((9, 1), bool),
        played=jnp.ones((9, 1), bool),
    )


@hypothesis.settings(max_examples=25, deadline=None)
@hypothesis.given(seed=st.integers(0, 10_000), share=st.floats(0.0, 1.0), favourite=st.integers(0, 8))
def test_qtrans_conditions_make_the_agents_greedy_actions_the_joint_optimum_and_cost_nothing(
    seed: int, share: float, favourite: int
) -> None:
    """Agents whose sum meets the joint value at their greedy joint action; the conditions hold there and only there."""
    rng, loss = np.random.default_rng(seed), Qtran(5, 1.0, 1.0)
    nets = nets_of(loss, GIVEN, seed)
    hidden, state = rng.normal(size=(2, 4)).astype(np.float32), rng.normal(size=SPEC.state_size).astype(np.float32)
    batch = all_joint_actions(hidden, state)
    joint_actions = np.asarray(batch.action[:, 0])
    joint = np.array([joint_value(nets.loss.joint, state, hidden, action) for action in joint_actions])
    value = float(mlp(nets.loss.value, state)[0])
    order = np.sort(joint)
    gap = order[-1] - order[-2]
    hypothesis.assume(gap > 0.01)
    for best in {int(np.argmax(joint)), favourite}:
        # The sum is Q_jt - V at `best`; whoever leaves it loses something, together never more than the optimum is ahead.
        q = np.full((2, 3), (joint[best] - value) / 2)
        q -= np.where(np.arange(3) == joint_actions[best][:, None], 0.0, gap * rng.uniform(0.1, 0.1 + 0.4 * share, size=(2, 3)))
        minds = Minds(jnp.broadcast_to(jnp.asarray(q, jnp.float32), (9, 2, 2, 3)), jnp.broadcast_to(jnp.asarray(hidden), (9, 2, 2, 4)))
        online = dataclasses.replace(nets, policy=minds)
        reward = jnp.asarray(joint[:, None], jnp.float32)  # so the joint value has no error of its own
        cost = np.asarray(fit_quickly(loss, GIVEN, online, online, online.policy, batch, reward).loss)[:, 0, 0]
        broken = np.minimum([q[0, u[0]] + q[1, u[1]] - joint[k] + value for k, u in enumerate(joint_actions)], 0.0)
        np.testing.assert_allclose(cost, broken**2, rtol=1e-3, atol=1e-8)
        meets_the_conditions = bool(np.all(cost < 1e-8))
        assert meets_the_conditions == (best == np.argmax(joint))
        assert q.argmax(axis=1).tolist() == joint_actions[best].tolist()


def test_the_central_critic_is_that_of_a_plain_loop_and_the_acting_agents_choose_what_comes_next() -> None:
    online, target, acting = (nets_of(CENTRAL, GIVEN, seed) for seed in (1, 2, 3))
    answer = fit_quickly(CENTRAL, GIVEN, online, target, acting.policy, BATCH, BATCH.reward)
    e, differ = as_numpy(BATCH), 0
    for b, t in zip(*np.nonzero(e.played), strict=True):
        later = greedy_actions(np.asarray(acting.policy.q[b, t + 1]), e.available[b, t + 1])
        differ += later != greedy_actions(np.asarray(online.policy.q[b, t + 1]), e.available[b, t + 1])
        value = joint_value(online.loss, e.state[b, t], np.asarray(online.policy.hidden[b, t]), e.action[b, t])
        after = joint_value(target.loss, e.state[b, t + 1], np.asarray(target.policy.hidden[b, t + 1]), later)
        error = value - (e.reward[b, t] + GAMMA * (not e.terminated[b, t]) * after)
        assert float(answer.q[b, t, 0]) == pytest.approx(value, rel=1e-4, abs=1e-4)
        assert float(answer.error[b, t, 0]) == pytest.approx(error, rel=1e-4, abs=1e-4)
        assert float(answer.loss[b, t, 0]) == pytest.approx(error**2, rel=1e-4, abs=1e-4)
    assert differ  # so the critic's own agents would not pass


def test_the_central_critic_trains_the_joint_value_and_memories_and_no_agents_own_value() -> None:
    nets = (*(nets_of(CENTRAL, GIVEN, seed) for seed in (1, 2)), nets_of(CENTRAL, GIVEN, 3).policy)
    _, (gradient, _, _) = loss_and_gradient(CENTRAL, GIVEN, nets, BATCH, BATCH.reward)
    assert all(np.any(np.asarray(leaf)) for leaf in jax.tree.leaves((gradient.loss, gradient.policy.hidden)))
    assert not np.any(np.asarray(gradient.policy.q))


@pytest.mark.parametrize("fields", [{"width": 0}, {"optimum_weight": -1.0}, {"bound_weight": float("nan")}])
def test_impossible_numbers_are_refused_by_name(fields: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=rf"^loss\.{next(iter(fields))}="):
        Qtran(**fields)
    if "width" in fields:
        with pytest.raises(UserError, match=r"^loss\.width="):
            CentralTD(**fields)
