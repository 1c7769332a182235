"""RecurrentQ: a value network that agents share, recurrent and told apart by an id (PyMARL's agent), unless its fields say otherwise."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from emc.lanes import Lanes
from emc.parts import Policy, Step
from emc.policies.agents import Whole, make_agents, no_context, step_agents, unroll_agents
from emc.types import EnvSpec, Unroll


@dataclasses.dataclass(frozen=True)
class RecurrentQ(Policy):
    """Each agent's action values from its own history."""

    def init_net(self, key: PRNGKeyArray, spec: EnvSpec) -> Whole:
        return make_agents(self, key, spec, spec.n_actions)

    def begin(self, net: Whole, state: tuple[()], first: Shaped[Array, " S"], key: PRNGKeyArray, spec: EnvSpec) -> Float[Array, "N H"]:
        return jnp.zeros((spec.n_agents, self.hidden))

    def step(
        self,
        net: Whole,
        state: tuple[()],
        carry: Float[Array, "N H"],
        obs: Shaped[Array, "N O"],
        available: Bool[Array, "N A"],
        previous: Int[Array, " N"],
        key: PRNGKeyArray,
        epsilon: Float[Array, ""],
    ) -> Step:
        carry, q = step_agents(net, self.inputs(obs, previous, available.shape[-1]), carry)
        return Step(carry, q, available, ())

    def unroll(self, net: Whole, state: tuple[()], batch: Lanes) -> Unroll:
        hidden, q = unroll_agents(net, batch)
        return Unroll(q, hidden, no_context(batch))
