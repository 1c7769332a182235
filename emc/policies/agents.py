"""Agents' networks as a policy wants them: recurrent or feed-forward, one for all agents or one of each agent's own.

Where agents share a network, all agents of all lanes are rows of one matrix. Networks of their own have an axis of agents in front of every
weight, and each product is one batched product over it.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from emc.lanes import Lanes, along
from emc.nets import AgentNet, FeedForwardNet, FeedForwardTrunk, Trunk
from emc.parts import Policy
from emc.types import EnvSpec

Body = Trunk | FeedForwardTrunk  # hidden states only
Whole = AgentNet | FeedForwardNet  # hidden states and outputs


def make_bodies(policy: Policy, key: PRNGKeyArray, spec: EnvSpec) -> Body:
    """Fresh networks without outputs."""
    kind = Trunk if policy.recurrent else FeedForwardTrunk
    return _of_each(policy, key, spec, lambda key: kind.init(key, policy.input_size(spec), policy.hidden))


def make_agents(policy: Policy, key: PRNGKeyArray, spec: EnvSpec, outputs: int) -> Whole:
    """Fresh networks with so many outputs."""
    kind = AgentNet if policy.recurrent else FeedForwardNet
    return _of_each(policy, key, spec, lambda key: kind.init(key, policy.input_size(spec), policy.hidden, outputs))


def _of_each(policy: Policy, key: PRNGKeyArray, spec: EnvSpec, make: Any) -> Any:
    return make(key) if policy.shared else jax.vmap(make)(jax.random.split(key, spec.n_agents))


def step_agents(net: Any, inputs: Float[Array, "N I"], hidden: Float[Array, "N H"]) -> Any:
    """One moment of all agents: their hidden states, and outputs where the network has any."""
    if _is_shared(net):
        return net.step(inputs, hidden)
    return jax.vmap(lambda own, x, h: own.step(x, h))(net, inputs, hidden)


def unroll_bodies(net: Body, batch: Lanes) -> Float[Array, "M H W N"]:
    """Hidden states of every agent on its own history."""
    if isinstance(net, FeedForwardTrunk):
        return along(lambda net, _, __, inputs: _feature_first(_all(net, inputs[:-1])), batch, net, data=batch.inputs)
    if _is_shared(net):
        return by_agent(net.unroll(*histories(batch), batch.moments), batch)
    return jnp.moveaxis(jax.vmap(lambda own, x: own.unroll(x, batch.first, batch.moments), in_axes=(0, 2))(net, batch.inputs), 0, -1)


def unroll_agents(net: Whole, batch: Lanes) -> tuple[Float[Array, "M H W N"], Float[Array, "M W N F"]]:
    """Hidden states and outputs of every agent on its own history."""
    if isinstance(net, FeedForwardNet):

        def some(net: FeedForwardNet, _: Any, __: Any, inputs: Array) -> tuple[Array, Array]:
            hidden, out = _all(net, inputs[:-1])
            return _feature_first(hidden), out

        return along(some, batch, net, data=batch.inputs)
    if _is_shared(net):
        hidden, out = net.unroll(*histories(batch), batch.moments)
        return by_agent(hidden, batch), out.reshape(*batch.inputs.shape[:3], -1)
    hidden, out = jax.vmap(lambda own, x: own.unroll(x, batch.first, batch.moments), in_axes=(0, 2))(net, batch.inputs)
    return jnp.moveaxis(hidden, 0, -1), jnp.moveaxis(out, 0, -2)


def _is_shared(net: Any) -> bool:
    return net.encode.weight.ndim == 2


def _all(net: Any, inputs: Float[Array, "K W N I"]) -> Any:
    """What feed-forward agents make of some moments."""
    return net(inputs) if _is_shared(net) else jax.vmap(lambda own, x: own(x), in_axes=(0, -2), out_axes=-2)(net, inputs)


def _feature_first(hidden: Float[Array, "K W N H"]) -> Float[Array, "K H W N"]:
    return jnp.moveaxis(hidden, -1, 1)


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
