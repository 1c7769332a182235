"""A battle as a picture: units as shapes of their size, life and shield as arcs around them."""

from __future__ import annotations

from typing import Any

import numpy as np

from emc.envs.battle import terrain as ground
from emc.envs.battle.army import Army
from emc.envs.battle.forces import NOBODY, Forces
from emc.envs.battle.maps import Map
from emc.envs.battle.units import Plane
from emc.envs.battle.view import SIGHT

ALLY, ENEMY = "#0072B2", "#D55E00"  # blue and vermilion stay apart for every kind of colour vision
SHIELD, HEAL, BLAST = "#56B4E9", "#009E73", "#E69F00"
FLOOR, WALL, CLIFF = "#F4F6F3", "#8B939B", "#C9C2B4"
SHAPES = {  # corners (0: a circle), turned by, and how the legend writes it
    "marine": (0, 0.0, "\N{BLACK CIRCLE}"),
    "marauder": (4, np.pi / 4, "\N{BLACK SQUARE}"),
    "medivac": (6, 0.0, "\N{BLACK HEXAGON}"),
    "stalker": (3, 0.0, "\N{BLACK UP-POINTING TRIANGLE}"),
    "zealot": (4, 0.0, "\N{BLACK DIAMOND}"),
    "colossus": (5, 0.0, "\N{BLACK PENTAGON}"),
    "zergling": (3, np.pi, "\N{BLACK DOWN-POINTING TRIANGLE}"),
    "hydralisk": (4, 0.0, "\N{BLACK DIAMOND}"),
    "baneling": (0, 0.0, "\N{BLACK CIRCLE}"),
    "spine crawler": (4, np.pi / 4, "\N{BLACK SQUARE}"),
}
MARGIN = 1.5  # cells shown around the open ground


def draw(axes: Any, battle: Map, army: Army, forces: Forces) -> None:
    """Draw one moment on empty matplotlib axes."""
    from matplotlib.patches import Arc, Circle, RegularPolygon

    _ground(axes, battle)
    x, y, life, shield = (np.asarray(value) for value in (forces.x, forces.y, forces.life, forces.shield))
    shot, burst = np.asarray(forces.shot), np.asarray(forces.burst)
    for number, unit in enumerate(army.units):
        at, colour = (x[number], y[number]), ALLY if army.allied[number] else ENEMY
        if burst[number]:
            axes.add_patch(Circle(at, unit.blast, facecolor=BLAST, edgecolor=BLAST, alpha=0.35, zorder=2))
        if shot[number] != NOBODY and (life[number] > 0 or burst[number]):
            target = shot[number]
            line = {"color": HEAL if unit.heals else colour, "linewidth": 2.0 if unit.heals or unit.beams else 1.0, "zorder": 6}
            axes.plot((x[number], x[target]), (y[number], y[target]), alpha=0.8, **line)
        if life[number] <= 0:
            if not unit.blast:
                axes.plot(*at, marker="x", color=colour, markersize=4, alpha=0.35, zorder=2)
            continue
        height = 5 if unit.plane is Plane.AIR else 4
        corners, turn, _ = SHAPES[unit.name]
        body = {"facecolor": colour, "edgecolor": "white", "linewidth": 0.5, "zorder": height}
        shape = (
            RegularPolygon(at, corners, radius=unit.radius, orientation=turn, **body) if corners else Circle(at, unit.radius * 0.8, **body)
        )
        axes.add_patch(shape)
        arc = {"theta1": 90.0, "zorder": height + 0.1}
        share, size = 360.0 * life[number] / unit.life, 2 * unit.radius + 0.25
        axes.add_patch(Arc(at, size, size, theta2=90.0 + share, edgecolor="#30363D", linewidth=1.3, **arc))
        if unit.shield and shield[number] > 0:
            size += 0.35
            share = 360.0 * shield[number] / unit.shield
            axes.add_patch(Arc(at, size, size, theta2=90.0 + share, edgecolor=SHIELD, linewidth=1.6, **arc))
    _count(axes, battle, army, life)


def draw_outlines(axes: Any, battle: Map) -> None:
    """Draw the edges of the open ground over a map whose first cell is the north-western one, centred on (0, 0)."""
    grid = ground.walkable(battle.terrain)
    for (x, y), is_open in np.ndenumerate(grid):
        if not is_open:
            continue
        row = ground.SIZE - 1 - y
        for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1)):
            i, j = x + dx, y + dy
            if not (0 <= i < ground.SIZE and 0 <= j < ground.SIZE and grid[i, j]):
                edge_x = (x + dx / 2, x + dx / 2) if dx else (x - 0.5, x + 0.5)
                edge_y = (row - dy / 2, row - dy / 2) if dy else (row - 0.5, row + 0.5)
                axes.plot(edge_x, edge_y, color="#30363D", linewidth=1.2, zorder=4)
    x0, y0, x1, y1 = _frame(battle)
    axes.set(xlim=(x0 - 0.5, x1 - 0.5), ylim=(ground.SIZE - 0.5 - y0, ground.SIZE - 0.5 - y1), aspect="equal")
    axes.set_axis_off()


def _frame(battle: Map) -> tuple[float, float, float, float]:
    """The square around the open ground."""
    xs, ys = np.nonzero(ground.walkable(battle.terrain))
    x0, x1, y0, y1 = xs.min() - MARGIN, xs.max() + 1 + MARGIN, ys.min() - MARGIN, ys.max() + 1 + MARGIN
    half = max(x1 - x0, y1 - y0) / 2
    middle_x, middle_y = (x0 + x1) / 2, (y0 + y1) / 2
    return middle_x - half, middle_y - half, middle_x + half, middle_y + half


def _ground(axes: Any, battle: Map) -> None:
    from matplotlib.patches import Rectangle

    x0, y0, x1, y1 = _frame(battle)
    axes.add_patch(Rectangle((x0, y0), x1 - x0, y1 - y0, facecolor=WALL, zorder=0))
    for colour, rectangles in ((FLOOR, battle.terrain.open), (CLIFF, battle.terrain.cliffs)):
        for left, bottom, right, top in rectangles:
            axes.add_patch(
                Rectangle((left, bottom), right - left, top - bottom, facecolor=colour, edgecolor=colour, linewidth=0.5, zorder=1)
            )
    axes.set(xlim=(x0, x1), ylim=(y0, y1), aspect="equal")
    axes.set_axis_off()


def draw_vision(axes: Any, forces: Forces, agent: int) -> None:
    """Shade everything that an agent does not see; the dead see nothing."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    outside = Path([(-99, -99), (-99, 199), (199, 199), (199, -99), (-99, -99)])
    circle = Path.circle((float(forces.x[agent]), float(forces.y[agent])), SIGHT)
    holed = Path.make_compound_path(outside, circle) if forces.life[agent] > 0 else outside
    axes.add_patch(PathPatch(holed, facecolor="#30363D", alpha=0.35, linewidth=0, zorder=8))


def _count(axes: Any, battle: Map, army: Army, life: np.ndarray) -> None:
    """Which shape is what, above the ground, and who is left, below it."""
    x0, y0, x1, y1 = _frame(battle)
    alive, n = life > 0, army.n_allies
    line = {"va": "bottom", "fontsize": 9, "color": "white", "fontweight": "bold", "zorder": 9}
    axes.text(x0 + 0.4, y0 + 0.2, f"agents {alive[:n].sum()}/{n}", ha="left", **line | {"bbox": _label(ALLY)})
    kinds = dict.fromkeys(unit.name for unit in army.units)
    legend = "   ".join(f"{SHAPES[kind][2]} {kind}" for kind in kinds)
    axes.text((x0 + x1) / 2, y1 - 0.2, legend, ha="center", **line | {"fontsize": 8, "va": "top"})
    axes.text(x1 - 0.4, y0 + 0.2, f"enemy {alive[n:].sum()}/{army.size - n}", ha="right", **line | {"bbox": _label(ENEMY)})


def _label(colour: str) -> dict[str, Any]:
    return {"facecolor": colour, "edgecolor": "none", "boxstyle": "round,pad=0.25"}
