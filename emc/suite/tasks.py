"""The suite: which tasks, what is hard about each, and what was measured and computed of them (`measured.json` beside this file)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from emc.envs.base import Environment
from emc.envs.registry import make_env
from emc.errors import FileError, UserError
from emc.files import content_of, explained, parsed, written_whole
from emc.suite import known_optimum
from emc.suite.odds import Odds, measure

KEPT = Path(__file__).with_name("measured.json")


@dataclasses.dataclass(frozen=True)
class Entry:
    """A task, and what misleads on it."""

    env: str
    trap: str
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    succeeds: bool = True  # whether an episode can succeed as a whole; otherwise only its return counts

    @property
    def name(self) -> str:
        """The environment, and what of it is not as usual."""
        return " ".join([self.env, *(f"{name}={value:g}" for name, value in self.fields.items())])

    def make(self) -> Environment:
        """The environment."""
        return cast(Environment, make_env(self.env, **self.fields))


PASS, ROOM, BOX = "hold the switch for the other, twice", "one of three doors matters", "push the same side together"
SUITE = (
    Entry("gridworld", "a lone arrival is punished"),
    Entry("gridworld", "nothing is punished, little is found", {"penalty": 0.0}),
    Entry("gridworld", "luck, and a lone arrival is punished", {"slip": 0.3}),
    Entry("gridworld", "luck, and a lone arrival is punished", {"slip": 0.5}),
    Entry("pass", PASS),
    Entry("pass-30", PASS),
    Entry("secret-room", ROOM),
    Entry("secret-room-25", ROOM),
    Entry("push-box", BOX),
    Entry("push-box-15", BOX),
    Entry("predator-prey", "relative overgeneralisation", succeeds=False),
    Entry("lbf/8x8-2p-2f-coop", "load together"),
    Entry("lbf/10x10-3p-3f", "load together"),
    Entry("climbing", "relative overgeneralisation"),
    Entry("penalty", "relative overgeneralisation"),
    Entry("n-step-game", "commit to a branch"),
)


@dataclasses.dataclass(frozen=True)
class Line:
    """What is known of a task."""

    odds: Odds
    score: float  # of the best play: its win rate, or its return
    best_return: float  # of the best play
    exact: bool
    steps: int | None  # of the shortest way to succeed


def known(entry: Entry, episodes: int, seed: int = 0) -> Line:
    """Measure random play and compute the optimum."""
    env = entry.make()
    best = known_optimum(env)
    return Line(measure(env, episodes, seed), best.score, best.best.episode_return, best.exact, best.steps)


def read(path: Path = KEPT) -> dict[str, Line]:
    """What was measured before, by the entries' names."""
    try:
        content = path.read_bytes() if path == KEPT else content_of(path, "table")  # our own may be a link, as some installers have it
        tree = parsed(content)["tasks"]
        found = {str(name): Line(Odds(**line.pop("odds")), **line) for name, line in tree.items()}
        if not all(
            isinstance(value, float | int | None) for line in found.values() for value in (*_numbers(line.odds), *_numbers(line)[1:])
        ):
            raise TypeError
        return found
    except FileError:
        raise
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"{path}: not a file that `emc suite --out` writes ({type(error).__name__}). Measure anew with --episodes"
        ) from error


def _numbers(record: Odds | Line) -> list[Any]:
    return [getattr(record, field.name) for field in dataclasses.fields(record)]


def write(lines: Mapping[str, Line], path: Path) -> None:
    """Keep what was measured."""
    how = "emc suite --episodes N --out FILE: uniformly random available actions, whole episodes; optima as emc optimum at gamma 0.9"
    tree = {"how": how, "tasks": {name: dataclasses.asdict(line) for name, line in lines.items()}}
    with explained(path), written_whole(path) as beside:
        beside.write_text(json.dumps(tree, indent=1) + "\n")


def table(lines: Mapping[str, Line]) -> list[list[str]]:
    """A row for each task, below the names of the columns."""
    rows = [["task", "limit", "trap", "random success", "random return", "episodes", "optimum", "shortest"]]
    for entry in SUITE:
        if (line := lines.get(entry.name)) is None:
            continue
        spec = entry.make().spec
        best = f"{line.score:.3f} won" if spec.winnable else f"{'' if line.exact else 'at most '}{line.score:g}"
        success = _share(line.odds) if entry.succeeds else "-"
        row = [entry.name, str(spec.episode_limit), entry.trap, success, f"{line.odds.mean_return:.4g}", f"{line.odds.episodes:,}"]
        rows.append([*row, best, "" if line.steps is None else f"{line.steps} steps"])
    return rows


def _share(odds: Odds) -> str:
    """How often random play succeeds, with its interval."""
    if not odds.wins:
        return f"none (below {odds.interval()[1]:.0e})"
    low, high = odds.interval()
    return f"{odds.wins / odds.episodes:.2g} [{low:.2g}, {high:.2g}]"
