"""Temporal-difference errors by hand, and what padding, targets and regularisers may and may not do."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from emc.errors import UserError
from emc.losses import TD
from emc.losses.fitting import ValueFunction
from emc.losses.td import best, targets, values_of
from emc.mixers import QMIX, QPLEX, VDN, AttentionQPLEX, Independent
from emc.parts import Actors, Fit, Mixed, Mixer, Nets, Policy
from emc.policies import RecurrentQ
from emc.types import AgentValues, EnvSpec, Episodes
from tests.twins import (
    SPEC,
    Table,
    along_steps,
    as_numpy,
    assert_close,
    assert_trees_close,
    filled,
    fit_with,
    improve,
    laid,
    quick,
    random_episodes,
    stretched,
    sum_errors,
)

GAMMA = 0.5
MIXERS: dict[str, Mixer] = {
    "independent": Independent(),
    "vdn": VDN(),
    "qmix": QMIX(embed=4, hypernet=5),
    "qplex": QPLEX(kernels=2, hypernet=5),
    "qplex-attention": AttentionQPLEX(heads=2, embed=4, kernels=2, hypernet=5),
}


def fit_tables(mixer: Mixer, q: Any, target_q: Any, batch: Episodes, double_q: bool = True, reward: Any = None) -> Fit:
    """The loss of agents whose values are given numbers."""
    online, target = (Nets(jnp.asarray(values, jnp.float32), (), ()) for values in (q, target_q))
    return fit_with(TD(double_q), Table(), mixer, online, target, batch, batch.reward if reward is None else jnp.asarray(reward), GAMMA)


def one_episode(terminated: bool) -> Episodes:
    """Three steps of two agents with three actions, and one step of padding; at the second moment agent 0 cannot play action 2."""
    available = np.ones((1, 5, 2, 3), bool)
    available[0, 1, 0, 2] = False
    available[0, 4] = False
    return Episodes(
        obs=jnp.zeros((1, 5, 2, 1)),
        state=jnp.zeros((1, 5, 1)),
        available=jnp.asarray(available),
        action=jnp.array([[[0, 1], [1, 2], [2, 0], [0, 0]]]),
        reward=jnp.array([[1.0, -2.0, 4.0, 0.0]]),
        terminated=jnp.array([[False, False, terminated, False]]),
        played=jnp.array([[True, True, True, False]]),
    )


Q = [  # moment by moment: agent 0, agent 1
    [[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]],
    [[3.0, 4.0, 9.0], [5.0, 1.0, 2.0]],  # best available: action 1 of agent 0 (action 2, worth 9, is not), action 0 of agent 1
    [[0.0, 6.0, 2.0], [1.0, 0.0, 7.0]],  # best: 1 and 2
    [[8.0, 0.0, 0.0], [0.0, 3.0, 1.0]],  # best: 0 and 1
    [[7.0, 7.0, 7.0], [7.0, 7.0, 7.0]],
]
TARGET = [
    [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]],
    [[10.0, 20.0, 30.0], [40.0, 50.0, 60.0]],  # of the online choice: 20 + 40; its own best available: 20 + 60
    [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]],  # 2 + 6; own best: 3 + 6
    [[100.0, 200.0, 300.0], [400.0, 500.0, 600.0]],  # 100 + 500; own best: 300 + 600
    [[70.0, 70.0, 70.0], [70.0, 70.0, 70.0]],
]
CHOSEN = [1.0 + 2.0, 4.0 + 2.0, 2.0 + 1.0]


@pytest.mark.parametrize(
    ("double_q", "terminated", "aims"),
    [
        (True, True, [1.0 + 0.5 * 60.0, -2.0 + 0.5 * 8.0, 4.0]),
        (True, False, [1.0 + 0.5 * 60.0, -2.0 + 0.5 * 8.0, 4.0 + 0.5 * 600.0]),
        (False, True, [1.0 + 0.5 * 80.0, -2.0 + 0.5 * 9.0, 4.0]),
        (False, False, [1.0 + 0.5 * 80.0, -2.0 + 0.5 * 9.0, 4.0 + 0.5 * 900.0]),
    ],
    ids=["double, terminated", "double, truncated", "maximum, terminated", "maximum, truncated"],
)
def test_the_errors_of_a_three_step_episode_are_those_found_by_hand(double_q: bool, terminated: bool, aims: list[float]) -> None:
    fit = fit_tables(VDN(), [Q], [TARGET], one_episode(terminated), double_q)
    assert fit.q[0, :3, 0].tolist() == CHOSEN
    expected = [q - aim for q, aim in zip(CHOSEN, aims, strict=True)]
    assert fit.error[0, :3, 0].tolist() == pytest.approx(expected)
    assert fit.loss[0, :3, 0].tolist() == pytest.approx([error**2 for error in expected])  # no factor of a half


def test_independent_learners_each_fit_their_own_value_to_the_teams_reward() -> None:
    fit = fit_tables(Independent(), [Q], [TARGET], one_episode(terminated=True))
    assert fit.q[0, :3].tolist() == [[1.0, 2.0], [4.0, 2.0], [2.0, 1.0]]
    aims = np.array([[1 + 0.5 * 20, 1 + 0.5 * 40], [-2 + 0.5 * 2, -2 + 0.5 * 6], [4, 4]])
    assert_close(fit.q[0, :3] - fit.error[0, :3], aims, 1e-6)


def value_function(mixer: Mixer, policy: Any, interval: int = 200, optimiser: Any = None) -> ValueFunction:
    """With a step of plain gradient descent, so that the change of the weights is minus the gradient."""
    return ValueFunction(policy, mixer, TD(), optimiser or optax.sgd(1.0), GAMMA, interval)


def improve_with(function: ValueFunction) -> Any:
    return quick(functools.partial(improve, function))


def test_the_loss_is_the_mean_over_steps_and_for_independent_learners_over_agents_too() -> None:
    for mixer, count in ((VDN(), 3), (Independent(), 6)):
        function = value_function(mixer, Table())
        state = function.start(Nets(jnp.array([Q]), (), ()))
        state = dataclasses.replace(state, target=Nets(jnp.array([TARGET]), (), ()))
        batch = one_episode(terminated=True)
        after, fit, metrics = improve_with(function)(state, batch, batch.reward, Actors(Table(), state.online.policy, ()))
        error = np.asarray(fit.error[0, :3], np.float64)
        assert float(metrics["loss"]) == pytest.approx(np.sum(error**2) / count)
        assert float(metrics["td_error"]) == pytest.approx(np.sum(np.abs(error)) / count)
        assert float(metrics["q"]) == pytest.approx(np.sum(fit.q[0, :3]) / count)
        assert float(metrics["target"]) == pytest.approx(np.sum(fit.q[0, :3] - error) / count)
        # The gradient: 2 error / count at each chosen value, nothing anywhere else (no path through the next moment's choice).
        gradient = np.asarray(state.online.policy - after.online.policy)[0]
        expected = np.zeros_like(gradient)
        for t, actions in enumerate([(0, 1), (1, 2), (2, 0)]):
            for agent, action in enumerate(actions):
                expected[t, agent, action] = 2 * error[t, agent if count == 6 else 0] / count
        assert_close(gradient, expected, 1e-5)
        assert float(metrics["gradient_norm"]) == pytest.approx(np.sqrt(np.sum(expected**2)), rel=1e-5)


@functools.partial(quick, static_argnums=3)
def _errors(q: jax.Array, target_q: jax.Array, batch: Episodes, double_q: bool) -> jax.Array:
    return fit_tables(VDN(), q, target_q, batch, double_q).error[..., 0]


@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(
    seed=st.integers(0, 10_000),
    lengths=st.lists(st.integers(1, 4), min_size=3, max_size=3),
    cut=st.lists(st.booleans(), min_size=3, max_size=3),
    double_q=st.booleans(),
)
def test_the_errors_of_any_episodes_are_those_of_a_plain_loop(seed: int, lengths: list[int], cut: list[bool], double_q: bool) -> None:
    batch, rng = random_episodes(seed, lengths, cut), np.random.default_rng(seed + 1)
    q, target_q = rng.normal(size=(2, 3, 5, 2, 3)).astype(np.float32)
    errors = np.asarray(_errors(q, target_q, batch, double_q))
    expected = sum_errors(q, target_q, batch, batch.reward, GAMMA, double_q)
    assert_close(errors * np.asarray(batch.played), expected, 1e-5)


def test_a_mixer_sees_the_chosen_values_and_the_best_available_ones_as_constants() -> None:
    q, available = jnp.array([[[1.0, 5.0, 9.0], [2.0, 4.0, 3.0]]]), jnp.array([[[True, True, False], [True, False, True]]])
    values = values_of(q, available, jnp.array([[0, 2]]))
    assert values.chosen.tolist() == [[1.0, 3.0]]
    assert values.greedy.tolist() == [[5.0, 3.0]]
    assert values.action.tolist() == [[0, 2]]
    assert best(q, available).tolist() == [[1, 2]]
    slopes = [jax.grad(lambda q: jnp.sum(vars(values_of(q, available, values.action))[name]))(q) for name in ("chosen", "greedy")]  # noqa: B023
    assert slopes[0].tolist() == [[[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]]
    assert not np.any(np.asarray(slopes[1]))


@pytest.mark.parametrize("name", ["qmix", "qplex", "qplex-attention"])
def test_every_mixer_is_asked_about_its_own_moment(name: str) -> None:
    """Chosen, greedy, action and state of moment t for the online mixer, of moment t + 1 for the target's."""
    mixer, batch = MIXERS[name], random_episodes(5, [4, 3], cut=[True, False])
    online, target = random_nets(Table((2, 5, 2, 3)), mixer)
    q, target_q, available = (np.asarray(x) for x in (online.policy, target.policy, batch.available))
    program = quick(jax.vmap(lambda net, v, s: mixer(net, v, s).q[0], in_axes=(None, 0, 0)))
    fit = as_numpy(quick(lambda o, t: fit_with(TD(), Table(), mixer, o, t, batch, batch.reward, GAMMA))(online, target))
    batch = as_numpy(batch)
    for b, length in enumerate([4, 3]):
        seen, after = [], []
        for t in range(length):
            taken, allowed, later = batch.action[b, t], available[b, t], available[b, t + 1]
            seen.append((q[b, t][[0, 1], taken], [max(q[b, t, i][allowed[i]]) for i in range(2)], taken))
            chosen = [max(np.flatnonzero(later[i]), key=lambda a: q[b, t + 1, i, a]) for i in range(2)]
            after.append((target_q[b, t + 1][[0, 1], chosen], [max(target_q[b, t + 1, i][later[i]]) for i in range(2)], chosen))
        now, then = (AgentValues(*(jax.device_put(np.array(x)) for x in zip(*moments, strict=True))) for moments in (seen, after))
        value = np.asarray(program(online.mixer, now, batch.state[b, :length]))
        next_value = np.asarray(program(target.mixer, then, batch.state[b, 1 : length + 1]))
        aim = batch.reward[b, :length] + GAMMA * (1.0 - batch.terminated[b, :length]) * next_value
        assert_close(fit.q[b, :length, 0], value, 1e-5)
        assert_close(fit.error[b, :length, 0], value - aim, 1e-5)


RECURRENT = RecurrentQ(hidden=4)


@functools.partial(quick, static_argnums=(0, 1))
def loss_and_gradient(policy: Policy, mixer: Mixer, nets: tuple[Nets, Nets], batch: Episodes, reward: jax.Array) -> tuple[jax.Array, Nets]:
    """The whole objective, regulariser included, and the step that follows from it."""
    function = value_function(mixer, policy)
    state = dataclasses.replace(function.start(nets[0]), target=nets[1])
    after, _, metrics = improve(function, state, batch, reward, Actors(policy, state.online.policy, ()))
    return metrics["loss"], jax.tree.map(jnp.subtract, state.online, after.online)


def random_nets(policy: Policy, mixer: Mixer) -> tuple[Nets, Nets]:
    """Online and target."""
    online, target = (filled(lambda key: Nets(policy.init_net(key, SPEC), mixer.init(key, SPEC), ()), seed) for seed in (0, 1))
    return online, target


def with_longer_tables(nets: tuple[Nets, Nets], more: int) -> tuple[Nets, Nets]:
    """The same values, and loud ones after them."""
    online, target = (
        dataclasses.replace(net, policy=jnp.pad(net.policy, ((0, 0), (0, more), (0, 0), (0, 0)), constant_values=50.0)) for net in nets
    )
    return online, target


@pytest.mark.parametrize("name", MIXERS)
def test_padding_after_the_end_changes_neither_loss_nor_gradient(name: str) -> None:
    mixer, batch = MIXERS[name], random_episodes(1, [4, 2, 3], cut=[True, False, True])
    nets = random_nets(Table((3, 5, 2, 3)), mixer)
    loss, gradient = loss_and_gradient(Table(), mixer, nets, batch, batch.reward)
    longer = stretched(batch, 2)
    padded_loss, padded = loss_and_gradient(Table(), mixer, with_longer_tables(nets, 2), longer, longer.reward)
    assert float(padded_loss) == pytest.approx(float(loss), rel=1e-5)
    assert_trees_close(padded.mixer, gradient.mixer, 1e-4)
    assert_close(padded.policy[:, :5], gradient.policy, 1e-5)
    assert not np.any(np.asarray(padded.policy[:, 5:]))
    assert all(np.any(np.asarray(leaf)) for leaf in jax.tree.leaves(gradient))


def test_padding_after_the_end_changes_no_gradient_of_recurrent_agents() -> None:
    batch, nets = random_episodes(1, [4, 2, 3], cut=[True, False, True]), random_nets(RECURRENT, VDN())
    longer = stretched(batch, 9)  # beyond the next chunk of the recurrent core too
    short, long = (loss_and_gradient(RECURRENT, VDN(), nets, b, b.reward) for b in (batch, longer))
    assert_trees_close(long, short, 1e-4)
    assert all(np.any(np.asarray(leaf)) for leaf in jax.tree.leaves(short[1].policy))


def spoilt(batch: Episodes) -> tuple[Episodes, jax.Array]:
    """The same episodes with garbage after their ends, in the reward too."""
    after = jnp.arange(5) > batch.length[:, None]  # moments after the final observation
    garbled = dataclasses.replace(
        batch,
        obs=jnp.where(after[..., None, None], 3.0, batch.obs),
        state=jnp.where(after[..., None], -2.0, batch.state),
        available=batch.available | after[..., None, None],
        action=jnp.where(batch.played[..., None], batch.action, 2),
    )
    return garbled, jnp.where(batch.played, batch.reward, 1e4)


@pytest.mark.parametrize(
    ("name", "policy"),
    [("independent", Table()), ("qmix", Table()), ("qplex", Table()), ("vdn", RECURRENT)],
    ids=["independent", "qmix", "qplex", "vdn with recurrent agents"],
)
def test_even_garbage_in_the_padding_changes_neither_loss_nor_gradient(name: str, policy: Policy) -> None:
    mixer, batch = MIXERS[name], random_episodes(2, [4, 1, 3], cut=[True, False, True])
    nets = random_nets(Table((3, 5, 2, 3)) if policy == Table() else policy, mixer)
    clean = loss_and_gradient(policy, mixer, nets, batch, batch.reward)
    assert_trees_close(loss_and_gradient(policy, mixer, nets, *spoilt(batch)), clean, 1e-4)


def test_the_bonus_of_a_step_beyond_the_end_is_never_learned_from() -> None:
    batch = one_episode(terminated=False)
    loud = batch.reward.at[0, 3].set(1e4)
    quiet, spoilt = (fit_tables(VDN(), [Q], [TARGET], batch, reward=reward) for reward in (batch.reward, loud))
    assert quiet.error[0, :3].tolist() == spoilt.error[0, :3].tolist()


@pytest.mark.parametrize("name", MIXERS)
def test_no_gradient_reaches_the_target(name: str) -> None:
    mixer, batch = MIXERS[name], random_episodes(3, [4, 2], cut=[False, True])

    def loss(target: Nets, online: Nets) -> jax.Array:
        fit = fit_with(TD(), Table(), mixer, online, target, batch, batch.reward, GAMMA)
        return jnp.sum(fit.loss * batch.played[..., None]) + jnp.sum(fit.q) + jnp.sum(fit.error)

    online, target = random_nets(Table((2, 5, 2, 3)), mixer)
    program = quick(jax.value_and_grad(loss))
    value, gradient = program(target, online)
    assert all(not np.any(np.asarray(leaf)) for leaf in jax.tree.leaves(gradient))
    assert float(program(online, online)[0]) != pytest.approx(float(value))  # although the target matters


@dataclasses.dataclass(frozen=True)
class Regularised(Mixer):
    """A sum whose regulariser is the first entry of the state."""

    def init(self, key: jax.Array, spec: EnvSpec) -> tuple[()]:
        return ()

    def __call__(self, net: tuple[()], values: AgentValues, state: jax.Array) -> Mixed:
        return Mixed(jnp.sum(values.chosen, keepdims=True), state[0])


def test_a_regulariser_is_averaged_up_to_the_longest_episodes_last_step_and_over_all_episodes() -> None:
    batch = random_episodes(0, [3, 1], steps=5)
    state = batch.state.at[..., 0].set(jnp.array([[1.0, 2.0, 4.0, 100.0, 0, 0], [8.0, 16.0, 32.0, 0, 0, 0]]))
    batch = dataclasses.replace(batch, state=state)
    table = np.random.default_rng(0).normal(size=(2, 6, 2, 3)).astype(np.float32)
    losses = {}
    for mixer in (VDN(), Regularised()):
        function = value_function(mixer, Table())
        state, actors = function.start(Nets(jnp.asarray(table), (), ())), Actors(Table(), jnp.asarray(table), ())
        losses[type(mixer)] = float(improve_with(function)(state, batch, batch.reward, actors)[2]["loss"])
    expected = (1.0 + 2.0 + 4.0 + 8.0 + 16.0) / (2 * 3)  # at steps 0, 1, 2 of both, the ending of the second too; nothing on padding
    assert losses[Regularised] - losses[VDN] == pytest.approx(expected, rel=1e-5)


def test_the_attention_regulariser_reaches_the_loss() -> None:
    weak = MIXERS["qplex-attention"]
    strong = dataclasses.replace(weak, regularisation=1.0)
    batch, nets = random_episodes(4, [4, 2]), random_nets(Table((2, 5, 2, 3)), weak)
    states = batch.state[:, :4].reshape(8, -1)
    values = AgentValues(jnp.zeros((8, 2)), jnp.zeros((8, 2)), jnp.zeros((8, 2), jnp.int32))
    mean = jnp.mean(quick(jax.vmap(lambda v, s: strong(nets[0].mixer, v, s).regulariser))(values, states))
    with_it, without = (loss_and_gradient(Table(), mixer, nets, batch, batch.reward)[0] for mixer in (strong, weak))
    assert float(with_it - without) == pytest.approx(float(mean) * (1 - 0.001), rel=1e-4)


def test_the_target_is_copied_every_interval_and_only_then() -> None:
    function = value_function(VDN(), Table(), interval=3, optimiser=optax.sgd(0.1))
    batch, update = one_episode(terminated=True), improve_with(function)
    state = function.start(Nets(jnp.array([Q]), (), ()))
    targets = [np.asarray(state.target.policy)]
    for i in range(1, 8):
        state = update(state, batch, batch.reward, Actors(Table(), state.online.policy, ()))[0]
        assert state.updates == i
        if i % 3 == 0:
            np.testing.assert_array_equal(state.target.policy, state.online.policy)
            targets.append(np.asarray(state.target.policy))
        else:
            np.testing.assert_array_equal(state.target.policy, targets[-1])
            assert np.any(np.asarray(state.online.policy) != targets[-1])
    assert np.any(targets[1] != targets[0])
    assert np.any(targets[2] != targets[1])


@pytest.mark.parametrize(
    ("share", "terminated", "aims"),
    [
        # Backwards, with gamma = 0.5: the last step's return, then r + 0.5 (0.5 value + 0.5 return).
        (0.5, True, [1.0 + 0.5 * (0.5 * 60.0 + 0.5 * 1.0), -2.0 + 0.5 * (0.5 * 8.0 + 0.5 * 4.0), 4.0]),
        (0.5, False, [1.0 + 0.5 * (0.5 * 60.0 + 0.5 * 76.0), -2.0 + 0.5 * (0.5 * 8.0 + 0.5 * 304.0), 4.0 + 0.5 * 600.0]),
        (1.0, True, [1.0 + 0.5 * -2.0 + 0.25 * 4.0, -2.0 + 0.5 * 4.0, 4.0]),  # the return, nothing bootstrapped
        (1.0, False, [1.0 + 0.5 * -2.0 + 0.25 * 4.0 + 0.125 * 600.0, -2.0 + 0.5 * 4.0 + 0.25 * 600.0, 4.0 + 0.5 * 600.0]),
        (0.0, True, [1.0 + 0.5 * 60.0, -2.0 + 0.5 * 8.0, 4.0]),
    ],
    ids=["half, terminated", "half, truncated", "all, terminated", "all, truncated", "one step"],
)
@pytest.mark.parametrize("padding", [0, 3])
def test_the_mixed_returns_of_a_three_step_episode_are_those_found_by_hand(
    share: float, terminated: bool, aims: list[float], padding: int
) -> None:
    batch = stretched(one_episode(terminated), padding)
    online, target = (
        Nets(jnp.pad(jnp.array([values]), ((0, 0), (0, padding), (0, 0), (0, 0)), constant_values=1e3), (), ()) for values in (Q, TARGET)
    )
    reward = jnp.where(batch.played, batch.reward, 1e4)
    fit = fit_with(TD(td_lambda=share), Table(), VDN(), online, target, batch, reward, GAMMA)
    assert fit.error[0, :3, 0].tolist() == pytest.approx([q - aim for q, aim in zip(CHOSEN, aims, strict=True)])


@functools.partial(quick, static_argnums=2)
def _aims(batch: Episodes, after: jax.Array, share: float) -> jax.Array:
    lanes = laid(batch)
    return lanes.by_episode(targets(lanes.reward, along_steps(lanes, after), lanes, GAMMA, share))


@hypothesis.settings(max_examples=25, deadline=None)
@hypothesis.given(
    seed=st.integers(0, 10_000),
    lengths=st.lists(st.integers(1, 4), min_size=3, max_size=3),
    cut=st.lists(st.booleans(), min_size=3, max_size=3),
    share=st.sampled_from([0.0, 0.3, 0.8, 1.0]),
)
def test_mixed_returns_are_the_weighted_mean_of_all_n_step_returns(seed: int, lengths: list[int], cut: list[bool], share: float) -> None:
    """Not backwards, as they are computed, but by their definition."""
    batch, after = random_episodes(seed, lengths, cut), np.random.default_rng(seed + 1).normal(size=(3, 4, 2)).astype(np.float32)
    aims, reward = np.asarray(_aims(batch, jnp.asarray(after), share)), np.asarray(batch.reward, np.float64)
    for b, length in enumerate(lengths):
        for t in range(length):
            returns = []
            for n in range(1, length - t + 1):
                last = t + n - 1
                bootstrap = after[b, last] * (cut[b] or last < length - 1)
                returns.append(sum(GAMMA**k * reward[b, t + k] for k in range(n)) + GAMMA**n * bootstrap)
            weights = [(1 - share) * share**n for n in range(len(returns) - 1)] + [share ** (len(returns) - 1)]
            expected = sum(w * r for w, r in zip(weights, returns, strict=True))
            np.testing.assert_allclose(aims[b, t], expected, rtol=1e-4, atol=1e-5)


def test_nothing_is_learned_through_mixed_returns() -> None:
    batch = one_episode(False)

    def loss(q: jax.Array) -> jax.Array:
        fit = fit_with(TD(td_lambda=0.5), Table(), VDN(), Nets(q, (), ()), Nets(q, (), ()), batch, batch.reward, GAMMA)
        return jnp.sum(fit.loss * batch.played[..., None]) / 2

    q = jnp.array([Q])
    error = fit_with(TD(td_lambda=0.5), Table(), VDN(), Nets(q, (), ()), Nets(q, (), ()), batch, batch.reward, GAMMA).error[0, :, 0]
    expected = np.zeros((1, 5, 2, 3))
    for t in range(3):
        expected[0, t, [0, 1], np.asarray(batch.action[0, t])] = error[t]
    assert_close(jax.grad(loss)(q), expected, 1e-6)


@pytest.mark.parametrize("share", [-0.1, 1.5, float("nan")])
def test_a_share_of_longer_returns_beyond_nothing_and_all_is_refused(share: float) -> None:
    with pytest.raises(UserError, match=r"^loss\.td_lambda=.*from 0 to 1"):
        TD(td_lambda=share)
