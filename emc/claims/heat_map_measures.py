"""Where agents were, seed by seed: measures of heat maps that statements can be judged by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from emc.claims.claim import Verdict, VerdictKind
from emc.claims.evidence import Evidence, Sample
from emc.claims.judgement import SEEDS, Judge, Measure, lacking
from emc.envs.base import HasAreas
from emc.user_input import lookup

EARLY, MIDDLE, LATE = (0.0, 0.1), (0.45, 0.55), (0.9, 1.0)  # shares of a panel's steps


def time_in(area: str) -> Measure:
    """The share of agent-steps in an area of the map, over the whole panel."""

    def measure(sample: Sample) -> Float[np.ndarray, " seeds"]:
        mask = _mask(sample, area)
        return _each(sample, lambda maps: _sum(maps, "visits")[mask].sum() / _sum(maps, "visits").sum())

    return measure


def paid_in(area: str) -> Measure:
    """Intrinsic reward per visit in an area, as a multiple of that on the whole map."""

    def measure(sample: Sample) -> Float[np.ndarray, " seeds"]:
        mask = _mask(sample, area)

        def ratio(maps: list[Mapping[str, Any]]) -> float:
            paid, visits = _sum(maps, "bonus"), _sum(maps, "bonus_visits")
            whole = paid.sum() / max(visits.sum(), 1.0)
            return float(paid[mask].sum() / max(visits[mask].sum(), 1.0) / whole) if whole > 0 else 0.0

        return _each(sample, ratio)

    return measure


def evenness(when: tuple[float, float]) -> Measure:
    """The entropy of visits over cells in a stretch of the panel, as a share of the largest there is."""

    def measure(sample: Sample) -> Float[np.ndarray, " seeds"]:
        return _each(sample, lambda maps: _evenness(_sum(_between(maps, when, sample.panel.steps), "visits")))

    return measure


def alike(panel: str, *arms: str, measure: Measure, within: float) -> Judge:
    """The medians of some methods are no further apart than this."""

    def judge(evidence: Evidence) -> Verdict:
        medians: dict[str, float] = {}
        for arm in arms:
            sample = evidence.sample(panel, arm)
            if sample is None or len(sample.complete) < SEEDS:
                return lacking(panel, arm, sample)
            found = measure(sample)
            if len(found) < SEEDS:  # of a run without maps there is nothing to measure
                return Verdict(VerdictKind.UNKNOWN, ((panel, f"{arm}: {len(found)} of {len(sample.complete)} seeds have maps"),))
            medians[arm] = float(np.median(found))
        near = max(medians.values()) - min(medians.values()) <= within
        facts = ((panel, ", ".join(f"{arm} {median:.3f}" for arm, median in medians.items())),)
        return Verdict(VerdictKind.HOLDS if near else VerdictKind.FAILS, facts)

    return judge


def _evenness(visits: Float[np.ndarray, "R C"]) -> float:
    share = visits[visits > 0] / visits.sum()
    return float(-np.sum(share * np.log(share)) / np.log(visits.size))


def _between(maps: list[Mapping[str, Any]], when: tuple[float, float], steps: int) -> list[Mapping[str, Any]]:
    """The snapshots of a stretch; the one that ends nearest to its middle where a long run has none inside."""
    first, last = (share * steps for share in when)
    inside = [line for line in maps if first < line["steps"] <= last + 0.01 * steps]  # a snapshot is late by up to an episode
    return inside or [min(maps, key=lambda line: abs(line["steps"] - (first + last) / 2))]


def _each(sample: Sample, number: Any) -> Float[np.ndarray, " seeds"]:
    complete = {curve.seed for curve in sample.complete}
    by_seed: dict[int, list[Mapping[str, Any]]] = {}
    for line in sample.snapshots():
        if line["seed"] in complete:
            by_seed.setdefault(line["seed"], []).append(line)
    return np.array([number(maps) for _, maps in sorted(by_seed.items())])


def _sum(maps: list[Mapping[str, Any]], field: str) -> Float[np.ndarray, "R C"]:
    return np.sum([np.asarray(line[field], float) for line in maps], axis=0)


def _mask(sample: Sample, area: str) -> Bool[np.ndarray, "R C"]:
    env = sample.config.env
    return lookup(f"area of {sample.config.env_name}", area, env.areas() if isinstance(env, HasAreas) else {})
