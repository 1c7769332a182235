"""Rounds of `hostile.py`: a file of a run is changed, and every command looks at the run."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from PIL import Image

import emc
from emc.envs import make_env
from emc.errors import UserError
from emc.files import remove
from emc.methods import Method
from emc.policies import RecurrentQ
from emc.report.curves import group_runs
from emc.report.marl_eval import marl_eval
from emc.report.site import Site
from emc.runs.config import RunConfig
from emc.runs.identity import seal_of
from emc.runs.session import Interrupted, Keeping, start
from emc.sweeps.jobs import Job, Survey, steps_of
from emc.training import checkpoint
from emc.training.loop import Budget
from tests.runs.deep import dig

METHOD = Method(policy=RecurrentQ(hidden=4), batch_episodes=2, replay_episodes=8)
ENV = make_env("gridworld", rows=5, columns=6, episode_limit=12)
CONFIG = RunConfig("vdn", METHOD, "gridworld", ENV, Budget(steps=150, evaluate_every=40, test_episodes=2), (0,))
RESUME_EVERY = 5  # rounds
LARGE = 10**8  # bytes


class Files:
    """Damage of every kind to every file."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.runs: list[Path] = []
        self.agents: dict[Path, list[bytes]] = {}  # that may come out of each

    def round(self, dice: random.Random, counts: collections.Counter[str]) -> None:
        """One to three changes to a copy of a run."""
        if not self.runs:
            self._prepare()
        remove(self.root / "now")
        run = self.root / "now" / "gridworld" / "vdn" / "run"
        original = dice.choice([self.runs[0], self.runs[0], self.runs[-1]])
        shutil.copytree(original, run)
        self.lines = {path.name: path.read_bytes() for path in original.glob("*.jsonl")}
        self.good = self.agents[original]
        before = {path: path.read_bytes() for path in self.victims.rglob("*") if path.is_file()}
        changes = [self._change(dice, run) for _ in range(dice.choice([1, 1, 1, 2, 3]))]
        counts["changed files"] += len(changes)
        try:
            counts["changed runs that were refused"] += self._looked_at(run, resumed=dice.randrange(RESUME_EVERY) == 0)
        except Exception as error:
            raise AssertionError(f"after {', '.join(changes)}: {type(error).__name__}: {error}") from error
        after = {path: path.read_bytes() for path in self.victims.rglob("*") if path.is_file()}
        assert before == after, f"something outside the run was written after {', '.join(changes)}"

    def _prepare(self) -> None:
        """Two runs as Ctrl-C leaves them with two checkpoints, and one that is finished; what is outside them and may never change."""
        self.victims = self.root / "victims"
        self.victims.mkdir()
        (self.victims / "notes.txt").write_text("mine")
        for seed, stops in ((0, True), (1, True), (0, False)):
            tests = itertools.count(1)

            def interrupt(latest: dict[str, float], tests: Any = tests, stops: bool = stops) -> bool:
                if stops and next(tests) == 3:
                    signal.raise_signal(signal.SIGINT)
                return False

            config = dataclasses.replace(CONFIG, seeds=(seed,))
            try:
                run = start(config, self.root / f"kept-{stops}", Keeping(checkpoint_minutes=0.0), enough=interrupt, log=["csv"])
            except Interrupted as stop:
                run = stop.run
            self.runs.append(run.path)
            (run.path / "lost.jsonl").write_text('{"steps": 12, "reason": "died"}\n')  # as hosts leave it
            (run.path / "metrics.csv").write_text("steps,test_return\n12,0.5\n")
            Image.new("P", (9, 9)).save(run.path / "episode.gif")
            self.agents[run.path] = [bits(emc.load(run.path))]
            older = self.root / f"older-{stops}-{seed}"
            shutil.copytree(run.path, older)
            shutil.rmtree(max((older / "checkpoints").glob("[0-9]*")))
            self.agents[run.path].append(bits(emc.load(older)))  # what is left if the newest checkpoint cannot be used

    def _looked_at(self, run: Path, resumed: bool) -> bool:
        """Let every command look; whether the agents were refused. What is accepted must be what was written."""
        site = Site([run.parents[2]])
        runs = site.runs()
        assert all(problem.isprintable() for problem in site.problems)
        if runs:
            marl_eval(group_runs(runs))
            # Beyond what the newest checkpoint saw that can be read, nobody knows what the lines were.
            folders = (run / "checkpoints").glob("[0-9]" * 12)
            contents = [content for folder in folders if (content := attempted(checkpoint.described, folder)[0])]
            known = max((content["meta"]["lines"]["metrics.jsonl"][0] for content in contents), default=0)
            lines = (run / "metrics.jsonl").read_bytes() if (run / "metrics.jsonl").exists() else b""
            assert lines.startswith(self.lines["metrics.jsonl"][:known]), "changed lines were reported"
        survey = Survey(run.parents[2])
        survey.look(Job(("vdn", "gridworld"), CONFIG))
        steps_of(run)
        loaded, line = attempted(emc.load, run)
        assert loaded is None or bits(loaded) in self.good, "agents were loaded that nobody trained"
        if resumed:
            self._resumed(run)
        return bool(line)

    def _resumed(self, run: Path) -> None:
        if attempted(lambda path: emc.resume(path, progress=False), run)[1]:
            return
        for name in ("metrics.jsonl", "maps.jsonl"):
            written = self.lines.get(name, b"")
            checkpointed = (run / name).read_bytes() if (run / name).exists() else b""
            assert checkpointed[:200] == written[:200] or not written, f"{name} was begun again"

    def _change(self, dice: random.Random, run: Path) -> str:
        inside = [path for pattern in ("*", "checkpoints/*", "checkpoints/*/*") for path in run.glob(pattern)]  # not all: it may be deep
        files = sorted(path for path in inside if not path.is_symlink())
        path = dice.choice([file for file in files if file.is_file()] * 3 + files)
        kind = dice.choice([*CHANGES])
        if not path.is_file() or path.stat().st_size < LARGE or "instead" in kind:  # holes would fill this process's memory
            CHANGES[kind](self, dice, path)
        return f"{kind} of {path.relative_to(run)}"


def attempted(use: Callable[[Path], Any], run: Path) -> tuple[Any, str]:
    """What comes of it, or the one line that is said instead."""
    try:
        return use(run), ""
    except UserError as error:
        line = str(error)
    assert line.isprintable(), f"a refusal has more than a line: {line!a:.300}"
    return None, line


def bits(policy: Any) -> bytes:
    """The weights of trained agents, and when they were saved."""
    return policy.step.to_bytes(8, "big") + b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(policy.actors.net))


def _gone(path: Path) -> None:
    remove(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)  # it may be deep


def _flip(files: Files, dice: random.Random, path: Path) -> None:
    if path.is_file() and (content := bytearray(path.read_bytes())):
        for _ in range(dice.choice([1, 1, 8])):
            content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        path.write_bytes(content)


def _cut(files: Files, dice: random.Random, path: Path) -> None:
    if path.is_file():
        os.truncate(path, dice.randrange(path.stat().st_size + 1))


def _splice(files: Files, dice: random.Random, path: Path) -> None:
    if path.is_file():
        content = path.read_bytes()
        a, b = sorted(dice.randrange(len(content) + 1) for _ in range(2))
        path.write_bytes(content[:a] + dice.choice([content[a:b] * 2, b"", os.urandom(9), b"\n", b"{}\n", b'{"a":' * 5_000]) + content[b:])


def _swap(files: Files, dice: random.Random, path: Path) -> None:
    others = [other for other in files.runs[1].rglob("*") if other.is_file() and other.name == path.name]
    if path.is_file() and others:
        shutil.copy(dice.choice(others), path)


def _number(files: Files, dice: random.Random, path: Path) -> None:
    """Another number, or something that is none, for a number somewhere in JSON."""
    if path.is_file() and path.suffix == ".json":
        text = path.read_text(errors="replace")
        digits = [at for at, letter in enumerate(text) if letter.isdigit()]
        if digits:
            at = dice.choice(digits)
            path.write_text(text[:at] + dice.choice(["7", "-1", "1e99", "null", '"x"', "9" * 5_000, "true"]) + text[at + 1 :])


def _instead(make: Callable[[Path], Any]) -> Callable[[Files, random.Random, Path], None]:
    def change(files: Files, dice: random.Random, path: Path) -> None:
        _gone(path)
        if path.parent.is_dir():
            make(path)

    return change


def _holes(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(6 * 10**9)


def _link(files: Files, dice: random.Random, path: Path) -> None:
    _gone(path)
    if path.parent.is_dir():
        path.symlink_to(dice.choice([files.victims, files.victims / "notes.txt", Path("/dev/zero"), path, files.victims / "nowhere"]))


def _renamed(files: Files, dice: random.Random, path: Path) -> None:
    if path.exists():
        path.rename(path.with_name(dice.choice([f"{dice.randrange(10**6):012d}", "x.jsonl", f"{path.name}.tmp-old", f"{path.name}.tmp-5"])))


def _fields(files: Files, dice: random.Random, path: Path) -> None:
    """Another value for a field of a line."""
    if path.suffix == ".jsonl" and path.is_file():
        lines = path.read_text(errors="replace").splitlines()
        try:
            at = dice.randrange(len(lines))
            line = json.loads(lines[at])
            line[dice.choice([*line])] = dice.choice([None, -1, "x", [], {}, 1e300, True])
            lines[at] = json.dumps(line)
        except (ValueError, IndexError, TypeError, AttributeError):
            return
        path.write_text("\n".join(lines) + "\n")


ODD: list[Any] = [
    None,
    [],
    {},
    [[]],
    [{}],
    "x",
    "Infinity",
    -1,
    10**400,
    2**62,
    True,
    {"packages": None},
    ["csv", "mlflow"],
    [1] * 99,
]


def _forged(files: Files, dice: random.Random, path: Path) -> None:
    """A field of the manifest, or of what a checkpoint says, at any depth; as often as not with seals and checksums that fit again."""
    run = path if (path / "manifest.json").exists() else next((one for one in path.parents if (one / "manifest.json").exists()), None)
    descriptions = [] if run is None else [run / "manifest.json", *run.glob("checkpoints/*/checkpoint.json")]
    if run is None or not (chosen := dice.choice(descriptions)).is_file():
        return
    try:
        document = json.loads(chosen.read_text(errors="replace"))
        place: Any = document
        while True:
            name = dice.choice([*place])
            if not isinstance(place[name], dict) or not place[name] or dice.random() < 0.3:
                place[name] = dice.choice(ODD)
                break
            place = place[name]
        if dice.random() < 0.5 and chosen.name == "manifest.json":
            document["seal"] = seal_of(document)
        elif dice.random() < 0.5:
            document["crc32"] = checkpoint.crc_of_json(document["content"])
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return
    chosen.write_text(json.dumps(document))


def _deep(files: Files, dice: random.Random, path: Path) -> None:
    """Folders in folders, deeper than a program can call itself."""
    top = (path if path.is_dir() else path.parent) / dice.choice(["x", "000000000999.tmp-5", "none-yet.json", "wandb"])
    if top.exists() or top.is_symlink() or not top.parent.is_dir():
        return
    dig(top, 1_500)


CHANGES: dict[str, Callable[[Files, random.Random, Path], None]] = {
    "a flipped bit": _flip,
    "a cut": _cut,
    "a splice": _splice,
    "a swap with another run": _swap,
    "another number": _number,
    "another field": _fields,
    "a forgery": _forged,
    "deep folders": _deep,
    "a removal": lambda files, dice, path: _gone(path),
    "a new name": _renamed,
    "a link instead": _link,
    "a pipe instead": _instead(os.mkfifo),
    "a folder instead": _instead(Path.mkdir),
    "holes instead": _instead(_holes),
    "nothing instead": _instead(Path.touch),
}
