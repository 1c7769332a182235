"""Networks against PyTorch's equations written in NumPy, and the hand-written derivative against JAX's own."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from emc.interop import to_torch
from emc.nets import GRU, MLP, AgentNet, Linear, agent_inputs
from emc.policies import RecurrentQ
from tests import twins
from tests.twins import assert_close, assert_trees_close

TIME, ROWS, INPUT, HIDDEN, ACTIONS = 6, 4, 5, 7, 3


def loud(net: AgentNet, factor: float = 3.0) -> AgentNet:
    """The same net with larger weights, so that no gate stays in its linear part."""
    return jax.tree.map(lambda x: factor * x, net)


@pytest.fixture(scope="module")
def net() -> AgentNet:
    return loud(AgentNet.init(jax.random.key(0), INPUT, HIDDEN, ACTIONS))


def random(seed: int, *shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def plain_unroll(gru: GRU, x: jax.Array) -> jax.Array:
    """PyTorch's equations in a plain scan, gates in the order reset, update, new."""

    def step(h: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        from_input = jnp.einsum("ri,ghi->grh", x, gru.input_weight) + gru.input_bias[:, None]
        from_hidden = jnp.einsum("rk,ghk->grh", h, gru.hidden_weight) + gru.hidden_bias[:, None]
        r, z = jax.nn.sigmoid(from_input[:2] + from_hidden[:2])
        n = jnp.tanh(from_input[2] + r * from_hidden[2])
        h = (1 - z) * n + z * h
        return h, h

    return lax.scan(step, jnp.zeros((x.shape[1], gru.hidden_weight.shape[-1])), x)[1]


def test_a_gru_step_follows_pytorchs_equations(net: AgentNet) -> None:
    x, h = random(1, ROWS, HIDDEN), random(2, ROWS, HIDDEN)
    assert_close(net.memory.step(x, h), twins.gru(to_torch(net), np.asarray(x), np.asarray(h)), 1e-5)


def test_the_reset_gate_multiplies_the_hidden_bias_of_the_new_gate() -> None:
    gru = jax.tree.map(jnp.zeros_like, GRU.init(jax.random.key(0), 1, 1))
    weights = {"input_bias": gru.input_bias.at[0].set(-50.0), "hidden_bias": gru.hidden_bias.at[2].set(5.0)}
    shut = GRU(gru.input_weight, gru.hidden_weight, **weights)
    assert shut.step(jnp.zeros((1, 1)), jnp.zeros((1, 1)))[0, 0] == pytest.approx(0.0, abs=1e-6)  # a closed reset gate hides the bias
    half = GRU(gru.input_weight, gru.hidden_weight, gru.input_bias, weights["hidden_bias"])
    assert half.step(jnp.zeros((1, 1)), jnp.zeros((1, 1)))[0, 0] == pytest.approx(0.5 * np.tanh(0.5 * 5.0), rel=1e-5)


def test_the_update_gate_keeps_the_old_state_when_open() -> None:
    gru = jax.tree.map(jnp.zeros_like, GRU.init(jax.random.key(0), 1, 1))
    keeps = GRU(gru.input_weight, gru.hidden_weight, gru.input_bias.at[1].set(50.0), gru.hidden_bias)
    assert keeps.step(jnp.ones((1, 1)), jnp.full((1, 1), 0.7))[0, 0] == pytest.approx(0.7)


def test_unrolling_equals_repeated_steps_from_zeros(net: AgentNet) -> None:
    x = random(3, TIME, ROWS, INPUT)
    hidden, out = net.unroll(x)
    h = jnp.zeros((ROWS, HIDDEN))
    for t in range(TIME):
        h, q = net.step(x[t], h)
        assert_close(hidden[t], h, 1e-5)
        assert_close(out[t], q, 1e-5)


def test_the_agent_is_linear_relu_gru_linear(net: AgentNet) -> None:
    weights, x = to_torch(net), np.asarray(random(4, TIME, ROWS, INPUT))
    h = np.zeros((ROWS, HIDDEN))
    expected = []
    for t in range(TIME):
        h = twins.gru(weights, np.maximum(twins.linear(weights, "fc1", x[t]), 0.0), h)
        expected.append(twins.linear(weights, "fc2", h))
    assert_close(net.unroll(jnp.asarray(x))[1], np.stack(expected), 1e-5)


def gradients(unroll, gru: GRU, x: jax.Array, weight: jax.Array) -> tuple[GRU, jax.Array]:
    """How a weighted sum of all hidden states depends on all weights and inputs."""
    return jax.grad(lambda gru, x: jnp.sum(weight * unroll(gru, x)), argnums=(0, 1))(gru, x)


@jax.jit
def both_gradients(gru: GRU, x: jax.Array, weight: jax.Array) -> tuple[tuple[GRU, jax.Array], tuple[GRU, jax.Array]]:
    return gradients(GRU.unroll, gru, x, weight), gradients(plain_unroll, gru, x, weight)


@hypothesis.settings(max_examples=20, deadline=None)
@hypothesis.given(seed=st.integers(0, 10_000), size=st.sampled_from([0.1, 1.0, 3.0]))
def test_the_derivative_of_unroll_is_that_of_a_plain_scan(seed: int, size: float) -> None:
    rng = np.random.default_rng(seed)
    shapes = ((3, HIDDEN, INPUT), (3, HIDDEN, HIDDEN), (3, HIDDEN), (3, HIDDEN))
    gru = GRU(*(jnp.asarray(size * rng.normal(size=shape), jnp.float32) for shape in shapes))
    x, weight = random(seed + 1, TIME, ROWS, INPUT), random(seed + 2, TIME, ROWS, HIDDEN)
    ours, plain = both_gradients(gru, x, weight)
    assert_trees_close(ours, plain, 1e-5)


def test_the_derivative_counts_only_the_moments_that_the_loss_reads(net: AgentNet) -> None:
    x = random(5, TIME, ROWS, HIDDEN)
    early = jnp.zeros((TIME, ROWS, HIDDEN)).at[1].set(1.0)
    (_, d_x), (_, plain) = both_gradients(net.memory, x, early)
    assert np.all(np.asarray(d_x[2:]) == 0.0)
    assert np.all(np.any(np.asarray(d_x[:2]) != 0.0, axis=(1, 2)))
    assert_close(d_x, plain, 1e-5)


def test_the_derivative_is_the_same_under_vmap_over_nets() -> None:
    nets = jax.vmap(lambda key: GRU.init(key, INPUT, HIDDEN))(jax.random.split(jax.random.key(1), 3))
    x, weight = random(6, 3, TIME, ROWS, INPUT), random(7, TIME, ROWS, HIDDEN)
    together = jax.vmap(lambda gru, x: gradients(GRU.unroll, gru, x, weight))(nets, x)
    for i in range(3):
        alone = gradients(plain_unroll, jax.tree.map(lambda leaf: leaf[i], nets), x[i], weight)  # noqa: B023
        assert_trees_close(jax.tree.map(lambda leaf: leaf[i], together), alone, 1e-5)  # noqa: B023


def assert_uniform_within(values: jax.Array, bound: float) -> None:
    """Fills the interval, evenly: moments of thousands of draws within five standard errors."""
    values = np.asarray(values, np.float64).ravel()
    assert np.max(np.abs(values)) <= bound
    assert np.max(values) > 0.95 * bound
    assert np.min(values) < -0.95 * bound
    assert abs(np.mean(values)) < 5 * bound / np.sqrt(3 * values.size)
    assert np.mean(values**2) == pytest.approx(bound**2 / 3, abs=5 * bound**2 * np.sqrt(4 / 45 / values.size))


def test_linear_layers_start_within_one_over_the_root_of_their_inputs() -> None:
    layer = Linear.init(jax.random.key(0), 16, 400)
    assert_uniform_within(layer.weight, 16**-0.5)
    assert_uniform_within(layer.bias, 16**-0.5)
    assert Linear.init(jax.random.key(0), 16, 4, bias=False).bias is None


def test_all_gru_weights_start_within_one_over_the_root_of_the_hidden_size() -> None:
    gru = GRU.init(jax.random.key(0), 9, 100)
    for leaf in (gru.input_weight, gru.hidden_weight, gru.input_bias, gru.hidden_bias):
        assert_uniform_within(leaf, 100**-0.5)
    assert not np.any(np.isin(np.asarray(gru.input_bias), np.asarray(gru.hidden_bias)))  # drawn apart from each other


def test_every_layer_of_an_agent_starts_within_pytorchs_bounds() -> None:
    net = AgentNet.init(jax.random.key(3), 25, 64, 5)
    for name, array in to_torch(net).items():
        fan_in = 25 if name.startswith("fc1") else 64
        assert_uniform_within(array, fan_in**-0.5) if array.size > 100 else None
        assert np.max(np.abs(array)) <= fan_in**-0.5


def test_an_mlp_has_relu_between_its_layers_and_none_at_the_end() -> None:
    net = MLP.init(jax.random.key(0), (3, 8, 8, 2))
    x = random(8, 50, 3)
    y = np.asarray(x)
    for i, layer in enumerate(net.layers):
        y = y @ np.asarray(layer.weight).T + np.asarray(layer.bias)
        y = np.maximum(y, 0.0) if i < 2 else y
    assert np.any(y < 0)
    assert_close(net(x), y, 1e-5)
    assert [layer.bias is None for layer in MLP.init(jax.random.key(0), (3, 8, 2), last_bias=False).layers] == [False, True]


def test_an_agent_reads_its_observation_then_its_previous_action_then_its_id() -> None:
    obs = jnp.array([[True, False], [False, True]])
    expected = [[1, 0, 0, 0, 1, 1, 0], [0, 1, 0, 0, 0, 0, 1]]  # agent 1 has not acted yet
    inputs = agent_inputs(obs, jnp.array([2, -1]), n_actions=3)
    assert inputs.dtype == jnp.float32
    np.testing.assert_array_equal(inputs, expected)


def test_a_policys_unroll_reads_each_episode_as_its_agents_did_while_playing() -> None:
    policy, episodes = RecurrentQ(hidden=8), twins.random_episodes(0, [4, 2, 3])
    net = loud(policy.init_net(jax.random.key(0), twins.SPEC))
    run = policy.unroll(net, episodes)
    assert run.hidden.shape == (3, 5, 2, 8)
    assert_close(run.q, twins.agent_values(to_torch(net), episodes), 1e-5)
    carry, previous = jnp.broadcast_to(policy.begin(net, twins.SPEC), (3, 2, 8)), jnp.full((3, 2), -1)
    for t in range(5):
        carry, q = policy.step(net, carry, episodes.obs[:, t], previous)
        assert_close(q, run.q[:, t], 1e-5)
        assert_close(carry, run.hidden[:, t], 1e-5)
        previous = episodes.action[:, min(t, 3)]
