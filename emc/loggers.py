"""Where else a run's numbers go, for those who watch there: TensorBoard, Weights & Biases, MLflow, a CSV file, or a logger of one's own.

A logger has three methods, `begin`, `log` and `end`, and needs to know nothing else. Its package is imported when it is asked for. Nothing
leaves the machine unless the package was told so: W&B is offline without WANDB_MODE, MLflow writes files without MLFLOW_TRACKING_URI.
A logger that fails is left out from then on, and training goes on.
"""

from __future__ import annotations

import csv
import importlib
import io
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from emc import files
from emc.errors import MISTAKES, UserError, in_short
from emc.files import written_whole
from emc.plugins import imported
from emc.runs.config import RunConfig, to_json
from emc.runs.directory import EVENTS, TABLE, RunDirectory
from emc.runs.session import Display, Status
from emc.user_input import lookup


class Logger(Protocol):
    """What takes a run's numbers."""

    def begin(self, run: RunDirectory, config: RunConfig) -> None:
        """Training begins, or goes on, in a run directory (`run.path`)."""
        ...

    def log(self, steps: int, values: Mapping[str, float]) -> None:
        """Numbers at so many environment steps, means over seeds: `test_win_rate`, `train_return`, `loss` and so on."""
        ...

    def end(self) -> None:
        """Training has ended or was stopped."""
        ...


class TensorBoard:
    """Event files, in `tensorboard` of the run directory."""

    def __init__(self) -> None:
        self._open = _needed("tensorboardX", "tensorboard").SummaryWriter

    def begin(self, run: RunDirectory, config: RunConfig) -> None:
        self._writer: Any = self._open(str(run.path / EVENTS))

    def log(self, steps: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, steps)

    def end(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases with the same name, in `wandb` of the run directory; `wandb sync` sends it, WANDB_MODE=online at once."""

    def __init__(self) -> None:
        self._wandb = _needed("wandb", "wandb")

    def begin(self, run: RunDirectory, config: RunConfig) -> None:
        self._run = self._wandb.init(
            project=os.environ.get("WANDB_PROJECT", "emc"),
            id=run.path.name,
            name=f"{config.method_name} on {config.env_name}, {run.path.name}",
            group=f"{config.env_name}/{config.method_name}",
            dir=str(run.path),
            mode=os.environ.get("WANDB_MODE", "offline"),
            resume="allow",
            config=to_json(config),
            settings=self._wandb.Settings(silent=True, console="off"),
        )

    def log(self, steps: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=steps)

    def end(self) -> None:
        self._run.finish()


class MLflow:
    """A run of MLflow with the same name, in `mlruns` of the directory that holds all runs, or where MLFLOW_TRACKING_URI says."""

    def __init__(self) -> None:
        self._mlflow, self._entities = _needed("mlflow", "mlflow"), _needed("mlflow.entities", "mlflow")

    def begin(self, run: RunDirectory, config: RunConfig) -> None:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        place = os.environ.get("MLFLOW_TRACKING_URI") or mlruns_of(run).as_uri()
        self._client = self._mlflow.MlflowClient(place)
        known = self._client.get_experiment_by_name(config.env_name)
        experiment = known.experiment_id if known else self._client.create_experiment(config.env_name)
        mine = self._client.search_runs([experiment], f"attributes.run_name = '{run.path.name}'")
        self._id = (mine[0] if mine else self._client.create_run(experiment, run_name=run.path.name)).info.run_id
        self._client.update_run(self._id, status="RUNNING")
        if not mine:
            for name, value in _flat(to_json(config)):
                self._client.log_param(self._id, name, value)

    def log(self, steps: int, values: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        self._client.log_batch(self._id, [self._entities.Metric(name, value, now, steps) for name, value in values.items()])

    def end(self) -> None:
        self._client.set_terminated(self._id)


def mlruns_of(run: RunDirectory) -> Path:
    """Where MLflow keeps the numbers of a run, unless it is told: in the directory that holds all runs."""
    *_, outermost = run.path.resolve().parents[:3]
    return outermost / "mlruns"


class Csv:
    """A table in `metrics.csv` of the run directory, a line for each test."""

    def begin(self, run: RunDirectory, config: RunConfig) -> None:
        self._path = run.path / TABLE
        self._rows: list[dict[str, Any]] = []
        if files.is_there(self._path):
            table = csv.DictReader(io.StringIO(files.content_of(self._path, "table").decode()))
            if next(iter(table.fieldnames or ["steps"])) != "steps":
                raise UserError(f"{self._path}: is not a table of this logger. Move it away")
            self._rows = [*table]
        self._names = [*self._rows[0]] if self._rows else ["steps"]

    def log(self, steps: int, values: Mapping[str, float]) -> None:
        again = bool(self._rows) and steps <= float(self._rows[-1]["steps"])  # a run that was stopped goes on from its checkpoint
        self._rows = [row for row in self._rows if float(row["steps"]) < steps] if again else self._rows
        new = [name for name in values if name not in self._names]
        self._names += new
        self._rows.append({"steps": steps, **values})
        if new or again or not self._path.exists():
            with written_whole(self._path) as beside, beside.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, self._names)
                writer.writeheader()
                writer.writerows(self._rows)
        else:
            with os.fdopen(files.open_to_write(self._path, os.O_APPEND), "a", newline="", encoding="utf-8") as file:
                csv.DictWriter(file, self._names).writerow(self._rows[-1])

    def end(self) -> None:
        """Every line is written already."""


LOGGERS: Mapping[str, Callable[[], Logger]] = {"tensorboard": TensorBoard, "wandb": WeightsAndBiases, "mlflow": MLflow, "csv": Csv}


def make_logger(name: str) -> Logger:
    """A logger by name, or one's own as `module:Class`."""
    if ":" not in name:
        return lookup("logger", name, LOGGERS)()
    try:
        logger: Any = imported(name)()
        lacking = [each for each in ("begin", "log", "end") if not callable(getattr(logger, each, None))]
    except UserError:
        raise
    except MISTAKES as error:  # whatever the user's class does wrong
        raise UserError(f"{name} cannot be made ({in_short(error)}): a logger is made without arguments") from error
    if lacking:
        raise UserError(f"{name} is no logger, it has no {' and no '.join(lacking)}: see emc docs tuning")
    return logger


def names_in(text: str) -> tuple[str, ...]:
    """`tensorboard,csv` as names."""
    return tuple(dict.fromkeys(filter(None, (name.strip() for name in text.split(",")))))


def logged_by(run: RunDirectory) -> tuple[str, ...]:
    """The loggers that a run began with; MLflow, which writes outside it, only where it has written before or is told where."""
    said: Any = run.manifest.get("log", ["tensorboard"] if (run.path / EVENTS).is_dir() else [])
    known = [name for name in said if isinstance(name, str) and name in LOGGERS] if isinstance(said, list | tuple) else []
    return tuple(name for name in known if name != "mlflow" or os.environ.get("MLFLOW_TRACKING_URI") or mlruns_of(run).is_dir())


class Logging:
    """Passes everything on to another display, and each new set of numbers to loggers."""

    def __init__(self, inner: Display, loggers: Iterable[Logger]):
        self.inner, self.loggers = inner, [*loggers]
        self._written: dict[str, float] = {}

    def begin(self, run: RunDirectory, config: RunConfig) -> None:
        self.inner.begin(run, config)
        self._each(lambda logger: logger.begin(run, config))

    def show(self, status: Status) -> None:
        if status.latest and status.latest is not self._written:  # a new line makes a new record
            self._written = status.latest
            self._each(lambda logger: logger.log(status.steps, status.latest))
        self.inner.show(status)

    def note(self, line: str) -> None:
        self.inner.note(line)

    def end(self) -> None:
        self._each(lambda logger: logger.end())
        self.inner.end()

    def _each(self, tell: Callable[[Logger], None]) -> None:
        for logger in [*self.loggers]:
            try:
                tell(logger)
            except MISTAKES as error:  # a full disk or a server that is gone: the run itself is kept elsewhere
                self.loggers.remove(logger)
                self.inner.note(f"{type(logger).__name__} takes no more numbers ({in_short(error)}); training goes on")


def with_loggers(display: Display, loggers: Sequence[str | Logger]) -> Display:
    """A display that also tells loggers."""
    made = [make_logger(one) if isinstance(one, str) else one for one in loggers]
    return Logging(display, made) if made else display


def _needed(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(f"logging to {extra} needs an extra package: pip install 'emc-marl[{extra}]'") from error


def _flat(value: Any, path: str = "") -> Iterable[tuple[str, Any]]:
    """The fields of nested records, each with its path."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flat(inner, f"{path}.{name}" if path else str(name))
    else:
        yield path, value
