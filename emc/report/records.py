"""One run as plain data: what the page's table says of it, and what its own page is drawn from in the browser.

Drawing every run here would take a second for each of them and make the page large, so the numbers go into the page instead: its curves
(`plots`) and the cells of its maps.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import itertools
import re
import shlex
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from emc.envs.base import HasMap
from emc.errors import MISTAKES, FileError, UserError, in_short
from emc.files import content_of, is_there
from emc.report.ceilings import ceiling_of
from emc.report.curves import PANELS, Group, environment_of, measured, middle_half
from emc.report.figures import DARK, LIGHT, colour_of
from emc.report.heatmaps import Phase, phases, read_maps, was_paid
from emc.report.markup import number_range, score, uri
from emc.report.plots import Json, band, rounded
from emc.report.run_titles import configuration, count, differences, known_config, nearest_preset, usual_environment
from emc.runs import RunDirectory
from emc.runs.directory import CHECKPOINTS, EPISODE, LOCK
from emc.runs.jsonl import at
from emc.runs.reading import SPEED, end_of, is_whole, last_line, steps_asked_later
from emc.statistics import final

DIAGNOSTICS = 120  # points of a curve, at most
FRESH = 15 * 60  # seconds since a run wrote anything, after which it does not count as running
FINISHED, GOAL, RUNNING, UNFINISHED = "finished", "goal reached", "running", "unfinished"
MOST_FRAMES, MOST_PIXELS = 5_000, 10**9  # of an episode, in all its frames; the last of them is shown as a still
MOMENT = 1e-6  # seconds; in less, no speed can be measured
SHORT = {GOAL: "ended there, its goal was reached", RUNNING: "still running", UNFINISHED: "not finished"}  # of the steps asked for


@dataclasses.dataclass(frozen=True)
class Summary:
    """A run in a few numbers; None where they are not known."""

    id: str
    seeds: str  # in words
    n_seeds: int
    steps: int
    asked: int | None
    state: str
    final: float | None  # the median over seeds, as in the curves
    best: float | None
    speed: float | None  # steps per second and seed, tests included
    begun: str


def summary(run: RunDirectory, winnable: bool) -> Summary:
    """What the table of all runs says of one."""
    found = measured(run)
    curves, seeds = found.scores(winnable), seeds_of(run)
    return Summary(
        id=str(run.manifest.get("id")),
        seeds=f"seed {seeds[0]}" if len(seeds) == 1 else count(len(seeds), "seed"),
        n_seeds=len(seeds),
        steps=max(found.steps.values(), default=0),
        asked=_asked(run),
        state=state_of(run),
        final=float(np.median([final(curve.values.tolist()) for curve in curves])) if curves else None,
        best=float(np.nanmax(middle_half(curves).median)) if curves else None,
        speed=_speed(run),
        begun=str(run.manifest.get("created"))[:16].replace("T", " "),
    )


def seeds_of(run: RunDirectory) -> list[Any]:
    """The seeds that a run was to have."""
    seeds = at(run.manifest, "config", "seeds")
    return [as_text(seed) for seed in cast(list[Any], seeds)] if isinstance(seeds, list) else []


def stamp(run: RunDirectory) -> tuple[Any, ...]:
    """Changes whenever the run does, its episode, or whether there is a checkpoint to play one from."""
    found: list[Any] = [bool(run.steps())]
    for path in (*sorted(run.path.glob("*.json*")), run.path / EPISODE):
        with contextlib.suppress(OSError):  # a file that has just gone
            known = path.lstat()
            found.append((path.name, known.st_size, known.st_mtime_ns))
    return tuple(found)


def state_of(run: RunDirectory) -> str:
    """What has become of a run. Its lock is not tried: a run that begins in that moment would be turned away."""
    end, asked, slowest = end_of(run.path), _asked(run), min(measured(run).steps.values(), default=0)
    if end is not None or (asked is not None and slowest >= asked):
        return GOAL if end is not None and end.get("reason") == "enough" else FINISHED
    paths = (*run.path.glob("*.jsonl"), run.path / CHECKPOINTS, run.path / LOCK)
    now, written = time.time(), [path.lstat().st_mtime for path in paths if is_there(path)]
    fresh = any(abs(now - moment) < FRESH for moment in written)  # a time that is still to come says nothing
    return RUNNING if is_there(run.path / LOCK) and fresh else UNFINISHED


def _asked(run: RunDirectory) -> int | None:
    steps = steps_asked_later(run.path) or at(run.manifest, "config", "budget", "steps")
    return steps if is_whole(steps) else None


def _speed(run: RunDirectory) -> float | None:
    line = last_line(run.path / SPEED) or {}
    steps, seconds = line.get("steps_since_start"), line.get("seconds")
    return steps / seconds if is_whole(steps) and isinstance(seconds, float) and seconds > MOMENT else None


def record(run: RunDirectory, group: Group, known: Summary, gif: Path | None) -> Json:
    """What the page of one run shows."""
    grids: list[list[int]] = []
    problems: list[str] = []
    return {
        "name": f"{group.label} on {group.task}" + (f", {known.seeds}" if len(group.runs) > 1 else ""),
        "id": known.id,
        "facts": _facts(run, known),
        "percent": group.winnable,
        "score": _score_lines(run, group, grids),
        "ceilings": [] if (best := ceiling_of(known_config(run))) is None else [[best.score, f"{best.name} {best.number}"]],
        "seeds": _seeds(run, group),
        "episode": None if gif is None else _or_none(functools.partial(_episode, gif), problems),
        "unplayed": _unplayed(run),
        "maps": _or_none(functools.partial(_maps, run), problems),
        "panels": _panels(run, grids),
        "grids": grids,  # steps, which most curves of a run share
        "fields": [[*_fields(run, ["config"])], [*_fields(run, sorted(run.manifest.keys() - {"config"}))]],
        "preset": _changed(run),
        "source": _source(run),
        "command": str(run.manifest.get("command") or ""),
        "problems": problems,  # why pictures are missing
    }


def _or_none(make: Callable[[], Json | None], problems: list[str]) -> Json | None:
    """A picture, or nothing and why: a run is worth showing without it."""
    try:
        return make()
    except UserError as error:
        problems.append(str(error))
        return None


def _facts(run: RunDirectory, known: Summary) -> list[tuple[str, str]]:
    machine, found = run.manifest.get("machine"), measured(run)
    short = f" of {known.asked:,}: {SHORT.get(known.state, known.state)}" if known.asked is not None and known.steps < known.asked else ""
    return [
        ("Seeds", ", ".join(seeds_of(run)) or "none"),
        ("Steps", f"{known.steps:,}{short}"),
        ("Training episodes", number_range([*found.episodes.values()] or [0]) + (" per seed" if len(found.episodes) > 1 else "")),
        ("Test episodes", f"{sum(curve.episodes for curve in found.returns):,}"),
        ("Speed, tests included", "unknown" if known.speed is None else f"{known.speed:,.0f} steps/s per seed"),
        ("Device", f"{as_text(at(machine, 'device', 'kind'))}, {as_text(at(machine, 'platform'))}"),
        ("Begun (UTC)", known.begun),
    ]


# Curves.


def _score_lines(run: RunDirectory, group: Group, grids: list[list[int]]) -> list[Json]:
    curves, colours = measured(run).scores(group.winnable), [colour_of(group.method_name, theme) for theme in (LIGHT, DARK)]
    return [{"name": "", "colours": colours} | band(curves, grids)] if curves else []


def _panels(run: RunDirectory, grids: list[list[int]]) -> list[Json]:
    """What training looked like inside; a number that is absent or zero throughout belongs to a part that the method has not."""
    found, panels = measured(run).training, list[Json]()
    for title, unit, wanted in PANELS:
        lines = [
            {"name": name, "colours": [theme.contrast.get(colour, colour) for theme in (LIGHT, DARK)]}
            | band(found[field], grids, DIAGNOSTICS)
            for field, name, colour in wanted
            if any(np.any(curve.values) for curve in found[field])
        ]
        panels += [{"title": title, "unit": unit, "log": "log" in unit, "lines": lines}] if lines else []
    return panels


def _seeds(run: RunDirectory, group: Group) -> list[list[str]]:
    """Seed, steps, final and best score, where there are several seeds."""
    curves = measured(run).scores(group.winnable)
    rows = [
        [str(curve.seed), f"{curve.steps[-1]:,.0f}"]
        + [score(value, group.winnable) for value in (final(curve.values.tolist()), float(np.max(curve.values)))]
        for curve in curves
    ]
    return rows if len(rows) > 1 else []


# Pictures.


def _maps(run: RunDirectory) -> Json | None:
    """Heat maps, where there are any: their cells, and the name of the outlines that belong over them."""
    env = environment_of(run)
    try:
        stretches = phases(read_maps(run)) if isinstance(env, HasMap) else []
        if env is None or not stretches or any(phase.visits.shape != env.spec.map_shape for phase in stretches):
            return None
        return {"outlines": outlines_name(run), "seeds": count(stretches[0].seeds, "seed"), "phases": _cells(stretches)}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{run.path}: its maps are not as emc writes them. Remove maps.jsonl to see the rest.") from error


def _cells(stretches: Sequence[Phase]) -> list[Json]:
    paid = was_paid(stretches)
    return [
        {
            "name": phase.name,
            "first": phase.first,
            "last": phase.last,
            "visits": [rounded(row, 3) for row in phase.visits],
            "bonus": [rounded(row, 3) for row in phase.bonus] if paid else None,
        }
        for phase in stretches
    ]


def outlines_name(run: RunDirectory) -> str:
    """The same for runs on the same ground."""
    return repr(configuration(run).get("env"))


def outlines(env: HasMap, say: Callable[[str], None]) -> Json:
    """What never moves on a map, as an image to lay over it, and the part of the map that it shows: left, right, top, bottom."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure((1.0, 1.0), dpi=160, facecolor="none")
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    rows, columns = env.spec.map_shape
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))
    try:
        env.draw_outlines(axes)
    except MISTAKES as error:  # whatever the user's class does wrong
        say(f"{type(env).__name__} cannot draw the outlines of its map ({in_short(error)}): its maps have none")
    axes.set_axis_off()
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    figure.set_size_inches(3.2, 3.2 * abs((bottom - top) / (right - left)))
    image = io.BytesIO()
    FigureCanvasAgg(figure).print_png(image)
    return {"image": uri(image.getvalue(), "png"), "view": [left, right, top, bottom]}


def _unplayed(run: RunDirectory) -> str:
    """How to get an episode where there is none; nothing where none can be drawn."""
    if environment_of(run) is None:
        return ""
    return (
        f"No episode yet: emc render {shlex.quote(str(run.path))}"
        if run.steps()
        else "No episode: no checkpoint was kept to play one from."
    )


def _episode(gif: Path) -> Json:
    """A GIF, and its last frame for readers who asked for less motion."""
    from PIL import Image, ImageSequence

    still = io.BytesIO()
    try:
        content = content_of(gif, "picture")
        with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(content), formats=["gif"]) as image:
            most = MOST_PIXELS // (image.width * image.height)
            *_, last = itertools.islice(ImageSequence.Iterator(image), min(most, MOST_FRAMES))  # of none there is no last one
            last.convert("RGB").save(still, "png", optimize=True)
    except FileError:
        raise
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:  # all of which Pillow raises
        raise UserError(f"{gif}: cannot be read as a GIF. Make it again with emc render, or remove it.") from error
    return {"moving": uri(content, "gif"), "still": uri(still.getvalue(), "png")}


# Configuration.


def _changed(run: RunDirectory) -> list[tuple[str, str]]:
    """Where the configuration differs from the preset, and the preset's value there."""
    _, method = nearest_preset(run)
    usual: Mapping[str, Any] = {"method": method, "env": usual_environment(run)}
    return [
        (".".join((part, *path)), as_text(value))
        for part, reference in usual.items()
        if reference is not None
        for path, _, value in differences(configuration(run).get(part), reference)
    ]


def _fields(run: RunDirectory, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Every field below some of the manifest's, as path and text; of the configuration also those that are younger than the run."""
    known = configuration(run)
    for name in names:
        for path, value in _leaves(known if name == "config" and known else run.manifest.get(name), (name,)):
            shown = path[1:] if path[0] in ("config", "machine") else path
            if shown:
                yield ".".join(shown), value


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every field of a nested document, top down, as text."""
    yield path, as_text(value)
    if isinstance(value, dict):
        for name, inner in cast(dict[str, Any], value).items():
            if name != "type":
                yield from _leaves(inner, (*path, str(name).replace(".", "·")))


def as_text(value: Any) -> str:
    """A value in one cell; of a part, its type."""
    if isinstance(value, dict):
        return str(cast(dict[str, Any], value).get("type", ""))
    if isinstance(value, list):
        return ", ".join(map(as_text, cast(list[Any], value))) or "none"
    return "none" if value is None else str(value)


def _source(run: RunDirectory) -> str:
    """Which version of emc made the run."""
    version, commit = at(run.manifest, "machine", "packages", "emc-marl"), at(run.manifest, "machine", "commit", "emc")
    source = f"emc-marl {version}" if version else "an emc-marl that was not installed as a package"
    source += f", commit {commit}" if commit else ""
    dirty = " That source had uncommitted changes, so the commit alone does not say what ran." if str(commit).endswith("-dirty") else ""
    return f"With {source}.{dirty}"


def anchors(runs: Sequence[RunDirectory]) -> list[str]:
    """A name for the page of each run, in letters that a link may hold."""
    names = [f"run-{re.sub(r'[^A-Za-z0-9-]+', '-', str(run.manifest.get('id')))[:60]}" for run in runs]
    return [name if names.count(name) == 1 else f"{name}.{names[: i + 1].count(name)}" for i, name in enumerate(names)]
