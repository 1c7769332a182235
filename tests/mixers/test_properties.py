"""What the theory of each mixer promises."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any

import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.errors import UserError
from emc.interop import to_torch
from emc.mixers import QMIX, QPLEX, VDN, AttentionQPLEX, Independent, Unrestricted
from emc.nets import at_once
from emc.parts import Mixer
from emc.types import AgentValues, EnvSpec
from tests.twins import assert_close, assert_trees_close, fill, mlp, quick, two_layers, unrestricted

AGENTS, ACTIONS, UNIT = 3, 3, 2
SPEC = EnvSpec(n_agents=AGENTS, n_actions=ACTIONS, obs_size=1, state_size=7, episode_limit=1, unit_size=UNIT)
PAIR = dataclasses.replace(SPEC, n_agents=2, n_actions=4)
SMALL_QMIX = QMIX(embed=5, hypernet=6)
FLAT_QMIX = QMIX(embed=5, layers=1)  # MAVEN's
FREE = Unrestricted(width=6)
DUPLEX: dict[str, Mixer] = {
    "weighted": QPLEX(kernels=2, layers=2, hypernet=6),
    "unweighted": QPLEX(kernels=2, layers=1, hypernet=6, weighted=False),
    "three layers": QPLEX(kernels=3, layers=3, hypernet=6),
    "attention": AttentionQPLEX(heads=4, embed=4, kernels=2, hypernet=6),
    "attention with weighted heads": AttentionQPLEX(heads=2, embed=4, kernels=2, layers=2, hypernet=6, weighted=True),
}
seeds = st.integers(0, 10_000)
three_numbers = hnp.arrays(np.float32, (AGENTS,), elements=st.integers(-500, 500).map(lambda n: n / 10))


@functools.cache
def shapes_of(mixer: Mixer, spec: EnvSpec) -> Any:
    return jax.eval_shape(lambda key: mixer.init(key, spec), jax.random.key(0))


def net_of(mixer: Mixer, seed: int, spec: EnvSpec = SPEC) -> Any:
    return fill(shapes_of(mixer, spec), seed, size=0.7)


def state_of(seed: int, spec: EnvSpec = SPEC) -> np.ndarray:
    return np.random.default_rng(seed + 1).normal(size=spec.state_size).astype(np.float32)


@functools.partial(quick, static_argnums=0)
def value(mixer: Mixer, net: Any, chosen: jax.Array, greedy: jax.Array, action: jax.Array, state: jax.Array) -> jax.Array:
    """The team's value for any number of joint choices."""
    return jax.vmap(lambda c, g, a: mixer(net, AgentValues(c, g, a), state).q)(chosen, greedy, action)


@functools.partial(quick, static_argnums=0)
def gradient(mixer: Mixer, net: Any, chosen: jax.Array, greedy: jax.Array, action: jax.Array, state: jax.Array) -> tuple[Any, Any, Any]:
    """How the team's value depends on the net, the chosen and the greedy values."""
    return jax.grad(lambda n, c, g: jnp.sum(mixer(n, AgentValues(c, g, action), state).q), argnums=(0, 1, 2))(net, chosen, greedy)


@pytest.mark.parametrize("mixer", [SMALL_QMIX, FLAT_QMIX], ids=["two layers", "one layer"])
@hypothesis.settings(max_examples=25, deadline=None)
@hypothesis.given(seed=seeds, chosen=three_numbers, rise=st.floats(0.1, 50.0))
def test_qmix_is_monotone_in_every_agents_value(mixer: QMIX, seed: int, chosen: np.ndarray, rise: float) -> None:
    net, state, nothing = net_of(mixer, seed), state_of(seed), np.zeros(AGENTS, np.int32)
    slope = np.asarray(gradient(mixer, net, chosen, chosen, nothing, state)[1])
    assert np.all(slope >= 0.0)
    raised = chosen + np.float32(rise) * np.eye(AGENTS, dtype=np.float32)
    choices = np.concatenate([chosen[None], raised])
    q = np.asarray(value(mixer, net, choices, choices, np.zeros((AGENTS + 1, AGENTS), np.int32), state))[:, 0]
    assert np.all(q[1:] >= q[0] - 1e-5 * np.max(np.abs(q)))


def test_qmix_is_neither_flat_nor_linear_nor_of_one_sign() -> None:
    net, zeros, nothing = net_of(SMALL_QMIX, 0), np.zeros((1, AGENTS), np.float32), np.zeros((1, AGENTS), np.int32)
    low, high = (np.asarray(gradient(SMALL_QMIX, net, zeros[0] + x, zeros[0], nothing[0], state_of(0))[1]) for x in (-1, 3))
    assert np.all(high > 0.0)
    assert np.max(np.abs(high - low)) > 0.01  # the same rise is worth less where the mixing layer saturates
    totals = [float(value(SMALL_QMIX, net, zeros, zeros, nothing, state_of(seed))[0, 0]) for seed in range(6)]
    assert min(totals) < 0 < max(totals)


@pytest.mark.parametrize("mixer", [SMALL_QMIX, FLAT_QMIX], ids=["two layers", "one layer"])
def test_qmix_is_a_layer_of_nonnegative_weights_from_the_state_and_the_states_own_value(mixer: QMIX) -> None:
    chosen, nothing = np.random.default_rng(0).normal(size=(4, AGENTS)).astype(np.float32), np.zeros((4, AGENTS), np.int32)
    net, state = net_of(mixer, 1), state_of(1)
    first, last = (np.abs(mlp(weight, state)) for weight in (net.first_weight, net.last_weight))
    hidden = chosen @ first.reshape(AGENTS, 5) + np.asarray(net.first_bias.weight) @ state + np.asarray(net.first_bias.bias)
    total = np.where(hidden > 0, hidden, np.expm1(hidden)) @ last + mlp(net.value, state)[0]
    assert np.any(hidden < -0.5)
    assert_close(value(mixer, net, chosen, chosen, nothing, state)[:, 0], total, 1e-5)
    assert len(net.first_weight.layers) == len(net.last_weight.layers) == mixer.layers


def test_the_unrestricted_mixer_is_a_plain_network_of_state_and_values_and_not_monotone() -> None:
    chosen, nothing = np.random.default_rng(0).normal(size=(4, AGENTS)).astype(np.float32), np.zeros((4, AGENTS), np.int32)
    slopes = []
    for seed in range(4):
        net, state = net_of(FREE, seed), state_of(seed)
        expected = np.array([unrestricted(net, row, state) for row in chosen])
        assert_close(value(FREE, net, chosen, chosen + 1.0, nothing, state)[:, 0], expected, 1e-5)
        _, slope, to_greedy = gradient(FREE, net, chosen[0], chosen[0], nothing[0], state)
        slopes.append(np.asarray(slope))
        assert not np.any(np.asarray(to_greedy))
    assert np.min(slopes) < -0.01
    assert np.max(slopes) > 0.01
    released = jax.eval_shape(lambda key: Unrestricted().init(key, SPEC), jax.random.key(0))
    assert [layer.weight.shape for layer in released.joint.layers] == [(256, 7 + AGENTS), (256, 256), (256, 256), (1, 256)]
    assert [layer.weight.shape for layer in released.value.layers] == [(256, 7), (1, 256)]


def joint_choices(q: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Chosen values, greedy values and actions of every joint action."""
    agents, actions = q.shape
    action = np.array(list(itertools.product(range(actions), repeat=agents)), np.int32)
    chosen = q[np.arange(agents), action]
    return chosen, np.broadcast_to(q.max(axis=1), chosen.shape), action


@pytest.mark.parametrize("spec", [SPEC, PAIR], ids=["3 agents", "2 agents"])
@pytest.mark.parametrize("name", DUPLEX)
@hypothesis.settings(max_examples=15, deadline=None)
@hypothesis.given(seed=seeds)
def test_the_teams_greedy_action_is_every_agents_own(name: str, spec: EnvSpec, seed: int) -> None:
    mixer, rng = DUPLEX[name], np.random.default_rng(seed)
    q = np.stack([rng.permutation(spec.n_actions) for _ in range(spec.n_agents)]).astype(np.float32) * 2 + rng.normal(
        size=(spec.n_agents, 1)
    )
    q = q.astype(np.float32)
    chosen, greedy, action = joint_choices(q)
    total = np.asarray(value(mixer, net_of(mixer, seed, spec), chosen, greedy, action, state_of(seed, spec)))[:, 0]
    own = q.argmax(axis=1)
    best = int(np.flatnonzero((action == own).all(axis=1))[0])
    rest = np.delete(total, best)
    rounding = 1e-6 * np.max(np.abs(total))
    assert np.all(rest <= total[best] + rounding)
    assert np.mean(rest < total[best] - rounding) > 0.5  # not by being flat
    assert len(np.unique(np.round(total, 5))) > len(own) + 1  # nor by ignoring who does what


@pytest.mark.parametrize("name", DUPLEX)
def test_moving_away_from_the_greedy_action_never_pays_whatever_the_others_do(name: str) -> None:
    mixer = DUPLEX[name]
    for seed in range(10):
        net, state, rng = net_of(mixer, seed), state_of(seed), np.random.default_rng(seed)
        greedy = rng.normal(size=(1, AGENTS)).astype(np.float32)
        action = rng.integers(ACTIONS, size=(1, AGENTS)).astype(np.int32)
        loss = np.abs(rng.normal(size=(1, AGENTS))).astype(np.float32)
        at_greedy, below = (float(value(mixer, net, greedy - d, greedy, action, state)[0, 0]) for d in (np.zeros_like(loss), loss))
        assert below < at_greedy


@hypothesis.settings(max_examples=25, deadline=None)
@hypothesis.given(seed=seeds, q=three_numbers)
def test_at_the_greedy_joint_action_qplex_is_the_sum_of_transformed_values(seed: int, q: np.ndarray) -> None:
    mixer, net, state = DUPLEX["weighted"], net_of(DUPLEX["weighted"], seed), state_of(seed)
    weights = to_torch(net)
    weight, bias = np.abs(two_layers(weights, "hyper_w_final", state)) + 1e-10, two_layers(weights, "V", state)
    for action in ([0, 0, 0], [2, 1, 0]):
        total = value(mixer, net, q[None], q[None], np.array([action], np.int32), state)
        assert float(total[0, 0]) == pytest.approx(np.sum(weight * q + bias), rel=1e-4, abs=1e-4 * np.max(np.abs(weight * q)) + 1e-4)


def test_at_the_greedy_joint_action_the_untransformed_mixer_is_vdn() -> None:
    mixer, q = DUPLEX["unweighted"], np.array([[1.5, -2.0, 4.0]], np.float32)
    assert float(value(mixer, net_of(mixer, 0), q, q, np.zeros((1, AGENTS), np.int32), state_of(0))[0, 0]) == pytest.approx(3.5)


@pytest.mark.parametrize("name", DUPLEX)
def test_agents_and_transformation_learn_through_the_first_sum_and_lambda_through_the_second(name: str) -> None:
    mixer, net, state = DUPLEX[name], net_of(DUPLEX[name], 3), state_of(3)
    greedy, action = np.array([1.0, 2.0, 3.0], np.float32), np.array([0, 2, 1], np.int32)
    chosen = greedy - np.array([0.5, 0.0, 2.0], np.float32)
    d_net, d_chosen, d_greedy = gradient(mixer, net, chosen, greedy, action, state)
    at_greedy, d_first, _ = gradient(mixer, net, greedy, greedy, action, state)  # here the second sum is zero
    assert_close(d_chosen, d_first, 1e-5)  # the first sum is linear in the agents' values: the slope is the weight, free of lambda
    assert np.all(np.asarray(d_chosen) > 0)
    assert not np.any(np.asarray(d_greedy))

    # lambda: nothing to learn at the greedy action; elsewhere proportional to the advantage, which is a constant to it.
    assert not any(np.any(np.asarray(leaf)) for leaf in jax.tree.leaves(at_greedy.attention))
    assert all(np.any(np.asarray(leaf)) for leaf in jax.tree.leaves(d_net.attention))
    weight = np.asarray(d_first)

    def second_sum(attention: Any) -> jax.Array:
        values = AgentValues(jnp.asarray(chosen), jnp.asarray(greedy), jnp.asarray(action))
        return jnp.sum(weight * (chosen - greedy) * attention(at_once(jnp.asarray(state), *attention.readers), values))

    assert_trees_close(d_net.attention, quick(jax.grad(second_sum))(net.attention), 1e-4)

    # Transformation: as if the second sum were not there, that is as with a lambda of one everywhere.
    silent = dataclasses.replace(net, attention=jax.tree.map(jnp.zeros_like, net.attention))
    d_silent = gradient(mixer, silent, chosen, greedy, action, state)[0]
    for field in ("weight", "bias", "query", "unit", "head", "value"):
        if field in vars(net) and vars(net)[field] is not None:
            assert_trees_close(vars(d_net)[field], vars(d_silent)[field], 1e-5)


@hypothesis.settings(max_examples=25, deadline=None)
@hypothesis.given(seed=seeds)
def test_attention_weights_sum_to_the_number_of_heads(seed: int) -> None:
    mixer = DUPLEX["attention"]
    values = np.zeros(AGENTS, np.float32)
    slope = np.asarray(gradient(mixer, net_of(mixer, seed), values, values, np.zeros(AGENTS, np.int32), state_of(seed))[1])
    assert np.all(slope > 0)
    assert np.sum(slope) == pytest.approx(4.0, rel=1e-5)


def test_attention_reads_each_agents_own_features_at_the_head_of_the_state() -> None:
    mixer = AttentionQPLEX(heads=1, embed=4, kernels=1, hypernet=6)
    net, state = net_of(mixer, 0), state_of(0)
    values, action = np.zeros(AGENTS, np.float32), np.zeros(AGENTS, np.int32)
    weights = to_torch(net)
    query = np.maximum(
        state @ weights["attention_weight.selector_extractors.0.0.weight"].T + weights["attention_weight.selector_extractors.0.0.bias"], 0
    )
    query = query @ weights["attention_weight.selector_extractors.0.2.weight"].T
    logits = np.array(
        [query @ weights["attention_weight.key_extractors.0.weight"] @ state[UNIT * i : UNIT * (i + 1)] for i in range(AGENTS)]
    )
    share = np.exp(logits / np.sqrt(4))
    assert_close(gradient(mixer, net, values, values, action, state)[1], share / share.sum(), 1e-4)
    seen = AgentValues(jnp.asarray(values), jnp.asarray(values), jnp.asarray(action))
    assert float(quick(mixer.__call__)(net, seen, jnp.asarray(state)).regulariser) == pytest.approx(0.001 * np.mean(logits**2), rel=1e-4)


@pytest.mark.parametrize(("unit", "state"), [(0, 7), (3, 7)], ids=["no unit features", "more than the state holds"])
def test_the_attention_mixer_refuses_a_state_without_unit_features_in_one_line(unit: int, state: int) -> None:
    with pytest.raises(UserError, match=r"^the attention mixer needs unit features[^\n]*use --mixer qplex$"):
        AttentionQPLEX().init(jax.random.key(0), dataclasses.replace(SPEC, unit_size=unit, state_size=state))


@pytest.mark.parametrize(
    "mixer", [SMALL_QMIX, FREE, DUPLEX["weighted"], DUPLEX["attention"]], ids=["qmix", "unrestricted", "qplex", "qplex-attention"]
)
def test_every_layer_of_a_mixer_starts_within_pytorchs_bounds_and_unlike_any_other(mixer: Mixer) -> None:
    arrays = to_torch(quick(lambda key: mixer.init(key, SPEC))(jax.random.key(0)))
    for name, array in arrays.items():
        fan_in = arrays[f"{name.removesuffix('.bias')}.weight"].shape[1] if name.endswith(".bias") else array.shape[1]
        assert 0.3 * fan_in**-0.5 < np.max(np.abs(array)) <= fan_in**-0.5 or array.size < 4, name
    numbers = np.concatenate([array.ravel() for array in arrays.values()])
    assert len(np.unique(numbers)) == numbers.size  # no key was used twice, not even by the heads or kernels of one mixer


def test_vdn_is_the_sum_and_independent_learners_are_themselves() -> None:
    chosen, nothing = jnp.array([1.0, -2.5, 4.0]), jnp.zeros(AGENTS, jnp.int32)
    values = AgentValues(chosen, chosen + 1, nothing)
    assert VDN()((), values, jnp.zeros(7)).q.tolist() == [2.5]
    assert Independent()((), values, jnp.zeros(7)).q.tolist() == [1.0, -2.5, 4.0]
    assert jax.tree.leaves((VDN().init(jax.random.key(0), SPEC), Independent().init(jax.random.key(0), SPEC))) == []
