"""Where the page of results, its figures and the kept runs are."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS, PAGE = ROOT / "results", ROOT / "docs" / "results.md"
FIGURES = PAGE.parent / "figures"
SOURCES = RESULTS / "sources.txt"  # which runs each number comes from
