"""What all figures share: the paper they are drawn on, how each method looks, axes, and files.

Equal methods have equal colours, dashes and markers in every figure.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import UInt8

from emc.report.run_titles import steps_in_words

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

BLACK, ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7"
BROWN, INDIGO, WINE = "#7A4A12", "#332288", "#882255"
CRIMSON, VIOLET, AMETHYST, LAVENDER, SLATE, OLIVE = "#98000E", "#680ABE", "#9B4FFF", "#A089FF", "#544B70", "#A0A366"
GOLDENROD, CYAN, MAGENTA, SIENNA, MOSS = "#B8860B", "#008B8B", "#C71585", "#A0522D", "#6B8E23"
SCARLET, ROSE, FOREST, ULTRAMARINE, LIME = "#FF001F", "#FB0564", "#0C530C", "#0F01FF", "#29C93E"
SOLID, DASHED, DOTTED, DOT_DASHED = DASHES = ("solid", (0, (5, 2)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
MARKS = 8  # markers on a line, about


@dataclasses.dataclass(frozen=True)
class Look:
    """How a line is drawn."""

    colour: str
    dashes: Any = SOLID
    marker: str = ""
    filled: bool = True


# Colours of Okabe and Ito, which stay apart for every kind of colour vision (their yellow is too pale for a line), for the methods shown
# most often; for the others, colours found by a search for the largest distance, for every kind of vision, between methods that are shown
# together. No two methods share a colour, nor dashes and marker, which print keeps.
LOOKS: Mapping[str, Look] = {
    "emc-vdn": Look(VERMILION, SOLID, "o"),
    "emc-qmix": Look(ORANGE, SOLID, "s"),
    "emc-qplex": Look(PURPLE, SOLID, "^"),
    "vdn": Look(BLUE, DASHED, "o"),
    "qmix": Look(GREEN, DASHED, "s"),
    "qplex": Look(SKY, DASHED, "^"),
    "iql": Look(BLACK, DASHED, "D"),
    "qtran": Look(BROWN, DASHED, "v"),
    "qmix-tuned": Look(WINE, DASHED, "X"),
    "cw-qmix": Look(VIOLET, DOTTED, "s"),
    "ow-qmix": Look(CRIMSON, DOTTED, "D"),
    "maven": Look(AMETHYST, DOTTED, "v"),
    "rode": Look(LAVENDER, DOTTED, "P"),
    "qplex-global": Look(SLATE, DOT_DASHED, "^"),
    "qplex-local": Look(INDIGO, DOT_DASHED, "v"),
    "emc-wo-c": Look(SCARLET, DOT_DASHED, "s"),
    "emc-wo-m": Look(OLIVE, DOT_DASHED, "o"),
    "emc-td": Look(ROSE, DOTTED, "^"),
    "emc-ind": Look(FOREST, DOT_DASHED, "D"),
    "emc-cen": Look(ULTRAMARINE, DOTTED, "o"),
    "emc-dec": Look(LIME, DOTTED, "X"),
    "emc-apart-vdn": Look(GOLDENROD, SOLID, "D"),
    "emc-apart-qmix": Look(CYAN, SOLID, "v"),
    "emc-apart-qplex": Look(MAGENTA, SOLID, "P"),
    "qplex-emu": Look(SIENNA, DASHED, "P"),
    "qplex-counts": Look(MOSS, DOT_DASHED, "X"),
}

OTHERS = tuple(Look(*look) for look in itertools.product(sorted({look.colour for look in LOOKS.values()}), DASHES, "<>*hp"))
MARKERS = "os^DvXP<>*hp"


@dataclasses.dataclass(frozen=True)
class Theme:
    """What a figure is drawn on, and with."""

    paper: str = "#FFFFFF"
    ink: str = "#1F2328"
    faint: str = "#59636E"
    rule: str = "#D9DEE4"
    contrast: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])  # colours that would not show on this paper


LIGHT = Theme()

DARK = Theme(
    paper="#171B21",
    ink="#E6EAEF",
    faint="#9AA4AF",
    rule="#343B44",
    contrast={
        BLACK: "#F4F4F4",
        SKY: "#80C1F5",
        BLUE: "#2A74BC",
        BROWN: "#D8A76C",
        INDIGO: "#8648FC",
        WINE: "#CD2340",
        CRIMSON: "#FF8258",
        VIOLET: "#734986",
        AMETHYST: "#FF3F72",
        LAVENDER: "#F12DFF",
        SLATE: "#999EFF",
        OLIVE: "#CEE82D",
        SCARLET: "#A62465",
        ROSE: "#FFAFB6",
        FOREST: "#84F46A",
        ULTRAMARINE: "#0A5CE0",
        LIME: "#3CCA05",
    },
)


def look_of(method_name: str, theme: Theme = LIGHT, variant: int = 0) -> Look:
    """A method's colour, dashes and marker, the same in every figure; variants of it differ in dashes, then in markers, which are empty."""
    name = method_name.lower()
    own = LOOKS.get(name, OTHERS[zlib.crc32(name.encode("utf-8", "replace")) % len(OTHERS)])
    dashes = DASHES[(DASHES.index(own.dashes) + variant) % len(DASHES)]
    marker = MARKERS[(MARKERS.index(own.marker) + variant // len(DASHES)) % len(MARKERS)]
    return Look(theme.contrast.get(own.colour, own.colour), dashes, marker, filled=variant == 0)


def looks_of(method_names: Sequence[str], theme: Theme = LIGHT) -> list[Look]:
    """The looks of all lines of one figure, some of which may be variants of one method."""
    return [look_of(name, theme, variant=[*method_names[:i]].count(name)) for i, name in enumerate(method_names)]


def colour_of(method_name: str, theme: Theme = LIGHT) -> str:
    """A method's colour, the same in every figure."""
    return look_of(method_name, theme).colour


def new_figure(width: float, height: float, rows: int, columns: int, theme: Theme) -> tuple[Figure, list[Axes]]:
    """An empty figure of some inches and its axes, row by row, away from pyplot's global state."""
    from matplotlib.figure import Figure

    figure = Figure((width, height), dpi=160, layout="constrained", facecolor=theme.paper)
    figure.get_layout_engine().set(h_pad=0.09, w_pad=0.06)  # type: ignore[union-attr]
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def style(axes: Axes, theme: Theme, title: str, ylabel: str, pad: float = 6, xlabel: str = "environment steps") -> None:
    """Steps or scores along the bottom, faint rules, and no frame."""
    axes.set_title(literal(title), loc="left", fontsize=11, fontweight="bold", color=theme.ink, pad=pad)
    axes.set_xlabel(xlabel, fontsize=9.5, color=theme.faint)
    axes.set_ylabel(ylabel, fontsize=9.5, color=theme.faint)
    axes.xaxis.set_major_formatter(lambda value, _: steps_in_words(value))
    axes.set_facecolor(theme.paper)
    axes.grid(axis="y", color=theme.rule, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(colors=theme.faint, labelsize=9.5, length=3)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(theme.faint)
    axes.margins(x=0.01)


def mark(lines: Sequence[Line2D], looks: Sequence[Look]) -> None:
    """Put their markers on the lines of a figure, a few on each, none above another's."""
    steps = [np.asarray(line.get_xdata(), float) for line in lines]
    gap = max((own[-1] - own[0] for own in steps), default=0.0) / MARKS
    for number, (line, look, own) in enumerate(zip(lines, looks, steps, strict=True)):
        wanted = own[0] + gap * (np.arange(MARKS) + (number + 0.5) / len(lines))
        at = np.unique(np.searchsorted(own, wanted[wanted <= own[-1]])).tolist() or [0]
        line.set(marker=look.marker, markevery=at, markersize=5.5)
        line.set(markerfacecolor=look.colour if look.filled else "none", markeredgecolor=look.colour)


def legend_below(figure: Figure, every_axes: Sequence[Axes], columns: int, theme: Theme) -> None:
    """What the lines mean, each once, under all axes of a figure, long enough to show dashes."""
    shown: dict[str, Artist] = {}
    for axes in every_axes:
        handles, labels = axes.get_legend_handles_labels()
        shown |= dict(zip(labels, handles, strict=True))
    if not shown:
        return
    where: Any = {"loc": "outside lower center", "ncols": columns, "handlelength": 3.4}
    figure.legend([*shown.values()], [*shown], frameon=False, fontsize=10, labelcolor=theme.ink, **where)


def literal(text: str) -> str:
    """Text that matplotlib takes as it is: dollar signs mean dollars, and what cannot be printed is a dot."""
    return "".join(c if c.isprintable() else "·" for c in text).replace("$", r"\$")


def as_png(figure: Figure, palette: bool = True) -> bytes:
    """A figure as PNG, with a palette of 256 colours where that is enough."""
    from PIL import Image

    small = io.BytesIO()
    image = Image.fromarray(pixels(figure))
    (image.quantize(256, dither=Image.Dither.NONE) if palette else image).save(small, "png", optimize=True)
    return small.getvalue()


def pixels(figure: Figure) -> UInt8[np.ndarray, "rows columns 3"]:
    """A figure as it looks; drawn once, where `savefig` would draw it twice."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
