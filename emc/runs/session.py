"""Training in a run directory: advance the compiled loop, evaluate, write lines, keep checkpoints, stop cleanly.

Where the host stops the loop to look never changes a number, so checkpoints follow the clock and a resumed run repeats the uninterrupted
one bit for bit. `metrics.jsonl` holds numbers that depend on the configuration alone; what depends on the machine is in `speed.jsonl`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import operator
import signal
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from emc.errors import RunError, UserError
from emc.runs.config import RunConfig, from_json, to_json
from emc.runs.directory import RunDirectory
from emc.runs.machine import describe_machine
from emc.training.loop import Maps, Program, Tally, TrainState
from emc.training.plan import check_fits, plan
from emc.training.rollout import Outcome

MAPS, SPEED, END = "maps.jsonl", "speed.jsonl", "end.jsonl"
SNAPSHOTS = 20  # of the maps, over a whole run
LOOK_SECONDS = 1.0  # how often the host looks at a running loop, about


@dataclasses.dataclass(frozen=True)
class Keeping:
    """What to keep on disk, and how often."""

    checkpoint_minutes: float = 5.0  # wall clock between checkpoints
    keep_checkpoints: int = 2

    def __post_init__(self) -> None:
        if not (self.checkpoint_minutes >= 0 and self.keep_checkpoints >= 1):
            raise UserError(
                f"checkpoint_minutes={self.checkpoint_minutes} must be at least 0, keep_checkpoints={self.keep_checkpoints} at least 1"
            )


@dataclasses.dataclass(frozen=True)
class Status:
    """What a display may show; numbers are means over seeds."""

    steps: int
    total_steps: int
    steps_per_second: float
    seconds_left: float
    latest: dict[str, float]  # eval_return, eval_win_rate, train_return, epsilon, and the learner's metrics


@runtime_checkable
class Display(Protocol):
    """Somebody watching."""

    def begin(self, run: RunDirectory, config: RunConfig) -> None: ...
    def show(self, status: Status) -> None: ...
    def note(self, line: str) -> None: ...
    def end(self) -> None: ...


class Silent:
    """Nobody watching."""

    def begin(self, run: RunDirectory, config: RunConfig) -> None: ...
    def show(self, status: Status) -> None: ...
    def note(self, line: str) -> None: ...
    def end(self) -> None: ...


class Interrupted(Exception):
    """Somebody asked the run to stop; it is kept up to `step`."""

    def __init__(self, run: RunDirectory, step: int):
        super().__init__(f"{run.path} stopped at step {step}")
        self.run, self.step = run, step


@dataclasses.dataclass(frozen=True)
class Progress:
    """Where the host is; part of every checkpoint."""

    iteration: int = 0
    evaluations: int = 0
    evaluated_at: int = -1  # steps at the last evaluation
    snapshots: int = 0
    finished: bool = False


Enough = Callable[[dict[str, float]], bool]  # asked after each evaluation, with the latest numbers


def start(
    config: RunConfig,
    root: Path,
    keeping: Keeping = Keeping(),
    display: Display = Silent(),
    command: str = "",
    enough: Enough = lambda latest: False,
) -> RunDirectory:
    """Train from scratch in a new run directory, to the end of the budget or until it is enough."""
    check_fits(plan(config.method, config.env, config.budget, len(config.seeds)))
    program = Program(config.method, config.budget, config.env, config.seeds)
    manifest = {"config": to_json(config), "machine": describe_machine(), "command": command}
    run = RunDirectory.create(root, config.env_name, config.method_name, manifest)
    with run:
        _Session(run, config, program, keeping, display, enough).drive(program.init(), Progress())
    return run


def resume(path: Path, keeping: Keeping = Keeping(), display: Display = Silent()) -> RunDirectory:
    """Go on from the last good checkpoint."""
    run = RunDirectory.open(path)
    config = config_of(run)
    with run:
        program = Program(config.method, config.budget, config.env, config.seeds)
        session = _Session(run, config, program, keeping, display)
        if not run.steps():
            run.truncate({})
            session.drive(program.init(), Progress())
            return run
        restored = run.latest_checkpoint(jax.eval_shape(program.init))
        try:
            progress = Progress(**restored.meta["progress"])
        except (KeyError, TypeError) as error:
            raise RunError(f"{run.path}: its checkpoint was not written by this version of emc. Use the version that made it.") from error
        if progress.finished:
            raise RunError(f"{run.path}: finished at step {restored.step}. Start a new run with more --steps to train longer.")
        for warning in restored.warnings:
            display.note(f"skipped a checkpoint: {warning}")
        run.truncate(restored.sizes)
        session.drive(jax.tree.map(jnp.asarray, restored.tree), progress)
    return run


def config_of(run: RunDirectory) -> RunConfig:
    """What a run was asked to do."""
    config = from_json(run.manifest.get("config"))
    if not isinstance(config, RunConfig):
        raise RunError(f"{run.path}: its manifest holds no configuration. Use the version of emc that made it.")
    return config


@dataclasses.dataclass(frozen=True)
class Reading:
    """What one seed has to say at an evaluation."""

    seed: int
    steps: Any
    episodes: Any
    updates: Any
    tally: Tally
    maps: Maps
    outcome: Outcome


class _Session:
    def __init__(
        self,
        run: RunDirectory,
        config: RunConfig,
        program: Program,
        keeping: Keeping,
        display: Display,
        enough: Enough = lambda latest: False,
    ):
        self.run, self.config, self.program, self.keeping, self.display, self.enough = run, config, program, keeping, display, enough
        self.latest: dict[str, float] = {}
        self.budget = config.budget
        self.began = self.saved_at = time.monotonic()
        self.seconds_per_iteration = math.inf
        self.count = 1
        self.first_steps = 0

    def drive(self, state: TrainState, progress: Progress) -> None:
        """Train to the end of the budget, or to an interruption."""
        self.display.begin(self.run, self.config)
        self.first_steps = _steps(state)
        try:
            with _interruptible() as interrupted:
                while True:
                    over = self._slowest(state) >= self.budget.steps
                    evaluated = self._evaluation_due(state, progress, over)
                    if evaluated:
                        state, progress = self._evaluate(state, progress)
                    if over or (evaluated and self.enough(self.latest)):
                        self.run.append([{"steps": _steps(state), "reason": "budget" if over else "enough"}], END)
                        self._save(state, dataclasses.replace(progress, finished=True))
                        return
                    if interrupted:
                        self._save(state, progress)
                        raise Interrupted(self.run, _steps(state))
                    if time.monotonic() - self.saved_at > 60 * self.keeping.checkpoint_minutes:
                        self._save(state, progress)
                    state, progress = self._advance(state, progress)
        finally:
            self.display.end()

    def _advance(self, state: TrainState, progress: Progress) -> tuple[TrainState, Progress]:
        """Run until the next evaluation at the latest, and no longer than the host may look away."""
        # Episodes are never longer than the limit, so this many iterations cannot overshoot by more than the last one.
        longest = self.budget.parallel_envs * self.config.env.spec.episode_limit
        next_stop = min(self._next_evaluation(progress) - _steps(state), self.budget.steps - self._slowest(state))
        affordable = max(1, int(LOOK_SECONDS / self.seconds_per_iteration))
        self.count = min(max(1, next_stop // longest), affordable, 2 * self.count)  # iterations that learn are slower than the first
        count = self.count
        before = time.monotonic()
        state = jax.block_until_ready(self.program.advance(state, progress.iteration, count))
        self.seconds_per_iteration = (time.monotonic() - before) / count
        self._check_finite(state)
        self._show(state)
        return state, dataclasses.replace(progress, iteration=progress.iteration + count)

    def _next_evaluation(self, progress: Progress) -> int:
        """Evaluations fall on multiples of the interval, the first right after the first iteration."""
        if progress.evaluated_at < 0:
            return 1
        return (progress.evaluated_at // self.budget.evaluate_every + 1) * self.budget.evaluate_every

    def _evaluation_due(self, state: TrainState, progress: Progress, over: bool) -> bool:
        """By the seed that is furthest, so that none is tested more coarsely than asked; and at the end."""
        steps = _steps(state)
        return steps >= self._next_evaluation(progress) or (over and steps > progress.evaluated_at)

    def _slowest(self, state: TrainState) -> int:
        """Environment steps of the seed that is furthest behind: a run ends when every seed has had its budget."""
        return int(np.min(np.asarray(state.env_steps)))

    def _evaluate(self, state: TrainState, progress: Progress) -> tuple[TrainState, Progress]:
        readings = self._readings(state, self.program.evaluate(state, progress.evaluations))
        lines = [line for reading in readings for line in (_train_line(reading, self.config), _eval_line(reading))]
        self.run.append(lines)
        steps = _steps(state)
        speed = {"steps": steps, "seconds": time.monotonic() - self.began, "steps_since_start": steps - self.first_steps}
        self.run.append([speed], SPEED)
        self.latest = _summary(lines)
        self._show(state)
        state = eqx.tree_at(lambda s: s.tally, state, jax.tree.map(jnp.zeros_like, state.tally))
        if steps * SNAPSHOTS >= (progress.snapshots + 1) * self.budget.steps and self.config.env.spec.map_shape != (0, 0):
            self.run.append([_map_line(reading) for reading in readings], MAPS)
            state = eqx.tree_at(lambda s: s.maps, state, jax.tree.map(jnp.zeros_like, state.maps))
            progress = dataclasses.replace(progress, snapshots=steps * SNAPSHOTS // self.budget.steps)
        return state, dataclasses.replace(progress, evaluations=progress.evaluations + 1, evaluated_at=steps)

    def _readings(self, state: TrainState, outcome: Outcome) -> list[Reading]:
        """What each seed has to say, on the host."""
        seeds = self.config.seeds
        counters = (state.env_steps, state.replay.added, state.learner.values.updates)
        values: Any = jax.device_get((*counters, state.tally, state.maps, outcome))
        if len(seeds) == 1:
            return [Reading(seeds[0], *values)]
        return [Reading(seed, *jax.tree.map(operator.itemgetter(i), values)) for i, seed in enumerate(seeds)]

    def _check_finite(self, state: TrainState) -> None:
        broken = {name for name, flags in state.tally.broken.items() if np.any(np.asarray(flags))}
        if broken:
            first = min(broken, key=lambda name: (_CONSEQUENCES.index(n) if (n := _stem(name)) in _CONSEQUENCES else -1, name))
            kept = self.run.steps()
            good = f"The last good checkpoint, at step {kept[-1]}, is kept" if kept else "There is no checkpoint yet"
            wrong = f"{first} is not a finite number near step {_steps(state)}"
            raise RunError(f"{self.run.path}: {wrong}. {good}; try a lower learning rate, or look at the field behind that metric.")

    def _save(self, state: TrainState, progress: Progress) -> None:
        meta = {"progress": dataclasses.asdict(progress)}
        self.run.save_checkpoint(_steps(state), state, meta, self.keeping.keep_checkpoints)
        self.saved_at = time.monotonic()

    def _show(self, state: TrainState) -> None:
        steps, elapsed = _steps(state), time.monotonic() - self.began
        speed = (steps - self.first_steps) / max(elapsed, 1e-9)
        left = (self.budget.steps - self._slowest(state)) / speed if speed > 0 else math.inf
        self.display.show(Status(steps, self.budget.steps, speed, max(left, 0.0), self.latest))


_CONSEQUENCES = ("q", "target", "td_error", "loss", "gradient_norm", "parameter_norm")  # a fault shows in these after its cause


def _stem(name: str) -> str:
    return name.removeprefix("curiosity_")


def _steps(state: TrainState) -> int:
    """Environment steps of the seed that is furthest."""
    return int(np.max(np.asarray(state.env_steps)))


def _train_line(reading: Reading, config: RunConfig) -> dict[str, Any]:
    """What training was like since the last line."""
    tally, steps = reading.tally, int(reading.steps)
    episodes, updates = max(int(tally.episodes), 1), int(tally.updates)
    line: dict[str, Any] = {
        "kind": "train",
        "seed": reading.seed,
        "steps": steps,
        "episodes": int(reading.episodes),
        "updates": int(reading.updates),
        "epsilon": float(config.method.epsilon(jnp.asarray(steps))),
        "return": float(tally.returns) / episodes,
        "win_rate": int(tally.wins) / episodes,
        "length": int(tally.steps) / episodes,
    }
    return line | ({name: float(total) / updates for name, total in sorted(tally.metrics.items())} if updates else {})


def _eval_line(reading: Reading) -> dict[str, Any]:
    """Each test episode as it was."""
    outcome = reading.outcome
    return {
        "kind": "eval",
        "seed": reading.seed,
        "steps": int(reading.steps),
        "return": np.asarray(outcome.episode_return).tolist(),
        "length": np.asarray(outcome.length).tolist(),
        "won": np.asarray(outcome.won).tolist(),
    }


def _map_line(reading: Reading) -> dict[str, Any]:
    """Where agents went and what was novel since the last snapshot."""
    maps = {name: np.asarray(value).tolist() for name, value in vars(reading.maps).items()}
    return {"seed": reading.seed, "steps": int(reading.steps)} | maps


def _summary(lines: list[dict[str, Any]]) -> dict[str, float]:
    """Means over seeds of the newest lines."""
    train, test = [line for line in lines if line["kind"] == "train"], [line for line in lines if line["kind"] == "eval"]
    names = [name for name in train[0] if isinstance(train[0][name], float)]
    summary = {
        f"train_{name}" if name in ("return", "win_rate", "length") else name: float(np.mean([t[name] for t in train])) for name in names
    }
    return summary | {
        "eval_return": float(np.mean([line["return"] for line in test])),
        "eval_win_rate": float(np.mean([line["won"] for line in test])),
    }


@contextlib.contextmanager
def _interruptible() -> Generator[list[int]]:
    """Collect SIGINT, SIGTERM and SIGHUP instead of dying of them; a second one acts at once."""
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    previous: dict[int, Any] = {}
    for number in (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if sys.platform != "win32" else [])):
        with contextlib.suppress(ValueError):  # outside the main thread its owner decides
            previous[number] = signal.signal(number, note)
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
