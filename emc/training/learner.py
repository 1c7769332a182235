"""The learner: everything one gradient step touches, for every method.

Its order is the released code's: the bonus comes from the curiosity networks and weight as they were before their own step, and the
inference step uses it.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from emc.lanes import Lanes, lay_episodes, layout_for
from emc.losses.fitting import ValueFunction, ValueState
from emc.losses.td import mix_after
from emc.methods import Method
from emc.parts import Actors, Fit, Found, Metrics, Recollection, Seen
from emc.types import EnvSpec, Episodes, masked_mean


class LearnerState(eqx.Module):
    """All that learning changes, replay apart."""

    values: ValueState  # agents, mixer, their target and optimiser
    policy: PyTree  # what the policy learns by other means; () for most
    curiosity: PyTree
    memory: PyTree


class Lesson(eqx.Module):
    """What one gradient step found out about its batch."""

    priority: Float[Array, " B"]  # mean squared temporal-difference error of each episode
    bonus: Float[Array, "M W"]  # of each step, along the lanes of the batch
    metrics: Metrics


def value_function(method: Method) -> ValueFunction:
    """The inference module of a method."""
    optimiser = method.optimiser(method.learning_rate, method.gradient_clip)
    return ValueFunction(method.policy, method.mixer, method.loss, optimiser, method.gamma, method.target_interval)


def init_learner(method: Method, spec: EnvSpec, key: PRNGKeyArray) -> LearnerState:
    """Fresh networks and empty parts."""
    value_key, policy_key, curiosity_key, memory_key = jax.random.split(key, 4)
    values = value_function(method).init(value_key, spec)
    return LearnerState(
        values,
        method.policy.init(policy_key, spec),
        method.curiosity.init(curiosity_key, spec, method.policy, values.online.policy),
        method.memory.init(memory_key, spec),
    )


def observe(method: Method, state: LearnerState, fresh: Episodes, won: Bool[Array, " B"] | None = None) -> LearnerState:
    """Show freshly collected episodes to the parts that watch, and which of them were won, if that is known."""
    return dataclasses.replace(
        state,
        policy=method.policy.observe(state.policy, fresh),
        curiosity=method.curiosity.observe(state.curiosity, fresh),
        memory=method.memory.observe(state.memory, fresh, method.gamma, won),
    )


def actors_of(method: Method, state: LearnerState) -> Actors:
    """The agents as they act now."""
    return Actors(method.policy, state.values.online.policy, state.policy)


def tested(method: Method, state: LearnerState) -> Actors:
    """The agents that are tested and kept."""
    return method.policy.tested(state.values.online.policy, state.policy)


def extrinsic_agents(method: Method, state: LearnerState) -> Actors | None:
    """The agents that curiosity has learnt from the extrinsic reward alone, if there are any beside those that are tested."""
    net = method.curiosity.extrinsic_agents(state.curiosity)
    return None if net is None else method.policy.tested(net, state.policy)


def incentive(recalled: Recollection, after: Float[Array, "M W K"], batch: Lanes, gamma: float) -> Float[Array, "M W"]:
    """EMU's (Na et al. 2024): how far the best return from a state is above its value, as far as visits to it have led to wins."""
    if recalled.prospect is None:
        return jnp.zeros_like(batch.reward)
    lift = jnp.maximum(recalled.prospect.value - jnp.mean(after, axis=-1), 0.0)
    goes_on = recalled.known & batch.played & ~batch.terminated  # beyond an end there is nothing to look forward to
    return gamma * recalled.prospect.share * lift * goes_on


def update(method: Method, state: LearnerState, batch: Episodes, env_steps: Int[Array, ""]) -> tuple[LearnerState, Lesson]:
    """One gradient step on a batch of padded episodes; the lesson's bonus is padded too."""
    agents, actions = batch.available.shape[-2:]
    layout = layout_for(batch.reward.shape[0], agents, 1.0, method.lanes, method.block)
    lanes = lay_episodes(batch, layout, partial(method.policy.inputs, n_actions=actions))
    state, lesson = learn(method, state, lanes, env_steps)
    return state, dataclasses.replace(lesson, bonus=lanes.by_episode(lesson.bonus))


def learn(method: Method, state: LearnerState, batch: Lanes, env_steps: Int[Array, ""]) -> tuple[LearnerState, Lesson]:
    """One gradient step on a batch laid out in lanes."""
    actors = actors_of(method, state)
    paid, unit = batch.reward, method.policy.unit(state.policy)
    batch = dataclasses.replace(batch, reward=paid / unit)
    curiosity, bonus, curiosity_metrics = method.curiosity.learn(state.curiosity, batch, actors, method.gamma, env_steps)
    memory, recalled = method.memory.recall(state.memory, dataclasses.replace(batch, reward=paid), method.gamma)
    recalled = recalled.per(unit)

    reward = batch.reward + bonus if method.policy.takes_bonus else batch.reward

    def beside_the_fit(online: Seen, target: Seen, fit: Fit) -> tuple[Float[Array, ""], Metrics]:
        gap = (recalled.target[..., None] - fit.q) * recalled.known[..., None]  # a miss costs nothing but counts in the mean
        memory_loss = method.memory.loss_weight * masked_mean(gap**2, batch.played[..., None])  # Eq. 5, 8
        auxiliary, report = method.policy.auxiliary_loss(online, target, state.policy, batch, reward, method.gamma)
        return auxiliary + memory_loss, report | ({"memory_loss": memory_loss} if method.memory.loss_weight else {})

    def with_incentive(target: Seen) -> Float[Array, "M W"]:
        return reward + incentive(recalled, mix_after(method.mixer, target, batch, target), batch, method.gamma)

    rewards = reward if recalled.prospect is None else with_incentive
    values, fit, metrics = value_function(method).update(state.values, batch, rewards, actors, beside_the_fit)
    found = Found(state.values.online.policy, bonus, fit.q - fit.error)
    policy, policy_metrics = method.policy.learn(state.policy, batch, jax.lax.stop_gradient(found), method.gamma, env_steps)
    values = values.copied(method.policy.meaning_changed(state.policy, policy))
    played = batch.played
    metrics |= policy_metrics | curiosity_metrics
    if memory_metrics := method.memory.metrics(memory):
        known = played & recalled.known
        metrics |= memory_metrics | {
            "memory_target": masked_mean(recalled.target, known),  # Eq. 7, where there is something to recall
            "memory_q": masked_mean(fit.q, known[..., None]),  # what Q_tot says there
        }
    metrics |= {
        "reward_extrinsic": masked_mean(paid, played),
        "reward_intrinsic": masked_mean(bonus, played),
        "memory_hit_rate": masked_mean(recalled.known.astype(jnp.float32), played),
    }
    priority = batch.per_episode(jnp.mean(fit.error**2, axis=-1)) / jnp.maximum(batch.length, 1)
    return LearnerState(values, policy, curiosity, memory), Lesson(jax.lax.stop_gradient(priority), bonus, metrics)
