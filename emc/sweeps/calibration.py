"""What a sweep will take: memory from shapes, time from the speed of earlier runs or of a short try."""

from __future__ import annotations

import dataclasses
import datetime
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import jax
import numpy as np

from emc.runs.config import RunConfig
from emc.runs.reading import SPEED, last_line
from emc.runs.session import loop_of
from emc.runs.sizes import planned
from emc.sweeps.jobs import Job, steps_of
from emc.training.plan import available_bytes, readable

LONGEST_SECONDS = 1e10  # three hundred years: what a damaged line says of speed may be any number
TRY_SECONDS = 3.0  # of trained iterations, after compiling and the first episodes


def forecast(left: Sequence[tuple[Job, Path | None]], workers: int) -> Iterator[str]:
    """What the runs that are left need, one line each; a try for each method and environment that has no run yet."""
    if not left:
        yield "nothing is left to do"
        return
    plans = [planned(job.config) for job, _ in left]
    peaks = sorted((one.peak for one in plans), reverse=True)
    needed, free = sum(peaks[:workers]), available_bytes()
    yield f"memory     up to {readable(needed)} at a time" + ("" if free is None else f", {readable(free)} are free")
    speeds: dict[str, float] = {}
    seconds = 0.0
    for job, run in left:
        kind = f"{job.config.method_name} on {job.config.env_name}"
        known = _known_speed(run)
        if kind not in speeds:
            speeds[kind] = known or _tried_speed(job.config)
            yield f"speed      {speeds[kind]:,.0f} steps/s: {kind}{'' if known else ' (a short try)'}"
        seconds += max(job.config.budget.steps - (steps_of(run) if run else 0), 0) / max(known or speeds[kind], 1e-9)
    together = datetime.timedelta(seconds=round(min(seconds / min(workers, len(left)), LONGEST_SECONDS)))
    yield f"time       about {together} with {workers} at a time (a rough guess)"


def _known_speed(run: Path | None) -> float:
    line = last_line(run / SPEED) if run else None
    return line["steps_since_start"] / line["seconds"] if line and line["seconds"] > 0 else 0.0


def _tried_speed(config: RunConfig) -> float:
    """Steps per second once every iteration learns, tests included."""
    small = dataclasses.replace(config, method=dataclasses.replace(config.method, replay_episodes=_enough(config)))
    program = loop_of(small)
    try:
        state = program.init()
        iteration = -(-config.method.batch_episodes // config.budget.parallel_envs) + 1
        state = jax.block_until_ready(program.advance(state, 0, iteration))  # compiles, and fills the first batch
        program.evaluate(state, 0)
        began = time.perf_counter()
        jax.block_until_ready(program.evaluate(state, 0))
        test = time.perf_counter() - began
        before, began = int(np.min(np.asarray(state.env_steps))), time.perf_counter()
        while time.perf_counter() - began < TRY_SECONDS:
            state = jax.block_until_ready(program.advance(state, iteration, 1))
            iteration += 1
        played, spent = int(np.min(np.asarray(state.env_steps))) - before, time.perf_counter() - began
        return played / (spent + test * played / config.budget.evaluate_every)
    finally:
        program.close()


def _enough(config: RunConfig) -> int:
    """Episodes of replay for a try: a few batches, in whole blocks."""
    block = config.budget.parallel_envs
    return min(config.method.replay_episodes, -(-4 * config.method.batch_episodes // block) * block)
