"""A report as one HTML file that needs nothing else: results, pictures, configuration, and how to get the same again.

Everything that comes out of a run directory is escaped, and the page forbids itself to load or run anything, so a stranger's run can be
looked at safely. Figures are drawn twice, for light and for dark screens.
"""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from emc.errors import UserError
from emc.report.animation import written_whole
from emc.report.curves import (
    DARK,
    LIGHT,
    Curve,
    Group,
    Theme,
    as_png,
    as_svg,
    at,
    colour_of,
    configuration,
    count,
    differences,
    environment_of,
    group_runs,
    middle_half,
    nearest_preset,
    plot_curves,
    plot_diagnostics,
    read_lines,
    scores,
    steps_in_words,
    task_title,
    usual_environment,
)
from emc.report.heatmaps import phases, plot_maps, read_maps, was_paid
from emc.runs import RunDirectory, read_metrics
from emc.runs.directory import explained
from emc.runs.session import END, SPEED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIN_RATE = 0.9  # a task counts as solved from here
SHARE = 0.9  # or from this share of the best score in the report, where it cannot be won
CROWDED = 150  # evaluations; above, curves are shown as running means too


def write_report(runs: Sequence[RunDirectory], out: Path, animations: Mapping[Path, Path] | None = None) -> None:
    """Write the report of some runs; `animations` maps a run's path to a GIF of one of its episodes."""
    if not runs:
        raise UserError("there are no runs to report on: name at least one run directory.")
    groups = group_runs(runs)
    tasks = [[group for group in groups if group.env_name == name] for name in dict.fromkeys(group.env_name for group in groups)]
    single = groups[0] if len(groups) == 1 else None
    subject = single.label if single else count(len(groups), "method")
    title = f"{subject} on {_listed([task_title(task) for task in tasks])}"
    gifs = {path.resolve(): gif for path, gif in (animations or {}).items()}
    owner = {run.path: group for group in groups for run in group.runs}
    body = [
        f'<header><p class="kicker">emc training report</p><h1>{escape(title)}</h1>',
        *(f'<p class="lead">{escape(_headline(task))}</p>' for task in tasks),
        f"<p>{escape(_extent(groups))}</p></header>",
        *(_task_section(task, single is None) for task in tasks),
        _contents(runs, owner) if len(runs) > 1 else "",
        *(_run_section(run, owner[run.path], gifs.get(run.path.resolve()), number) for number, run in enumerate(runs, start=1)),
    ]
    filled = {"title": escape(title), "body": "\n".join(body)}
    document = re.sub(r"\{(title|body)\}", lambda found: filled[found[1]], PAGE)
    with explained(out), written_whole(out) as beside:
        beside.write_bytes(document.encode("utf-8", "replace"))


def _headline(groups: Sequence[Group]) -> str:
    """The result on one task in words."""
    ranked = sorted((group for group in groups if group.curves), key=lambda group: -float(np.median(group.final)))
    if not ranked:
        return f"Nothing has been evaluated on {groups[0].env_name} yet."
    best, *others = ranked
    verb = "wins {} of its greedy test episodes" if best.winnable else "earns a mean return of {} in greedy test episodes"
    if best.winnable and not any(np.any(curve.values) for curve in best.curves):
        verb = "has won none of its greedy test episodes ({})"
    steps = max(curve.steps[-1] for curve in best.curves)
    seeds = "one seed" if len(best.curves) == 1 else f"median of {len(best.curves)} seeds, middle half {_quartiles(best)}"
    said = f"{best.label} {verb.format(_score(float(np.median(best.final)), best.winnable))} after {steps:,.0f} steps ({seeds})."
    rest = [f"{group.label}: {_score(float(np.median(group.final)), group.winnable)}" for group in others]
    return f"{said} {'; '.join(rest)}." if 0 < len(rest) < 7 else said


def _extent(groups: Sequence[Group]) -> str:
    """How much was measured."""
    curves = [curve for group in groups for curve in group.curves]
    runs, evaluations = sum(len(group.runs) for group in groups), sum(len(curve.steps) for curve in curves)
    measured = f"{count(evaluations, 'evaluation')}, {count(sum(curve.episodes for curve in curves), 'test episode')}"
    repeated = [f"seed {seed} of {group.label}" for group in groups for seed in group.left_out]
    note = f" Found in more than one run, and counted once, from the longest: {_listed(repeated)}." if repeated else ""
    return f"{count(runs, 'run')}, {count(len(curves), 'seed')}, {measured}. A final score is the last evaluation of a seed.{note}"


def _task_section(groups: Sequence[Group], named: bool) -> str:
    """The curves of one task and what they come to."""
    drawn = [group for group in groups if group.curves]
    if not drawn:
        return ""
    evaluations = max(len(curve.steps) for group in drawn for curve in group.curves)
    window = 2 * round(evaluations / 200) + 1 if evaluations > CROWDED else 1
    tested = _range([round(curve.episodes / len(curve.steps)) for group in drawn for curve in group.curves])
    caption = (
        f"Scores of {tested} greedy test episodes per evaluation, {evaluations:,} evaluations. The line is the median over seeds, the band "
        "their middle half (25–75%); where a line turns pale, some seeds have not got further."
    )
    alt = f"Learning curves. {_headline(groups)}"
    figures = _figure(lambda theme: plot_curves(drawn, theme, window), alt, caption, vector=True)
    if window > 1:
        raw = _figure(lambda theme: plot_curves(drawn, theme), f"{alt} Not smoothed.", "The same scores, not smoothed.")
        figures += f"<details><summary>Every evaluation by itself, not smoothed</summary>{raw}</details>"
    heading = f"Results on {task_title(groups)}" if named else "Results"
    return f"<section><h2>{escape(heading)}</h2>{figures}{_summary(drawn)}</section>"


def _summary(groups: Sequence[Group]) -> str:
    """What the curves come to, in numbers."""
    winnable, bands = groups[0].winnable, [middle_half(group.curves) for group in groups]
    bar = WIN_RATE if winnable else SHARE * max(float(np.max(band.median)) for band in bands)
    rows: list[list[str]] = []
    for group, band in zip(groups, bands, strict=True):
        top = int(np.argmax(band.median))
        firsts = [reached(curve, bar) for curve in group.curves]
        solved = f"{sum(map(math.isfinite, firsts))} of {count(len(firsts), 'seed')}"
        median = float(np.median(firsts))
        swatch = f'<span class="swatch" style="background:{colour_of(group.method_name)}"></span>'
        rows.append(
            [
                swatch + escape(group.label),
                str(len(group.curves)),
                _range([curve.steps[-1] for curve in group.curves], _steps),
                f"<b>{_score(float(np.median(group.final)), winnable)}</b> [{_quartiles(group)}]",
                f"{_score(float(band.median[top]), winnable)} at {_steps(band.steps[top])}",
                f"{_steps(median)} ({solved})" if math.isfinite(median) else f"— ({solved})",
            ]
        )
    names = ["Method", "Seeds", "Steps", "Final median [25–75%]", "Best median"]
    note = f"Steps to three digits. The last column is the step of the first evaluation of at least {_score(bar, winnable)}"
    note += "" if winnable else f", {SHARE:.0%} of the best median here"
    note += ": the median over seeds, where a seed that never got there counts as later than all others."
    if bar <= 0:  # nobody earned anything, so there is no share of it to reach
        return _table(names, [row[:-1] for row in rows])
    return _table([*names, f"First at {_score(bar, winnable)}"], rows) + f'<p class="note">{escape(note)}</p>'


def reached(curve: Curve, bar: float) -> float:
    """The step of the first evaluation that is at least this good; infinite if there is none."""
    return float(min(curve.steps[curve.values >= bar], default=math.inf))


def _contents(runs: Sequence[RunDirectory], owner: Mapping[Path, Group]) -> str:
    """Where to find each run."""
    links: list[str] = []
    for number, run in enumerate(runs, start=1):
        name = f"{owner[run.path].label} on {owner[run.path].env_name}"
        links.append(f'<li><a href="#run-{number}">{escape(name)}</a> <small>{_id(run)}</small></li>')
    return f"<nav><h2>Runs</h2><ol>{''.join(links)}</ol></nav>"


def _run_section(run: RunDirectory, group: Group, gif: Path | None, number: int) -> str:
    """Everything about one run."""
    lines, name = read_lines(run), f"{group.label} on {group.env_name}"
    parts = [f'<h2 id="run-{number}">{escape(name)}<small>run {_id(run)}</small></h2>', _facts(run, lines)]
    if gif is not None:
        caption = "One greedy episode, played with the networks of the last checkpoint. It repeats."
        parts.append("<h3>One episode</h3>" + _animation(gif, f"Animation of one greedy episode of {name}.", caption))
    parts += [_maps(run, name), _diagnostics(lines, name)]
    curves = scores(lines, group.winnable)
    if len(curves) > 1:
        results = [(curve, [_score(value, group.winnable) for value in (curve.values[-1], np.max(curve.values))]) for curve in curves]
        table = _table(["Seed", "Steps", "Final score", "Best score"], [[str(c.seed), f"{c.steps[-1]:,.0f}", *said] for c, said in results])
        parts.append(f"<details><summary>Seed by seed</summary>{table}</details>")
    return f"<section>{''.join(parts)}{_configuration(run)}{_reproduction(run)}</section>"


def _maps(run: RunDirectory, name: str) -> str:
    """Heat maps, where there are any."""
    env, stretches = environment_of(run), phases(read_maps(run))
    if env is None or not stretches:
        return ""
    alt = f"Heat maps of {name}: visits to each cell in the course of training."
    seeds = count(stretches[0].seeds, "seed")
    caption = f"Steps of agents on each cell, summed over {seeds}, on one scale; cells nobody came to are blank."
    if was_paid(stretches):
        alt += " Below, the mean intrinsic reward there."
        caption += " Below, the mean intrinsic reward of steps there, each map on its own scale, because it fades as training goes on."
    return "<h3>Where agents went</h3>" + _figure(lambda theme: plot_maps(env, stretches, theme), alt, caption, palette=False)


def _diagnostics(lines: Sequence[Mapping[str, Any]], name: str) -> str:
    """What training looked like inside, once there was an update."""
    if not any("loss" in line for line in lines):
        return ""
    alt = f"Training diagnostics of {name}: loss, temporal-difference error, values and targets, rewards, exploration."
    caption = "Means over the time since the evaluation before; median and middle half over seeds, not smoothed."
    if any(line.get("reward_intrinsic") for line in lines):
        caption += " Intrinsic reward is shown as it is paid, weighted by η."
    return "<h3>Inside training</h3>" + _figure(lambda theme: plot_diagnostics(lines, theme), alt, caption)


def _facts(run: RunDirectory, lines: Sequence[Mapping[str, Any]]) -> str:
    """The run in a few numbers."""
    asked, machine = at(run.manifest, "config", "budget", "steps"), run.manifest.get("machine")
    train, tests = [line for line in lines if line.get("kind") == "train"], [line for line in lines if line.get("kind") == "eval"]
    steps, episodes = max((line["steps"] for line in lines), default=0), {line["seed"]: line["episodes"] for line in train}
    facts = {
        "Seeds": _kind(at(run.manifest, "config", "seeds")),
        "Steps": f"{steps:,}" + (f" of {asked:,}: {_why_short(run)}" if isinstance(asked, int) and steps < asked else ""),
        "Training episodes": _range([*episodes.values()] or [0]) + (" per seed" if len(episodes) > 1 else ""),
        "Test episodes": f"{sum(len(line['won']) for line in tests):,}",
        "Speed, tests included": _speed(run),
        "Device": f"{_kind(at(machine, 'device', 'kind'))}, {_kind(at(machine, 'platform'))}",
        "Begun (UTC)": str(run.manifest.get("created"))[:16].replace("T", " "),
    }
    return "<dl>" + "".join(f"<div><dt>{name}</dt><dd>{escape(fact)}</dd></div>" for name, fact in facts.items()) + "</dl>"


def _why_short(run: RunDirectory) -> str:
    ended = (run.path / END).exists() and any(line.get("reason") == "enough" for line in read_metrics(run.path / END))
    return "ended there, its goal was reached" if ended else "not finished"


def _speed(run: RunDirectory) -> str:
    lines = read_metrics(run.path / SPEED) if (run.path / SPEED).exists() else []
    if not lines or not lines[-1]["seconds"] > 0:
        return "unknown"
    rate = lines[-1]["steps_since_start"] / lines[-1]["seconds"]
    return f"{rate:,.0f} steps/s per seed"


def _configuration(run: RunDirectory) -> str:
    """Every field of the manifest; what differs from the preset is marked with the preset's value."""
    _, method = nearest_preset(run)
    usual = {"method": method, "env": usual_environment(run)}
    changed: dict[tuple[str, ...], Any] = {
        ("config", part, *path): value
        for part, reference in usual.items()
        if reference is not None
        for path, _, value in differences(configuration(run).get(part), reference)
    }
    tables: list[str] = []
    for name, fields in (("Configuration", ["config"]), ("Versions and machine", sorted(run.manifest.keys() - {"config"}))):
        rows: list[list[str]] = []
        for path, value in (row for field in fields for row in _leaves(run.manifest.get(field), (field,))):
            shown = path[1:] if path[0] in ("config", "machine") else path
            note = f' <span class="changed">preset: {escape(_kind(changed[path]))}</span>' if path in changed else ""
            if shown:
                field = f'<span style="padding-left:{len(shown) - 1}em">{escape(shown[-1])}</span>'
                rows.append([field, f"<code>{escape(value)}</code>{note}"])
        tables.append(f"<details><summary>{name}</summary>{_table(['Field', 'Value'], rows)}</details>")
    return "".join(tables)


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every field of a nested document, top down, as text."""
    if isinstance(value, dict):
        fields = cast(dict[str, Any], value)
        yield path, _kind(fields)
        for name in fields:
            if name != "type":
                yield from _leaves(fields[name], (*path, str(name)))
    else:
        yield path, _kind(value)


def _kind(value: Any) -> str:
    """A value in one cell; of a part, its type."""
    if isinstance(value, dict):
        return str(cast(dict[str, Any], value).get("type", ""))
    if isinstance(value, list):
        return ", ".join(map(_kind, cast(list[Any], value))) or "none"
    return "none" if value is None else str(value)


def _reproduction(run: RunDirectory) -> str:
    """How to get the same numbers again."""
    version, commit = at(run.manifest, "machine", "packages", "emc-marl"), at(run.manifest, "machine", "commit", "emc")
    source = f"emc-marl {version}" if version else "an emc-marl that was not installed as a package"
    source += f", commit {commit}" if commit else ""
    dirty = " That source had uncommitted changes, so the commit alone does not say what ran." if str(commit).endswith("-dirty") else ""
    command = str(run.manifest.get("command") or "")
    how = f"<pre><code>{escape(command)}</code></pre>" if command else "<p>No command was recorded: the run was started from Python.</p>"
    return (
        f"<h3>How to reproduce it</h3><p>With {escape(source)}.{escape(dirty)}</p>{how}"
        "<p>The same version, configuration and seeds give the same numbers on the same kind of device.</p>"
    )


# Pieces of HTML.


def _figure(draw: Callable[[Theme], Figure], alt: str, caption: str, vector: bool = False, palette: bool = True) -> str:
    """A figure for light and for dark screens."""
    light, dark = (_uri(as_svg(draw(t)), "svg+xml") if vector else _uri(as_png(draw(t), palette), "png") for t in (LIGHT, DARK))
    source = f'<source media="(prefers-color-scheme: dark)" srcset="{dark}">'
    picture = f'<picture>{source}<img src="{light}" alt="{escape(alt)}"></picture>'
    return f'<figure><div class="scroll" tabindex="0">{picture}</div><figcaption>{escape(caption)}</figcaption></figure>'


def _animation(gif: Path, alt: str, caption: str) -> str:
    """A GIF; its last frame stands still for readers who asked for less motion."""
    from PIL import Image, ImageSequence

    still = io.BytesIO()
    try:
        content = gif.read_bytes()
        with Image.open(io.BytesIO(content), formats=["gif"]) as image:
            *_, last = ImageSequence.Iterator(image)
            last.convert("RGB").save(still, "png", optimize=True)
    except OSError as error:
        raise UserError(f"{gif}: cannot be read as a GIF. Make it again, or leave the animation out.") from error
    source = f'<source media="(prefers-reduced-motion: reduce)" srcset="{_uri(still.getvalue(), "png")}">'
    picture = f'<picture>{source}<img src="{_uri(content, "gif")}" alt="{escape(alt)}"></picture>'
    return f'<figure class="episode">{picture}<figcaption>{escape(caption)}</figcaption></figure>'


def _uri(content: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already; the first of each row is its name."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    body = "".join(f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{cell}</td>" for cell in row[1:])}</tr>' for row in rows)
    return f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _score(value: float, winnable: bool) -> str:
    return f"{value:.0%}" if winnable else f"{value:.4g}"


def _quartiles(group: Group) -> str:
    low, high = np.percentile(group.final, (25, 75))
    return f"{100 * low:.0f}–{high:.0%}" if group.winnable else f"{low:.4g} to {high:.4g}"


def _range(numbers: Sequence[float], written: Callable[[float], str] = "{:,}".format) -> str:
    low, high = written(min(numbers)), written(max(numbers))
    return low if low == high else f"{low}–{high}"


def _steps(steps: float) -> str:
    return steps_in_words(float(f"{steps:.3g}"))


def _id(run: RunDirectory) -> str:
    return escape(str(run.manifest.get("id")))


def _listed(items: Sequence[Any]) -> str:
    return ", ".join(str(item) for item in items)


PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root { --page: #f4f5f7; --paper: #ffffff; --ink: #1f2328; --faint: #59636e; --rule: #d9dee4; --mark: #fff1d6; --markink: #6b4a00; }
@media (prefers-color-scheme: dark) {
  :root { --page: #0e1116; --paper: #171b21; --ink: #e6eaef; --faint: #9aa4af; --rule: #343b44; --mark: #3a2f14; --markink: #f0cf8a; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2.5rem 1rem 4rem; }
header { margin: 0 0 2rem; }
h1, h2, h3 { line-height: 1.2; text-wrap: balance; overflow-wrap: anywhere; }
h1 { font-size: clamp(1.8rem, 5vw, 2.6rem); margin: 0 0 .8rem; letter-spacing: -.02em; }
h2 { font-size: 1.45rem; margin: 0 0 1rem; letter-spacing: -.01em; }
h2 small { display: block; margin-top: .3rem; font-size: .85rem; font-weight: 400; letter-spacing: 0; color: var(--faint); }
h3 { font-size: 1.1rem; margin: 2rem 0 .7rem; }
nav { margin: 2.5rem 0; }
nav ol { margin: 0; padding-left: 1.6rem; }
nav small { color: var(--faint); }
a { color: inherit; text-underline-offset: .2em; }
p { margin: 0 0 .8rem; max-width: 46rem; overflow-wrap: anywhere; }
.kicker { margin: 0 0 .4rem; font-size: .85rem; font-weight: 600; letter-spacing: .06em; text-transform: uppercase; color: var(--faint); }
.lead { font-size: 1.2rem; line-height: 1.5; }
header p:last-child, .note, figcaption { font-size: .9rem; color: var(--faint); }
section { margin: 0 0 1.5rem; padding: clamp(1rem, 4vw, 2rem); }
section { background: var(--paper); border: 1px solid var(--rule); border-radius: 12px; }
figure { margin: 0 0 1.5rem; }
figure img { display: block; width: 100%; height: auto; }
figure .scroll img { min-width: 34rem; }
figure.episode { display: flex; flex-wrap: wrap; gap: .5rem 1.5rem; align-items: center; }
figure.episode picture { flex: 0 1 26rem; }
figure.episode img { border-radius: 8px; border: 1px solid var(--rule); }
figure.episode figcaption { flex: 1 1 14rem; }
figcaption { max-width: 46rem; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(12rem, 1fr)); gap: .8rem 1.5rem; margin: 0 0 1.8rem; }
dt { font-size: .85rem; color: var(--faint); }
dd { margin: 0; font-weight: 600; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; margin: 0 0 .5rem; }
table { width: 100%; border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .8rem .4rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--rule); }
th { font-weight: 500; }
thead th { font-size: .85rem; color: var(--faint); white-space: nowrap; }
tbody th { min-width: 9rem; }
td { white-space: nowrap; }
td code { white-space: pre-wrap; overflow-wrap: anywhere; }
.swatch { display: inline-block; width: .8em; height: .8em; margin-right: .5em; border-radius: 50%; border: 1px solid var(--rule); }
.changed { padding: .05em .5em; border-radius: 1em; font-size: .85em; background: var(--mark); color: var(--markink); white-space: nowrap; }
details { border-top: 1px solid var(--rule); padding: .6rem 0; }
details[open] { padding-bottom: 1.2rem; }
summary { cursor: pointer; font-weight: 600; }
summary + * { margin-top: .8rem; }
code, pre { font: .9em/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
pre { margin: 0 0 .8rem; padding: .8rem 1rem; background: var(--page); border: 1px solid var(--rule); border-radius: 8px; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; }
:focus-visible { outline: 2px solid #0072b2; outline-offset: 2px; }
@media print { body { background: none; } section { border: 0; padding: 0; } }
</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""
