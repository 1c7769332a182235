"""What a memory holds while agents learn, against the optimum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from emc.report.curves import draw_band, middle_half, tracks
from emc.report.figures import LIGHT, LOOKS, legend_below, looks_of, mark, new_figure, style
from results_page.pictures import save
from results_page.places import FIGURES, RESULTS, ROOT

MEMORY_ERROR, MEMORY_ERROR_FIGURE = RESULTS / "memory-error.json", FIGURES / "memory-error.png"


def memory_errors() -> dict[tuple[float, str], list[dict[str, Any]]]:
    """What was measured of each statistic at each slip, seed by seed; of one that was measured twice the longer."""
    found: dict[tuple[float, str], dict[int, dict[str, Any]]] = {}
    for one in sorted(json.loads(MEMORY_ERROR.read_text()), key=lambda one: (one["slip"], one["steps"])):
        found.setdefault((one["slip"], one["statistic"]), {})[one["seed"]] = one
    return {arm: [*seeds.values()] for arm, seeds in found.items()}


def draw_memory_errors() -> None:
    """A panel for each slip; at zero what is remembered is, on average, what can be had."""
    if not MEMORY_ERROR.exists():
        return
    found = memory_errors()
    slips = [*dict.fromkeys(slip for slip, _ in found)]
    figure, every_axes = new_figure(4.2 * len(slips), 3.2, 1, len(slips), LIGHT)
    for axes, slip in zip(every_axes, slips, strict=True):
        own = {statistic: measured for (at, statistic), measured in found.items() if at == slip}
        looks = looks_of([*LOOKS][: len(own)], LIGHT)
        bands = [middle_half(tracks(_lines(measured), lambda line: line["bias"])) for measured in own.values()]
        lines = [draw_band(axes, band, look, name, 1.5) for band, look, name in zip(bands, looks, own, strict=True)]
        axes.axhline(0.0, color=LIGHT.faint, linewidth=0.8)
        mark(lines, looks)
        style(axes, LIGHT, f"ξ = {slip:g}", "remembered minus optimum")
    legend_below(figure, every_axes, 3, LIGHT)
    save(figure, hashlib.sha256(MEMORY_ERROR.read_bytes()).hexdigest(), MEMORY_ERROR_FIGURE)


def _lines(measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line | {"seed": one["seed"]} for one in measured for line in one["lines"]]


def memory_error_table() -> Iterator[str]:
    """Mean error and root mean square, medians over seeds, as training goes on."""
    found = memory_errors()
    shortest = min(one["steps"] for own in found.values() for one in own)
    wanted = [steps for steps in (10_000, 50_000, 100_000, 150_000, 200_000) if steps <= shortest]
    yield "| slip | remembered | seeds | " + " | ".join(f"{steps // 1000}k steps" for steps in wanted) + " |"
    yield "|---|---|---|" + "---|" * len(wanted)
    for (slip, statistic), own in found.items():
        cells = []
        for steps in wanted:
            lines = [next(line for line in one["lines"] if line["steps"] >= steps) for one in own]
            bias, rms = (float(np.median([line[name] for line in lines])) for name in ("bias", "rms"))
            cells.append(f"{bias:+.2f} / {rms:.2f}")
        yield f"| {slip:g} | {statistic} | {len(own)} | {' | '.join(cells)} |"


def memory_error_section() -> Iterator[str]:
    """Figure, table, reading and command."""
    if MEMORY_ERROR.exists():
        yield '<a id="memory-error"></a>\n\n## What a memory holds while agents learn, against the optimum'
        yield f"![Error of the memory along training](figures/{MEMORY_ERROR_FIGURE.name})"
        yield "\n".join(memory_error_table())
        yield (ROOT / "experiments" / "memory_error.md").read_text().rstrip()
        commits = ", ".join(dict.fromkeys(str(one["commit"]) for one in json.loads(MEMORY_ERROR.read_text())))
        yield f"Command: `python experiments/memory_error.py STEPS SEED ...` at {commits}; all numbers in `results/{MEMORY_ERROR.name}`."
