"""What the site has beside the pages in this folder: every method, written from its dataclasses, and every public name of the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from emc import _HOMES
from emc.reference import methods_page

OWN_PARTS = "your-own-parts.md"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """A page about own parts has its place as soon as it is there."""
    guides: list[Any] = next(part["Guides"] for part in config.nav or [] if "Guides" in part)
    if (Path(config.docs_dir) / OWN_PARTS).exists():
        guides.insert(1, {"Your own parts": OWN_PARTS})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are written anew every time."""
    for name, content in {"methods.md": methods_page(), "python.md": python_page()}.items():
        files.append(File.generated(config, name, content=content))
    return files


def python_page() -> str:
    """Every name that `import emc` gives."""
    shown = [
        f"::: {home}.{name}\n    options:\n      heading: emc.{name}\n      toc_label: {name}"
        for name, home in _HOMES.items()
        if not name.isupper()
    ]
    tables = ", ".join(f"`emc.{name}`" for name in _HOMES if name.isupper())
    head = f"# Python\n\nWhat `import emc` gives, beside the tables {tables}, which hold what there is by name."
    return "\n\n".join([head, *shown]) + "\n"
