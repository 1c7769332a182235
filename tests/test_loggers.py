"""Loggers with the real packages, offline, read back as their own programs would; and a logger that fails."""

from __future__ import annotations

import csv
import dataclasses
import importlib
import json
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import emc
from emc.cli import main
from emc.loggers import LOGGERS, Logger, Logging, logged_by, make_logger, names_in, with_loggers
from emc.policies import RecurrentQ
from emc.runs.config import RunConfig, to_json
from emc.runs.directory import RunDirectory
from emc.runs.session import Silent
from emc.training.loop import Budget

CONFIG = RunConfig("vdn", emc.make_method("vdn"), "gridworld", emc.make_env("gridworld"), Budget(100))
LINES = {10: {"test_return": 1.5, "loss": 0.25}, 20: {"test_return": -2.0, "loss": 0.5}}
PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb", "mlflow": "mlflow", "csv": "csv"}


def logged(name: str, root: Path) -> Path:
    """A run directory where two lines were logged."""
    pytest.importorskip(PACKAGES[name], reason=f"the extra `{name}` is not installed")
    run = RunDirectory.create(root, "gridworld", "vdn", {"config": to_json(CONFIG)})
    logger = make_logger(name)
    logger.begin(run, CONFIG)
    for steps, values in LINES.items():
        logger.log(steps, values)
    logger.end()
    return run.path


def test_tensorboard_files_hold_every_number(tmp_path: Path) -> None:
    path = logged("tensorboard", tmp_path)
    events = importlib.import_module("tensorboardX.proto.event_pb2")
    (file,) = (path / "tensorboard").iterdir()
    content, at, found = file.read_bytes(), 0, {}
    while at < len(content):
        (size,) = struct.unpack("<Q", content[at : at + 8])
        event = events.Event.FromString(content[at + 12 : at + 12 + size])
        at += 16 + size
        for value in event.summary.value:
            found.setdefault(event.step, {})[value.tag] = value.simple_value
    assert found == LINES


def level_records(content: bytes) -> Iterator[bytes]:
    """The records of a file in LevelDB's log format, after its head of seven bytes: pieces in blocks of 32 KiB."""
    at, whole = 7, b""
    while at + 7 <= len(content):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, size, kind = struct.unpack("<IHB", content[at : at + 7])
        if kind == 0:
            return
        whole += content[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a whole record, or the last piece of one
            yield whole
            whole = b""


def test_weights_and_biases_keeps_every_number_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    path = logged("wandb", tmp_path)
    (file,) = (path / "wandb").glob("offline-run-*/*.wandb")
    kind = importlib.import_module("wandb.proto.wandb_internal_pb2").Record
    records: list[Any] = []
    for _ in range(18_000):  # its own process writes the file, and may do so a little later
        records = [kind.FromString(data) for data in level_records(file.read_bytes())]
        if any(record.WhichOneof("record_type") == "exit" for record in records):
            break
        time.sleep(0.1)
    found: dict[int, dict[str, float]] = {}
    for record in records:
        if record.WhichOneof("record_type") == "history":
            items = {(item.nested_key[0] if item.nested_key else item.key): json.loads(item.value_json) for item in record.history.item}
            found[items["_step"]] = {name: value for name, value in items.items() if not name.startswith("_")}
    names = [record.run.run_id for record in records if record.WhichOneof("record_type") == "run"]
    assert found == LINES
    assert {*names} == {path.name}


def test_mlflow_keeps_every_number_in_files_and_goes_on_with_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    path = logged("mlflow", tmp_path)
    logger = make_logger("mlflow")
    logger.begin(RunDirectory.open(path), CONFIG)
    logger.log(30, {"loss": 0.75})
    logger.end()
    client = importlib.import_module("mlflow").MlflowClient((tmp_path.resolve() / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("gridworld")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == path.name
    assert run.info.status == "FINISHED"
    assert run.data.params["method.gamma"] == "0.9"
    history = {name: {one.step: one.value for one in client.get_metric_history(run.info.run_id, name)} for name in ("test_return", "loss")}
    assert history == {"test_return": {10: 1.5, 20: -2.0}, "loss": {10: 0.25, 20: 0.5, 30: 0.75}}


def test_a_table_grows_with_its_columns_and_forgets_what_a_resumed_run_repeats(tmp_path: Path) -> None:
    path = logged("csv", tmp_path)
    logger = make_logger("csv")
    logger.begin(RunDirectory.open(path), CONFIG)
    logger.log(20, {"test_return": 7.0, "epsilon": 1.0})
    logger.log(30, {"test_return": 8.0, "epsilon": 0.5, "loss": 0.125})
    logger.end()
    with (path / "metrics.csv").open(newline="") as file:
        rows = [*csv.DictReader(file)]
    assert rows == [
        {"steps": "10", "test_return": "1.5", "loss": "0.25", "epsilon": ""},
        {"steps": "20", "test_return": "7.0", "loss": "", "epsilon": "1.0"},
        {"steps": "30", "test_return": "8.0", "loss": "0.125", "epsilon": "0.5"},
    ]


class Mine:
    """A logger of one's own: nothing but the three methods."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def begin(self, run: RunDirectory, config: RunConfig) -> None:
        self.said.append(("begin", run.path.name))

    def log(self, steps: int, values: Mapping[str, float]) -> None:
        self.said.append((steps, dict(values)))

    def end(self) -> None:
        self.said.append("end")


class Broken(Mine):
    """One whose disk is full."""

    def log(self, steps: int, values: Mapping[str, float]) -> None:
        raise OSError("No space left on device")


class Noting(Silent):
    """A display that remembers what it was told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, line: str) -> None:
        self.notes.append(line)


def test_loggers_get_every_test_once_and_one_that_fails_stops_nothing(tmp_path: Path) -> None:
    mine, broken, display = Mine(), Broken(), Noting()
    method = dataclasses.replace(emc.make_method("vdn"), policy=RecurrentQ(hidden=4), batch_episodes=2, replay_episodes=8)
    quick: dict[str, Any] = {"steps": 60, "evaluate_every": 20, "test_episodes": 2}
    run = emc.train(method, "gridworld", runs=tmp_path, log=["csv", mine, broken], display=display, **quick)
    steps, values = run.metrics("test_return")
    numbers = [entry for entry in mine.said if isinstance(entry[0], int)]
    assert mine.said[0] == ("begin", run.path.name)
    assert mine.said[-1] == "end"
    assert [entry[0] for entry in numbers] == steps[0].tolist()
    assert [entry[1]["test_return"] for entry in numbers] == pytest.approx(values[0].tolist())
    assert broken.said == [("begin", run.path.name)]
    assert [note for note in display.notes if "Broken" in note] == [
        "Broken takes no more numbers (OSError: No space left on device); training goes on"
    ]
    with (run.path / "metrics.csv").open(newline="") as file:
        assert [float(row["test_return"]) for row in csv.DictReader(file)] == pytest.approx(values[0].tolist())
    assert logged_by(run.directory) == ("csv",)


def test_names_lead_to_loggers() -> None:
    assert names_in("tensorboard, csv,,csv") == ("tensorboard", "csv")
    assert with_loggers(silent := Silent(), []) is silent
    own: Logger = make_logger(f"{__name__}:Mine")
    assert isinstance(own, Mine) or type(own).__name__ == "Mine"
    assert isinstance(with_loggers(Silent(), ["csv"]), Logging)
    assert {*LOGGERS} == {"tensorboard", "wandb", "mlflow", "csv"}
    with pytest.raises(emc.UserError, match="Did you mean tensorboard"):
        make_logger("tensorbord")


@pytest.mark.parametrize(("name", "package"), [("tensorboard", "tensorboardX"), ("wandb", "wandb"), ("mlflow", "mlflow")])
def test_a_missing_package_is_one_line_before_anything_is_written(
    name: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit) as stop:
        main(["train", "vdn", "gridworld", "--log", name, "--runs", str(tmp_path / "runs")])
    assert stop.value.code == 2
    assert f"pip install 'emc-marl[{name}]'" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
