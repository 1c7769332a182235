"""What reproducing a claim leaves behind: figures as PNG and PDF, numbers as CSV, verdicts and sources as JSON, and a checklist to read."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emc.claims.claim import Claim, Verdict, VerdictKind
from emc.claims.evidence import Evidence
from emc.claims.figures import plot_curves
from emc.claims.judgement import OUTSIDE
from emc.files import explained, must_take, written_whole
from emc.report.figures import LIGHT, as_png
from emc.runs.jsonl import at

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def verdicts_of(evidence: Evidence) -> list[tuple[str, Verdict]]:
    """Each statement of the claim and what the runs say of it."""
    return [(statement.text, statement.judge(evidence)) for statement in evidence.claim.statements]


def write(evidence: Evidence, folder: Path) -> list[Path]:
    """Figures, numbers and verdicts in a directory of their own."""
    figures = figures_of(evidence)
    files: dict[str, bytes] = {}
    for name, figure in figures.items():
        files |= {f"{name}.png": as_png(figure, palette=False), f"{name}.pdf": _as_pdf(figure)}
    files["curves.csv"] = csv_of(evidence)
    files["checklist.json"] = (json.dumps(summary(evidence), indent=1) + "\n").encode()
    written: list[Path] = []
    with explained(folder):
        for name in files:
            must_take(folder / name)  # all of them, or none
        for name, content in files.items():
            with written_whole(folder / name) as beside:
                beside.write_bytes(content)
            written.append(folder / name)
    return written


def figures_of(evidence: Evidence) -> dict[str, Figure]:
    """All figures of a claim by name; none where nothing has been run yet."""
    if not any(sample.curves for sample in evidence):
        return {}
    more = evidence.claim.figures
    return plot_curves(evidence) | (more(evidence, LIGHT) if more else {})


def checklist(evidence: Evidence) -> str:
    """The claim's statements, each with its verdict and numbers; those that the budget has no runs for come last, together."""
    claim = evidence.claim
    lines, others = [f"{claim.title} ({evidence.budget} budget)", ""], list[str]()
    for text, verdict in verdicts_of(evidence):
        if all(fact == OUTSIDE for _, fact in verdict.facts):
            others.append(f"    {text}")
        else:
            lines += [f"[{verdict.kind.value}] {text}", f"    {verdict.numbers}"]
    return "\n".join([*lines, *([f"[{VerdictKind.UNKNOWN.value}] {OUTSIDE}:", *others] if others else [])])


def summary(evidence: Evidence) -> dict[str, Any]:
    """Verdicts, scores and where they come from, as a document."""
    return {
        "claim": evidence.claim.name,
        "title": evidence.claim.title,
        "budget": evidence.budget,
        "statements": [
            {"text": text, "verdict": verdict.kind.value, "numbers": verdict.numbers} for text, verdict in verdicts_of(evidence)
        ],
        "panels": {
            title: {
                name: {
                    "command": f"emc train {sample.arm.words} --steps {sample.panel.steps}",
                    "seeds": [curve.seed for curve in sample.curves],
                    "complete": [curve.seed for curve in sample.complete],
                    "scores": [round(float(score), 6) for score in sample.finals],
                    "runs": {str(seed): _source(run.manifest) for seed, run in sample.runs.items()},
                }
                for name, sample in arms.items()
            }
            for title, arms in evidence.samples.items()
        },
    }


def missing(evidence: Evidence) -> tuple[int, int]:
    """How many seeds have not been run to their end, and how many there are."""
    wanted = sum(len(sample.panel.seeds) for sample in evidence)
    return wanted - sum(len(sample.complete) for sample in evidence), wanted


def _source(manifest: dict[str, Any]) -> dict[str, Any]:
    return {"id": manifest.get("id"), "commit": at(manifest.get("machine"), "commit", "emc")}


def csv_of(evidence: Evidence) -> bytes:
    """Every test of every seed, as far as the budget goes."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("panel", "method", "seed", "steps", "value"))
    for title, arms in evidence.samples.items():
        for name, sample in arms.items():
            for curve in sample.curves:
                rows.writerows(
                    (title, name, curve.seed, int(step), f"{value:.9g}") for step, value in zip(curve.steps, curve.values, strict=True)
                )
    return text.getvalue().encode()


def _as_pdf(figure: Figure) -> bytes:
    """A figure as PDF, the same bytes every time."""
    from matplotlib.backends.backend_pdf import FigureCanvasPdf

    raw = io.BytesIO()
    FigureCanvasPdf(figure).print_pdf(raw, metadata={"CreationDate": None, "Producer": None, "Creator": None})
    return raw.getvalue()


def overview(every: Sequence[Claim]) -> str:
    """All claims, a line each."""
    width = max(len(claim.name) for claim in every)
    return "\n".join(f"{claim.name:<{width}}  {claim.section:<8}  {claim.title}" for claim in every)
