"""Weighted QMIX (Rashid et al. 2020): a monotone value fitted mostly where it matters.

A second, unrestricted value Q* (its own agents and an unrestricted mixer) gives one target to both:
y = r + gamma (1 - terminated) Q*^-(s', u'), with u' the greedy actions of the acting agents. The monotone value is fitted to y with
weight 1 where it may be the best joint action and alpha elsewhere:
* optimistic (OW-QMIX): where it is below its target,
* central (CW-QMIX): where every agent took its greedy action, or the target exceeds what Q*^- gives the greedy actions.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from emc.lanes import Lanes
from emc.losses.td import greedy_actions, mix_after, mix_now, targets
from emc.mixers import Independent, Unrestricted
from emc.parts import Actors, Fit, Mixer, Nets, Policy, Seen, ValueLoss
from emc.types import EnvSpec, masked_mean
from emc.user_input import check_number, lookup

Weighting = Literal["optimistic", "central"]


@dataclasses.dataclass(frozen=True)
class Weighted(ValueLoss):
    """The monotone and the unrestricted value, fitted to one target."""

    weighting: Weighting = "optimistic"
    alpha: float = 0.1  # released code, and its README for predator-prey; 0.5 is its example for StarCraft maps
    central_mixer: Mixer = Unrestricted()
    td_lambda: float = 0.0  # 0: one step, as released; PyMARL2's has 0.6

    def __post_init__(self) -> None:
        lookup("weighting", self.weighting, dict.fromkeys(get_args(Weighting)))
        check_number("loss.alpha", self.alpha, "1 weighs all steps equally", low=0.0, high=1.0)
        check_number("loss.td_lambda", self.td_lambda, "0 is the one-step error", low=0.0, high=1.0)

    def refuse(self, mixer: Mixer) -> str:
        return "weights compare the team's value with its target, and independent learners have none: use --mixer qmix" * (
            mixer == Independent()
        )

    def init_net(self, key: PRNGKeyArray, spec: EnvSpec, policy: Policy) -> CentralNet:
        agent_key, mixer_key = jax.random.split(key)
        return CentralNet(policy.init_net(agent_key, spec), self.central_mixer.init(mixer_key, policy.mixer_spec(spec)))

    def __call__(
        self, actors: Actors, mixer: Mixer, online: Seen, target: Seen, batch: Lanes, reward: Float[Array, "M W"], gamma: float
    ) -> Fit:
        central, central_target = self.central(actors, online, batch), jax.lax.stop_gradient(self.central(actors, target, batch))
        chosen, central_chosen = mix_now(mixer, online, batch), mix_now(self.central_mixer, central, batch)
        aim = targets(reward, mix_after(self.central_mixer, central_target, batch, online), batch, gamma, self.td_lambda)
        error, central_error = chosen.q - aim, central_chosen.q - aim
        important = error < 0 if self.weighting == "optimistic" else self._promising(online, central_target, aim, batch)
        weight = jnp.where(important, 1.0, self.alpha)
        terms = {"mixer_loss": weight * error**2, "central_loss": central_error**2, "loss_weight": weight}
        report = {name: masked_mean(term, batch.played[..., None]) for name, term in terms.items()}
        return Fit(terms["mixer_loss"] + terms["central_loss"], chosen.q, error, chosen.regulariser, report)

    def central(self, actors: Actors, of: Seen, batch: Lanes) -> Seen:
        """The unrestricted value's own agents, in the place of the acting ones."""
        net: CentralNet = of.nets.loss
        return Seen(Nets(net.agent, net.mixer, ()), actors.unroll_with(net.agent, batch))

    def _promising(self, online: Seen, central: Seen, aim: Float[Array, "M W 1"], batch: Lanes) -> Bool[Array, "M W 1"]:
        """Whether the joint action is the greedy one, or better than that one seems."""
        greedy = greedy_actions(online, batch)
        taken = jnp.all(greedy == batch.action, axis=-1)
        return taken[..., None] | (aim > mix_now(self.central_mixer, central, batch, greedy).q)


class CentralNet(eqx.Module):
    """The agents and the mixer of the unrestricted value."""

    agent: PyTree
    mixer: PyTree
