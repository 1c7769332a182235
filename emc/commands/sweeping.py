"""Commands that begin many runs: `sweep` and `reproduce`."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from emc.commands.parsing import fail, note, parse
from emc.commands.training import configure, prepare_jax
from emc.errors import UserError
from emc.names import lookup

MOST_WORKERS = 10_000  # runs at a time: more than any cluster has processors for


@dataclasses.dataclass(frozen=True)
class SweepFlags:
    """Every method on every environment, with every setting and seed: a run each, as many at a time as there are cores.

    The same command again does only what is missing. What follows `--` goes to every run: emc sweep --methods vdn,qmix --envs gridworld
    --seeds 6 -- --steps 200000. With --dry-run it only says what would be done, how much memory that needs, and about how long it takes.

    Instead of flags, a TOML file may say methods, envs, seeds, flags, together and [set]:

        methods = ["emc-vdn", "vdn"]
        envs = ["gridworld"]
        seeds = 6
        flags = "--steps 200000"
        [set]
        "env.penalty" = [0, 1, 2]
    """

    methods: str = ""  # names with commas between them
    envs: str = ""  # names with commas between them
    seeds: int | None = None  # how many, from 0 on; default: 1
    set: tuple[str, ...] = ()  # field=value1,value2: every value with everything else
    runs: Path = Path("runs")  # directory that holds all runs
    workers: int = 0  # runs at a time; 0: as many as there are cores, here or in the cluster; one on an accelerator
    together: Literal["auto", "yes", "no"] = "auto"  # train seeds side by side in one run; auto: on an accelerator, which is faster so
    engine: str = "local"  # where the runs are done: local (this machine) or ray (a Ray cluster; pip install emc-marl[ray])
    address: str = ""  # of the Ray cluster; default: RAY_ADDRESS, else a cluster is started on this machine


def sweep(words: list[str]) -> None:
    from emc.sweeps import jobs_of

    words, common = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    dry = "--dry-run" in words
    words = [word for word in words if word != "--dry-run"]
    file = [word for word in words[:1] if not word.startswith("-")]
    given = [word.partition("=")[0] for word in words if word.startswith("--")]
    if twice := [flag for flag in given if given.count(flag) > 1]:
        raise UserError(f"{twice[0]} is said twice: say it once, with all that belongs to it")
    flags = parse("emc sweep [FILE]", SweepFlags, words[len(file) :])
    if not 0 <= flags.workers <= MOST_WORKERS:
        raise UserError(f"--workers {flags.workers} must be at least 0 and at most {MOST_WORKERS}")
    wanted = _sweep_of(file, flags, common)
    engine = _engine_of(flags, dry)
    each = jobs_of(wanted, configure)
    jobs = _grouped(each, engine, flags, wanted.together)
    if dry:
        _say_what_is_left(jobs, engine, flags.runs)
        return
    if trouble := _run_all(jobs, engine, flags.runs):
        fail(trouble, 1)
    print(f"all {len(each)} runs are done, in {flags.runs}")


def _say_what_is_left(jobs: Sequence[Any], engine: Any, runs: Path) -> None:
    """The runs of a sweep, and what those that are not done will take."""
    from emc.sweeps import State, Survey
    from emc.sweeps.calibration import forecast

    prepare_jax()
    survey = Survey(runs)
    found = [(job, *survey.look(job)) for job in jobs]
    for job, state, _ in found:
        print(f"{state.value:<10} {job.name}")
    if left_out := survey.left_out():
        note(left_out)
    left = [(job, run) for job, state, run in found if state is not State.DONE]
    with engine.ready():
        for line in forecast(left, max(engine.room(), 1)):
            print(line)


def _run_all(jobs: Sequence[Any], engine: Any, runs: Path) -> str:
    """Do what is missing of some runs; what to say if some failed. Ends here when it is stopped."""
    from emc.sweeps import State
    from emc.sweeps.table import table_for_this_terminal

    prepare_jax()
    with table_for_this_terminal() as watch:
        results = engine.run(jobs, runs, watch, note)
    failed = [one for one in results if one.state is State.FAILED]
    for one in failed:
        print(f"failed: {one.job.name}: {one.reason}")
    if any(len(one.job.config.seeds) > 1 for one in failed):
        print("of seeds that failed together, --together no tries each by itself")
    left = sum(one.state is not State.DONE for one in results) - len(failed)
    if left:
        fail(f"stopped with {left} of {len(results)} runs to do; everything is kept and the same command goes on", 130)
    return f"{len(failed)} of {len(results)} runs failed; the same command tries them again" if failed else ""


def _engine_of(flags: SweepFlags | ReproduceFlags, dry: bool) -> Any:
    """The engine that was asked for; it comes before anything else is computed, which would take the accelerator from the runs."""
    from emc.sweeps import LocalEngine, RayEngine, find_accelerator, leave_to_runs

    if flags.engine == "local" and flags.address:
        raise UserError(f"--address {flags.address} is for --engine ray")
    engines = {"local": lambda: LocalEngine(flags.workers, find_accelerator()), "ray": lambda: RayEngine(flags.address, flags.workers)}
    engine = lookup("engine", flags.engine, engines)()
    if not dry:  # which tries how fast runs are where they will be
        leave_to_runs()
    return engine


def _grouped(jobs: Sequence[Any], engine: Any, flags: SweepFlags | ReproduceFlags, wish: bool | None = None) -> Sequence[Any]:
    """Seeds in runs of their own or side by side, as flags say, or else the file, or else as is faster here."""
    from emc.sweeps import Survey, grouped, seeds_in_one_run

    if flags.together == "no":
        return jobs
    together = flags.together == "yes" or (engine.faster_together() if wish is None else wish)
    memory = engine.memory() if together else 0
    return grouped(jobs, Survey(flags.runs), lambda job: seeds_in_one_run(job, memory) if together else 1)


def _sweep_of(file: list[str], flags: SweepFlags, common: list[str]) -> Any:
    from emc.sweeps import Sweep, read_sweep, seeds_of

    if file:
        if flags.methods or flags.envs or flags.seeds is not None or flags.set or common:
            raise UserError(f"say what to sweep in {file[0]} or in flags, not in both")
        return read_sweep(Path(file[0]))
    settings: list[tuple[str, tuple[str, ...]]] = []
    for word in flags.set:
        field, equals, values = word.partition("=")
        if not equals:
            raise UserError(f"--set {word} is not field=value1,value2")
        settings.append((field, tuple(filter(None, values.split(",")))))
    methods, envs = (tuple(filter(None, (name.strip() for name in text.split(",")))) for text in (flags.methods, flags.envs))
    return Sweep(methods, envs, seeds_of(1 if flags.seeds is None else flags.seeds, "--seeds"), tuple(settings), shlex.join(common))


@dataclasses.dataclass(frozen=True)
class ReproduceFlags:
    """A claim of the paper: run what is missing, draw its figures, and say of each statement whether it holds.

    `emc reproduce` alone lists the claims; `all` does all of them. Writes OUT/CLAIM-BUDGET/ with figures as PNG and PDF, curves.csv and
    checklist.json. Stopping it loses nothing: the same command goes on. With --draw-only it runs nothing and judges what there is; with
    --dry-run it only says what is left and about how long that takes.
    """

    budget: Literal["small", "paper"] = "small"  # an evening on two cores, or what the paper did
    runs: Path = Path("runs")  # directory that holds all runs
    out: Path = Path("reproductions")
    workers: int = 0  # runs at a time; 0: as many as there are cores, here or in the cluster; one on an accelerator
    together: Literal["auto", "yes", "no"] = "auto"  # train seeds side by side in one run; auto: on an accelerator, which is faster so
    engine: str = "local"  # where the runs are done: local (this machine) or ray (a Ray cluster; pip install emc-marl[ray])
    address: str = ""  # of the Ray cluster; default: RAY_ADDRESS, else a cluster is started on this machine


def reproduce(words: list[str]) -> None:
    from emc.claims import gather, jobs_of
    from emc.claims.reproduction import checklist, missing, overview, write
    from emc.claims.shelf import claim, claims
    from emc.sweeps import Survey

    switches = {word for word in words if word in ("--dry-run", "--draw-only")}
    words = [word for word in words if word not in switches]
    names = [word for word in words[:1] if not word.startswith("-")]
    flags = parse("emc reproduce CLAIM", ReproduceFlags, words[len(names) :])
    if not 0 <= flags.workers <= MOST_WORKERS:
        raise UserError(f"--workers {flags.workers} must be at least 0 and at most {MOST_WORKERS}")
    if not names:
        print(overview([*claims().values()]))
        return
    chosen = [*claims().values()] if names == ["all"] else [claim(names[0])]
    trouble = ""
    if "--draw-only" not in switches or "--dry-run" in switches:
        engine = _engine_of(flags, "--dry-run" in switches)
        jobs = _grouped(jobs_of([panel for one in chosen for panel in one.panels(flags.budget)], configure), engine, flags)
        if "--dry-run" in switches:
            _say_what_is_left(jobs, engine, flags.runs)
            return
        trouble = _run_all(jobs, engine, flags.runs)
    elif not flags.runs.is_dir():
        raise UserError(f"{flags.runs}: no such directory. Name the one that holds the runs with --runs")
    survey = Survey(flags.runs)
    for one in chosen:
        evidence = gather(one, flags.budget, [survey], configure)
        folder = flags.out / f"{one.name}-{flags.budget}"
        write(evidence, folder)
        left, wanted = missing(evidence)
        print(f"{checklist(evidence)}\n\n{wanted - left} of {wanted} runs are complete; figures and numbers are in {folder}\n")
    if "--draw-only" in switches and (left_out := survey.left_out()):
        note(left_out)
    if trouble:
        fail(trouble, 1)
