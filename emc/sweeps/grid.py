"""The cross product of methods, environments, settings and seeds, from a TOML file or from flags.

methods = ["emc-vdn", "vdn --replay prioritised"]     # each may bring flags of its own
envs = ["gridworld", "predator-prey"]
seeds = 6                                              # 0 to 5; or a list
flags = "--steps 200000"                               # for all runs
together = true                                        # the seeds side by side in one run; default: on an accelerator
[set]
env.penalty = [0, 1, 2]                                # every value with everything else
"""

from __future__ import annotations

import dataclasses
import itertools
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from emc.configuration import configure
from emc.errors import FileError, UserError
from emc.files import content_of
from emc.sweeps.jobs import Job, State, Survey
from emc.user_input import lookup

MOST_RUNS = 100_000
OWN = {  # fields that a sweep itself gives to its runs, and how to say them
    "seed": "say which with --seeds, or with seeds in a file",
    "seeds": "say how many as a flag of the sweep itself, or in a file",
    "runs": "say where as a flag of the sweep itself",
}


@dataclasses.dataclass(frozen=True)
class Sweep:
    """What to cross with what; methods and environments are words of `emc train`."""

    methods: tuple[str, ...]
    envs: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    settings: tuple[tuple[str, tuple[str, ...]], ...] = ()  # a field, and the values it takes
    flags: str = ""
    together: bool | None = None  # seeds side by side in one run, which `grouped` makes of its jobs; None: where that is faster

    def __post_init__(self) -> None:
        for name in ("methods", "envs", "seeds"):
            values: tuple[Any, ...] = vars(self)[name]
            if not values or len(set(values)) < len(values):
                raise UserError(f"a sweep needs {name}, each of them once: got {', '.join(map(str, values)) or 'none'}")
        for field, values in self.settings:
            if not values:
                raise UserError(f"a sweep over {field} needs values: write {field}=value1,value2")
        for method in self.methods:
            if not words_of(method):
                raise UserError(f"a sweep needs names of methods: got {method!r}")
            self._check_fields(method)
        if self.count > MOST_RUNS:
            said = f"{self.count:,}" if self.count < 10**15 else "far too many"
            raise UserError(f"this sweep has {said} runs; the most is {MOST_RUNS:,}")

    def _check_fields(self, method: str) -> None:
        """Refuse what would be overridden: fields that the sweep sets by itself, and those that are said twice."""
        chosen = [f"--{field}" for field, _ in self.settings]
        known: set[str] = set()
        for word in [*words_of(method), *chosen, *words_of(self.flags)]:
            if not word.startswith("--"):
                continue
            field = word.removeprefix("--").partition("=")[0].replace("_", "-")
            if field in OWN:
                raise UserError(f"--{field} cannot be among the settings of a sweep's runs: {OWN[field]}")
            if field in known:
                raise UserError(f"--{field} is set twice for {method}: say it once, with several values as {field}=value1,value2 of --set")
            known.add(field)

    @property
    def count(self) -> int:
        """How many runs there are."""
        count = len(self.methods) * len(self.envs) * len(self.seeds)
        for _, values in self.settings:
            count *= len(values)
        return count


def jobs_of(sweep: Sweep) -> list[Job]:
    """Every run of a sweep, seeds innermost; a mistake in any of them is found before the first one starts."""
    fields = [field for field, _ in sweep.settings]
    jobs: list[Job] = []
    for env, method, values in itertools.product(sweep.envs, sweep.methods, itertools.product(*(values for _, values in sweep.settings))):
        name, *own = words_of(method)
        chosen = [word for field, value in zip(fields, values, strict=True) for word in (f"--{field}", value)]
        words = [name, env, *own, *chosen, *words_of(sweep.flags)]
        jobs += [seeded(words, seed) for seed in sweep.seeds]
    keys = [job.key for job in jobs]
    if len(set(keys)) < len(keys):
        twice = next(job for number, job in enumerate(jobs) if job.key in keys[:number])
        raise UserError(f"two runs of this sweep are the same: {twice.name}. Remove one of the settings that make no difference")
    return jobs


def seeded(words: Sequence[str], seed: int, steps: int | None = None) -> Job:
    """The run of one seed, of as many steps as the words say or these; the words are parsed once for all of them, which takes longest."""
    config, length = configure([*words, "--seed", "0"]), () if steps is None else ("--steps", str(steps))
    own = dataclasses.replace(config, seeds=tuple(seed + offset for offset in config.seeds))
    return Job((*words, *length, "--seed", str(seed)), own if steps is None else own.until(steps))


def grouped(jobs: Sequence[Job], survey: Survey, side_by_side: Callable[[Job], int] = lambda job: 1) -> list[Job]:
    """The same jobs as they are to be run: each by itself, or as many seeds side by side in one run as a job may have.

    Seeds that were begun in a run of several go on there. Of those that nobody has begun, as many that follow one another as may be are
    trained in one run of one program.
    """
    found: dict[str, Job] = {}  # by what decides their numbers
    new: dict[tuple[str, int], list[Job]] = {}  # seeds that nobody has begun, by what else there is to a job
    covered: set[tuple[str, int, int]] = set()  # seeds that go on in a run of several
    for job in jobs:
        kin, steps = job.kind.kin, job.config.budget.steps
        if survey.state(job) is not State.MISSING:
            found[job.key] = job
        elif seeds := survey.begun_with_others(job):
            whole = _with_seeds(job, seeds)
            found[whole.key] = whole
            covered |= {(kin, steps, seed) for seed in seeds}
        else:
            new.setdefault((kin, steps), []).append(job)
            found[job.key] = job
    for alike in new.values():
        for first, *rest in _stretches(sorted(alike, key=lambda job: job.config.seeds), side_by_side(alike[0])):
            if rest:
                found[first.key] = _with_seeds(first, tuple(seed for job in (first, *rest) for seed in job.config.seeds))
            for job in rest:
                del found[job.key]
    return [
        job
        for job in found.values()
        if len(job.config.seeds) > 1 or (job.kind.kin, job.config.budget.steps, *job.config.seeds) not in covered
    ]


def _stretches(jobs: Sequence[Job], most: int) -> list[list[Job]]:
    """Seeds that follow one another, as many as may be."""
    stretches: list[list[Job]] = []
    for job in jobs:
        if stretches and len(stretches[-1]) < most and stretches[-1][-1].config.seeds[-1] + 1 == job.config.seeds[0]:
            stretches[-1].append(job)
        else:
            stretches.append([job])
    return stretches


def _with_seeds(job: Job, seeds: tuple[int, ...]) -> Job:
    words = (*job.words[:-2], "--seed", str(seeds[0]), "--seeds", str(len(seeds)))
    return Job(words, dataclasses.replace(job.config, seeds=seeds))


def words_of(text: str) -> list[str]:
    """The words of a command."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UserError(f"{text} cannot be read as words of a command ({error}): check its quotation marks") from error


def read_sweep(path: Path) -> Sweep:
    """A sweep from its file."""
    try:
        data = tomllib.loads(content_of(_at(path), "sweep").decode())
        settings = tuple(_settings(data["set"])) if isinstance(data.get("set"), dict) else ()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}). Name a TOML file with methods, envs and seeds") from error
    except FileError:
        raise
    except (ValueError, RecursionError, MemoryError) as error:  # nested deeper, or numbers with more digits, than anybody means
        raise UserError(f"{path}: is not TOML ({error})") from error
    for name in data:
        lookup(f"entry in {path}", name, dict.fromkeys(("methods", "envs", "seeds", "flags", "set", "together")))
    seeds, together = data.get("seeds", 1), data.get("together")
    if not isinstance(together, bool | None):
        raise UserError(f"{path}: together={together} must be true or false")
    if not isinstance(data.get("flags", ""), str):
        raise UserError(f'{path}: flags must be one string, like flags = "--steps 200000"')
    if not isinstance(data.get("set", {}), dict):
        raise UserError(f"{path}: set must be a table: write [set], and below it lines like gamma = [0.9, 0.99]")
    return Sweep(
        methods=_words(path, data, "methods"),
        envs=_words(path, data, "envs"),
        seeds=seeds_of(seeds, f"{path}: seeds ="),
        settings=settings,
        flags=data.get("flags", ""),
        together=together,
    )


def _at(path: Path) -> Path:
    """What a path leads to, also through links."""
    try:
        return path.resolve()
    except RuntimeError as error:  # as Python before 3.13 says it
        raise FileError(f"{path}: is a link that leads to itself. Name a TOML file with methods, envs and seeds") from error


def seeds_of(given: Any, where: str) -> tuple[int, ...]:
    """So many seeds from 0 on, or the ones that are listed."""
    listed = cast(Sequence[Any], given) if isinstance(given, list | tuple) else [given]
    if not all(isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0 for seed in listed):
        raise UserError(f"{where} {given} must be how many, or a list of whole numbers of at least 0")
    if isinstance(given, list | tuple):
        return tuple(cast(Sequence[int], listed))
    if given > MOST_RUNS:
        raise UserError(f"{where} {given} is more than a sweep can have; the most is {MOST_RUNS:,} runs")
    return tuple(range(given))


def _words(path: Path, data: Mapping[str, Any], name: str) -> tuple[str, ...]:
    values: Any = data.get(name, ())
    if not isinstance(values, list) or not all(isinstance(value, str) for value in cast(list[Any], values)):
        raise UserError(f'{path}: {name} must be a list of names, like {name} = ["a", "b"]')
    return tuple(cast(list[str], values))


def _settings(table: Mapping[str, Any], prefix: str = "") -> list[tuple[str, tuple[str, ...]]]:
    """`env.penalty = [0, 1]` in TOML is a table in a table."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for name, value in table.items():
        if isinstance(value, dict):
            found += _settings(cast(Mapping[str, Any], value), f"{prefix}{name}.")
        else:
            values = cast(list[Any], value) if isinstance(value, list) else [value]
            found.append((f"{prefix}{name}".replace("_", "-"), tuple(str(one) for one in values)))
    return found
