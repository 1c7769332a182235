"""Networks against PyTorch's equations written in NumPy, and the hand-written derivative against JAX's own."""

from __future__ import annotations

import functools
from collections.abc import Callable

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from emc import nets
from emc.interop import to_torch
from emc.nets import GRU, MLP, AgentNet, Linear, Trunk
from emc.policies import RecurrentQ
from emc.types import shared_maximum
from tests import twins
from tests.twins import assert_close, assert_trees_close, quick

TIME, ROWS, INPUT, HIDDEN, ACTIONS = 11, 3, 5, 7, 3


def agent(seed: int = 0, size: float = 0.5) -> AgentNet:
    return twins.filled(lambda key: AgentNet.init(key, INPUT, HIDDEN, ACTIONS), seed, size)


def random(seed: int, *shape: int) -> jax.Array:
    return jax.device_put(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def beginnings(seed: int, *front: int) -> jax.Array:
    """Where episodes begin: at the first moment of every row, and now and then after it."""
    begun = np.random.default_rng(seed).random((*front, TIME, ROWS)) < 0.25
    begun[..., 0, :] = True
    return jax.device_put(begun)


def plain_unroll(net: AgentNet, x: jax.Array, first: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Linear, ReLU, PyTorch's equations in a plain scan (gates in the order reset, update, new), linear; from zeros in each episode."""
    gru = net.memory

    def step(h: jax.Array, at: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        x, begins = at
        h = jnp.where(begins[:, None], 0.0, h)
        from_input = jnp.einsum("ri,ghi->grh", x, gru.input_weight) + gru.input_bias[:, None]
        from_hidden = jnp.einsum("rk,ghk->grh", h, gru.hidden_weight) + gru.hidden_bias[:, None]
        r, z = jax.nn.sigmoid(from_input[:2] + from_hidden[:2])
        n = jnp.tanh(from_input[2] + r * from_hidden[2])
        h = (1 - z) * n + z * h
        return h, h

    encoded = jnp.maximum(x @ net.encode.weight.T + net.encode.bias, 0.0)
    hidden = lax.scan(step, jnp.zeros((x.shape[1], gru.hidden_weight.shape[-1])), (encoded, first))[1]
    return jnp.moveaxis(hidden, 1, 2), hidden @ net.decode.weight.T + net.decode.bias


def test_a_gru_step_follows_pytorchs_equations() -> None:
    net, x, h = agent(), random(1, ROWS, HIDDEN), random(2, ROWS, HIDDEN)
    assert_close(quick(GRU.step)(net.memory, x, h), twins.gru(to_torch(net), np.asarray(x), np.asarray(h)), 1e-5)


def gru_of_one(**biases: tuple[int, float]) -> float:
    """The next state of a single unit with no weights but a bias at one gate of each kind, from the state 0.7."""
    zeros = {"input_weight": (3, 1, 1), "hidden_weight": (3, 1, 1), "input_bias": (3, 1), "hidden_bias": (3, 1)}
    arrays = {name: np.zeros(shape, np.float32) for name, shape in zeros.items()}
    for name, (gate, value) in biases.items():
        arrays[name][gate] = value
    gru = GRU(**{name: jnp.asarray(array) for name, array in arrays.items()})
    return float(quick(GRU.step)(gru, jnp.zeros((1, 1)), jnp.full((1, 1), 0.7))[0, 0])


def test_the_reset_gate_multiplies_the_hidden_bias_of_the_new_gate() -> None:
    assert gru_of_one(hidden_bias=(2, 5.0)) == pytest.approx(0.5 * np.tanh(0.5 * 5.0) + 0.5 * 0.7, rel=1e-5)  # half open
    assert gru_of_one(hidden_bias=(2, 5.0), input_bias=(0, -50.0)) == pytest.approx(0.5 * 0.7, rel=1e-5)  # closed: the bias is hidden
    assert gru_of_one(input_bias=(2, 5.0)) == pytest.approx(0.5 * np.tanh(5.0) + 0.5 * 0.7, rel=1e-5)  # the input's bias never is


def test_the_update_gate_keeps_the_old_state_when_open() -> None:
    assert gru_of_one(input_bias=(1, 50.0), hidden_bias=(2, 5.0)) == pytest.approx(0.7)
    assert gru_of_one(input_bias=(1, -50.0), hidden_bias=(2, 5.0)) == pytest.approx(np.tanh(0.5 * 5.0))


def test_the_agent_is_linear_relu_gru_linear_along_time() -> None:
    net, x = agent(), random(4, TIME, ROWS, INPUT)
    weights, h, first = to_torch(net), np.zeros((ROWS, HIDDEN)), beginnings(4)
    hidden, out = quick(AgentNet.unroll)(net, x, first, jnp.int32(TIME))
    assert np.any(first[1:])
    for t in range(TIME):
        h = np.where(np.asarray(first[t])[:, None], 0.0, h)  # a new episode remembers nothing
        h = twins.gru(weights, np.maximum(twins.linear(weights, "fc1", np.asarray(x[t])), 0.0), h)
        assert_close(hidden[t].T, h, 1e-5)
        assert_close(out[t], twins.linear(weights, "fc2", h), 1e-5)


def test_unrolling_equals_repeated_steps_from_zeros() -> None:
    net, x, h = agent(1), random(3, TIME, ROWS, INPUT), jnp.zeros((ROWS, HIDDEN))
    hidden, out = quick(AgentNet.unroll)(net, x, jnp.zeros((TIME, ROWS), bool).at[0].set(True), jnp.int32(TIME))
    step = quick(AgentNet.step)
    for t in range(TIME):
        h, q = step(net, x[t], h)
        assert_close(hidden[t].T, h, 1e-5)
        assert_close(out[t], q, 1e-5)


def weighted_sum(unrolled: tuple[jax.Array, ...], weights: tuple[jax.Array, ...], moments: jax.Array) -> jax.Array:
    """Something that reads all hidden states and outputs before a moment, and nothing after."""
    read = (jnp.arange(TIME) < moments)[:, None, None]
    return sum(jnp.sum(read * weight * track) for weight, track in zip(weights, unrolled, strict=True))


Weights = tuple[jax.Array, jax.Array]


@functools.partial(quick, static_argnums=5)
def both_gradients(
    net: AgentNet, x: jax.Array, first: jax.Array, weights: Weights, moments: jax.Array, reads: tuple[int, ...] = (0, 1)
) -> tuple[AgentNet, AgentNet]:
    """How such a sum depends on every weight of the net: by the package's derivative, and by JAX's of the plain scan."""

    def gradient(unroll: Callable[..., Weights], *asked: jax.Array) -> AgentNet:
        def total(net: AgentNet) -> jax.Array:
            tracks = unroll(net, x, first, *asked)
            return weighted_sum(tuple(tracks[i] for i in reads), tuple(weights[i] for i in reads), moments)

        return jax.grad(total)(net)

    return gradient(AgentNet.unroll, moments), gradient(plain_unroll)


def numbers(seed: int, *front: int) -> tuple[jax.Array, Weights]:
    shapes = ((ROWS, INPUT), (HIDDEN, ROWS), (ROWS, ACTIONS))
    x, *weights = (random(seed + i, *front, TIME, *shape) for i, shape in enumerate(shapes))
    return x, tuple(weights)


@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(
    seed=st.integers(0, 10_000),
    size=st.sampled_from([0.1, 0.5, 2.0]),
    moments=st.integers(1, TIME),
    reads=st.sampled_from([(0, 1), (0,), (1,)]),  # both, the hidden states alone, the outputs alone
)
def test_the_derivative_of_unroll_is_that_of_a_plain_scan_that_begins_anew_with_each_episode(
    seed: int, size: float, moments: int, reads: tuple[int, ...]
) -> None:
    with jax.enable_x64(True):  # large weights make the unroll chaotic: in double precision the two agree all the same
        (x, weights), net = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), (numbers(seed), agent(seed, size)))
        ours, plain = both_gradients(net, x, beginnings(seed), weights, jnp.int32(moments), reads)
        assert all(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves(ours))
        assert_trees_close(ours, plain, 1e-9)


@pytest.mark.parametrize("tape", [1, 4, 5, 10, 11])
def test_a_tape_that_is_too_short_is_written_again_stretch_by_stretch(tape: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nets, "tape_moments", lambda moments: tape)
    x, weights = numbers(3)
    first = beginnings(3).at[tape % TIME, 0].set(True)  # an episode that begins with a stretch
    fresh = jax.jit(both_gradients.__wrapped__)  # nothing that was compiled for another tape
    for moments in sorted({1, tape, min(tape + 1, TIME), 2 * tape if 2 * tape <= TIME else TIME, TIME - 1, TIME}):
        ours, plain = fresh(agent(3), x, first, weights, jnp.int32(moments))
        assert_trees_close(ours, plain, 2e-5)


def test_the_derivative_in_single_precision_is_as_good_as_that_of_a_plain_scan() -> None:
    for seed in range(5):
        x, weights = numbers(seed)
        ours, plain = both_gradients(agent(seed), x, beginnings(seed), weights, jnp.int32(TIME))
        assert_trees_close(ours, plain, 1e-5)


@quick
def trunk_gradient(net: AgentNet, x: jax.Array, first: jax.Array, weights: jax.Array, moments: jax.Array) -> Trunk:
    return jax.grad(lambda trunk: weighted_sum((trunk.unroll(x, first, moments),), (weights,), moments))(Trunk(net.encode, net.memory))


def test_a_trunk_is_an_agent_without_its_last_layer() -> None:
    net, (x, weights), first, moments = agent(2), numbers(2), beginnings(2), jnp.int32(9)
    hidden = quick(Trunk.unroll)(Trunk(net.encode, net.memory), x, first, moments)
    np.testing.assert_array_equal(hidden, quick(AgentNet.unroll)(net, x, first, moments)[0])
    expected = both_gradients(net, x, first, weights, moments, (0,))[1]
    assert_trees_close(trunk_gradient(net, x, first, weights[0], moments), Trunk(expected.encode, expected.memory), 1e-5)


@quick
def reach(net: AgentNet, x: jax.Array, first: jax.Array) -> jax.Array:
    """Which moments' outputs change when the inputs of each moment do."""
    change = jnp.eye(TIME + 1)[:, :-1, None, None]  # the last changes nothing
    out = jax.vmap(lambda more: net.unroll(x + more, first, jnp.int32(TIME))[1])(change)
    return jnp.any(out[:-1] != out[-1], axis=-1)


def test_episodes_in_one_lane_know_nothing_of_each_other() -> None:
    first = beginnings(5)
    episode = np.cumsum(np.asarray(first), axis=0)
    together = episode[None] == episode[:, None]
    later = np.arange(TIME)[:, None] <= np.arange(TIME)
    touched = np.asarray(reach(agent(5), random(5, TIME, ROWS, INPUT), first))
    np.testing.assert_array_equal(touched, together & later[..., None])


def test_the_derivative_is_the_same_under_vmap_over_nets_and_lengths() -> None:
    nets = twins.stacked(*(agent(seed) for seed in range(3)))
    (x, weights), first, moments = numbers(6, 3), beginnings(6, 3), jnp.array([2, TIME, 9])

    def gradient(net: AgentNet, x: jax.Array, first: jax.Array, weights: Weights, moments: jax.Array) -> AgentNet:
        shared = shared_maximum(moments)  # as lanes have it: all seeds go as far as the longest
        return jax.grad(lambda net: weighted_sum(net.unroll(x, first, shared), weights, moments))(net)

    together = quick(jax.vmap(gradient))(nets, x, first, weights, moments)
    for i in range(3):
        one = twins.at(i, (nets, x, first, weights))
        assert_trees_close(twins.at(i, together), both_gradients(*one, moments[i])[1], 1e-5)


@hypothesis.settings(max_examples=15, deadline=None)
@hypothesis.given(moments=st.integers(1, TIME))
def test_what_lies_beyond_the_asked_moments_changes_nothing_before_them(moments: int) -> None:
    net, x = agent(), random(9, TIME, ROWS, INPUT)
    other = jnp.where(np.arange(TIME)[:, None, None] < moments, x, 100.0)
    unroll = quick(AgentNet.unroll)
    first = beginnings(9)
    for ours, garbled in zip(*(unroll(net, inputs, first, jnp.int32(moments)) for inputs in (x, other)), strict=True):
        np.testing.assert_array_equal(np.asarray(ours)[:moments], np.asarray(garbled)[:moments])


def assert_uniform_within(values: jax.Array, bound: float) -> None:
    """Fills the interval, evenly: moments of thousands of draws within five standard errors."""
    values = np.asarray(values, np.float64).ravel()
    assert np.max(np.abs(values)) <= bound
    assert np.max(values) > 0.95 * bound
    assert np.min(values) < -0.95 * bound
    assert abs(np.mean(values)) < 5 * bound / np.sqrt(3 * values.size)
    assert np.mean(values**2) == pytest.approx(bound**2 / 3, abs=5 * bound**2 * np.sqrt(4 / 45 / values.size))


def test_linear_layers_start_within_one_over_the_root_of_their_inputs() -> None:
    layer = quick(lambda key: Linear.init(key, 16, 400))(jax.random.key(0))
    assert_uniform_within(layer.weight, 16**-0.5)
    assert_uniform_within(layer.bias, 16**-0.5)
    assert jax.eval_shape(lambda key: Linear.init(key, 16, 4, bias=False), jax.random.key(0)).bias is None


def test_every_layer_of_an_agent_starts_within_pytorchs_bounds() -> None:
    net = quick(lambda key: AgentNet.init(key, 25, 64, 40))(jax.random.key(3))
    arrays = to_torch(net)
    assert {"fc1.weight", "fc2.bias", "rnn.weight_ih_l0", "rnn.weight_hh_l0", "rnn.bias_ih_l0", "rnn.bias_hh_l0"} < set(arrays)
    for name, array in arrays.items():
        assert_uniform_within(array, 25**-0.5 if name.startswith("fc1") else 64**-0.5)
    assert not np.any(np.isin(arrays["rnn.bias_ih_l0"], arrays["rnn.bias_hh_l0"]))  # drawn apart from each other


def test_gru_weights_are_bounded_by_the_hidden_size_even_where_the_input_is_smaller() -> None:
    assert_uniform_within(quick(lambda key: GRU.init(key, 4, 100))(jax.random.key(0)).input_weight, 100**-0.5)


def test_an_mlp_has_relu_between_its_layers_and_none_at_the_end() -> None:
    net = twins.filled(lambda key: MLP.init(key, (3, 8, 8, 2)), 0)
    x = random(8, 50, 3)
    y = np.asarray(x)
    for i, layer in enumerate(net.layers):
        y = y @ np.asarray(layer.weight).T + np.asarray(layer.bias)
        y = np.maximum(y, 0.0) if i < 2 else y
    assert np.any(y < 0)
    assert_close(quick(MLP.__call__)(net, x), y, 1e-5)
    without = jax.eval_shape(lambda key: MLP.init(key, (3, 8, 2), last_bias=False), jax.random.key(0))
    assert [layer.bias is None for layer in without.layers] == [False, True]


def test_a_stack_of_layers_side_by_side_gives_what_each_gives_alone() -> None:
    stack = twins.filled(lambda key: jax.vmap(lambda each: Linear.init(each, 5, 2))(jax.random.split(key, 3)), 0)
    x, side_by_side = np.asarray(random(1, 3, 5)), quick(Linear.side_by_side)
    weight, bias = np.asarray(stack.weight), np.asarray(stack.bias)
    alone = np.stack([weight[i] @ x[i] + bias[i] for i in range(3)])
    np.testing.assert_allclose(side_by_side(stack, x), alone, rtol=1e-5, atol=1e-6)
    other_row = np.asarray(side_by_side(stack, x + np.array([[0], [1], [0]], np.float32)))
    np.testing.assert_array_equal(other_row[[0, 2]], np.asarray(side_by_side(stack, x))[[0, 2]])
    assert not np.allclose(other_row[1], alone[1])


def test_an_agent_reads_its_observation_then_its_previous_action_then_its_id() -> None:
    obs = jnp.array([[True, False], [False, True]])
    expected = [[1, 0, 0, 0, 1, 1, 0], [0, 1, 0, 0, 0, 0, 1]]  # agent 1 has not acted yet
    inputs = RecurrentQ().inputs(obs, jnp.array([2, -1]), n_actions=3)
    assert inputs.dtype == jnp.float32
    np.testing.assert_array_equal(inputs, expected)


def test_a_policys_unroll_reads_each_episode_as_its_agents_did_while_playing() -> None:
    policy, lengths = RecurrentQ(hidden=8), [8, 2, 5]
    episodes = twins.random_episodes(0, lengths, steps=12)  # padding beyond the longest
    lanes = twins.laid(episodes)
    net = twins.filled(lambda key: policy.init_net(key, twins.SPEC), 0)
    run = twins.as_numpy(quick(lambda lanes: twins.run_by_moment(lanes, policy.unroll(net, (), lanes)))(lanes))
    expected, episodes = twins.agent_values(to_torch(net), episodes), twins.as_numpy(episodes)
    assert run.hidden.shape == (3, 13, 2, 8)
    for b, length in enumerate(lengths):
        assert_close(run.q[b, : length + 1], expected[b, : length + 1], 1e-5)
    key, epsilon = jax.random.key(0), jnp.zeros(())
    begin = quick(jax.vmap(lambda state: policy.begin(net, (), state, key, twins.SPEC)))
    step = quick(jax.vmap(lambda carry, obs, available, previous: policy.step(net, (), carry, obs, available, previous, key, epsilon)))
    carry, previous = begin(episodes.state[:, 0]), jnp.full((3, 2), -1)
    for t in range(9):
        decision = twins.as_numpy(step(carry, episodes.obs[:, t], episodes.available[:, t], previous))
        carry, there = decision.carry, t <= np.array(lengths)
        assert_close(decision.q[there], run.q[:, t][there], 1e-5)
        assert_close(carry[there], run.hidden[:, t][there], 1e-5)
        previous = episodes.action[:, t]
