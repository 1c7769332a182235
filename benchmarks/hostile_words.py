"""Rounds of `hostile.py`: random words for `emc`."""

from __future__ import annotations

import collections
import contextlib
import io
import os
import random
from pathlib import Path

from emc.cli import COMMANDS, main
from emc.commands.messages import MOST_LETTERS
from emc.methods import METHODS

HARMLESS = [name for name in COMMANDS if name not in ("train", "demo", "sweep", "reproduce", "doctor")]  # others might do as told
FIELDS = [
    "--env.rows",
    "--env.columns",
    "--env.episode-limit",
    "--env.observation-noise",
    "--env.penalty",
    "--env.vision",
    "--gamma",
    "--steps",
]
FIELDS += [
    "--policy.hidden",
    "--batch-episodes",
    "--replay-episodes",
    "--memory",
    "--memory.capacity",
    "--mixer",
    "--seeds",
    "--seed",
    "--loss",
]
FIELDS += [
    "--parallel-envs",
    "--epsilon.steps",
    "--target-interval",
    "--test-episodes",
    "--log-every",
    "--preset",
    "--optimiser",
    "--replay",
]
VALUES = [
    "0",
    "1",
    "-1",
    "7",
    "12",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "2147483647",
    "2147483648",
    "1048576",
    "9" * 5_000,
    "",
    " ",
    "x",
    "None",
]
VALUES += ["True", "episodic", "qmix", "qplex", "prioritised", "paper", "adam", "\n", "\x1b[31m", "--", "-", "=", "é\u2028", "[1]", "{}"]


OTHERS = ("0", "1", "7", "12", "1048576", "2147483647", "None")  # seeds with which episodes would be played and pictures drawn
WRONG = [value for value in VALUES if value not in OTHERS]
SMALL_TASKS = ("gridworld", "one-step-game", "n-step-game", "climbing", "penalty", "push-box", "predator-prey", "lbf/8x8-2p-2f-coop", "3m")
OF_ENVS = ["--env.rows", "--env.columns", "--env.episode-limit", "--env.penalty", "--env.slip", "--env.steps", "--env.k", "--env.size"]
OF_ENVS += ["--env.players", "--env.foods", "--env.max-player-level", "--env.grid-size", "--gamma"]


class Words:
    """Whatever somebody types."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def round(self, dice: random.Random, counts: collections.Counter[str]) -> None:
        """One command line."""
        words = self._words(dice)
        shown, said = io.StringIO(), io.StringIO()
        here = Path.cwd()
        place = self.root / "here"
        place.mkdir(exist_ok=True)
        os.chdir(place)
        try:
            with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(said):
                try:
                    main(words)
                    code = 0
                except SystemExit as stop:
                    code = stop.code or 0
        except Exception as error:
            raise AssertionError(f"emc {words!a:.300}: {type(error).__name__}: {error}") from error
        finally:
            os.chdir(here)
        counts[f"command lines with exit code {code}"] += 1
        line = said.getvalue()
        assert code in (0, 2), f"emc {words!a:.300}: exit code {code}"
        assert code == 0 or (line.count("\n") == 1 and len(line) <= MOST_LETTERS + 6), f"emc {words!a:.300}: {line!a:.300}"
        assert "Traceback" not in line, f"emc {words!a:.300}: a traceback"
        assert not [*place.iterdir()], f"emc {words!a:.300}: left {[*place.iterdir()]}"

    def _words(self, dice: random.Random) -> list[str]:
        path = dice.choice(["nowhere", "x" * 5_000, "/dev/null", "/dev/zero", "a\nb", "\x00", "..", "", "/proc/self/mem", "a/" * 2_000])
        if dice.random() < 0.5:
            method = dice.choice([*METHODS, "x", "VDN", "\n"]) if dice.random() < 0.5 else "emc-vdn"
            env = dice.choice(["gridworld", "predator-prey", "one-step-game", "n-step-game", "gridworl", "a:b", "emc:Thing", "smac/x", "/"])
            flags = [word for _ in range(dice.randint(0, 4)) for word in (dice.choice(FIELDS), dice.choice(VALUES))]
            return ["plan", method, env if dice.random() < 0.5 else "gridworld", *flags]
        if dice.random() < 0.2:
            return [dice.choice([*VALUES, *FIELDS, path, "train", "sweep", "--help", "--trust"]), path]
        if dice.random() < 0.3:  # something that is there
            fields = [word for _ in range(dice.randint(1, 3)) for word in (dice.choice(OF_ENVS), dice.choice(VALUES))]
            return ["optimum", dice.choice([*SMALL_TASKS]), *fields]
        if dice.random() < 0.3:
            command = dice.choice([["evaluate", "--episodes", "1"], ["render"], ["check-env"]])
            flags = (
                [] if command[0] == "check-env" else ["--policy", "shipped", dice.choice(["--seed", "--trained-seed"]), dice.choice(WRONG)]
            )
            return [command[0], dice.choice(["one-step-game", "two-step-game"]), *command[1:], *flags]
        flags = ["--episodes", "--out", "--seed", "--trained-seed", "--port"]
        return [dice.choice(HARMLESS), path, *(dice.choice([*VALUES, *flags, path]) for _ in range(dice.randint(0, 3)))]
