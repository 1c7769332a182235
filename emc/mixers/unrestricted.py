"""The unrestricted mixer of WQMIX's central value (Rashid et al. 2020): a plain network of the state and the agents' values.

It is not monotone, so its greedy joint action cannot be found agent by agent; it serves as a target, never for acting.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, Shaped

from emc.nets import MLP, torch_sequential
from emc.parts import Mixed, Mixer
from emc.types import AgentValues, EnvSpec
from emc.user_input import check_size


@dataclasses.dataclass(frozen=True)
class Unrestricted(Mixer):
    """Any function of the agents' values."""

    width: int = 256

    def __post_init__(self) -> None:
        check_size("mixer.width", self.width, "256 is usual", low=1)

    def init(self, key: PRNGKeyArray, spec: EnvSpec) -> UnrestrictedNet:
        joint_key, value_key = jax.random.split(key)
        inner = (self.width,) * 3
        return UnrestrictedNet(
            MLP.init(joint_key, (spec.state_size + spec.n_agents, *inner, 1)), MLP.init(value_key, (spec.state_size, self.width, 1))
        )

    def __call__(self, net: UnrestrictedNet, values: AgentValues, state: Shaped[Array, " S"]) -> Mixed:
        s = state.astype(jnp.float32)
        return Mixed(net.joint(jnp.concatenate([s, values.chosen])) + net.value(s), jnp.zeros(()))


class UnrestrictedNet(eqx.Module):
    """The network of state and values, and the state's own value."""

    joint: MLP
    value: MLP

    @property
    def torch_names(self) -> dict[str, str]:
        """The released code's names of these weights."""
        return torch_sequential("joint", "net", 4) | torch_sequential("value", "V", 2)
