"""Climbing and Penalty: one table of payoffs, played many times over without being told what was played (Claus and Boutilier 1998).

In `Climbing` a mistake beside the best entry costs `k`, and the entries that are safe whatever the other does pay less; in `Penalty` two
best entries must not be mixed up, which costs `k`. Values of single actions, averaged over what the other one does, point away from the
best entry: relative overgeneralisation. An episode repeats the table 25 times, as benchmarks do since Papoudakis et al. (2021); agents
see a constant, so that only what they remember of themselves tells one step from another. The last step is `terminated`.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from emc.envs.matrix import Payoff, World, after, as_table, draw_tables, last_reward, played, unplayed
from emc.types import EnvSpec, Timestep
from emc.user_input import Number, check_number, check_size, number

ACTIONS = 3
LARGEST_MISTAKE = "it is what a mistake pays, so give a negative number or 0."


class Repeated(eqx.Module):
    """A table, played several times."""

    k: eqx.AbstractVar[Number]
    episode_limit: eqx.AbstractVar[int]

    def __check_init__(self) -> None:
        check_size("episode_limit", self.episode_limit, "allow some steps, such as the default 25.", low=1)
        check_number("k", self.k, LARGEST_MISTAKE, high=0.0)

    @property
    def payoff(self) -> Payoff:
        """One row for each action of agent 0, one column for each of agent 1."""
        raise NotImplementedError

    @property
    def spec(self) -> EnvSpec:
        """The sizes of the game."""
        return EnvSpec(
            n_agents=2, n_actions=ACTIONS, obs_size=1, state_size=1, episode_limit=self.episode_limit, obs_dtype="bool", state_dtype="bool",
            winnable=False,  # scored by its return, as elsewhere; `won` tells that every step paid the best entry
        )  # fmt: skip

    def reset(self, key: PRNGKeyArray) -> tuple[World, Timestep]:
        """Start a game."""
        world = unplayed(self.episode_limit)
        return world, self._show(world)

    def step(self, world: World, action: Int[Array, " N"], key: PRNGKeyArray) -> tuple[World, Timestep]:
        """Pay what the joint action is worth."""
        world = after(world, action, self._table[action[0], action[1]])
        return world, self._show(world)

    def draw(self, axes: Any, world: World) -> None:
        """Draw the table, what was played last, and the steps before on empty matplotlib axes."""
        now = max(int(world.time) - 1, 0)
        draw_tables(axes, [as_table(f"step {now + 1} of {self.episode_limit}", self.payoff, played(world, now))], world)

    @property
    def _table(self) -> Float[Array, "A A"]:
        return jnp.asarray(self.payoff, jnp.float32)

    def _show(self, world: World) -> Timestep:
        over = world.time >= self.episode_limit
        return Timestep(
            obs=jnp.ones((2, 1), bool),
            state=jnp.ones(1, bool),
            available=jnp.ones((2, ACTIONS), bool),
            reward=last_reward(world),
            terminated=over,
            truncated=jnp.bool(False),
            won=over & jnp.all(world.reward == jnp.max(self._table)),
        )


class Climbing(Repeated):
    """The best entry stands beside the worst ones."""

    k: Number = eqx.field(default=-30.0, converter=number)  # Claus and Boutilier: -30
    episode_limit: int = eqx.field(default=25, static=True)

    @property
    def payoff(self) -> Payoff:
        """11 for the best pair, 7 beside it."""
        return ((11.0, self.k, 0.0), (self.k, 7.0, 6.0), (0.0, 0.0, 5.0))


class Penalty(Repeated):
    """Two best entries, and k for mixing them up."""

    k: Number = eqx.field(default=-100.0, converter=number)  # published: 0 to -100
    episode_limit: int = eqx.field(default=25, static=True)

    @property
    def payoff(self) -> Payoff:
        """10 for either of two pairs, 2 for the safe one."""
        return ((10.0, 0.0, self.k), (0.0, 2.0, 0.0), (self.k, 0.0, 10.0))
