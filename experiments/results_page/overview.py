"""The page's beginning: every statement's verdict, and how to read what follows."""

from __future__ import annotations

from collections.abc import Iterator

from emc.claims import Evidence, Verdict, VerdictKind
from emc.claims.judgement import OUTSIDE
from emc.claims.reproduction import verdicts_of

HEAD = """# Results

{counts} A statement is a sentence of the paper, or a question that it leaves open, made runnable
(`emc reproduce`); how it is judged stands [below](#how-to-read-this-page)."""
HOW = """<a id="how-to-read-this-page"></a>

## How to read this page

It is written by `python experiments/results.py page` from the raw lines in `results/`; nothing on it is typed in but the
readings, and a test fails when page and data disagree. Each section below is a claim that `emc reproduce` runs; *small* and *paper* are its
budgets. A score is the mean of a seed's last five tests at the end of the budget, and tables show its median over seeds with the
quartiles. A method wins where the median is at least nine tenths of what the best possible play scores (0.9 on a scale where 1 is the best
there is; where actions slip in three cases of ten or in half of them that play wins 99.8 and 93.0 %, and only [slip](#slip), which keeps
the paper's scale, states its own bars); one is ahead of another if chance alone would put it as far ahead in one case of twenty at most.

*First at nine tenths and held* is the first of three tests in a row at nine tenths of the best possible play, of which a later one may fall
short again. *Half of the seeds by* is the time by which half of the complete seeds were there: the median where seeds that have not got
there by the end are later than all that have (they are censored: when they would get there, or whether, is not known). "Not by" says
that fewer than half did. *φ, greedily* is the same score as the method's, of the values that curiosity learns without its bonus, played
greedily beside the tested policy: where it is higher, the bonus bends what is tested. Older runs lack it, and the bonus apart tests its φ
anyway.

*Put together*: the IQM is the mean of the middle half of all scores of all tasks; beside it stands the probability that a run of the first
method is better than one of the other on a task chosen at random, a tie being half. Intervals hold 95 % of stratified bootstrap samples,
which draw each task's seeds again, but not the tasks."""
SIGNS = {VerdictKind.HOLDS: "✔ holds", VerdictKind.FAILS: "✘ does not hold", VerdictKind.UNKNOWN: "? unknown"}


def at_a_glance(every: list[Evidence]) -> Iterator[str]:
    """What holds, what does not, and what is not known, a line each; of the unknown a line for each claim."""
    judged = [(evidence.claim, text, verdict) for evidence in every for text, verdict in verdicts_of(evidence)]
    numbers = {kind: sum(verdict.kind is kind for _, _, verdict in judged) for kind in VerdictKind}
    counts = f"Of {len(judged)} statements {numbers[VerdictKind.HOLDS]} hold, {numbers[VerdictKind.FAILS]} do not, and"
    yield HEAD.format(counts=f"{counts} {numbers[VerdictKind.UNKNOWN]} cannot be judged yet.")
    rows = [
        f"| {SIGNS[kind]} | [{claim.name}](#{claim.name}) | {text} |"
        for kind in (VerdictKind.HOLDS, VerdictKind.FAILS)
        for claim, text, verdict in judged
        if verdict.kind is kind
    ]
    for evidence in every:
        open_ones = [verdict for _, verdict in verdicts_of(evidence) if verdict.kind is VerdictKind.UNKNOWN]
        if open_ones:
            rows.append(f"| {SIGNS[VerdictKind.UNKNOWN]} | [{evidence.claim.name}](#{evidence.claim.name}) | {_unknown(open_ones)} |")
    yield "\n".join(["| verdict | claim | statement |", "|---|---|---|", *rows])
    yield HOW


def _unknown(verdicts: list[Verdict]) -> str:
    """How many are open, and why."""
    waiting = sum(not_asked(verdict) for verdict in verdicts)
    reasons = [f"{waiting} wait for the paper's budget"] if waiting else []
    reasons += [f"{len(verdicts) - waiting} for more runs of this one"] if len(verdicts) > waiting else []
    return f"{len(verdicts)} more: {', '.join(reasons)}"


def not_asked(verdict: Verdict) -> bool:
    return all(fact == OUTSIDE for _, fact in verdict.facts)
