"""What a run has measured, as arrays: `test_win_rate`, `train_return`, `loss` and so on, seed by seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from emc.user_input import lookup

OF_EPISODES = ("return", "win_rate", "length")  # that both tests and training have


class Series(NamedTuple):
    """One number over steps, a row for each seed; not a number where a seed has fewer points than another."""

    steps: Float[np.ndarray, "seeds points"]
    values: Float[np.ndarray, "seeds points"]


def points(line: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of one line by the names that they have for everybody: of a test the means over its episodes."""
    if line["kind"] == "eval":
        found = {"return": line["return"], "win_rate": line["won"], "length": line.get("length", ())}
        return {f"test_{name}": float(np.mean(values)) for name, values in found.items() if len(values)}
    plain = {name: value for name, value in line.items() if name not in ("kind", "seed", "steps")}
    return {f"train_{name}" if name in OF_EPISODES else name: float(value) for name, value in plain.items()}


def rows(lines: Iterable[Mapping[str, Any]]) -> list[dict[str, float]]:
    """A row for each seed and step, with all that was measured there."""
    found: dict[tuple[int, int], dict[str, float]] = {}
    for line in lines:
        place = (line["seed"], line["steps"])
        found.setdefault(place, {"seed": line["seed"], "steps": line["steps"]}).update(points(line))
    return [*found.values()]


def series(lines: Iterable[Mapping[str, Any]], name: str, seeds: Sequence[int]) -> Series:
    """One number over steps."""
    every = rows(lines)
    known = {key: key for row in every for key in row if key not in ("seed", "steps")}
    lookup("metric", name, known)
    own = [[(row["steps"], row[name]) for row in every if row["seed"] == seed and name in row] for seed in seeds]
    table = np.full((2, len(seeds), max(map(len, own))), np.nan)
    for place, found in enumerate(own):
        table[:, place, : len(found)] = np.array(found, float).reshape(-1, 2).T
    return Series(table[0], table[1])
