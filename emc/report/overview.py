"""The table of all runs, a row for each configuration with its seeds below, and what the browser needs to search, filter and sort it."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Sequence
from html import escape

import numpy as np

from emc.report.curves import Group, middle_half
from emc.report.markup import score, swatch
from emc.report.records import RUNNING, UNFINISHED, Summary, seeds_of
from emc.report.run_titles import count

COLUMNS = ("Method", "Task", "What differs", "Seeds", "Steps", "State", "Final", "Best", "Steps/s", "Begun (UTC)")
Cell = tuple[str, str]  # its HTML, and what it is sorted by
Entry = tuple[str, Group, Summary]  # the name of a run's page, its group and its numbers


def overview(entries: Sequence[Entry], remarks: str) -> str:
    """All runs, those of one configuration together."""
    together: dict[int, list[Entry]] = {}
    for entry in entries:
        together.setdefault(id(entry[1]), []).append(entry)
    filters = {
        "method": dict.fromkeys(group.method_name for _, group, _ in entries),
        "task": dict.fromkeys(group.task for _, group, _ in entries),
        "state": dict.fromkeys(known.state for _, _, known in entries),
    }
    chosen = "".join(_filter(name, sorted(values)) for name, values in filters.items())
    search = '<label>Search<input type="search" id="q" autocomplete="off" spellcheck="false"></label>'
    shown = f'<output id="shown">{count(len(entries), "run")}</output><button type="button" id="clear" hidden>Show all</button>'
    head = "".join(f'<th scope="col" aria-sort="none"><button type="button">{name}</button></th>' for name in COLUMNS)
    bodies = "".join(map(_body, together.values()))
    return (
        f'<section id="runs"><h2>Runs</h2><div class="filters" role="search">{search}{chosen}{shown}</div>'
        f'<div class="scroll tall" tabindex="0"><table id="all"><thead><tr>{head}</tr></thead>{bodies}</table></div>'
        f'<p class="note">Final and Best, the best evaluation, are medians over seeds. {escape(remarks)}</p></section>'
    )


def _filter(name: str, values: Iterable[str]) -> str:
    options = "".join(f"<option>{escape(value)}</option>" for value in values)
    return f'<label>{name.capitalize()}<select id="{name}"><option value="">all</option>{options}</select></label>'


def _body(entries: Sequence[Entry]) -> str:
    """One configuration: a row that says what all its seeds come to and, where it has several runs, one for each of them."""
    anchor, group, known = entries[0]
    about = f' data-method="{escape(group.method_name)}" data-task="{escape(group.task)}"'
    if len(entries) == 1:
        rows = _row(f'<a href="#{anchor}">{escape(group.method_name)}</a>', group, known, swatch(group.method_name))
    else:
        opener = f'<button type="button" aria-expanded="false">{escape(group.method_name)}</button>'
        rows = _row(opener, group, _together(group, [own for _, _, own in entries]), swatch(group.method_name))
        rows += "".join(_row(f'<a href="#{anchor}">{escape(own.seeds)}</a>', group, own, one=True) for anchor, _, own in entries)
    return f"<tbody{about}>{rows}</tbody>"


def _together(group: Group, runs: Sequence[Summary]) -> Summary:
    """What all runs of a configuration come to."""
    states = collections.Counter(own.state for own in runs)
    named = [f"{number} {state}" for state, number in states.items()]
    begun, speeds = sorted(own.begun for own in runs), [own.speed for own in runs if own.speed is not None]
    seeds = len({seed for run in group.runs for seed in seeds_of(run)})
    return Summary(
        id=" ".join(own.id for own in runs),
        seeds=count(seeds, "seed"),
        n_seeds=seeds,
        steps=max(own.steps for own in runs),
        asked=None,
        state=named[0].partition(" ")[2] if len(named) == 1 else ", ".join(named),
        final=float(np.median(group.final)) if group.curves else None,
        best=float(np.nanmax(middle_half(group.curves).median)) if group.curves else None,
        speed=float(np.median(speeds)) if speeds else None,
        begun=begun[0],
    )


def _row(named: str, group: Group, known: Summary, mark: str = "", one: bool = False) -> str:
    steps = f"{known.steps:,}" + (f" <small>of {known.asked:,}</small>" if known.asked is not None and known.steps < known.asked else "")
    urgent = next((state for state in (RUNNING, UNFINISHED) if state in known.state), known.state).partition(" ")[0]
    first, *others = (
        (mark + named, group.method_name),
        ("" if one else escape(group.task), group.task),
        (f"<small>{escape(known.id)}</small>" if one else escape(group.differs), group.differs),
        ("" if one else escape(known.seeds), str(known.n_seeds)),
        (steps, str(known.steps)),
        (f'<span class="state {urgent}">{known.state}</span>', known.state),
        _number(known.final, lambda value: score(value, group.winnable)),
        _number(known.best, lambda value: score(value, group.winnable)),
        _number(known.speed, "{:,.0f}".format),
        (f"<time>{escape(known.begun)}</time>", known.begun),
    )
    cells = f'<th scope="row" data-by="{escape(first[1])}">{first[0]}</th>'
    cells += "".join(f'<td data-by="{escape(by)}">{html}</td>' for html, by in others)
    kind = ' class="one" hidden' if one else ""
    return f'<tr{kind} data-state="{known.state}" title="{escape(known.id)}">{cells}</tr>'


def _number(value: float | None, written: Callable[[float], str]) -> Cell:
    return ("—", "") if value is None else (written(value), repr(value))
