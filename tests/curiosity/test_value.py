"""Curiosity about individual values: the bonus in NumPy, and who learns what, when."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.curiosity import NoCuriosity, ValueCuriosity
from emc.curiosity.value import ValueCuriosityState
from emc.interop import to_torch
from emc.losses import TD, CentralTD
from emc.losses.fitting import ValueFunction
from emc.mixers import VDN, Independent
from emc.optimisers import rmsprop
from emc.parts import Actors, Curiosity, Nets, Policy
from emc.policies import RecurrentQ
from emc.schedules import DecayingWeight
from emc.types import Episodes
from tests.twins import (
    SPEC,
    Given,
    Table,
    agent_values,
    as_numpy,
    assert_close,
    assert_trees_close,
    bits,
    filled,
    greedy_actions,
    improve,
    joint_value,
    laid,
    only_agent,
    quick,
    random_episodes,
    sum_errors,
)

GAMMA, ETA = 0.9, 0.2
LENGTHS, CUT = [4, 2, 3], [True, False, False]
SHAPE = (3, 5, 2, 3)
BATCH = random_episodes(0, LENGTHS, CUT)


def table(seed: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).normal(size=SHAPE), jnp.float32)


def start(curiosity: ValueCuriosity, phi: Any, soft: Any, predictor: Any, policy: Policy = Table()) -> ValueCuriosityState:
    """A state with given weights, the slow copy apart from phi."""
    return dataclasses.replace(curiosity.start(policy, Nets(phi, (), ()), predictor), soft=soft)


@functools.partial(quick, static_argnums=(0, 1))
def learn(
    curiosity: ValueCuriosity, policy: Policy, state: ValueCuriosityState, batch: Episodes, env_steps: Any
) -> tuple[ValueCuriosityState, jax.Array, dict[str, jax.Array]]:
    return wonder(curiosity, state, batch, Actors(policy, state.values.online.policy, ()), env_steps)


def wonder(
    curiosity: Curiosity, state: Any, batch: Episodes, actors: Actors, env_steps: Any = 0
) -> tuple[Any, jax.Array, dict[str, jax.Array]]:
    """One step on padded episodes; the bonus is padded too, and nothing is paid where no step is."""
    lanes = laid(batch)
    after, bonus, metrics = curiosity.learn(state, lanes, actors, GAMMA, jnp.asarray(env_steps, jnp.int32))
    assert bonus.shape == lanes.reward.shape
    return after, lanes.by_episode(bonus) + jnp.sum(jnp.where(lanes.played, 0.0, jnp.abs(bonus))), metrics


def distances(predicted: Any, slow: Any, scale: float, look_ahead: bool) -> np.ndarray:
    """How far the prediction is off for each episode, step and agent, over all actions, available or not."""
    predicted, slow = np.asarray(predicted, np.float64), np.asarray(slow, np.float64)
    result = np.zeros((3, 4, 2))
    for t in range(4):
        moment = t + 1 if look_ahead else t
        result[:, t] = np.sqrt(np.sum((predicted[:, moment] - scale * slow[:, moment] + 1e-6) ** 2, axis=-1))
    return result


@pytest.mark.parametrize("look_ahead", [True, False], ids=["after the step", "before the step"])
@pytest.mark.parametrize(("scale", "squared"), [(10.0, False), (1.0, True)], ids=["released", "paper"])
def test_the_bonus_is_the_weighted_mean_distance_over_agents(scale: float, squared: bool, look_ahead: bool) -> None:
    curiosity = ValueCuriosity(target_scale=scale, squared=squared, look_ahead=look_ahead)
    _, bonus, metrics = learn(curiosity, Table(), start(curiosity, table(1), table(2), table(3)), BATCH, 0)
    distance, played = distances(table(3), table(2), scale, look_ahead), np.asarray(BATCH.played)
    assert_close(bonus, ETA * distance.mean(axis=-1) * played, 1e-5)  # of the distance itself, squared loss or not
    assert not np.any(np.asarray(bonus)[~played])
    losses = distance**2 if squared else distance
    assert float(metrics["curiosity_prediction_loss"]) == pytest.approx(np.sum(losses * played[..., None]) / (2 * 9), rel=1e-5)
    assert float(metrics["curiosity_weight"]) == pytest.approx(ETA)


def test_a_perfect_prediction_still_pays_a_millionth_per_action_and_has_a_finite_derivative() -> None:
    curiosity = ValueCuriosity(target_scale=1.0)
    after, bonus, metrics = learn(curiosity, Table(), start(curiosity, table(1), table(2), table(2)), BATCH, 0)
    expected = ETA * np.sqrt(3 * 1e-12) * np.asarray(BATCH.played)
    assert_close(bonus, expected, 1e-4)
    assert np.all(np.isfinite(np.asarray(after.predictor)))
    assert float(metrics["curiosity_prediction_loss"]) == pytest.approx(np.sqrt(3) * 1e-6, rel=1e-4)


def test_the_bonus_of_recurrent_agents_is_that_of_their_values_after_each_step() -> None:
    policy, curiosity = RecurrentQ(hidden=4), ValueCuriosity()
    phi, soft, predictor = (filled(lambda key: policy.init_net(key, SPEC), seed) for seed in (1, 2, 3))
    _, bonus, _ = learn(curiosity, policy, start(curiosity, phi, soft, predictor, policy), BATCH, 0)
    predicted, slow = (agent_values(to_torch(net), BATCH) for net in (predictor, soft))
    assert_close(bonus, ETA * distances(predicted, slow, 10.0, True).mean(axis=-1) * np.asarray(BATCH.played), 1e-5)


def test_bonus_and_weight_are_from_before_the_step() -> None:
    curiosity = ValueCuriosity(learning_rate=0.1, predictor_learning_rate=0.1, soft_update=0.5)
    before = start(curiosity, table(1), table(2), table(3))
    after, bonus, metrics = learn(curiosity, Table(), before, BATCH, 5_000)
    played = np.asarray(BATCH.played)
    old, new = (distances(s.predictor, s.soft, 10.0, True).mean(axis=-1) * played for s in (before, after))
    assert_close(bonus, ETA * old, 1e-5)
    assert np.max(np.abs(new - old)) > 0.1  # so a bonus from after the step would not pass
    assert float(metrics["curiosity_weight"]) == pytest.approx(0.2)
    assert float(after.weight.value) == pytest.approx(0.18)
    assert float(learn(curiosity, Table(), before, BATCH, 4_999)[0].weight.value) == pytest.approx(0.2)
    _, next_bonus, _ = learn(curiosity, Table(), after, BATCH, 5_000)
    assert_close(next_bonus, 0.18 * new, 1e-5)


def test_the_values_behind_curiosity_learn_from_the_extrinsic_reward_alone() -> None:
    curiosity = ValueCuriosity()
    one, two = (start(curiosity, table(1), table(2), predictor) for predictor in (table(3), 100.0 * table(4)))
    (first, bonus, metrics), (second, other_bonus, _) = (learn(curiosity, Table(), state, BATCH, 0) for state in (one, two))
    assert np.max(np.abs(np.asarray(bonus - other_bonus))) > 1.0
    assert bits(first.values) == bits(second.values)  # whatever the bonus
    function = ValueFunction(Table(), VDN(), TD(), rmsprop(5e-4, 10.0), GAMMA, 200)
    expected = quick(functools.partial(improve, function))(
        function.start(Nets(table(1), (), ())), BATCH, BATCH.reward, Actors(Table(), table(1), ())
    )[0]
    assert_trees_close(first.values, expected, 1e-6)
    error = sum_errors(table(1), table(1), BATCH, BATCH.reward, GAMMA)
    assert float(metrics["curiosity_loss"]) == pytest.approx(np.sum(error**2) / 9, rel=1e-5)
    assert float(metrics["curiosity_td_error"]) == pytest.approx(np.sum(np.abs(error)) / 9, rel=1e-5)


def test_the_slow_copy_follows_the_new_values_by_its_share() -> None:
    for share in (0.005, 0.5):
        curiosity = ValueCuriosity(soft_update=share, learning_rate=0.1)
        before = start(curiosity, table(1), table(2), table(3))
        after, _, _ = learn(curiosity, Table(), before, BATCH, 0)
        new = np.asarray(after.values.online.policy, np.float64)
        assert np.max(np.abs(new - np.asarray(table(1)))) > 0.1  # the old values would not pass
        change = np.asarray(after.soft, np.float64) - np.asarray(table(2))
        assert_close(change, share * (new - np.asarray(table(2))), 1e-4)


def test_the_hard_target_of_the_values_is_copied_at_its_interval() -> None:
    curiosity = ValueCuriosity(target_interval=2)
    state = start(curiosity, table(1), table(2), table(3))
    for copied in (False, True, False, True):
        previous = state
        state, _, _ = learn(curiosity, Table(), state, BATCH, 0)
        expected = state.values.online.policy if copied else previous.values.target.policy
        np.testing.assert_array_equal(state.values.target.policy, expected)
        assert np.any(np.asarray(state.values.online.policy) != np.asarray(previous.values.target.policy))


def test_how_curiosity_is_factorised_is_its_own_affair() -> None:
    curiosity = ValueCuriosity(mixer=Independent())
    metrics = learn(curiosity, Table(), start(curiosity, table(1), table(2), table(3)), BATCH, 0)[2]
    agents = [sum_errors(*(np.asarray(table(1))[:, :, i : i + 1],) * 2, only_agent(BATCH, i), BATCH.reward, GAMMA) for i in range(2)]
    assert float(metrics["curiosity_loss"]) == pytest.approx(sum(np.sum(error**2) for error in agents) / 18, rel=1e-5)


def test_values_start_as_copies_of_the_agents_and_the_predictor_does_not() -> None:
    policy = RecurrentQ(hidden=4)
    net = filled(lambda key: policy.init_net(key, SPEC), 0)
    state = quick(lambda key: ValueCuriosity().init(key, SPEC, policy, net))(jax.random.key(0))
    for copy in (state.values.online.policy, state.values.target.policy, state.soft):
        assert bits(copy) == bits(net)
    fresh = jax.tree.leaves(state.predictor)
    assert jax.tree.structure(state.predictor) == jax.tree.structure(net)
    assert all(np.all(np.asarray(a) != np.asarray(b)) for a, b in zip(fresh, jax.tree.leaves(net), strict=True))


@pytest.mark.parametrize("squared", [False, True])
def test_the_prediction_error_falls_on_a_repeated_batch(squared: bool) -> None:
    policy, curiosity = RecurrentQ(hidden=8), ValueCuriosity(predictor_learning_rate=0.01, squared=squared)
    phi, predictor = (filled(lambda key: policy.init_net(key, SPEC), seed, size=0.3) for seed in (1, 3))

    def step(state: ValueCuriosityState, _: None) -> tuple[ValueCuriosityState, jax.Array]:
        state, bonus, _ = wonder(curiosity, state, BATCH, Actors(policy, phi, ()))
        return state, jnp.sum(bonus)

    bonus = quick(lambda state: jax.lax.scan(step, state, None, 150)[1])(start(curiosity, phi, phi, predictor, policy))
    assert float(np.mean(bonus[-10:])) < 0.3 * float(bonus[0])


def test_no_curiosity_pays_nothing_and_learns_nothing() -> None:
    state, bonus, metrics = wonder(NoCuriosity(), (), BATCH, Actors(Table(), (), ()))
    assert (state, metrics) == ((), {})
    assert bonus.shape == BATCH.reward.shape
    assert not np.any(np.asarray(bonus))


def test_the_weight_is_a_schedule_of_its_own() -> None:
    curiosity = ValueCuriosity(weight=DecayingWeight(start=3.0, rate=0.5, every=10, floor=0.0))
    state, bonus, _ = learn(curiosity, Table(), start(curiosity, table(1), table(2), table(3)), BATCH, 10)
    assert_close(bonus, 3.0 * distances(table(3), table(2), 10.0, True).mean(axis=-1) * np.asarray(BATCH.played), 1e-5)
    assert float(state.weight.value) == 1.5


def hand_episode() -> Episodes:
    """Three steps of two agents with two actions, then padding; at the second moment agent 0 cannot play action 1."""
    available = np.ones((1, 5, 2, 2), bool)
    available[0, 1, 0, 1] = False
    available[0, 4] = False
    return Episodes(
        obs=jnp.zeros((1, 5, 2, 1)),
        state=jnp.zeros((1, 5, 1)),
        available=jnp.asarray(available),
        action=jnp.array([[[0, 1], [0, 1], [0, 1], [0, 0]]]),
        reward=jnp.array([[1.0, -2.0, 4.0, 0.0]]),
        terminated=jnp.array([[False, False, True, False]]),
        played=jnp.array([[True, True, True, False]]),
    )


PHI = [  # moment by moment: agent 0, agent 1
    [[1.0, 0.0], [0.0, 2.0]],  # chosen: 1 + 2
    [[3.0, 4.0], [5.0, 1.0]],  # chosen: 3 + 1; best: 0 (action 1 is not available) and 0
    [[0.0, 6.0], [1.0, 7.0]],  # chosen: 0 + 7; best: 1 and 1
    [[8.0, 0.0], [0.0, 3.0]],
    [[7.0, 7.0], [7.0, 7.0]],
]
HARD = [
    [[0.0, 0.0], [0.0, 0.0]],
    [[10.0, 20.0], [30.0, 40.0]],  # of phi's choice: 10 + 30
    [[1.0, 2.0], [3.0, 4.0]],  # 2 + 4
    [[100.0, 200.0], [300.0, 400.0]],
    [[70.0, 70.0], [70.0, 70.0]],
]
AWAY = [  # how far the slow copy is from phi
    [[3.0, 4.0], [0.0, 0.0]],  # ten times: distances 50 and 0
    [[0.3, 0.4], [0.0, -0.1]],  # 5 and 1
    [[0.6, 0.8], [0.0, 0.0]],  # 10 and 0
    [[0.0, 0.2], [-0.4, 0.0]],  # 2 and 4
    [[30.0, 40.0], [0.0, 0.0]],
]


def hand_state(curiosity: ValueCuriosity) -> ValueCuriosityState:
    phi, hard = jnp.array([PHI]), jnp.array([HARD])
    state = start(curiosity, phi, phi - jnp.array([AWAY]), ())
    return dataclasses.replace(state, values=dataclasses.replace(state.values, target=Nets(hard, (), ())))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        # |error of the team's value| / agents at the step itself: targets 1 + 0.9 * 40, -2 + 0.9 * 6, 4.
        ({"novelty": "td_error"}, [abs(3.0 - 37.0) / 2, abs(4.0 - 3.4) / 2, abs(7.0 - 4.0) / 2]),
        ({"novelty": "td_error", "per_agent": False}, [abs(3.0 - 37.0), abs(4.0 - 3.4), abs(7.0 - 4.0)]),
        ({"novelty": "td_error", "look_ahead": False}, [17.0, 0.3, 1.5]),
        # Mean distance over agents between ten times phi and ten times its slow copy, where the step led.
        ({"novelty": "change"}, [(5.0 + 1.0) / 2, (10.0 + 0.0) / 2, (2.0 + 4.0) / 2]),
        ({"novelty": "change", "look_ahead": False}, [(50.0 + 0.0) / 2, (5.0 + 1.0) / 2, (10.0 + 0.0) / 2]),
        ({"novelty": "change", "target_scale": 1.0}, [0.3, 0.5, 0.3]),
    ],
    ids=["td", "td as released", "td has no moment to look ahead to", "ind", "ind before the step", "ind unscaled"],
)
def test_the_bonuses_of_the_papers_ablations_on_a_three_step_episode_are_those_found_by_hand(
    fields: dict[str, Any], expected: list[float]
) -> None:
    curiosity = ValueCuriosity(**fields, learning_rate=0.5, soft_update=0.5)  # so that networks from after the step would not pass
    before = hand_state(curiosity)
    after, bonus, metrics = learn(curiosity, Table(), before, hand_episode(), 5_000)
    np.testing.assert_allclose(bonus[0], [ETA * e for e in expected] + [0.0], rtol=1e-4, atol=1e-5)
    assert np.any(np.abs(np.asarray(after.values.online.policy - before.values.online.policy)) > 0.1)  # phi learns all the same
    assert_close(after.soft, (np.asarray(before.soft) + np.asarray(after.values.online.policy)) / 2, 1e-5)
    assert float(after.weight.value) == pytest.approx(0.18)
    assert "curiosity_prediction_loss" not in metrics


@pytest.mark.parametrize("novelty", ["td_error", "change"])
def test_nothing_is_predicted_where_the_bonus_is_no_prediction(novelty: Any) -> None:
    state = ValueCuriosity(novelty=novelty).init(jax.random.key(0), SPEC, Table(SHAPE), table(1))
    assert jax.tree.leaves(state.predictor) == []
    assert all(leaf.size == 1 for leaf in jax.tree.leaves(state.predictor_optimiser))  # a counter, no moments
    assert bits(state.soft) == bits(table(1))


def test_the_central_critics_bonus_is_its_error_by_the_number_of_agents_with_next_actions_of_those_who_act() -> None:
    policy, curiosity = Given(SHAPE, hidden=4), ValueCuriosity(novelty="td_error", loss=CentralTD(width=5), learning_rate=0.1)
    phi, hard, acting = (
        filled(lambda key: Nets(policy.init_net(key, SPEC), (), curiosity.loss.init_net(key, SPEC, policy)), seed) for seed in (1, 2, 3)
    )
    state = curiosity.start(policy, phi, ())
    state = dataclasses.replace(state, values=dataclasses.replace(state.values, target=hard))
    after, bonus, _ = quick(lambda s, net: wonder(curiosity, s, BATCH, Actors(policy, net, ())))(state, acting.policy)
    e, (phi, hard), expected = as_numpy(BATCH), as_numpy((phi, hard)), np.zeros((3, 4))
    for b, t in zip(*np.nonzero(e.played), strict=True):
        later = greedy_actions(np.asarray(acting.policy.q[b, t + 1]), e.available[b, t + 1])
        value = joint_value(phi.loss, e.state[b, t], phi.policy.hidden[b, t], e.action[b, t])
        beyond = joint_value(hard.loss, e.state[b, t + 1], hard.policy.hidden[b, t + 1], later)
        expected[b, t] = ETA * abs(value - (e.reward[b, t] + GAMMA * (not e.terminated[b, t]) * beyond)) / 2
    assert_close(bonus, expected, 1e-5)
    changes = jax.tree.map(lambda new, old: np.max(np.abs(np.asarray(new) - np.asarray(old))), after.values.online, phi)
    assert all(change > 0 for change in jax.tree.leaves((changes.loss, changes.policy.hidden)))
    assert changes.policy.q == 0  # nobody acts by the critic


def test_decentralised_curiosity_learns_each_agents_values_on_its_own_and_predicts_them_as_ever() -> None:
    curiosity = ValueCuriosity(mixer=Independent(), learning_rate=0.01)
    after, bonus, _ = learn(curiosity, Table(), start(curiosity, table(1), table(2), table(3)), BATCH, 0)
    assert_close(bonus, ETA * distances(table(3), table(2), 10.0, True).mean(axis=-1) * np.asarray(BATCH.played), 1e-5)
    # The gradient is 2 error / (agents * steps) at each chosen value; RMSprop's first step divides it by 0.1 |gradient| + 1e-5.
    expected = np.asarray(table(1), np.float64)
    for i in range(2):
        error = sum_errors(*(np.asarray(table(1))[:, :, i : i + 1],) * 2, only_agent(BATCH, i), BATCH.reward, GAMMA)
        for b, t in zip(*np.nonzero(np.asarray(BATCH.played)), strict=True):
            slope = 2 * error[b, t] / 18
            expected[b, t, i, BATCH.action[b, t, i]] -= 0.01 * slope / (0.1 * abs(slope) + 1e-5)
    assert_close(np.asarray(after.values.online.policy) - np.asarray(table(1)), expected - np.asarray(table(1)), 1e-3)
