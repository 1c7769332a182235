"""Pieces of HTML, and numbers in words. Whatever is not HTML already is escaped here."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from emc.report.figures import DARK, LIGHT, Theme, as_png, as_svg, colour_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure(draw: Callable[[Theme], Figure], alt: str, caption: str, vector: bool = False, palette: bool = True) -> str:
    """A figure, drawn for light and for dark screens."""
    drawn = {
        name: uri(as_svg(draw(theme)), "svg+xml") if vector else uri(as_png(draw(theme), palette), "png")
        for name, theme in (("light", LIGHT), ("dark", DARK))
    }
    images = "".join(f'<img class="{name}" loading="lazy" src="{source}" alt="{escape(alt)}">' for name, source in drawn.items())
    return f'<figure><div class="scroll" tabindex="0">{images}</div><figcaption>{escape(caption)}</figcaption></figure>'


def uri(content: bytes, kind: str) -> str:
    """An image as an address that holds it."""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already; the first of each row is its name."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    body = "".join(f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{cell}</td>" for cell in row[1:])}</tr>' for row in rows)
    return f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


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


def between(numbers: Sequence[float], written: Callable[[float], str] = "{:,}".format) -> str:
    """The smallest and the largest of some numbers."""
    low, high = written(min(numbers)), written(max(numbers))
    return low if low == high else f"{low}–{high}"
