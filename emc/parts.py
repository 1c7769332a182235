"""What each part of a method must answer.

A part is a frozen dataclass: hyper-parameters plus pure functions. Its state is a pytree of arrays that the learner carries. Each part
answers one question and has up to three verbs: `init` once, `observe` once per collected batch of episodes, `learn` once per gradient step.
Parts are hashable and static under `jit`.
"""

from __future__ import annotations

import abc
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from emc.lanes import Lanes
from emc.types import AgentValues, EnvSpec, Episodes, Unroll
from emc.user_input import check_size

Metrics = dict[str, Float[Array, ""]]


class Mixed(eqx.Module):
    """A mixer's answer at one moment."""

    q: Float[Array, "*B K"]
    regulariser: Float[Array, "*B"]  # added to the loss, averaged over steps; 0 for most mixers


@dataclasses.dataclass(frozen=True)
class Part(abc.ABC):  # noqa: B024 - the common ancestor carries no behaviour, only the frozen-dataclass contract
    """Hyper-parameters plus pure functions."""


class Nets(eqx.Module):
    """All weights that one value function is made of, trained by one optimiser and copied to one target."""

    policy: PyTree
    mixer: PyTree
    loss: PyTree  # what a loss adds of its own; () for most


class Seen(eqx.Module):
    """One set of weights, and what its agents make of a batch."""

    nets: Nets
    unroll: Unroll


class Step(eqx.Module):
    """What a policy makes of one moment."""

    carry: PyTree
    q: Float[Array, "N A"]
    preferred: Bool[Array, "N A"]  # the greedy choice is made among these, where any of them is available
    choice: PyTree  # recorded with the step


class Found(eqx.Module):
    """What a gradient step of the team's value has found out, for a policy that learns by other means too."""

    net: PyTree  # the agents' weights before it
    bonus: Float[Array, "M W"]
    target: Float[Array, "M W K"]  # what the team's value was fitted to


@dataclasses.dataclass(frozen=True)
class Policy(Part):
    """Who decides: turns what agents saw into a value for each action.

    Most policies are their network and nothing else; those that also learn by other means (a latent policy, roles) carry a state.
    """

    hidden: int = dataclasses.field(default=64, kw_only=True)  # width of the encoder and of the GRU
    recurrent: bool = dataclasses.field(default=True, kw_only=True)  # a GRU; otherwise a second layer, and agents see the moment only
    shared: bool = dataclasses.field(default=True, kw_only=True)  # one network for all agents; otherwise each has its own
    see_id: bool = dataclasses.field(default=True, kw_only=True)  # which agent it is, among its inputs
    see_action: bool = dataclasses.field(default=True, kw_only=True)  # its last action, among its inputs

    def __post_init__(self) -> None:
        check_size("policy.hidden", self.hidden, "64 is usual", low=1)

    def refuse(self, restart_at: int) -> str:
        """Why exploration cannot start again after so many environment steps (0: never); empty if it can."""
        return ""

    @property
    def reads_first_state(self) -> bool:
        """Whether an episode must begin with the global state."""
        return False

    @property
    def takes_bonus(self) -> bool:
        """Whether the bonus is a reward of the team's value; a policy that says no learns from it by itself."""
        return True

    @abc.abstractmethod
    def init_net(self, key: PRNGKeyArray, spec: EnvSpec) -> PyTree:
        """Fresh weights of what is fitted together with the team's value."""

    def init(self, key: PRNGKeyArray, spec: EnvSpec) -> PyTree:
        """The initial state of what is learnt apart from the team's value (roles, a latent); nothing for most."""
        return ()

    def blank_choice(self, spec: EnvSpec) -> PyTree:
        """What is recorded of its decisions at one step, all zero."""
        return ()

    @abc.abstractmethod
    def begin(self, net: PyTree, state: PyTree, first: Shaped[Array, " S"], key: PRNGKeyArray, spec: EnvSpec) -> PyTree:
        """What the agents carry through an episode, at its start; `first` is the global state there."""

    @abc.abstractmethod
    def step(
        self,
        net: PyTree,
        state: PyTree,
        carry: PyTree,
        obs: Shaped[Array, "N O"],
        available: Bool[Array, "N A"],
        previous: Int[Array, " N"],
        key: PRNGKeyArray,
        epsilon: Float[Array, ""],
    ) -> Step:
        """Values at one moment; `previous` is the last action, -1 before the first."""

    def inputs(self, obs: Shaped[Array, "*B N O"], previous: Int[Array, "*B N"], n_actions: int) -> Float[Array, "*B N I"]:
        """What its networks read: each agent's observation, its previous action as one-hot (zeros for -1), its id as one-hot."""
        n_agents = obs.shape[-2]
        seen = [obs.astype(jnp.float32)]
        if self.see_action:
            seen.append(jax.nn.one_hot(previous, n_actions))
        if self.see_id:
            seen.append(jnp.broadcast_to(jnp.eye(n_agents), (*obs.shape[:-1], n_agents)))
        return jnp.concatenate(seen, axis=-1)

    def input_size(self, spec: EnvSpec) -> int:
        """How many numbers that are."""
        return spec.obs_size + spec.n_actions * self.see_action + spec.n_agents * self.see_id

    @abc.abstractmethod
    def unroll(self, net: PyTree, state: PyTree, batch: Lanes) -> Unroll:
        """Values along whole episodes."""

    def mixer_spec(self, spec: EnvSpec) -> EnvSpec:
        """The sizes that a mixer meets: those of the environment, with the context joined to the state."""
        return spec

    def auxiliary_loss(
        self, online: Seen, target: Seen, state: PyTree, batch: Lanes, reward: Float[Array, "M W"], gamma: float
    ) -> tuple[Float[Array, ""], Metrics]:
        """What is minimised beside the team's value; differentiable in `online` only."""
        return jnp.zeros(()), {}

    def observe(self, state: PyTree, fresh: Episodes) -> PyTree:
        """See freshly collected episodes."""
        return state

    def learn(self, state: PyTree, batch: Lanes, found: Found, gamma: float, env_steps: Int[Array, ""]) -> tuple[PyTree, Metrics]:
        """One step of learning by other means."""
        return state, {}

    def meaning_changed(self, before: PyTree, after: PyTree) -> Bool[Array, ""]:
        """Whether that step changed what the values refer to (new roles, say): the target network is then copied at once."""
        return jnp.zeros((), bool)

    @property
    def own_unit(self) -> bool:
        """Whether its values count rewards in a unit of their own."""
        return False

    def unit(self, state: PyTree) -> Float[Array, ""] | float:
        """How much reward counts as 1 to the values that are learnt; something else than 1 only if it has a unit of its own."""
        return 1.0

    def tested(self, net: PyTree, state: PyTree) -> Actors:
        """The agents that are tested and kept: those that explore, without exploring, for most."""
        return Actors(self, net, state)


class Actors(eqx.Module):
    """The agents as they are now."""

    policy: Policy = eqx.field(static=True)
    net: PyTree
    state: PyTree

    def unroll(self, batch: Lanes) -> Unroll:
        """Their values along whole episodes."""
        return self.policy.unroll(self.net, self.state, batch)

    def unroll_with(self, net: PyTree, batch: Lanes) -> Unroll:
        """The values that other weights would give them."""
        return self.policy.unroll(net, self.state, batch)

    def decider(self, own: Seen) -> Seen:
        """Who chooses the next actions that a value is judged by: the value's own agents."""
        return own


@dataclasses.dataclass(frozen=True)
class Mixer(Part):
    """How the agents' values make the team's."""

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray, spec: EnvSpec) -> PyTree:
        """Fresh weights."""

    @abc.abstractmethod
    def __call__(self, net: PyTree, values: AgentValues, state: Shaped[Array, " S"]) -> Mixed:
        """The team's value at one moment."""


class Prospect(eqx.Module):
    """What is known of the states that steps led to, for an incentive."""

    value: Float[Array, "M W"]  # H(s'); 0 where it is not known
    share: Float[Array, "M W"]  # of visits that were followed by a win


class Recollection(eqx.Module):
    """What the memory says about the transitions of a batch."""

    target: Float[Array, "M W"]  # r + gamma * H(s')
    known: Bool[Array, "M W"]  # whether H(s') was found
    prospect: Prospect | None = None  # of a memory that pays for states from which others have won

    def per(self, unit: Float[Array, ""] | float) -> Recollection:
        """The same in a unit of so much reward."""
        prospect = None if self.prospect is None else dataclasses.replace(self.prospect, value=self.prospect.value / unit)
        return dataclasses.replace(self, target=self.target / unit, prospect=prospect)


@dataclasses.dataclass(frozen=True)
class Memory(Part):
    """What the best return ever seen from a state was."""

    @property
    @abc.abstractmethod
    def loss_weight(self) -> float:
        """Weight lambda of the memory loss (Eq. 8)."""

    def refuse(self, loss: ValueLoss) -> str:
        """Why it cannot be used beside a loss; empty if it can."""
        return ""

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray, spec: EnvSpec) -> PyTree:
        """An empty memory."""

    @abc.abstractmethod
    def observe(self, state: PyTree, fresh: Episodes, gamma: float, won: Bool[Array, " B"] | None = None) -> PyTree:
        """Write the returns of freshly collected episodes (Eq. 6), of which some were won, if that is known."""

    @abc.abstractmethod
    def recall(self, state: PyTree, batch: Lanes, gamma: float) -> tuple[PyTree, Recollection]:
        """Look up the states that the batch's transitions led to (Eq. 7); looking refreshes what is found."""

    @abc.abstractmethod
    def metrics(self, state: PyTree) -> Metrics:
        """How full the memory is."""


class Fit(eqx.Module):
    """How well values fit their targets, per step."""

    loss: Float[Array, "M W K"]
    q: Float[Array, "M W K"]  # the value that is being fitted
    error: Float[Array, "M W K"]  # its temporal-difference error
    regulariser: Float[Array, "M W"]
    report: Metrics = eqx.field(default_factory=dict)  # what the loss has to say of its terms


@dataclasses.dataclass(frozen=True)
class ValueLoss(Part):
    """What the team's value is fitted to."""

    def refuse(self, mixer: Mixer) -> str:
        """Why it cannot fit the values of a mixer; empty if it can."""
        return ""

    @abc.abstractmethod
    def init_net(self, key: PRNGKeyArray, spec: EnvSpec, policy: Policy) -> PyTree:
        """Fresh weights of what the loss adds of its own."""

    @abc.abstractmethod
    def __call__(
        self, actors: Actors, mixer: Mixer, online: Seen, target: Seen, batch: Lanes, reward: Float[Array, "M W"], gamma: float
    ) -> Fit:
        """Errors along whole episodes; differentiable in `online` only. `actors` unroll what the loss adds of its own."""


@dataclasses.dataclass(frozen=True)
class Curiosity(Part):
    """Intrinsic rewards: how novel each step of a batch is."""

    @abc.abstractmethod
    def init(self, key: PRNGKeyArray, spec: EnvSpec, policy: Policy, policy_net: PyTree) -> PyTree:
        """Fresh state; `policy_net` holds the initial weights of the agents."""

    def observe(self, state: PyTree, fresh: Episodes) -> PyTree:
        """See freshly collected episodes."""
        return state

    def extrinsic_agents(self, state: PyTree) -> PyTree | None:
        """Weights of agents that learn from the extrinsic reward alone, if it has such: they are tested beside the policy."""
        return None

    @abc.abstractmethod
    def learn(
        self, state: PyTree, batch: Lanes, actors: Actors, gamma: float, env_steps: Int[Array, ""]
    ) -> tuple[PyTree, Float[Array, "M W"], Metrics]:
        """One gradient step; also the bonus of each step, already weighted, as it was before the step."""
