"""QMIX (Rashid et al. 2018): a two-layer network of the agents' values whose weights, made from the state, are never negative."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, Shaped

from emc.nets import MLP, Linear, at_once, torch_sequential
from emc.parts import Mixed, Mixer
from emc.types import AgentValues, EnvSpec
from emc.user_input import check_size


@dataclasses.dataclass(frozen=True)
class QMIX(Mixer):
    """Monotone in every agent's value, so each agent's greedy action is the team's."""

    embed: int = 32  # width of the mixing layer
    hypernet: int = 64  # width of the networks that make its weights
    layers: int = 2  # of those networks; MAVEN's own QMIX has one

    def __post_init__(self) -> None:
        check_size("mixer.embed", self.embed, "32 is usual", low=1)
        check_size("mixer.hypernet", self.hypernet, "64 is usual", low=1)
        check_size("mixer.layers", self.layers, "2 is usual", low=1)

    def init(self, key: PRNGKeyArray, spec: EnvSpec) -> MonotoneNet:
        keys = jax.random.split(key, 4)
        state, embed = spec.state_size, self.embed
        inner = (self.hypernet,) * (self.layers - 1)
        return MonotoneNet(
            first_weight=MLP.init(keys[0], (state, *inner, embed * spec.n_agents)),
            first_bias=Linear.init(keys[1], state, embed),
            last_weight=MLP.init(keys[2], (state, *inner, embed)),
            value=MLP.init(keys[3], (state, embed, 1)),
        )

    def __call__(self, net: MonotoneNet, values: AgentValues, state: Shaped[Array, " S"]) -> Mixed:
        readers = (net.first_weight.layers[0], net.first_bias, net.last_weight.layers[0], net.value.layers[0])
        first, bias, last, value = at_once(state.astype(jnp.float32), *readers)
        weight = jnp.abs(net.first_weight.after_first(first)).reshape(values.chosen.shape[0], self.embed)
        hidden = jax.nn.elu(values.chosen @ weight + bias)
        q = jnp.sum(hidden * jnp.abs(net.last_weight.after_first(last)), keepdims=True) + net.value.after_first(value)
        return Mixed(q, jnp.zeros(()))


class MonotoneNet(eqx.Module):
    """The hyper-networks of the mixing layers and the state's own value."""

    first_weight: MLP
    first_bias: Linear
    last_weight: MLP
    value: MLP

    @property
    def torch_names(self) -> dict[str, str]:
        """PyMARL's names of these weights."""
        layers = len(self.first_weight.layers)
        weights = torch_sequential("first_weight", "hyper_w_1", layers) | torch_sequential("last_weight", "hyper_w_final", layers)
        return weights | {"first_bias": "hyper_b_1"} | torch_sequential("value", "V", 2)
