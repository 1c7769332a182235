"""RODE (Wang et al. 2021): agents choose a role every few steps, and a role leaves them only some of the actions.

Until `switch_at` the effects of actions are learnt (`action_encoder.py`); then roles are formed from them once (`roles.py`) and stay. Role
values are the role agent's output times each role's latent; action values are the output of the role's own policy times each action's
embedding. Greedy actions keep to the role, exploring ones and the values' targets do not. Both latents and embeddings are ones before the
switch, so that nothing is preferred.

What differs from the released code:

* The learner reads the roles that were chosen at the time, the last one also at the moment after the last step; the released code chooses
  roles anew in every gradient step, with a little randomness that a learner has no place for here.
* The last interval of an episode that was cut short goes on with the value of its last moment; the released code mixes zeros there, with
  the episode's first state. Where an episode ended nothing follows, in both.
* The encoder's loss leaves out padding.

A cluster of one action makes no role, so a task with few actions needs few clusters: with five of them the gridworld would have no roles at
all, and predators might never catch. As many clusters as there are actions are therefore refused. The metric `role_actions` is the share of
actions that some role holds.

Roles beyond the initial ones keep the weights that they began with, as in the released code; `train_new_roles` trains them.
"""

from __future__ import annotations

import dataclasses
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from emc.errors import UserError
from emc.lanes import Lanes, along
from emc.mixers import QMIX
from emc.mixers.qmix import MonotoneNet
from emc.nets import MLP, Linear
from emc.optimisers import descend, init_optimiser, rmsprop
from emc.parts import Found, Metrics, Policy, Seen, Step
from emc.policies.action_encoder import ActionEncoder, prediction_loss
from emc.policies.agents import Body, make_bodies, no_context, step_agents, unroll_bodies
from emc.policies.exploration import epsilon_greedy, greedy
from emc.policies.roles import Roles, most_roles
from emc.types import AgentValues, EnvSpec, Unroll, masked_mean, shared_maximum
from emc.user_input import SMALLEST, check_number, check_size

Tree = TypeVar("Tree")  # any pytree of arrays


class RodeNet(eqx.Module):
    """Agents that act, agents that choose roles, and the mixer of role values."""

    action: Body
    role_policies: Linear  # of all roles side by side
    role: Body
    role_value: MLP
    role_mixer: MonotoneNet


class RodeCarry(eqx.Module):
    """What the agents carry through an episode."""

    action_hidden: Float[Array, "N H"]
    role_hidden: Float[Array, "N H"]
    role: Int[Array, " N"]
    time: Int[Array, ""]


class RodeState(eqx.Module):
    """The action encoder in training, and the roles."""

    encoder: ActionEncoder
    optimiser: optax.OptState
    roles: Roles
    idle_actions: tuple[int, ...] = eqx.field(static=True)
    move_actions: tuple[int, ...] = eqx.field(static=True)


@dataclasses.dataclass(frozen=True)
class Rode(Policy):
    """Roles that decompose the action space."""

    clusters: int = 5  # of actions; released code, which names 3 for the map corridor; the gridworld needs 2
    initial_roles: int = 3  # released code: as many before roles are formed, and at least as many after
    train_new_roles: bool = False  # the released code's optimiser never hears of roles beyond the initial ones
    interval: int = 5  # steps between choices of a role
    switch_at: int = 50_000  # environment steps after which roles are formed; `epsilon.restart_at` must say the same, or 0
    role_head: int = 128  # width of the layer that makes role values
    role_mixer: QMIX = QMIX()
    embedding: int = 20  # size of an action's embedding
    encoder_hidden: int = 64  # width of the action encoder
    encoder_code: int = 32  # size of an encoded situation, width of the decoders
    reward_weight: float = 10.0  # of the reward's prediction beside the observation's
    encoder_learning_rate: float = 5e-4  # RMSprop
    encoder_clip: float = 10.0
    kmeans_iterations: int = 100  # our choice; the released code stops on convergence, after 300 at the latest

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = ("clusters", "initial_roles", "interval", "role_head", "embedding", "encoder_hidden", "encoder_code", "kmeans_iterations")
        for name in sizes:
            check_size(f"policy.{name}", vars(self)[name], "choose a smaller or larger one", low=1)
        for name in ("clusters", "initial_roles"):
            check_number(f"policy.{name}", vars(self)[name], "a byte holds the roles, repeated where too few are found", low=1, high=64)
        check_size("policy.switch_at", self.switch_at, "50000 is usual", low=0)
        check_number("policy.reward_weight", self.reward_weight, "0 leaves it out", low=0.0)
        for name in ("encoder_learning_rate", "encoder_clip"):
            check_number(f"policy.{name}", vars(self)[name], "it must be above 0", low=SMALLEST)

    def refuse(self, restart_at: int) -> str:
        if restart_at in (0, self.switch_at):
            return ""
        return (
            f"policy.switch_at={self.switch_at} and epsilon.restart_at={restart_at} differ, so new roles would not be explored: "
            f"add --epsilon.restart-at {self.switch_at}, or 0 to explore no second time"
        )

    def init_net(self, key: PRNGKeyArray, spec: EnvSpec) -> RodeNet:
        keys = jax.random.split(key, 5)
        return RodeNet(
            action=make_bodies(self, keys[0], spec),
            role_policies=Linear.init(keys[1], self.hidden, self._most_roles * self.embedding),
            role=make_bodies(self, keys[2], spec),
            role_value=MLP.init(keys[3], (self.hidden, self.role_head, self.embedding)),
            role_mixer=self.role_mixer.init(keys[4], spec),
        )

    def init(self, key: PRNGKeyArray, spec: EnvSpec) -> RodeState:
        if not spec.idle_actions:
            raise UserError(
                "RODE needs an environment that says which actions are always allowed (`idle_actions` of its spec, best with "
                "`move_actions`): add them there, or choose another method"
            )
        busy = spec.n_actions - len(spec.idle_actions)
        if self.clusters >= busy:
            advice = f"choose --policy.clusters {max(busy // 2, 1)} or so" if busy > 1 else "choose another method"
            raise UserError(
                f"policy.clusters={self.clusters} of {spec.n_actions} actions, {len(spec.idle_actions)} of them idle, would leave "
                f"every role with one action at most: {advice}"
            )
        encoder = ActionEncoder.init(key, spec, self.encoder_hidden, self.encoder_code, self.embedding)
        roles = Roles.unformed(spec.n_actions, self.embedding, self.initial_roles, self._most_roles)
        return RodeState(encoder, init_optimiser(self._optimiser, encoder), roles, spec.idle_actions, spec.move_actions)

    def blank_choice(self, spec: EnvSpec) -> Int[Array, " N"]:
        return jnp.zeros(spec.n_agents, jnp.int8)

    def begin(self, net: RodeNet, state: RodeState, first: Shaped[Array, " S"], key: PRNGKeyArray, spec: EnvSpec) -> RodeCarry:
        hidden = jnp.zeros((spec.n_agents, self.hidden))
        return RodeCarry(hidden, hidden, jnp.zeros(spec.n_agents, jnp.int32), jnp.zeros((), jnp.int32))

    def step(
        self,
        net: RodeNet,
        state: RodeState,
        carry: RodeCarry,
        obs: Shaped[Array, "N O"],
        available: Bool[Array, "N A"],
        previous: Int[Array, " N"],
        key: PRNGKeyArray,
        epsilon: Float[Array, ""],
    ) -> Step:
        inputs = self.inputs(obs, previous, available.shape[-1])
        action_hidden = step_agents(net.action, inputs, carry.action_hidden)
        role_hidden = step_agents(net.role, inputs, carry.role_hidden)
        value = role_values(net.role_value, state.roles.latent, role_hidden)
        chosen = epsilon_greedy(key, value, jnp.broadcast_to(state.roles.exists, value.shape), epsilon)
        role = jnp.where(carry.time % self.interval == 0, chosen, carry.role)
        q = self._action_values(net.role_policies, state.roles, action_hidden, role)
        return Step(RodeCarry(action_hidden, role_hidden, role, carry.time + 1), q, state.roles.space[role], role.astype(jnp.int8))

    def unroll(self, net: RodeNet, state: RodeState, batch: Lanes) -> Unroll:
        hidden = unroll_bodies(net.action, batch)

        def values(policies: Linear, hidden: Array, roles: Roles, role: Array) -> Float[Array, "B W N A"]:
            return self._action_values(policies, roles, jnp.moveaxis(hidden, 1, -1), role[:-1])

        q = along(values, batch, net.role_policies, hidden, state.roles, batch.choice.astype(jnp.int32))
        return Unroll(q, hidden, no_context(batch))

    def _action_values(
        self, policies: Linear, roles: Roles, hidden: Float[Array, "*B N H"], role: Int[Array, "*B N"]
    ) -> Float[Array, "*B N A"]:
        """What each action is worth to agents in their roles."""
        trained = (self._most_roles if self.train_new_roles else self.initial_roles) * self.embedding
        policies = jax.tree.map(lambda w: jnp.concatenate([w[:trained], jax.lax.stop_gradient(w[trained:])]), policies)
        of_all = policies(hidden).reshape(*hidden.shape[:-1], self._most_roles, self.embedding)
        return jnp.einsum("...r,...re->...e", jax.nn.one_hot(role, self._most_roles), of_all) @ roles.embedding.T

    def auxiliary_loss(
        self, online: Seen, target: Seen, state: RodeState, batch: Lanes, reward: Float[Array, "M W"], gamma: float
    ) -> tuple[Float[Array, ""], Metrics]:
        """Temporal differences of role values from one choice of roles to the next."""
        values, slow_values = (self._role_values(seen.nets.policy, state.roles, batch) for seen in (online, target))
        roles = batch.choice.astype(jnp.int32)
        chosen = self._mix(online.nets.policy, values, roles, batch)
        next_role = greedy(values, jnp.broadcast_to(state.roles.exists, values.shape))
        bootstrap = self._mix(target.nets.policy, slow_values, next_role, batch)
        # Where the interval of a choice ends: at the next choice, or at the last moment if the episode was over before.
        left = batch.length[jnp.minimum(batch.episode, batch.length.shape[0] - 1)] - batch.time
        moment = jnp.arange(batch.time.shape[0])[:, None] + jnp.clip(left, 0, self.interval)
        after = jnp.take_along_axis(bootstrap, jnp.minimum(moment, bootstrap.shape[0] - 1), axis=0)
        ended = self._over_interval(batch.terminated, batch) > 0
        aim = self._over_interval(reward * batch.played, batch) + gamma * ~ended * after
        choosing = batch.played & (batch.time % self.interval == 0)
        loss = masked_mean((chosen - jax.lax.stop_gradient(aim)) ** 2, choosing)
        return loss, {"role_loss": loss}

    def _role_values(self, net: RodeNet, roles: Roles, batch: Lanes) -> Float[Array, "M W N R"]:
        """What each role is worth to each agent at every moment."""
        hidden = unroll_bodies(net.role, batch)

        def work(value: MLP, hidden: Array, latent: Array, data: tuple[()]) -> Float[Array, "B W N R"]:
            return role_values(value, latent, jnp.moveaxis(hidden, 1, -1))

        return along(work, batch, net.role_value, hidden, roles.latent)

    def _mix(self, net: RodeNet, value: Float[Array, "M W N R"], role: Int[Array, "M W N"], batch: Lanes) -> Float[Array, "M W"]:
        """The team's value of given roles."""

        def work(net: MonotoneNet, value: Array, fixed: tuple[()], data: tuple[Array, Array]) -> Float[Array, "B W"]:
            role, state = (x[:-1] for x in data)
            chosen = jnp.sum(value * jax.nn.one_hot(role, value.shape[-1]), axis=-1)
            values = AgentValues(chosen, chosen, role)  # QMIX reads the chosen values only
            return jax.vmap(jax.vmap(lambda v, s: self.role_mixer(net, v, s).q[0]))(values, state)

        return along(work, batch, net.role_mixer, value, data=(role, batch.state))

    def _over_interval(self, x: Shaped[Array, "M W"], batch: Lanes) -> Float[Array, "M W"]:
        """Sums over the steps from each moment to the next choice of roles; what belongs to no step is zero."""
        padded = jnp.pad(x.astype(jnp.float32), ((0, self.interval), (0, 0)))
        same = jnp.pad(batch.episode, ((0, self.interval), (0, 0)), constant_values=-1)
        shifts = [slice(shift, shift + x.shape[0]) for shift in range(self.interval)]
        return sum((padded[s] * (same[s] == batch.episode) for s in shifts), jnp.zeros(x.shape))

    def learn(self, state: RodeState, batch: Lanes, found: Found, gamma: float, env_steps: Int[Array, ""]) -> tuple[RodeState, Metrics]:
        """Learn what actions do until it is time to form roles."""
        due = env_steps > self.switch_at
        zero = jnp.zeros(())
        # One predicate for all seeds that run side by side, so that `cond` saves the work it guards under `vmap` too.
        encoder, optimiser, loss = jax.lax.cond(
            shared_maximum((~due).astype(jnp.int32)) > 0,
            lambda: _where(~due, self._encode(state, batch), (state.encoder, state.optimiser, zero)),
            lambda: (state.encoder, state.optimiser, zero),
        )
        form = due & ~state.roles.formed
        roles = jax.lax.cond(
            shared_maximum(form.astype(jnp.int32)) > 0, lambda: _where(form, self._form(state), state.roles), lambda: state.roles
        )
        reached = jnp.any(roles.space & roles.exists[:, None], axis=0).astype(jnp.float32)
        report = {"action_encoder_loss": loss, "roles": jnp.sum(roles.exists).astype(jnp.float32), "role_actions": jnp.mean(reached)}
        return dataclasses.replace(state, encoder=encoder, optimiser=optimiser, roles=roles), report

    def meaning_changed(self, before: RodeState, after: RodeState) -> Bool[Array, ""]:
        """When roles are formed."""
        return after.roles.formed & ~before.roles.formed

    def _encode(self, state: RodeState, batch: Lanes) -> tuple[ActionEncoder, optax.OptState, Float[Array, ""]]:
        """One gradient step of the action encoder."""
        loss, gradient = jax.value_and_grad(prediction_loss)(state.encoder, batch, self.reward_weight)
        return *descend(self._optimiser, gradient, state.optimiser, state.encoder), loss

    def _form(self, state: RodeState) -> Roles:
        embedding = state.encoder.embeddings(state.roles.embedding.shape[0])
        return Roles.form(embedding, self.clusters, state.idle_actions, state.move_actions, self.initial_roles, self.kmeans_iterations)

    @property
    def _most_roles(self) -> int:
        return most_roles(self.clusters, self.initial_roles)

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        return rmsprop(self.encoder_learning_rate, self.encoder_clip)


def role_values(value: MLP, latent: Float[Array, "R E"], hidden: Float[Array, "*B N H"]) -> Float[Array, "*B N R"]:
    """What each role is worth to each agent."""
    return value(hidden) @ latent.T


def _where(condition: Bool[Array, ""], yes: Tree, no: Tree) -> Tree:
    """One of two trees of arrays."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)
