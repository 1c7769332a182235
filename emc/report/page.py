"""The report as one HTML file that needs nothing else: all runs, what came out of them, and a page for each of them.

Everything that comes out of a run directory is escaped, or goes into the page as data that is never run, and the page forbids itself to
load anything and to run anything but its own script, so a stranger's run can be looked at safely.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from emc.envs.base import HasMap
from emc.errors import UserError
from emc.files import explained, written_whole
from emc.report.all_tasks import all_tasks_section
from emc.report.curves import Group, environment_of, group_runs
from emc.report.markup import Section
from emc.report.overview import overview
from emc.report.plots import Json
from emc.report.records import anchors, outlines, outlines_name, record, stamp, summary
from emc.report.run_titles import count
from emc.report.tasks import by_environment, by_task, environment_section, extent, headline, remarks
from emc.runs import RunDirectory
from emc.runs.directory import EPISODE

Made = TypeVar("Made")


class Memo:
    """Values by name, each made again only when what it was made from has changed."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[Any, Any]] = {}

    def __call__(self, name: Hashable, source: Any, make: Callable[[], Made]) -> Made:
        """The kept value if its source is the same, else a new one."""
        if name not in self._kept or self._kept[name][0] != source:
            self._kept[name] = source, make()
        return self._kept[name][1]


def write_report(
    runs: Sequence[RunDirectory], out: Path, animations: Mapping[Path, Path] | None = None, say: Callable[[str], None] = lambda line: None
) -> None:
    """Write the report of some runs; `animations` maps a run's path to a GIF that is not in there. What is missing is said."""
    if not runs:
        raise UserError("there are no runs to report on: name at least one run directory.")
    document = build_page(runs, animations, say=say)
    with explained(out), written_whole(out) as beside:
        beside.write_bytes(document.encode("utf-8", "replace"))


def build_page(
    runs: Sequence[RunDirectory],
    animations: Mapping[Path, Path] | None = None,
    memo: Memo | None = None,
    version: str = "",
    say: Callable[[str], None] = lambda line: None,
) -> str:
    """The page about some runs; one with a `version` asks its server now and then whether there is a newer one. What is missing is said."""
    memo = memo or Memo()
    groups = group_runs(runs) if runs else []
    title, environments = _title(groups), {f"task-{number}": own for number, own in enumerate(by_environment(groups), start=1)}
    gifs = {path.resolve(): gif for path, gif in (animations or {}).items()}
    owner = {run.path: group for group in groups for run in group.runs}
    entries = [(anchor, owner[run.path], summary(run, owner[run.path].winnable)) for anchor, run in zip(anchors(runs), runs, strict=True)]
    across = memo("all tasks", _source(groups), lambda: all_tasks_section(groups))
    named = len(groups) > 1
    results = [
        memo(("results", own[0].env_name), (named, anchor, _source(own)), functools.partial(environment_section, own, named, anchor))
        for anchor, own in environments.items()
    ]
    sections = [*results, across]
    said = (
        " ".join([extent(groups), *([remarks(groups)] if len(runs) == 1 else [])])
        if runs
        else "They will appear here as soon as they write anything."
    )
    table = overview(entries, remarks(groups)) if len(runs) > 1 else ""
    body = [
        f'<header><p class="kicker">emc training report</p><h1>{escape(title)}</h1>',
        *(f'<p class="lead">{escape(line)}</p>' for line in _leads(groups)),
        f"<p>{escape(said)}</p>",
        _contents(environments, results, across, table),
        "</header>",
        *(section.html for section in sections),
        table,
    ]
    plots: Json = {name: plot for section in sections for name, plot in section.plots.items()}
    records: Json = {}
    for run, (anchor, group, known) in zip(runs, entries, strict=True):
        rendered = run.path / EPISODE
        gif = gifs.get(run.path.resolve()) or (rendered if rendered.exists() else None)
        source = stamp(run), group.task, group.label, known, gif, gif is not None and gif.exists() and gif.stat().st_mtime_ns
        records[anchor] = memo(("record", run.path), source, functools.partial(record, run, group, known, gif))
        for problem in records[anchor]["problems"]:
            say(problem)
    data = {"plots": plots, "runs": records, "outlines": _outlines(memo, runs, [*records.values()], say)}
    return _document(title, "\n".join(body), data, version)


def _title(groups: Sequence[Group]) -> str:
    if not groups:
        return "No runs yet"
    subject = groups[0].label if len(groups) == 1 else count(len({group.method_name for group in groups}), "method")
    tasks, names = [own[0].task for own in by_task(groups)], [own[0].env_name for own in by_environment(groups)]
    shown = next((some for some in (tasks, names) if len(some) < 4), [count(len(tasks), "task")])
    return f"{subject} on {', '.join(shown)}"


def _leads(groups: Sequence[Group]) -> list[str]:
    """The result in words where there is one task, and the tasks of which nothing is known."""
    tasks = by_task(groups)
    return [headline(task) for task in tasks if len(groups) == 1 or not any(group.curves for group in task)]


def _contents(environments: Mapping[str, Sequence[Group]], results: Sequence[Section], across: Section, table: str) -> str:
    """Links to the parts of a page that has several."""
    shown = [(anchor, own[0].env_name) for (anchor, own), section in zip(environments.items(), results, strict=True) if section.html]
    shown += [("across", "all tasks together")] if across.html else []
    shown += [("runs", "runs")] if table else []
    links = "".join(f'<a href="#{anchor}">{escape(name)}</a>' for anchor, name in shown)
    return f'<nav aria-label="On this page">{links}</nav>' if len(shown) > 2 else ""


def _source(groups: Sequence[Group]) -> list[tuple[Any, ...]]:
    """Changes when a run of these has got further or is called something else."""
    return [(group.task, group.label, *((run.path, stamp(run)) for run in group.runs)) for group in groups]


def _outlines(memo: Memo, runs: Sequence[RunDirectory], records: Sequence[Json], say: Callable[[str], None]) -> Json:
    """What lies over the maps, once for all runs on the same ground."""
    found: Json = {}
    for run, own in zip(runs, records, strict=True):
        env, name = environment_of(run), outlines_name(run)
        if own["maps"] is not None and isinstance(env, HasMap) and name not in found:
            found[name] = memo(("outlines", name), None, functools.partial(outlines, env, say))
    return found


def _document(title: str, body: str, data: Json, version: str) -> str:
    """The page around its content."""
    style, script = _asset("page.css"), "\n".join(map(_asset, ("charts.js", "page.js")))
    policy = f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; script-src '{_digest(script)}'; base-uri 'none'"
    filled = {
        "policy": policy + ("; connect-src 'self'" if version else ""),
        "live": f' data-version="{escape(version)}"' if version else "",
        "title": escape(title),
        "style": style,
        "body": body,
        "data": json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        "script": script,
    }
    return re.sub(r"\{(" + "|".join(filled) + r")\}", lambda found: filled[found[1]], _asset("page.html"))


@functools.cache
def _asset(name: str) -> str:
    return (resources.files("emc.report") / "assets" / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """How a page's policy names a script or style that it allows."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
