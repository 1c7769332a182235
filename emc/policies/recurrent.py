"""RecurrentQ: one recurrent value network shared by all agents, told apart by an id in its input (PyMARL's agent)."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from emc.names import check_size
from emc.nets import AgentNet, agent_inputs
from emc.parts import Policy
from emc.types import EnvSpec, Episodes, Unroll, longest


@dataclasses.dataclass(frozen=True)
class RecurrentQ(Policy):
    """Each agent's action values from its own history."""

    hidden: int = 64  # width of the encoder and of the GRU

    def __post_init__(self) -> None:
        check_size("policy.hidden", self.hidden, "64 is usual", low=1)

    def init_net(self, key: PRNGKeyArray, spec: EnvSpec) -> AgentNet:
        return AgentNet.init(key, spec.obs_size + spec.n_actions + spec.n_agents, self.hidden, spec.n_actions)

    def begin(self, net: AgentNet, spec: EnvSpec) -> Float[Array, "N H"]:
        return jnp.zeros((spec.n_agents, self.hidden))

    def step(
        self, net: AgentNet, carry: Float[Array, "*B N H"], obs: Shaped[Array, "*B N O"], previous: Int[Array, "*B N"]
    ) -> tuple[Float[Array, "*B N H"], Float[Array, "*B N A"]]:
        return net.step(agent_inputs(obs, previous, net.decode.weight.shape[0]), carry)

    def unroll(self, net: AgentNet, episodes: Episodes) -> Unroll:
        n_actions = net.decode.weight.shape[0]
        batch, moments, n_agents, _ = episodes.obs.shape
        before_first = jnp.full((batch, 1, n_agents), -1, episodes.action.dtype)
        previous = jnp.concatenate([before_first, episodes.action], axis=1)
        # Time leads inside the recurrent core, and all agents of all episodes are rows of one matrix.
        inputs = agent_inputs(jnp.swapaxes(episodes.obs, 0, 1), jnp.swapaxes(previous, 0, 1), n_actions)
        hidden, q = net.unroll(inputs.reshape(moments, batch * n_agents, -1), longest(episodes) + 1)

        def batch_first(x: Float[Array, "T1 R F"]) -> Float[Array, "B T1 N F"]:
            return jnp.swapaxes(x.reshape(moments, batch, n_agents, -1), 0, 1)

        return Unroll(batch_first(q), batch_first(hidden))
