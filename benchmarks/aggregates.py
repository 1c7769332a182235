"""Time and memory of all statistics over tasks: 10 methods x 20 tasks x 10 seeds, 2,000 bootstrap samples, beside rliable where it imports.

rliable is slow in one of them, so it is asked with fewer samples there and its time scaled up; both costs are proportional to the samples.

    python benchmarks/aggregates.py
"""

from __future__ import annotations

import os
import platform
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import numpy as np
from common import keep

from emc import statistics

METHODS, TASKS, SEEDS, SAMPLES = 10, 20, 10, 2_000
FEWER = 50  # samples of rliable's probability of improvement
THRESHOLDS = np.linspace(0.0, 1.0, 101)


def scores() -> dict[str, np.ndarray]:
    """Made-up win rates of 32 test episodes: runs x tasks, by method."""
    rng = np.random.default_rng(0)
    return {f"method {i}": rng.binomial(32, 0.1 + 0.08 * i, (SEEDS, TASKS)) / 32 for i in range(METHODS)}


def ours(tables: dict[str, np.ndarray]) -> dict[str, Callable[[], Any]]:
    """Every statistic, for all methods."""
    named = {method: {f"task {i}": runs for i, runs in enumerate(table.T)} for method, table in tables.items()}
    first, *others = named.values()
    aggregates = statistics.AGGREGATES.values()
    return {
        "aggregates": lambda: [statistics.estimate(own, aggregate, SAMPLES) for own in named.values() for aggregate in aggregates],
        "profiles": lambda: [statistics.estimate_profile(own, THRESHOLDS, SAMPLES) for own in named.values()],
        "improvement": lambda: [statistics.estimate_improvement(first, own, SAMPLES) for own in others],
    }


def theirs(tables: dict[str, np.ndarray]) -> dict[str, tuple[Callable[[], Any], int]]:
    """The same of rliable, each with its number of samples; nothing where it cannot be imported."""
    try:
        from rliable import library, metrics
    except Exception as error:  # its dependencies raise more than ImportError
        print(f"without rliable: {type(error).__name__}: {error}")
        return {}
    names = ("median", "iqm", "mean", "optimality_gap")
    first, *others = tables.values()
    pairs = {str(i): (first, own) for i, own in enumerate(others)}

    def aggregates(table: np.ndarray) -> np.ndarray:
        return np.array([getattr(metrics, f"aggregate_{name}")(table) for name in names])

    return {
        "aggregates": (lambda: library.get_interval_estimates(tables, aggregates, reps=SAMPLES), SAMPLES),
        "profiles": (lambda: library.create_performance_profile(tables, THRESHOLDS, reps=SAMPLES), SAMPLES),
        "improvement": (lambda: library.get_interval_estimates(pairs, metrics.probability_of_improvement, reps=FEWER), FEWER),
    }


def seconds(run: Callable[[], Any], repeats: int) -> float:
    """The fastest of several runs."""
    times: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def peak(run: Callable[[], Any]) -> float:
    """Megabytes that were allocated at once, at most."""
    tracemalloc.start()
    run()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most / 2**20


def main() -> None:
    """Measure, print, keep."""
    tables = scores()
    mine, yours = ours(tables), theirs(tables)
    result: dict[str, Any] = {"numpy": np.__version__, "python": platform.python_version(), "threads": 1}
    for name, run in mine.items():
        result[f"{name}_seconds"] = seconds(run, repeats=3)
        result[f"{name}_peak_mb"] = peak(run)
    for name, (run, samples) in yours.items():
        result[f"{name}_rliable_seconds"] = seconds(run, repeats=1) * SAMPLES / samples
        result[f"{name}_rliable_ratio"] = result[f"{name}_rliable_seconds"] / result[f"{name}_seconds"]
    result["all_seconds"] = sum(result[f"{name}_seconds"] for name in mine)
    result["all_peak_mb"] = max(result[f"{name}_peak_mb"] for name in mine)
    if yours:
        result["all_rliable_ratio"] = sum(result[f"{name}_rliable_seconds"] for name in yours) / result["all_seconds"]
    keep("aggregates", result)


if __name__ == "__main__":
    main()
