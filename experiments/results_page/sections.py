"""A section for each claim: verdicts, figures, scores and the reading; and the runs that all of it comes from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from emc.claims import Evidence, Sample, Verdict
from emc.claims.figures import shared_panels
from emc.claims.judgement import SEEDS, bar_of, held_from
from emc.claims.reproduction import figures_of, missing, verdicts_of
from emc.report.run_titles import steps_in_words
from emc.statistics import Estimate, estimate, estimate_improvement, half_by, iqm, quartiles
from results_page.overview import SIGNS, not_asked
from results_page.places import ROOT


def section(evidence: Evidence) -> Iterator[str]:
    """A claim, its verdicts, its figures, its numbers and where they come from."""
    claim = evidence.claim
    left, wanted = missing(evidence)
    yield f'<a id="{claim.name}"></a>\n\n## {claim.title}'
    yield claim.about.partition("\n\n")[2]
    done = f"`emc reproduce {claim.name} --budget {evidence.budget}`: {wanted - left} of {wanted} runs are complete."
    begun = sum(len(sample.curves) - len(sample.complete) for sample in evidence)
    repeated = sum(sample.repeated for sample in evidence)
    left_out = f" Not counted, because they repeat a seed of a longer run or have others than asked for: {repeated}." if repeated else ""
    yield done + (f" {_count(begun, 'more run')} begun." if begun else "") + left_out
    judged = verdicts_of(evidence)
    rows = [f"| {text} | **{SIGNS[verdict.kind]}** |" for text, verdict in judged if not not_asked(verdict)]
    if rows:
        yield "\n".join(["| statement | verdict |", "|---|---|", *rows])
    if waiting := [text for text, verdict in judged if not_asked(verdict)]:
        yield "Not part of this budget:\n\n" + "\n".join(f"* {text}" for text in waiting)
    if not any(sample.curves for sample in evidence):
        return
    reading = ROOT / "experiments" / f"{claim.name.replace('-', '_')}.md"
    if reading.exists():
        yield reading.read_text().rstrip()
    for name in figures_of(evidence):
        yield f"![{claim.title}: {name}](figures/{claim.name}-{name}.png)"
    yield from _folded("Numbers behind the verdicts", "\n".join(_facts(judged)))
    yield "\n".join(_scores(evidence))
    yield from _together(evidence)


def _folded(title: str, content: str) -> Iterator[str]:
    """What is there for those who ask."""
    yield from (f'<details markdown="1"><summary>{title}</summary>', content, "</details>")


def _facts(judged: list[tuple[str, Verdict]]) -> Iterator[str]:
    """The numbers of each statement, those that decide it first."""
    for text, verdict in judged:
        if not not_asked(verdict):
            yield f"* {text}: **{verdict.kind.value}**"
            yield from (f"    * {panel}: {fact}" for panel, fact in dict.fromkeys(verdict.facts))


def _count(number: int, what: str) -> str:
    return f"{number} {what} is" if number == 1 else f"{number} {what}s are"


def _scores(evidence: Evidence) -> Iterator[str]:
    """Of each arm what it scored and when; of curious ones also what their values without the bonus scored, where any were tested."""
    tested = any(len(sample.extrinsic_finals) for sample in evidence)
    columns = ["task", "method", "seeds", "score", WON, *(["φ, greedily"] if tested else []), "half of the seeds by", FIRST]
    yield _row(*columns)
    yield _row(*["---"] * len(columns)).replace(" ", "")
    for title, arms in evidence.samples.items():
        for name, sample in arms.items():
            if not sample.curves:
                continue
            begun = len(sample.curves) - len(sample.complete)
            seeds = f"{len(sample.complete)}" + (f" (+ {begun} begun)" if begun else "")
            greedily = [_greedily(sample)] if tested else []
            yield _row(title, name, seeds, _spread(sample.finals), _won(sample), *greedily, _half_by(sample), ", ".join(_first(sample)))


WON = "at nine tenths"
FIRST = "three tests in a row there from, seed by seed"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _spread(scores: Float[np.ndarray, " seeds"]) -> str:
    """Median and quartiles; a dash of nothing."""
    return "{:.2f} [{:.2f}, {:.2f}]".format(*quartiles(scores)) if len(scores) else "–"


def _won(sample: Sample) -> str:
    """How many of the complete seeds end at nine tenths of the best play."""
    return f"{int(np.sum(sample.finals >= bar_of(sample.panel)))} of {len(sample.complete)}" if sample.complete else "–"


def _greedily(sample: Sample) -> str:
    """What phi scores beside the policy, and of how many seeds that is known if not of all."""
    found = sample.extrinsic_finals
    return _spread(found) + (f" ({len(found)} of {len(sample.complete)})" if 0 < len(found) < len(sample.complete) else "")


def _half_by(sample: Sample) -> str:
    """By when half of the complete seeds were at nine tenths of the best play; a dash if none is complete."""
    if not sample.complete:
        return "–"
    step = half_by(held_from(sample, sample.complete))
    return _thousands(step) if np.isfinite(step) else f"not by {steps_in_words(sample.panel.steps)}"


def _first(sample: Sample) -> Iterator[str]:
    for curve, step in zip(sample.curves, held_from(sample, sample.curves), strict=True):
        ended = curve in sample.complete
        yield _thousands(step) if np.isfinite(step) else "never" if ended else f"not by {_thousands(float(curve.steps[-1]))}"


def _thousands(steps: float) -> str:
    return f"{steps / 1000:.0f}k"


def _together(evidence: Evidence) -> Iterator[str]:
    """Arms that a claim compares, over all panels that have all of them; nothing before two do."""
    scores = shared_panels(evidence, SEEDS, evidence.claim.compared) if evidence.claim.compared else {}
    if not scores:
        return
    (ours, mine), *others = scores.items()
    seeds = {title: sorted({len(own[title]) for own in scores.values()}) for title in mine}
    counted = ", ".join(f"{title} ({' to '.join(map(str, dict.fromkeys((each[0], each[-1]))))})" for title, each in seeds.items())
    yield (
        f"[Put together](#how-to-read-this-page) over the {len(mine)} tasks on which each of these has {SEEDS} complete seeds or more "
        f"(so many seeds of each): {counted}."
    )
    rows = [_row(ours, _interval(estimate(mine, iqm)), "")]
    rows += [_row(name, _interval(estimate(own, iqm)), _interval(estimate_improvement(mine, own))) for name, own in others]
    yield "\n".join([_row("method", "IQM [95 %]", f"{ours} is better [95 %]"), "|---|---|---|", *rows])


def _interval(found: Estimate) -> str:
    return f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"


def sources(every: Sequence[Evidence]) -> str:
    """Of each claim the commands, and for each the runs with commit, hash of the configuration and machine."""
    return "".join(f"{line}\n" for evidence in every for line in (evidence.claim.name, *_sources(evidence), ""))


def _sources(evidence: Evidence) -> Iterator[str]:
    for sample in evidence:
        if not sample.runs:
            continue
        yield f"    emc train {sample.arm.words} --steps {sample.panel.steps} --seed S"
        for path, seeds in _runs(sample).items():
            manifest = json.loads((path / "manifest.json").read_text())
            commit = ((manifest["machine"].get("commit") or {}).get("emc") or "?")[:10]
            config = hashlib.sha256(json.dumps(manifest["config"], sort_keys=True).encode()).hexdigest()[:10]
            where = f"{manifest['machine']['platform']}, {manifest['machine']['cpus']} cores"
            yield f"        # S = {seeds}: {path.relative_to(ROOT)}, commit {commit}, configuration {config}, {where}"


def _runs(sample: Sample) -> dict[Path, str]:
    found: dict[Path, list[int]] = {}
    for seed, run in sample.runs.items():
        found.setdefault(run.path, []).append(seed)
    return {path: ", ".join(map(str, seeds)) for path, seeds in found.items()}
