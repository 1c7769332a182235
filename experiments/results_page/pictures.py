"""The figures of the page, each marked with a hash of the data that it was drawn from."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image, PngImagePlugin

from emc.claims import Evidence
from emc.claims.figures import plot_panels
from emc.claims.reproduction import csv_of, figures_of
from emc.files import written_whole
from emc.report.figures import pixels
from results_page.places import FIGURES, PAGE

FRONT_CLAIM, FRONT_PANEL, FRONT = "gridworld-penalty", "p = 2", PAGE.parent / "pictures" / "gridworld-p2.png"  # what the README shows


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
