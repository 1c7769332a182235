"""What each part of a method must answer.

A part is a frozen dataclass: hyper-parameters plus pure functions. Its state is a pytree of arrays that the learner carries. Each part
answers one question and has up to three verbs: `init` once, `observe` once per collected batch of episodes, `learn` once per gradient step.
Parts are hashable and static under `jit`.
"""

from __future__ import annotations

import abc
import dataclasses

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from emc.types import AgentValues, EnvSpec, Episodes, Unroll

Metrics = dict[str, Float[Array, ""]]


class Mixed(eqx.Module):
    """A mixer's answer at one moment."""

    q: Float[Array, "*B K"]
    regulariser: Float[Array, "*B"]  # added to the loss, averaged over steps; 0 for most mixers


@dataclasses.dataclass(frozen=True)
class Part(abc.ABC):  # noqa: B024 - the common ancestor carries no behaviour, only the frozen-dataclass contract
    """Hyper-parameters plus pure functions."""


@dataclasses.dataclass(frozen=True)
class Policy(Part):
    """Who decides: turns what agents saw into a value for each action."""

    @abc.abstractmethod
    def init_net(self, key: PRNGKeyArray, spec: EnvSpec) -> PyTree:
        """Fresh weights."""

    @abc.abstractmethod
    def begin(self, net: PyTree, spec: EnvSpec) -> PyTree:
        """What the agents carry through an episode, at its start."""

    @abc.abstractmethod
    def step(
        self, net: PyTree, carry: PyTree, obs: Shaped[Array, "*B N O"], previous: Int[Array, "*B N"]
    ) -> tuple[PyTree, Float[Array, "*B N A"]]:
        """Values at one moment; `previous` is the last action, -1 before the first."""

    @abc.abstractmethod
    def unroll(self, net: PyTree, episodes: Episodes) -> Unroll:
        """Values along whole episodes."""


@dataclasses.dataclass(frozen=True)
class Mixer(Part):
    """How the agents' values make the team's."""

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray, spec: EnvSpec) -> PyTree:
        """Fresh weights."""

    @abc.abstractmethod
    def __call__(self, net: PyTree, values: AgentValues, state: Shaped[Array, " S"]) -> Mixed:
        """The team's value at one moment."""


class Recollection(eqx.Module):
    """What the memory says about the transitions of a batch."""

    target: Float[Array, "B T"]  # r + gamma * H(s')
    known: Bool[Array, "B T"]  # whether H(s') was found


@dataclasses.dataclass(frozen=True)
class Memory(Part):
    """What the best return ever seen from a state was."""

    @property
    @abc.abstractmethod
    def loss_weight(self) -> float:
        """Weight lambda of the memory loss (Eq. 8)."""

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray, spec: EnvSpec) -> PyTree:
        """An empty memory."""

    @abc.abstractmethod
    def observe(self, state: PyTree, fresh: Episodes, gamma: float) -> PyTree:
        """Write the returns of freshly collected episodes (Eq. 6)."""

    @abc.abstractmethod
    def recall(self, state: PyTree, batch: Episodes, gamma: float) -> tuple[PyTree, Recollection]:
        """Look up the states that the batch's transitions led to (Eq. 7); looking refreshes what is found."""

    @abc.abstractmethod
    def metrics(self, state: PyTree) -> Metrics:
        """How full the memory is."""


class Nets(eqx.Module):
    """All weights that one value function is made of, trained by one optimiser and copied to one target."""

    policy: PyTree
    mixer: PyTree
    loss: PyTree  # what a loss adds of its own; () for most


class Fit(eqx.Module):
    """How well values fit their targets, per step."""

    loss: Float[Array, "B T K"]
    q: Float[Array, "B T K"]  # the value that is being fitted
    error: Float[Array, "B T K"]  # its temporal-difference error
    regulariser: Float[Array, "B T"]


@dataclasses.dataclass(frozen=True)
class ValueLoss(Part):
    """What the team's value is fitted to."""

    @abc.abstractmethod
    def init_net(self, key: PRNGKeyArray, spec: EnvSpec, policy: Policy) -> PyTree:
        """Fresh weights of what the loss adds of its own."""

    @abc.abstractmethod
    def __call__(
        self, policy: Policy, mixer: Mixer, online: Nets, target: Nets, batch: Episodes, reward: Float[Array, "B T"], gamma: float
    ) -> Fit:
        """Errors along whole episodes; differentiable in `online` only."""


@dataclasses.dataclass(frozen=True)
class Curiosity(Part):
    """What is novel."""

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray, spec: EnvSpec, policy: Policy, policy_net: PyTree) -> PyTree:
        """Fresh state; `policy_net` holds the initial weights of the agents."""

    @abc.abstractmethod
    def learn(
        self, state: PyTree, batch: Episodes, policy: Policy, gamma: float, env_steps: Int[Array, ""]
    ) -> tuple[PyTree, Float[Array, "B T"], Metrics]:
        """One gradient step; also the bonus of each step, already weighted, as it was before the step."""
