"""Pieces of HTML, and numbers in words. Whatever is not HTML already is escaped here."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

from emc.report.figures import DARK, LIGHT, colour_of


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of the page, and the data of the charts in it, by name."""

    html: str
    plots: dict[str, Any]


def curves_figure(name: str, charts: str, caption: str) -> str:
    """Charts under one legend, which the script fills and draws from the data of that name."""
    legend = '<div class="legend" role="group" aria-label="Lines"></div>'
    return f'<figure class="curves" data-curves="{name}">{legend}{charts}<figcaption>{escape(caption)}</figcaption></figure>'


def chart_box(name: str, place: int, alt: str) -> str:
    """Where one of the charts of that name will be."""
    return f'<div class="chart" role="img" aria-label="{escape(alt)}" data-plot="{name}.{place}"></div>'


def uri(content: bytes, kind: str) -> str:
    """An image as an address that holds it."""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def table(names: Sequence[str], blocks: Iterable[tuple[str, Iterable[Sequence[str]]]]) -> str:
    """A table of cells that are HTML already, in blocks that may have names; the first cell of each row is its name."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    bodies = "".join(f"<tbody>{_block(name, len(names))}{''.join(map(_row, rows))}</tbody>" for name, rows in blocks)
    return f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>{bodies}</table></div>'


def _block(name: str, columns: int) -> str:
    return f'<tr class="block"><th scope="rowgroup" colspan="{columns}">{name}</th></tr>' if name else ""


def _row(cells: Sequence[str]) -> str:
    return f'<tr><th scope="row">{cells[0]}</th>{"".join(f"<td>{cell}</td>" for cell in cells[1:])}</tr>'


def swatch(method_name: str) -> str:
    """The colour of a method in figures."""
    dots = "".join(
        f'<circle class="{name}" cx="5" cy="5" r="4.5" fill="{colour_of(method_name, theme)}"/>'
        for name, theme in (("light", LIGHT), ("dark", DARK))
    )
    return f'<svg class="swatch" viewBox="0 0 10 10" aria-hidden="true">{dots}</svg>'


def score(value: float, winnable: bool) -> str:
    """A win rate or a return."""
    return f"{value:.0%}" if winnable else f"{value:.4g}"


def number_range(numbers: Sequence[float], written: Callable[[float], str] = "{:,}".format) -> str:
    """The smallest and the largest of some numbers."""
    low, high = written(min(numbers)), written(max(numbers))
    return low if low == high else f"{low}–{high}"
