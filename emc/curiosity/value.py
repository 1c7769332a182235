"""EMC's curiosity (Eq. 3): the error of predicting individual values that factorised learning makes.

A second value function phi with its own mixer (VDN) learns from the extrinsic reward only. A predictor psi learns to predict a slowly
following copy of phi's individual values; where agents influence each other those values move and the prediction errs. The bonus of a
step is the weighted mean over agents of the distance at the history after it.

What the released code does and the paper does not say stands in the trailing comments of the fields.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from emc.losses import TD
from emc.losses.fitting import ValueFunction, ValueState
from emc.mixers import VDN
from emc.names import SMALLEST, check_number, check_size
from emc.optimisers import adam, descend, init_optimiser, rmsprop
from emc.parts import Curiosity, Metrics, Mixer, Nets, Policy, ValueLoss
from emc.schedules import DecayingWeight, WeightState
from emc.types import EnvSpec, Episodes, masked_mean


class ValueCuriosityState(eqx.Module):
    """Everything the curiosity module learns."""

    values: ValueState  # phi and its hard target
    soft: PyTree  # phi's agents, followed slowly
    predictor: PyTree  # psi
    predictor_optimiser: optax.OptState
    weight: WeightState  # eta


@dataclasses.dataclass(frozen=True)
class ValueCuriosity(Curiosity):
    """Prediction errors of individual values as the team's bonus."""

    weight: DecayingWeight = DecayingWeight()  # eta; the paper's beta and eta are this one number
    mixer: Mixer = VDN()  # how phi is factorised
    loss: ValueLoss = TD()
    soft_update: float = 0.005  # released code; 0.05 in the paper
    target_scale: float = 10.0  # released code; 1 in the paper
    squared: bool = False  # psi minimises the mean distance in the released code, the mean squared distance in the paper
    look_ahead: bool = True  # distance at the history after the step in the released code, before it in the paper
    learning_rate: float = 5e-4  # RMSprop of phi
    predictor_learning_rate: float = 5e-4  # Adam of psi
    gradient_clip: float = 10.0
    target_interval: int = 200  # gradient steps between hard copies of phi

    def __post_init__(self) -> None:
        check_number("curiosity.soft_update", self.soft_update, "0 never follows, 1 follows at once", low=0.0, high=1.0)
        check_number("curiosity.target_scale", self.target_scale, "the released code has 10, the paper 1", low=0.0)
        for name in ("learning_rate", "predictor_learning_rate", "gradient_clip"):
            check_number(f"curiosity.{name}", vars(self)[name], "it must be above 0", low=SMALLEST)
        check_size("curiosity.target_interval", self.target_interval, "200 is usual", low=1)

    def init(self, key: PRNGKeyArray, spec: EnvSpec, policy: Policy, policy_net: PyTree) -> ValueCuriosityState:
        mixer_key, loss_key, predictor_key = jax.random.split(key, 3)
        # phi starts from the agents' own initial weights, psi from fresh ones, as released.
        phi = Nets(policy_net, self.mixer.init(mixer_key, spec), self.loss.init_net(loss_key, spec, policy))
        predictor = policy.init_net(predictor_key, spec)
        return self.start(policy, phi, predictor)

    def start(self, policy: Policy, phi: Nets, predictor: PyTree) -> ValueCuriosityState:
        """Begin from given weights."""
        values = self._values(policy, gamma=0.0).start(jax.tree.map(jnp.copy, phi))
        soft = jax.tree.map(jnp.copy, phi.policy)
        return ValueCuriosityState(values, soft, predictor, init_optimiser(self._predictor_optimiser, predictor), self.weight.init())

    def learn(
        self, state: ValueCuriosityState, batch: Episodes, policy: Policy, gamma: float, env_steps: Int[Array, ""]
    ) -> tuple[ValueCuriosityState, Float[Array, "B T"], Metrics]:
        played = batch.played[..., None]
        slow = self._visible(policy.unroll(state.soft, batch).q) * self.target_scale

        def prediction(predictor: PyTree) -> tuple[Float[Array, ""], Float[Array, "B T N"]]:
            distance = self._distance(self._visible(policy.unroll(predictor, batch).q), slow)
            return masked_mean(distance**2 if self.squared else distance, played), distance

        (prediction_loss, distance), gradient = jax.value_and_grad(prediction, has_aux=True)(state.predictor)
        bonus = state.weight.value * jnp.mean(distance, axis=-1) * batch.played  # Eq. 3, with psi and eta from before this step
        predictor, predictor_optimiser = descend(self._predictor_optimiser, gradient, state.predictor_optimiser, state.predictor)

        values, _, metrics = self._values(policy, gamma).update(state.values, batch, batch.reward)
        blend = self.soft_update
        soft = jax.tree.map(lambda new, old: (1 - blend) * old + blend * new, values.online.policy, state.soft)
        after = ValueCuriosityState(
            values,
            soft,
            predictor,
            predictor_optimiser,
            self.weight.advance(state.weight, env_steps),
        )
        report = {f"curiosity_{name}": value for name, value in metrics.items()}
        report |= {
            "curiosity_weight": state.weight.value,
            "curiosity_prediction_loss": prediction_loss,
            "curiosity_predictor_norm": optax.tree.norm(after.predictor),
        }
        return after, jax.lax.stop_gradient(bonus), report

    def _visible(self, q: Float[Array, "B T1 N A"]) -> Float[Array, "B T N A"]:
        """Values at the moment each step is judged by."""
        return q[:, 1:] if self.look_ahead else q[:, :-1]

    def _distance(self, predicted: Float[Array, "B T N A"], target: Float[Array, "B T N A"]) -> Float[Array, "B T N"]:
        """Euclidean over all actions; the small offset keeps it differentiable at zero (and is PyTorch's)."""
        return jnp.sqrt(jnp.sum((predicted - target + 1e-6) ** 2, axis=-1))

    def _values(self, policy: Policy, gamma: float) -> ValueFunction:
        optimiser = rmsprop(self.learning_rate, self.gradient_clip)
        return ValueFunction(policy, self.mixer, self.loss, optimiser, gamma, self.target_interval)

    @property
    def _predictor_optimiser(self) -> optax.GradientTransformation:
        return adam(self.predictor_learning_rate, self.gradient_clip)
