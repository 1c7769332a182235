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

import equinox as eqx
import jax
import numpy as np
import pytest
import safetensors.numpy

import emc
from emc.claims.evidence import _readable
from emc.claims.reproduction import _source
from emc.cli import main
from emc.envs import make_env
from emc.errors import CheckpointError, OutputLost, RunError, UserError
from emc.loggers import Csv, logged_by
from emc.methods import Method, make_method
from emc.policies import RecurrentQ
from emc.report.site import Site
from emc.runs.config import RunConfig
from emc.runs.directory import RunDirectory
from emc.runs.identity import seal_of
from emc.runs.machine import differences
from emc.runs.restoring import Progress, impossible, is_resumable, progress_in
from emc.runs.session import Interrupted, Keeping, keeping_of, loop_of, resume, start
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
    rewrite_description(run, lambda content: content["meta"]["meta"]["progress"].update(progress))


def rewrite_description(run: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = newest(run) / checkpoint.DESCRIPTION
    document = json.loads(path.read_text())
    change(document["content"])
    document["crc32"] = checkpoint.crc_of_json(document["content"])
    path.write_text(json.dumps(document))


def endless(content: dict[str, Any]) -> None:
    """Sizes of lines as they were before there were checksums, and one that no file has."""
    del content["meta"]["lines"]
    content["meta"]["sizes"] = {"metrics.jsonl": float("inf")}


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
    "a seed that is done before its steps": (lambda run: rewrite_checkpoint(run, done=[0]), "has not had its steps is said to be done"),
    "no tests where lines have some": (lambda run: rewrite_checkpoint(run, evaluations=0, evaluated_at=-1), "speaks of 0 tests"),
    "another step of the last line": (lambda run: rewrite_checkpoint(run, logged_at=0), "its lines of others"),
    "more tests than lines have": (lambda run: rewrite_checkpoint(run, evaluations=80), "speaks of 80 tests"),
    "sizes without end": (lambda run: rewrite_description(run, endless), "was not written by a run"),
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


@pytest.mark.parametrize(("method", "part"), [("emc-vdn", "values"), ("emc-vdn", "curiosity"), ("emc-apart-vdn", "policy")])
def test_a_weight_that_is_not_finite_is_found_in_every_network(method: str, part: str) -> None:
    small = dataclasses.replace(make_method(method), batch_episodes=2, replay_episodes=8)
    config = dataclasses.replace(CONFIG, method_name=method, method=small)
    state = loop_of(config).init()
    assert [*impossible(config, 0, state, Progress())] == []
    leaves, structure = jax.tree.flatten(vars(state.learner)[part])
    number = max(n for n, leaf in enumerate(leaves) if jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating) and leaf.size > 1)
    leaves[number] = leaves[number].at[(0,) * leaves[number].ndim].set(np.inf)
    spoilt = eqx.tree_at(lambda tree: vars(tree.learner)[part], state, jax.tree.unflatten(structure, leaves))
    (wrong,) = impossible(config, 0, spoilt, Progress())
    assert "a weight is not a finite number" in wrong


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


@pytest.mark.parametrize("note", ["", "{}", "[]", '{"run": "another"}', "another run's"])
def test_a_note_that_is_not_the_runs_own_begins_nothing_again(
    note: str, run: Path, kept: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    if note == "another run's":
        note = json.dumps({name: json.loads((kept[1] / "manifest.json").read_text())[name] for name in ("run", "seal")})
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "none-yet.json").write_text(note)
    before = content_of(run)
    with pytest.raises(SystemExit) as stop:
        main(["resume", str(run)])
    assert stop.value.code == 2
    assert "has lines, but no checkpoint to go on from" in capsys.readouterr().err
    assert Survey(run.parents[2]).look(job(0)) == (State.MISSING, None)
    assert content_of(run) == before


@pytest.mark.parametrize("patience", [float("nan"), float("inf"), -1.0])
def test_nobody_waits_for_a_time_that_is_none(patience: float, run: Path) -> None:
    with pytest.raises(UserError, match="wait_seconds"):
        resume(run, patience=patience)


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "manifest.json", "lock", "metrics.csv", "checkpoints/mine.html", "CHECKPOINT/arrays.safetensors"]
)
@pytest.mark.parametrize("command", ["report", "export", "render", "suite"])
def test_a_page_takes_the_place_of_no_file_of_a_run(command: str, name: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run / name.replace("CHECKPOINT", f"checkpoints/{newest(run).name}")
    before = content_of(run)
    words = ["suite", "--tasks", "climbing", "--episodes", "2"] if command == "suite" else [command, str(run)]
    with pytest.raises(SystemExit) as stop:
        main([*words, "--out", str(out)])
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "is a file of a run, and would be lost" in line
    assert content_of(run) == before


def test_no_dots_and_no_links_lead_a_page_to_a_file_of_a_run(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "link").symlink_to(newest(run))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    before = content_of(run)
    for out in (run / "not there" / ".." / "metrics.jsonl", tmp_path / "link" / "arrays.safetensors", tmp_path / "loop" / "page.html"):
        with pytest.raises(SystemExit) as stop:
            main(["export", str(run), "--out", str(out)])
        assert stop.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "would be lost" in line or "link" in line
        assert content_of(run) == before
        assert not (run / "not there").exists()


def test_a_manifest_of_something_else_makes_no_run(run: Path, tmp_path: Path) -> None:
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "manifest.json").write_text('{"name": "my page"}')
    main(["export", str(run), "--out", str(tmp_path / "web" / "metrics.csv")])
    assert (tmp_path / "web" / "metrics.csv").exists()


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
PLACES += ["CHECKPOINT/arrays.safetensors", "tensorboard", "wandb", "end.jsonl", "metrics.csv"]


def tree_of(root: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


@pytest.mark.parametrize("place", PLACES)
def test_a_link_in_a_strangers_run_is_not_followed(place: str, run: Path, tmp_path: Path) -> None:
    path = run / place.replace("CHECKPOINT", f"checkpoints/{newest(run).name}")
    victim = tmp_path / "victim"
    if path.exists():
        path.rename(victim)  # so that all is well if the link is followed
    else:
        (victim.mkdir if place in ("tensorboard", "wandb") else victim.touch)()
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


def link_away(folder: Path) -> None:
    """What is beside a run is somebody else's: nothing of it may be tidied away."""
    victim = folder.parents[3] / "victim"
    folder.rename(victim)
    (victim / "theirs.tmp-1").touch()
    folder.symlink_to(victim)


def turn_into_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.touch()


LOSSES: Mapping[str, tuple[Callable[[Path], Any], str, bool]] = {  # what is done, what is said, and whether all lines can be saved
    "lines removed": (lambda run: (run / "metrics.jsonl").unlink(), r"metrics\.jsonl was removed", True),
    "lines replaced": (lambda run: shutil.copy(run / "metrics.jsonl", run / "a").rename(run / "metrics.jsonl"), "was replaced", True),
    "lines emptied": (lambda run: empty(run / "metrics.jsonl"), "was changed by somebody else", False),
    "checkpoints removed": (lambda run: shutil.rmtree(run / "checkpoints"), r"checkpoints was removed", True),
    "a checkpoint removed": (lambda run: shutil.rmtree(newest(run)), r"checkpoints/\d+ was removed", True),
    "the arrays of a checkpoint removed": (lambda run: (newest(run) / "arrays.safetensors").unlink(), "safetensors was removed", True),
    "the description of a checkpoint removed": (lambda run: (newest(run) / "checkpoint.json").unlink(), "json was removed", True),
    "a link where lines may come": (lambda run: (run / "lost.jsonl").symlink_to(run / "lock"), r"lost\.jsonl: is a link", True),
    "a file instead of checkpoints": (lambda run: turn_into_a_file(run / "checkpoints"), r"checkpoints was removed", True),
    "a link instead of checkpoints": (lambda run: link_away(run / "checkpoints"), r"checkpoints was removed", True),
    "the manifest removed": (lambda run: (run / "manifest.json").unlink(), r"manifest\.json was removed", True),
    "the manifest emptied": (lambda run: empty(run / "manifest.json"), r"manifest\.json was changed", True),
    "another gamma": (lambda run: edit(run / "manifest.json", b'"gamma": 0.9', b'"gamma": 0.8'), r"manifest\.json was changed", True),
    "a file instead of the folder of all runs": (lambda run: turn_into_a_file(run.parents[2] / "gridworld"), "was removed", False),
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
    if saved:
        rescued = Path(str(caught.value).rpartition("emc resume ")[2])
        resume(rescued)
        assert final_bytes(rescued) == whole
    else:
        assert "It could not be kept elsewhere either" in str(caught.value)
        assert [*tmp_path.glob("*/*/*rescued*")] == []
    assert not (victim := tmp_path / "victim").exists() or (victim / "theirs.tmp-1").exists()


@pytest.mark.parametrize(
    "name", ["notes.jsonl", "metrics (copy).jsonl", "a pipe.jsonl", "checkpoints/mine.tmp-1", "checkpoints/mine.tmp-old"]
)
def test_files_of_others_in_a_run_end_nothing_and_stay(name: str, tmp_path: Path, whole: dict[str, bytes]) -> None:
    tests = itertools.count(1)

    def leave_something(latest: dict[str, float]) -> bool:
        match next(tests):
            case 2:
                (os.mkfifo if "pipe" in name else Path.touch)(only(tmp_path) / name)
            case 3:
                signal.raise_signal(signal.SIGINT)
        return False

    with pytest.raises(Interrupted):
        start(CONFIG, tmp_path, Keeping(checkpoint_minutes=0.0), enough=leave_something)
    resume(only(tmp_path))
    assert (only(tmp_path) / name).exists()
    assert final_bytes(only(tmp_path)) == whole


def test_the_same_manifest_written_anew_is_no_loss(tmp_path: Path, whole: dict[str, bytes]) -> None:
    def write_anew(latest: dict[str, float]) -> bool:
        path = only(tmp_path) / "manifest.json"
        path.with_name("m").write_bytes(path.read_bytes())
        path.with_name("m").replace(path)
        return False

    assert final_bytes(start(CONFIG, tmp_path, enough=write_anew).path) == whole


def test_what_a_line_asks_for_after_the_checkpoint_is_not_done(run: Path, whole: dict[str, bytes]) -> None:
    (run / "end.jsonl").write_text('{"steps": 84, "reason": "more", "until": 100000}\n')
    resume(run)
    assert final_bytes(run) == whole


def test_damage_behind_what_the_checkpoint_saw_is_cut_off(run: Path, whole: dict[str, bytes]) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"kjnd": 1}\n')
    resume(run)
    assert final_bytes(run) == whole


def test_a_checkpoint_alone_does_not_make_a_run_done(run: Path) -> None:
    rewrite_checkpoint(run, finished=True)
    assert Survey(run.parents[2]).state(job(0)) is State.BEGUN


MACHINES: list[Any] = [None, [], "x", {"packages": None}, {"packages": [1]}, {"commit": None}, {"commit": "x"}, {"device": []}]
MANIFESTS: Mapping[str, list[Any]] = {
    "machine": MACHINES,
    "keeping": [
        None,
        [],
        {"keep_checkpoints": "Infinity", "checkpoint_minutes": 1},
        {"keep_checkpoints": 1, "checkpoint_minutes": 9**999},
    ],
    "log": [None, {}, [[]], [{}], [None], ["csv", 1]],
    "command": [None, [], {}],
}


@pytest.mark.parametrize("field", MANIFESTS)
def test_what_is_not_sealed_may_say_anything(field: str, run: Path) -> None:
    """How a run was asked for and what it began on decides no number."""
    document = json.loads((run / "manifest.json").read_text())
    for value in MANIFESTS[field]:
        (run / "manifest.json").write_text(json.dumps(document | {field: value}))
        directory = RunDirectory.open(run)
        assert isinstance(differences(directory.manifest.get("machine")), str)
        assert keeping_of(directory) in (Keeping(), Keeping(keep_checkpoints=1))
        assert {*logged_by(directory)} <= {"csv"}
        assert _source(directory.manifest)["id"] == run.name


def test_a_strangers_manifest_does_not_begin_mlflow_outside_the_run(run: Path) -> None:
    document = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(document | {"log": ["mlflow", "csv"]}))
    assert logged_by(RunDirectory.open(run)) == ("csv",)
    (run.parents[2] / "mlruns").mkdir()
    assert logged_by(RunDirectory.open(run)) == ("mlflow", "csv")


def test_a_table_with_another_name_elsewhere_is_not_written(run: Path, tmp_path: Path) -> None:
    (run / "metrics.csv").write_text("steps,loss\n1,2\n")
    os.link(run / "metrics.csv", tmp_path / "victim")
    table = Csv()
    table.begin(RunDirectory.open(run), CONFIG)
    with pytest.raises(UserError, match="hard link"):
        table.log(5, {"loss": 1.0})
    assert (tmp_path / "victim").read_text() == "steps,loss\n1,2\n"


def test_a_damaged_run_is_left_out_of_a_claim_and_the_others_count(run: Path) -> None:
    shutil.copytree(run, run.with_name("damaged"))
    with (run.with_name("damaged") / "metrics.jsonl").open("a") as file:
        file.write('{"kjnd": 1}\n')
    survey = Survey(run.parents[2])
    assert [found.path for found, _ in _readable(survey, job(0))] == [run]
    assert survey.kin(job(0)) == [run]
    assert "damaged/metrics.jsonl, line" in survey.left_out()


def test_lines_of_seeds_that_a_run_has_not_are_refused(run: Path) -> None:
    lines = (run / "metrics.jsonl").read_text()
    (run / "metrics.jsonl").write_text(lines + lines.splitlines()[-1].replace('"seed": 0', '"seed": 7') + "\n")
    with pytest.raises(RunError, match=r"metrics\.jsonl, line \d+: not a line that emc writes"):
        emc.runs(run)[0].metrics("test_return")
    site = Site([run.parents[2]])
    assert site.runs() == []


def test_a_checkpoint_that_memory_has_no_room_for_is_refused_before_it_is_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emc.training.checkpoint.available_bytes", lambda: 1000)
    with pytest.raises(RunError, match=r"needs [\d.]+ KiB of memory, 1000 B are free"):
        emc.load(run)


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
