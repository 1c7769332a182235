"""Attacks on a run directory as data: what is done to it, and the one line that everybody says of it."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
import signal
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import safetensors.numpy

import emc
from emc.cli import main
from emc.envs import make_env
from emc.errors import CheckpointError, OutputLost, RunError, UserError
from emc.methods import Method
from emc.policies import RecurrentQ
from emc.report.site import Site
from emc.runs.config import RunConfig
from emc.runs.directory import RunDirectory
from emc.runs.identity import seal_of
from emc.runs.restoring import Progress, impossible, is_resumable, progress_in
from emc.runs.session import Interrupted, Keeping, loop_of, resume, start
from emc.sweeps.jobs import Job, State, Survey
from emc.training import checkpoint
from emc.training.loop import Budget

METHOD = Method(policy=RecurrentQ(hidden=4), batch_episodes=2, replay_episodes=8)
ENV = make_env("gridworld", rows=5, columns=6, episode_limit=12)
CONFIG = RunConfig("vdn", METHOD, "gridworld", ENV, Budget(steps=150, evaluate_every=40, test_episodes=2), (0,))


def stopped(root: Path, seed: int) -> Path:
    """A run as Ctrl-C after its third test leaves it."""
    tests = itertools.count(1)

    def interrupt(latest: dict[str, float]) -> bool:
        if next(tests) == 3:
            signal.raise_signal(signal.SIGINT)
        return False

    with pytest.raises(Interrupted) as stop:
        start(dataclasses.replace(CONFIG, seeds=(seed,)), root, Keeping(keep_checkpoints=1), enough=interrupt)
    return stop.value.run.path


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two runs that differ in nothing but their seed."""
    root = tmp_path_factory.mktemp("kept")
    return stopped(root, 0), stopped(root, 1)


@pytest.fixture
def run(kept: tuple[Path, Path], tmp_path: Path) -> Path:
    path = tmp_path / "runs" / "gridworld" / "vdn" / kept[0].name
    shutil.copytree(kept[0], path)
    return path


def newest(run: Path) -> Path:
    return max((run / "checkpoints").glob("[0-9]*"))


def content_of(run: Path) -> dict[Path, bytes]:
    return {path.relative_to(run): path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != "lock"}


# What can be done to the files of a run.


def rewrite_manifest(run: Path, change: Callable[[dict[str, Any]], None], sealed: bool = False) -> None:
    document = json.loads((run / "manifest.json").read_text())
    change(document["config"])
    if sealed:
        document["seal"] = seal_of(document)
    (run / "manifest.json").write_text(json.dumps(document))


def rewrite_checkpoint(run: Path, **progress: Any) -> None:
    """A stranger can make every checksum fit."""
    path = newest(run) / checkpoint.DESCRIPTION
    document = json.loads(path.read_text())
    document["content"]["meta"]["meta"]["progress"] |= progress
    document["crc32"] = checkpoint.crc_of_json(document["content"])
    path.write_text(json.dumps(document))


def rewrite_arrays(run: Path, change: Callable[[dict[str, np.ndarray]], None]) -> None:
    path = newest(run)
    arrays = {name: value.copy() for name, value in safetensors.numpy.load_file(path / checkpoint.ARRAYS).items()}
    change(arrays)
    data = safetensors.numpy.save(arrays)
    (path / checkpoint.ARRAYS).write_bytes(data)
    document = json.loads((path / checkpoint.DESCRIPTION).read_text())
    document["content"] |= {"size": len(data), "crc32": zlib.crc32(data)}
    document["crc32"] = checkpoint.crc_of_json(document["content"])
    (path / checkpoint.DESCRIPTION).write_text(json.dumps(document))


def spoil_weights(arrays: dict[str, np.ndarray]) -> None:
    name = next(name for name in arrays if ".values" in name and arrays[name].dtype == np.float32 and arrays[name].size > 1)
    arrays[name].flat[0] = np.nan


def swap_checkpoint(run: Path, other: Path) -> None:
    shutil.rmtree(newest(run))
    shutil.copytree(newest(other), run / "checkpoints" / newest(other).name)


def edit(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new, 1))


def later(run: Path) -> None:
    newest(run).rename(run / "checkpoints" / f"{10**6:012d}")


Attack = Callable[[Path, Path], Any]
FOREIGN: Mapping[str, tuple[Attack, str]] = {
    "a checkpoint of another seed's run": (swap_checkpoint, "is a checkpoint of another run"),
    "another gamma": (lambda run, other: rewrite_manifest(run, lambda c: c["method"].update(gamma=0.5)), "its seal is broken"),
    "other seeds": (lambda run, other: rewrite_manifest(run, lambda c: c.update(seeds=[0, 1])), "its seal is broken"),
    "another gamma under a seal that fits": (
        lambda run, other: rewrite_manifest(run, lambda c: c["method"].update(gamma=0.5), sealed=True),
        "of this run as another manifest describes it",
    ),
    "a manifest of another run": (lambda run, other: shutil.copy(other / "manifest.json", run), "is a checkpoint of another run"),
    "a renamed checkpoint": (lambda run, other: later(run), "and renamed. Give it back its name"),
    "lines cut short": (lambda run, other: os.truncate(run / "metrics.jsonl", 50), r"has 50 bytes, but had \d+ at checkpoint"),
    "a digit of a line changed": (lambda run, other: edit(run / "metrics.jsonl", b'"steps": 1', b'"steps": 2'), "is not what it was at"),
    "lines of another run": (lambda run, other: shutil.copy(other / "metrics.jsonl", run), r"is not what it was at|bytes, but had"),
    "lines removed": (lambda run, other: (run / "metrics.jsonl").unlink(), "has 0 bytes, but had"),
}


def job(seed: int) -> Job:
    return Job(("vdn", "gridworld"), dataclasses.replace(CONFIG, seeds=(seed,)))


@pytest.mark.parametrize("name", FOREIGN)
def test_files_that_do_not_belong_together_are_refused_by_all(name: str, run: Path, kept: tuple[Path, Path]) -> None:
    attack, line = FOREIGN[name]
    assert Survey(run.parents[2]).state(job(0)) is State.BEGUN
    attack(run, kept[1])
    before = content_of(run)
    for refuse in (resume, emc.load):
        with pytest.raises(UserError, match=line) as caught:
            refuse(run)
        assert "\n" not in str(caught.value)
    site, survey = Site([run.parents[2]]), Survey(run.parents[2])
    assert site.runs() == []
    assert len(site.problems) == 1
    assert survey.state(job(0)) is State.MISSING
    assert "1 run directory below" in survey.left_out()
    assert content_of(run) == before


WRONG_INSIDE: Mapping[str, tuple[Callable[[Path], None], str]] = {
    "weights that are not finite": (lambda run: rewrite_arrays(run, spoil_weights), "a weight is not a finite number"),
    "more steps than iterations can play": (lambda run: rewrite_checkpoint(run, iteration=1), "nobody plays"),
    "other episodes than iterations": (lambda run: rewrite_checkpoint(run, iteration=10**6), "other episodes than 1000000"),
    "a test in the future": (lambda run: rewrite_checkpoint(run, evaluated_at=10**9), "after its last step"),
    "seeds that nobody trains": (lambda run: rewrite_checkpoint(run, done=[7]), "are not those of this run"),
    "words for numbers": (lambda run: rewrite_checkpoint(run, iteration="many"), "iteration is 'many'"),
    "a number of truth": (lambda run: rewrite_checkpoint(run, finished=1), "finished is 1"),
    "fields that nobody knows": (lambda run: rewrite_checkpoint(run, surprise=1), "not written by this version"),
}


@pytest.mark.parametrize("name", WRONG_INSIDE)
def test_a_checkpoint_that_no_training_could_have_left_is_refused(name: str, run: Path) -> None:
    attack, line = WRONG_INSIDE[name]
    attack(run)
    for refuse in (resume, emc.load):
        with pytest.raises(UserError, match=line) as caught:
            refuse(run)
        assert "\n" not in str(caught.value)


def test_every_counter_of_a_good_checkpoint_is_possible(run: Path) -> None:
    directory = RunDirectory.open(run)
    found = directory.latest_checkpoint(jax.eval_shape(loop_of(CONFIG).init))
    assert [*impossible(CONFIG, found.step, found.tree, progress_in(found.meta))] == []
    with pytest.raises(CheckpointError):
        progress_in({"progress": {**dataclasses.asdict(Progress()), "done": ["x"]}})


# Lines without checkpoints.


@pytest.mark.parametrize("removed", ["checkpoints", "checkpoints/*"])
def test_lines_without_checkpoints_are_never_begun_again(removed: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in [*run.glob(removed)]:
        shutil.rmtree(path)
    before = content_of(run)
    for _ in range(2):
        with pytest.raises(SystemExit) as stop:
            main(["resume", str(run)])
        assert stop.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "has lines, but no checkpoint to go on from. Put its checkpoints back, or start a new run" in line
    assert Survey(run.parents[2]).look(job(0)) == (State.MISSING, None)
    assert content_of(run) == before


def test_a_run_that_has_had_a_checkpoint_says_so_for_ever(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "gridworld", "vdn", {})
    with run:
        run.begin()
        run.append([{"steps": 1}])
        assert is_resumable(run.path)
        run.save_checkpoint(1, {"x": np.zeros(3)}, {})
    assert [path.name for path in (run.path / "checkpoints").iterdir()] == [f"{1:012d}"]
    shutil.rmtree(newest(run.path))
    assert not is_resumable(run.path)


# Links.

PLACES = ["manifest.json", "metrics.jsonl", "speed.jsonl", "lock", "checkpoints", "CHECKPOINT", "CHECKPOINT/checkpoint.json"]
PLACES += ["CHECKPOINT/arrays.safetensors", "tensorboard", "end.jsonl"]


def tree_of(root: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


@pytest.mark.parametrize("place", PLACES)
def test_a_link_in_a_strangers_run_is_not_followed(place: str, run: Path, tmp_path: Path) -> None:
    path = run / place.replace("CHECKPOINT", f"checkpoints/{newest(run).name}")
    victim = tmp_path / "victim"
    if path.exists():
        path.rename(victim)  # so that all is well if the link is followed
    else:
        (victim.mkdir if place == "tensorboard" else victim.touch)()
    path.symlink_to(victim)
    before = tree_of(victim) if victim.is_dir() else victim.read_bytes()
    with pytest.raises(UserError, match=r"is a link|is not a folder of its own"):
        resume(run)
    assert (tree_of(victim) if victim.is_dir() else victim.read_bytes()) == before


def test_a_link_that_leads_nowhere_makes_nothing_there(run: Path, tmp_path: Path) -> None:
    (run / "lock").unlink()
    (run / "lock").symlink_to(tmp_path / "victim")
    with pytest.raises(UserError, match="is a link"):
        resume(run)
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("name", ["lock", "metrics.jsonl"])
def test_a_file_with_another_name_elsewhere_is_not_written(name: str, run: Path, tmp_path: Path) -> None:
    (run / name).touch()
    os.link(run / name, tmp_path / "victim")
    before = (tmp_path / "victim").read_bytes()
    with pytest.raises(UserError, match="hard link"):
        resume(run)
    assert (tmp_path / "victim").read_bytes() == before


# What vanishes while a run trains.


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return final_bytes(start(CONFIG, tmp_path_factory.mktemp("whole")).path)


def final_bytes(run: Path) -> dict[str, bytes]:
    names = ("metrics.jsonl", "maps.jsonl", "end.jsonl")
    return {name: (run / name).read_bytes() for name in names} | {"arrays": (newest(run) / checkpoint.ARRAYS).read_bytes()}


def empty(path: Path) -> None:
    path.write_bytes(b"")


LOSSES: Mapping[str, tuple[Callable[[Path], Any], str, bool]] = {  # what is done, what is said, and whether all lines can be saved
    "lines removed": (lambda run: (run / "metrics.jsonl").unlink(), r"metrics\.jsonl was removed", True),
    "lines replaced": (lambda run: shutil.copy(run / "metrics.jsonl", run / "a").rename(run / "metrics.jsonl"), "was replaced", True),
    "lines emptied": (lambda run: empty(run / "metrics.jsonl"), "was changed by somebody else", False),
    "checkpoints removed": (lambda run: shutil.rmtree(run / "checkpoints"), r"checkpoints/\d+ was removed", True),
    "everything removed": (shutil.rmtree, "was removed", True),
    "everything moved": (lambda run: run.rename(run.with_name("moved")), "was removed", True),
    "the lock removed": (lambda run: (run / "lock").unlink(), "lock was removed", True),
}


@pytest.mark.parametrize("name", LOSSES)
def test_output_that_vanishes_ends_the_run_and_what_was_learned_is_kept_beside_it(
    name: str, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    attack, line, saved = LOSSES[name]
    tests = itertools.count(1)

    def strike(latest: dict[str, float]) -> bool:
        if next(tests) == 3:
            attack(only(tmp_path))
        return False

    with pytest.raises(OutputLost, match=line) as caught:
        start(CONFIG, tmp_path, Keeping(checkpoint_minutes=0.0), enough=strike)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 1
    rescued = Path(str(caught.value).rpartition("emc resume ")[2])
    if saved:
        resume(rescued)
        assert final_bytes(rescued) == whole
    else:
        with pytest.raises(RunError, match="bytes, but had"):
            resume(rescued)


def only(root: Path) -> Path:
    (path,) = root.glob("*/*/*")
    return path


def test_removing_the_lock_admits_nobody(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "gridworld", "vdn", {})

    def write_without_a_lock() -> None:
        with run:
            (run.path / "lock").unlink()
            with pytest.raises(RunError, match="is training here"), RunDirectory.open(run.path):
                pass
            run.append([{"steps": 1}])

    with pytest.raises(OutputLost, match="lock was removed"):
        write_without_a_lock()
    assert not (run.path / "metrics.jsonl").exists()
    assert not (run.path / "lock").exists()


def test_what_was_lost_is_exit_code_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def lose(words: list[str]) -> None:
        raise OutputLost("lines are gone")

    monkeypatch.setattr("emc.commands.train.main", lose)
    with pytest.raises(SystemExit) as stop:
        main(["train"])
    assert (stop.value.code, capsys.readouterr().err) == (1, "emc: lines are gone\n")
