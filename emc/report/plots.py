"""Curves as data that the page's script draws: thinned to as many points as a screen can show, with four digits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from emc.report.curves import Curve, middle_half
from emc.report.figures import DARK, LIGHT, SOLID, look_of

Json = dict[str, Any]
POINTS = 300  # of a curve, at most
DASH_UNIT = 1.8  # pixels; matplotlib counts dashes in widths of the line


def band(curves: Sequence[Curve], grids: list[list[int]], most: int = POINTS) -> Json:
    """Median and middle half of some seeds, at their steps or, where there are more than a screen can show, at some of them.

    Steps are added to `grids`, which most curves of a page share.
    """
    steps = max(curves, key=lambda curve: curve.steps[-1]).steps
    chosen = steps[np.unique(np.linspace(0, len(steps) - 1, most).round().astype(int))] if len(steps) > most else steps
    found, grid = middle_half(curves, chosen), [int(step) for step in chosen]
    if grid not in grids:
        grids.append(grid)
    line: Json = {"grid": grids.index(grid), "median": rounded(found.median)}
    if len(curves) > 1:
        line |= {"low": rounded(found.low), "high": rounded(found.high)}
    if np.any(fewer := found.seeds < np.max(found.seeds)):
        line["fewer"] = [int(here) for here in fewer]
    return line


def rounded(values: Float[np.ndarray, "..."], digits: int = 4) -> list[Any]:
    """Numbers as short as they may be; None where there is none."""
    short = (float(f"{value:.{digits}g}") for value in values.tolist())
    return [None if not np.isfinite(value) else int(value) if value == int(value) else value for value in short]


def legend(named: Mapping[str, str]) -> list[Json]:
    """What the lines of some charts look like: given by label, the method of each. Variants of one method differ in their dashes."""
    methods = [*named.values()]
    return [{"name": label} | look(method, variant=methods[:place].count(method)) for place, (label, method) in enumerate(named.items())]


def look(method_name: str, variant: int = 0) -> Json:
    """Colours on light and on dark paper, and dashes in pixels."""
    light, dark = (look_of(method_name, theme, variant) for theme in (LIGHT, DARK))
    dashes = {} if light.dashes == SOLID else {"dash": [round(DASH_UNIT * length, 1) for length in light.dashes[1]]}
    return {"colours": [light.colour, dark.colour]} | dashes
