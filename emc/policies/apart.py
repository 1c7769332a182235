"""The bonus apart from the policy: one value function explores, another exploits, and no weight has to be set.

The agents' own values (phi) learn from the extrinsic reward alone; they are what is tested and saved, and what a memory and priorities
speak of. A second value function (iota, summed over agents) learns from the bonus alone. An episode is played by a mixture of the two,

    a_i = argmax_a Q_i^phi / s_E + beta Q_i^iota,

with epsilon on top. The bonus is divided by the running deviation of its discounted sum, phi by that of its targets (s_E; 1 until a reward
was seen), so that the mixture is the same in every unit of rewards. How phi learns is not: its steps are of a fixed size, and what is new
has a priority in the unit of squared errors. With `largest_reward` all learn in a unit of their own, in which the largest reward seen so
far, of either sign, is that much: then everything is the same whatever the task's unit. When a larger one comes, what was learnt in the
smaller unit is not converted but learnt anew, and so is s_E; where rewards have rare outliers these decide the unit for good.

`beta` is drawn anew for each episode, from all of `weights` alike: whatever exploring earns, no punishment can switch it off, and phi is
never bent by it. With `blindly` below 1 the rest of the episodes have the weight whose last episodes earned most; where all that is found
at first is punishment, that is the one that discovers nothing. After `explore_steps` all of them have the smallest, 0, and only earn: phi
is then fitted to what its own play meets, which counts where chance decides.

iota's next actions are those of the episode's own mixture: it values exploring as it was done.
"""

from __future__ import annotations

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from emc.errors import UserError
from emc.lanes import Lanes, backwards
from emc.losses import TD
from emc.losses.fitting import ValueFunction, ValueState
from emc.mixers import VDN
from emc.optimisers import Optimiser, RMSprop
from emc.parts import Actors, Found, Metrics, Policy, Seen, Step
from emc.policies.agents import Whole, step_agents
from emc.policies.recurrent import RecurrentQ
from emc.types import EnvSpec, Episodes, Unroll, masked_mean
from emc.user_input import SMALLEST, check_number, check_size


class Scale(eqx.Module):
    """Running moments of something, those of long ago forgotten."""

    mean: Float[Array, ""]
    square: Float[Array, ""]
    mass: Float[Array, ""]

    @staticmethod
    def unknown() -> Scale:
        """Nothing seen yet."""
        return Scale(*(jnp.zeros(()) for _ in range(3)))

    def seeing(self, values: Float[Array, "M W"], mask: Bool[Array, "M W"], rate: float) -> Scale:
        """After a batch of values."""
        moments = (masked_mean(values, mask), masked_mean(values**2, mask), jnp.ones(()))
        return Scale(*((1 - rate) * old + rate * new for old, new in zip((self.mean, self.square, self.mass), moments, strict=True)))

    @property
    def deviation(self) -> Float[Array, ""]:
        """The standard deviation; 0 where nothing was seen."""
        mass = jnp.maximum(self.mass, SMALLEST)
        return jnp.sqrt(jnp.maximum(self.square / mass - (self.mean / mass) ** 2, 0.0))


class Arms(eqx.Module):
    """The last episodes' weights and returns; entry `added % size` is the next to be overwritten."""

    arm: Int[Array, " M"]
    episode_return: Float[Array, " M"]
    added: Int[Array, ""]

    def tried(self, arms: int) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
        """How often each was tried, and its mean return."""
        there = jnp.arange(self.arm.shape[0]) < self.added
        own = jax.nn.one_hot(self.arm, arms) * there[:, None]
        count = jnp.sum(own, axis=0)
        return count, self.episode_return @ own / jnp.maximum(count, 1.0)


class ApartState(eqx.Module):
    """What explores, and on which scales."""

    values: ValueState  # iota
    bonus: Scale  # of its discounted sums
    target: Scale  # of what phi is fitted to
    rewarded: Bool[Array, ""]  # whether any reward was seen
    arms: Arms
    earning: Bool[Array, ""]  # whether exploring is over
    largest: Float[Array, ""]  # reward seen so far, of either sign

    @property
    def value_scale(self) -> Float[Array, ""]:
        """s_E."""
        return jnp.where(self.rewarded, jnp.maximum(self.target.deviation, TINY), 1.0)


class ApartCarry(eqx.Module):
    """What the agents carry through an episode."""

    exploiting: Float[Array, "N H"]
    exploring: Float[Array, "N H"]
    arm: Int[Array, ""]


class Mixture(Actors):
    """Agents whose next action maximises what they earn and what they discover, in the mixture of each episode."""

    earned: Float[Array, "M W N A"]  # phi on its scale
    weight: Float[Array, "M W"]  # beta of the episode

    def decider(self, own: Seen) -> Seen:
        q = self.earned + self.weight[..., None, None] * own.unroll.q
        return jax.lax.stop_gradient(dataclasses.replace(own, unroll=dataclasses.replace(own.unroll, q=q)))


TINY = 1e-6  # no scale is smaller


@dataclasses.dataclass(frozen=True)
class Apart(Policy):
    """Exploring and exploiting by two value functions."""

    weights: tuple[float, ...] = (0.0, 0.25, 1.0, 4.0, 16.0)  # beta: of discovering beside earning; an episode has one of them
    blindly: float = 1.0  # share of episodes whose weight is drawn blindly; of the others it is judged by what it earned
    window: int = 90  # episodes by which weights are judged
    explore_steps: int = 0  # environment steps after which every episode has the smallest weight; 0: exploring never ends
    largest_reward: float = 0.0  # what the largest reward seen so far counts as, of either sign; 0: rewards count as they are paid
    scale_rate: float = 0.01  # at which scales follow, per gradient step
    optimiser: Optimiser = RMSprop()  # of iota, as everything below
    learning_rate: float = 5e-4
    gradient_clip: float = 10.0
    target_interval: int = 200  # gradient steps between hard copies

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= len(self.weights) <= 100 or not all(math.isfinite(weight) and weight >= 0 for weight in self.weights):
            raise UserError(f"policy.weights={self.weights} must be 1 to 100 numbers of at least 0; 0 only exploits")
        check_number("policy.blindly", self.blindly, "1 never judges weights by what they earn", low=0.0, high=1.0)
        check_number("policy.scale_rate", self.scale_rate, "1 forgets at once", low=SMALLEST, high=1.0)
        check_number("policy.largest_reward", self.largest_reward, "0 takes rewards as they are paid", low=0.0)
        if 0 < self.largest_reward < SMALLEST:
            raise UserError(
                f"policy.largest_reward={self.largest_reward} is too small to count in: 0 takes rewards as they are paid, 10 is usual"
            )
        for name in ("learning_rate", "gradient_clip"):
            check_number(f"policy.{name}", vars(self)[name], "it must be above 0", low=SMALLEST)
        check_size("policy.explore_steps", self.explore_steps, "0 explores for ever", low=0)
        for name in ("window", "target_interval"):
            check_size(f"policy.{name}", vars(self)[name], "choose a larger one", low=1)

    @property
    def takes_bonus(self) -> bool:
        return False

    @property
    def _agents(self) -> RecurrentQ:
        forms = {name: vars(self)[name] for name in ("hidden", "recurrent", "shared", "see_id", "see_action")}
        return RecurrentQ(**forms)

    def init_net(self, key: PRNGKeyArray, spec: EnvSpec) -> Whole:
        return self._agents.init_net(key, spec)

    def unroll(self, net: Whole, state: ApartState | tuple[()], batch: Lanes) -> Unroll:
        return self._agents.unroll(net, (), batch)

    def init(self, key: PRNGKeyArray, spec: EnvSpec) -> ApartState:
        arms = Arms(jnp.zeros(self.window, jnp.int32), jnp.zeros(self.window), jnp.zeros((), jnp.int32))
        never, nothing = jnp.zeros((), bool), jnp.zeros(())
        return ApartState(self._iota(0.0).init(key, spec), Scale.unknown(), Scale.unknown(), never, arms, never, nothing)

    def blank_choice(self, spec: EnvSpec) -> Int[Array, ""]:
        return jnp.zeros((), jnp.int8)

    def begin(self, net: Whole, state: ApartState, first: Shaped[Array, " S"], key: PRNGKeyArray, spec: EnvSpec) -> ApartCarry:
        coin, any_one = jax.random.split(key)
        blindly = jax.random.uniform(coin) < self.blindly
        arm = jnp.where(blindly, jax.random.randint(any_one, (), 0, len(self.weights)), jnp.argmax(self.promise(state)))
        arm = jnp.where(state.earning, self.weights.index(min(self.weights)), arm)
        hidden = jnp.zeros((spec.n_agents, self.hidden))
        return ApartCarry(hidden, hidden, arm)

    def promise(self, state: ApartState) -> Float[Array, " K"]:
        """What each weight earned lately on the scale of phi's targets, and how little is known of it."""
        count, mean = state.arms.tried(len(self.weights))
        mean = mean / self.unit(state)
        return jnp.where(count > 0, mean / state.value_scale + jnp.sqrt(1.0 / jnp.maximum(count, 1.0)), jnp.inf)

    def step(
        self,
        net: Whole,
        state: ApartState,
        carry: ApartCarry,
        obs: Shaped[Array, "N O"],
        available: Bool[Array, "N A"],
        previous: Int[Array, " N"],
        key: PRNGKeyArray,
        epsilon: Float[Array, ""],
    ) -> Step:
        seen = self.inputs(obs, previous, available.shape[-1])
        exploiting, earned = step_agents(net, seen, carry.exploiting)
        exploring, discovered = step_agents(state.values.online.policy, seen, carry.exploring)
        q = earned / state.value_scale + jnp.asarray(self.weights)[carry.arm] * discovered
        return Step(ApartCarry(exploiting, exploring, carry.arm), q, available, carry.arm.astype(jnp.int8))

    @property
    def own_unit(self) -> bool:
        return self.largest_reward > 0

    def unit(self, state: ApartState) -> Float[Array, ""] | float:
        return jnp.where(state.largest > 0, state.largest / self.largest_reward, 1.0) if self.own_unit else 1.0

    def tested(self, net: Whole, state: ApartState) -> Actors:
        """In the task's own unit, which is that of the last layer."""
        if self.own_unit:
            net = eqx.tree_at(lambda own: own.decode, net, jax.tree.map(lambda own: own * self.unit(state), net.decode))
        return Actors(self._agents, net, ())

    def observe(self, state: ApartState, fresh: Episodes) -> ApartState:
        arms, count = state.arms, fresh.reward.shape[0]
        skip = max(count - self.window, 0)  # of more than fit the last stay: no place is written twice
        at = (arms.added + jnp.arange(skip, count)) % self.window
        arms = Arms(
            arms.arm.at[at].set(fresh.choice[skip:, 0].astype(jnp.int32)),
            arms.episode_return.at[at].set(jnp.sum(fresh.reward[skip:], axis=1)),
            arms.added + count,
        )
        return dataclasses.replace(state, arms=arms, largest=jnp.maximum(state.largest, jnp.max(jnp.abs(fresh.reward))))

    def learn(self, state: ApartState, batch: Lanes, found: Found, gamma: float, env_steps: Int[Array, ""]) -> tuple[ApartState, Metrics]:
        sums = backwards(
            lambda later, now: jnp.where(now[1], now[0] + gamma * later, 0.0),
            batch,
            jnp.zeros_like(batch.reward[0]),
            (found.bonus, batch.played),
        )
        bonus = state.bonus.seeing(sums, batch.played, self.scale_rate)
        earned = self.unroll(found.net, (), batch).q / state.value_scale
        weight = jnp.asarray(self.weights)[batch.choice.astype(jnp.int32)]
        mixture = Mixture(self, found.net, (), earned, weight)
        values, _, metrics = self._iota(gamma).update(state.values, batch, found.bonus / jnp.maximum(bonus.deviation, TINY), mixture)
        target = state.target.seeing(jnp.mean(found.target, axis=-1), batch.played, self.scale_rate)
        rewarded = state.rewarded | jnp.any((batch.reward != 0.0) & batch.played)
        count, mean = state.arms.tried(len(self.weights))
        report = {f"apart_{name}": metrics[name] for name in ("loss", "q", "td_error", "gradient_norm")} | {
            "apart_bonus_scale": bonus.deviation,
            "apart_value_scale": state.value_scale,
            "apart_unit": jnp.asarray(self.unit(state)),
            "apart_weight": jnp.asarray(self.weights)[jnp.argmax(self.promise(state))],  # that seems to earn most
        }
        for k, beta in enumerate(self.weights):
            report |= {f"apart_share_{beta:g}": count[k] / jnp.maximum(jnp.sum(count), 1.0), f"apart_return_{beta:g}": mean[k]}
        earning = env_steps >= self.explore_steps if self.explore_steps else state.earning
        return ApartState(values, bonus, target, rewarded, state.arms, earning, state.largest), report

    def _iota(self, gamma: float) -> ValueFunction:
        return ValueFunction(self, VDN(), TD(), self.optimiser(self.learning_rate, self.gradient_clip), gamma, self.target_interval)
