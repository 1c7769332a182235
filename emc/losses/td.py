"""One-step temporal differences of the team's value (Eq. 4): r + gamma (1 - terminated) Q_tot^-(s', u')."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from emc.parts import Fit, Mixed, Mixer, Nets, Policy, ValueLoss
from emc.types import UNAVAILABLE, AgentValues, EnvSpec, Episodes


@dataclasses.dataclass(frozen=True)
class TD(ValueLoss):
    """The squared one-step error."""

    double_q: bool = True  # the online agents choose the next action, the target values it; the paper's text has a plain maximum

    def init_net(self, key: PRNGKeyArray, spec: EnvSpec, policy: Policy) -> tuple[()]:
        return ()

    def __call__(
        self, policy: Policy, mixer: Mixer, online: Nets, target: Nets, batch: Episodes, reward: Float[Array, "B T"], gamma: float
    ) -> Fit:
        q = policy.unroll(online.policy, batch).q
        target_q = jax.lax.stop_gradient(policy.unroll(target.policy, batch).q)

        chosen = mix(mixer, online.mixer, values_of(q[:, :-1], batch.available[:, :-1], batch.action), batch.state[:, :-1])
        next_available = batch.available[:, 1:]
        decider = q if self.double_q else target_q
        next_action = best(decider[:, 1:], next_available)
        after = mix(mixer, target.mixer, values_of(target_q[:, 1:], next_available, next_action), batch.state[:, 1:])

        bootstrap = gamma * (1.0 - batch.terminated.astype(jnp.float32))
        aim = reward[..., None] + bootstrap[..., None] * after.q  # Eq. 4
        error = chosen.q - jax.lax.stop_gradient(aim)
        return Fit(error**2, chosen.q, error, chosen.regulariser)


def best(q: Float[Array, "*B N A"], available: Bool[Array, "*B N A"]) -> Int[Array, "*B N"]:
    """Greedy actions; on padding, where nothing is available, any."""
    return jnp.argmax(jnp.where(available, q, UNAVAILABLE), axis=-1)


def values_of(q: Float[Array, "*B N A"], available: Bool[Array, "*B N A"], action: Int[Array, "*B N"]) -> AgentValues:
    """What a mixer sees; the greedy value is a constant to it, as in QPLEX's released code."""
    chosen = jnp.take_along_axis(q, action[..., None], axis=-1)[..., 0]
    greedy = jax.lax.stop_gradient(jnp.max(jnp.where(available, q, UNAVAILABLE), axis=-1))
    return AgentValues(chosen, greedy, action)


def mix(mixer: Mixer, net: PyTree, values: AgentValues, state: Shaped[Array, "B T S"]) -> Mixed:
    """The mixer at every step of every episode."""
    return jax.vmap(jax.vmap(lambda v, s: mixer(net, v, s)))(values, state)
