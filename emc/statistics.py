"""Honest numbers from few runs: medians and quartiles as in the paper, and aggregates over tasks with stratified bootstrap intervals.

Scores are given task by task, one number per run, on a fixed scale of the task (`Task.score`), so that another method on the plot never
changes the ones already there. Aggregates and their intervals follow Agarwal et al., "Deep RL at the Edge of the Statistical Precipice"
(NeurIPS 2021).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from emc.errors import UserError
from emc.names import check_number, check_size

Scores = Mapping[str, Float[np.ndarray, " runs"]]  # by task; tasks may have different numbers of runs
Tables = Sequence[Float[np.ndarray, "*samples runs"]]  # the same without names, possibly many samples of it at once
Aggregate = Callable[[Tables], Float[np.ndarray, "*samples"]]
CHUNK = 2_000_000  # numbers that the bootstrap holds at once, about


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number and the interval that its bootstrap gives it."""

    value: float
    low: float
    high: float


# ------------------------------------------------------------------------------------------------------------ aggregates


def mean(tables: Tables) -> Float[np.ndarray, "*samples"]:
    """The mean over tasks of each task's mean."""
    return np.mean([np.mean(table, axis=-1) for table in tables], axis=0)


def median(tables: Tables) -> Float[np.ndarray, "*samples"]:
    """The median over tasks of each task's mean."""
    return np.median([np.mean(table, axis=-1) for table in tables], axis=0)


def iqm(tables: Tables) -> Float[np.ndarray, "*samples"]:
    """The interquartile mean: of all runs of all tasks together, the mean of the middle half."""
    together = np.sort(np.concatenate(tables, axis=-1), axis=-1)
    cut = together.shape[-1] // 4
    return np.mean(together[..., cut : together.shape[-1] - cut], axis=-1)


def optimality_gap(tables: Tables) -> Float[np.ndarray, "*samples"]:
    """How far runs stay below a score of 1 on average; more than 1 does not make up for less."""
    return 1.0 - np.mean(np.minimum(np.concatenate(tables, axis=-1), 1.0), axis=-1)


AGGREGATES: Mapping[str, Aggregate] = {"median": median, "IQM": iqm, "mean": mean, "optimality gap": optimality_gap}


def improvement(ours: Tables, theirs: Tables) -> Float[np.ndarray, "*samples"]:
    """The probability that a run of ours is better than one of theirs on a task chosen at random; a tie is half."""
    found = []
    for mine, yours in zip(ours, theirs, strict=True):
        difference = mine[..., :, None] - yours[..., None, :]
        found.append(np.mean((difference > 0) + 0.5 * (difference == 0), axis=(-2, -1)))
    return np.mean(found, axis=0)


def profile(tables: Tables, thresholds: Float[np.ndarray, " k"]) -> Float[np.ndarray, "*samples k"]:
    """For each threshold the share of runs, over all tasks, that score above it."""
    together = np.concatenate(tables, axis=-1)
    return np.stack([np.mean(together > threshold, axis=-1) for threshold in thresholds], axis=-1)


# ------------------------------------------------------------------------------------------------------------- intervals


def estimate(scores: Scores, aggregate: Aggregate, samples: int = 2_000, confidence: float = 0.95, seed: int = 0) -> Estimate:
    """An aggregate with its interval: percentiles of samples that draw each task's runs again, with replacement."""
    return _estimate([scores], lambda sets: aggregate(sets[0]), samples, confidence, seed)


def estimate_improvement(ours: Scores, theirs: Scores, samples: int = 2_000, confidence: float = 0.95, seed: int = 0) -> Estimate:
    """The probability of improvement with its interval; both must have the same tasks."""
    if set(ours) != set(theirs):
        raise UserError(f"only one of the two methods has {', '.join(sorted(set(ours) ^ set(theirs)))}: compare them on the same tasks")
    return _estimate([ours, {task: theirs[task] for task in ours}], lambda sets: improvement(*sets), samples, confidence, seed)


def estimate_profile(
    scores: Scores, thresholds: Float[np.ndarray, " k"], samples: int = 2_000, confidence: float = 0.95, seed: int = 0
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
    """A performance profile: its values, and the lower and upper ends of their intervals."""
    tables = _checked(scores, samples, confidence)
    drawn = np.concatenate([profile(sets[0], thresholds) for sets in _resampled([tables], samples, seed)])
    low, high = _ends(drawn, confidence)
    return profile(tables, thresholds), low, high


def quartiles(values: Float[np.ndarray, "runs *rest"]) -> tuple[Float[np.ndarray, "*rest"], ...]:
    """Median, 25 % and 75 % over runs: the line and the band of the paper's figures."""
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
    return middle, low, high


def _estimate(sets: list[Scores], aggregate: Callable[[list[Tables]], np.ndarray], samples: int, confidence: float, seed: int) -> Estimate:
    tables = [_checked(scores, samples, confidence) for scores in sets]
    drawn = np.concatenate([np.atleast_1d(aggregate(some)) for some in _resampled(tables, samples, seed)])
    low, high = _ends(drawn, confidence)
    return Estimate(float(aggregate(tables)), float(low), float(high))


def _checked(scores: Scores, samples: int, confidence: float) -> Tables:
    check_size("samples", samples, "say how often to draw the runs again.", low=1)
    check_number("confidence", confidence, "say how much of the samples the interval holds, such as 0.95.", low=0.0, high=1.0)
    tables = [np.asarray(runs, np.float64) for runs in scores.values()]
    if not tables or any(table.ndim != 1 or not table.size for table in tables):
        raise UserError("scores must hold at least one run of every task: a list of numbers for each")
    if not all(np.all(np.isfinite(table)) for table in tables):
        raise UserError("a score is not a finite number: leave such runs out, and say so")
    return tables


def _resampled(sets: list[Tables], samples: int, seed: int) -> list[list[Tables]]:
    """Blocks of samples of all sets, the runs of every task drawn on their own."""
    rng = np.random.default_rng(seed)
    size = max(1, CHUNK // max(sum(table.size for tables in sets for table in tables), 1))
    blocks: list[list[Tables]] = []
    for begin in range(0, samples, size):
        count = min(size, samples - begin)
        blocks.append([[table[rng.integers(0, table.size, (count, table.size))] for table in tables] for tables in sets])
    return blocks


def _ends(drawn: np.ndarray, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.quantile(drawn, (0.5 - confidence / 2, 0.5 + confidence / 2), axis=0)
    return low, high


# ---------------------------------------------------------------------------------------------------------------- curves


def on_grid(steps: Sequence[float], values: Sequence[float], grid: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    """A curve at common steps, in straight lines between its points; not a number before its first and after its last."""
    return np.interp(grid, steps, values, left=np.nan, right=np.nan)


def area(steps: Sequence[float], values: Sequence[float], until: float) -> float:
    """The mean height of a curve from step 0 to `until`: its first value holds before, its last one after."""
    at = np.concatenate([[0.0], np.clip(steps, 0.0, until), [until]])
    return float(np.trapezoid(np.interp(at, steps, values), at) / until)


def final(values: Sequence[float], last: int = 5) -> float:
    """The mean of the last few tests."""
    return float(np.mean(np.asarray(values)[-last:]))


def steps_to(steps: Sequence[float], values: Sequence[float], threshold: float, holds: int = 3) -> float:
    """The first step from which so many tests in a row reach a threshold; infinite if there is none."""
    reached = np.asarray(values) >= threshold
    runs = np.lib.stride_tricks.sliding_window_view(reached, holds).all(axis=-1) if reached.size >= holds else np.zeros(0, bool)
    return float(np.asarray(steps)[int(np.argmax(runs))]) if runs.any() else float("inf")
