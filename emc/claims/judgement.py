"""How a statement is judged. A judge looks at the evidence and says holds, does not hold, or not enough data, with the numbers behind it.

A method *wins* a panel if the median over seeds of its score at the end is at least `WIN` of what the best possible play scores, and
*fails* if it is at most `LOSS` on the task's scale: medians are what the paper shows. It takes `SEEDS` complete seeds to judge a method.
One method is *ahead* of another if chance alone would put it as far ahead in one case of twenty at most (an exact one-sided test over the
seeds). That is contradicted by a lead of the other, or by `MANY` seeds in whose median it is not in front; else it is open. That one is
*as good as* others, or that none is better, takes `FAIR` seeds, with which a contrary that is plain would be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from emc.claims.claim import Panel, Verdict, VerdictKind
from emc.claims.evidence import Evidence, Sample
from emc.report.curves import Curve
from emc.report.run_titles import about, steps_in_words
from emc.statistics import ahead as chance_of
from emc.statistics import area, quartiles, steps_to

Judge = Callable[[Evidence], Verdict]
Measure = Callable[[Sample], Float[np.ndarray, " seeds"]]  # larger is better
WIN, LOSS, SEEDS, CHANCE = 0.9, 0.1, 3, 0.05
OUTSIDE = "not part of this budget"
FAIR = 5  # seeds of each, with which one that is clearly better would be seen to be
MANY = 6  # seeds of each, whose medians contradict that one is in front


def wins(panel: str, *arms: str, bar: float | None = None) -> Judge:
    """Every one of these methods wins; a task whose best play is not known may state its own bar."""
    return all_of(*(_median(panel, arm, lambda median, won: median >= won, bar) for arm in arms))


def fails(panel: str, *arms: str, bar: float = LOSS) -> Judge:
    """Every one of these methods fails."""
    return all_of(*(_median(panel, arm, lambda median, _: median <= bar) for arm in arms))


def bar_of(panel: Panel) -> float:
    """From where on a panel counts as won: nine tenths of the best possible play."""
    return WIN * panel.best


def _median(panel: str, arm: str, accepted: Callable[[float, float], bool], bar: float | None = None) -> Judge:
    def judge(evidence: Evidence) -> Verdict:
        sample = evidence.sample(panel, arm)
        if sample is None or len(sample.complete) < SEEDS:
            return lacking(panel, arm, sample)
        won = bar_of(sample.panel) if bar is None else bar
        good = accepted(float(np.median(sample.finals)), won)
        return Verdict(VerdictKind.HOLDS if good else VerdictKind.FAILS, ((panel, f"{arm} {described(sample, won)}"),))

    return judge


def at_the_end(sample: Sample) -> Float[np.ndarray, " seeds"]:
    """The score at the end."""
    return sample.finals


def sooner(sample: Sample) -> Float[np.ndarray, " seeds"]:
    """How soon nine tenths of the best possible play are reached and held, as steps below 0; never is later than everything."""
    return -np.array(held_from(sample, sample.complete))


def held_from(sample: Sample, curves: Sequence[Curve]) -> list[float]:
    """The step from which each of a sample's curves is at nine tenths of the best possible play and holds it; infinite if never."""
    bar = bar_of(sample.panel)
    return [steps_to(curve.steps.tolist(), [sample.scaled(value) for value in curve.values], bar) for curve in curves]


def along_the_way(sample: Sample) -> Float[np.ndarray, " seeds"]:
    """The mean score over all steps: sample efficiency and final level in one."""
    return np.array([sample.scaled(area(curve.steps.tolist(), curve.values.tolist(), sample.panel.steps)) for curve in sample.complete])


def ahead(panel: str, ours: str, *theirs: str, measure: Measure = at_the_end) -> Judge:
    """A method is ahead of each of some others."""

    def against(other: str) -> Judge:
        def judge(evidence: Evidence) -> Verdict:
            found: list[list[float]] = []
            for name in (ours, other):
                sample = evidence.sample(panel, name)
                if sample is None or len(sample.complete) < SEEDS:
                    return lacking(panel, name, sample)
                found.append(measure(sample).tolist())
                if len(found[-1]) < SEEDS:  # of a run without maps there is nothing to measure
                    return Verdict(VerdictKind.UNKNOWN, ((panel, f"{name}: {len(found[-1])} of {len(sample.complete)} seeds have maps"),))
            mine, yours = found
            forth, back = chance_of(mine, yours), chance_of(yours, mine)
            decided = back <= CHANCE or (min(len(mine), len(yours)) >= MANY and not np.median(mine) > np.median(yours))
            kind = VerdictKind.HOLDS if forth <= CHANCE else VerdictKind.FAILS if decided else VerdictKind.UNKNOWN
            first, second = (f"{name} {_middle(values, measure)}" for name, values in ((ours, mine), (other, yours)))
            return Verdict(kind, ((panel, f"{first}, {second} (medians of {len(mine)} and {len(yours)}), by chance {forth:.2g}"),))

        return judge

    return all_of(*(against(other) for other in theirs))


def not_behind(panel: str, ours: str, *theirs: str, measure: Measure = at_the_end) -> Judge:
    """No other is ahead of a method; it takes `FAIR` seeds of each to say so, for fewer could hardly show the contrary."""

    def against(other: str) -> Judge:
        def judge(evidence: Evidence) -> Verdict:
            worse = ahead(panel, other, ours, measure=measure)(evidence)
            seeds = [len(sample.complete) if (sample := evidence.sample(panel, name)) is not None else 0 for name in (ours, other)]
            kind = VerdictKind.FAILS if worse.kind is VerdictKind.HOLDS else VerdictKind.HOLDS
            return Verdict(kind if min(seeds) >= FAIR or kind is VerdictKind.FAILS else VerdictKind.UNKNOWN, worse.facts)

        return judge

    return all_of(*(against(other) for other in theirs))


def _middle(values: Sequence[float], measure: Measure) -> str:
    """The median in words; where half of an even number of seeds never get there, it is never."""
    median = float(np.median(values))
    if measure is sooner:
        return about(-median) if np.isfinite(median) else "never"
    return f"{median:.4g}"


def comparable(panel: str, ours: str, *theirs: str, within: float = 0.1) -> Judge:
    """A method's median is no further below the best of some others than this; it takes `FAIR` seeds of each to say so.

    That it is further below takes `MANY` seeds, or one of those others that is ahead. Where all of them fail there is nothing to compare.
    """

    def judge(evidence: Evidence) -> Verdict:
        found = {name: evidence.sample(panel, name) for name in (ours, *theirs)}
        for name, sample in found.items():
            if sample is None or len(sample.complete) < SEEDS:
                return lacking(panel, name, sample)
        finals = {name: sample.finals.tolist() for name, sample in found.items() if sample is not None}
        medians = {name: float(np.median(scores)) for name, scores in finals.items()}
        best = max(theirs, key=lambda name: medians[name])
        fewest = min(map(len, finals.values()))
        facts = (
            (panel, f"{ours} {medians[ours]:.2f}, best of the others {best} {medians[best]:.2f} (medians of at least {fewest} seeds)"),
        )
        better = [scores for name, scores in finals.items() if medians[ours] < medians[name] - within]
        if max(medians.values()) <= LOSS:
            kind = VerdictKind.UNKNOWN
        elif better:
            seen = fewest >= MANY or any(chance_of(scores, finals[ours]) <= CHANCE for scores in better)
            kind = VerdictKind.FAILS if seen else VerdictKind.UNKNOWN
        else:
            kind = VerdictKind.HOLDS if fewest >= FAIR else VerdictKind.UNKNOWN
        return Verdict(kind, facts)

    return judge


def any_of(*judges: Judge) -> Judge:
    """Holds where one does; contradicted only where none does."""
    return _combined(judges, (VerdictKind.HOLDS, VerdictKind.UNKNOWN, VerdictKind.FAILS))


def all_of(*judges: Judge) -> Judge:
    """Holds where all do; one that does not hold is enough to contradict."""
    return _combined(judges, (VerdictKind.FAILS, VerdictKind.UNKNOWN, VerdictKind.HOLDS))


def _combined(judges: Sequence[Judge], order: Sequence[VerdictKind]) -> Judge:
    """The first kind of verdict in this order that any judge gives; the facts that decide it come first."""

    def judge(evidence: Evidence) -> Verdict:
        verdicts = [one(evidence) for one in judges]
        kind = min((verdict.kind for verdict in verdicts), key=order.index)
        ordered = sorted(verdicts, key=lambda verdict: verdict.kind is not kind)
        return Verdict(kind, tuple(fact for verdict in ordered for fact in verdict.facts))

    return judge


def described(sample: Sample, won: float) -> str:
    """The score at the end, and on how many seeds it counts as won; when the end was, because to fail by then is not to fail for good."""
    middle, low, high = quartiles(sample.finals)
    solved, asked = int(np.sum(sample.finals >= won)), len(sample.panel.seeds)
    seeds = f"{len(sample.finals)}" if len(sample.finals) == asked else f"{len(sample.finals)} (of {asked})"
    return f"{middle:.2f} [{low:.2f}, {high:.2f}] at {steps_in_words(sample.panel.steps)}, {solved} of {seeds} seeds at {won:.3g} or more"


def lacking(panel: str, arm: str, sample: Sample | None) -> Verdict:
    """Why a method cannot be judged."""
    reason = (
        OUTSIDE
        if sample is None
        else f"{arm} {len(sample.complete)} of {len(sample.panel.seeds)} seeds at {steps_in_words(sample.panel.steps)}"
    )
    return Verdict(VerdictKind.UNKNOWN, ((panel, reason),))
