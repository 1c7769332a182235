"""RODE: when roles are chosen and what they allow, what role values are fitted to, and how the effects of actions are learnt."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.envs import Gridworld
from emc.envs.gridworld import MOVES as STEPS_OF_MOVES
from emc.envs.predator_prey import PredatorPrey
from emc.errors import UserError
from emc.lanes import Lanes
from emc.methods import Method
from emc.mixers import QMIX
from emc.nets import Trunk
from emc.parts import Actors, Found, Nets, Seen
from emc.policies import Rode
from emc.policies.action_encoder import ActionEncoder, prediction_loss
from emc.policies.exploration import act_greedily
from emc.policies.rode import RodeNet, RodeState
from emc.policies.roles import Roles
from emc.schedules import Epsilon
from emc.training.loop import Budget, Program
from emc.training.rollout import play
from emc.types import EnvSpec, Episodes
from tests.twins import (
    Run,
    along_steps,
    as_numpy,
    assert_close,
    assert_trees_close,
    at,
    begun,
    bits,
    by_moment,
    filled,
    gru,
    laid,
    quick,
    random_episodes,
    run_by_moment,
    stacked,
    stretched,
)

GAMMA, INTERVAL = 0.9, 3
SPEC = EnvSpec(n_agents=2, n_actions=6, obs_size=4, state_size=5, episode_limit=8, idle_actions=(4,), move_actions=(0, 1, 2, 3))
SMALL: dict[str, Any] = {"hidden": 4, "role_head": 5, "embedding": 3, "encoder_hidden": 5, "encoder_code": 4, "switch_at": 100}
POLICY = Rode(clusters=2, interval=INTERVAL, role_mixer=QMIX(embed=3, hypernet=4), **SMALL)
ROLES = Roles(
    embedding=jnp.asarray(np.random.default_rng(0).normal(size=(6, 3)), jnp.float32),
    space=jnp.array([[1, 1, 0, 0, 1, 0], [1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1], [1, 1, 1, 1, 1, 1]], bool),
    exists=jnp.array([True, True, True, False]),
    latent=jnp.asarray(
        np.random.default_rng(1).normal(size=(4, 3)) * [[1], [1], [1], [-5]], jnp.float32
    ),  # the last would be best, if it existed
    formed=jnp.array(True),
)
LENGTHS, CUT = [8, 8, 5, 4, 3, 1], [False, True, False, True, True, False]


def weights(seed: int) -> RodeNet:
    return filled(lambda key: POLICY.init_net(key, SPEC), seed)


@functools.cache
def fresh_state() -> RodeState:
    with jax.ensure_compile_time_eval():  # also where it is first asked for inside a trace
        return quick(lambda key: POLICY.init(key, SPEC))(jax.random.key(0))


def formed_state(roles: Roles = ROLES) -> RodeState:
    return dataclasses.replace(fresh_state(), roles=roles)


def with_roles(episodes: Episodes, seed: int = 0) -> Episodes:
    """The same episodes with roles chosen every few steps, zero on padding."""
    rng, shape = np.random.default_rng(seed), np.shape(episodes.action)
    chosen = rng.integers(0, 3, (shape[0], -(-shape[1] // INTERVAL), shape[2])).repeat(INTERVAL, axis=1)[:, : shape[1]]
    return dataclasses.replace(episodes, choice=jax.device_put((chosen * np.asarray(episodes.played)[..., None]).astype(np.int8)))


BATCH = with_roles(random_episodes(0, LENGTHS, CUT, SPEC))


@quick
def walk(net: RodeNet, state: RodeState, episode: Episodes, key: jax.Array, epsilon: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Values, preferred actions and roles of agents that see what one episode shows."""
    previous = jnp.concatenate([jnp.full_like(episode.action[:1], -1), episode.action])

    def step(carry: Any, at: tuple[jax.Array, ...]) -> tuple[Any, tuple[jax.Array, ...]]:
        obs, available, previous, key = at
        decision = POLICY.step(net, state, carry, obs, available, previous, key, jnp.asarray(epsilon, jnp.float32))
        return decision.carry, (decision.q, decision.preferred, decision.choice)

    start = POLICY.begin(net, state, episode.state[0], key, SPEC)
    return jax.lax.scan(step, start, (episode.obs, episode.available, previous, jax.random.split(key, episode.obs.shape[0])))[1]


@quick
def unroll(net: RodeNet, state: RodeState, episodes: Episodes) -> Run:
    lanes = laid(episodes, 3)
    return run_by_moment(lanes, POLICY.unroll(net, state, lanes))


def role_at_each_moment(episodes: Episodes) -> np.ndarray:
    lanes = laid(episodes, 3)
    return np.asarray(by_moment(lanes, lanes.choice))


def row(episodes: Episodes, index: int) -> Episodes:
    return at(index, episodes)


@quick
def act(net: RodeNet, state: RodeState, obs: jax.Array, available: jax.Array, key: jax.Array) -> tuple[Any, jax.Array]:
    start = POLICY.begin(net, state, jnp.zeros(5), key, SPEC)
    return act_greedily(Actors(POLICY, net, state), start, obs, available, jnp.full(2, -1), key)


@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(seed=st.integers(0, 2**16))
def test_greedy_actions_lie_in_the_role_wherever_it_allows_any(seed: int) -> None:
    rng = np.random.default_rng(seed)
    space, exists, available = (rng.random(shape) < 0.4 for shape in ((4, 6), 4, (2, 6)))
    exists[rng.integers(4)] = available[:, rng.integers(6)] = True
    state = formed_state(dataclasses.replace(ROLES, space=jnp.asarray(space), exists=jnp.asarray(exists)))
    obs = jnp.asarray(rng.normal(size=(2, 4)), jnp.float32)
    carry, action = act(weights(1), state, obs, jnp.asarray(available), jax.random.key(seed))
    for agent, (role, done) in enumerate(zip(np.asarray(carry.role), np.asarray(action), strict=True)):
        assert exists[role]
        allowed = available[agent] & space[role]
        assert (allowed if allowed.any() else available[agent])[done]


def test_played_greedy_actions_lie_in_the_role_of_each_step() -> None:
    """On the path that training and evaluation take, where roles change within an episode."""
    env = Gridworld(rows=5, columns=6, episode_limit=9)
    space = np.array([[1, 0, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 1], [1, 1, 1, 1, 1]], bool)  # the first is of no use at the top
    roles = dataclasses.replace(ROLES, embedding=ROLES.embedding[:5], space=jnp.asarray(space))
    state = dataclasses.replace(quick(lambda key: POLICY.init(key, env.spec))(jax.random.key(0)), roles=roles)
    greedy_play = quick(lambda net: play(env, Actors(POLICY, net, state), jax.random.key(1), jnp.zeros(()), 1)[0])
    kinds: set[tuple[int, bool]] = set()
    for seed in range(12):  # nothing else is random
        episodes: Episodes = as_numpy(greedy_play(filled(lambda key: POLICY.init_net(key, env.spec), seed)))
        for b, t in zip(*np.nonzero(episodes.played), strict=True):
            for i in range(2):
                available, role = episodes.available[b, t, i], int(episodes.choice[b, t, i])
                allowed = available & space[role]
                kinds.add((role, bool(allowed.any())))
                assert (allowed if allowed.any() else available)[episodes.action[b, t, i]]
    assert kinds >= {(0, True), (0, False), (1, True), (2, True)}  # every role that exists, and one that allows nothing


def test_roles_change_only_when_an_interval_begins() -> None:
    episode = row(random_episodes(3, [30], None, SPEC, steps=30), 0)
    _, preferred, role = map(np.asarray, walk(weights(1), formed_state(), episode, jax.random.key(0), 1.0))
    assert role.dtype == np.int8
    changes = np.flatnonzero(np.any(role[1:] != role[:-1], axis=1)) + 1
    assert len(changes)
    assert not np.any(changes % INTERVAL)
    assert set(role.ravel().tolist()) == {0, 1, 2}  # all that exist, and no other
    assert np.array_equal(preferred, np.asarray(ROLES.space)[role])


def test_without_exploration_agents_choose_the_existing_role_of_highest_value() -> None:
    net, episode = weights(2), row(BATCH, 0)
    _, _, role = walk(net, formed_state(), episode, jax.random.key(0), 0.0)
    values = role_values_in_numpy(net, BATCH)[0, ::INTERVAL, :, :3]
    assert np.array_equal(np.asarray(role)[::INTERVAL], values.argmax(axis=-1))


def test_values_along_an_episode_are_those_of_its_steps() -> None:
    net, state = weights(3), formed_state()
    for index, length in enumerate(LENGTHS):
        episode = row(BATCH, index)
        q, _, role = walk(net, state, episode, jax.random.key(index), 0.7)
        choice = np.asarray(role)[:-1] * np.asarray(episode.played, np.int8)[:, None]
        played = dataclasses.replace(episode, choice=jax.device_put(choice))
        run = unroll(net, state, at(None, played))
        assert_close(np.asarray(run.q)[0, :length], np.asarray(q)[:length], 1e-5)


def test_the_last_moment_keeps_the_role_of_the_last_step() -> None:
    role, choice = role_at_each_moment(BATCH), np.asarray(BATCH.choice)
    for index, length in enumerate(LENGTHS):
        assert np.array_equal(role[index, :length], choice[index, :length])
        assert np.all(role[index, length] == choice[index, length - 1])


def hidden_in_numpy(trunk: Trunk, episodes: Episodes) -> np.ndarray:
    """Every agent's history, one agent of one episode after the other."""
    memory, obs, action = trunk.memory, np.asarray(episodes.obs, np.float64), np.asarray(episodes.action)
    named = {
        "weight_ih": memory.input_weight,
        "weight_hh": memory.hidden_weight,
        "bias_ih": memory.input_bias,
        "bias_hh": memory.hidden_bias,
    }
    named = {f"rnn.{name}_l0": np.concatenate(list(np.asarray(gates))) for name, gates in named.items()}
    result = np.zeros((*obs.shape[:3], POLICY.hidden))
    for b, i in np.ndindex(obs.shape[0], obs.shape[2]):
        h = np.zeros(POLICY.hidden)
        for t in range(obs.shape[1]):
            previous = np.eye(6)[action[b, t - 1, i]] if t else np.zeros(6)
            x = affine(trunk.encode, np.concatenate([obs[b, t, i], previous, np.eye(2)[i]]))
            h = result[b, t, i] = gru(named, np.maximum(x, 0.0), h)
    return result


def affine(layer: Any, x: np.ndarray) -> np.ndarray:
    return x @ np.asarray(layer.weight, np.float64).T + np.asarray(layer.bias)


def two_layers(mlp: Any, x: np.ndarray) -> np.ndarray:
    return affine(mlp.layers[1], np.maximum(affine(mlp.layers[0], x), 0.0))


def role_values_in_numpy(net: RodeNet, episodes: Episodes) -> np.ndarray:
    return two_layers(net.role_value, hidden_in_numpy(net.role, episodes)) @ np.asarray(ROLES.latent, np.float64).T


def mixed_in_numpy(net: RodeNet, values: np.ndarray, state: np.ndarray) -> float:
    """QMIX at one moment."""
    mixer = net.role_mixer
    first = np.abs(two_layers(mixer.first_weight, state)).reshape(2, 3)
    hidden = values @ first + affine(mixer.first_bias, state)
    hidden = np.where(hidden > 0, hidden, np.expm1(np.minimum(hidden, 0)))
    return float(hidden @ np.abs(two_layers(mixer.last_weight, state)) + two_layers(mixer.value, state)[0])


def test_action_values_are_the_roles_own_policy_times_the_embeddings() -> None:
    net = weights(3)
    run = unroll(net, formed_state(), BATCH)
    hidden, role = hidden_in_numpy(net.action, BATCH), role_at_each_moment(BATCH)
    policies = affine(net.role_policies, hidden).reshape(*hidden.shape[:3], 4, 3)
    for b, t, i in np.ndindex(*role.shape):
        if t <= LENGTHS[b]:
            assert_close(run.q[b, t, i], np.asarray(ROLES.embedding, np.float64) @ policies[b, t, i, role[b, t, i]], 1e-4)


def role_loss(net: RodeNet, target: RodeNet, state: RodeState, batch: Episodes, reward: Any, policy: Rode = POLICY) -> jax.Array:
    lanes = laid(batch, 3)
    online, slow = (Seen(Nets(each, (), ()), policy.unroll(each, state, lanes)) for each in (net, target))
    return policy.auxiliary_loss(online, slow, state, lanes, along_steps(lanes, reward), GAMMA)[0]


def test_role_values_are_fitted_to_the_interval_and_the_next_choice() -> None:
    net, target = weights(4), weights(5)
    reward = BATCH.reward + 0.3 * BATCH.played  # a bonus
    loss = quick(role_loss)(net, target, formed_state(), BATCH, reward)

    q, slow = role_values_in_numpy(net, BATCH), role_values_in_numpy(target, BATCH)
    state, choice, gain = np.asarray(BATCH.state, np.float64), np.asarray(BATCH.choice), np.asarray(reward, np.float64)
    errors: list[float] = []
    for b, (length, cut) in enumerate(zip(LENGTHS, CUT, strict=True)):
        for start in range(0, length, INTERVAL):
            end = min(start + INTERVAL, length)
            aim = gain[b, start:end].sum()
            if end < length or cut:
                following = q[b, end, :, :3].argmax(axis=-1)  # the last role does not exist
                aim += GAMMA * mixed_in_numpy(target, slow[b, end, [0, 1], following], state[b, end])
            errors.append(mixed_in_numpy(net, q[b, start, [0, 1], choice[b, start]], state[b, start]) - aim)
    assert len(errors) == 3 + 3 + 2 + 2 + 1 + 1
    assert float(loss) == pytest.approx(np.mean(np.square(errors)), rel=1e-5)


def everything(net: RodeNet, target: RodeNet, batch: Episodes, policy: Rode = POLICY) -> jax.Array:
    """All that trains the weights: the values of what was done, and the role loss."""
    state = formed_state()
    lanes = laid(batch, 3)
    chosen = jnp.take_along_axis(policy.unroll(net, state, lanes).q, lanes.action[..., None], axis=-1)[..., 0]
    return jnp.sum(chosen**2 * lanes.played[..., None]) + role_loss(net, target, state, batch, batch.reward, policy)


def test_padding_after_the_end_changes_no_gradient() -> None:
    net, target = weights(6), weights(7)
    gradient = quick(jax.grad(everything))
    expected = gradient(net, target, BATCH)
    longer = stretched(BATCH, 5)
    noise = jnp.asarray(np.random.default_rng(0).integers(0, 3, longer.choice.shape), jnp.int8)
    noisy = dataclasses.replace(longer, choice=jnp.where(longer.played[..., None], longer.choice, noise))
    for padded in (longer, noisy):
        assert_trees_close(gradient(net, target, padded), expected, 1e-4)


def test_roles_beyond_the_initial_ones_learn_only_where_that_is_asked_for() -> None:
    net = weights(6)
    batch = dataclasses.replace(BATCH, choice=jnp.where(BATCH.choice == 2, 3, BATCH.choice).astype(jnp.int8))  # as if the fourth existed
    few, all_of_them = (
        quick(jax.grad(functools.partial(everything, policy=dataclasses.replace(POLICY, train_new_roles=new))))(net, net, batch)
        for new in (False, True)
    )
    assert not np.any(np.asarray(few.role_policies.weight)[9:])
    assert not np.any(np.asarray(few.role_policies.bias)[9:])
    assert np.any(np.asarray(all_of_them.role_policies.weight)[9:])
    assert_close(few.role_policies.weight[:9], all_of_them.role_policies.weight[:9], 1e-5)
    assert_trees_close(few.action, all_of_them.action, 1e-5)  # what agents remember learns from every role


def test_before_roles_are_formed_no_action_and_no_role_is_preferred() -> None:
    state = fresh_state()
    run = unroll(weights(1), state, BATCH)
    assert_close(run.q, np.broadcast_to(np.asarray(run.q)[..., :1], run.q.shape), 1e-6)
    _, preferred, role = walk(weights(1), state, row(BATCH, 0), jax.random.key(0), 0.0)
    assert np.all(np.asarray(preferred))
    assert not np.any(np.asarray(role))  # the first of equals


def test_the_encoder_is_judged_by_the_next_observation_and_the_reward_of_played_steps() -> None:
    encoder: ActionEncoder = filled(lambda key: ActionEncoder.init(key, SPEC, 5, 4, 3), 1)
    obs, action = np.asarray(BATCH.obs, np.float64), np.asarray(BATCH.action)
    distances, errors = [], []
    for b, length in enumerate(LENGTHS):
        for t, i in np.ndindex(length, 2):
            situation = two_layers(encoder.situation, np.concatenate([obs[b, t, i], np.eye(6)[action[b, t, 1 - i]]]))
            both = np.concatenate([situation, two_layers(encoder.action, np.eye(6)[action[b, t, i]])])
            distances.append(np.linalg.norm(two_layers(encoder.next_obs, both) - obs[b, t + 1, i] + 1e-6))
            errors.append(two_layers(encoder.reward, both)[0] - float(BATCH.reward[b, t]))
    judge = quick(jax.value_and_grad(functools.partial(prediction_loss, reward_weight=10.0)))
    loss, gradient = judge(encoder, laid(BATCH, 3))
    assert float(loss) == pytest.approx(np.mean(distances) + 10 * np.mean(np.square(errors)), rel=1e-5)
    assert_trees_close(judge(encoder, laid(stretched(BATCH, 3), 3)), (loss, gradient), 1e-4)


def learn_from(state: Any, lanes: Lanes, env_steps: jax.Array) -> Any:
    """A step of RODE, which reads nothing of what the team's value found."""
    nothing = jnp.zeros_like(lanes.reward)
    return POLICY.learn(state, lanes, Found((), nothing, nothing[..., None]), 0.99, env_steps)


learn = quick(lambda state, env_steps: learn_from(state, laid(BATCH, 3), env_steps))


def test_the_encoder_learns_until_the_switch_and_rests_afterwards() -> None:
    state, losses = fresh_state(), []
    for _ in range(60):
        state, report = learn(state, jnp.int32(100))
        losses.append(float(report["action_encoder_loss"]))
        assert bits(state.roles) == bits(fresh_state().roles)
    assert losses[-1] < 0.97 * losses[0]
    after, report = learn(state, jnp.int32(101))
    assert bool(after.roles.formed)
    assert [bool(POLICY.meaning_changed(*pair)) for pair in ((fresh_state(), state), (state, after), (after, after))] == [
        False,
        True,
        False,
    ]
    assert bits((after.encoder, after.optimiser)) == bits((state.encoder, state.optimiser))
    assert_close(after.roles.embedding, state.encoder.embeddings(6), 1e-6)
    assert float(report["roles"]) == np.sum(np.asarray(after.roles.exists)) >= 3
    assert float(report["action_encoder_loss"]) == 0.0
    assert bits(learn(after, jnp.int32(5000))[0]) == bits(after)
    assert bits(learn(formed_state(), jnp.int32(5000))[0]) == bits(formed_state())  # whatever the embeddings would say now


def test_seeds_side_by_side_learn_and_form_roles_each_at_its_own_time() -> None:
    states = [fresh_state(), dataclasses.replace(fresh_state(), encoder=filled(lambda key: ActionEncoder.init(key, SPEC, 5, 4, 3), 8))]
    for steps in ([50, 100], [100, 101], [101, 130]):
        together, report = quick(jax.vmap(learn_from, in_axes=(0, None, 0)))(stacked(*states), laid(BATCH, 3), np.array(steps))
        alone = [learn(state, jnp.int32(now)) for state, now in zip(states, steps, strict=True)]
        for index, (state, metrics) in enumerate(alone):
            assert_trees_close(at(index, (together, report)), (state, metrics), 1e-5)
        states = [state for state, _ in alone]


def test_an_environment_that_says_nothing_about_its_actions_is_refused_in_one_line() -> None:
    silent = dataclasses.replace(SPEC, idle_actions=())
    with pytest.raises(UserError, match=r"^RODE needs an environment that says which actions are always allowed[^\n]*$"):
        POLICY.init(jax.random.key(0), silent)


@pytest.mark.parametrize(("actions", "advice"), [(4, "choose --policy.clusters 1 or so"), (2, "choose another method")])
def test_more_clusters_than_can_make_roles_are_refused_in_one_line(actions: int, advice: str) -> None:
    spec = dataclasses.replace(SPEC, n_actions=actions, idle_actions=(actions - 1,), move_actions=())
    with pytest.raises(UserError, match=rf"^policy\.clusters=3 of {actions} actions, 1 of them idle, would leave [^\n]*: {advice}$"):
        Rode(clusters=3, **SMALL).init(jax.random.key(0), spec)
    Rode(clusters=3, **SMALL).init(jax.random.key(0), dataclasses.replace(spec, n_actions=5))  # one of them may have two


def test_the_grids_say_which_actions_are_idle_and_which_are_moves() -> None:
    for spec in (Gridworld().spec, PredatorPrey().spec):
        assert spec.idle_actions == (4,)
        assert spec.move_actions == (0, 1, 2, 3)
    assert np.abs(STEPS_OF_MOVES).sum(axis=1).tolist() == [1, 1, 1, 1, 0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Rode(clusters=0),
        lambda: Rode(clusters=128),
        lambda: Rode(initial_roles=0),
        lambda: Rode(interval=0),
        lambda: Rode(switch_at=-1),
        lambda: Rode(reward_weight=-1.0),
        lambda: Rode(encoder_learning_rate=0.0),
        lambda: Rode(encoder_clip=float("nan")),
        lambda: Rode(hidden=0),
    ],
)
def test_numbers_that_make_no_sense_are_refused_in_one_line(make: Callable[[], Rode]) -> None:
    with pytest.raises(UserError, match=r"^policy\.[a-z_]+=[^\n]*$"):
        make()


@pytest.mark.slow
def test_a_run_forms_roles_on_its_way_and_goes_on() -> None:
    policy = dataclasses.replace(POLICY, switch_at=60)
    method = Method(policy, QMIX(embed=3, hypernet=4), batch_episodes=4, replay_episodes=16, epsilon=Epsilon(1.0, 0.05, 60, 60, 60))
    env = Gridworld(rows=5, columns=6, episode_limit=7)
    program = Program(method, Budget(test_episodes=2), env, (0,))
    state = program.advance(begun(method, env), 0, 8)
    assert not bool(state.learner.policy.roles.formed)  # 56 steps at most
    state = program.advance(state, 8, 12)
    assert bool(state.learner.policy.roles.formed)
    assert state.replay.episodes.choice.dtype == jnp.int8
    assert not any(bool(broken) for broken in state.tally.broken.values())
