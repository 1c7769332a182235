"""Matrix games: two agents choose at the same time, and a table pays them for what they chose together. Nothing is random.

* `OneStepGame` is QTRAN's (Son et al. 2019): the best entry stands where a mistake of either agent costs most, so the values of single
  actions, averaged over what the other one does, point away from it. Any square table will do.
* `TwoStepGame` is QMIX's (Rashid et al. 2018): the first action of agent 0 chooses between a table that always pays 7 and one that pays 8
  only to agents that choose well together. The first step pays nothing.
* `NStepGame` is MAVEN's (Mahajan et al. 2019). From the paper: the first table rewards agents that agree, a reward of zero ends the
  episode, the best return of m steps is m + 3 where the other branch earns m, and m = 10 in its experiment. From the released code: the
  first joint action is the branch, and each later step pays 1 for the same joint action again; the last step of branch 0 pays 1 for every
  joint action but (1, 1), which pays 4. Agents see the step and the branch, which reads 0 before the first action. With `good_branches=4`
  every branch pays, not only the two in which the agents agree. A game of one step has no last table and shows no branch.

Both agents observe the state: a constant; one of three states, and none of them after the end; the step and the branch. The last step is
`terminated`. An episode is won when it earned the largest return that its game has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from emc.errors import UserError
from emc.types import EnvSpec, Timestep
from emc.user_input import Number, check_number, check_size, number

Payoff = tuple[tuple[Number, ...], ...]  # one row for each action of agent 0, one column for each of agent 1
COLOURS = ("#0072B2", "#D55E00")  # blue and vermilion stay apart for every kind of colour vision
QTRAN: Payoff = ((8.0, -12.0, -12.0), (-12.0, 0.0, 0.0), (-12.0, 0.0, 0.0))
TWO_STEPS = np.array([((0, 0), (0, 0)), ((7, 7), (7, 7)), ((0, 1), (1, 8))], np.float32)  # the first state, 2A, 2B
REMEMBERED = 10  # steps that a drawing shows


class World(eqx.Module):
    """What was played; zero after `time`."""

    action: Int[Array, "T N"]
    reward: Float[Array, " T"]
    time: Int[Array, ""]


def _numbers(table: Iterable[Iterable[Any]]) -> Payoff:
    try:
        return tuple(tuple(number(entry) for entry in row) for row in table)
    except TypeError:
        raise UserError(f"payoff={table} is not a table: give rows of numbers, such as ((1, 0), (0, 1)).") from None


class OneStepGame(eqx.Module):
    """One table, played once."""

    payoff: Payoff = eqx.field(default=QTRAN, converter=_numbers)  # agent 0 chooses the row

    def __check_init__(self) -> None:
        n = len(self.payoff)
        if n < 2 or any(len(row) != n for row in self.payoff):
            sizes = ", ".join(str(len(row)) for row in self.payoff) or "no"
            raise UserError(f"payoff has {n} rows of {sizes} entries: give as many rows as columns, and two or more.")
        for i, row in enumerate(self.payoff):
            for j, entry in enumerate(row):
                check_number(f"payoff[{i}][{j}]", entry, "give what this joint action pays.")

    @property
    def spec(self) -> EnvSpec:
        """The sizes of the game."""
        return EnvSpec(n_agents=2, n_actions=len(self.payoff), obs_size=1, state_size=1, episode_limit=1)

    def reset(self, key: PRNGKeyArray) -> tuple[World, Timestep]:
        """Start a game."""
        world = unplayed(1)
        return world, self._show(world)

    def step(self, world: World, action: Int[Array, " N"], key: PRNGKeyArray) -> tuple[World, Timestep]:
        """Pay what the joint action is worth, and end."""
        world = after(world, action, self._payoff[action[0], action[1]])
        return world, self._show(world)

    def draw(self, axes: Any, world: World) -> None:
        """Draw the table and what was played on empty matplotlib axes."""
        draw_tables(axes, [as_table("payoff", self.payoff, played(world, 0))], world)

    @property
    def _payoff(self) -> Float[Array, "A A"]:
        return jnp.asarray(self.payoff, jnp.float32)

    def _show(self, world: World) -> Timestep:
        return _seen(world, jnp.ones(1), len(self.payoff), over=world.time >= 1, best=jnp.max(self._payoff))


class TwoStepGame(eqx.Module):
    """A choice between a safe table and a better one."""

    @property
    def spec(self) -> EnvSpec:
        """The sizes of the game."""
        return EnvSpec(n_agents=2, n_actions=2, obs_size=3, state_size=3, episode_limit=2, obs_dtype="bool", state_dtype="bool")

    def reset(self, key: PRNGKeyArray) -> tuple[World, Timestep]:
        """Start in the first state."""
        world = unplayed(2)
        return world, self._show(world)

    def step(self, world: World, action: Int[Array, " N"], key: PRNGKeyArray) -> tuple[World, Timestep]:
        """Choose the second table, or play it."""
        world = after(world, action, jnp.asarray(TWO_STEPS)[_state(world), action[0], action[1]])
        return world, self._show(world)

    def draw(self, axes: Any, world: World) -> None:
        """Draw the three tables and what was played on empty matplotlib axes."""
        first, second = played(world, 0), played(world, 1)
        tables: list[Table] = [("state 1", (("2A", "2A"), ("2B", "2B")), first, False)]
        for branch, name in enumerate(("state 2A", "state 2B")):
            elsewhere = first is not None and first[0] != branch
            tables.append(as_table(name, TWO_STEPS[1 + branch], None if elsewhere else second, elsewhere))
        draw_tables(axes, tables, world)

    def _show(self, world: World) -> Timestep:
        over = world.time >= 2
        obs = (jnp.arange(3) == _state(world)) & ~over
        return _seen(world, obs, 2, over, best=8.0)


class NStepGame(eqx.Module):
    """A branch to choose, to keep to, and in one case to leave at the very end."""

    steps: int = eqx.field(default=10, static=True)  # m
    good_branches: int = eqx.field(default=2, static=True)  # released code: 2, or 4 for branches that all pay

    def __check_init__(self) -> None:
        check_size("steps", self.steps, "allow some steps, such as the default 10.", low=1)
        if self.good_branches not in (2, 4):
            raise UserError(
                f"good_branches={self.good_branches} is neither 2 nor 4: choose 2 (agents must agree) or 4 (every branch pays)."
            )

    @property
    def spec(self) -> EnvSpec:
        """The sizes of the game."""
        size = self.steps + 1 + (4 if self.steps > 1 else 0)
        return EnvSpec(
            n_agents=2, n_actions=2, obs_size=size, state_size=size, episode_limit=self.steps, obs_dtype="bool", state_dtype="bool"
        )

    @property
    def best_return(self) -> float:
        """What the best play earns: m + 3 in m steps."""
        return self.steps + 3.0 if self.steps > 1 else 1.0

    def payoff(self, branch: Int[Array, ""], time: Int[Array, ""]) -> Float[Array, "2 2"]:
        """The table of a step (from 0) on a branch; the first step is still on none."""
        joint = jnp.arange(4)
        agreed = (joint == 0) | (joint == 3) | (self.good_branches == 4)
        table = agreed & ((joint == branch) | (time == 0))
        final = (branch == 0) & (time == self.steps - 1) & (self.steps > 1)
        return jnp.where(final, jnp.array([1.0, 1.0, 1.0, 4.0]), table.astype(jnp.float32)).reshape(2, 2)

    def reset(self, key: PRNGKeyArray) -> tuple[World, Timestep]:
        """Start before the choice of the branch."""
        world = unplayed(self.steps)
        return world, self._show(world)

    def step(self, world: World, action: Int[Array, " N"], key: PRNGKeyArray) -> tuple[World, Timestep]:
        """Choose a branch, or keep to it; a reward of zero ends the episode."""
        payoff = self.payoff(_branch(world), world.time)
        world = after(world, action, payoff[action[0], action[1]])
        return world, self._show(world)

    def draw(self, axes: Any, world: World) -> None:
        """Draw the table played last, or the first one, and what was played before on empty matplotlib axes."""
        now = max(int(world.time) - 1, 0)
        payoff = np.asarray(self.payoff(_branch(world), jnp.int32(now)))
        draw_tables(axes, [as_table(f"step {now + 1} of {self.steps}", payoff, played(world, now))], world)

    def _show(self, world: World) -> Timestep:
        over = (world.time >= self.steps) | ((world.time > 0) & (last_reward(world) <= 0))
        obs = jnp.arange(self.steps + 1) == world.time
        if self.steps > 1:
            obs = jnp.concatenate([obs, jnp.arange(4) == _branch(world)])
        return _seen(world, obs, 2, over, self.best_return)


def unplayed(steps: int) -> World:
    return World(action=jnp.zeros((steps, 2), jnp.int32), reward=jnp.zeros(steps), time=jnp.int32(0))


def after(world: World, action: Int[Array, " N"], reward: Float[Array, ""]) -> World:
    """The world after a step."""
    return World(
        action=world.action.at[world.time].set(action.astype(jnp.int32)),
        reward=world.reward.at[world.time].set(reward),
        time=world.time + 1,
    )


def last_reward(world: World) -> Float[Array, ""]:
    return jnp.where(world.time > 0, world.reward[world.time - 1], 0.0)


def _state(world: World) -> Int[Array, ""]:
    """The state of the two-step game: 0, then 1 or 2."""
    return jnp.where(world.time == 0, 0, 1 + world.action[0, 0])


def _branch(world: World) -> Int[Array, ""]:
    """The first joint action as a number from 0 to 3; 0 before it."""
    return jnp.dot(world.action[0], jnp.array((2, 1)))


def _seen(world: World, state: Shaped[Array, " S"], n_actions: int, over: Bool[Array, ""], best: float | Float[Array, ""]) -> Timestep:
    """Both agents observe the state and may do anything."""
    return Timestep(
        obs=jnp.stack([state, state]),
        state=state,
        available=jnp.ones((2, n_actions), bool),
        reward=last_reward(world),
        terminated=over,
        truncated=jnp.bool(False),
        won=over & (jnp.sum(world.reward) >= best),
    )


Table = tuple[str, Sequence[Sequence[str]], tuple[int, int] | None, bool]  # name, entries, chosen entry, whether out of reach


def as_table(name: str, payoff: Any, chosen: tuple[int, int] | None, faded: bool = False) -> Table:
    return name, tuple(tuple(f"{entry:.4g}" for entry in row) for row in payoff), chosen, faded


def played(world: World, time: int) -> tuple[int, int] | None:
    """The joint action of a step, if it was played."""
    first, second = (int(action) for action in world.action[time])
    return (first, second) if time < world.time else None


def draw_tables(axes: Any, tables: Sequence[Table], world: World) -> None:
    """Draw tables side by side, and the last steps in a line below."""
    n = len(tables[0][1])
    width = len(tables) * (n + 1.2)
    span = max(width, (n + 1.6) / 0.7)  # of the square that holds all
    point = 72 / axes.figure.dpi * min(axes.bbox.width, axes.bbox.height) / span  # the length of a unit
    for place, table in enumerate(tables):
        _draw_table(axes, 1 + place * (n + 1.2), table, 0.32 * point)
    slot, top = span / (REMEMBERED + 0.5), n + 0.08 * span
    text = {"ha": "center", "va": "center", "fontsize": 0.38 * slot * point}
    middle = width / 2
    axes.text(middle, top, "actions of agents 0 and 1, and reward, step by step", color="#57606A", **text)
    steps = range(max(0, int(world.time) - REMEMBERED), int(world.time))
    for place, time in enumerate(steps):
        x = middle + (place - (len(steps) - 1) / 2) * slot
        for agent, colour in enumerate(COLOURS):
            at = (x + (agent - 0.5) * 0.4 * slot, top + 0.8 * slot)
            axes.text(*at, str(world.action[time, agent]), color=colour, fontweight="bold", **text)
        axes.text(x, top + 1.4 * slot, f"{world.reward[time]:.4g}", color="#30363D", **text)
    axes.set(xlim=(middle - span / 2, middle + span / 2), ylim=(span - 1.6, -1.6), aspect="equal")
    axes.set_axis_off()


def _draw_table(axes: Any, left: float, table: Table, fontsize: float) -> None:
    from matplotlib.patches import Rectangle

    name, entries, chosen, faded = table
    n, ink = len(entries), "#B1B8C0" if faded else "#30363D"
    text: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": fontsize}
    axes.text(left + n / 2, -1.3, name, color=ink, fontweight="bold", **text)
    axes.text(left + n / 2, -0.75, "agent 1", color=COLOURS[1], **text)
    axes.text(left - 0.75, n / 2, "agent 0", color=COLOURS[0], rotation=90, **text)
    for action in range(n):
        axes.text(left + action + 0.5, -0.25, str(action), color=COLOURS[1], **text)
        axes.text(left - 0.25, action + 0.5, str(action), color=COLOURS[0], **text)
    text["fontsize"] *= min(1.0, 4 / max(len(entry) for line in entries for entry in line))
    for row, line in enumerate(entries):
        for column, entry in enumerate(line):
            marked = chosen == (row, column)
            cell = Rectangle((left + column, row), 1, 1, facecolor="#FFE08A" if marked else "white", edgecolor=ink)
            axes.add_patch(cell).set(linewidth=3 if marked else 1, zorder=3 if marked else 2)
            axes.text(left + column + 0.5, row + 0.5, entry, color=ink, fontweight="bold" if marked else "normal", zorder=4, **text)
