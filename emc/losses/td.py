"""Temporal differences of the team's value: one step (Eq. 4, r + gamma (1 - terminated) Q_tot^-(s', u')) or TD(lambda)."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from emc.names import check_number
from emc.parts import Actors, Fit, Mixed, Mixer, Policy, Seen, ValueLoss
from emc.types import UNAVAILABLE, AgentValues, EnvSpec, Episodes, Unroll


@dataclasses.dataclass(frozen=True)
class TD(ValueLoss):
    """The squared error."""

    double_q: bool = True  # the online agents choose the next action, the target values it; the paper's text has a plain maximum
    td_lambda: float = 0.0  # 0: one step; towards 1: returns that bootstrap ever later (no correction for exploration)

    def __post_init__(self) -> None:
        check_number("loss.td_lambda", self.td_lambda, "0 is the one-step error", low=0.0, high=1.0)

    def init_net(self, key: PRNGKeyArray, spec: EnvSpec, policy: Policy) -> tuple[()]:
        return ()

    def __call__(
        self, actors: Actors, mixer: Mixer, online: Seen, target: Seen, batch: Episodes, reward: Float[Array, "B T"], gamma: float
    ) -> Fit:
        chosen = chosen_value(mixer, online, batch)
        after = mix_after(mixer, target, batch, next_actions(online if self.double_q else target, batch))
        aim = targets(reward, after, batch, gamma, self.td_lambda)
        error = chosen.q - jax.lax.stop_gradient(aim)
        return Fit(error**2, chosen.q, error, chosen.regulariser)


def chosen_value(mixer: Mixer, online: Seen, batch: Episodes) -> Mixed:
    """The team's value of what was done."""
    return mix_now(mixer, online, batch, batch.action)


def mix_now(mixer: Mixer, seen: Seen, batch: Episodes, action: Int[Array, "B T N"]) -> Mixed:
    """The team's value of given actions at each step."""
    values = values_of(seen.run.q[:, :-1], batch.available[:, :-1], action)
    return mix(mixer, seen.nets.mixer, values, mixer_state(seen.run, batch)[:, :-1])


def next_actions(decider: Seen, batch: Episodes) -> Int[Array, "B T N"]:
    """The greedy actions after each step."""
    return best(decider.run.q[:, 1:], batch.available[:, 1:])


def mix_after(mixer: Mixer, target: Seen, batch: Episodes, action: Int[Array, "B T N"]) -> Float[Array, "B T K"]:
    """The team's value of given actions after each step."""
    values = values_of(target.run.q[:, 1:], batch.available[:, 1:], action)
    return mix(mixer, target.nets.mixer, values, mixer_state(target.run, batch)[:, 1:]).q


def targets(
    reward: Float[Array, "B T"], after: Float[Array, "B T K"], batch: Episodes, gamma: float, td_lambda: float = 0.0
) -> Float[Array, "B T K"]:
    """What values are fitted to: rewards and the values after them, the two mixed over time for TD(lambda)."""
    discount = gamma * (1.0 - batch.terminated.astype(jnp.float32))[..., None]
    if td_lambda == 0.0:
        return reward[..., None] + discount * after  # Eq. 4
    goes_on = jnp.concatenate([batch.played[:, 1:], jnp.zeros_like(batch.played[:, :1])], axis=1)[..., None]

    def back(later: Array, at: tuple[Array, ...]) -> tuple[Array, Array]:
        r, d, value, more = at
        now = r + d * ((1 - td_lambda) * value + td_lambda * jnp.where(more, later, value))
        return now, now

    time_first = tuple(jnp.swapaxes(x, 0, 1) for x in (reward[..., None], discount, after, goes_on))
    return jnp.swapaxes(jax.lax.scan(back, jnp.zeros_like(after[:, 0]), time_first, reverse=True)[1], 0, 1)


def best(q: Float[Array, "*B N A"], available: Bool[Array, "*B N A"]) -> Int[Array, "*B N"]:
    """Greedy actions; on padding, where nothing is available, any."""
    return jnp.argmax(jnp.where(available, q, UNAVAILABLE), axis=-1)


def values_of(q: Float[Array, "*B N A"], available: Bool[Array, "*B N A"], action: Int[Array, "*B N"]) -> AgentValues:
    """What a mixer sees; the greedy value is a constant to it, as in QPLEX's released code."""
    chosen = jnp.take_along_axis(q, action[..., None], axis=-1)[..., 0]
    greedy = jax.lax.stop_gradient(jnp.max(jnp.where(available, q, UNAVAILABLE), axis=-1))
    return AgentValues(chosen, greedy, action)


def mixer_state(run: Unroll, batch: Episodes) -> Shaped[Array, "B T1 S"]:
    """What a mixer reads: the state, and the context where the policy gives one."""
    if run.context.shape[-1] == 0:
        return batch.state
    return jnp.concatenate([batch.state.astype(jnp.float32), run.context], axis=-1)


def mix(mixer: Mixer, net: PyTree, values: AgentValues, state: Shaped[Array, "B T S"]) -> Mixed:
    """The mixer at every step of every episode."""
    return jax.vmap(jax.vmap(lambda v, s: mixer(net, v, s)))(values, state)
