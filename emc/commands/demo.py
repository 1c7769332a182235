"""`emc demo`."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from emc.commands.common import prepare_jax
from emc.commands.report import reported
from emc.demo import run_demo
from emc.flags import parse

ABOUT = """Train EMC-VDN on the gridworld (p = 2) until it wins, then write a report page.

Examples:
  emc demo
  emc demo --seed 3"""


@dataclasses.dataclass(frozen=True)
class Flags:
    """Train until it wins, and show how."""

    runs: Path = Path("demo")  # directory that holds the run
    seed: int = 2
    steps: int = 300_000  # at most


def main(words: list[str]) -> None:
    flags: Flags = parse("emc demo", Flags, words, about=ABOUT)
    prepare_jax()
    run = run_demo(flags.runs, flags.seed, flags.steps)
    print(f"open this page: {reported([run], None, 1, ()).resolve()}")
