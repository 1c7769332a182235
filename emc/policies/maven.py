"""MAVEN (Mahajan et al. 2019): agents condition on a latent that they share and keep for a whole episode.

The latent z is drawn at the start from a policy of the first state, which learns from the returns of past episodes; it shapes every agent's
output layer and is part of what the mixer reads. A discriminator guesses z from how the agents' choices run through an episode; its
cross-entropy is a loss of the agents too, so different latents come to mean different behaviour.

As in the released code: no baseline and sums over samples in the latent policy's loss, a hidden state of ones in front of the
discriminator, z drawn from the latent policy in tests too. Different: the discriminator reads each episode to its own end and not through
padding, and the latent policy learns as often for each episode however many are collected side by side.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from emc.lanes import Lanes, along, fold
from emc.nets import GRU, MLP, Linear
from emc.optimisers import adam, descend, init_optimiser
from emc.parts import Found, Metrics, Policy, Seen, Step
from emc.policies.agents import Body, make_bodies, step_agents, unroll_bodies
from emc.types import UNAVAILABLE, EnvSpec, Episodes, Unroll, masked_mean
from emc.user_input import SMALLEST, check_number, check_size


class MavenNet(eqx.Module):
    """Agents and discriminator."""

    agent: Body
    head: Linear  # makes the output layer from latent and agent
    summary: GRU  # reads an episode
    discriminator: MLP


class MavenCarry(eqx.Module):
    """What the agents carry through an episode."""

    hidden: Float[Array, "N H"]
    latent: Int[Array, ""]


class Past(eqx.Module):
    """The last episodes' beginnings, latents and returns; entry `added % size` is the next to be overwritten."""

    first: Float[Array, "M S"]
    latent: Int[Array, " M"]
    episode_return: Float[Array, " M"]
    added: Int[Array, ""]


class MavenState(eqx.Module):
    """The latent policy in training."""

    net: MLP
    optimiser: optax.OptState
    past: Past
    key: PRNGKeyArray


@dataclasses.dataclass(frozen=True)
class Maven(Policy):
    """Committed exploration by a latent of the episode."""

    latents: int = 16  # the released values for StarCraft maps lie between 2 and 32
    information_weight: float = 0.01  # of the discriminator's loss
    entropy_weight: float = 0.001  # of the latent policy's entropy
    discriminator: int = 32  # width of the discriminator and of what it reads episodes with
    latent_hidden: int = 128  # width of the latent policy
    latent_learning_rate: float = 5e-4  # Adam
    past_episodes: int = 512  # that the latent policy learns from
    latent_batch: int = 64
    latent_updates: int = 8  # for each collected episode, whatever the number of parallel environments
    learn_latent: bool = True  # False: every latent is as likely as any other

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("latents", "discriminator", "latent_hidden", "past_episodes", "latent_batch", "latent_updates"):
            check_size(f"policy.{name}", vars(self)[name], "choose a smaller or larger one", low=1)
        check_number("policy.latents", self.latents, "a byte holds them", low=1, high=127)
        for name in ("information_weight", "entropy_weight"):
            check_number(f"policy.{name}", vars(self)[name], "0 leaves it out", low=0.0)
        check_number("policy.latent_learning_rate", self.latent_learning_rate, "it must be above 0", low=SMALLEST)

    @property
    def reads_first_state(self) -> bool:
        return True

    def init_net(self, key: PRNGKeyArray, spec: EnvSpec) -> MavenNet:
        keys, agents, width = jax.random.split(key, 4), spec.n_agents, self.discriminator
        return MavenNet(
            agent=make_bodies(self, keys[0], spec),
            head=Linear.init(keys[1], self.latents + agents, self.hidden * spec.n_actions),
            summary=GRU.init(keys[2], agents * spec.n_actions + spec.state_size, width),
            discriminator=MLP.init(keys[3], (width, width, self.latents)),
        )

    def init(self, key: PRNGKeyArray, spec: EnvSpec) -> MavenState:
        net_key, key = jax.random.split(key)
        net = MLP.init(net_key, (spec.state_size, self.latent_hidden, self.latents))
        size = self.past_episodes
        past = Past(jnp.zeros((size, spec.state_size)), jnp.zeros(size, jnp.int32), jnp.zeros(size), jnp.zeros((), jnp.int32))
        return MavenState(net, init_optimiser(self._optimiser, net), past, key)

    def blank_choice(self, spec: EnvSpec) -> Int[Array, ""]:
        return jnp.zeros((), jnp.int8)

    def begin(self, net: MavenNet, state: MavenState, first: Shaped[Array, " S"], key: PRNGKeyArray, spec: EnvSpec) -> MavenCarry:
        logits = state.net(first.astype(jnp.float32)) * self.learn_latent
        return MavenCarry(jnp.zeros((spec.n_agents, self.hidden)), jax.random.categorical(key, logits))

    def step(
        self,
        net: MavenNet,
        state: MavenState,
        carry: MavenCarry,
        obs: Shaped[Array, "N O"],
        available: Bool[Array, "N A"],
        previous: Int[Array, " N"],
        key: PRNGKeyArray,
        epsilon: Float[Array, ""],
    ) -> Step:
        hidden = step_agents(net.agent, self.inputs(obs, previous, available.shape[-1]), carry.hidden)
        q = jnp.einsum("nh,nah->na", hidden, self._head(net, carry.latent, available.shape[0]))
        return Step(MavenCarry(hidden, carry.latent), q, available, carry.latent.astype(jnp.int8))

    def unroll(self, net: MavenNet, state: MavenState, batch: Lanes) -> Unroll:
        hidden = unroll_bodies(net.agent, batch)
        n_agents = hidden.shape[-1]

        def values(heads: Array, hidden: Array, fixed: tuple[()], latent: Array) -> Float[Array, "B W N A"]:
            chosen = jax.nn.one_hot(latent[:-1], self.latents)  # a product instead of a gather: its derivative is no scatter
            return jnp.einsum("kwz,znah,khwn->kwna", chosen, heads, hidden, optimize=[(0, 1), (0, 1)])

        heads = jax.vmap(lambda z: self._head(net, z, n_agents))(jnp.arange(self.latents))
        q = along(values, batch, heads, hidden, data=batch.choice.astype(jnp.int32))
        return Unroll(q, hidden, jax.nn.one_hot(batch.choice, self.latents))

    def _head(self, net: MavenNet, latent: Int[Array, ""], n_agents: int) -> Float[Array, "N A H"]:
        """Each agent's output layer under a latent."""
        z = jnp.broadcast_to(jax.nn.one_hot(latent, self.latents), (n_agents, self.latents))
        return net.head(jnp.concatenate([z, jnp.eye(n_agents)], axis=-1)).reshape(n_agents, -1, self.hidden)

    def mixer_spec(self, spec: EnvSpec) -> EnvSpec:
        return dataclasses.replace(spec, state_size=spec.state_size + self.latents)

    def auxiliary_loss(
        self, online: Seen, target: Seen, state: MavenState, batch: Lanes, reward: Float[Array, "M W"], gamma: float
    ) -> tuple[Float[Array, ""], Metrics]:
        net: MavenNet = online.nets.policy
        start = jnp.ones((batch.played.shape[1], net.summary.hidden_bias.shape[-1]))
        data = (batch.available, batch.state, batch.played, batch.first, batch.choice.astype(jnp.int32))
        _, (surprise, right) = fold(_guess, batch, (net.summary, net.discriminator), start, online.unroll.q, (), data)
        ends = batch.inside & ~batch.played
        loss, right = masked_mean(surprise, ends), masked_mean(right, ends)
        return self.information_weight * loss, {"latent_cross_entropy": loss, "latent_guessed": right}

    def learn(self, state: MavenState, batch: Lanes, found: Found, gamma: float, env_steps: Int[Array, ""]) -> tuple[MavenState, Metrics]:
        """Nothing; say how decided the latent policy is."""
        chance = along(
            lambda _, __, net, states: jax.nn.log_softmax(net(states[:-1]), axis=-1), batch, (), fixed=state.net, data=batch.state
        )
        entropy = masked_mean(-jnp.sum(jnp.exp(chance) * chance, axis=-1), batch.first)
        return state, {"latent_entropy": entropy, "latent_policy_norm": optax.tree.norm(state.net)}

    def observe(self, state: MavenState, fresh: Episodes) -> MavenState:
        if not self.learn_latent:
            return state
        past, keys = _remember(state.past, fresh), jax.random.split(state.key, self.latent_updates * fresh.reward.shape[0] + 1)
        net, optimiser = state.net, state.optimiser
        stored = jnp.minimum(past.added, self.past_episodes)

        def improve(carry: tuple[MLP, optax.OptState], key: PRNGKeyArray) -> tuple[tuple[MLP, optax.OptState], None]:
            net, optimiser = carry
            rows = jax.random.randint(key, (self.latent_batch,), 0, stored)

            def loss(net: MLP) -> Float[Array, ""]:
                logits = jax.nn.log_softmax(net(past.first[rows]), axis=-1)
                chosen = jnp.take_along_axis(logits, past.latent[rows][:, None], axis=-1)[:, 0]
                return jnp.sum(chosen * (self.entropy_weight - past.episode_return[rows]))

            return descend(self._optimiser, jax.grad(loss)(net), optimiser, net), None

        (net, optimiser), _ = jax.lax.scan(improve, (net, optimiser), keys[1:])
        return MavenState(net, optimiser, past, keys[0])

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        return adam(self.latent_learning_rate, clip=float("inf"))


def _guess(
    nets: tuple[GRU, MLP], h: Float[Array, "W D"], q: Float[Array, "B W N A"], fixed: tuple[()], data: tuple[Array, ...]
) -> tuple[Array, tuple[Array, Array]]:
    """What the discriminator makes of some moments: its cross-entropy, and whether it is right, by what it has read of each episode."""
    summary, discriminator = nets
    available, state, played, first, latent = (x[:-1] for x in data)
    choices = jax.nn.softmax(jnp.where(available, q, UNAVAILABLE), axis=-1)
    seen = jnp.concatenate([choices.reshape(*choices.shape[:2], -1), state], axis=-1)

    def read(h: Array, at: tuple[Array, ...]) -> tuple[Array, Array]:
        x, on, begins = (part if part.ndim > 1 else part[:, None] for part in at)
        h = jnp.where(begins, 1.0, h)
        h = jnp.where(on, summary.step(x, h), h)
        return h, h

    h, summaries = jax.lax.scan(read, h, (seen, played, first))
    logits = discriminator(summaries)
    surprise = optax.softmax_cross_entropy_with_integer_labels(logits, latent)
    return h, (surprise, (jnp.argmax(logits, axis=-1) == latent).astype(jnp.float32))


def _remember(past: Past, fresh: Episodes) -> Past:
    """Put new episodes in the place of the oldest."""
    count, size = fresh.reward.shape[0], past.latent.shape[0]
    skip = max(count - size, 0)  # of more than fit the last stay: no place is written twice
    at = (past.added + jnp.arange(skip, count)) % size
    return Past(
        past.first.at[at].set(fresh.state[skip:, 0].astype(jnp.float32)),
        past.latent.at[at].set(fresh.choice[skip:, 0].astype(jnp.int32)),
        past.episode_return.at[at].set(jnp.sum(fresh.reward[skip:], axis=1)),
        past.added + count,
    )
