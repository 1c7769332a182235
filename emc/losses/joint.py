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

from emc.lanes import Lanes, along
from emc.losses.td import best, greedy_actions, mix_now, targets
from emc.mixers import VDN
from emc.nets import MLP, torch_sequential
from emc.parts import Actors, Fit, Mixer, Policy, Seen, ValueLoss
from emc.types import EnvSpec, masked_mean
from emc.user_input import check_number, check_size


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
        self, actors: Actors, mixer: Mixer, online: Seen, target: Seen, batch: Lanes, reward: Float[Array, "M W"], gamma: float
    ) -> Fit:
        net: QtranNet = online.nets.loss
        greedy = greedy_actions(online, batch)
        chosen, error = joint_error(net.joint, target.nets.loss.joint, online, target, batch, reward, gamma, online)
        joint_greedy = joint_values(net.joint, jax.lax.stop_gradient(online), batch, greedy)
        value = along(lambda net, _, __, state: net(state[:-1]), batch, net.value, data=batch.state)
        # The sum over agents must keep its gradient at the greedy actions, so they are mixed as if they had been chosen.
        optimum = mix_now(mixer, online, batch, greedy).q - jax.lax.stop_gradient(joint_greedy) + value
        bound = mix_now(mixer, online, batch).q - jax.lax.stop_gradient(chosen) + value
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
        self, actors: Actors, mixer: Mixer, online: Seen, target: Seen, batch: Lanes, reward: Float[Array, "M W"], gamma: float
    ) -> Fit:
        decider = Seen(online.nets, jax.lax.stop_gradient(actors.unroll(batch)))
        chosen, error = joint_error(online.nets.loss, target.nets.loss, online, target, batch, reward, gamma, decider)
        return Fit(error**2, chosen, error, jnp.zeros_like(reward))


def joint_error(
    net: JointNet,
    target_net: JointNet,
    online: Seen,
    target: Seen,
    batch: Lanes,
    reward: Float[Array, "M W"],
    gamma: float,
    decider: Seen,
) -> tuple[Float[Array, "M W 1"], Float[Array, "M W 1"]]:
    """The joint value of what was done and its temporal-difference error, with the decider's greedy actions after it.

    Gradients reach the agents through their hidden states.
    """

    def work(weights: tuple[()], tracks: tuple[()], net: JointNet, data: tuple[Array, ...]) -> Float[Array, "B W 1"]:
        state, hidden, q, available = (x[1:] for x in data)
        return net(state, features_last(hidden), best(q, available))

    data = (batch.state, target.unroll.hidden, decider.unroll.q, batch.available)
    after = along(work, batch, (), fixed=target_net, data=data)
    chosen = joint_values(net, online, batch, batch.action)
    return chosen, chosen - targets(reward, after, batch, gamma)


def joint_values(net: JointNet, seen: Seen, batch: Lanes, action: Int[Array, "M W N"]) -> Float[Array, "M W 1"]:
    """The joint value of given actions at each step."""

    def work(net: JointNet, hidden: Array, fixed: tuple[()], data: tuple[Array, ...]) -> Float[Array, "B W 1"]:
        state, action = (x[:-1] for x in data)
        return net(state, features_last(hidden), action)

    return along(work, batch, net, seen.unroll.hidden, data=(batch.state, action))


def features_last(hidden: Float[Array, "B H W N"]) -> Float[Array, "B W N H"]:
    """From the layout of recurrent networks to that of others."""
    return jnp.moveaxis(hidden, 1, -1)


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
