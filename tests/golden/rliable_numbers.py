"""Write rliable.json: scores, and what rliable says of them. Run where rliable can be imported (version 1.2 needs pandas below 3):

python -m venv rl && rl/bin/pip install rliable 'pandas<3' && rl/bin/python tests/golden/rliable_numbers.py
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from rliable import library, metrics

RUNS, TASKS = 10, 4
SAMPLES = 50_000  # of the bootstrap; of improvement, which is slow, 2,000
NAMES = ("mean", "median", "iqm", "optimality_gap")


def scores() -> dict[str, np.ndarray]:
    """Three methods: shares of 32 test episodes, with many ties; the same scale without ties; and beyond both ends of it."""
    rng = np.random.default_rng(0)
    level = np.array([0.2, 0.5, 0.8, 0.95])
    ties = rng.binomial(32, level, (RUNS, TASKS)) / 32
    even = np.clip(level + rng.normal(0.05, 0.15, (RUNS, TASKS)), 0, 1).round(6)
    wild = rng.normal(level, 0.6, (RUNS, TASKS)).round(6)
    return {"ties": ties, "even": even, "wild": wild}


def interval(value: Any, ends: Any) -> dict[str, Any]:
    """One entry of the file."""
    return {"value": np.squeeze(value).tolist(), "low": np.squeeze(ends[0]).tolist(), "high": np.squeeze(ends[1]).tolist()}


def main() -> None:
    """Ask rliable for everything and write it down."""
    given, thresholds = scores(), np.linspace(-0.5, 1.5, 21)
    aggregates: dict[str, Any] = {}
    for name in NAMES:
        aggregate = getattr(metrics, f"aggregate_{name}")
        values, ends = library.get_interval_estimates(given, lambda x, f=aggregate: np.array([f(x)]), reps=SAMPLES)
        for method in given:
            aggregates.setdefault(method, {})[name] = interval(values[method], ends[method])
    values, ends = library.create_performance_profile(given, thresholds, reps=SAMPLES)
    profiles = {method: interval(values[method], ends[method]) for method in given}
    pairs = {f"{a},{b}": (given[a], given[b]) for a in given for b in given if a != b}
    values, ends = library.get_interval_estimates(pairs, metrics.probability_of_improvement, reps=2_000)
    document = {
        "versions": {name: version(name) for name in ("rliable", "arch", "numpy", "pandas", "scipy")},
        "samples": SAMPLES,
        "scores": {method: table.tolist() for method, table in given.items()},  # a row for each run, a column for each task
        "aggregates": aggregates,
        "thresholds": thresholds.tolist(),
        "profiles": profiles,
        "improvement": {pair: interval(values[pair], ends[pair]) for pair in pairs},
    }
    Path(__file__).with_name("rliable.json").write_text(json.dumps(document) + "\n")


if __name__ == "__main__":
    main()
