"""RecurrentQ: one recurrent value network shared by all agents, told apart by an id in its input (PyMARL's agent)."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from emc.lanes import Lanes
from emc.nets import AgentNet
from emc.parts import Policy, Step
from emc.types import EnvSpec, Unroll


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
        carry, q = net.step(self.inputs(obs, previous, available.shape[-1]), carry)
        return Step(carry, q, available, ())

    def unroll(self, net: AgentNet, state: tuple[()], batch: Lanes) -> Unroll:
        hidden, q = unroll_agents(net, batch)
        return Unroll(q, hidden, no_context(batch))


def unroll_agents(net: AgentNet, batch: Lanes) -> tuple[Float[Array, "M H W N"], Float[Array, "M W N F"]]:
    """Hidden states and outputs of a network that every agent runs on its own history."""
    moments, lanes, n_agents, _ = batch.inputs.shape
    hidden, out = net.unroll(*histories(batch), batch.moments)
    return by_agent(hidden, batch), out.reshape(moments, lanes, n_agents, -1)


def histories(batch: Lanes) -> tuple[Float[Array, "M R I"], Bool[Array, "M R"]]:
    """What agents read and where their episodes begin: all agents of all lanes are rows of one matrix."""
    moments, lanes, n_agents, _ = batch.inputs.shape
    return batch.inputs.reshape(moments, lanes * n_agents, -1), jnp.repeat(batch.first, n_agents, axis=1)


def by_agent(hidden: Float[Array, "M H R"], batch: Lanes) -> Float[Array, "M H W N"]:
    """Rows of one matrix as agents of lanes again."""
    return hidden.reshape(*hidden.shape[:2], *batch.inputs.shape[1:3])


def no_context(batch: Lanes) -> Float[Array, "M W 0"]:
    """Nothing beside the state."""
    return jnp.zeros((*batch.played.shape, 0))
