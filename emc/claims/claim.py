"""The records of a claim. `experiments/` holds one file for each; its docstring states the claim, and `CLAIM` is one of these."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from emc.claims.evidence import Evidence
    from emc.report.figures import Theme


@dataclasses.dataclass(frozen=True)
class Arm:
    """One line of a figure: a method on an environment, in the words of `emc train`."""

    words: str  # METHOD ENV --flags
    label: str = ""  # as the figure calls it; the method's name if nothing is said

    @property
    def name(self) -> str:
        """What the figure calls it."""
        return self.label or self.words.split()[0]


@dataclasses.dataclass(frozen=True)
class Panel:
    """One pair of axes: what is compared on one task, for how long and on which seeds."""

    title: str
    arms: tuple[Arm, ...]
    steps: int
    seeds: tuple[int, ...]
    best: float = 1.0  # what the best possible play scores on the task's scale


class VerdictKind(enum.Enum):
    """What the runs say of a statement."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNKNOWN = "not enough data"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What the runs say of a statement, and the numbers behind it, panel by panel."""

    kind: VerdictKind
    facts: tuple[tuple[str, str], ...]  # a panel and a fact about it

    @property
    def numbers(self) -> str:
        """The facts in one line."""
        panels: dict[str, list[str]] = {}
        for panel, fact in self.facts:
            panels.setdefault(panel, []).append(fact)
        return ". ".join(f"{panel}: {'; '.join(dict.fromkeys(facts))}" for panel, facts in panels.items())


@dataclasses.dataclass(frozen=True)
class Statement:
    """A sentence of the paper that runs can support or contradict."""

    text: str
    judge: Callable[[Evidence], Verdict]
    beyond: bool = False  # asked by this package in a claim of the paper's


@dataclasses.dataclass(frozen=True)
class Claim:
    """What to run for a claim of the paper, at two budgets, and what to conclude."""

    title: str
    section: str  # of the paper: 5.1 and so on, "appendix", or `BEYOND` for questions that it leaves open
    small: tuple[Panel, ...]  # an evening on a machine with two cores
    paper: tuple[Panel, ...]  # what the paper did
    statements: tuple[Statement, ...]
    figures: Callable[[Evidence, Theme], dict[str, Figure]] | None = None  # beside the learning curves, by name
    limits: tuple[float, float] | None = None  # of the curves' score axis
    compared: tuple[str, ...] = ()  # arms whose scores are put together over panels, the one in question first
    name: str = ""  # of the file
    about: str = ""  # its docstring

    def papers(self, statement: Statement) -> bool:
        """Whether a statement is one that the paper makes."""
        return self.section != BEYOND and not statement.beyond

    def panels(self, budget: str) -> tuple[Panel, ...]:
        """What one of the budgets runs."""
        return self.paper if budget == "paper" else self.small


BUDGETS = ("small", "paper")
BEYOND = "beyond"
