"""Mixers against numbers of the released PyTorch code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.interop import from_torch, to_torch
from emc.mixers import QMIX, QPLEX, AttentionQPLEX
from emc.parts import Mixed, Mixer
from emc.types import AgentValues, EnvSpec
from tests.twins import assert_close, filled, quick

GOLDEN = Path(__file__).parents[1] / "golden"
SPEC = EnvSpec(n_agents=3, n_actions=5, obs_size=11, state_size=19, episode_limit=4, unit_size=4)
MIXERS: Mapping[str, Mixer] = {
    "mixer_qmix": QMIX(embed=32, hypernet=64),
    "mixer_qplex_dmaq": QPLEX(kernels=4, layers=2, hypernet=64, weighted=True),
    "mixer_qplex_qatten": AttentionQPLEX(heads=4, embed=32, kernels=4, layers=1, hypernet=64, weighted=False, regularisation=0.001),
}


def load(name: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Weights, and all other arrays."""
    with np.load(GOLDEN / f"{name}.npz") as file:
        arrays = dict(file)
    weights = {key.removeprefix("weight/"): array for key, array in arrays.items() if key.startswith("weight/")}
    return weights, arrays


def mixed(name: str) -> tuple[Mixed, dict[str, np.ndarray]]:
    weights, golden = load(name)
    mixer = MIXERS[name]
    net = from_torch(filled(lambda key: mixer.init(key, SPEC), 0), weights)
    values = AgentValues(*(jnp.asarray(golden[field]) for field in ("chosen", "greedy", "action")))
    over_batch = quick(jax.vmap(jax.vmap(lambda v, s: mixer(net, v, s))))
    return over_batch(values, jnp.asarray(golden["state"])), golden


@pytest.mark.parametrize("name", MIXERS)
def test_the_teams_value_is_the_released_codes(name: str) -> None:
    answer, golden = mixed(name)
    assert np.std(golden["q_tot"]) > 0.01
    assert_close(answer.q[..., 0], golden["q_tot"], 1e-5)


def test_the_mean_attention_regulariser_is_the_released_codes() -> None:
    answer, golden = mixed("mixer_qplex_qatten")
    assert float(jnp.mean(answer.regulariser)) == pytest.approx(float(golden["attention_regulariser"]), rel=1e-5)
    for other in ("mixer_qmix", "mixer_qplex_dmaq"):
        assert not np.any(np.asarray(mixed(other)[0].regulariser))


@pytest.mark.parametrize("name", MIXERS)
def test_weights_go_back_to_pytorch_under_their_names_bit_for_bit(name: str) -> None:
    weights, _ = load(name)
    mixer = MIXERS[name]
    back = to_torch(from_torch(filled(lambda key: mixer.init(key, SPEC), 0), weights))
    assert set(back) == set(weights)
    for key, array in weights.items():
        np.testing.assert_array_equal(back[key], array)
