"""Honest numbers from few runs: medians and quartiles as in the paper, and aggregates over tasks with stratified bootstrap intervals.

Scores are given task by task, one number per run, on a fixed scale of the task (`emc.report.ceilings.on_scale`), so that another method
on the plot never changes the ones already there. Aggregates and their intervals follow Agarwal et al., "Deep RL at the Edge of the
Statistical Precipice" (NeurIPS 2021). Where tasks have different numbers of runs, aggregates of all runs together (IQM, optimality gap,
percentiles, profiles) weigh every run alike, and aggregates of means every task.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int

from emc.errors import UserError
from emc.user_input import check_number, check_size

Scores = Mapping[str, Float[np.ndarray, " runs"]]  # by task; tasks may have different numbers of runs
Tables = Sequence[Float[np.ndarray, "*samples runs"]]  # the same without names, possibly many samples of it at once
Aggregate = Callable[[Tables], Float[np.ndarray, "*samples"]]
CHUNK = 500_000  # numbers that the bootstrap holds at once, about
ROUNDING = 1e-9  # by which a difference of scores may miss a margin that it reaches
FEW = 200  # runs that an exact test compares at most


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


def percentile(share: float) -> Aggregate:
    """The number that this share of all runs of all tasks stays below: 0.25, 0.5 and 0.75 are the quartiles that the paper shows."""
    check_number("share", share, "0.5 asks for the median.", low=0.0, high=1.0)
    return lambda tables: np.quantile(np.concatenate(tables, axis=-1), share, axis=-1)


AGGREGATES: Mapping[str, Aggregate] = {"median": median, "IQM": iqm, "mean": mean, "optimality gap": optimality_gap}


def improvement(ours: Tables, theirs: Tables) -> Float[np.ndarray, "*samples"]:
    """The probability that a run of ours is better than one of theirs on a task chosen at random; a tie is half."""
    return np.mean([_wins(mine[..., :, None], yours[..., None, :]) for mine, yours in zip(ours, theirs, strict=True)], axis=0)


def _wins(mine: Float[np.ndarray, "*samples m 1"], yours: Float[np.ndarray, "*samples 1 n"]) -> Float[np.ndarray, "*samples"]:
    pairs = mine.shape[-2] * yours.shape[-1]
    won, lost = (np.count_nonzero(better, axis=(-2, -1)) for better in (mine > yours, mine < yours))
    return 0.5 + (won - lost) / (2 * pairs)


def profile(tables: Tables, thresholds: Float[np.ndarray, " k"]) -> Float[np.ndarray, "*samples k"]:
    """For each threshold the share of runs, over all tasks, that score above it."""
    order, together = np.argsort(thresholds), np.concatenate(tables, axis=-1)
    samples, runs, bins = together.shape[:-1], together.shape[-1], len(thresholds) + 1
    passed = np.searchsorted(np.asarray(thresholds)[order], together).reshape(-1, runs)  # how many thresholds lie below each run
    counts = np.bincount((passed + bins * np.arange(len(passed))[:, None]).ravel(), minlength=len(passed) * bins).reshape(-1, bins)
    shares = np.empty((len(passed), len(thresholds)))
    shares[:, order] = np.cumsum(counts[:, :0:-1], axis=-1)[:, ::-1] / runs  # above the last one, above the one before it, ...
    return shares.reshape(*samples, len(thresholds))


def best_on(methods: Sequence[Tables], margin: float) -> Int[np.ndarray, "methods *samples"]:
    """On how many tasks the median run of each method is above that of every other method by a margin or more; without one, ties count."""
    medians = np.array([[np.median(table, axis=-1) for table in tables] for tables in methods])
    rivals = np.array([np.max(np.delete(medians, own, axis=0), axis=0) for own in range(len(medians))])
    return np.sum(medians - rivals >= margin - ROUNDING, axis=1)


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


def estimate_best_on(
    scores: Mapping[str, Scores], margin: float = 1 / 32, samples: int = 2_000, confidence: float = 0.95, seed: int = 0
) -> dict[str, Estimate]:
    """On how many tasks each of several methods is best by a margin, with its interval; all must have the same tasks.

    The margin that is usual on battles is one of 32 test episodes.
    """
    check_number("margin", margin, "say by how much the best must be ahead, such as 1/32.", low=0.0)
    if len(scores) < 2:
        raise UserError("who is best can only be said of several methods: give two or more")
    tasks = [*next(iter(scores.values()))]
    for name, own in scores.items():
        if different := sorted(set(tasks) ^ set(own)):
            raise UserError(f"not every method has {', '.join(different)} ({name}): compare methods on the same tasks")
    tables = [_checked({task: own[task] for task in tasks}, samples, confidence) for own in scores.values()]
    together = [table for own in tables for table in own]  # as one set: nothing is compared run by run, so blocks may be large

    def count(every: Tables) -> np.ndarray:
        return best_on([every[at : at + len(tasks)] for at in range(0, len(every), len(tasks))], margin)

    drawn = np.concatenate([count(some) for (some,) in _resampled([together], samples, seed)], axis=-1)
    low, high = _ends(drawn.T, confidence)
    return {name: Estimate(*map(float, numbers)) for name, *numbers in zip(scores, count(together), low, high, strict=True)}


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


def _resampled(sets: list[Tables], samples: int, seed: int) -> Iterator[list[Tables]]:
    """Blocks of samples of all sets, the runs of every task drawn on their own."""
    rng = np.random.default_rng(seed)
    widest = math.prod(max(table.size for table in tables) for tables in sets)  # two sets are compared run by run
    size = max(1, CHUNK // max(widest, sum(table.size for tables in sets for table in tables)))
    for begin in range(0, samples, size):
        count = min(size, samples - begin)
        yield [[table[rng.integers(0, table.size, (count, table.size))] for table in tables] for tables in sets]


def _ends(drawn: np.ndarray, confidence: float) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.quantile(drawn, (0.5 - confidence / 2, 0.5 + confidence / 2), axis=0)
    return low, high


# ------------------------------------------------------------------------------------------------------------ comparisons


def ahead(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """How often chance alone would put our runs as far ahead of theirs as they are: an exact one-sided rank-sum test, ties included.

    Of all ways to call as many of the runs ours, the share in which ours have at least the rank sum that they really have. With few runs it
    cannot be small: three against three are never below 1/20.
    """
    mine, yours = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if mine.ndim != 1 or yours.ndim != 1 or not (mine.size and yours.size):
        raise UserError("both sides of a comparison need at least one run: a list of numbers for each")
    if mine.size + yours.size > FEW:
        raise UserError(f"{mine.size + yours.size} runs are more than the {FEW} that an exact test counts: use estimate_improvement")
    if np.any(np.isnan(mine)) or np.any(np.isnan(yours)):
        raise UserError("a score is not a number: leave such runs out, and say so")
    ranks = _doubled_ranks(np.concatenate([mine, yours]))
    sums = _ways(ranks, mine.size)
    return float(np.sum(sums[np.sum(ranks[: mine.size]) :]) / np.sum(sums))


def _doubled_ranks(values: Float[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Twice the rank of each value, a whole number also where equal values share the mean of theirs."""
    ordered = np.sort(values)
    return np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right") + 1


def _ways(ranks: Int[np.ndarray, " n"], size: int) -> Float[np.ndarray, " sums"]:
    """In how many ways so many of the ranks come to each sum."""
    most = int(np.sum(np.sort(ranks)[ranks.size - size :]))
    ways = np.zeros((size + 1, most + 1))  # by how many were chosen, and their sum
    ways[0, 0] = 1.0
    for rank in ranks:
        for chosen in range(size, 0, -1):  # from above, so that no rank is chosen twice
            ways[chosen, rank:] += ways[chosen - 1, : most + 1 - rank]
    return ways[size]


# ---------------------------------------------------------------------------------------------------------------- curves


def final(values: Sequence[float], last: int = 5) -> float:
    """The score of a run: the mean of its last tests. Reports, claims, sweeps and the documentation use no other."""
    check_size("last", last, "say how many tests to take the mean of.", low=1)
    _check_curve(values)
    return float(np.mean(np.asarray(values)[-last:]))


def area(steps: Sequence[float], values: Sequence[float], until: float) -> float:
    """The mean height of a curve from step 0 to `until`: its first value holds before, its last one after."""
    check_number("until", until, "give the number of steps to look at.", low=1e-9)
    _check_curve(values, steps)
    at = np.concatenate([[0.0], np.clip(steps, 0.0, until), [until]])
    return float(np.trapezoid(np.interp(at, steps, values), at) / until)


def steps_to(steps: Sequence[float], values: Sequence[float], threshold: float, holds: int = 3) -> float:
    """The first step from which so many tests in a row reach a threshold; infinite if there is none."""
    check_size("holds", holds, "say how many tests in a row must reach the threshold.", low=1)
    _check_curve(values, steps)
    reached = np.asarray(values) >= threshold
    runs = np.lib.stride_tricks.sliding_window_view(reached, holds).all(axis=-1) if reached.size >= holds else np.zeros(0, bool)
    return float(np.asarray(steps)[int(np.argmax(runs))]) if runs.any() else float("inf")


def half_by(times: Sequence[float]) -> float:
    """By when half of some runs got somewhere, where infinity is not by the end: the Kaplan-Meier median of runs watched equally long."""
    if not len(times) or np.any(np.isnan(times)):
        raise UserError("half of the runs needs a time of each, infinite where a run never got there: leave out what is not known")
    return float(np.sort(np.asarray(times, np.float64))[(len(times) - 1) // 2])


def _check_curve(values: Sequence[float], steps: Sequence[float] | None = None) -> None:
    if not len(values):
        raise UserError("a curve without points has no summary: leave it out")
    if steps is not None and (len(steps) != len(values) or np.any(np.diff(steps) < 0)):
        raise UserError(f"{len(steps)} steps for {len(values)} values: give one step for each value, in increasing order")
