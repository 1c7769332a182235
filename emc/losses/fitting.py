"""Fitting a value function: one gradient step on a batch, and its target network. Shared by the inference and the curiosity module."""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from emc.lanes import Lanes
from emc.optimisers import descend, init_optimiser
from emc.parts import Actors, Fit, Metrics, Mixer, Nets, Policy, Seen, ValueLoss
from emc.types import EnvSpec, masked_mean

Extra = Callable[[Seen, Seen, Fit], tuple[Float[Array, ""], Metrics]]  # of the weights in training, their target, and the fit


def nothing_else(online: Seen, target: Seen, fit: Fit) -> tuple[Float[Array, ""], Metrics]:
    """For a value function that is fitted and nothing more."""
    return jnp.zeros(()), {}


class ValueState(eqx.Module):
    """A value function in training."""

    online: Nets
    target: Nets
    optimiser: optax.OptState
    updates: Int[Array, ""]  # gradient steps taken

    def copied(self, due: Bool[Array, ""]) -> ValueState:
        """After a hard copy to the target, if one is due."""
        target = jax.tree.map(lambda new, old: jnp.where(due, new, old), self.online, self.target)
        return ValueState(self.online, target, self.optimiser, self.updates)


class ValueFunction(eqx.Module):
    """What is fitted and how: parts and numbers, nothing that changes."""

    policy: Policy = eqx.field(static=True)
    mixer: Mixer = eqx.field(static=True)
    loss: ValueLoss = eqx.field(static=True)
    optimiser: optax.GradientTransformation = eqx.field(static=True)
    gamma: float = eqx.field(static=True)
    target_interval: int = eqx.field(static=True)  # gradient steps between hard copies to the target

    def init(self, key: PRNGKeyArray, spec: EnvSpec) -> ValueState:
        """Fresh weights; the target starts as their copy."""
        policy_key, mixer_key, loss_key = jax.random.split(key, 3)
        mixer = self.mixer.init(mixer_key, self.policy.mixer_spec(spec))
        return self.start(Nets(self.policy.init_net(policy_key, spec), mixer, self.loss.init_net(loss_key, spec, self.policy)))

    def start(self, nets: Nets) -> ValueState:
        """Begin training from given weights."""
        return ValueState(nets, jax.tree.map(jnp.copy, nets), init_optimiser(self.optimiser, nets), jnp.zeros((), jnp.int32))

    def update(
        self,
        state: ValueState,
        batch: Lanes,
        reward: Float[Array, "M W"] | Callable[[Seen], Float[Array, "M W"]],
        actors: Actors,
        extra_loss: Extra = nothing_else,
    ) -> tuple[ValueState, Fit, Metrics]:
        """One gradient step, then a hard copy to the target if one is due.

        `reward` may depend on what the target makes of the batch. `actors` are the agents that act, by these weights or others;
        `extra_loss` is minimised too, and may report on itself.
        """
        target = jax.lax.stop_gradient(Seen(state.target, actors.unroll_with(state.target.policy, batch)))

        rewards = jax.lax.stop_gradient(reward(target)) if callable(reward) else reward

        def objective(nets: Nets) -> tuple[Float[Array, ""], tuple[Fit, Metrics]]:
            online = Seen(nets, actors.unroll_with(nets.policy, batch))
            fit = self.loss(actors, self.mixer, online, target, batch, rewards, self.gamma)
            loss = masked_mean(fit.loss, batch.played[..., None]) + _mean_regulariser(fit, batch)
            extra, report = extra_loss(online, target, fit)
            return loss + extra, (fit, report)

        (loss, (fit, report)), gradient = jax.value_and_grad(objective, has_aux=True)(state.online)
        online, optimiser = descend(self.optimiser, gradient, state.optimiser, state.online)
        updates = state.updates + 1
        after = ValueState(online, state.target, optimiser, updates).copied(updates % self.target_interval == 0)
        played = batch.played[..., None]
        metrics = (
            report
            | fit.report
            | {
                "loss": loss,
                "gradient_norm": optax.tree.norm(gradient),
                "parameter_norm": optax.tree.norm(online),
                "td_error": masked_mean(jnp.abs(fit.error), played),
                "q": masked_mean(fit.q, played),
                "target": masked_mean(fit.q - fit.error, played),
            }
        )
        return after, fit, metrics


def _mean_regulariser(fit: Fit, batch: Lanes) -> Float[Array, ""]:
    """Mean over the moments up to the longest episode's last step, the shorter ones' endings and padding counted, as in released QPLEX.

    On padding it counts as zero, which is what QPLEX's is there.
    """
    longest = jnp.max(batch.length)
    counted = batch.inside & (batch.time < longest)
    return jnp.sum(fit.regulariser * counted) / jnp.maximum(batch.length.shape[0] * longest, 1)
