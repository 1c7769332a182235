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
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from emc.errors import OutputLost, RunError, UserError
from emc.methods import Preset
from emc.runs.beginning import loop_of, with_networks
from emc.runs.config import RunConfig, config_of, held, to_json
from emc.runs.directory import RunDirectory
from emc.runs.jsonl import Prefix
from emc.runs.machine import describe_machine, differences
from emc.runs.metric_lines import Reading, eval_line, extrinsic_metrics, map_line, summary, train_line
from emc.runs.reading import END, LOST, MAPS, METRICS, MORE, SPEED, end_of, last_lines
from emc.runs.restoring import SNAPSHOTS, Progress, is_resumable, restored
from emc.runs.sizes import must_fit
from emc.runs.trial import must_keep_its_promises, must_learn
from emc.runs.trust import Trusted
from emc.training.host_loop import WorkersFailed
from emc.training.loop import MOST_STEPS, Loop, TrainState, Until
from emc.user_input import check_number

LOOK_SECONDS = 2.0  # how often the host looks at a running loop, about; a call of its own maps its large temporaries anew


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
    latest: dict[str, float]  # test_return, test_win_rate, train_return, epsilon, and the learner's metrics


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


Enough = Callable[[dict[str, float]], bool]  # asked after each evaluation, with the latest numbers


def start(
    config: RunConfig,
    root: Path,
    keeping: Keeping = Keeping(),
    display: Display = Silent(),
    command: str = "",
    enough: Enough = lambda latest: False,
    name: str = "",
    preset: Preset | None = None,
    trust: Trusted = (),
    log: Sequence[str] = (),
) -> RunDirectory:
    """Train from scratch, or from another run's networks, in a new run directory, to the end of the budget or until it is enough."""
    must_learn(config)
    must_fit(config)
    must_keep_its_promises(config.env)
    program = loop_of(config)
    state = program.init()  # what cannot be made leaves no directory
    manifest = {"config": to_json(config), "keeping": dataclasses.asdict(keeping), "machine": describe_machine(), "command": command}
    manifest |= {"preset": dataclasses.asdict(preset)} if preset else {}
    manifest |= {"log": [*log]} if log else {}
    if config.start_from:
        state, manifest["started_from"] = with_networks(state, config, RunDirectory.open(config.start_from, trust))
    run = RunDirectory.create(root, config.env_name, config.method_name, manifest, name, held(config))
    with run:
        run.begin()
        session = _Session(run, config, program, keeping, display, enough)
        if config.start_from:
            session.save(state, Progress())  # from here on the other run is not needed
        session.drive(state, Progress())
    return run


def resume(
    path: Path,
    keeping: Keeping | None = None,
    display: Display = Silent(),
    patience: float = 0.0,
    trust: Trusted = (),
    steps: int | None = None,
) -> RunDirectory:
    """Go on from the last good checkpoint, keeping as much as the run did so far unless told otherwise.

    `steps` is how many there are to be in all; a run that is finished goes on if that is more than it has.
    """
    check_number("wait_seconds", patience, "0 does not wait", low=0.0)
    run = RunDirectory.open(path, trust)
    run.patience = patience
    config = config_of(run)
    _must_be_resumable(run)
    with run:
        _must_be_resumable(run)  # still: somebody else may have trained here until now
        found, progress = restored(run, config) if run.steps() else (None, Progress())
        config = config_of(run, found.sizes.get(END, 0) if found else 0) if steps is None else config.until(steps)
        must_fit(config)
        program = loop_of(config)
        session = _Session(run, config, program, keeping or keeping_of(run), display)
        if found is None:
            if config.start_from:
                raise RunError(
                    f"{run.path}: has no checkpoint, and began with the networks of {config.start_from}. Start it again from there."
                )
            display.note("there is no checkpoint yet: the run begins again")
            run.begin()
            run.truncate({})
            state = program.init()
        else:
            if steps is not None and steps <= found.step:
                raise RunError(f"{run.path}: has {found.step} steps. Ask for more than that with --steps.")
            if steps is None and progress.finished:
                raise RunError(f"{run.path}: finished at step {found.step}. Train longer with --steps N, which is N steps in all.")
            for warning in found.warnings:
                display.note(f"skipped a checkpoint: {warning}")
            if changed := differences(run.manifest.get("machine")):
                display.note(f"not what this run began with, so its numbers may differ: {changed}")
            run.truncate(found.sizes)
            session.recall()
            state = jax.tree.map(jnp.asarray, found.tree)
        if steps is not None:
            run.append([{"steps": _steps(state), "reason": MORE, "until": steps}], END)
            progress = dataclasses.replace(progress, finished=False, done=(), snapshots=_steps(state) * SNAPSHOTS // steps)
            session.save(state, progress)
        session.drive(state, progress)
    return run


def _must_be_resumable(run: RunDirectory) -> None:
    """Refuse a run that could go on only by throwing lines away, or whose files are not its own."""
    if not is_resumable(run.path):
        ended = end_of(run.path) is not None
        what = "is finished, and its checkpoints are gone" if ended else "has lines, but no checkpoint to go on from"
        advice = "Start a new run" if ended else "Put its checkpoints back, or start a new run"
        raise RunError(f"{run.path}: {what}. {advice}; the lines of this one stay as they are.")
    run.must_belong_together()


def keeping_of(run: RunDirectory) -> Keeping:
    """What a run was asked to keep; as usual where it does not say."""
    asked: Any = run.manifest.get("keeping")
    try:
        return Keeping(float(asked["checkpoint_minutes"]), int(asked["keep_checkpoints"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return Keeping()


class _Session:
    def __init__(
        self,
        run: RunDirectory,
        config: RunConfig,
        program: Loop,
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
        self.lost = 0
        self.mark: tuple[float, int] | None = None  # time and steps from which speed is measured: after compiling

    def recall(self) -> None:
        """Show the numbers that the run was stopped at."""
        newest = {(line["kind"], line["seed"]): line for line in last_lines(self.run.path / METRICS)}
        self.latest = summary([*newest.values()]) if any(kind == "train" for kind, _ in newest) else {}

    def drive(self, state: TrainState, progress: Progress) -> None:
        """Train to the end of the budget, or to an interruption."""
        self.display.begin(self.run, self.config)
        self.first_steps = _steps(state)
        written: dict[str, Prefix] = {}  # with the state and the progress below, a run that could be gone on with
        try:
            with interruptible() as interrupted:
                while True:
                    self.run.check()
                    written = self.run.written()
                    over = self._slowest(state) >= self.budget.steps
                    evaluated = self._evaluation_due(state, progress, over)
                    if evaluated:
                        state, progress = self._evaluate(state, progress)
                    elif _steps(state) >= self._next_log(progress):
                        state, progress = self._log(state, progress, [])
                    written = self.run.written()
                    if over or (evaluated and self.enough(self.latest)):
                        final = self._snapshot(state)
                        self.run.append([{"steps": _steps(final), "reason": "budget" if over else "enough"}], END)
                        self.save(final, dataclasses.replace(progress, finished=True))
                        return
                    if interrupted:
                        self.save(state, progress)
                        raise Interrupted(self.run, _steps(state))
                    if time.monotonic() - self.saved_at > 60 * self.keeping.checkpoint_minutes:
                        self.save(state, progress)
                    state, progress = self._advance(state, progress)
                    self._look_at(state)
        except OutputLost as lost:
            raise OutputLost(f"{lost}. {self._rescued(state, progress, written)}") from lost
        except WorkersFailed as failed:
            self._report_failures(failed.state or state)
            self.save(failed.state or state, dataclasses.replace(progress, iteration=progress.iteration + failed.iterations))
            raise RunError(f"{failed}. Everything before is kept; when it is mended, go on with: emc resume {self.run.path}") from None
        finally:
            self.program.close()
            self.display.end()

    def _advance(self, state: TrainState, progress: Progress) -> tuple[TrainState, Progress]:
        """Run until the next evaluation at the latest, and no longer than the host may look away."""
        lines = (self._next_evaluation(progress), self._next_log(progress))
        until = Until(min(*lines, MOST_STEPS), self.budget.steps)
        affordable = max(1, int(LOOK_SECONDS / self.seconds_per_iteration))
        self.count = min(affordable, 2 * self.count)  # iterations that learn are slower than the first
        before = time.monotonic()
        state = jax.block_until_ready(self.program.advance(state, progress.iteration, self.count, until))
        iteration = self._iterations(state)
        self.seconds_per_iteration = (time.monotonic() - before) / (iteration - progress.iteration)
        return state, dataclasses.replace(progress, iteration=iteration)

    def _iterations(self, state: TrainState) -> int:
        """How many there were since the run began: each adds as many episodes as are played side by side."""
        return int(np.max(np.asarray(state.replay.added))) // self.budget.parallel_envs

    def _look_at(self, state: TrainState) -> None:
        self._check_finite(state)
        self._report_failures(state)
        self._show(state)

    def _rescued(self, state: TrainState, progress: Progress, written: dict[str, Prefix]) -> str:
        """Keep the run beside its directory, of which something has vanished; what to say of that."""
        meta = {"progress": dataclasses.asdict(progress)}
        try:
            path = self.run.rescue(_steps(state), state, meta, written)
        except (UserError, OSError) as error:
            return f"It could not be kept elsewhere either: {error}"
        return f"All up to step {_steps(state)} is kept beside it; go on with: emc resume {path}"

    def _report_failures(self, state: TrainState) -> None:
        """Say and count which episodes were lost with their workers."""
        lines = [{"steps": _steps(state), "reason": reason} for reason in self.program.failures()]
        if lines:
            self.lost += len(lines)
            self.run.append(lines, LOST)
            self.display.note(f"a worker was started anew, {self.lost} so far: it {lines[-1]['reason']}")

    def _next_evaluation(self, progress: Progress) -> int:
        """Evaluations fall on multiples of the interval, the first right after the first iteration."""
        if progress.evaluated_at < 0:
            return 1
        return (progress.evaluated_at // self.budget.evaluate_every + 1) * self.budget.evaluate_every

    def _next_log(self, progress: Progress) -> int:
        """Training lines come with every evaluation, and on multiples of their own interval if there is one."""
        every = self.budget.log_every
        return (max(progress.logged_at, 0) // every + 1) * every if every else sys.maxsize

    def _evaluation_due(self, state: TrainState, progress: Progress, over: bool) -> bool:
        """By the seed that is furthest, so that none is tested more coarsely than asked; and at the end."""
        steps = _steps(state)
        return steps >= self._next_evaluation(progress) or (over and steps > progress.evaluated_at)

    def _slowest(self, state: TrainState) -> int:
        """Environment steps of the seed that is furthest behind: a run ends when every seed has had its budget."""
        return int(np.min(np.asarray(state.env_steps)))

    def _evaluate(self, state: TrainState, progress: Progress) -> tuple[TrainState, Progress]:
        outcomes = self._by_seed(self.program.evaluate(state, progress.evaluations))
        others = self.program.evaluate_beside(state, progress.evaluations)
        beside = None if others is None else [extrinsic_metrics(outcome) for outcome in self._by_seed(others)]
        readings = self._readings(state)
        tests = [eval_line(reading, outcome) for reading, outcome in zip(readings, outcomes, strict=True)]
        state, progress = self._log(state, progress, tests, beside)
        steps = _steps(state)
        speed = {"steps": steps, "seconds": time.monotonic() - self.began, "steps_since_start": steps - self.first_steps}
        self.run.append([speed], SPEED)
        if steps * SNAPSHOTS >= (progress.snapshots + 1) * self.budget.steps:
            state = self._snapshot(state)
            progress = dataclasses.replace(progress, snapshots=steps * SNAPSHOTS // self.budget.steps)
        return state, dataclasses.replace(progress, evaluations=progress.evaluations + 1, evaluated_at=steps)

    def _snapshot(self, state: TrainState) -> TrainState:
        """Write the maps of the stretch since the last ones, if there was one."""
        if self.config.env.spec.map_shape == (0, 0) or not np.any(np.asarray(state.maps.visits)):
            return state
        self.run.append([map_line(reading) for reading in self._readings(state)], MAPS)
        return eqx.tree_at(lambda s: s.maps, state, jax.tree.map(jnp.zeros_like, state.maps))

    def _log(
        self, state: TrainState, progress: Progress, tests: list[dict[str, Any]], beside: list[dict[str, float]] | None = None
    ) -> tuple[TrainState, Progress]:
        """Write what training was like since the last line, what was found beside it, and the given tests."""
        readings = self._readings(state)
        more = beside or [{} for _ in readings]
        lines = [train_line(reading, self.config.method) | found for reading, found in zip(readings, more, strict=True)] + tests
        kept = [line for line in lines if line["seed"] not in progress.done]
        self.run.append(sorted(kept, key=lambda line: self.config.seeds.index(line["seed"])))
        self.latest = self.latest | summary(lines)
        self._show(state)
        if tests:  # a seed is done with the test that comes after its last step
            progress = dataclasses.replace(progress, done=tuple(r.seed for r in readings if int(r.steps) >= self.budget.steps))
        state = eqx.tree_at(lambda s: s.tally, state, jax.tree.map(jnp.zeros_like, state.tally))
        return state, dataclasses.replace(progress, logged_at=_steps(state))

    def _readings(self, state: TrainState) -> list[Reading]:
        """What each seed has to say, on the host."""
        counters = (state.env_steps, state.replay.added, state.learner.values.updates)
        values = self._by_seed((*counters, state.tally, state.maps))
        return [Reading(seed, *one) for seed, one in zip(self.config.seeds, values, strict=True)]

    def _by_seed(self, tree: Any) -> list[Any]:
        """The tree of each seed, on the host."""
        values: Any = jax.device_get(tree)
        count = len(self.config.seeds)
        return [values] if count == 1 else [jax.tree.map(operator.itemgetter(i), values) for i in range(count)]

    def _check_finite(self, state: TrainState) -> None:
        broken = {name for name, flags in state.tally.broken.items() if np.any(np.asarray(flags))}
        if broken:
            first = min(broken, key=lambda name: (_CONSEQUENCES.index(n) if (n := _stem(name)) in _CONSEQUENCES else -1, name))
            kept = self.run.steps()
            good = f"The last good checkpoint, at step {kept[-1]}, is kept" if kept else "There is no checkpoint yet"
            wrong = f"{first} is not a finite number near step {_steps(state)}"
            raise RunError(f"{self.run.path}: {wrong}. {good}; try a lower learning rate, or look at the field behind that metric.")

    def save(self, state: TrainState, progress: Progress) -> None:
        """Write a checkpoint."""
        meta = {"progress": dataclasses.asdict(progress)}
        self.run.save_checkpoint(_steps(state), state, meta, self.keeping.keep_checkpoints)
        self.saved_at = time.monotonic()

    def _show(self, state: TrainState) -> None:
        now, steps = time.monotonic(), _steps(state)
        if self.mark is None and steps > self.first_steps:
            self.mark = (now, steps)
        began, first = self.mark or (now, steps)
        speed = (steps - first) / max(now - began, 1e-9)
        left = (self.budget.steps - self._slowest(state)) / speed if speed > 0 else math.inf
        self.display.show(Status(steps, self.budget.steps, speed, max(left, 0.0), self.latest))


_CONSEQUENCES = ("q", "target", "td_error", "loss", "gradient_norm", "parameter_norm")  # a fault shows in these after its cause


def _stem(name: str) -> str:
    return name.removeprefix("curiosity_")


def _steps(state: TrainState) -> int:
    """Environment steps of the seed that is furthest."""
    return int(np.max(np.asarray(state.env_steps)))


@contextlib.contextmanager
def interruptible() -> Generator[list[int]]:
    """Collect SIGINT, SIGTERM and SIGHUP instead of dying of them; a second one acts at once."""
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    previous: dict[int, Any] = {}
    hangup = [signal.SIGHUP] if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else []  # nohup
    for number in (signal.SIGINT, signal.SIGTERM, *hangup):
        with contextlib.suppress(ValueError):  # outside the main thread its owner decides
            previous[number] = signal.signal(number, note)
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
