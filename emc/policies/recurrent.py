"""RecurrentQ: one recurrent value network shared by all agents, told apart by an id in its input (PyMARL's agent)."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from emc.nets import AgentNet, agent_inputs
from emc.parts import Policy, Step
from emc.types import EnvSpec, Episodes, Unroll, longest


@dataclasses.dataclass(frozen=True)
class RecurrentQ(Policy):
    """Each agent's action values from its own history."""

    def init_net(self, key: PRNGKeyArray, spec: EnvSpec) -> AgentNet:
        return AgentNet.init(key, spec.obs_size + spec.n_actions + spec.n_agents, self.hidden, spec.n_actions)

    def begin(self, net: AgentNet, state: tuple[()], first: Shaped[Array, " S"], key: PRNGKeyArray, spec: EnvSpec) -> Float[Array, "N H"]:
        return jnp.zeros((spec.n_agents, self.hidden))

    def step(
        self,
        net: AgentNet,
        state: tuple[()],
        carry: Float[Array, "N H"],
        obs: Shaped[Array, "N O"],
        available: Bool[Array, "N A"],
        previous: Int[Array, " N"],
        key: PRNGKeyArray,
        epsilon: Float[Array, ""],
    ) -> Step:
        carry, q = net.step(agent_inputs(obs, previous, available.shape[-1]), carry)
        return Step(carry, q, available, ())

    def unroll(self, net: AgentNet, state: tuple[()], episodes: Episodes) -> Unroll:
        hidden, q = unroll_agents(net, episodes)
        return Unroll(q, hidden, no_context(episodes))


def unroll_agents(net: AgentNet, episodes: Episodes) -> tuple[Float[Array, "B T1 N H"], Float[Array, "B T1 N F"]]:
    """Hidden states and outputs of a network that every agent runs on its own history."""
    hidden, out = net.unroll(histories(episodes), longest(episodes) + 1)
    return by_agent(hidden, episodes), by_agent(out, episodes)


def histories(episodes: Episodes) -> Float[Array, "T1 R I"]:
    """What agents read; time leads, as the recurrent core wants it, and all agents of all episodes are rows of one matrix."""
    batch, moments, n_agents, _ = episodes.obs.shape
    before_first = jnp.full((batch, 1, n_agents), -1, episodes.action.dtype)
    previous = jnp.concatenate([before_first, episodes.action], axis=1)
    inputs = agent_inputs(jnp.swapaxes(episodes.obs, 0, 1), jnp.swapaxes(previous, 0, 1), episodes.available.shape[-1])
    return inputs.reshape(moments, batch * n_agents, -1)


def by_agent(x: Float[Array, "T1 R F"], episodes: Episodes) -> Float[Array, "B T1 N F"]:
    """Rows of one matrix as agents of episodes again."""
    batch, moments, n_agents, _ = episodes.obs.shape
    return jnp.swapaxes(x.reshape(moments, batch, n_agents, -1), 0, 1)


def no_context(episodes: Episodes) -> Float[Array, "B T1 0"]:
    """Nothing beside the state."""
    return jnp.zeros((*episodes.state.shape[:2], 0))
