"""What was really run: keep runs' raw lines in the repository, and write the page of results from them.

    python experiments/results.py keep RUNS     copy manifests and metrics of all runs that a claim counts, finished or not, into results/
    python experiments/results.py page          write docs/results.md and its figures from results/

Every number on the page is computed from `results/`; only the readings (NAME.md beside the claims) are typed in.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from PIL import Image, PngImagePlugin

from emc.claims import Claim, Evidence, Sample, Verdict, VerdictKind, gather, jobs_of
from emc.claims.catalogue import claims
from emc.claims.figures import plot_panels, shared_panels
from emc.claims.judgement import OUTSIDE, SEEDS, held_from
from emc.claims.reproduction import csv_of, figures_of, missing, verdicts_of
from emc.files import written_whole
from emc.report.curves import draw_band, middle_half, tracks
from emc.report.figures import LIGHT, LOOKS, legend_below, looks_of, mark, new_figure, pixels, style
from emc.report.run_titles import steps_in_words
from emc.statistics import Estimate, estimate, estimate_improvement, half_by, iqm, quartiles
from emc.sweeps.jobs import Survey

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "results", ROOT / "docs" / "results.md"
FIGURES = PAGE.parent / "figures"
FRONT_CLAIM, FRONT_PANEL, FRONT = "gridworld-penalty", "p = 2", PAGE.parent / "pictures" / "gridworld-p2.png"  # what the README shows
KEPT = ("manifest.json", "metrics.jsonl", "maps.jsonl", "speed.jsonl")
SCRIPTED = RESULTS / "scripted-battles.json"
MEMORY_ERROR, MEMORY_ERROR_FIGURE = RESULTS / "memory-error.json", FIGURES / "memory-error.png"
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


# --------------------------------------------------------------------------------------------------------------------- data


def keep(root: Path) -> None:
    """Copy what a reader needs to check a number; checkpoints stay where they are."""
    survey = Survey(root)
    panels = [panel for claim in claims().values() for budget in ("small", "paper") for panel in claim.panels(budget)]
    for path in sorted({path for job in jobs_of(panels) for path in survey.kin(job)}):
        if (path / "metrics.jsonl").exists():  # it has been tested at least once
            keep_run(path, RESULTS / path.relative_to(root))


def keep_run(run: Path, target: Path) -> None:
    """The files of one run, each of them whole."""
    target.mkdir(parents=True, exist_ok=True)
    for name in KEPT[1:]:
        if (run / name).exists():
            with written_whole(target / name) as beside:
                shutil.copyfile(run / name, beside)
    manifest = json.loads((run / "manifest.json").read_text())
    words = shlex.split(manifest["command"])
    if "--runs" in words:  # where it was kept is nobody's business
        del words[words.index("--runs") : words.index("--runs") + 2]
    manifest["command"] = shlex.join(words)
    with written_whole(target / "manifest.json") as beside:
        beside.write_text(json.dumps(manifest, indent=1) + "\n")


def evidence_of(claim: Claim) -> Evidence:
    """What is kept about a claim: at the budget of the paper where all of that was run, else at the small one."""
    survey = Survey(RESULTS)
    found = gather(claim, "small", [survey])
    if missing(found)[0]:
        return found
    whole = gather(claim, "paper", [survey])
    return found if missing(whole)[0] else whole


# ------------------------------------------------------------------------------------------------------------------- claims


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
    waiting = sum(_not_asked(verdict) for verdict in verdicts)
    reasons = [f"{waiting} wait for the paper's budget"] if waiting else []
    reasons += [f"{len(verdicts) - waiting} for more runs of this one"] if len(verdicts) > waiting else []
    return f"{len(verdicts)} more: {', '.join(reasons)}"


def _not_asked(verdict: Verdict) -> bool:
    return all(fact == OUTSIDE for _, fact in verdict.facts)


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
    rows = [f"| {text} | **{SIGNS[verdict.kind]}** |" for text, verdict in judged if not _not_asked(verdict)]
    if rows:
        yield "\n".join(["| statement | verdict |", "|---|---|", *rows])
    if waiting := [text for text, verdict in judged if _not_asked(verdict)]:
        yield "Not part of this budget:\n\n" + "\n".join(f"* {text}" for text in waiting)
    if not any(sample.curves for sample in evidence):
        return
    for name in figures_of(evidence):
        yield f"![{claim.title}: {name}](figures/{claim.name}-{name}.png)"
    yield from _folded("Numbers behind the verdicts", "\n".join(_facts(judged)))
    yield "\n".join(_scores(evidence))
    yield from _together(evidence)
    reading = ROOT / "experiments" / f"{claim.name.replace('-', '_')}.md"
    if reading.exists():
        yield reading.read_text().rstrip()
    yield from _folded("Sources", "\n".join(_sources(evidence)))


def _folded(title: str, content: str) -> Iterator[str]:
    """What is there for those who ask."""
    yield from (f'<details markdown="1"><summary>{title}</summary>', content, "</details>")


def _facts(judged: list[tuple[str, Verdict]]) -> Iterator[str]:
    """The numbers of each statement, those that decide it first."""
    for text, verdict in judged:
        if not _not_asked(verdict):
            yield f"* {text}: **{verdict.kind.value}**"
            yield from (f"    * {panel}: {fact}" for panel, fact in dict.fromkeys(verdict.facts))


def _count(number: int, what: str) -> str:
    return f"{number} {what} is" if number == 1 else f"{number} {what}s are"


def _scores(evidence: Evidence) -> Iterator[str]:
    """Of each arm what it scored and when; of curious ones also what their values without the bonus scored, where any were tested."""
    tested = any(len(sample.extrinsic_finals) for sample in evidence)
    columns = ["task", "method", "seeds", "score", *(["φ, greedily"] if tested else []), "half of the seeds by", FIRST]
    yield _row(*columns)
    yield _row(*["---"] * len(columns)).replace(" ", "")
    for title, arms in evidence.samples.items():
        for name, sample in arms.items():
            if not sample.curves:
                continue
            begun = len(sample.curves) - len(sample.complete)
            seeds = f"{len(sample.complete)}" + (f" (+ {begun} begun)" if begun else "")
            greedily = [_greedily(sample)] if tested else []
            yield _row(title, name, seeds, _spread(sample.finals), *greedily, _half_by(sample), ", ".join(_first(sample)))


FIRST = "first at nine tenths and held, seed by seed"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _spread(scores: Float[np.ndarray, " seeds"]) -> str:
    """Median and quartiles; a dash of nothing."""
    return "{:.2f} [{:.2f}, {:.2f}]".format(*quartiles(scores)) if len(scores) else "–"


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


def _sources(evidence: Evidence) -> Iterator[str]:
    """Commands, and for each the runs with commit, hash of the configuration and machine."""
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


def draw(evidence: Evidence) -> None:
    """The figures of a claim."""
    for name, figure in figures_of(evidence).items():
        save(figure, data_hash(evidence), FIGURES / f"{evidence.claim.name}-{name}.png")


def draw_front(evidence: Evidence) -> None:
    """The panel that the README shows."""
    hardest = dataclasses.replace(evidence, samples={FRONT_PANEL: evidence.samples[FRONT_PANEL]})
    save(plot_panels(hardest), data_hash(evidence), FRONT)


def save(figure: Figure, data: str, path: Path) -> None:
    """A figure, marked with a hash of what it was drawn from."""
    path.parent.mkdir(exist_ok=True)
    info = PngImagePlugin.PngInfo()
    info.add_text("data", data)
    image = Image.fromarray(pixels(figure)).quantize(256, dither=Image.Dither.NONE)
    with written_whole(path) as beside:
        image.save(beside, "png", optimize=True, pnginfo=info)


def data_hash(evidence: Evidence) -> str:
    """A hash of every line that a claim's figures are drawn from."""
    found = hashlib.sha256(csv_of(evidence))
    for path in sorted({run.path for sample in evidence for run in sample.runs.values()}):
        for file in ("metrics.jsonl", "maps.jsonl"):
            found.update((path / file).read_bytes() if (path / file).exists() else b"")
    return found.hexdigest()


# ------------------------------------------------------------------------------------------- matrix games, scripted players


def one_step_game(found: dict[str, Any]) -> list[str]:
    """Learned values of every joint action beside what they pay, method by method, and where the agents' own greedy actions end."""
    payoff = np.array(found["rewards"])[:, 0]
    size = round(len(payoff) ** 0.5)
    best = found["actions"][int(np.argmax(payoff))][0]

    def rows(values: np.ndarray) -> list[str]:
        return [" / ".join(f"{v:.1f}" for v in row) for row in values.reshape(size, size)]

    lines = [
        "| method | values of agent 0's first action | of its second | of its third | greedy joint action, per seed | optimal |",
        "|---|" + "---|" * 5,
    ]
    lines.append(f"| *payoff* | {' | '.join(rows(payoff))} | | |")
    for method in found["methods"]:
        seeds = method["seeds"]
        ends = [tuple(seed["greedy"][0][0]) for seed in seeds]
        each = ", ".join(f"({a}, {b})" for a, b in ends)
        good = sum(end == tuple(best) for end in ends)
        lines.append(f"| {method['label']} | {' | '.join(rows(np.array(seeds[0]['values'])[:, 0]))} | {each} | {good} of {len(seeds)} |")
        for name, values in seeds[0].get("beside", {}).items():
            lines.append(f"| its {name} | {' | '.join(rows(np.array(values)[:, 0]))} | | |")
    return lines


def two_step_game(found: dict[str, Any]) -> list[str]:
    """Learned values of the second step in both branches, and what the agents' own greedy actions earn."""
    actions, rewards = np.array(found["actions"]), np.array(found["rewards"])
    lines = ["| method | second step in branch 2A | in branch 2B | greedy return, per seed |", "|---|---|---|---|"]
    for method in found["methods"]:
        values = np.array(method["seeds"][0]["values"])

        def table(branch: int, values: np.ndarray = values) -> str:
            inside = (actions[:, 0, 0] == branch) & (actions[:, 0, 1] == 0)
            return " / ".join(f"{v:.2f}" for v in values[inside, 1])

        earned = []
        for seed in method["seeds"]:
            follows = np.all(np.array(seed["greedy"]) == actions, axis=(1, 2))  # the plays in which every action is the greedy one
            earned.append(float(rewards[follows].sum(axis=1)[0]))
        lines.append(f"| {method['label']} | {table(0)} | {table(1)} | {', '.join(f'{r:g}' for r in earned)} |")
    return lines


def scripted(found: dict[str, Any]) -> list[str]:
    """Win rates of players that learn nothing."""
    scripts = list(next(iter(found["maps"].values())))
    lines = [f"| map | {' | '.join(scripts)} |", "|---|" + "---|" * len(scripts)]
    for name, rows in found["maps"].items():
        rates = [f"{rows[script]['wins'] / found['episodes']:.0%}" for script in scripts]
        lines.append(f"| {name} | {' | '.join(rates)} |")
    return lines


# ------------------------------------------------------------------------------------------- what a memory holds, and the truth


def memory_errors() -> dict[tuple[float, str], list[dict[str, Any]]]:
    """What was measured of each statistic at each slip, seed by seed; of one that was measured twice the longer."""
    found: dict[tuple[float, str], dict[int, dict[str, Any]]] = {}
    for one in sorted(json.loads(MEMORY_ERROR.read_text()), key=lambda one: (one["slip"], one["steps"])):
        found.setdefault((one["slip"], one["statistic"]), {})[one["seed"]] = one
    return {arm: [*seeds.values()] for arm, seeds in found.items()}


def draw_memory_errors() -> None:
    """A panel for each slip; at zero what is remembered is, on average, what can be had."""
    found = memory_errors()
    slips = [*dict.fromkeys(slip for slip, _ in found)]
    figure, every_axes = new_figure(4.2 * len(slips), 3.2, 1, len(slips), LIGHT)
    for axes, slip in zip(every_axes, slips, strict=True):
        own = {statistic: measured for (at, statistic), measured in found.items() if at == slip}
        looks = looks_of([*LOOKS][: len(own)], LIGHT)
        bands = [middle_half(tracks(_lines(measured), lambda line: line["bias"])) for measured in own.values()]
        lines = [draw_band(axes, band, look, name, 1.5) for band, look, name in zip(bands, looks, own, strict=True)]
        axes.axhline(0.0, color=LIGHT.faint, linewidth=0.8)
        mark(lines, looks)
        style(axes, LIGHT, f"ξ = {slip:g}", "remembered minus optimum")
    legend_below(figure, every_axes, 3, LIGHT)
    save(figure, hashlib.sha256(MEMORY_ERROR.read_bytes()).hexdigest(), MEMORY_ERROR_FIGURE)


def _lines(measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line | {"seed": one["seed"]} for one in measured for line in one["lines"]]


def memory_error_table() -> Iterator[str]:
    """Mean error and root mean square, medians over seeds, as training goes on."""
    found = memory_errors()
    shortest = min(one["steps"] for own in found.values() for one in own)
    wanted = [steps for steps in (10_000, 50_000, 100_000, 150_000, 200_000) if steps <= shortest]
    yield "| slip | remembered | seeds | " + " | ".join(f"{steps // 1000}k steps" for steps in wanted) + " |"
    yield "|---|---|---|" + "---|" * len(wanted)
    for (slip, statistic), own in found.items():
        cells = []
        for steps in wanted:
            lines = [next(line for line in one["lines"] if line["steps"] >= steps) for one in own]
            bias, rms = (float(np.median([line[name] for line in lines])) for name in ("bias", "rms"))
            cells.append(f"{bias:+.2f} / {rms:.2f}")
        yield f"| {slip:g} | {statistic} | {len(own)} | {' | '.join(cells)} |"


GAMES: dict[str, tuple[str, Callable[[dict[str, Any]], list[str]]]] = {
    "one-step-game": ("One-step matrix game, uniform exploration", one_step_game),
    "two-step-game": ("Two-step matrix game, uniform exploration", two_step_game),
}


def tables() -> Iterator[str]:
    """What is not a learning curve."""
    for game, (title, show) in GAMES.items():
        values = RESULTS / game / "values.json"
        if values.exists():
            found = json.loads(values.read_text())
            commit = ((found["methods"][0]["machine"]["commit"] or {}).get("emc") or "?")[:10]
            yield f"## {title}\n\n" + "\n".join(show(found))
            yield (ROOT / "experiments" / f"{game.replace('-', '_')}.md").read_text().rstrip()
            yield f"Command: `python experiments/matrix_games.py RUNS {game}` at {commit}; raw tables of all seeds in `results/{game}/`."
    if MEMORY_ERROR.exists():
        yield '<a id="memory-error"></a>\n\n## What a memory holds while agents learn, against the optimum'
        yield f"![Error of the memory along training](figures/{MEMORY_ERROR_FIGURE.name})"
        yield "\n".join(memory_error_table())
        yield (ROOT / "experiments" / "memory_error.md").read_text().rstrip()
        commits = ", ".join(dict.fromkeys(str(one["commit"]) for one in json.loads(MEMORY_ERROR.read_text())))
        yield f"Command: `python experiments/memory_error.py STEPS SEED ...` at {commits}; all numbers in `results/{MEMORY_ERROR.name}`."
    if SCRIPTED.exists():
        found = json.loads(SCRIPTED.read_text())
        yield "## Battles: players that learn nothing\n\n" + "\n".join(scripted(found))
        yield (ROOT / "experiments" / "scripted_battles.md").read_text().rstrip()
        yield f"Command: `python experiments/scripted_battles.py {found['episodes']}` at {found['commit'][:10]}."


def page(every: list[Evidence]) -> str:
    """The whole page."""
    parts = [*at_a_glance(every), *(part for evidence in every for part in section(evidence)), *tables()]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["keep", root]:
            keep(Path(root))
        case ["page"]:
            found = [evidence_of(claim) for claim in claims().values()]
            shutil.rmtree(FIGURES, ignore_errors=True)
            for evidence in found:
                draw(evidence)
                if evidence.claim.name == FRONT_CLAIM:
                    draw_front(evidence)
            if MEMORY_ERROR.exists():
                draw_memory_errors()
            with written_whole(PAGE) as beside:
                beside.write_text(page(found))
        case _:
            raise SystemExit(__doc__)
