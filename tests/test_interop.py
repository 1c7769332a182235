"""Weights and batches of PyMARL-style PyTorch code, there and back."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from emc.curiosity import NoCuriosity, ValueCuriosity
from emc.errors import UserError
from emc.interop import copy_targets, episodes_from_pymarl, from_torch, learner_from_torch, to_torch
from emc.methods import METHODS, Method
from emc.mixers import QMIX, QPLEX, VDN, AttentionQPLEX, Independent
from emc.parts import Mixer
from emc.policies import Maven, RecurrentQ
from tests.twins import SPEC, agent_values, assert_close, bits, by_moment, filled, laid, quick

GOLDEN = Path(__file__).parent / "golden" / "emc_vdn_one_update.npz"
MIXERS: dict[str, Mixer] = {
    "independent": Independent(),
    "vdn": VDN(),
    "qmix": QMIX(embed=4, hypernet=5),
    "qplex": QPLEX(kernels=2, hypernet=5),
    "qplex, one layer": QPLEX(kernels=2, layers=1, hypernet=5),
    "qplex, three layers": QPLEX(kernels=3, layers=3, hypernet=5),
    "qplex-attention": AttentionQPLEX(heads=2, embed=4, kernels=3, hypernet=5),
    "qplex-attention, weighted heads": AttentionQPLEX(heads=2, embed=4, kernels=3, layers=2, hypernet=5, weighted=True),
}
POLICY = RecurrentQ(hidden=4)


def agent(seed: int = 0) -> Any:
    return filled(lambda key: POLICY.init_net(key, SPEC), seed)


@pytest.mark.parametrize("name", MIXERS)
def test_every_mixer_goes_to_pytorch_and_back_bit_for_bit(name: str) -> None:
    net, other = (filled(lambda key: MIXERS[name].init(key, SPEC), seed) for seed in (0, 1))
    assert bits(from_torch(other, to_torch(net))) == bits(net)


def test_an_agent_goes_to_pytorch_and_back_bit_for_bit_under_pymarls_names() -> None:
    net = agent()
    weights = to_torch(net)
    shapes = {name: array.shape for name, array in weights.items()}
    inputs = SPEC.obs_size + SPEC.n_actions + SPEC.n_agents
    assert shapes == {
        "fc1.weight": (4, inputs),
        "fc1.bias": (4,),
        "rnn.weight_ih_l0": (12, 4),
        "rnn.weight_hh_l0": (12, 4),
        "rnn.bias_ih_l0": (12,),
        "rnn.bias_hh_l0": (12,),
        "fc2.weight": (3, 4),
        "fc2.bias": (3,),
    }
    assert bits(from_torch(agent(1), weights)) == bits(net)


def test_a_gru_cells_names_are_understood_too() -> None:
    net = agent()
    cell = {name.removesuffix("_l0"): array for name, array in to_torch(net).items()}
    assert "rnn.weight_ih" in cell
    assert bits(from_torch(agent(1), cell)) == bits(net)


def test_gates_stand_one_below_the_other_in_the_order_reset_update_new() -> None:
    net, weights = agent(), to_torch(agent())
    for gate in range(3):
        np.testing.assert_array_equal(weights["rnn.weight_hh_l0"][4 * gate : 4 * gate + 4], net.memory.hidden_weight[gate])
        np.testing.assert_array_equal(weights["rnn.bias_ih_l0"][4 * gate : 4 * gate + 4], net.memory.input_bias[gate])


def refusal(net: Any, weights: dict[str, np.ndarray]) -> str:
    with pytest.raises(UserError) as caught:
        from_torch(net, weights)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["fc1.weight", "rnn.bias_hh_l0", "fc2.bias"])
def test_a_missing_weight_is_named(name: str) -> None:
    weights = to_torch(agent())
    del weights[name]
    assert f"weight {name} is missing" in refusal(agent(), weights)


def test_a_weight_without_a_place_is_named() -> None:
    message = refusal(agent(), to_torch(agent()) | {"fc3.weight": np.zeros((2, 2))})
    assert "without a place" in message
    assert "fc3.weight" in message
    assert "V.0.bias" in refusal((), to_torch(filled(lambda key: QMIX().init(key, SPEC), 0)))  # VDN has no weights


@pytest.mark.parametrize(
    ("name", "shape"),
    [("fc1.weight", (4, 10)), ("fc1.weight", (9, 4)), ("rnn.weight_ih_l0", (4, 12)), ("fc2.bias", (4,)), ("fc2.weight", (3, 2, 2))],
    ids=["other width", "transposed", "transposed gates", "other actions", "cut differently"],
)
def test_a_weight_of_another_shape_is_named_with_both_shapes(name: str, shape: tuple[int, ...]) -> None:
    message = refusal(agent(), to_torch(agent()) | {name: np.zeros(shape, np.float32)})
    assert name in message
    assert str(shape) in message
    assert "expected" in message


def test_a_mixer_of_another_size_is_refused() -> None:
    weights = to_torch(filled(lambda key: MIXERS["qplex"].init(key, SPEC), 0))
    larger = filled(lambda key: MIXERS["qplex"].init(key, dataclasses.replace(SPEC, state_size=12)), 0)
    assert "expected" in refusal(larger, weights)


def golden(prefix: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN) as file:
        return {name.removeprefix(prefix): file[name] for name in file.files if name.startswith(prefix)}


def test_a_pymarl_batch_is_masked_as_the_released_code_masks_it() -> None:
    raw = golden("batch/")
    batch = episodes_from_pymarl(**raw)
    mask = raw["filled"][:, :-1, 0].astype(float)
    mask[:, 1:] *= 1 - raw["terminated"][:, :-2, 0]  # m_t = filled_t (1 - d_{t-1})
    np.testing.assert_array_equal(batch.played, mask.astype(bool))
    assert batch.length.tolist() == [6, 4, 5, 6]
    assert batch.terminated.tolist() == raw["terminated"][:, :-1, 0].astype(bool).tolist()
    assert np.any(np.asarray(batch.terminated), axis=1).tolist() == [True, True, True, False]  # the last one was cut by its limit
    np.testing.assert_array_equal(batch.action, raw["actions"][:, :-1, :, 0])
    np.testing.assert_array_equal(batch.reward, raw["reward"][:, :-1, 0])
    np.testing.assert_array_equal(batch.obs, raw["obs"])
    np.testing.assert_array_equal(batch.state, raw["state"])
    np.testing.assert_array_equal(batch.available, raw["avail_actions"].astype(bool))


def test_nothing_that_pymarl_stores_after_the_last_step_is_played() -> None:
    raw = golden("batch/")
    raw["reward"][1, 4] = 7.0  # at the final moment of an episode of four steps
    batch = episodes_from_pymarl(**raw)
    assert not np.any(np.asarray(batch.reward)[1, 4:])
    assert not np.any(np.asarray(batch.played)[1, 4:])
    assert not np.any(np.asarray(batch.terminated)[1, 4:])


def test_the_released_agents_values_follow_from_its_weights() -> None:
    raw, weights = golden("batch/"), golden("init/agent/")
    batch = episodes_from_pymarl(**raw)
    policy, spec = RecurrentQ(hidden=64), dataclasses.replace(SPEC, n_agents=3, n_actions=5, obs_size=11)
    net = from_torch(filled(lambda key: policy.init_net(key, spec), 0), weights)
    lanes = laid(batch, 3)
    seen = np.arange(batch.obs.shape[1]) <= np.asarray(batch.length)[:, None]
    q = by_moment(lanes, quick(policy.unroll)(net, (), lanes).q)
    assert_close(q, agent_values(weights, batch) * seen[..., None, None], 1e-5)


METHOD = Method(policy=POLICY, mixer=MIXERS["qmix"], curiosity=ValueCuriosity())


def test_a_learner_starts_from_given_weights_with_copies_as_targets() -> None:
    given = {
        "agent": agent(1),
        "mixer": filled(lambda key: MIXERS["qmix"].init(key, SPEC), 2),
        "curiosity": agent(3),
        "predictor": agent(4),
    }
    state = learner_from_torch(METHOD, SPEC, {name: to_torch(net) for name, net in given.items()})
    for values in (state.values.online, state.values.target):
        assert bits(values.policy) == bits(given["agent"])
        assert bits(values.mixer) == bits(given["mixer"])
    for net in (state.curiosity.values.online.policy, state.curiosity.values.target.policy, state.curiosity.soft):
        assert bits(net) == bits(given["curiosity"])
    assert bits(state.curiosity.predictor) == bits(given["predictor"])
    assert all(not np.any(np.asarray(leaf)) for leaf in jax.tree.leaves(state.values.optimiser))
    assert state.values.updates == 0


def test_curiosity_starts_as_a_copy_of_the_agents_unless_given() -> None:
    weights = {
        "agent": to_torch(agent(1)),
        "mixer": to_torch(filled(lambda key: MIXERS["qmix"].init(key, SPEC), 2)),
        "predictor": to_torch(agent(4)),
    }
    state = learner_from_torch(METHOD, SPEC, weights)
    assert bits(state.curiosity.soft) == bits(agent(1))
    assert bits(state.curiosity.values.online.policy) == bits(agent(1))


def test_the_predictor_of_a_method_that_predicts_nothing_is_ignored() -> None:
    """The released EMC-TD trains one all the same, so its weights come with the others."""
    method = dataclasses.replace(METHODS["emc-td"].method, policy=POLICY, mixer=VDN())
    given = {"agent": to_torch(agent(1)), "predictor": to_torch(agent(4))}
    state = learner_from_torch(method, SPEC, given)
    assert bits(state.curiosity.values.online.policy) == bits(agent(1))
    assert jax.tree.leaves(state.curiosity.predictor) == []
    with pytest.raises(UserError, match="unknown network 'predictor'"):
        learner_from_torch(dataclasses.replace(method, curiosity=NoCuriosity()), SPEC, given)


def test_agents_without_known_names_are_refused_in_words() -> None:
    with pytest.raises(UserError, match="MavenNet has no counterpart with known names"):
        to_torch(filled(lambda key: Maven(hidden=4).init_net(key, SPEC), 0))


def test_an_unknown_network_is_named() -> None:
    with pytest.raises(UserError, match=r"^unknown network 'critic'; known: agent, curiosity, mixer, predictor, soft_target, target"):
        learner_from_torch(METHOD, SPEC, {"agent": {}, "critic": {}})


def test_targets_can_be_given_and_copied() -> None:
    method = Method(policy=POLICY, mixer=QMIX(embed=4, hypernet=5), curiosity=ValueCuriosity())
    mixer = filled(lambda key: method.mixer.init(key, SPEC), 7)
    names = ("agent", "curiosity", "predictor", "target_agent", "target_curiosity", "soft_target")
    given = {name: to_torch(agent(seed)) for seed, name in enumerate(names)} | {"mixer": to_torch(mixer)}
    learner = learner_from_torch(method, SPEC, given)
    assert bits(learner.values.target.policy) == bits(agent(3))
    assert bits(learner.values.target.mixer) == bits(mixer)
    assert bits(learner.curiosity.values.target.policy) == bits(agent(4))
    assert bits(learner.curiosity.soft) == bits(agent(5))
    copied = copy_targets(learner)
    assert bits(copied.values.target) == bits(learner.values.online)
    assert bits(copied.curiosity.values.target) == bits(learner.curiosity.values.online)
    assert bits(copied.curiosity.soft) == bits(agent(5))


@pytest.mark.parametrize("missing", ["agent", "predictor"])
def test_a_network_that_is_not_given_is_named(missing: str) -> None:
    given = {name: to_torch(agent()) for name in ("agent", "predictor") if name != missing}
    with pytest.raises(UserError, match=f"weights of {missing} are missing"):
        learner_from_torch(Method(policy=POLICY, curiosity=ValueCuriosity()), SPEC, given)


def test_heads_of_unequal_shape_are_refused_by_name() -> None:
    net = filled(lambda key: MIXERS["qplex-attention"].init(key, SPEC), 0)
    weights = to_torch(net) | {"attention_weight.key_extractors.1.weight": np.zeros((4, 7), np.float32)}
    with pytest.raises(UserError, match=r"key_extractors\.1\.weight has another shape"):
        from_torch(net, weights)


def test_the_action_stored_after_the_last_step_is_padding() -> None:
    golden = np.load(GOLDEN)
    arrays = {name.removeprefix("batch/"): golden[name] for name in golden.files if name.startswith("batch/")}
    arrays["actions"] = np.full_like(arrays["actions"], 2)
    batch = episodes_from_pymarl(**arrays)
    assert np.array_equal(np.asarray(batch.action), np.where(np.asarray(batch.played)[..., None], 2, 0) * np.ones(3, int))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("filled", lambda a: a[..., 0], r"filled has shape .* expected \(4, 7, 1\)"),
        ("actions", lambda a: a[..., 0], r"actions has shape .* expected \(4, 7, 3, 1\)"),
        ("reward", lambda a: a[:, :-1], r"reward has shape"),
        ("avail_actions", lambda a: a[0], r"avail_actions has shape"),
        ("actions", lambda a: a + 50, r"actions go from 0 to \d+, but there are"),
    ],
)
def test_a_batch_that_is_not_pymarls_is_refused_in_words(name: str, change: Any, message: str) -> None:
    raw = golden("batch/")
    with pytest.raises(UserError, match=message):
        episodes_from_pymarl(**{**raw, name: change(raw[name])})


def test_what_pymarl_keeps_beside_the_batch_or_after_its_end_does_not_matter() -> None:
    raw = golden("batch/")
    noisy = {name: value.copy() for name, value in raw.items()}
    noisy["state"][1, 5:], noisy["obs"][1, 5:], noisy["reward"][1, 5:] = np.nan, np.nan, np.nan  # after an episode of four steps
    for ours, theirs in zip(
        jax.tree.leaves(episodes_from_pymarl(**noisy, actions_onehot=1)), jax.tree.leaves(episodes_from_pymarl(**raw)), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
