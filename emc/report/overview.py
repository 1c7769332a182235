"""The table of all runs, with what the browser needs to search, filter and sort it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape

from emc.report.curves import Group
from emc.report.markup import score, swatch
from emc.report.names import count
from emc.report.records import Summary

COLUMNS = ("Method", "Environment", "What differs", "Seeds", "Steps", "State", "Final", "Best", "Steps/s", "Begun (UTC)")
Cell = tuple[str, str]  # its HTML, and what it is sorted by


def overview(entries: Sequence[tuple[str, Group, Summary]]) -> str:
    """A row for each run, given the name of its page, its group and its numbers."""
    filters = {
        "method": dict.fromkeys(group.method_name for _, group, _ in entries),
        "env": dict.fromkeys(group.env_name for _, group, _ in entries),
        "state": dict.fromkeys(known.state for _, _, known in entries),
    }
    chosen = "".join(_filter(name, sorted(values)) for name, values in filters.items())
    search = '<label>Search<input type="search" id="q" autocomplete="off" spellcheck="false"></label>'
    shown = f'<output id="shown">{count(len(entries), "run")}</output><button type="button" id="clear" hidden>Show all</button>'
    head = "".join(f'<th scope="col" aria-sort="none"><button type="button">{name}</button></th>' for name in COLUMNS)
    body = "".join(_row(anchor, group, known) for anchor, group, known in entries)
    return (
        f'<section id="runs"><h2>Runs</h2><div class="filters" role="search">{search}{chosen}{shown}</div>'
        f'<div class="scroll tall" tabindex="0"><table id="all"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        '<p class="note">Final is the last evaluation, Best the best one, each as the median over the run’s seeds.</p></section>'
    )


def _filter(name: str, values: Iterable[str]) -> str:
    title = {"method": "Method", "env": "Environment", "state": "State"}[name]
    options = "".join(f"<option>{escape(value)}</option>" for value in values)
    return f'<label>{title}<select id="{name}"><option value="">all</option>{options}</select></label>'


def _row(anchor: str, group: Group, known: Summary) -> str:
    named = f'{swatch(group.method_name)}<a href="#{anchor}">{escape(group.method_name)}</a>'
    steps = f"{known.steps:,}" + (f" <small>of {known.asked:,}</small>" if known.asked is not None and known.steps < known.asked else "")
    first, *others = (
        (named, group.method_name),
        (escape(group.env_name), group.env_name),
        (escape(group.differs), group.differs),
        (escape(known.seeds), known.seeds.partition(",")[0]),
        (steps, str(known.steps)),
        (f'<span class="state {known.state.partition(" ")[0]}">{known.state}</span>', known.state),
        _number(known.final, lambda value: score(value, group.winnable)),
        _number(known.best, lambda value: score(value, group.winnable)),
        _number(known.speed, "{:,.0f}".format),
        (f"<time>{escape(known.begun)}</time>", known.begun),
    )
    about = "".join(f' data-{name}="{escape(value)}"' for name, value in (("method", group.method_name), ("env", group.env_name)))
    cells = f'<th scope="row" data-by="{escape(first[1])}">{first[0]}</th>'
    cells += "".join(f'<td data-by="{escape(by)}">{html}</td>' for html, by in others)
    return f'<tr{about} data-state="{known.state}" title="{escape(known.id)}">{cells}</tr>'


def _number(value: float | None, written: Callable[[float], str]) -> Cell:
    return ("—", "") if value is None else (written(value), repr(value))
