"""The page's beginning: every statement's verdict, and how to read what follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from emc.claims import Claim, Evidence, Statement, Verdict, VerdictKind
from emc.claims.judgement import OUTSIDE
from emc.claims.reproduction import verdicts_of

HEAD = """# Results

{counts} A statement is a sentence made runnable (`emc reproduce`); how it is judged stands [below](#how-to-read-this-page).

## What the paper says"""
BEYOND = "## What it leaves open"
HOW = """<a id="how-to-read-this-page"></a>

## How to read this page

It is written by `python experiments/results.py page` from the raw lines in `results/`; nothing on it is typed in but the readings, and a
test fails when page and data disagree. `results/sources.txt` has the command of each method on each task, the runs that count, and their
commits. Each section below is a claim that `emc reproduce` runs; *small* and *paper* are its budgets. A score is the mean of a seed's
last five tests at the end of the budget, and tables show its median over seeds with the quartiles. A method wins where the median is at
least nine tenths of what the best possible play scores (0.9 on a scale where 1 is the best there is; where actions slip in three cases of
ten or in half of them that play wins 99.8 and 93.0 %), and fails where it is at most 0.1; it takes three seeds to say so. A few statements
have bars of their own, as "does well" on predator-prey, three quarters of the best; they stand beside the numbers. A median says nothing of
seeds on the other side of it, and a verdict holds for the length that stands beside it: who fails by 200k steps may win by 505k.

One is ahead of another if chance alone would put it as far ahead in one case of twenty at most (an exact one-sided test). That is
contradicted by a lead of the other, or by medians of six seeds or more in which it is not in front; else it is open. That a method is as
good as others, or that none is better, takes five seeds of each, and says that nothing else was seen: a rival that always wins is told
from one that wins three times in five in one case of ten only, from one that wins two times in five in one of three. Nothing is corrected
for the number of statements: of twenty that compare what does not differ one comes out by chance.

*At nine tenths* are the seeds that end at nine tenths of the best possible play. *Three tests in a row there from* is when a seed first
was at them for three tests; a later one may fall short again. *Half of the seeds by* is the time by which half of the complete seeds were
there: the median where seeds that have not got there by the end are later than all that have (they are censored: when they would get
there, or whether, is not known). "Not by" says that fewer than half did. *φ, greedily* is the same score as the method's, of the values
that curiosity learns without its bonus, played greedily beside the tested policy: where it is higher, the bonus bends what is tested.
Older runs lack it, and the bonus apart tests its φ anyway.

*Put together*: the IQM is the mean of the middle half of all scores of all tasks; beside it stands the probability that a run of the
first method is better than one of the other on a task chosen at random, a tie being half. Intervals hold 95 % of stratified bootstrap
samples, which draw each task's seeds again, but not the tasks; where all seeds score alike they have no width, which is no certainty."""
SIGNS = {VerdictKind.HOLDS: "✔ holds", VerdictKind.FAILS: "✘ does not hold", VerdictKind.UNKNOWN: "? unknown"}


Judged = tuple[Claim, Statement, Verdict]


def at_a_glance(every: list[Evidence]) -> Iterator[str]:
    """What holds, what does not, and what is not known, of the paper and beyond it."""
    judged = [
        (evidence.claim, statement, verdict)
        for evidence in every
        for statement, (_, verdict) in zip(evidence.claim.statements, verdicts_of(evidence), strict=True)
    ]
    papers, ours = ([one for one in judged if one[0].papers(one[1]) is of_paper] for of_paper in (True, False))
    yield HEAD.format(counts=f"Of {_counted(papers, 'statements of the paper')} Of {_counted(ours, 'more that it leaves open')}")
    yield _table(papers)
    yield BEYOND
    yield _table(ours)
    yield HOW


def _counted(judged: Sequence[Judged], what: str) -> str:
    holds, fails, unknown = (sum(verdict.kind is kind for _, _, verdict in judged) for kind in VerdictKind)
    return f"{len(judged)} {what} {holds} hold, {fails} do not, and {unknown} cannot be judged yet."


def _table(judged: Sequence[Judged]) -> str:
    """A line for each that was judged, and for each claim one about those that are open."""
    rows = [
        f"| {SIGNS[kind]} | [{claim.name}](#{claim.name}) | {statement.text} | {_decides(verdict)} |"
        for kind in (VerdictKind.HOLDS, VerdictKind.FAILS)
        for claim, statement, verdict in judged
        if verdict.kind is kind
    ]
    open_ones: dict[str, list[Verdict]] = {}
    for claim, _, verdict in judged:
        if verdict.kind is VerdictKind.UNKNOWN:
            open_ones.setdefault(claim.name, []).append(verdict)
    rows += [f"| {SIGNS[VerdictKind.UNKNOWN]} | [{name}](#{name}) | {_unknown(verdicts)} | |" for name, verdicts in open_ones.items()]
    return "\n".join(["| verdict | claim | statement | what decides it |", "|---|---|---|---|", *rows])


def _decides(verdict: Verdict) -> str:
    """The first of the facts, and how many more there are."""
    (_, first), *more = dict.fromkeys(verdict.facts)
    return first + (f"; {len(more)} more below" if more else "")


def _unknown(verdicts: list[Verdict]) -> str:
    """How many are open, and why."""
    waiting = sum(not_asked(verdict) for verdict in verdicts)
    reasons = [f"{waiting} wait for the paper's budget"] if waiting else []
    reasons += [f"{len(verdicts) - waiting} left open by this one"] if len(verdicts) > waiting else []
    return f"{len(verdicts)} more: {', '.join(reasons)}"


def not_asked(verdict: Verdict) -> bool:
    return all(fact == OUTSIDE for _, fact in verdict.facts)
