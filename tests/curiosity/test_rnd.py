"""Curiosity by random network distillation: the bonus in NumPy, what is learned, and what is new."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.curiosity import RND
from emc.curiosity.rnd import RNDState
from emc.errors import UserError
from emc.interop import to_torch
from emc.optimisers import adam
from emc.parts import Actors
from emc.schedules import DecayingWeight
from emc.types import Episodes
from tests.twins import SPEC, Table, agent_values, assert_close, assert_trees_close, bits, filled, laid, mlp, quick, random_episodes, spoilt

ETA = 0.2
STATE, HISTORY = (RND(of=of, embedding=3, hidden=5, learning_rate=0.01) for of in ("state", "history"))
BATCH = random_episodes(0, [4, 2, 3], cut=[True, False, False])
PLAYED = np.asarray(BATCH.played)


def start(curiosity: RND) -> RNDState:
    """A random network, a predictor, and no step taken."""
    random, predictor = (filled(lambda key: curiosity.init(key, SPEC, Table(), ()).random, seed) for seed in (1, 2))
    return RNDState(random, predictor, adam(0.01, 10.0).init(predictor), curiosity.weight.init())


@functools.partial(quick, static_argnums=0)
def learn(curiosity: RND, state: RNDState, batch: Episodes, env_steps: Any) -> tuple[RNDState, jax.Array, dict[str, jax.Array]]:
    lanes = laid(batch)
    state, bonus, metrics = curiosity.learn(state, lanes, Actors(Table(), (), ()), 0.9, jnp.asarray(env_steps, jnp.int32))
    assert bonus.shape == lanes.reward.shape
    return state, lanes.by_episode(bonus), metrics


def embed(curiosity: RND, net: Any, batch: Episodes) -> np.ndarray:
    """What a network makes of where each step led: of the state, or of each agent's history."""
    if curiosity.of == "history":
        return agent_values(to_torch(net), batch)[:, 1:]
    return np.array([[mlp(net, state)[None] for state in row] for row in np.asarray(batch.state)[:, 1:]])


def distances(curiosity: RND, state: RNDState, batch: Episodes) -> np.ndarray:
    """How far the predictor is off after each step."""
    predicted, known = (embed(curiosity, net, batch) for net in (state.predictor, state.random))
    return np.sqrt(np.sum((predicted - known + 1e-6) ** 2, axis=-1))


@pytest.mark.parametrize("curiosity", [STATE, HISTORY], ids=["state", "history"])
def test_the_bonus_is_the_weighted_distance_after_each_step_and_the_loss_its_mean(curiosity: RND) -> None:
    before = start(curiosity)
    after, bonus, metrics = learn(curiosity, before, BATCH, 5_000)
    error = distances(curiosity, before, BATCH)
    assert error.shape == (3, 4, 1 if curiosity is STATE else 2)
    assert_close(bonus, ETA * error.mean(axis=-1) * PLAYED, 1e-5)
    assert not np.any(np.asarray(bonus)[~PLAYED])
    assert float(metrics["curiosity_prediction_loss"]) == pytest.approx(np.mean(error[PLAYED]), rel=1e-5)
    assert float(metrics["curiosity_weight"]) == pytest.approx(0.2)
    assert float(after.weight.value) == pytest.approx(0.18)  # decays after the bonus is paid
    assert bits(after.random) == bits(before.random)
    _, later, _ = learn(curiosity, after, BATCH, 5_000)
    assert_close(later, 0.18 * distances(curiosity, after, BATCH).mean(axis=-1) * PLAYED, 1e-5)
    assert np.max(np.abs(np.asarray(later) / 0.18 - np.asarray(bonus) / 0.2)) > 1e-3  # so one from after the step would not pass


@pytest.mark.parametrize("curiosity", [STATE, HISTORY], ids=["state", "history"])
def test_padding_and_garbage_in_it_pay_nothing_and_teach_nothing(curiosity: RND) -> None:
    clean, bonus, _ = learn(curiosity, start(curiosity), BATCH, 0)
    same, padded, _ = learn(curiosity, start(curiosity), spoilt(BATCH, 2)[0], 0)
    assert_trees_close(same.predictor, clean.predictor, 1e-5)
    assert_close(padded[:, :4], bonus, 1e-5)
    assert not np.any(np.asarray(padded[:, 4:]))


def test_a_history_is_more_than_where_it_ends() -> None:
    """The bonus of a step depends on what an agent saw and did before; that of a state does not."""
    changed = dataclasses.replace(
        BATCH,
        obs=BATCH.obs.at[0, 0].add(1.0),
        state=BATCH.state.at[0, 0].add(1.0),
        action=BATCH.action.at[0, 2].set((BATCH.action[0, 2] + 1) % 3),
    )
    for curiosity, expected in ((STATE, [False] * 4), (HISTORY, [True] * 4)):
        bonuses = [np.asarray(learn(curiosity, start(curiosity), batch, 0)[1]) for batch in (BATCH, changed)]
        assert (np.abs(bonuses[0] - bonuses[1])[0] > 1e-6).tolist() == expected
        np.testing.assert_allclose(bonuses[0][1:], bonuses[1][1:], rtol=1e-6)


@functools.partial(quick, static_argnums=0)
def see_again_and_again(curiosity: RND, state: RNDState, known: Episodes) -> tuple[RNDState, jax.Array]:
    lanes = laid(known)

    def step(state: RNDState, _: None) -> tuple[RNDState, jax.Array]:
        state, bonus, _ = curiosity.learn(state, lanes, Actors(Table(), (), ()), 0.9, jnp.int32(0))
        return state, jnp.mean(lanes.by_episode(bonus))

    return jax.lax.scan(step, state, None, 200)


@pytest.mark.parametrize("of", ["state", "history"])
@hypothesis.settings(max_examples=10, deadline=None)
@hypothesis.given(seed=st.integers(1, 2**16))
def test_what_is_seen_again_and_again_bores_and_what_is_new_does_not(of: Any, seed: int) -> None:
    curiosity = RND(of=of, weight=DecayingWeight(start=1.0), embedding=4, hidden=16, learning_rate=0.01)
    known, new = (random_episodes(each, [4] * 3) for each in (seed, seed + 1))  # of the same scale
    begin = start(curiosity)
    end, bonus = see_again_and_again(curiosity, begin, known)
    first, last = np.asarray(bonus)[[0, -1]]
    assert last < 0.2 * first  # of 1,500 seeds, the most that was left: 0.099
    assert bits(end.random) == bits(begin.random)
    before, after = (float(np.mean(np.asarray(learn(curiosity, state, new, 0)[1]))) for state in (begin, end))
    assert after > 0.1 * before  # twelve states say something about others in so few dimensions; the least that was left: 0.22
    assert after > 3 * last  # the least that was found: 7.0


def test_networks_are_those_left_over_in_the_released_code_and_start_apart() -> None:
    for of in ("state", "history"):
        state = jax.eval_shape(lambda key: RND(of=of).init(key, SPEC, Table(), ()), jax.random.key(0))  # noqa: B023
        for net in (state.random, state.predictor):
            if of == "state":
                assert [layer.weight.shape for layer in net.layers] == [(64, SPEC.state_size), (64, 64), (64, 64)]
            else:
                inputs = SPEC.obs_size + SPEC.n_actions + SPEC.n_agents
                assert (net.encode.weight.shape, net.memory.hidden_weight.shape, net.decode.weight.shape) == (
                    (64, inputs),
                    (3, 64, 64),
                    (64, 64),
                )
    state = quick(lambda key: STATE.init(key, SPEC, Table(), ()))(jax.random.key(0))
    pairs = zip(jax.tree.leaves(state.random), jax.tree.leaves(state.predictor), strict=True)
    assert all(np.all(np.asarray(a) != np.asarray(b)) for a, b in pairs)


@pytest.mark.parametrize("fields", [{"embedding": 0}, {"hidden": 0}, {"learning_rate": 0.0}, {"gradient_clip": -1.0}])
def test_impossible_numbers_are_refused_by_name(fields: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=rf"^curiosity\.{next(iter(fields))}="):
        RND(**fields)
