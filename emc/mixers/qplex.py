"""QPLEX (Wang et al. 2021): a duplex duelling mixer that can represent every value function consistent with greedy agents.

Q_tot = sum_i q_i + sum_i sg[q_i - v_i] (lambda_i(s, u) - 1), with q_i, v_i the agents' chosen and greedy values after a positive
transformation, and lambda_i > 0 an attention over the joint action. Agents and transformation learn through the first sum only, lambda
through the second only: the stop-gradient is unconditional, as in the released code. At the greedy joint action the second sum vanishes.

`QPLEX` transforms by state-conditioned weights ("dmaq", used on small tasks), `AttentionQPLEX` by attention over the agents' own unit
features at the head of the state ("dmaq_qatten", used on StarCraft-like maps).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from emc.errors import UserError
from emc.nets import MLP, Linear, at_once, torch_sequential
from emc.parts import Mixed, Mixer
from emc.types import AgentValues, EnvSpec
from emc.user_input import check_number, check_size

TINY = 1e-10  # keeps weights positive where a network outputs exactly zero


@dataclasses.dataclass(frozen=True)
class QPLEX(Mixer):
    """Transformation by weights and biases made from the state."""

    kernels: int = 4  # attention heads of lambda
    layers: int = 2  # of each network inside lambda
    hypernet: int = 64
    weighted: bool = True  # False: the agents' values enter untransformed

    def __post_init__(self) -> None:
        for name in ("kernels", "layers", "hypernet"):
            check_size(f"mixer.{name}", vars(self)[name], "the released code has 4 kernels, 2 layers and a width of 64", low=1)

    def init(self, key: PRNGKeyArray, spec: EnvSpec) -> DuplexNet:
        weight_key, bias_key, attention_key = jax.random.split(key, 3)
        sizes = (spec.state_size, self.hypernet, spec.n_agents)
        attention = JointAttention.init(attention_key, spec, self.kernels, self.layers, self.hypernet)
        return DuplexNet(MLP.init(weight_key, sizes), MLP.init(bias_key, sizes), attention)

    def __call__(self, net: DuplexNet, values: AgentValues, state: Shaped[Array, " S"]) -> Mixed:
        s = state.astype(jnp.float32)
        if not self.weighted:
            return Mixed(duplex(values.chosen, values.greedy, net.attention(at_once(s, *net.attention.readers), values)), jnp.zeros(()))
        weight, bias, *read = at_once(s, net.weight.layers[0], net.bias.layers[0], *net.attention.readers)
        weight, bias = jnp.abs(net.weight.after_first(weight)) + TINY, net.bias.after_first(bias)
        chosen, greedy = weight * values.chosen + bias, weight * values.greedy + bias
        return Mixed(duplex(chosen, greedy, net.attention(read, values)), jnp.zeros(()))


@dataclasses.dataclass(frozen=True)
class AttentionQPLEX(Mixer):
    """Transformation by attention of the state over each agent's unit features."""

    heads: int = 4
    embed: int = 32
    kernels: int = 4
    layers: int = 1
    hypernet: int = 64
    weighted: bool = False  # True: heads are weighted by a network of the state
    regularisation: float = 0.001  # of the squared attention logits

    def __post_init__(self) -> None:
        for name in ("heads", "embed", "kernels", "layers", "hypernet"):
            check_size(f"mixer.{name}", vars(self)[name], "the released code has 4 heads of 32, 4 kernels, 1 layer, width 64", low=1)
        check_number("mixer.regularisation", self.regularisation, "0 leaves it out", low=0.0)

    def init(self, key: PRNGKeyArray, spec: EnvSpec) -> AttentionDuplexNet:
        if spec.unit_size * spec.n_agents > spec.state_size or spec.unit_size == 0:
            raise UserError(
                "the attention mixer needs unit features at the head of the state, which this environment lacks: use --mixer qplex"
            )
        query_key, unit_key, head_key, value_key, attention_key = jax.random.split(key, 5)
        state = spec.state_size

        def query(k: PRNGKeyArray) -> MLP:
            return MLP.init(k, (state, self.hypernet, self.embed), last_bias=False)

        def unit(k: PRNGKeyArray) -> Linear:
            return Linear.init(k, spec.unit_size, self.embed, bias=False)

        return AttentionDuplexNet(
            query=jax.vmap(query)(jax.random.split(query_key, self.heads)),
            unit=jax.vmap(unit)(jax.random.split(unit_key, self.heads)),
            head=MLP.init(head_key, (state, self.hypernet, self.heads)) if self.weighted else None,
            value=MLP.init(value_key, (state, self.embed, 1)),
            attention=JointAttention.init(attention_key, spec, self.kernels, self.layers, self.hypernet),
        )

    def __call__(self, net: AttentionDuplexNet, values: AgentValues, state: Shaped[Array, " S"]) -> Mixed:
        s = state.astype(jnp.float32)
        n_agents, unit_size = values.chosen.shape[0], net.unit.weight.shape[-1]
        units = s[: n_agents * unit_size].reshape(n_agents, unit_size)
        query, value, *read = at_once(s, net.query.layers[0], net.value.layers[0], *net.attention.readers)
        query = jax.vmap(lambda network, hidden: network.after_first(hidden))(net.query, query)
        # Query times key, in an order that never makes a key for every unit: each head's query is seen through its unit layer.
        logits = jnp.einsum("he,heu->hu", query, net.unit.weight) @ units.T
        share = jax.nn.softmax(logits / self.embed**0.5, axis=-1)
        weight = (jnp.sum(share, axis=0) if net.head is None else jnp.abs(net.head(s)) @ share) + TINY
        bias = net.value.after_first(value) / n_agents
        q = duplex(weight * values.chosen + bias, weight * values.greedy + bias, net.attention(read, values))
        return Mixed(q, self.regularisation * jnp.sum(jnp.mean(logits**2, axis=-1)))


def duplex(chosen: Float[Array, " N"], greedy: Float[Array, " N"], attention: Float[Array, " N"]) -> Float[Array, "1"]:
    """The duelling sum, with the gradient routed as described above."""
    advantage = jax.lax.stop_gradient(chosen - greedy)
    return jnp.sum(chosen + advantage * (attention - 1.0), keepdims=True)


class JointAttention(eqx.Module):
    """lambda_i(s, u): positive weights of the agents' advantages, from the state and the joint action; kernels are stacked."""

    key: MLP
    agents: MLP
    actions: MLP
    n_actions: int = eqx.field(static=True)

    @staticmethod
    def init(key: PRNGKeyArray, spec: EnvSpec, kernels: int, layers: int, width: int) -> JointAttention:
        """Fresh weights."""
        inner = (width,) * (layers - 1)

        def stacked(k: PRNGKeyArray, size_in: int, size_out: int) -> MLP:
            return jax.vmap(lambda one: MLP.init(one, (size_in, *inner, size_out)))(jax.random.split(k, kernels))

        keys, joint = jax.random.split(key, 3), spec.state_size + spec.n_agents * spec.n_actions
        return JointAttention(
            key=stacked(keys[0], spec.state_size, 1),
            agents=stacked(keys[1], spec.state_size, spec.n_agents),
            actions=stacked(keys[2], joint, spec.n_agents),
            n_actions=spec.n_actions,
        )

    @property
    def torch_names(self) -> dict[str, str]:
        """The released code's names of these weights; `{}` runs over the kernels."""
        names = {"key": "key_extractors", "agents": "agents_extractors", "actions": "action_extractors"}
        layers = len(self.key.layers)
        sequences = (torch_sequential(f"attention.{ours}", f"si_weight.{theirs}.{{}}", layers) for ours, theirs in names.items())
        return {a: b for sequence in sequences for a, b in sequence.items()}

    @property
    def readers(self) -> tuple[Linear, Linear, Linear]:
        """The layers that read the state; the last of them reads the joint action too, in its last columns."""
        actions = self.actions.layers[0]
        size = self.key.layers[0].weight.shape[-1]
        return self.key.layers[0], self.agents.layers[0], Linear(actions.weight[..., :size], actions.bias)

    def __call__(self, read: Sequence[Float[Array, "kernels _"]], values: AgentValues) -> Float[Array, " N"]:
        key, agents, actions = read  # what the readers made of the state
        of_actions = self.actions.layers[0].weight[..., self.key.layers[0].weight.shape[-1] :]
        joint = jax.nn.one_hot(values.action, self.n_actions).reshape(-1)
        actions = actions + (joint @ of_actions.reshape(-1, joint.shape[0]).T).reshape(actions.shape)  # a batch of them stays rows

        def rest(network: MLP, x: Array) -> Array:
            for layer in network.layers[1:]:
                x = layer.side_by_side(jax.nn.relu(x))
            return x

        shares = jax.nn.sigmoid(rest(self.agents, agents)) * jax.nn.sigmoid(rest(self.actions, actions))
        return jnp.sum((jnp.abs(rest(self.key, key)) + TINY) * shares, axis=0)


class DuplexNet(eqx.Module):
    """Networks of the plain mixer."""

    weight: MLP
    bias: MLP
    attention: JointAttention

    @property
    def torch_names(self) -> dict[str, str]:
        """The released code's names of these weights."""
        return self.attention.torch_names | torch_sequential("weight", "hyper_w_final", 2) | torch_sequential("bias", "V", 2)


class AttentionDuplexNet(eqx.Module):
    """Networks of the attention mixer; `query` and `unit` are stacked over heads."""

    query: MLP
    unit: Linear
    head: MLP | None  # unless heads are weighted
    value: MLP
    attention: JointAttention

    @property
    def torch_names(self) -> dict[str, str]:
        """The released code's names of these weights; `{}` runs over the heads."""
        prefix = "attention_weight."
        return (
            self.attention.torch_names
            | torch_sequential("query", prefix + "selector_extractors.{}", 2)
            | {"unit": prefix + "key_extractors.{}"}
            | torch_sequential("head", prefix + "hyper_w_head", 2)
            | torch_sequential("value", prefix + "V", 2)
        )
