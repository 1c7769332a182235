"""What the best possible play earns, and how that is known."""

from __future__ import annotations

import dataclasses
from typing import Any

GAMMA = 0.9  # what the methods of the released configuration discount by


@dataclasses.dataclass(frozen=True)
class Play:
    """What a way to play comes to, from the start of an episode, in expectation."""

    value: float  # discounted return
    episode_return: float
    win_rate: float | None  # None where nothing is won


@dataclasses.dataclass(frozen=True)
class Optimum:
    """The best play there is: exactly, or from above where that cannot be computed."""

    best: Play  # of the highest discounted return, which is what methods learn for
    gamma: float
    how: str  # it was computed, in words
    exact: bool = True
    best_return: float | None = None  # of any play; None: the same play's
    best_win_rate: float | None = None  # of any play, whatever it costs; None: the same play's
    steps: int | None = None  # of the shortest way to succeed, where nothing is random
    decentralised: Play | None = None  # the best found for agents that each see their part only; None: they can do as well
    plan: tuple[tuple[int, ...], ...] = dataclasses.field(default=(), repr=False)  # joint actions that attain it, where nothing is random
    policy: Any = dataclasses.field(default=None, repr=False)  # where chance decides: tables of actions, see where they are made

    @property
    def score(self) -> float:
        """What curves of this task can come to: the win rate of the best play, or its return."""
        return self.best.win_rate if self.best.win_rate is not None else self.best.episode_return
