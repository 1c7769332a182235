"""Random network distillation (Burda et al. 2019) as the paper's QPLEX-Global and QPLEX-Local use it.

A fixed random network is predicted by a trained one; where it errs is new. `of="state"` looks at the global state that a step led to,
`of="history"` at each agent's history after it (the mean over agents). The learners of both were not released: the networks are the modules
left over in the released code, everything else is as in EMC (distance as loss and bonus, weight schedule, prioritised replay).
"""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from emc.curiosity.value import distances
from emc.lanes import Lanes, ahead, along
from emc.nets import MLP, AgentNet
from emc.optimisers import adam, descend, init_optimiser
from emc.parts import Actors, Curiosity, Metrics, Policy
from emc.policies.agents import unroll_agents
from emc.schedules import DecayingWeight, WeightState
from emc.types import EnvSpec, masked_mean
from emc.user_input import SMALLEST, check_number, check_size, lookup

Subject = Literal["state", "history"]


class RNDState(eqx.Module):
    """The random network, the one that predicts it, and the weight of the bonus."""

    random: MLP | AgentNet
    predictor: MLP | AgentNet
    optimiser: optax.OptState
    weight: WeightState


@dataclasses.dataclass(frozen=True)
class RND(Curiosity):
    """Errors of predicting a random network as the team's bonus."""

    of: Subject = "state"
    weight: DecayingWeight = DecayingWeight()  # EMC's schedule; errors here have another scale than values have
    embedding: int = 64  # numbers predicted; not given anywhere
    hidden: int = 64
    learning_rate: float = 5e-4  # Adam
    gradient_clip: float = 10.0

    def __post_init__(self) -> None:
        lookup("subject", self.of, dict.fromkeys(get_args(Subject)))
        for name in ("embedding", "hidden"):
            check_size(f"curiosity.{name}", vars(self)[name], "64 is usual", low=1)
        for name in ("learning_rate", "gradient_clip"):
            check_number(f"curiosity.{name}", vars(self)[name], "it must be above 0", low=SMALLEST)

    def init(self, key: PRNGKeyArray, spec: EnvSpec, policy: Policy, policy_net: PyTree) -> RNDState:
        random, predictor = (self._net(k, spec, policy) for k in jax.random.split(key))
        return RNDState(random, predictor, init_optimiser(self._optimiser, predictor), self.weight.init())

    def _net(self, key: PRNGKeyArray, spec: EnvSpec, policy: Policy) -> MLP | AgentNet:
        if self.of == "state":
            return MLP.init(key, (spec.state_size, self.hidden, self.hidden, self.embedding))
        return AgentNet.init(key, policy.input_size(spec), self.hidden, self.embedding)

    def learn(
        self, state: RNDState, batch: Lanes, actors: Actors, gamma: float, env_steps: Int[Array, ""]
    ) -> tuple[RNDState, Float[Array, "M W"], Metrics]:
        known = _embed(state.random, batch)

        def prediction(predictor: MLP | AgentNet) -> tuple[Float[Array, ""], Float[Array, "M W K"]]:
            error = ahead(distances(_embed(predictor, batch), known, batch))
            return masked_mean(error, batch.played[..., None]), error

        (loss, error), gradient = jax.value_and_grad(prediction, has_aux=True)(state.predictor)
        bonus = jax.lax.stop_gradient(state.weight.value * jnp.mean(error, axis=-1) * batch.played)
        predictor, optimiser = descend(self._optimiser, gradient, state.optimiser, state.predictor)
        report = {
            "curiosity_weight": state.weight.value,
            "curiosity_prediction_loss": loss,
            "curiosity_predictor_norm": optax.tree.norm(predictor),
        }
        return RNDState(state.random, predictor, optimiser, self.weight.advance(state.weight, env_steps)), bonus, report

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        return adam(self.learning_rate, self.gradient_clip)


def _embed(net: MLP | AgentNet, batch: Lanes) -> Float[Array, "M W K E"]:
    """What a network makes of each moment: one embedding of the state, or one of each agent's history."""
    if isinstance(net, MLP):
        return along(lambda net, _, __, state: net(state[:-1])[..., None, :], batch, net, data=batch.state)
    return unroll_agents(net, batch)[1]
