"""EMC's curiosity (Eq. 3): the error of predicting individual values that factorised learning makes.

A second value function phi with its own mixer (VDN) learns from the extrinsic reward only. A predictor psi learns to predict a slowly
following copy of phi's individual values; where agents influence each other those values move and the prediction errs. The bonus of a
step is the weighted mean over agents of the distance at the history after it.

What the released code does and the paper does not say stands in the trailing comments of the fields. The paper's design choices are fields
too; their learners were not released, so what the paper leaves open is chosen here:

* EMC-TD, `novelty="td_error"`: |error of phi's team value| / N at the step itself, with phi's own hard target; nothing is predicted. The
  released code has a flag for it and no configuration; it leaves out the division, as `per_agent=False` does.
* EMC-Ind, `novelty="change"`: the distance between phi and its slow copy, both scaled like the prediction's target; nothing is predicted.
* EMC-Cen, `loss=CentralTD()` with `novelty="td_error"`: phi is a critic of the state, all histories and actions; the acting agents choose
  its next joint action.
* EMC-Dec, `mixer=Independent()`: phi's agents learn each on its own.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from emc.errors import UserError
from emc.lanes import Lanes, ahead, along
from emc.losses import TD, CentralTD
from emc.losses.fitting import ValueFunction, ValueState
from emc.mixers import VDN
from emc.nets import distance
from emc.optimisers import Adam, Optimiser, RMSprop, descend, init_optimiser
from emc.parts import Actors, Curiosity, Metrics, Mixer, Nets, Policy, ValueLoss
from emc.schedules import DecayingWeight, WeightState
from emc.types import EnvSpec, masked_mean
from emc.user_input import SMALLEST, check_number, check_size, lookup

Novelty = Literal["prediction", "change", "td_error"]


class ValueCuriosityState(eqx.Module):
    """Everything the curiosity module learns."""

    values: ValueState | tuple[()]  # phi and its hard target; () where the policy's agents are phi
    soft: PyTree  # phi's agents, followed slowly
    predictor: PyTree  # psi; () where nothing is predicted
    predictor_optimiser: optax.OptState
    weight: WeightState  # eta


@dataclasses.dataclass(frozen=True)
class ValueCuriosity(Curiosity):
    """Prediction errors of individual values as the team's bonus."""

    weight: DecayingWeight = DecayingWeight()  # eta; the paper's beta and eta are this one number
    novelty: Novelty = "prediction"  # what the bonus measures
    mixer: Mixer = VDN()  # how phi is factorised
    loss: ValueLoss = TD()
    soft_update: float = 0.005  # released code; 0.05 in the paper
    target_scale: float = 10.0  # released code; 1 in the paper
    squared: bool = False  # psi minimises the mean distance in the released code, the mean squared distance in the paper
    look_ahead: bool = True  # distance at the history after the step in the released code, before it in the paper
    own_values: bool = True  # False: the policy's agents are phi, which is for policies that keep the bonus apart
    per_agent: bool = True  # a team error is divided by the number of agents in the paper, and is not in the released code
    optimiser: Optimiser = RMSprop()  # of phi
    predictor_optimiser: Optimiser = Adam()  # of psi
    learning_rate: float = 5e-4  # of phi
    predictor_learning_rate: float = 5e-4  # of psi
    gradient_clip: float = 10.0
    target_interval: int = 200  # gradient steps between hard copies of phi

    def __post_init__(self) -> None:
        lookup("novelty", self.novelty, dict.fromkeys(get_args(Novelty)))
        if not self.own_values and self.novelty == "td_error":
            raise UserError("curiosity.own_values=False leaves no error of phi to be curious about: choose another novelty")
        check_number("curiosity.soft_update", self.soft_update, "0 never follows, 1 follows at once", low=0.0, high=1.0)
        check_number("curiosity.target_scale", self.target_scale, "the released code has 10, the paper 1", low=0.0)
        for name in ("learning_rate", "predictor_learning_rate", "gradient_clip"):
            check_number(f"curiosity.{name}", vars(self)[name], "it must be above 0", low=SMALLEST)
        check_size("curiosity.target_interval", self.target_interval, "200 is usual", low=1)

    def init(self, key: PRNGKeyArray, spec: EnvSpec, policy: Policy, policy_net: PyTree) -> ValueCuriosityState:
        mixer_key, loss_key, predictor_key = jax.random.split(key, 3)
        # phi starts from the agents' own initial weights, psi from fresh ones, as released.
        phi = Nets(policy_net, self.mixer.init(mixer_key, policy.mixer_spec(spec)), self.loss.init_net(loss_key, spec, policy))
        return self.start(policy, phi, policy.init_net(predictor_key, spec) if self.novelty == "prediction" else ())

    def start(self, policy: Policy, phi: Nets, predictor: PyTree) -> ValueCuriosityState:
        """Begin from given weights."""
        values = self._values(policy, gamma=0.0).start(jax.tree.map(jnp.copy, phi)) if self.own_values else ()
        soft = jax.tree.map(jnp.copy, phi.policy)
        return ValueCuriosityState(values, soft, predictor, init_optimiser(self._descent, predictor), self.weight.init())

    def learn(
        self, state: ValueCuriosityState, batch: Lanes, actors: Actors, gamma: float, env_steps: Int[Array, ""]
    ) -> tuple[ValueCuriosityState, Float[Array, "M W"], Metrics]:
        report: Metrics = {"curiosity_weight": state.weight.value}
        values, error, phi, next_phi = state.values, batch.reward[..., None], actors.net, actors.net
        if isinstance(values, ValueState):
            phi = values.online.policy
            values, fit, metrics = self._values(actors.policy, gamma).update(values, batch, batch.reward, actors)
            report |= {f"curiosity_{name}": value for name, value in metrics.items()}
            error, next_phi = fit.error, values.online.policy
        predictor, predictor_optimiser = state.predictor, state.predictor_optimiser
        match self.novelty:  # each with networks and weight from before this step
            case "prediction":
                predictor, predictor_optimiser, apart, prediction_report = self._predict(state, batch, actors)
                report |= prediction_report
                novelty = jnp.mean(apart, axis=-1)  # Eq. 3
            case "change":
                fast, slow = (actors.unroll_with(net, batch).q for net in (phi, state.soft))
                scale = self.target_scale
                novelty = jnp.mean(self._judged(distances(fast, slow, batch, scale, scale)), axis=-1)
            case "td_error":
                novelty = jnp.sum(jnp.abs(error), axis=-1) / (batch.action.shape[-1] if self.per_agent else 1)
        bonus = jax.lax.stop_gradient(state.weight.value * novelty * batch.played)
        blend = self.soft_update
        soft = jax.tree.map(lambda new, old: (1 - blend) * old + blend * new, next_phi, state.soft)
        weight = self.weight.advance(state.weight, env_steps)
        return ValueCuriosityState(values, soft, predictor, predictor_optimiser, weight), bonus, report

    def extrinsic_agents(self, state: ValueCuriosityState) -> PyTree | None:
        joint = isinstance(self.loss, CentralTD)  # a critic of all, by which no agent could act
        return state.values.online.policy if isinstance(state.values, ValueState) and not joint else None

    def _predict(
        self, state: ValueCuriosityState, batch: Lanes, actors: Actors
    ) -> tuple[PyTree, optax.OptState, Float[Array, "M W N"], Metrics]:
        """One gradient step of psi, and how far it was off before."""
        slow = actors.unroll_with(state.soft, batch).q

        def prediction(predictor: PyTree) -> tuple[Float[Array, ""], Float[Array, "M W N"]]:
            apart = self._judged(distances(actors.unroll_with(predictor, batch).q, slow, batch, 1.0, self.target_scale))
            return masked_mean(apart**2 if self.squared else apart, batch.played[..., None]), apart

        (loss, apart), gradient = jax.value_and_grad(prediction, has_aux=True)(state.predictor)
        predictor, optimiser = descend(self._descent, gradient, state.predictor_optimiser, state.predictor)
        report = {
            "curiosity_prediction_loss": loss,
            "curiosity_predictor_gradient_norm": optax.tree.norm(gradient),
            "curiosity_predictor_norm": optax.tree.norm(predictor),
        }
        return predictor, optimiser, apart, report

    def _judged(self, apart: Float[Array, "M W N"]) -> Float[Array, "M W N"]:
        """Distances at the moment each step is judged by."""
        return ahead(apart) if self.look_ahead else apart

    def _values(self, policy: Policy, gamma: float) -> ValueFunction:
        optimiser = self.optimiser(self.learning_rate, self.gradient_clip)
        return ValueFunction(policy, self.mixer, self.loss, optimiser, gamma, self.target_interval)

    @property
    def _descent(self) -> optax.GradientTransformation:
        """How psi learns."""
        return self.predictor_optimiser(self.predictor_learning_rate, self.gradient_clip)


def distances(
    predicted: Float[Array, "M W K F"], known: Float[Array, "M W K F"], batch: Lanes, scale: float = 1.0, known_scale: float = 1.0
) -> Float[Array, "M W K"]:
    """How far two scaled tracks are apart at each moment; no gradient flows to the known one."""

    def work(weights: tuple[()], predicted: Array, fixed: tuple[()], known: Array) -> Float[Array, "B W K"]:
        return distance(predicted * scale, known[:-1] * known_scale)

    return along(work, batch, (), predicted, data=known)
