"""MAVEN: one latent for a whole episode, in the agents, the mixer and the discriminator; and the policy that draws it."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.api import LoadedPolicy
from emc.envs.gridworld import Gridworld
from emc.errors import UserError
from emc.losses import TD
from emc.losses.td import mix, mixer_state, values_of
from emc.mixers import QMIX
from emc.nets import MLP
from emc.parts import Actors, Mixed, Mixer, Nets, Seen
from emc.policies import Maven
from emc.policies.exploration import greedy
from emc.policies.maven import MavenNet, MavenState
from emc.training.rollout import play
from emc.types import AgentValues, EnvSpec, Episodes
from tests.twins import (
    SPEC,
    Run,
    Scripted,
    as_numpy,
    assert_close,
    assert_trees_close,
    bits,
    by_moment,
    filled,
    fit_by_episode,
    gru,
    gru_weights,
    laid,
    mlp,
    quick,
    random_episodes,
    run_by_moment,
    spoilt,
    stretched,
)

LATENTS = 3
POLICY = Maven(latents=LATENTS, discriminator=5, latent_hidden=6, past_episodes=4, latent_batch=2, latent_updates=1, hidden=4)
LATENT = np.array([2, 0, 1])
KEY = jax.random.key(3)


def with_latent(batch: Episodes, latent: Any) -> Episodes:
    """The same episodes as if they had been played under given latents."""
    return dataclasses.replace(batch, choice=jax.device_put((np.asarray(batch.played) * np.asarray(latent)[:, None]).astype(np.int8)))


BATCH = with_latent(random_episodes(0, [4, 2, 3], cut=[True, False, True]), LATENT)
NET: MavenNet = filled(lambda key: POLICY.init_net(key, SPEC), 0)


def state_of(policy: Maven = POLICY, spec: EnvSpec = SPEC, seed: int = 0) -> MavenState:
    """Its own learning before it began."""
    return jax.jit(lambda key: policy.init(key, spec))(jax.random.key(seed))


STATE = state_of()
SEEN = np.arange(5) <= np.array([4, 2, 3])[:, None]  # moments


@quick
def unroll(net: MavenNet, episodes: Episodes) -> Run:
    lanes = laid(episodes)
    return run_by_moment(lanes, POLICY.unroll(net, STATE, lanes))


def twin_values(net: MavenNet, batch: Episodes, latent: Any) -> np.ndarray:
    """Every agent's values: linear, ReLU, GRU, then a matrix without bias that is made from latent and agent."""
    net, e = as_numpy(net), as_numpy(batch)
    weights, n_actions, n_agents = gru_weights(net.agent.memory), SPEC.n_actions, SPEC.n_agents
    q = np.zeros((*e.obs.shape[:3], n_actions))
    for b, i in np.ndindex(e.obs.shape[0], n_agents):
        head = net.head.weight @ np.concatenate([np.eye(LATENTS)[latent[b]], np.eye(n_agents)[i]]) + net.head.bias
        h = np.zeros(POLICY.hidden)
        for t in range(e.obs.shape[1]):
            previous = np.eye(n_actions)[e.action[b, t - 1, i]] if t else np.zeros(n_actions)
            x = np.concatenate([e.obs[b, t, i], previous, np.eye(n_agents)[i]])
            h = gru(weights, np.maximum(net.agent.encode.weight @ x + net.agent.encode.bias, 0.0), h)
            q[b, t, i] = head.reshape(n_actions, POLICY.hidden) @ h
    return q


def test_values_along_episodes_are_those_of_a_plain_loop_and_depend_on_the_latent() -> None:
    for latent in (LATENT, np.array([0, 1, 2])):
        run = unroll(NET, with_latent(BATCH, latent))
        assert_close(run.q[SEEN], twin_values(NET, BATCH, latent)[SEEN], 1e-5)
        assert run.context.tolist() == (np.eye(LATENTS)[latent][:, None] * SEEN[..., None]).tolist()  # the last moment included
    other = np.asarray(unroll(NET, with_latent(BATCH, (LATENT + 1) % LATENTS)).q)
    assert np.all(np.abs(other - np.asarray(unroll(NET, BATCH).q))[SEEN] > 1e-6)


def test_values_step_by_step_are_those_along_the_episode_under_the_latent_that_was_drawn() -> None:
    step = quick(lambda carry, obs, available, previous: POLICY.step(NET, STATE, carry, obs, available, previous, KEY, jnp.zeros(())))
    carry, previous = POLICY.begin(NET, STATE, BATCH.state[0, 0], KEY, SPEC), jnp.full(2, -1)
    drawn = int(carry.latent)
    values = []
    for t in range(5):
        decision = step(carry, BATCH.obs[0, t], BATCH.available[0, t], previous)
        carry, previous = decision.carry, BATCH.action[0, min(t, 3)]
        values.append(np.asarray(decision.q))
        assert int(decision.choice) == drawn
        assert decision.preferred.tolist() == BATCH.available[0, t].tolist()
    assert_close(np.array(values), unroll(NET, with_latent(BATCH, np.array([drawn, 0, 0]))).q[0], 1e-5)


@dataclasses.dataclass(frozen=True)
class Telling(Mixer):
    """A mixer whose value is the latent that it reads."""

    def init(self, key: jax.Array, spec: EnvSpec) -> tuple[()]:
        return ()

    def __call__(self, net: tuple[()], values: AgentValues, state: jax.Array) -> Mixed:
        assert state.shape == (SPEC.state_size + LATENTS,)
        return Mixed(jnp.sum(state[-LATENTS:] * jnp.arange(1.0, LATENTS + 1), keepdims=True), jnp.zeros(()))


def test_the_mixer_of_the_values_and_of_the_target_read_the_latent_after_the_state() -> None:
    assert POLICY.mixer_spec(SPEC) == dataclasses.replace(SPEC, state_size=SPEC.state_size + LATENTS)
    lanes = laid(BATCH)
    seen, played = Seen(Nets(NET, (), ()), quick(POLICY.unroll)(NET, STATE, lanes)), np.asarray(BATCH.played)
    np.testing.assert_array_equal(mixer_state(lanes.state, seen.unroll.context)[..., : SPEC.state_size], lanes.state)
    fit = fit_by_episode(lanes, TD()(Actors(POLICY, NET, STATE), Telling(), seen, seen, lanes, lanes.reward, 0.5))
    np.testing.assert_array_equal(fit.q[..., 0], (LATENT + 1)[:, None] * played)
    after = np.asarray(fit.q - fit.error)[..., 0] - np.asarray(BATCH.reward)
    np.testing.assert_allclose(after, 0.5 * (~np.asarray(BATCH.terminated) & played) * (LATENT + 1)[:, None], atol=1e-6)


def test_the_teams_value_changes_with_the_latent_even_where_the_agents_values_do_not() -> None:
    mixer = QMIX(embed=3, layers=1)
    net = filled(lambda key: mixer.init(key, POLICY.mixer_spec(SPEC)), 1)
    run = unroll(NET, BATCH)

    def total(context: jax.Array) -> jax.Array:
        values = values_of(run.q[:, :-1], BATCH.available[:, :-1], BATCH.action)
        return mix(mixer, net, values, mixer_state(BATCH.state, context)[:, :-1]).q

    slopes = np.asarray(quick(jax.grad(lambda context: jnp.sum(total(context))))(run.context))
    assert np.all(np.any(slopes[:, :-1] != 0, axis=-1))
    assert not np.any(slopes[:, -1])  # nothing is mixed at the last moment
    one, two = (np.asarray(quick(total)(context)) for context in (run.context, jnp.roll(run.context, 1, axis=-1)))
    assert np.all((one != two)[np.asarray(BATCH.played)])


@quick
def guess(net: MavenNet, batch: Episodes) -> tuple[tuple[jax.Array, dict[str, jax.Array]], MavenNet]:
    """The discriminator's loss, its report, and what it does to the agents and itself."""

    def loss(net: MavenNet) -> tuple[jax.Array, dict[str, jax.Array]]:
        lanes = laid(batch)
        seen = Seen(Nets(net, (), ()), POLICY.unroll(net, STATE, lanes))
        return POLICY.auxiliary_loss(seen, seen, STATE, lanes, lanes.reward, 0.9)

    return jax.value_and_grad(loss, has_aux=True)(net)


def test_the_discriminators_loss_is_that_of_a_plain_loop() -> None:
    net, e, q = as_numpy(NET), as_numpy(BATCH), twin_values(NET, BATCH, LATENT)
    losses, right = [], []
    for b, length in enumerate([4, 2, 3]):
        h = np.ones(POLICY.discriminator)
        for t in range(length):
            masked = np.where(e.available[b, t], q[b, t], -9_999_999.0)
            share = np.exp(masked - masked.max(axis=-1, keepdims=True))
            share /= share.sum(axis=-1, keepdims=True)
            h = gru(gru_weights(net.summary), np.concatenate([share.ravel(), e.state[b, t]]), h)
        logits = mlp(net.discriminator, h)
        losses.append(np.log(np.sum(np.exp(logits))) - logits[LATENT[b]])
        right.append(np.argmax(logits) == LATENT[b])
    (loss, report), gradient = guess(NET, BATCH)
    assert float(report["latent_cross_entropy"]) == pytest.approx(np.mean(losses), rel=1e-5)
    assert float(loss) == pytest.approx(0.01 * np.mean(losses), rel=1e-5)
    assert float(report["latent_guessed"]) == pytest.approx(np.mean(right))
    assert all(np.any(np.asarray(leaf)) for leaf in jax.tree.leaves(gradient))  # the agents learn to be told apart


def test_the_discriminator_reads_each_episode_to_its_own_end() -> None:
    clean, long = guess(NET, BATCH), stretched(BATCH, 3)
    assert_trees_close(guess(NET, long), clean, 1e-4)
    assert_trees_close(guess(NET, spoilt(BATCH, 3)[0]), clean, 1e-4)


@pytest.mark.parametrize("env", [Scripted(), Gridworld(rows=5, columns=6, episode_limit=4)], ids=["scripted", "gridworld"])
def test_an_episode_is_played_and_learned_from_under_one_latent(env: Any) -> None:
    policy = dataclasses.replace(POLICY, latents=5)
    net = filled(lambda key: policy.init_net(key, env.spec), 2)
    actors = Actors(policy, net, state_of(policy, env.spec))

    @quick
    def both(key: jax.Array) -> tuple[Episodes, jax.Array]:
        episodes, _ = play(env, actors, key, jnp.zeros(()), 12)
        lanes = laid(episodes, 5)
        return episodes, by_moment(lanes, actors.unroll(lanes).q)

    episodes, q = both(jax.random.key(0))
    choice, played = np.asarray(episodes.choice), np.asarray(episodes.played)
    assert choice.shape == played.shape
    assert not np.any(choice[~played])
    np.testing.assert_array_equal(choice, np.where(played, choice[:, :1], 0))
    assert len(np.unique(choice[:, 0])) > 2
    chosen = np.asarray(greedy(q[:, :-1], episodes.available[:, :-1]))
    np.testing.assert_array_equal(chosen[played], np.asarray(episodes.action)[played])


def fresh(first: np.ndarray, latent: list[int], returns: list[float]) -> Episodes:
    """Episodes of two steps with given beginnings, latents and returns."""
    batch = random_episodes(1, [2] * len(latent), steps=3)
    state = batch.state.at[:, 0].set(jnp.asarray(first, jnp.float32))
    reward = jnp.asarray([[r - 1.5, 1.5, 0.0] for r in returns], jnp.float32)
    return with_latent(dataclasses.replace(batch, state=state, reward=reward), latent)


observe = functools.partial(quick, static_argnums=0)(lambda policy, state, episodes: policy.observe(state, episodes))


def test_the_past_keeps_beginnings_latents_and_returns_and_the_newest_take_the_place_of_the_oldest() -> None:
    firsts = np.random.default_rng(0).normal(size=(6, SPEC.state_size)).astype(np.float32)
    state = observe(POLICY, STATE, fresh(firsts[:3], [0, 1, 2], [10.0, 11.0, 12.0]))
    assert state.past.latent.tolist() == [0, 1, 2, 0]
    assert state.past.episode_return.tolist() == [10.0, 11.0, 12.0, 0.0]
    state = observe(POLICY, state, fresh(firsts[3:], [2, 1, 1], [13.0, 14.0, 15.0]))
    assert state.past.latent.tolist() == [1, 1, 2, 2]
    assert state.past.episode_return.tolist() == [14.0, 15.0, 12.0, 13.0]
    np.testing.assert_array_equal(state.past.first, firsts[[4, 5, 2, 3]])
    assert int(state.past.added) == 6


def test_of_more_new_episodes_than_the_past_holds_the_last_stay() -> None:
    firsts = np.random.default_rng(0).normal(size=(6, SPEC.state_size)).astype(np.float32)
    past = observe(POLICY, STATE, fresh(firsts, [0, 1, 2, 0, 1, 2], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0])).past
    assert sorted(past.episode_return.tolist()) == [3.0, 4.0, 5.0, 6.0]
    for row, got in zip(np.asarray(past.first), past.episode_return.tolist(), strict=True):
        np.testing.assert_array_equal(row, firsts[int(got) - 1])


@pytest.mark.parametrize("count", [1, 3])
def test_the_latent_policy_learns_as_often_for_each_episode_however_many_come_together(count: int) -> None:
    policy = dataclasses.replace(POLICY, latent_updates=2)
    after = observe(policy, STATE, fresh(np.ones((count, SPEC.state_size)), [1] * count, [5.0] * count))
    steps = [int(leaf) for leaf in jax.tree.leaves(after.optimiser) if jnp.issubdtype(leaf.dtype, jnp.integer)]
    assert set(steps) == {2 * count}


def probabilities(state: MavenState, first: np.ndarray) -> np.ndarray:
    logits = mlp(as_numpy(state.net), first)
    return np.exp(logits) / np.sum(np.exp(logits))


@pytest.mark.parametrize(("pay", "rises"), [(5.0, True), (0.01, True), (0.0, False), (-5.0, False)])
def test_a_latent_becomes_likelier_by_what_it_earned_less_the_entropy_weight(pay: float, rises: bool) -> None:
    """The first step of Adam is the learning rate along the sign of sum log pi (entropy weight - return)."""
    first = np.random.default_rng(0).normal(size=SPEC.state_size).astype(np.float32)
    after = observe(POLICY, STATE, fresh(first[None], [1], [pay]))
    step = np.asarray(after.net.layers[-1].bias - STATE.net.layers[-1].bias)
    np.testing.assert_allclose(step, 5e-4 * np.array([-1, 1, -1]) * (1 if rises else -1), rtol=1e-2)
    assert (probabilities(after, first)[1] > probabilities(STATE, first)[1]) == rises


def test_only_episodes_that_were_seen_are_learned_from() -> None:
    """One whose return is the entropy weight changes nothing; the empty places of the past would, if they were looked at."""
    policy = dataclasses.replace(POLICY, latent_batch=64, entropy_weight=0.5)
    after = observe(policy, STATE, fresh(np.ones((1, SPEC.state_size)), [1], [0.5]))
    assert bits(after.net) == bits(STATE.net)
    assert int(after.past.added) == 1


def test_the_latent_policy_learns_which_latent_pays_in_which_beginning() -> None:
    policy = dataclasses.replace(POLICY, past_episodes=32, latent_batch=16, latent_updates=4, latent_learning_rate=0.02)
    left, right = np.zeros(SPEC.state_size, np.float32), np.ones(SPEC.state_size, np.float32)
    latents = [0, 1, 2] * 2
    firsts = np.stack([left] * 3 + [right] * 3)
    episodes = fresh(firsts, latents, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0])  # the third pays on the left, the first on the right
    before = state_of(policy)
    state, best = before, []
    for _ in range(25):
        state = observe(policy, state, episodes)
        best.append((probabilities(state, left)[2], probabilities(state, right)[0]))
    assert min(best[-1]) > 0.9
    assert best[0][0] < best[-1][0]
    assert best[0][1] < best[-1][1]
    key_data = jax.random.key_data
    assert np.any(np.asarray(key_data(state.key)) != np.asarray(key_data(before.key)))


def draws(policy: Maven, state: MavenState, count: int = 300) -> np.ndarray:
    begin = quick(jax.vmap(lambda key: policy.begin(NET, state, jnp.ones(SPEC.state_size), key, SPEC).latent))
    return np.bincount(np.asarray(begin(jax.random.split(jax.random.key(1), count))), minlength=LATENTS) / count


def test_latents_are_drawn_from_the_latent_policy_or_uniformly() -> None:
    last = dataclasses.replace(STATE.net.layers[-1], bias=jnp.array([1.0, -1.0, 2.0]))
    state = dataclasses.replace(STATE, net=MLP((STATE.net.layers[0], last)))
    np.testing.assert_allclose(draws(POLICY, state), probabilities(state, np.ones(SPEC.state_size)), atol=0.1)
    assert max(draws(POLICY, state)) > 0.5
    np.testing.assert_allclose(draws(dataclasses.replace(POLICY, learn_latent=False), state), np.full(3, 1 / 3), atol=0.1)


def test_sizes_and_constants_are_the_released_ones() -> None:
    policy = Maven()
    net, state = (jax.eval_shape(init, jax.random.key(0)) for init in (lambda k: policy.init_net(k, SPEC), lambda k: policy.init(k, SPEC)))
    assert net.head.weight.shape == (64 * SPEC.n_actions, 16 + SPEC.n_agents)
    assert net.summary.input_weight.shape == (3, 32, SPEC.n_agents * SPEC.n_actions + SPEC.state_size)
    assert [layer.weight.shape for layer in net.discriminator.layers] == [(32, 32), (16, 32)]
    assert [layer.weight.shape for layer in state.net.layers] == [(128, SPEC.state_size), (16, 128)]
    assert state.past.latent.shape == (512,)
    constants = (policy.information_weight, policy.entropy_weight, policy.latent_learning_rate, policy.latent_batch, policy.latent_updates)
    assert constants == (0.01, 0.001, 5e-4, 64, 8)


def test_loaded_agents_ask_for_the_state_that_an_episode_begins_in() -> None:
    env = Scripted()
    net = filled(lambda key: POLICY.init_net(key, env.spec), 2)
    agents = LoadedPolicy(Actors(POLICY, net, state_of(POLICY, env.spec)), env)
    obs, available = np.zeros((2, 4)), np.ones((2, 3), bool)
    with pytest.raises(UserError, match=r"call reset\(state=\.\.\.\) before"):
        agents.act(obs, available)
    with pytest.raises(UserError, match=r"give it as reset\(state=\.\.\.\)"):
        agents.reset()
    with pytest.raises(UserError, match=r"state has shape \(4,\), this policy expects \(5,\)"):
        agents.reset(state=np.zeros(4))
    agents.reset(state=np.zeros(5))
    assert agents.act(obs, available).shape == (2,)


@pytest.mark.parametrize(
    "fields",
    [{"latents": 0}, {"latents": 128}, {"past_episodes": 0}, {"information_weight": -1.0}, {"latent_learning_rate": 0.0}, {"hidden": 0}],
)
def test_impossible_numbers_are_refused_by_name(fields: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=rf"^policy\.{next(iter(fields))}="):
        Maven(**fields)
