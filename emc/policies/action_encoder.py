"""What actions do (RODE, Wang et al. 2021, Eq. 1): embeddings from which the next observation and the reward can be predicted.

The loss is a masked mean over the steps that were played and over agents; the released code averages over padding too.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from emc.lanes import Lanes, along
from emc.nets import MLP, distance
from emc.types import EnvSpec, masked_mean


class ActionEncoder(eqx.Module):
    """Encodes an agent's situation and its action, and decodes the two to what came of it; `E` is the size of an action's embedding."""

    situation: MLP  # of the agent's observation and the others' actions
    action: MLP
    next_obs: MLP
    reward: MLP

    @staticmethod
    def init(key: PRNGKeyArray, spec: EnvSpec, hidden: int, code: int, embedding: int) -> ActionEncoder:
        """Fresh weights; `code` is the size of an encoded situation and the width of the decoders."""
        keys, actions = jax.random.split(key, 4), spec.n_actions
        return ActionEncoder(
            situation=MLP.init(keys[0], (spec.obs_size + (spec.n_agents - 1) * actions, hidden, code)),
            action=MLP.init(keys[1], (actions, hidden, embedding)),
            next_obs=MLP.init(keys[2], (code + embedding, code, spec.obs_size)),
            reward=MLP.init(keys[3], (code + embedding, code, 1)),
        )

    def embeddings(self, n_actions: int) -> Float[Array, "A E"]:
        """The embedding of every action."""
        return self.action(jnp.eye(n_actions))

    def predict(
        self, obs: Shaped[Array, "*B N O"], action: Int[Array, "*B N"], n_actions: int
    ) -> tuple[Float[Array, "*B N O"], Float[Array, "*B N"]]:
        """Each agent's guess of its next observation and of the team's reward."""
        taken = jax.nn.one_hot(action, n_actions)
        situation = self.situation(jnp.concatenate([obs.astype(jnp.float32), _others(taken)], axis=-1))
        both = jnp.concatenate([situation, taken @ self.embeddings(n_actions)], axis=-1)
        return self.next_obs(both), self.reward(both)[..., 0]


def prediction_loss(encoder: ActionEncoder, batch: Lanes, reward_weight: float) -> Float[Array, ""]:
    """How far the guesses are off: the mean distance to the next observation and the weighted mean squared error of the reward."""

    def work(encoder: ActionEncoder, tracks: tuple[()], fixed: tuple[()], data: tuple[Array, ...]) -> tuple[Array, Array]:
        obs, action, reward = data
        obs = obs[..., : encoder.next_obs.layers[-1].weight.shape[0]]  # inputs begin with the observation
        next_obs, guess = encoder.predict(obs[:-1], action[:-1], batch.available.shape[-1])
        return distance(next_obs, obs[1:]), (guess - reward[:-1, ..., None]) ** 2

    off, wrong = along(work, batch, encoder, data=(batch.inputs, batch.action, batch.reward))
    played = batch.played[..., None]
    return masked_mean(off, played) + reward_weight * masked_mean(wrong, played)


def _others(taken: Float[Array, "*B N A"]) -> Float[Array, "*B N M"]:
    """The actions of all other agents side by side, in their order."""
    n_agents, n_actions = taken.shape[-2:]
    others = np.array([[j for j in range(n_agents) if j != i] for i in range(n_agents)], np.int32)
    return taken[..., others, :].reshape(*taken.shape[:-1], (n_agents - 1) * n_actions)
