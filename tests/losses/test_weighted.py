"""Weighted QMIX by hand: one target for both values, and which steps count in full."""

from __future__ import annotations

import functools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from emc.errors import UserError
from emc.losses import Weighted
from emc.losses.fitting import ValueFunction
from emc.losses.weighted import CentralNet
from emc.mixers import QMIX, VDN, Unrestricted
from emc.parts import Fit, Mixer, Nets, Policy
from emc.policies import RecurrentQ
from emc.types import Episodes, masked_mean
from tests.twins import (
    SPEC,
    Table,
    as_numpy,
    assert_close,
    assert_trees_close,
    filled,
    fit_with,
    greedy_actions,
    quick,
    random_episodes,
    spoilt,
    stretched,
    unrestricted,
)

GAMMA, ALPHA = 0.5, 0.25
OPTIMISTIC, CENTRAL = (Weighted(weighting, ALPHA, VDN()) for weighting in ("optimistic", "central"))
FREE = {weighting: Weighted(weighting, ALPHA, Unrestricted(width=8)) for weighting in ("optimistic", "central")}


def one_episode(terminated: bool) -> Episodes:
    """Three steps of two agents with two actions, and one step of padding; at the second moment agent 0 cannot play action 1."""
    available = np.ones((1, 5, 2, 2), bool)
    available[0, 1, 0, 1] = False
    available[0, 4] = False
    return Episodes(
        obs=jnp.zeros((1, 5, 2, 1)),
        state=jnp.zeros((1, 5, 1)),
        available=jnp.asarray(available),
        action=jnp.array([[[0, 1], [0, 1], [0, 1], [0, 0]]]),
        reward=jnp.array([[1.0, -2.0, 4.0, 0.0]]),
        terminated=jnp.array([[False, False, terminated, False]]),
        played=jnp.array([[True, True, True, False]]),
    )


AGENTS = [  # moment by moment: agent 0, agent 1
    [[1.0, 0.0], [0.0, 2.0]],  # chosen 1 + 2; greedy: 0 and 1, which is what they do
    [[3.0, 4.0], [5.0, 1.0]],  # chosen 3 + 1; greedy: 0 (action 1 is not available) and 0
    [[0.0, 6.0], [1.0, 7.0]],  # chosen 0 + 7; greedy: 1 and 1
    [[8.0, 0.0], [0.0, 3.0]],  # greedy: 0 and 1
    [[7.0, 7.0], [7.0, 7.0]],
]
CENTRAL_AGENTS = [
    [[10.0, 99.0], [99.0, 20.0]],  # chosen 10 + 20
    [[5.0, 99.0], [99.0, 6.0]],  # 5 + 6
    [[1.0, 99.0], [99.0, 2.0]],  # 1 + 2
    [[99.0, 99.0], [99.0, 99.0]],
    [[99.0, 99.0], [99.0, 99.0]],
]
CENTRAL_TARGET = [  # at the acting agents' greedy actions
    [[10.0, 9.0], [9.0, 20.0]],  # 30
    [[4.0, 90.0], [6.0, 80.0]],  # 4 + 6; its own best available would be 4 + 80
    [[-50.0, 2.0], [60.0, 4.0]],  # 2 + 4; what was done would be -50 + 4
    [[100.0, 700.0], [700.0, 300.0]],  # 100 + 300
    [[70.0, 70.0], [70.0, 70.0]],
]


def hand_nets(unused: float = 1e6) -> tuple[Nets, Nets]:
    """Online and target; the target of the acting agents is loud, since nothing may depend on it."""
    tables = (jnp.array([values]) for values in (AGENTS, CENTRAL_AGENTS, CENTRAL_TARGET))
    agents, central, central_target = tables
    return Nets(agents, (), CentralNet(central, ())), Nets(agents + unused, (), CentralNet(central_target, ()))


@pytest.mark.parametrize(
    ("loss", "terminated", "weights"),
    [
        (OPTIMISTIC, True, [1.0, ALPHA, ALPHA]),  # below its target at the first step only
        (OPTIMISTIC, False, [1.0, ALPHA, 1.0]),  # with 204 for a target at the last step too
        (CENTRAL, True, [1.0, ALPHA, ALPHA]),  # first: greedy, although 6 < 30; second: 1 < 10; third: 4 < 6
        (CENTRAL, False, [1.0, ALPHA, 1.0]),  # third: not greedy, but 204 > 6
    ],
    ids=["optimistic, terminated", "optimistic, truncated", "central, terminated", "central, truncated"],
)
def test_targets_weights_and_both_losses_of_a_three_step_episode_are_those_found_by_hand(
    loss: Weighted, terminated: bool, weights: list[float]
) -> None:
    batch = one_episode(terminated)
    fit = fit_with(loss, Table(), VDN(), *hand_nets(), batch, batch.reward, GAMMA)
    aims = np.array([1.0 + 0.5 * 10.0, -2.0 + 0.5 * 6.0, 4.0 if terminated else 4.0 + 0.5 * 400.0])
    chosen, central = np.array([3.0, 4.0, 7.0]), np.array([30.0, 11.0, 3.0])
    assert fit.q[0, :3, 0].tolist() == chosen.tolist()
    assert fit.error[0, :3, 0].tolist() == (chosen - aims).tolist()
    assert fit.loss[0, :3, 0].tolist() == pytest.approx(np.array(weights) * (chosen - aims) ** 2 + (central - aims) ** 2)


def test_with_td_lambda_both_values_are_fitted_to_returns_that_bootstrap_later() -> None:
    batch = one_episode(True)
    loss = Weighted("optimistic", ALPHA, VDN(), td_lambda=0.5)
    fit = fit_with(loss, Table(), VDN(), *hand_nets(), batch, batch.reward, GAMMA)
    last = 4.0
    middle = -2.0 + 0.5 * (0.5 * 6.0 + 0.5 * last)
    aims = np.array([1.0 + 0.5 * (0.5 * 10.0 + 0.5 * middle), middle, last])
    chosen, central = np.array([3.0, 4.0, 7.0]), np.array([30.0, 11.0, 3.0])
    weights = np.where(chosen < aims, 1.0, ALPHA)
    assert fit.error[0, :3, 0].tolist() == pytest.approx(chosen - aims)
    assert fit.loss[0, :3, 0].tolist() == pytest.approx(weights * (chosen - aims) ** 2 + (central - aims) ** 2)


def test_nothing_depends_on_the_target_of_the_acting_agents() -> None:
    batch = one_episode(False)
    for loss in (OPTIMISTIC, CENTRAL):
        one, two = (fit_with(loss, Table(), VDN(), *hand_nets(unused), batch, batch.reward, GAMMA) for unused in (0.0, 1e6))
        assert one.loss.tolist() == two.loss.tolist()


@functools.partial(quick, static_argnums=(0, 1, 2))
def loss_and_gradient(
    loss: Weighted, policy: Policy, mixer: Mixer, nets: tuple[Nets, Nets], batch: Episodes, reward: jax.Array
) -> tuple[tuple[jax.Array, Fit], tuple[Nets, Nets]]:
    """The mean over played steps, and how it depends on the online weights and the target's."""

    def objective(nets: tuple[Nets, Nets]) -> tuple[jax.Array, Fit]:
        fit = fit_with(loss, policy, mixer, *nets, batch, reward, GAMMA)
        return masked_mean(fit.loss, batch.played[..., None]), fit

    return jax.value_and_grad(objective, has_aux=True)(nets)


@pytest.mark.parametrize("loss", [OPTIMISTIC, CENTRAL], ids=["optimistic", "central"])
def test_each_value_learns_at_what_was_done_and_weights_and_targets_are_constants(loss: Weighted) -> None:
    batch = one_episode(False)
    _, (online, target) = loss_and_gradient(loss, Table(), VDN(), hand_nets(), batch, batch.reward)
    expected, central = np.zeros((1, 5, 2, 2)), np.zeros((1, 5, 2, 2))
    errors, central_errors = [-3.0, 3.0, -197.0], [24.0, 10.0, -201.0]
    for t, weight in enumerate([1.0, ALPHA, 1.0]):
        expected[0, t, [0, 1], [0, 1]] = 2 * weight * errors[t] / 3
        central[0, t, [0, 1], [0, 1]] = 2 * central_errors[t] / 3
    assert_close(online.policy, expected, 1e-6)
    assert_close(online.loss.agent, central, 1e-6)
    assert not any(np.any(np.asarray(leaf)) for leaf in jax.tree.leaves(target))


@functools.cache
def free_nets(seed: int, weighting: str, shape: tuple[int, ...]) -> tuple[Nets, Nets]:
    policy, loss = Table(shape), FREE[weighting]
    online, target = (
        filled(lambda key: Nets(policy.init_net(key, SPEC), (), loss.init_net(key, SPEC, policy)), 2 * seed + i, size=0.7) for i in range(2)
    )
    return online, target


@pytest.mark.parametrize("weighting", FREE)
@hypothesis.settings(max_examples=20, deadline=None)
@hypothesis.given(
    seed=st.integers(0, 10_000),
    lengths=st.lists(st.integers(1, 4), min_size=3, max_size=3),
    cut=st.lists(st.booleans(), min_size=3, max_size=3),
)
def test_weights_are_one_or_alpha_exactly_as_defined(weighting: str, seed: int, lengths: list[int], cut: list[bool]) -> None:
    batch, nets = random_episodes(seed, lengths, cut), free_nets(seed % 5, weighting, (3, 5, 2, 3))
    (_, fit), _ = loss_and_gradient(FREE[weighting], Table(), VDN(), nets, batch, batch.reward)
    (online, target), e, agents = as_numpy(nets), as_numpy(batch), [0, 1]
    for b, t in zip(*np.nonzero(e.played), strict=True):
        best, later = (greedy_actions(online.policy[b, t + i], e.available[b, t + i]) for i in (0, 1))
        chosen = float(online.policy[b, t][agents, e.action[b, t]].sum())
        central = unrestricted(online.loss.mixer, online.loss.agent[b, t][agents, e.action[b, t]], e.state[b, t])
        after = unrestricted(target.loss.mixer, target.loss.agent[b, t + 1][agents, later], e.state[b, t + 1])
        at_best = unrestricted(target.loss.mixer, target.loss.agent[b, t][agents, best], e.state[b, t])
        aim = e.reward[b, t] + GAMMA * (not e.terminated[b, t]) * after
        if weighting == "optimistic":
            in_full, tie = chosen < aim, abs(chosen - aim)
        else:
            greedy = best == e.action[b, t].tolist()
            in_full, tie = greedy or aim > at_best, 1.0 if greedy else abs(aim - at_best)
        if tie > 1e-4:
            expected = (1.0 if in_full else ALPHA) * (chosen - aim) ** 2 + (central - aim) ** 2
            assert float(fit.loss[b, t, 0]) == pytest.approx(expected, rel=1e-4, abs=1e-5)
        assert float(fit.error[b, t, 0]) == pytest.approx(chosen - aim, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("weighting", FREE)
def test_padding_and_garbage_in_it_change_neither_loss_nor_gradient(weighting: str) -> None:
    batch, nets = random_episodes(1, [4, 2, 3], cut=[True, False, True]), free_nets(0, weighting, (3, 5, 2, 3))
    longer = jax.tree.map(lambda x: jnp.pad(x, ((0, 0), (0, 2), (0, 0), (0, 0)), constant_values=50.0) if x.ndim == 4 else x, nets)
    (loss, _), (gradient, _) = loss_and_gradient(FREE[weighting], Table(), VDN(), nets, batch, batch.reward)
    padded = stretched(batch, 2)
    for episodes, reward in ((padded, padded.reward), spoilt(batch, 2)):
        (same, _), (long, _) = loss_and_gradient(FREE[weighting], Table(), VDN(), longer, episodes, reward)
        assert float(same) == pytest.approx(float(loss), rel=1e-5)
        assert_trees_close(long.loss.mixer, gradient.loss.mixer, 1e-4)
        for a, b in ((long.policy, gradient.policy), (long.loss.agent, gradient.loss.agent)):
            assert_close(a[:, :5], b, 1e-5)
            assert not np.any(np.asarray(a[:, 5:]))
    assert all(np.any(np.asarray(leaf)) for leaf in jax.tree.leaves(gradient))


def test_all_four_networks_learn_from_one_loss() -> None:
    policy, mixer, loss = RecurrentQ(hidden=3), QMIX(embed=2, hypernet=3), FREE["central"]
    nets = tuple(
        filled(lambda key: Nets(policy.init_net(key, SPEC), mixer.init(key, SPEC), loss.init_net(key, SPEC, policy)), i) for i in (0, 1)
    )
    batch = random_episodes(0, [4, 3])
    _, (online, target) = loss_and_gradient(loss, policy, mixer, nets, batch, batch.reward)
    assert jax.tree.structure(online.loss.agent) == jax.tree.structure(online.policy)
    assert all(np.any(np.asarray(leaf)) for leaf in jax.tree.leaves(online))
    assert not any(np.any(np.asarray(leaf)) for leaf in jax.tree.leaves(target))


def test_the_central_agents_begin_unlike_the_acting_ones() -> None:
    function = ValueFunction(Table((1, 2, 2, 3)), VDN(), OPTIMISTIC, optax.sgd(0.1), GAMMA, 200)
    state = function.init(jax.random.key(0), SPEC)
    assert np.all(np.asarray(state.online.loss.agent) != np.asarray(state.online.policy))
    np.testing.assert_array_equal(state.target.loss.agent, state.online.loss.agent)


def test_weights_and_central_mixer_are_the_released_ones_and_mistakes_are_named() -> None:
    assert Weighted() == Weighted("optimistic", 0.1, Unrestricted(256))
    for alpha in (-0.1, 1.1, float("nan")):
        with pytest.raises(UserError, match=r"^loss\.alpha="):
            Weighted(alpha=alpha)
