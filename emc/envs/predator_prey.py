"""Predator and prey: hunters must catch in pairs, and a lone attempt is punished (the stag hunt of WQMIX; EMC, section 5.2).

Predators act one after the other in a fresh random order; a move into an occupied cell fails. Then the prey have their turns, in another
fresh order: a prey with two or more catching predators beside it is captured, and all of those leave the game with it; a single catcher is
punished; a prey that is still there then moves to a free cell beside it, chosen uniformly, and rests only if there is none. So an earlier
prey has already moved when a later one is tested, one lone catcher beside two prey is punished twice, and a predator that just left counts
for nobody. Predators of the released setting are 8, so at most 4 of the 8 prey are ever caught: the best return is 40, hiding earns 0.

The time limit is not part of the task: the last step is `truncated`. An episode that ends by itself exactly at the limit is `terminated`
here; the released code stores it as cut by the limit. An unavailable move, into the border, is a rest.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from emc.errors import UserError
from emc.types import EnvSpec, Timestep
from emc.user_input import Number, check_number, check_size, number

RIGHT, DOWN, LEFT, UP, STAY, CATCH = range(6)
GONE = -1  # the cell of whoever has left: no cell of the board, nor beside one, has this number


class World(eqx.Module):
    """Where everyone is. Cells are numbered row by row on a board that has a border of empty cells around the grid."""

    predators: Int[Array, " N"]  # GONE after a capture
    prey: Int[Array, " P"]  # GONE once captured
    time: Int[Array, ""]


class Chance(eqx.Module):
    """Everything random in one step."""

    predator_turn: Int[Array, " N"]  # when each predator acts: a permutation
    prey_turn: Int[Array, " P"]  # when each prey is tested and moves: a permutation
    choice: Float[Array, " P"]  # uniform on [0, 1): which of the free cells beside it a prey moves to


class PredatorPrey(eqx.Module):
    """The stag hunt."""

    grid_size: int = eqx.field(default=10, static=True)
    n_agents: int = eqx.field(default=8, static=True)
    n_prey: int = eqx.field(default=8, static=True)
    vision_radius: int = eqx.field(default=2, static=True)  # 2: each agent sees 5 x 5 cells
    episode_limit: int = eqx.field(default=200, static=True)
    punishment: Number = eqx.field(default=-2.0, converter=number)  # released code; not in the paper
    capture_reward: Number = eqx.field(default=10.0, converter=number)

    def __check_init__(self) -> None:
        check_size("grid_size", self.grid_size, "choose a larger grid, such as the default 10.", low=2)
        check_size("n_agents", self.n_agents, "a capture takes two predators.", low=2)
        check_size("n_prey", self.n_prey, "give the predators something to hunt.", low=1)
        check_size("vision_radius", self.vision_radius, "let agents see at least the cells beside them.", low=1)
        check_size("episode_limit", self.episode_limit, "allow some steps, such as the default 200.", low=1)
        check_number("punishment", self.punishment, "it is added to the reward, so give a negative number or 0.", high=0.0)
        check_number("capture_reward", self.capture_reward, "give the reward for a capture, such as the default 10.")
        cells, crowd = self.grid_size**2, self.n_agents + self.n_prey
        if crowd > cells:
            raise UserError(f"n_agents + n_prey = {crowd} exceeds the {cells} cells of the grid: raise grid_size or lower one of them.")

    @property
    def spec(self) -> EnvSpec:
        """The sizes of the game."""
        return EnvSpec(
            n_agents=self.n_agents,
            n_actions=6,
            obs_size=3 * (2 * self.vision_radius + 1) ** 2,
            state_size=3 * self.grid_size**2,
            episode_limit=self.episode_limit,
            obs_dtype="bool",
            state_dtype="bool",
            winnable=False,
            map_shape=(self.grid_size, self.grid_size),
            idle_actions=(STAY,),
            move_actions=(RIGHT, DOWN, LEFT, UP),
        )

    def reset(self, key: PRNGKeyArray) -> tuple[World, Timestep]:
        """Place everyone on cells of their own, uniformly."""
        draws = jax.random.uniform(key, (self.grid_size**2,))
        _, place = jax.lax.top_k(draws, self.n_agents + self.n_prey)
        cell = jnp.asarray(self._cells)[place]
        world = World(predators=cell[: self.n_agents], prey=cell[self.n_agents :], time=jnp.int32(0))
        return world, self._show(world, jnp.float32(0.0))

    def step(self, world: World, action: Int[Array, " N"], key: PRNGKeyArray) -> tuple[World, Timestep]:
        """Move the predators, then test and move the prey."""
        chance = self.chance(key)
        predators = self._move(world, action, chance)
        predators, prey, captures, lone = self._hunt(predators, world.prey, action == CATCH, chance)
        world = World(predators=predators, prey=prey, time=world.time + 1)
        reward = captures * self.capture_reward + lone * self.punishment
        return world, self._show(world, jnp.asarray(reward, jnp.float32))

    def chance(self, key: PRNGKeyArray) -> Chance:
        """Draw everything random in one step."""
        draws = jax.random.uniform(key, (self.n_agents + 2 * self.n_prey,))
        for_predators, for_prey, choice = jnp.split(draws, (self.n_agents, self.n_agents + self.n_prey))
        return Chance(_ranks(for_predators), _ranks(for_prey), choice)

    def occupancy(self, state: Shaped[Array, " S"]) -> Float[Array, "R C"]:
        """Where the predators are that still hunt."""
        return state.reshape(self.grid_size, self.grid_size, 3)[:, :, 0].astype(jnp.float32)

    def draw(self, axes: Any, world: World) -> None:
        """Draw one moment on empty matplotlib axes."""
        from matplotlib.patches import Circle, Rectangle, RegularPolygon

        size = self.grid_size
        axes.add_patch(Rectangle((-0.5, -0.5), size, size, facecolor="#F4F6F3", zorder=0))
        for line in range(size + 1):
            axes.plot((-0.5, size - 0.5), (line - 0.5, line - 0.5), color="#CDD3CB", linewidth=0.6, zorder=1)
            axes.plot((line - 0.5, line - 0.5), (-0.5, size - 0.5), color="#CDD3CB", linewidth=0.6, zorder=1)
        axes.add_patch(Rectangle((-0.5, -0.5), size, size, facecolor="none", edgecolor="#30363D", linewidth=1.5, zorder=3))

        def present(cells: Int[np.ndarray, " n"]) -> list[tuple[int, tuple[int, int]]]:
            """Number, and column and row, of everyone who is still there."""
            places = enumerate(divmod(int(cell), self._stride) for cell in cells)
            return [(who, (column - self.vision_radius, row - self.vision_radius)) for who, (row, column) in places if row >= 0]

        predators, prey = present(np.asarray(world.predators)), present(np.asarray(world.prey))
        for _, centre in prey:
            axes.add_patch(RegularPolygon(centre, 4, radius=0.4, facecolor="#E69F00", edgecolor="white", linewidth=1.2, zorder=4))
        for who, centre in predators:
            axes.add_patch(Circle(centre, 0.34, facecolor="#0072B2", edgecolor="white", linewidth=1.2, zorder=4))
            axes.text(*centre, str(who), color="white", ha="center", va="center", fontsize="small", fontweight="bold", zorder=5)
        below = {"y": size - 0.3, "va": "top", "fontsize": "small"}
        axes.text(x=-0.5, s=f"● {len(predators)} of {self.n_agents} predators", ha="left", color="#0072B2", **below)
        axes.text(x=size - 0.5, s=f"◆ {len(prey)} of {self.n_prey} prey", ha="right", color="#A86F00", **below)
        axes.set(xlim=(-0.7, size - 0.3), ylim=(size + 0.3, -0.7), aspect="equal")
        axes.set_axis_off()

    def draw_outlines(self, axes: Any) -> None:
        """Draw the border over a map of the grid."""
        from matplotlib.patches import Rectangle

        size = self.grid_size
        axes.add_patch(Rectangle((-0.5, -0.5), size, size, fill=False, edgecolor="#30363D", linewidth=1.5, zorder=4))
        axes.set(xlim=(-0.7, size - 0.3), ylim=(size - 0.3, -0.7), aspect="equal")
        axes.set_axis_off()

    def _move(self, world: World, action: Int[Array, " N"], chance: Chance) -> Int[Array, " N"]:
        """The predators after their turns."""
        target = world.predators + jnp.append(self._sides, np.zeros(2, np.int32))[action]
        # A predator stands in its own way, so one that stays (or left, or walks into the border) is simply blocked.
        blocked = ~self._on_grid(target) | jnp.any(target[:, None] == world.prey, axis=1)
        target = jnp.where(blocked, world.predators, target)

        def act(turn: Int[Array, ""], predators: Int[Array, " N"]) -> Int[Array, " N"]:
            acts = chance.predator_turn == turn
            taken = jnp.any(predators == _only(target, acts))
            return jnp.where(acts & ~taken, target, predators)

        return jax.lax.fori_loop(0, self.n_agents, act, world.predators)

    def _hunt(
        self, predators: Int[Array, " N"], prey: Int[Array, " P"], catching: Bool[Array, " N"], chance: Chance
    ) -> tuple[Int[Array, " N"], Int[Array, " P"], Int[Array, ""], Int[Array, ""]]:
        """Predators and prey after the turns of the prey, and how many captures and lone catches there were."""

        def act(turn: Int[Array, ""], hunt: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
            predators, prey, captures, lone = hunt
            acts = chance.prey_turn == turn
            cell = _only(prey, acts)
            beside = cell + self._sides
            near = predators[:, None] == beside
            catchers = catching & jnp.any(near, axis=1)
            captured = jnp.sum(catchers) >= 2
            free = self._on_grid(beside) & ~jnp.any(near, axis=0) & ~jnp.any(prey[:, None] == beside, axis=0)
            pick = jnp.floor(_only(chance.choice, acts) * jnp.sum(free))
            picked = free & (jnp.cumsum(free) - 1 == pick)
            moved = jnp.where(jnp.any(free), _only(beside, picked), cell)
            return (
                jnp.where(captured & catchers, GONE, predators),
                jnp.where(acts, jnp.where(captured, GONE, moved), prey),
                captures + captured,
                lone + (jnp.sum(catchers) == 1),
            )

        return jax.lax.fori_loop(0, self.n_prey, act, (predators, prey, jnp.int32(0), jnp.int32(0)))

    def _show(self, world: World, reward: Float[Array, ""]) -> Timestep:
        """What the predators see of the world, and whether it is over."""
        active = world.predators != GONE
        beside = world.predators[:, None] + self._sides
        prey_beside = jnp.any(beside[:, :, None] == world.prey, axis=(1, 2))
        stay = jnp.ones((self.n_agents, 1), bool)
        available = jnp.concatenate([self._on_grid(beside), stay, prey_beside[:, None]], axis=1)
        window = world.predators[:, None] + self._window
        over = jnp.all(world.prey == GONE) | ~jnp.any(active)
        return Timestep(
            obs=(_channels(window, world) & active[:, None, None]).reshape(self.n_agents, self.spec.obs_size),
            state=_channels(jnp.asarray(self._cells), world).reshape(self.spec.state_size),
            available=available,
            reward=reward,
            terminated=over,
            truncated=~over & (world.time >= self.episode_limit),
            won=jnp.bool(False),
        )

    @property
    def _stride(self) -> int:
        """Cells in a row of the board: the border is so wide that nobody's view reaches into the next row."""
        return self.grid_size + 2 * self.vision_radius

    @property
    def _cells(self) -> Int[np.ndarray, " cells"]:
        """The cells of the grid, row by row."""
        line = np.arange(self.grid_size, dtype=np.int32) + self.vision_radius
        return (line[:, None] * self._stride + line).reshape(self.grid_size**2)

    @property
    def _window(self) -> Int[np.ndarray, " window"]:
        """The cells that an agent sees, row by row, relative to its own."""
        line = np.arange(-self.vision_radius, self.vision_radius + 1, dtype=np.int32)
        return (line[:, None] * self._stride + line).reshape(len(line) ** 2)

    @property
    def _sides(self) -> Int[np.ndarray, " 4"]:
        """The cells to the right, below, to the left and above, relative to one's own."""
        return np.array([1, self._stride, -1, -self._stride], np.int32)

    def _on_grid(self, cell: Int[Array, "*cells"]) -> Bool[Array, "*cells"]:
        row, column = cell // self._stride - self.vision_radius, cell % self._stride - self.vision_radius
        return (row >= 0) & (row < self.grid_size) & (column >= 0) & (column < self.grid_size)


def _channels(cells: Int[Array, "*cells"], world: World) -> Bool[Array, "*cells 3"]:
    """Whether a predator, a stag or a hare is on each cell; there are no hares in this game."""
    predator = jnp.any(cells[..., None] == world.predators, axis=-1)
    stag = jnp.any(cells[..., None] == world.prey, axis=-1)
    return jnp.stack([predator, stag, jnp.zeros_like(stag)], axis=-1)


def _only(values: Shaped[Array, " n"], mask: Bool[Array, " n"]) -> Shaped[Array, ""]:
    """The one value where `mask` holds: a sum, because gathers are slow under `vmap`."""
    return jnp.sum(jnp.where(mask, values, 0))


def _ranks(draws: Float[Array, " n"]) -> Int[Array, " n"]:
    """The position of each draw when sorted; equal draws keep their order."""
    place = np.arange(draws.shape[0])
    before = (draws < draws[:, None]) | ((draws == draws[:, None]) & (place < place[:, None]))
    return jnp.sum(before, axis=1)
