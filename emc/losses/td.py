"""Temporal differences of the team's value: one step (Eq. 4, r + gamma (1 - terminated) Q_tot^-(s', u')) or TD(lambda)."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from emc.lanes import Lanes, ahead, along, backwards
from emc.parts import Actors, Fit, Mixed, Mixer, Policy, Seen, ValueLoss
from emc.types import UNAVAILABLE, AgentValues, EnvSpec
from emc.user_input import check_number


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
        self, actors: Actors, mixer: Mixer, online: Seen, target: Seen, batch: Lanes, reward: Float[Array, "M W"], gamma: float
    ) -> Fit:
        chosen = mix_now(mixer, online, batch)
        after = mix_after(mixer, target, batch, actors.decider(online) if self.double_q else target)
        error = chosen.q - targets(reward, after, batch, gamma, self.td_lambda)
        return Fit(error**2, chosen.q, error, chosen.regulariser)


def mix_now(mixer: Mixer, seen: Seen, batch: Lanes, action: Int[Array, "M W N"] | None = None) -> Mixed:
    """The team's value of given actions at each step: of what was done, unless said otherwise."""

    def work(net: PyTree, q: Array, fixed: tuple[()], data: tuple[Array, ...]) -> Mixed:
        available, action, state, context = (x[:-1] for x in data)
        return mix(mixer, net, values_of(q, available, action), mixer_state(state, context))

    data = (batch.available, batch.action if action is None else action, batch.state, seen.unroll.context)
    return along(work, batch, seen.nets.mixer, seen.unroll.q, data=data)


def mix_after(mixer: Mixer, target: Seen, batch: Lanes, decider: Seen) -> Float[Array, "M W K"]:
    """What a target says of the greedy actions of a decider after each step; no gradient flows to either."""

    def work(weights: tuple[()], tracks: tuple[()], net: PyTree, data: tuple[Array, ...]) -> Float[Array, "B W K"]:
        decisive, q, available, state, context = (x[1:] for x in data)
        values = values_of(q, available, best(decisive, available))
        return mix(mixer, net, values, mixer_state(state, context)).q

    data = (decider.unroll.q, target.unroll.q, batch.available, batch.state, target.unroll.context)
    return along(work, batch, (), fixed=target.nets.mixer, data=data)


def greedy_actions(seen: Seen, batch: Lanes) -> Int[Array, "M W N"]:
    """The best available actions at each moment."""
    return along(lambda _, __, ___, data: best(*(x[:-1] for x in data)), batch, (), data=(seen.unroll.q, batch.available))


def targets(
    reward: Float[Array, "M W"], after: Float[Array, "M W K"], batch: Lanes, gamma: float, td_lambda: float = 0.0
) -> Float[Array, "M W K"]:
    """What values are fitted to: rewards and the values after them, the two mixed over time for TD(lambda)."""
    reward, after = jax.lax.stop_gradient((reward[..., None], after))
    discount = gamma * (1.0 - batch.terminated.astype(jnp.float32))[..., None]
    if td_lambda == 0.0:
        return reward + discount * after  # Eq. 4
    goes_on = ahead(batch.played)[..., None]

    def back(later: Array, at: tuple[Array, ...]) -> Array:
        r, d, value, more = at
        return r + d * ((1 - td_lambda) * value + td_lambda * jnp.where(more, later, value))

    return backwards(back, batch, jnp.zeros_like(after[0]), (reward, discount, after, goes_on))


def best(q: Float[Array, "*B N A"], available: Bool[Array, "*B N A"]) -> Int[Array, "*B N"]:
    """Greedy actions; where nothing is available, any."""
    return jnp.argmax(jnp.where(available, q, UNAVAILABLE), axis=-1)


def values_of(q: Float[Array, "*B N A"], available: Bool[Array, "*B N A"], action: Int[Array, "*B N"]) -> AgentValues:
    """What a mixer sees; the greedy value is a constant to it, as in QPLEX's released code."""
    taken = action[..., None] == jnp.arange(q.shape[-1])  # a sum over a mask, not a gather: its derivative is no scatter
    chosen = jnp.sum(jnp.where(taken, q, 0.0), axis=-1)
    greedy = jax.lax.stop_gradient(jnp.max(jnp.where(available, q, UNAVAILABLE), axis=-1))
    return AgentValues(chosen, greedy, action)


def mixer_state(state: Float[Array, "*B S"], context: Float[Array, "*B X"]) -> Float[Array, "*B SX"]:
    """What a mixer reads: the state, and the context where the policy gives one."""
    return state if context.shape[-1] == 0 else jnp.concatenate([state, context], axis=-1)


def mix(mixer: Mixer, net: PyTree, values: AgentValues, state: Shaped[Array, "K W S"]) -> Mixed:
    """The mixer at every moment of a block."""
    return jax.vmap(jax.vmap(lambda v, s: mixer(net, v, s)))(values, state)
