"""The `emc` command; `USAGE` says what there is. A user's mistake is one line on stderr and exit code 2."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from emc.errors import UserError
from emc.names import lookup

USAGE = """emc: cooperative multi-agent reinforcement learning with coordinated exploration

  emc train METHOD ENV [--field value ...]   train; `emc train METHOD ENV --help` lists every field
  emc sweep FILE | --methods A,B --envs C,D  many runs, as many at a time as there are cores; again does only what is missing
  emc reproduce CLAIM [--budget paper]       a claim of the paper: run what is missing, draw the figure, judge each statement
  emc resume RUN                             go on from the last checkpoint, bit for bit
  emc evaluate RUN [--episodes N]            complete greedy episodes with the trained agents
  emc render RUN [--out FILE]                an episode of the trained agents as a GIF
  emc report [DIR ...] [--out FILE]          one self-contained page about all runs in there: a table, curves, a page for each run
  emc report [DIR ...] --watch [--port N]    the same page on a loopback address, made anew while runs go on
  emc export DIR ... [--out FILE]            the tests of runs in the JSON format of marl-eval
  emc plan METHOD ENV [--field value ...]    bytes of replay, memory and networks, before anything is compiled
  emc methods                                the methods, a line each
  emc envs                                   the environments, a line each
  emc check-env ENV [--env.field value ...]  does an environment keep its promises? for your own ones
  emc doctor                                 what is installed here, and what the real StarCraft II still needs
  emc demo                                   train EMC on the gridworld until it wins, and show how

METHOD is one of `emc methods`, ENV one of `emc envs` or your own as module:Class; RUN is a directory like
runs/gridworld/emc-vdn/20260101-120000-abc123.
"""


MOST_SEEDS, MOST_EPISODES = 1_000, 100_000
SIDE_BY_SIDE = 256  # episodes that `evaluate` plays at once


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if not words or words[0] in ("-h", "--help", "help"):
            print(USAGE, end="")
            return
        if words[0] in ("-V", "--version"):
            from emc import __version__

            print(f"emc {__version__}")
            return
        chosen, words = _selections(words, {"trust"})
        if "trust" in chosen:
            from emc.runs.config import trust

            trust(chosen["trust"])
        lookup("command", words[0], COMMANDS)(words[1:])
    except UserError as error:
        _fail(str(error), 2)
    except KeyboardInterrupt:
        _fail("stopped", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _note(line: str) -> None:
    print(f"emc: {' '.join(line.split())}", file=sys.stderr)


def _fail(line: str, code: int) -> None:
    _note(line)
    raise SystemExit(code)


# ---------------------------------------------------------------------------------------------------------------- training


@dataclasses.dataclass(frozen=True)
class Where:
    """Where a run is kept, and which seeds it trains."""

    seed: int = 0  # the first seed
    seeds: int = 1  # how many, trained side by side in one program
    runs: Path = Path("runs")  # directory that holds all runs
    checkpoint_minutes: float = 5.0
    keep_checkpoints: int = 2
    tensorboard: bool = False  # also write TensorBoard event files (needs the extra: pip install emc-marl[tensorboard])


def train(words: list[str]) -> None:
    from emc.child import RUN_NAME
    from emc.display import display_for_this_terminal
    from emc.runs.session import start

    config, where = _configured("train", words)
    prepare_jax()
    display = _with_tensorboard(display_for_this_terminal(config.env.spec.winnable), where.tensorboard)
    command = shlex.join(["emc", "train", *words])
    name = os.environ.pop(RUN_NAME, "")
    _trained(lambda: start(config, where.runs, _keeping(where), display, command, name=name))


def resume(words: list[str]) -> None:
    from emc.display import display_for_this_terminal
    from emc.runs.directory import RunDirectory
    from emc.runs.session import config_of, keeping_of, resume
    from emc.tensorboard import EVENTS

    flags = _parse("emc resume RUN", ResumeFlags, _take(words, "RUN"))
    run = RunDirectory.open(words[0])
    prepare_jax()
    tensorboard = flags.tensorboard or (run.path / EVENTS).is_dir()
    display = _with_tensorboard(display_for_this_terminal(config_of(run).env.spec.winnable), tensorboard)
    usual = keeping_of(run)
    given = {"checkpoint_minutes": flags.checkpoint_minutes, "keep_checkpoints": flags.keep_checkpoints}
    keeping = dataclasses.replace(usual, **{name: value for name, value in given.items() if value is not None})
    _trained(lambda: resume(run.path, keeping, display, flags.wait_seconds))


@dataclasses.dataclass(frozen=True)
class ResumeFlags:
    """Go on from the last good checkpoint."""

    checkpoint_minutes: float | None = None  # default: as when the run began
    keep_checkpoints: int | None = None  # default: as when the run began
    tensorboard: bool = False  # event files; written in any case where the run has some
    wait_seconds: float = 0.0  # for another process that trains this run to let go of it


def _trained(run: Callable[[], Any]) -> None:
    from emc.runs.session import Interrupted

    try:
        path = run().path
    except Interrupted as stop:
        _fail(f"stopped; everything up to step {stop.step} is kept. Go on with: emc resume {stop.run.path}", 130)
        return
    print(f"finished. See it with: emc report {path}")


def _keeping(where: Where) -> Any:
    from emc.runs.session import Keeping

    return Keeping(where.checkpoint_minutes, where.keep_checkpoints)


def _with_tensorboard(display: Any, wanted: bool) -> Any:
    if not wanted:
        return display
    from emc.tensorboard import TensorBoardDisplay

    return TensorBoardDisplay(display)


def configure(words: Sequence[str]) -> Any:
    """What `emc train` makes of METHOD ENV and flags; parsing takes a tenth of a second, and claims and sweeps repeat themselves."""
    return _configure(tuple(words))


@functools.lru_cache(10_000)
def _configure(words: tuple[str, ...]) -> Any:
    return _configured("train", [*words])[0]


def _configured(command: str, words: list[str]) -> tuple[Any, Where]:
    """METHOD ENV and every flag after them."""
    import tyro

    from emc.api import budget_of
    from emc.envs import make_env
    from emc.envs.registry import task
    from emc.methods import PARTS, Method, make_method
    from emc.runs.config import RunConfig
    from emc.training.loop import Budget

    rest = _take(words, "METHOD", "ENV")
    method_name, env_name = words[:2]
    chosen, rest = _selections(rest, {"preset", *PARTS})
    method = make_method(method_name, chosen.pop("preset", "released"), env_name)
    method = dataclasses.replace(method, **{kind: lookup(kind, name, PARTS[kind]) for kind, name in chosen.items()})
    for kind, table in PARTS.items():
        if isinstance(getattr(method, kind), type(table.get("none"))) and any(word.startswith(f"--{kind}.") for word in rest):
            some = ",".join(name for name in table if name != "none")
            raise UserError(f"{method_name} has no {kind} whose fields could be set: add one first with --{kind} {{{some}}}")
    env = make_env(env_name)
    flat = tyro.conf.arg(name="")
    flags = dataclasses.make_dataclass(
        "Flags",
        [("where", Annotated[Where, flat]), ("budget", Annotated[Budget, flat]), ("env", type(env)), ("method", Annotated[Method, flat])],
        frozen=True,
    )
    parts = "; ".join(f"--{kind} {{{','.join(table)}}}" for kind, table in PARTS.items())
    about = f"Train {method_name} on {env_name}. Constants: --preset {{released,paper,starcraft}}. Swap a part: {parts}."
    given = _parse(f"emc {command} {method_name} {env_name}", flags, rest, flags(Where(), budget_of(task(env_name)), env, method), about)
    where: Where = given.where
    for field, value in task(env_name).fields.items():
        if getattr(given.env, field) != value:
            raise UserError(f"--env.{field} {getattr(given.env, field)} is not {env_name}: name that {field} instead of {env_name}")
    if not 1 <= where.seeds <= MOST_SEEDS or where.seed < 0:
        raise UserError(f"--seeds {where.seeds} must be at least 1 and at most {MOST_SEEDS}, and --seed {where.seed} at least 0")
    seeds = tuple(range(where.seed, where.seed + where.seeds))
    return RunConfig(method_name, given.method, env_name, given.env, given.budget, seeds), where


def _selections(words: list[str], names: set[str]) -> tuple[dict[str, str], list[str]]:
    """Take `--mixer qmix` and the like, which change what fields there are, out of the other flags."""
    chosen: dict[str, str] = {}
    rest: list[str] = []
    waiting = iter(words)
    for word in waiting:
        name, _, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or name not in names:
            rest.append(word)
            continue
        chosen[name] = value or next(waiting, "")
    return chosen, rest


def _take(words: list[str], *names: str) -> list[str]:
    """The flags after the positional words, which must be there."""
    given = [word for word in words[: len(names)] if not word.startswith("-")]
    if len(given) < len(names) and not {"-h", "--help"} & set(words):
        raise UserError(f"{' '.join(names)} expected, got {' '.join(words) or 'nothing'}. See emc --help")
    if len(given) < len(names):
        print(USAGE, end="")
        raise SystemExit(0)
    return words[len(names) :]


def _parse(prog: str, kind: Any, words: list[str], default: Any = None, about: str | None = None) -> Any:
    """Typed flags through tyro, its error box folded into one line."""
    import tyro

    box = io.StringIO()
    config = (tyro.conf.AvoidSubcommands, tyro.conf.FlagConversionOff)
    defaults: dict[str, Any] = {} if default is None else {"default": default}
    try:
        with contextlib.redirect_stderr(box):
            return tyro.cli(kind, args=words, prog=prog, description=about, config=config, **defaults)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
    raise UserError(_one_line(box.getvalue()))


def _one_line(box: str) -> str:
    """What an error box says, without the box."""
    lines = [re.sub(r"[│╭╮╰╯─]|-{3,}", " ", line).strip() for line in box.splitlines()[1:]]
    blocks = [" ".join(block.split()) for block in " ".join(line or "\n" for line in lines).split("\n")]
    said = next(filter(None, blocks), "") or "these flags cannot be understood"
    said = re.sub(r"invalid literal for int\(\) with base 10: ('[^']*')", r"\1 is not a whole number", said)
    hints = re.findall(r"--[a-z][\w.-]*", box.partition("Perhaps you meant")[2])
    nearest = f" Perhaps you meant {hints[0]}?" if hints and hints[0] != "--help" else ""
    return f"{said}{'' if said.endswith('.') else '.'}{nearest} Add --help to see every field."


@dataclasses.dataclass(frozen=True)
class SweepFlags:
    """Every method on every environment, with every setting and seed: a run each, as many at a time as there are cores.

    The same command again does only what is missing. What follows `--` goes to every run: emc sweep --methods vdn,qmix --envs gridworld
    --seeds 6 -- --steps 200000. Instead of flags, a TOML file may say methods, envs, seeds, flags, together and [set]. With --together the
    seeds are trained side by side in one run, which suits an accelerator. With --dry-run it only says what would be done, how much memory
    that needs, and about how long it takes.
    """

    methods: str = ""  # names with commas between them
    envs: str = ""  # names with commas between them
    seeds: int | None = None  # how many, from 0 on; default: 1
    set: tuple[str, ...] = ()  # field=value1,value2: every value with everything else
    runs: Path = Path("runs")  # directory that holds all runs
    workers: int = 0  # runs at a time; 0: as many as there are cores, here or in the cluster
    engine: str = "local"  # where the runs are done: local (this machine) or ray (a Ray cluster; pip install emc-marl[ray])
    address: str = ""  # of the Ray cluster; default: RAY_ADDRESS, else a cluster is started on this machine


def sweep(words: list[str]) -> None:
    from emc.sweeps import jobs_of

    words, common = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    dry, together = "--dry-run" in words, "--together" in words
    words = [word for word in words if word not in ("--dry-run", "--together")]
    file = [word for word in words[:1] if not word.startswith("-")]
    given = [word.partition("=")[0] for word in words if word.startswith("--")]
    if twice := [flag for flag in given if given.count(flag) > 1]:
        raise UserError(f"{twice[0]} is said twice: say it once, with all that belongs to it")
    flags = _parse("emc sweep [FILE]", SweepFlags, words[len(file) :])
    if flags.workers < 0:
        raise UserError(f"--workers {flags.workers} must be at least 0")
    jobs = jobs_of(_sweep_of(file, flags, common, together), configure)
    engine = _engine_of(flags)
    if dry:
        _say_what_is_left(jobs, engine, flags.runs)
        return
    if trouble := _run_all(jobs, engine, flags.runs):
        _fail(trouble, 1)
    print(f"all {len(jobs)} runs are done, in {flags.runs}")


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
        _note(left_out)
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
        results = engine.run(jobs, runs, watch, _note)
    failed = [one for one in results if one.state is State.FAILED]
    for one in failed:
        print(f"failed: {one.job.name}: {one.reason}")
    left = sum(one.state is not State.DONE for one in results) - len(failed)
    if left:
        _fail(f"stopped; {left} runs are left and everything is kept. The same command goes on", 130)
    return f"{len(failed)} of {len(results)} runs failed; the same command tries them again" if failed else ""


def _engine_of(flags: SweepFlags | ReproduceFlags) -> Any:
    from emc.sweeps import LocalEngine, RayEngine

    if flags.engine == "local" and flags.address:
        raise UserError(f"--address {flags.address} is for --engine ray")
    engines = {"local": lambda: LocalEngine(flags.workers), "ray": lambda: RayEngine(flags.address, flags.workers)}
    return lookup("engine", flags.engine, engines)()


def _sweep_of(file: list[str], flags: SweepFlags, common: list[str], together: bool) -> Any:
    from emc.sweeps import Sweep, read_sweep, seeds_of

    if file:
        if flags.methods or flags.envs or flags.seeds is not None or flags.set or common or together:
            raise UserError(f"say what to sweep in {file[0]} or in flags, not in both")
        return read_sweep(Path(file[0]))
    settings: list[tuple[str, tuple[str, ...]]] = []
    for word in flags.set:
        field, equals, values = word.partition("=")
        if not equals:
            raise UserError(f"--set {word} is not field=value1,value2")
        settings.append((field, tuple(filter(None, values.split(",")))))
    methods, envs = (tuple(filter(None, (name.strip() for name in text.split(",")))) for text in (flags.methods, flags.envs))
    return Sweep(
        methods, envs, seeds_of(1 if flags.seeds is None else flags.seeds, "--seeds"), tuple(settings), shlex.join(common), together
    )


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
    workers: int = 0  # runs at a time; 0: as many as there are cores, here or in the cluster
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
    flags = _parse("emc reproduce CLAIM", ReproduceFlags, words[len(names) :])
    if flags.workers < 0:
        raise UserError(f"--workers {flags.workers} must be at least 0")
    if not names:
        print(overview([*claims().values()]))
        return
    chosen = [*claims().values()] if names == ["all"] else [claim(names[0])]
    engine = _engine_of(flags)
    jobs = jobs_of([panel for one in chosen for panel in one.panels(flags.budget)], configure)
    if "--dry-run" in switches:
        _say_what_is_left(jobs, engine, flags.runs)
        return
    if "--draw-only" in switches and not flags.runs.is_dir():
        raise UserError(f"{flags.runs}: no such directory. Name the one that holds the runs with --runs")
    trouble = "" if "--draw-only" in switches else _run_all(jobs, engine, flags.runs)
    survey = Survey(flags.runs)
    for one in chosen:
        evidence = gather(one, flags.budget, [survey], configure)
        folder = flags.out / f"{one.name}-{flags.budget}"
        write(evidence, folder)
        left, wanted = missing(evidence)
        print(f"{checklist(evidence)}\n\n{wanted - left} of {wanted} runs are complete; figures and numbers are in {folder}\n")
    if "--draw-only" in switches and (left_out := survey.left_out()):
        _note(left_out)
    if trouble:
        _fail(trouble, 1)


def plan(words: list[str]) -> None:
    from emc.training.plan import available_bytes, plan, readable

    config, _ = _configured("plan", words)
    needed = plan(config.method, config.env, config.budget, len(config.seeds))
    for name in ("replay", "memory", "networks", "peak"):
        print(f"{name:<10}{readable(vars(needed)[name]):>12}{'  (estimate)' if name == 'peak' else ''}")
    if (free := available_bytes()) is not None:
        verdict = (
            "" if needed.peak <= free else "  it does not fit: lower --replay-episodes, --batch-episodes, --memory.capacity or --seeds"
        )
        print(f"{'free':<10}{readable(free):>12}{verdict}")


# --------------------------------------------------------------------------------------------------------- looking at runs


@dataclasses.dataclass(frozen=True)
class EvaluateFlags:
    """Complete greedy episodes with the trained agents."""

    episodes: int = 32
    seed: int = 0  # of the episodes' randomness
    trained_seed: int | None = None  # which agents, where the run trained several; default: the first


def evaluate(words: list[str]) -> None:
    import jax
    import jax.numpy as jnp
    import numpy as np

    from emc.envs.hosted import Hosted
    from emc.envs.workers import Workers
    from emc.training.host_loop import play_hosted
    from emc.training.rollout import play

    flags = _parse("emc evaluate RUN", EvaluateFlags, _take(words, "RUN"))
    if flags.episodes < 1:
        raise UserError(f"--episodes {flags.episodes} must be at least 1")
    if flags.episodes > MOST_EPISODES:
        raise UserError(f"--episodes {flags.episodes} is more than anybody needs; the most is {MOST_EPISODES}")
    policy = _loaded(Path(words[0]), flags.trained_seed)
    prepare_jax()
    key, never = jax.random.key(flags.seed), jnp.zeros(())
    if isinstance(policy.env, Hosted):
        with contextlib.closing(Workers(policy.env, min(flags.episodes, os.cpu_count() or 1))) as workers:
            blocks = [play_hosted(workers, policy.actors, key, never, flags.episodes)[1]]
    else:  # only outcomes leave the compiled program, and not all episodes are played at once: whole ones would fill the memory
        size = min(flags.episodes, SIDE_BY_SIDE)
        some = jax.jit(lambda env, actors, key: play(env, actors, key, never, size)[1])
        blocks = [some(policy.env, policy.actors, jax.random.fold_in(key, i)) for i in range(-(-flags.episodes // size))]
    outcome = jax.tree.map(lambda *parts: np.concatenate(parts)[: flags.episodes], *blocks)
    returns = outcome.episode_return
    if policy.spec.winnable:
        print(f"win rate {np.mean(outcome.won):.3f}")
    print(f"return   {np.mean(returns):.3f} (from {returns.min():.3f} to {returns.max():.3f})")
    print(f"length   {np.mean(outcome.length):.1f}")
    print(f"episodes {flags.episodes}, greedy, complete, agents of seed {policy.seed} after {policy.step:,} steps")


def _loaded(run: Path, trained_seed: int | None) -> Any:
    """A run's agents; what had to be passed over to find them is said."""
    from emc.api import load

    policy = load(run, trained_seed)
    for warning in policy.warnings:
        print(f"emc: skipped a checkpoint: {warning}", file=sys.stderr)
    return policy


@dataclasses.dataclass(frozen=True)
class RenderFlags:
    """An episode of the trained agents as a GIF."""

    out: Path | None = None  # default: episode.gif in the run directory
    seed: int = 0  # of the episode's randomness
    trained_seed: int | None = None  # which agents, where the run trained several; default: the first
    vision: int | None = None  # an agent: shade what it does not see (battles)


def render(words: list[str]) -> None:
    from emc.runs.directory import EPISODE

    flags = _parse("emc render RUN", RenderFlags, _take(words, "RUN"))
    prepare_jax()
    print(_rendered(Path(words[0]), flags.out or Path(words[0]) / EPISODE, flags.seed, flags.trained_seed, flags.vision))


def _rendered(run: Path, out: Path, seed: int = 0, trained_seed: int | None = None, vision: int | None = None) -> Path:
    import jax

    from emc.envs.base import Drawn, Environment
    from emc.report.animation import animate, record

    policy = _loaded(run, trained_seed)
    env = policy.env
    if not isinstance(env, Environment):
        raise UserError(f"{run}: its environment runs in worker processes and cannot be drawn here")
    if not isinstance(env, Drawn):
        raise UserError(f"{run}: its environment cannot be drawn. Give it the methods occupancy, draw and draw_outlines of emc.envs.base")
    animate(env, record(env, policy.actors, jax.random.key(seed)), out, vision)
    return out


@dataclasses.dataclass(frozen=True)
class ReportFlags:
    """One self-contained page about one or several runs, or about all runs in a directory, which is `runs` if none is named.

    With --watch the page is not written but served on a loopback address, and made anew while runs go on, until Ctrl-C.
    """

    out: Path | None = None  # default: report.html in the directory, or here for several
    episodes: int = 4  # runs to render an episode of, the best of each method first; older ones are shown too. --watch renders none
    watch: bool = False
    port: int = 8642  # of --watch; 0: any that is free


def report(words: list[str]) -> None:
    from emc.report.site import Site

    values, roots = _selections([word for word in words if word != "--watch"], {"out", "episodes", "port"})
    unknown = [word for word in roots if word.startswith("-")]
    given = [word for name, value in values.items() for word in (f"--{name}", value)]
    flags: ReportFlags = _parse("emc report DIR ...", ReportFlags, [*given, *unknown])
    if not roots:
        if not Path("runs").is_dir():
            raise UserError("RUN expected: name one or several run directories, or a directory that holds some. See emc --help")
        roots = ["runs"]
    if flags.episodes < 0:
        raise UserError(f"--episodes {flags.episodes} must be at least 0")
    paths = [Path(root) for root in roots]
    if "--watch" not in words:
        if "port" in values:
            raise UserError("--port belongs to --watch, which serves the page instead of writing it")
        prepare_jax()
        print(_reported(paths, flags.out, flags.episodes))
        return
    if flags.out is not None:
        raise UserError("--watch serves the page and writes no file: leave out either --watch or --out")
    _watched(Site(paths), flags)


def _watched(site: Any, flags: ReportFlags) -> None:
    """Serve until Ctrl-C."""
    import threading

    from emc.report.watch import Watch

    for root in site.roots:
        if not root.is_dir():
            raise UserError(f"{root}: no such directory. Name a run directory, or one that holds some or will.")

    watch = Watch(site, flags.port, _say_left_out)
    print(f"{watch.address} (Ctrl-C ends it)", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        watch.run(threading.Event())


@dataclasses.dataclass(frozen=True)
class ExportFlags:
    """The tests of runs, named or found below a directory, in the JSON format of marl-eval."""

    out: Path = Path("marl-eval.json")


def export(words: list[str]) -> None:
    from emc.report.animation import written_whole
    from emc.report.curves import group_runs
    from emc.report.marl_eval import marl_eval
    from emc.report.site import Site
    from emc.runs.directory import explained

    chosen, roots = _selections(words, {"out"})
    if unknown := [word for word in roots if word.startswith("-")]:
        _parse("emc export RUN ...", ExportFlags, unknown)
    if not roots:
        raise UserError("RUN expected: name one or several run directories, or a directory that holds some. See emc --help")
    runs, out = Site([Path(root) for root in roots]).runs(), Path(chosen.get("out") or "marl-eval.json")
    if not runs:
        raise UserError(f"{', '.join(roots)}: no runs there. Name run directories, or a directory that holds some")
    tree = marl_eval(group_runs(runs))
    with explained(out), written_whole(out) as beside:
        beside.write_text(json.dumps(tree) + "\n")
    print(out)


def _reported(paths: list[Path], out: Path | None, episodes: int) -> Path:
    from emc.report.page import write_report
    from emc.report.site import Site

    site = Site(paths)
    runs = site.runs()
    for problem in site.problems:
        _say_left_out(problem)
    if not runs:
        raise UserError(f"{', '.join(map(str, paths))}: no runs in there. Name run directories, or a directory that holds some.")
    out = out or (paths[0] / "report.html" if len(paths) == 1 else Path("report.html"))
    _render_some(runs, episodes)
    write_report(runs, out, say=_say_left_out)
    return out


def _say_left_out(what: str) -> None:
    print(f"emc: left out: {what}", file=sys.stderr, flush=True)


def _render_some(runs: Sequence[Any], most: int) -> None:
    """Animate an episode of some runs, the best of each method first."""
    from emc.report.site import best_first
    from emc.runs.directory import EPISODE

    playable = [run for run in best_first(runs) if run.steps()] if most else []
    if most and not playable:
        print("no animation: there is no checkpoint to play from", file=sys.stderr)
    for run in playable[:most]:
        try:
            _rendered(run.path, run.path / EPISODE)
        except UserError as error:  # the page is worth having without an episode
            print(f"no animation: {error}", file=sys.stderr)


NUMBERS = ("gamma", "epsilon", "optimiser", "learning_rate", "gradient_clip", "batch_episodes", "episodes_per_update", "target_interval")


def methods(words: list[str]) -> None:
    from emc.curiosity import NoCuriosity
    from emc.memory import NoMemory
    from emc.methods import METHODS, Method

    _parse("emc methods", Nothing, words)
    usual = Method()
    for name, entry in METHODS.items():
        method = entry.method
        parts = (method.policy, method.mixer, method.loss, method.curiosity, method.memory, method.replay)
        composed = " + ".join(_in_short(part) for part in parts if part not in (NoCuriosity(), NoMemory()))
        changed = [field for field in NUMBERS if vars(method)[field] != vars(usual)[field]]
        own = "".join(f", {field}={_in_short(vars(method)[field])}" for field in changed)
        print(f"{name:<12}  {entry.about} ({entry.paper}): {composed}{own}")


def _in_short(part: Any) -> str:
    """A part's name and what of it is not as usual; anything else as it is."""
    if not dataclasses.is_dataclass(part):
        return str(part)
    usual = type(part)()
    changed = [
        f"{field.name}={_in_short(value)}"
        for field in dataclasses.fields(part)
        if (value := getattr(part, field.name)) != getattr(usual, field.name)
    ]
    return type(part).__name__ + (f"({', '.join(changed)})" if changed else "")


def envs(words: list[str]) -> None:
    from emc.envs import TASKS

    _parse("emc envs", Nothing, words)
    width = max(map(len, TASKS))
    for name, entry in TASKS.items():
        print(f"{name:<{width}}  {entry.description}")
    families = ("smax/MAP", "jaxmarl/NAME", "pettingzoo/MODULE", "smac/MAP", "smacv2/MAP", "smaclite/MAP", "pymarl/module:callable")
    print(f"\nOf other packages, where installed: {', '.join(families)}. Your own: module:Class (docs/your-environment.md).")


def check_env(words: list[str]) -> None:
    from emc.envs import make_env
    from emc.envs.check import check
    from emc.envs.hosted import Hosted

    rest = _take(words, "ENV")
    usual = make_env(words[0])
    flags = dataclasses.make_dataclass("Flags", [("env", type(usual))], frozen=True)
    env = _parse(f"emc check-env {words[0]}", flags, rest, flags(usual)).env
    findings = check(env)
    if all(finding.kept for finding in findings) and not isinstance(env, Hosted):
        findings.append(_plays_as_in_training(env))
    for finding in findings:
        word = "BROKEN" if not finding.kept else "remark" if finding.wish else "kept  "
        print(f"{word}  {finding.promise}{f': {finding.detail}' if finding.detail else ''}")
    if broken := sum(not finding.kept for finding in findings):
        raise UserError(f"{words[0]} breaks {broken} of {len(findings)} promises; docs/your-environment.md shows how to keep them")


def _plays_as_in_training(env: Any) -> Any:
    """The last promise: what trains can play it. Environments cannot test this themselves, since they know nothing of training."""
    import jax
    import jax.numpy as jnp

    from emc.envs.check import Finding
    from emc.methods import make_method
    from emc.training.learner import actors_of, init_learner
    from emc.training.rollout import play

    method, key = make_method("vdn"), jax.random.key(0)
    try:
        actors = actors_of(method, init_learner(method, env.spec, key))
        jax.block_until_ready(jax.jit(lambda env: play(env, actors, key, jnp.ones(()), 2))(env))
    except Exception as error:  # whatever the user's class does wrong
        return Finding("it can be trained on", kept=False, detail=f"{type(error).__name__}: {str(error).splitlines()[0]}")
    return Finding("it can be trained on", kept=True)


def doctor(words: list[str]) -> None:
    from emc.doctor import diagnosis

    _parse("emc doctor", Nothing, words)
    for line in diagnosis():
        print(line)


@dataclasses.dataclass(frozen=True)
class Nothing:
    """There is nothing to set."""


# -------------------------------------------------------------------------------------------------------------------- demo


@dataclasses.dataclass(frozen=True)
class DemoFlags:
    """Train EMC-VDN on the gridworld (p = 2) until it wins, then write a report page."""

    runs: Path = Path("demo")
    seed: int = 2
    steps: int = 300_000  # at most


def demo(words: list[str]) -> None:
    from emc.demo import run_demo

    flags = _parse("emc demo", DemoFlags, words)
    prepare_jax()
    run = run_demo(flags.runs, flags.seed, flags.steps)
    print(f"open this page: {_reported([run], None, 1).resolve()}")


def prepare_jax() -> None:
    """Keep compiled programs between runs; the user's own setting wins."""
    import jax

    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        jax.config.update("jax_compilation_cache_dir", str(cache / "emc" / "xla"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


COMMANDS: Mapping[str, Callable[[list[str]], None]] = {
    "train": train,
    "resume": resume,
    "evaluate": evaluate,
    "render": render,
    "report": report,
    "plan": plan,
    "methods": methods,
    "export": export,
    "sweep": sweep,
    "reproduce": reproduce,
    "envs": envs,
    "check-env": check_env,
    "doctor": doctor,
    "demo": demo,
}
