"""The bonus apart from the policy: scales, mixtures, arms and iota's targets by hand, and a policy that the bonus cannot bend."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.curiosity import RND, ValueCuriosity
from emc.envs.gridworld import Gridworld
from emc.errors import UserError
from emc.interop import to_torch
from emc.memory import EpisodicMemory
from emc.methods import METHODS, make_method
from emc.parts import Actors, Found, Prospect, Recollection
from emc.policies import Apart, RecurrentQ
from emc.policies.apart import ApartState, Scale
from emc.training import learner as learning
from emc.training.loop import Budget, Program
from tests.twins import SPEC, agent_values, as_numpy, begun, bits, filled, laid, quick, random_episodes

GAMMA = 0.9
POLICY = Apart(hidden=4, weights=(0.0, 0.5, 3.0), blindly=0.5, window=6)
LENGTHS, CUT = [4, 2, 3], [True, False, False]
ARMS = np.array([2, 0, 1])
BATCH = dataclasses.replace(
    random_episodes(0, LENGTHS, CUT), choice=jnp.asarray(np.broadcast_to(ARMS[:, None], (3, SPEC.episode_limit)), jnp.int8)
)
BONUS = np.abs(np.random.default_rng(5).normal(size=BATCH.reward.shape)) * np.asarray(BATCH.played)


observe = quick(lambda policy, state, fresh: policy.observe(state, fresh), static_argnums=0)


def start(rewarded: bool = True) -> ApartState:
    state = POLICY.init(jax.random.key(0), SPEC)
    online = filled(lambda key: POLICY.init_net(key, SPEC), 1)
    target = filled(lambda key: POLICY.init_net(key, SPEC), 2)
    values = dataclasses.replace(
        state.values,
        online=dataclasses.replace(state.values.online, policy=online),
        target=dataclasses.replace(state.values.target, policy=target),
    )
    scale = Scale(jnp.asarray(0.5), jnp.asarray(4.25), jnp.asarray(1.0))  # a deviation of 2
    return dataclasses.replace(state, values=values, rewarded=jnp.asarray(rewarded), target=scale)


def test_a_scale_is_the_deviation_of_what_was_seen_lately() -> None:
    rng, scale, rate = np.random.default_rng(0), Scale.unknown(), 0.25
    assert float(scale.deviation) == 0.0
    mean = square = mass = 0.0
    for _ in range(5):
        values, mask = rng.normal(3.0, 2.0, (4, 2)), rng.random((4, 2)) < 0.7
        mask[0, 0] = True
        scale = scale.seeing(jnp.asarray(values, jnp.float32), jnp.asarray(mask), rate)
        seen = values[mask]
        mean, square, mass = (1 - rate) * mean + rate * seen.mean(), (1 - rate) * square + rate * (seen**2).mean(), (1 - rate) * mass + rate
        assert float(scale.deviation) == pytest.approx(np.sqrt(square / mass - (mean / mass) ** 2), rel=1e-4)
    assert float(Scale.unknown().seeing(jnp.full((4, 2), 7.0), jnp.ones((4, 2), bool), 0.01).deviation) == pytest.approx(0.0, abs=1e-2)


@pytest.mark.parametrize("rewarded", [True, False])
def test_iota_learns_the_bonus_on_its_scale_with_next_actions_of_the_episodes_own_mixture(rewarded: bool) -> None:
    state, phi = start(rewarded), filled(lambda key: POLICY.init_net(key, SPEC), 3)

    @quick
    def learn(state: ApartState, phi: Any) -> Any:
        lanes = laid(BATCH, 2, POLICY)
        padded = jnp.asarray(np.pad(BONUS, ((0, 1), (0, 1))), jnp.float32)
        bonus = jnp.where(lanes.played, padded[jnp.minimum(lanes.episode, 3), lanes.time], 0.0)
        target = lanes.time[..., None] * jnp.asarray([1.0, 3.0])  # of two, whose mean is twice the time
        return POLICY.learn(state, lanes, Found(phi, bonus, target), GAMMA, jnp.int32(0))

    after, report = learn(state, phi)
    q_phi, q, q_target = (agent_values(to_torch(net), BATCH) for net in (phi, state.values.online.policy, state.values.target.policy))
    s_e = 2.0 if rewarded else 1.0
    played, sums = np.asarray(BATCH.played), np.zeros_like(BONUS)
    for t in reversed(range(BONUS.shape[1])):
        later = sums[:, t + 1] if t + 1 < BONUS.shape[1] else 0.0
        sums[:, t] = np.where(played[:, t], BONUS[:, t] + GAMMA * later, 0.0)
    s_i = sums[played].std()
    assert float(report["apart_bonus_scale"]) == pytest.approx(s_i, rel=1e-4)
    errors = []
    for b, t in zip(*np.nonzero(played), strict=True):
        chosen = after_value = 0.0
        for i in range(SPEC.n_agents):
            chosen += q[b, t, i, int(BATCH.action[b, t, i])]
            mixed = q_phi[b, t + 1, i] / s_e + POLICY.weights[ARMS[b]] * q[b, t + 1, i]
            possible = np.flatnonzero(np.asarray(BATCH.available[b, t + 1, i]))
            after_value += q_target[b, t + 1, i, max(possible, key=lambda a: mixed[a])] if len(possible) else 0.0
        errors.append(chosen - BONUS[b, t] / s_i - GAMMA * (not bool(BATCH.terminated[b, t])) * after_value)
    assert float(report["apart_td_error"]) == pytest.approx(np.mean(np.abs(errors)), rel=1e-4)
    assert float(report["apart_loss"]) == pytest.approx(np.mean(np.square(errors)), rel=1e-4)
    assert bool(after.rewarded)  # this batch has rewards
    # Episodes of four, two and three steps have the times 0 1 2 3, 0 1, 0 1 2: of twice these the mean is 20/9 and of the squares 80/9.
    assert float(after.target.mass) == pytest.approx(0.99 * 1.0 + 0.01)
    assert float(after.target.mean) == pytest.approx(0.99 * 0.5 + 0.01 * 20 / 9, rel=1e-5)
    assert float(after.target.square) == pytest.approx(0.99 * 4.25 + 0.01 * 80 / 9, rel=1e-5)
    assert float(after.value_scale) == pytest.approx(np.sqrt(4.2963889 - 0.5172222**2), rel=1e-5)
    assert after.values.updates == 1


def test_phi_has_no_scale_until_a_reward_was_seen_and_keeps_it_from_then_on() -> None:
    phi = filled(lambda key: POLICY.init_net(key, SPEC), 3)

    @quick
    def learn(state: ApartState, paid: Any, beside: Any) -> ApartState:
        lanes = laid(BATCH, 2, POLICY)
        lanes = dataclasses.replace(lanes, reward=jnp.where(lanes.played, paid * lanes.reward, beside))
        found = Found(phi, jnp.zeros_like(lanes.reward), jnp.ones_like(lanes.reward)[..., None] * lanes.time[..., None])
        return POLICY.learn(state, lanes, found, GAMMA, jnp.int32(0))[0]

    nothing, something = jnp.float32(0.0), jnp.float32(1.0)
    state = start(rewarded=False)
    for beside in (nothing, something):  # what stands where nobody plays is no reward
        state = learn(state, nothing, beside)
        assert not bool(state.rewarded)
        assert float(state.value_scale) == 1.0
    for paid in (something, nothing):
        state = learn(state, paid, nothing)
        assert bool(state.rewarded)
        assert float(state.value_scale) == float(state.target.deviation)


def test_an_episode_is_played_by_the_mixture_of_its_arm() -> None:
    state, phi = start(), filled(lambda key: POLICY.init_net(key, SPEC), 3)
    carry = POLICY.begin(phi, state, BATCH.state[0, 0], jax.random.key(0), SPEC)
    go = quick(POLICY.step)
    for arm, weight in enumerate(POLICY.weights):
        step = go(
            phi,
            state,
            dataclasses.replace(carry, arm=jnp.int32(arm)),
            BATCH.obs[0, 0],
            BATCH.available[0, 0],
            jnp.full(SPEC.n_agents, -1),
            jax.random.key(1),
            jnp.zeros(()),
        )
        earned, discovered = (agent_values(to_torch(net), BATCH)[0, 0] for net in (phi, state.values.online.policy))
        np.testing.assert_allclose(np.asarray(step.q), earned / 2.0 + weight * discovered, rtol=1e-4, atol=1e-5)
        assert int(step.choice) == arm
    actors = POLICY.tested(phi, state)
    assert (actors.policy, bits(actors.net)) == (RecurrentQ(hidden=4), bits(phi))


def test_arms_are_drawn_alike_unless_half_of_the_time_the_one_that_earned_most_lately_is_wanted() -> None:
    state, phi = start(), filled(lambda key: POLICY.init_net(key, SPEC), 3)
    for arms, returns in (([0, 1, 2], [9.0, 9.0, 9.0]), ([0, 1, 2], [0.0, 4.0, 1.0]), ([0, 0, 1], [2.0, 2.0, 0.0])):
        reward = np.zeros_like(BATCH.reward)
        reward[:, 0] = returns
        choice = np.broadcast_to(np.array(arms, np.int8)[:, None], BATCH.choice.shape)
        state = observe(POLICY, state, dataclasses.replace(BATCH, **jax.device_put({"reward": reward, "choice": choice})))
    # The window holds six: arm 0 earned 0, 2, 2, arm 1 earned 4 and 0, arm 2 earned 1; the scale is 2.
    expected = [4 / 3 / 2 + np.sqrt(1 / 3), 2 / 2 + np.sqrt(1 / 2), 1 / 2 + 1]
    np.testing.assert_allclose(np.asarray(POLICY.promise(state)), expected, rtol=1e-6)
    begin = quick(jax.vmap(lambda key: POLICY.begin(phi, state, BATCH.state[0, 0], key, SPEC).arm))
    shares = np.bincount(np.asarray(begin(jax.random.split(jax.random.key(0), 3_000))), minlength=3) / 3_000
    np.testing.assert_allclose(shares, [1 / 6, 1 / 6 + 1 / 2, 1 / 6], atol=0.03)
    alike = quick(
        jax.vmap(lambda key: dataclasses.replace(POLICY, blindly=Apart().blindly).begin(phi, state, BATCH.state[0, 0], key, SPEC).arm)
    )
    shares = np.bincount(np.asarray(alike(jax.random.split(jax.random.key(1), 3_000))), minlength=3) / 3_000
    np.testing.assert_allclose(shares, [1 / 3, 1 / 3, 1 / 3], atol=0.03)
    untried = POLICY.init(jax.random.key(0), SPEC)
    assert np.all(np.isinf(np.asarray(POLICY.promise(untried))))


def test_after_its_steps_of_exploring_every_episode_only_earns() -> None:
    policy, phi = dataclasses.replace(POLICY, weights=(3.0, 0.0, 0.5), explore_steps=100), filled(lambda key: POLICY.init_net(key, SPEC), 3)

    @quick
    def arms_after(state: ApartState, env_steps: Any) -> Any:
        lanes = laid(BATCH, 2, policy)
        found = Found(phi, jnp.zeros_like(lanes.reward), jnp.zeros_like(lanes.reward)[..., None])
        state = policy.learn(state, lanes, found, GAMMA, env_steps)[0]
        keys = jax.random.split(jax.random.key(0), 100)
        return state.earning, jax.vmap(lambda key: policy.begin(phi, state, BATCH.state[0, 0], key, SPEC).arm)(keys)

    for env_steps, over in ((99, False), (100, True)):
        earning, arms = arms_after(start(), jnp.int32(env_steps))
        assert bool(earning) == over
        assert set(np.asarray(arms).tolist()) == ({1} if over else {0, 1, 2})


def test_the_learner_tells_the_policy_how_many_steps_were_played() -> None:
    policy = dataclasses.replace(POLICY, explore_steps=100)
    method = dataclasses.replace(METHODS["emc-apart-vdn"].method, policy=policy, curiosity=ValueCuriosity(own_values=False))
    learner = learning.init_learner(method, SPEC, jax.random.key(0))
    update = quick(lambda learner, env_steps: learning.update(method, learner, BATCH, env_steps)[0].policy.earning)
    assert [bool(update(learner, jnp.int32(steps))) for steps in (99, 100)] == [False, True]


def test_seeds_side_by_side_explore_until_their_own_steps_are_over_and_then_only_earn() -> None:
    env, explore_steps, iterations = Gridworld(rows=5, columns=6, episode_limit=30), 300, 20
    policy = Apart(hidden=8, weights=(3.0, 0.0, 0.5), explore_steps=explore_steps)
    method = dataclasses.replace(make_method("emc-apart-vdn"), policy=policy, batch_episodes=2, replay_episodes=4)
    program = Program(method, Budget(test_episodes=2), env, (1, 4))
    state = program.init()
    over, played, steps = np.zeros(2, bool), {False: set[int](), True: set[int]()}, []
    for iteration in range(iterations):
        state = program.advance(state, iteration, 1)
        own: ApartState = as_numpy(state.learner.policy)
        for seed in range(2):
            played[bool(over[seed])].add(int(own.arms.arm[seed, (own.arms.added[seed] - 1) % policy.window]))
        steps.append(np.asarray(state.env_steps))
        np.testing.assert_array_equal(own.earning, steps[-1] >= explore_steps)
        over = own.earning
    assert np.all(over)
    assert played == {False: {0, 1, 2}, True: {1}}  # the smallest weight is not the first
    assert any((one >= explore_steps) != (other >= explore_steps) for one, other in steps)  # one seed got there before the other


def test_more_fresh_episodes_than_the_window_holds_leave_the_last_of_them() -> None:
    policy = dataclasses.replace(POLICY, window=2)
    state = observe(policy, policy.init(jax.random.key(0), SPEC), BATCH)
    assert sorted(np.asarray(state.arms.arm).tolist()) == [0, 1]
    np.testing.assert_allclose(
        sorted(np.asarray(state.arms.episode_return)), sorted(np.sum(np.asarray(BATCH.reward)[1:], axis=1)), rtol=1e-6
    )


def test_the_bonus_does_not_touch_the_agents_that_are_tested() -> None:
    """The same batch with curiosity a thousand times as strong: iota and the mixture differ, phi does not."""
    batch = jax.device_put(jax.tree.map(lambda x: np.concatenate([x, x]), BATCH))
    after = {}
    for scale in (1.0, 1_000.0):
        curiosity = ValueCuriosity(own_values=False, target_scale=scale)
        method = dataclasses.replace(METHODS["emc-apart-vdn"].method, policy=POLICY, curiosity=curiosity)
        learner = learning.init_learner(method, SPEC, jax.random.key(0))
        after[scale], lesson = quick(lambda learner, batch, method=method: learning.update(method, learner, batch, jnp.int32(0)))(
            learner, batch
        )
        assert float(jnp.sum(lesson.bonus)) > 0
        assert learning.extrinsic_agents(method, learner) is None
        assert isinstance(learning.tested(method, learner).policy, RecurrentQ)
    assert bits(after[1.0].values.online) == bits(after[1_000.0].values.online)
    assert bits(after[1.0].policy.bonus) != bits(after[1_000.0].policy.bonus)


OWN_UNIT = dataclasses.replace(POLICY, largest_reward=10.0)


def test_the_largest_reward_seen_of_either_sign_counts_as_much_as_it_is_told() -> None:
    state = OWN_UNIT.init(jax.random.key(0), SPEC)
    assert float(OWN_UNIT.unit(state)) == 1.0  # before any
    for rewards, unit in (([0.0, 2.0, -5.0], 0.5), ([1.0, 0.0, -4.0], 0.5), ([30.0, 0.0, 0.0], 3.0)):
        reward = np.zeros_like(BATCH.reward)
        reward[:, 1] = rewards
        state = observe(OWN_UNIT, state, dataclasses.replace(BATCH, reward=jnp.asarray(reward)))
        assert float(OWN_UNIT.unit(state)) == pytest.approx(unit)
    assert POLICY.unit(state) == 1.0  # unless it is told nothing
    judged = dataclasses.replace(state, arms=dataclasses.replace(state.arms, added=jnp.int32(3)))
    raw = POLICY.promise(judged) - jnp.sqrt(1.0)
    np.testing.assert_allclose(np.asarray(OWN_UNIT.promise(judged) - jnp.sqrt(1.0)), np.asarray(raw) / 3, rtol=1e-5)


def test_one_update_in_a_unit_is_one_with_rewards_of_that_unit() -> None:
    """Memory, priorities, curiosity and all: but returns are remembered as they were paid."""
    memory = EpisodicMemory(capacity=64)
    method = dataclasses.replace(
        METHODS["emc-apart-vdn"].method, policy=OWN_UNIT, curiosity=ValueCuriosity(own_values=False), memory=memory
    )
    learner = learning.init_learner(method, SPEC, jax.random.key(0))
    seen = quick(lambda learner, batch: learning.observe(method, learner, batch))(learner, BATCH)
    unit = float(np.max(np.abs(np.asarray(BATCH.reward)))) / 10
    assert float(OWN_UNIT.unit(seen.policy)) == pytest.approx(unit)
    plain = dataclasses.replace(method, policy=POLICY)
    scaled = dataclasses.replace(BATCH, reward=BATCH.reward / unit)
    same = quick(lambda learner, batch: learning.observe(plain, learner, batch))(learner, scaled)
    after, lesson = quick(lambda learner: learning.update(method, learner, BATCH, jnp.int32(0)))(seen)
    expected, other = quick(lambda learner: learning.update(plain, learner, scaled, jnp.int32(0)))(same)
    for one, two in zip(
        jax.tree.leaves((after.values, after.curiosity)), jax.tree.leaves((expected.values, expected.curiosity)), strict=True
    ):
        np.testing.assert_allclose(np.asarray(one), np.asarray(two), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(np.asarray(lesson.priority), np.asarray(other.priority), rtol=1e-4)
    assert float(lesson.metrics["reward_extrinsic"]) == pytest.approx(unit * float(other.metrics["reward_extrinsic"]), rel=1e-4)
    assert float(lesson.metrics["memory_target"]) == pytest.approx(float(other.metrics["memory_target"]), rel=1e-4)
    assert float(lesson.metrics["memory_hit_rate"]) > 0


def test_agents_are_kept_in_the_tasks_own_unit() -> None:
    state = dataclasses.replace(start(), largest=jnp.asarray(30.0))
    for forms in ({}, {"recurrent": False}, {"shared": False}):
        policy = dataclasses.replace(OWN_UNIT, **forms)
        net = filled(lambda key, policy=policy: policy.init_net(key, SPEC), 3)
        lanes, kept = laid(BATCH, 2, policy), policy.tested(net, state)
        np.testing.assert_allclose(
            np.asarray(kept.unroll(lanes).q), 3 * np.asarray(policy.unroll(net, state, lanes).q), rtol=1e-4, atol=1e-6
        )


def test_a_run_with_its_own_unit_is_the_same_whatever_the_unit_of_rewards() -> None:
    """Bit for bit where the units differ by a power of two; where rewards count as they are paid, other actions are soon taken."""
    found: dict[float, list[Any]] = {0.0: [], 10.0: []}
    for largest, runs in found.items():
        for unit in (1.0, 16.0):
            env = Gridworld(rows=5, columns=6, episode_limit=30, penalty=2 * unit, win_reward=10 * unit)
            policy = Apart(hidden=8, blindly=0.5, largest_reward=largest)
            fields = {
                "policy": policy,
                "batch_episodes": 2,
                "replay_episodes": 8,
                "memory": EpisodicMemory(capacity=256, statistic="bound"),
            }
            method = dataclasses.replace(make_method("emc-apart-vdn"), **fields)
            program = Program(method, Budget(test_episodes=2), env, (1,))
            state = program.advance(program.init(), 0, 40)
            assert float(state.learner.policy.largest) in (2 * unit, 10 * unit)
            runs.append((bits(state.learner.values.online), bits(state.replay.episodes.action), bits(state.replay.priority)))
    assert found[10.0][0] == found[10.0][1]
    assert found[0.0][0][1] != found[0.0][1][1]


def test_curiosity_about_the_policys_own_agents_starts_like_one_with_values_of_its_own() -> None:
    agents = filled(lambda key: POLICY.init_net(key, SPEC), 3)
    lanes = laid(BATCH, 2, POLICY)
    actors = Actors(RecurrentQ(hidden=4), filled(lambda key: POLICY.init_net(key, SPEC), 4), ())
    found = {}
    for own in (True, False):
        curiosity = ValueCuriosity(own_values=own)
        state = curiosity.init(jax.random.key(0), SPEC, RecurrentQ(hidden=4), agents)
        found[own] = quick(lambda state, curiosity=curiosity: curiosity.learn(state, lanes, actors, GAMMA, jnp.int32(0)))(state)
        assert (curiosity.extrinsic_agents(state) is not None) == own
    np.testing.assert_allclose(np.asarray(found[True][1]), np.asarray(found[False][1]), rtol=1e-6)
    expected = jax.tree.map(lambda old, new: 0.995 * old + 0.005 * new, *as_numpy((agents, actors.net)))
    for one, other in zip(jax.tree.leaves(found[False][0].soft), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-5)
    with pytest.raises(UserError, match=r"^curiosity\.own_values=False[^\n]*another novelty$"):
        ValueCuriosity(own_values=False, novelty="td_error")


def test_other_kinds_of_curiosity_can_be_kept_apart_too() -> None:
    env = Gridworld(rows=5, columns=6, episode_limit=4)
    small = {"batch_episodes": 2, "replay_episodes": 4, "policy": Apart(hidden=8)}
    for curiosity in (RND(of="state", hidden=8), ValueCuriosity(own_values=False, novelty="change")):
        method = dataclasses.replace(make_method("emc-apart-vdn"), curiosity=curiosity, **small)
        program = Program(method, Budget(test_episodes=2), env, (0,))
        state = program.advance(begun(method, env), 0, 4)
        metrics = {name: float(total) for name, total in state.tally.metrics.items()}
        assert all(np.isfinite(value) for value in metrics.values())
        assert metrics["apart_loss"] > 0
        assert program.evaluate_beside(state, 0) is None


def test_a_largest_reward_that_cannot_be_counted_in_is_refused_in_one_line() -> None:
    for largest in (-1.0, float("nan"), float("inf"), 1e-60):
        with pytest.raises(UserError, match=r"^policy\.largest_reward=[^\n]*0 takes rewards as they are paid[^\n]*$"):
            Apart(largest_reward=largest)


def test_what_is_recalled_counts_in_the_unit_of_the_values() -> None:
    recalled = Recollection(jnp.asarray([[6.0]]), jnp.asarray([[True]]), Prospect(jnp.asarray([[4.0]]), jnp.asarray([[0.5]])))
    smaller = recalled.per(jnp.asarray(2.0))
    assert (float(smaller.target[0, 0]), bool(smaller.known[0, 0])) == (3.0, True)
    assert smaller.prospect is not None
    assert (float(smaller.prospect.value[0, 0]), float(smaller.prospect.share[0, 0])) == (2.0, 0.5)  # a share has no unit
    assert dataclasses.replace(recalled, prospect=None).per(2.0).prospect is None


@pytest.mark.parametrize("weights", [(), (-1.0,), (float("nan"), 1.0)])
def test_weights_that_make_no_sense_are_refused_in_one_line(weights: tuple[float, ...]) -> None:
    with pytest.raises(UserError, match=r"^policy\.weights=[^\n]*0 only exploits$"):
        Apart(weights=weights)
