"""Joint values: a network of all agents' hidden states and actions (Son et al. 2019).

`Qtran` is QTRAN-base. The joint value learns by temporal differences; the sum of the agents' values, corrected by a value of the state,
must meet it at the greedy joint action and stay above it elsewhere, which makes the agents' own greedy actions the joint ones.
`CentralTD` is the joint value alone, a critic that no agent acts by.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from emc.losses.td import best, chosen_value, mix_now, targets
from emc.mixers import VDN
from emc.names import check_number, check_size
from emc.nets import MLP, torch_sequential
from emc.parts import Actors, Fit, Mixer, Policy, Seen, ValueLoss
from emc.types import EnvSpec, Episodes, masked_mean


@dataclasses.dataclass(frozen=True)
class Qtran(ValueLoss):
    """QTRAN-base: three losses, of which only the first trains the joint value."""

    width: int = 64  # of the joint network and of the state's value
    optimum_weight: float = 1.0  # of meeting the joint value at the greedy joint action
    bound_weight: float = 0.1  # of staying above it elsewhere

    def __post_init__(self) -> None:
        check_size("loss.width", self.width, "64 is usual", low=1)
        for name in ("optimum_weight", "bound_weight"):
            check_number(f"loss.{name}", vars(self)[name], "0 leaves it out", low=0.0)

    def refuse(self, mixer: Mixer) -> str:
        return "" if mixer == VDN() else "QTRAN bounds its joint value by the sum of the agents' values: use --mixer vdn"

    def init_net(self, key: PRNGKeyArray, spec: EnvSpec, policy: Policy) -> QtranNet:
        joint_key, value_key = jax.random.split(key)
        sizes = (spec.state_size, self.width, self.width, 1)
        return QtranNet(JointNet.init(joint_key, spec, policy.hidden, self.width), MLP.init(value_key, sizes))

    def __call__(
        self, actors: Actors, mixer: Mixer, online: Seen, target: Seen, batch: Episodes, reward: Float[Array, "B T"], gamma: float
    ) -> Fit:
        net: QtranNet = online.nets.loss
        greedy = best(online.run.q, batch.available)
        chosen, error = joint_error(net.joint, target.nets.loss.joint, online, target, batch, reward, gamma, greedy[:, 1:])

        now = online.run.hidden[:, :-1]
        joint_greedy = net.joint(batch.state[:, :-1], now, greedy[:, :-1])
        value = net.value(batch.state[:, :-1].astype(jnp.float32))
        # The sum over agents must keep its gradient at the greedy actions, so they are mixed as if they had been chosen.
        optimum = mix_now(mixer, online, batch, greedy[:, :-1]).q - jax.lax.stop_gradient(joint_greedy) + value
        bound = chosen_value(mixer, online, batch).q - jax.lax.stop_gradient(chosen) + value
        terms = {"td_loss": error**2, "optimum_loss": optimum**2, "bound_loss": jnp.minimum(bound, 0.0) ** 2}
        loss = terms["td_loss"] + self.optimum_weight * terms["optimum_loss"] + self.bound_weight * terms["bound_loss"]
        played = batch.played[..., None]
        report = {name: masked_mean(value, played) for name, value in (terms | {"state_value": value}).items()}
        return Fit(loss, chosen, error, jnp.zeros_like(reward), report)


@dataclasses.dataclass(frozen=True)
class CentralTD(ValueLoss):
    """Temporal differences of a joint value; the acting agents choose the next joint action, and no agent's own value learns."""

    width: int = 64

    def __post_init__(self) -> None:
        check_size("loss.width", self.width, "64 is usual", low=1)

    def init_net(self, key: PRNGKeyArray, spec: EnvSpec, policy: Policy) -> JointNet:
        return JointNet.init(key, spec, policy.hidden, self.width)

    def __call__(
        self, actors: Actors, mixer: Mixer, online: Seen, target: Seen, batch: Episodes, reward: Float[Array, "B T"], gamma: float
    ) -> Fit:
        greedy = best(jax.lax.stop_gradient(actors.unroll(batch).q[:, 1:]), batch.available[:, 1:])
        chosen, error = joint_error(online.nets.loss, target.nets.loss, online, target, batch, reward, gamma, greedy)
        return Fit(error**2, chosen, error, jnp.zeros_like(reward))


def joint_error(
    net: JointNet,
    target_net: JointNet,
    online: Seen,
    target: Seen,
    batch: Episodes,
    reward: Float[Array, "B T"],
    gamma: float,
    next_action: Int[Array, "B T N"],
) -> tuple[Float[Array, "B T 1"], Float[Array, "B T 1"]]:
    """The joint value of what was done and its temporal-difference error; gradients reach the agents through their hidden states."""
    chosen = net(batch.state[:, :-1], online.run.hidden[:, :-1], batch.action)
    after = target_net(batch.state[:, 1:], target.run.hidden[:, 1:], next_action)
    return chosen, chosen - jax.lax.stop_gradient(targets(reward, after, batch, gamma))


class JointNet(eqx.Module):
    """Q(s, h, u): each agent's hidden state and action are encoded and summed."""

    encode: MLP
    value: MLP
    n_actions: int = eqx.field(static=True)

    @staticmethod
    def init(key: PRNGKeyArray, spec: EnvSpec, hidden: int, width: int) -> JointNet:
        """Fresh weights."""
        encode_key, value_key = jax.random.split(key)
        size = hidden + spec.n_actions
        return JointNet(
            MLP.init(encode_key, (size, size, size)), MLP.init(value_key, (spec.state_size + size, width, width, 1)), spec.n_actions
        )

    def __call__(self, state: Shaped[Array, "*B S"], hidden: Float[Array, "*B N H"], action: Int[Array, "*B N"]) -> Float[Array, "*B 1"]:
        agents = self.encode(jnp.concatenate([hidden, jax.nn.one_hot(action, self.n_actions)], axis=-1))
        return self.value(jnp.concatenate([state.astype(jnp.float32), jnp.sum(agents, axis=-2)], axis=-1))

    @property
    def torch_names(self) -> dict[str, str]:
        """The released code's names of these weights."""
        return torch_sequential("encode", "action_encoding", 2) | torch_sequential("value", "Q", 3)


class QtranNet(eqx.Module):
    """The joint value, and the value of the state that corrects the agents' sum."""

    joint: JointNet
    value: MLP

    @property
    def torch_names(self) -> dict[str, str]:
        """The released code's names of these weights."""
        return {f"joint.{ours}": theirs for ours, theirs in self.joint.torch_names.items()} | torch_sequential("value", "V", 3)
