"""What of a run can be gone on with: where the host was, and whether a checkpoint can be what it says."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from emc import files
from emc.errors import CheckpointError, RunError, UserError
from emc.memory.index import Table
from emc.runs.config import RunConfig
from emc.runs.directory import CHECKPOINTS, MANIFEST, Restored, RunDirectory, awaits_first_checkpoint
from emc.runs.jsonl import count_lines
from emc.runs.reading import FORMS, METRICS, end_of
from emc.training import checkpoint
from emc.training.learner import LearnerState
from emc.training.loop import TrainState, shapes

SNAPSHOTS = 20  # of the maps, over a whole run


@dataclasses.dataclass(frozen=True)
class Progress:
    """Where the host is; part of every checkpoint."""

    iteration: int = 0
    evaluations: int = 0
    evaluated_at: int = -1  # steps at the last evaluation
    logged_at: int = -1  # steps at the last training line
    snapshots: int = 0
    done: tuple[int, ...] = ()  # seeds that have had their budget and wait for the others: they write no more lines
    finished: bool = False


def progress_in(meta: dict[str, Any]) -> Progress:
    """Where the host was at a checkpoint."""
    try:
        progress = Progress(**meta["progress"])
        progress = dataclasses.replace(progress, done=tuple(progress.done))
    except (KeyError, TypeError) as error:
        raise CheckpointError("its checkpoint was not written by this version of emc. Use the version that made it.") from error
    for field in dataclasses.fields(progress):
        value, usual = getattr(progress, field.name), field.default
        if type(value) is not type(usual) or any(type(seed) is not int for seed in progress.done):
            raise CheckpointError(f"its checkpoint cannot be used: {field.name} is {value!a:.40}")
    return progress


def restored(run: RunDirectory, config: RunConfig) -> tuple[Any, Progress]:
    """A run's newest checkpoint that can be what it says, and where the host was."""

    def check(step: int, state: TrainState, meta: dict[str, Any]) -> None:
        for wrong in impossible(config, step, state, progress_in(meta)):
            raise CheckpointError(f"{run.path / CHECKPOINTS / f'{step:012d}'}: {wrong}. Use another checkpoint.")

    found = run.latest_checkpoint(shapes(config.method, config.env.spec, len(config.seeds)), check)
    progress = progress_in(found.meta)
    _must_have_written(run, found, progress)
    return found, progress


def _must_have_written(run: RunDirectory, found: Restored, progress: Progress) -> None:
    """Refuse a checkpoint whose host has tested or logged at other steps, or more or less often, than the lines say that it saw."""
    lines = run.lines(METRICS, count_lines(run.path / METRICS, found.sizes.get(METRICS, 0)))  # what came later will be cut off
    tests, logs = ([line for line in lines if line["kind"] == kind] for kind in ("eval", "train"))
    often = max(collections.Counter(line["seed"] for line in tests).values(), default=0)
    last = tuple(max((line["steps"] for line in own), default=-1) for own in (tests, logs))
    if (often, *last) != (progress.evaluations, progress.evaluated_at, progress.logged_at):
        said = f"{progress.evaluations} tests, the last at step {progress.evaluated_at}"
        raise RunError(f"{run.path}: its checkpoint at step {found.step} speaks of {said}, its lines of others. Start a new run.")


def impossible(config: RunConfig, step: int, state: TrainState, progress: Progress) -> Iterator[str]:
    """What no training could have left: counters that contradict one another, and weights that are not finite."""
    steps = np.atleast_1d(state.env_steps)
    longest = config.budget.parallel_envs * config.env.spec.episode_limit
    if np.max(steps) != step or np.min(steps) < 0:
        yield f"its seeds have played {np.min(steps)} to {np.max(steps)} steps, not {step}"
    elif not step <= progress.iteration * longest:
        yield f"nobody plays {step} steps in {progress.iteration} iterations"
    elif not np.all(np.asarray(state.replay.added) == progress.iteration * config.budget.parallel_envs):
        yield f"its replay was given other episodes than {progress.iteration} iterations play"
    elif not (-1 <= progress.evaluated_at <= step and -1 <= progress.logged_at <= step and 0 <= progress.evaluations <= step + 1):
        yield "it was tested or logged after its last step"
    elif not 0 <= progress.snapshots <= max(SNAPSHOTS, SNAPSHOTS * step // config.budget.steps) or not {*progress.done} <= {*config.seeds}:
        yield "its maps or its seeds are not those of this run"
    elif any(seed in progress.done and own < config.budget.steps for seed, own in zip(config.seeds, steps.tolist(), strict=True)):
        yield "a seed that has not had its steps is said to be done"
    yield from not_finite(state.learner)


def not_finite(learner: LearnerState) -> Iterator[str]:
    """What of a learner's weights and values is no finite number."""
    parts = (learner.values, learner.policy, learner.curiosity)
    for path, leaf in jax.tree_util.tree_flatten_with_path(parts, is_leaf=lambda part: isinstance(part, Table))[0]:
        numbers = leaf.value if isinstance(leaf, Table) else leaf  # where an index is empty it has infinite keys
        if jnp.issubdtype(numbers.dtype, jnp.floating) and not np.all(np.isfinite(numbers)):
            yield f"a weight is not a finite number, in {jax.tree_util.keystr(path)}"


def is_resumable(path: Path) -> bool:
    """Whether a run can go on and lose nothing: it has a checkpoint, or no line, or has never come to its first checkpoint."""
    if any((path / CHECKPOINTS).glob("[0-9]" * 12)) or not any(files.is_there(path / name) for name in FORMS):
        return True
    return awaits_first_checkpoint(path, manifest_of(path))


def manifest_of(path: Path) -> dict[str, Any]:
    """What a run's manifest says, unless it is damaged."""
    try:
        document: Any = files.parsed(files.content_of(path / MANIFEST, "manifest"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def is_finished(path: Path) -> bool:
    """Whether a run came to its end: its newest checkpoint and its last line say so."""
    newest = max((path / CHECKPOINTS).glob("[0-9]" * 12), default=None)
    try:
        return newest is not None and progress_in(checkpoint.described(newest)["meta"]["meta"]).finished and end_of(path) is not None
    except (UserError, KeyError, TypeError):
        return False
