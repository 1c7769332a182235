"""What Pass, Secret Room and Push-Box share: two agents on a square board who see everything, and a reward of 1 for success.

The tasks are those of CMAE (Liu et al., "Cooperative Exploration for Multi-Agent Deep Reinforcement Learning", ICML 2021), as its released
environments have them: x to the right, y down; agents go up, down, left or right and stay where a wall or the border blocks them, but never
block each other; success pays 1 and ends the episode, which otherwise ends at its limit. There as here the limit is the end: `terminated`.

An agent sees its own x and y, then the other's, each as one of `size` places, then what else there is; the state is what agent 0 sees.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from emc.types import EnvSpec, Timestep

UP, DOWN, LEFT, RIGHT = range(4)
MOVES = np.array([(0, -1), (0, 1), (-1, 0), (1, 0)], np.int32)  # x and y
COLOURS = ("#0072B2", "#D55E00")  # blue and vermilion stay apart for every kind of colour vision
INK, GREEN = "#30363D", "#009E73"


def board_spec(size: int, others: int, episode_limit: int) -> EnvSpec:
    """The sizes of a game on a board, where agents see `others` features beside themselves."""
    seen = 4 * size + others
    return EnvSpec(
        n_agents=2,
        n_actions=4,
        obs_size=seen,
        state_size=seen,
        episode_limit=episode_limit,
        obs_dtype="bool",
        state_dtype="bool",
        map_shape=(size, size),
        move_actions=(UP, DOWN, LEFT, RIGHT),
    )


def targets(position: Int[Array, "N 2"], action: Int[Array, " N"], size: int) -> Int[Array, "N 2"]:
    """Where the agents want to go, without leaving the board."""
    return jnp.clip(position + jnp.asarray(MOVES)[action], 0, size - 1)


def show(position: Int[Array, "N 2"], others: Bool[Array, " X"], size: int, won: Bool[Array, ""], late: Bool[Array, ""] | bool) -> Timestep:
    """What the agents see of a board, and what they are paid."""
    places = (position[:, :, None] == jnp.arange(size)).reshape(2, 2 * size)
    beside = jnp.broadcast_to(others, (2, others.shape[0]))
    obs = jnp.concatenate([places, places[::-1], beside], axis=1)
    return Timestep(
        obs=obs,
        state=obs[0],
        available=jnp.ones((2, 4), bool),
        reward=won.astype(jnp.float32),
        terminated=won | late,
        truncated=jnp.bool(False),
        won=won,
    )


def occupancy(state: Shaped[Array, " S"], size: int) -> Float[Array, "R C"]:
    """How many agents stand on each cell."""
    x, y = jnp.moveaxis(state[: 4 * size].reshape(2, 2, size).astype(jnp.float32), 1, 0)
    return jnp.einsum("ny,nx->yx", y, x)


def near(position: Int[Array, "N 2"], places: Int[np.ndarray, "P 2"], radius: float) -> Bool[Array, " P"]:
    """Whether some agent is within a distance of each place."""
    apart = position[:, None] - places
    return jnp.any(jnp.sum(apart**2, axis=2) <= radius**2, axis=0)


# Drawing.


def draw_board(axes: Any, size: int, filled: Bool[np.ndarray, "R C"], goal: Bool[np.ndarray, "R C"]) -> None:
    """The grid with its border, filled cells, and the cells where success is."""
    from matplotlib.patches import Rectangle

    for row, column in zip(*np.nonzero(goal), strict=True):
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor="#DDF2EA", zorder=0))
    for line in range(size + 1):
        axes.plot((-0.5, size - 0.5), (line - 0.5, line - 0.5), color="#C3C9D1", linewidth=0.6, zorder=1)
        axes.plot((line - 0.5, line - 0.5), (-0.5, size - 0.5), color="#C3C9D1", linewidth=0.6, zorder=1)
    for row, column in zip(*np.nonzero(filled), strict=True):
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor="#57606A", zorder=2))
    axes.add_patch(Rectangle((-0.5, -0.5), size, size, facecolor="none", edgecolor=INK, linewidth=1.5, zorder=3))
    axes.set(xlim=(-0.7, size - 0.3), ylim=(size - 0.3, -0.7), aspect="equal")
    axes.set_axis_off()


def draw_agents(axes: Any, position: Int[np.ndarray, "N 2"], size: int) -> None:
    """Both agents, side by side where they share a cell, and large enough to see on a large board."""
    from matplotlib.patches import Circle

    together, radius = np.array_equal(position[0], position[1]), max(0.36, 0.021 * size)
    words = {"color": "white", "ha": "center", "va": "center", "fontsize": _point(size), "fontweight": "bold", "zorder": 6}
    for agent, ((x, y), colour) in enumerate(zip(position, COLOURS, strict=True)):
        x = x + (agent - 0.5) * 1.25 * radius if together else x
        axes.add_patch(Circle((x, y), radius * (0.7 if together else 1), facecolor=colour, edgecolor="white", linewidth=1, zorder=5))
        axes.text(x, y, str(agent), **words)


def draw_switch(axes: Any, place: Int[np.ndarray, " 2"], radius: float, name: str, pressed: bool, size: int) -> None:
    """A switch, and how near an agent must come."""
    from matplotlib.patches import Circle, Rectangle

    (x, y), half = place, max(0.36, 0.021 * size)
    zone = Circle((x, y), radius, facecolor="#FFE08A" if pressed else "#F4F0DE", edgecolor="#C9A400", linewidth=0.8, zorder=1.5)
    axes.add_patch(zone).set_clip_path(Rectangle((-0.5, -0.5), size, size, transform=axes.transData))
    axes.add_patch(Rectangle((x - half, y - half), 2 * half, 2 * half, facecolor="#C9A400", edgecolor="white", linewidth=0.8, zorder=3))
    axes.text(x, y, name, color="white", ha="center", va="center", fontsize=_point(size), fontweight="bold", zorder=3)


def _point(size: int) -> float:
    """How large letters are that fit into a cell, or into a sign on a large board."""
    return max(90 / max(size, 9), 5.5)


def draw_door(axes: Any, cells: Int[np.ndarray, "D 2"], is_open: bool, name: str, size: int) -> None:
    """A door of some cells, one above the other: a frame while it is open."""
    from matplotlib.patches import Rectangle

    (x, top), (_, bottom) = cells[0], cells[-1]
    face = "#F2FBF7" if is_open else "#B35C1E"
    frame = Rectangle((x - 0.5, top - 0.5), 1, bottom - top + 1, facecolor=face, edgecolor=GREEN if is_open else "#7A3B0E")
    axes.add_patch(frame).set(linewidth=2, linestyle="--" if is_open else "-", zorder=2.5)
    ink = GREEN if is_open else "white"
    axes.text(x, (top + bottom) / 2, name, color=ink, ha="center", va="center", fontsize=_point(size), zorder=3)


def outline(axes: Any, size: int, filled: Bool[np.ndarray, "R C"]) -> None:
    """The border and walls over a map of the board."""
    from matplotlib.patches import Rectangle

    for row, column in zip(*np.nonzero(filled), strict=True):
        axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, edgecolor=INK, linewidth=0.8, hatch="////", zorder=3))
    axes.add_patch(Rectangle((-0.5, -0.5), size, size, fill=False, edgecolor=INK, linewidth=1.5, zorder=4))
    axes.set(xlim=(-0.7, size - 0.3), ylim=(size - 0.3, -0.7), aspect="equal")
    axes.set_axis_off()
