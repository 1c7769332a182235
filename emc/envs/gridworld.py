"""Coordinated gridworld: two agents, one on each side of a wall, must step on their goals at the same time (EMC, section 5.1).

Both on their goals pays `win_reward` and ends the episode; one alone pays `-penalty` at every step it stays there. Two variants of the
paper's appendix are fields: `noisy_reward` adds Gaussian noise to the reward while anyone stands in an area at the top of the map, and
`slip` replaces an agent's action by a random one. Everything follows the environment that the authors released; what the paper leaves open:

* `vision="reversed"` is the paper's rule (an agent is seen by the other while it stands in the vision area); `origin` lets the agent that
  stands there see, `pomdp` asks it of both, `full_observation` always shows both.
* A slip draws uniformly among the available moves and one blank; the blank keeps the intended action, so nobody stays by accident.
* `observation_noise` appends that many N(0, 1) draws to each observation. The state is the concatenation of those same observations, so it
  carries the same draws.
* The time limit is part of the task: the last step is `terminated`.

The released environment trusts its caller with unavailable actions; here an agent that walks into a wall or the border stays where it is.
On maps of other sizes the areas follow that environment too: the vision area is always 5 x 6, and the noisy area is as wide and takes the
rows above it but for one between, so a map of fewer than 8 rows has none.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from emc.errors import UserError
from emc.types import EnvSpec, Timestep
from emc.user_input import Number, check_number, check_size, lookup, number

Vision = Literal["reversed", "origin", "pomdp", "full_observation"]
UP, DOWN, LEFT, RIGHT, STAY = range(5)
MOVES = np.array([(-1, 0), (1, 0), (0, -1), (0, 1), (0, 0)], np.int32)


class World(eqx.Module):
    """Where the agents are."""

    position: Int[Array, "N 2"]  # row and column
    time: Int[Array, ""]


class Chance(eqx.Module):
    """Everything random in one step."""

    slip: Float[Array, " N"]  # uniform on [0, 1): the agent slips where this is below `slip`
    choice: Float[Array, " N"]  # uniform on [0, 1): what it does instead
    reward: Float[Array, ""]  # N(0, 1)
    obs: Float[Array, "N noise"]  # N(0, 1)


class Gridworld(eqx.Module):
    """The coordinated gridworld."""

    rows: int = eqx.field(default=11, static=True)
    columns: int = eqx.field(default=12, static=True)  # even: the wall stands in the middle
    episode_limit: int = eqx.field(default=30, static=True)
    vision: Vision = eqx.field(default="reversed", static=True)
    observation_noise: int = eqx.field(default=0, static=True)  # draws appended to each observation
    penalty: Number = eqx.field(default=2.0, converter=number)  # p: paid while exactly one agent is on its goal
    noisy_reward: Number = eqx.field(default=0.0, converter=number)  # sigma, a standard deviation
    slip: Number = eqx.field(default=0.0, converter=number)  # xi, a probability
    win_reward: Number = eqx.field(default=10.0, converter=number)

    def __check_init__(self) -> None:
        check_size("rows", self.rows, "choose a taller map, such as the default 11.", low=5)
        check_size("columns", self.columns, "choose a wider map, such as the default 12.", low=6)
        if self.columns % 2:
            raise UserError(f"columns={self.columns} is odd, but the wall stands in the middle: choose {self.columns + 1}.")
        check_size("episode_limit", self.episode_limit, "allow some steps, such as the default 30.", low=1)
        check_size("observation_noise", self.observation_noise, "give a number of draws, 0 for none.", low=0)
        lookup("vision rule", self.vision, dict.fromkeys(get_args(Vision)))
        check_number("penalty", self.penalty, "give the size of the punishment; it is subtracted.", low=0.0)
        check_number("noisy_reward", self.noisy_reward, "give a standard deviation, 0 for none.", low=0.0)
        if self.rows < 8:
            check_number("noisy_reward", self.noisy_reward, f"with rows={self.rows} there is no noisy area, use 8 or more.", high=0.0)
        check_number("slip", self.slip, "give a probability; write 0.2 for 20 %.", low=0.0, high=1.0)
        check_number("win_reward", self.win_reward, "give the reward for winning, such as the default 10.")

    @property
    def spec(self) -> EnvSpec:
        """The sizes of the game."""
        obs_size = 2 * (self.rows + self.columns) + self.observation_noise
        dtype = "float32" if self.observation_noise else "bool"
        return EnvSpec(
            n_agents=2,
            n_actions=5,
            obs_size=obs_size,
            state_size=2 * obs_size,
            episode_limit=self.episode_limit,
            obs_dtype=dtype,
            state_dtype=dtype,
            map_shape=(self.rows, self.columns),
            idle_actions=(STAY,),
            move_actions=(UP, DOWN, LEFT, RIGHT),
        )

    @property
    def goals(self) -> Int[np.ndarray, "N 2"]:
        """The cell that each agent must reach: on both sides of the wall, in the middle row."""
        return np.array([(self.rows // 2, self.columns // 2 - 1), (self.rows // 2, self.columns // 2)], np.int32)

    @property
    def vision_area(self) -> Int[np.ndarray, "2 2"]:
        """First and last cell of the area around the goals where agents can be seen."""
        return np.stack([self.goals[0] - 2, self.goals[1] + 2])

    @property
    def noisy_area(self) -> Int[np.ndarray, "2 2"]:
        """First and last cell of the area at the top of the map where rewards are noisy."""
        (top, left), (_, right) = self.vision_area
        return np.array([(0, left), (top - 2, right)], np.int32)

    def reset(self, key: PRNGKeyArray) -> tuple[World, Timestep]:
        """Start in opposite corners."""
        corners = jnp.array([(0, 0), (self.rows - 1, self.columns - 1)], jnp.int32)
        world = World(position=corners, time=jnp.int32(0))
        noise = jax.random.normal(key, (2, self.observation_noise))
        return world, self._show(world, noise, reward=jnp.float32(0.0), terminated=jnp.bool(False), won=jnp.bool(False))

    def step(self, world: World, action: Int[Array, " N"], key: PRNGKeyArray) -> tuple[World, Timestep]:
        """Move both agents, then judge where they stand."""
        chance = self.chance(key)
        move = jnp.asarray(MOVES)[self._slipped(world, action, chance)]
        low, high = self._bounds
        world = World(position=jnp.clip(world.position + move, low, high), time=world.time + 1)

        arrived = jnp.all(world.position == self.goals, axis=1)
        won = jnp.all(arrived)
        noisy = jnp.any(_inside(world.position, self.noisy_area))
        reward = jnp.where(won, self.win_reward, jnp.where(jnp.any(arrived), -self.penalty, 0.0))
        reward = reward + jnp.where(noisy, self.noisy_reward * chance.reward, 0.0)
        terminated = won | (world.time >= self.episode_limit)
        return world, self._show(world, chance.obs, reward=reward.astype(jnp.float32), terminated=terminated, won=won)

    def chance(self, key: PRNGKeyArray) -> Chance:
        """Draw everything random in one step."""
        draws = jax.random.uniform(key, (5 + 2 * self.observation_noise,))  # one call: each costs compile time
        noise = _normal(draws[5:]).reshape(2, self.observation_noise)
        return Chance(slip=draws[:2], choice=draws[2:4], reward=_normal(draws[4]), obs=noise)

    def occupancy(self, state: Shaped[Array, " S"]) -> Float[Array, "R C"]:
        """How many agents stand on each cell."""
        own = state.reshape(2, self.spec.obs_size)[:, : self.rows + self.columns].astype(jnp.float32)
        return jnp.einsum("nr,nc->rc", own[:, : self.rows], own[:, self.rows :])

    def areas(self) -> dict[str, Bool[np.ndarray, "R C"]]:
        """The cells next to the goals, also diagonally; where agents can be seen; where rewards are noisy if any are."""
        boxes = {"around the goals": np.stack([self.goals[0] - 1, self.goals[1] + 1]), "vision area": self.vision_area}
        if self.rows >= 8:
            boxes["noisy area"] = self.noisy_area
        cells = np.moveaxis(np.mgrid[: self.rows, : self.columns], 0, -1)
        return {name: np.all((cells >= first) & (cells <= last), axis=-1) for name, (first, last) in boxes.items()}

    def draw(self, axes: Any, world: World) -> None:
        """Draw one moment on empty matplotlib axes."""
        from matplotlib.patches import Circle, Rectangle

        def area(cells: Int[np.ndarray, "2 2"], **style: Any) -> None:
            (top, left), (bottom, right) = cells
            axes.add_patch(Rectangle((left - 0.5, top - 0.5), right - left + 1, bottom - top + 1, **style))

        colours = ("#0072B2", "#D55E00")  # blue and vermilion stay apart for every kind of colour vision
        area(self.vision_area, facecolor="#E4E7EB", zorder=0)
        if self.noisy_reward > 0:
            area(self.noisy_area, facecolor="#FBF1C4", edgecolor="#E0C341", hatch="////", linewidth=0, zorder=0)
        for row in range(self.rows + 1):
            axes.plot((-0.5, self.columns - 0.5), (row - 0.5, row - 0.5), color="#C3C9D1", linewidth=0.6, zorder=1)
        for column in range(self.columns + 1):
            axes.plot((column - 0.5, column - 0.5), (-0.5, self.rows - 0.5), color="#C3C9D1", linewidth=0.6, zorder=1)
        axes.add_patch(Rectangle((-0.5, -0.5), self.columns, self.rows, facecolor="none", edgecolor="#30363D", linewidth=1.5, zorder=3))
        wall = self.columns / 2 - 0.5
        axes.plot((wall, wall), (-0.5, self.rows - 0.5), color="#30363D", linewidth=5, solid_capstyle="butt", zorder=3)
        for (row, column), colour in zip(self.goals, colours, strict=True):
            inset = (column - 0.36, row - 0.36)
            axes.add_patch(Rectangle(inset, 0.72, 0.72, facecolor="white", edgecolor=colour, linewidth=2, zorder=2))
            axes.text(column, row, "G", color=colour, ha="center", va="center", fontsize="small", fontweight="bold", zorder=2)
        for agent, ((row, column), colour) in enumerate(zip(np.asarray(world.position), colours, strict=True)):
            axes.add_patch(Circle((column, row), 0.32, facecolor=colour, edgecolor="white", linewidth=1.5, zorder=4))
            axes.text(column, row, str(agent), color="white", ha="center", va="center", fontsize="small", fontweight="bold", zorder=5)
        axes.set(xlim=(-0.7, self.columns - 0.3), ylim=(self.rows - 0.3, -0.7), aspect="equal")
        axes.set_axis_off()

    def draw_outlines(self, axes: Any) -> None:
        """Draw the border, the wall, the goals and the areas over a map of the grid."""
        from matplotlib.patches import Rectangle
        from matplotlib.patheffects import withStroke

        halo = [withStroke(linewidth=3.5, foreground="white")]  # lines show on pale and on dark cells
        areas = [self.vision_area] + ([self.noisy_area] if self.noisy_reward > 0 else [])
        for (top, left), (bottom, right) in areas:
            box = Rectangle((left - 0.5, top - 0.5), right - left + 1, bottom - top + 1, fill=False, edgecolor="#30363D", linestyle="--")
            axes.add_patch(box).set(linewidth=1.5, path_effects=halo, zorder=2)
        for (row, column), colour in zip(self.goals, ("#0072B2", "#D55E00"), strict=True):
            box = Rectangle((column - 0.4, row - 0.4), 0.8, 0.8, fill=False, edgecolor=colour)
            axes.add_patch(box).set(linewidth=1.5, path_effects=halo, zorder=3)
        wall = self.columns / 2 - 0.5
        axes.plot((wall, wall), (-0.5, self.rows - 0.5), color="#30363D", linewidth=4, solid_capstyle="butt", zorder=4)
        axes.add_patch(Rectangle((-0.5, -0.5), self.columns, self.rows, fill=False, edgecolor="#30363D", linewidth=1.5, zorder=4))
        axes.set(xlim=(-0.7, self.columns - 0.3), ylim=(self.rows - 0.3, -0.7), aspect="equal")
        axes.set_axis_off()

    @property
    def _bounds(self) -> tuple[Int[np.ndarray, "N 2"], Int[np.ndarray, "N 2"]]:
        """First and last cell of each agent's side of the wall."""
        wall = self.columns // 2
        low = np.array([(0, 0), (0, wall)], np.int32)
        high = np.array([(self.rows - 1, wall - 1), (self.rows - 1, self.columns - 1)], np.int32)
        return low, high

    def _available(self, position: Int[Array, "N 2"]) -> Bool[Array, "N 5"]:
        low, high = self._bounds
        back, forth = position > low, position < high
        return jnp.stack([back[:, 0], forth[:, 0], back[:, 1], forth[:, 1], jnp.ones(2, bool)], axis=1)

    def _slipped(self, world: World, action: Int[Array, " N"], chance: Chance) -> Int[Array, " N"]:
        """The actions after the agents' mistakes."""
        moves = self._available(world.position)[:, :STAY]
        pick = jnp.floor(chance.choice * (jnp.sum(moves, axis=1) + 1))
        picked = moves & (jnp.cumsum(moves, axis=1) - 1 == pick[:, None])  # nothing is picked when the draw falls on the blank
        slips = (chance.slip < self.slip) & jnp.any(picked, axis=1)
        return jnp.where(slips, jnp.argmax(picked, axis=1), action)

    def _show(
        self,
        world: World,
        noise: Float[Array, "N noise"],
        reward: Float[Array, ""],
        terminated: Bool[Array, ""],
        won: Bool[Array, ""],
    ) -> Timestep:
        """What the agents see of the world."""
        row, column = world.position[:, :1], world.position[:, 1:]
        own = jnp.concatenate([row == jnp.arange(self.rows), column == jnp.arange(self.columns)], axis=1)
        inside = _inside(world.position, self.vision_area)
        sees = {
            "reversed": inside[::-1],
            "origin": inside,
            "pomdp": inside & inside[::-1],
            "full_observation": jnp.ones(2, bool),
        }[self.vision]
        obs = jnp.concatenate([own, own[::-1] & sees[:, None]], axis=1)
        if self.observation_noise:
            obs = jnp.concatenate([obs.astype(jnp.float32), noise], axis=1)
        return Timestep(
            obs=obs,
            state=jnp.concatenate([obs[0], obs[1]]),
            available=self._available(world.position),
            reward=reward,
            terminated=terminated,
            truncated=jnp.bool(False),
            won=won,
        )


def _inside(position: Int[Array, "N 2"], area: Int[np.ndarray, "2 2"]) -> Bool[Array, " N"]:
    return jnp.all((position >= area[0]) & (position <= area[1]), axis=1)


def _normal(uniform: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """N(0, 1) from draws on [0, 1), by the inverse of its distribution function."""
    return np.sqrt(2.0).astype(np.float32) * jax.lax.erf_inv(2.0 * jnp.maximum(uniform, 2.0**-24) - 1.0)
