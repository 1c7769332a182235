"""`emc docs [PAGE]`: the pages of the documentation, which are installed with the package, in the terminal."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.markdown import Markdown
from tyro.conf import Positional, arg

from emc.errors import UserError
from emc.flags import parse
from emc.reference import methods_page
from emc.user_input import lookup

PLACES = ("emc_docs", "docs")  # in a wheel, and in the source tree
METHODS = "methods"  # a page that is written from the dataclasses
ABOUT = """The pages of the documentation, or one of them.

Examples:
  emc docs
  emc docs your-environment
  emc docs methods"""


@dataclasses.dataclass(frozen=True)
class Flags:
    """The documentation."""

    page: Annotated[tuple[str, ...], Positional, arg(metavar="[PAGE]")] = ()  # one of those that `emc docs` lists


def main(words: list[str]) -> None:
    flags: Flags = parse("emc docs", Flags, words, about=ABOUT)
    pages = _pages()
    if flags.page:
        name, *more = flags.page
        if more:
            raise UserError(f"one page at a time: got {', '.join(flags.page)}")
        _show(_text(name.removesuffix(".md").removeprefix("docs/"), pages))
        return
    width = max(map(len, [*pages, METHODS]))
    for page, path in pages.items():
        print(f"{page:<{width}}  {_title(path)}")
    print(f"{METHODS:<{width}}  Methods: equations and constants, written from the code")
    print("\nemc docs PAGE shows one.")


def _pages() -> dict[str, Path]:
    """Every page by name, the start first."""
    beside = Path(__file__).parents[2]
    folder = next((beside / place for place in PLACES if (beside / place / "index.md").exists()), None)
    if folder is None:
        raise UserError("the documentation is not installed here: install emc from a wheel, or use its source tree")
    found = {path.stem: path for path in sorted(folder.glob("*.md"))}
    return {"index": found.pop("index")} | found


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def _text(name: str, pages: dict[str, Path]) -> str:
    if name == METHODS:
        return methods_page()
    return lookup("page", name, pages).read_text(encoding="utf-8")


def _show(text: str) -> None:
    """With colours where somebody can see them, else as it is."""
    if not sys.stdout.isatty():
        print(text, end="")
        return
    console = Console()
    with console.pager(styles=True):
        console.print(Markdown(text))
