"""Commands that train: `train`, `resume` and `plan`; and what the words of `emc train` configure."""

from __future__ import annotations

import dataclasses
import functools
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from emc.commands.parsing import fail, parse, selections, take
from emc.errors import UserError
from emc.names import lookup


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
    from emc.runs.directory import EVENTS, RunDirectory
    from emc.runs.session import config_of, keeping_of, resume

    flags = parse("emc resume RUN", ResumeFlags, take(words, "RUN"))
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
        fail(f"stopped; everything up to step {stop.step} is kept. Go on with: emc resume {stop.run.path}", 130)
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
    from emc.methods import PARTS, PRESETS, Method, make_method
    from emc.runs.config import MOST_SEEDS, RunConfig
    from emc.training.loop import Budget

    rest = take(words, "METHOD", "ENV")
    method_name, env_name = words[:2]
    chosen, rest = selections(rest, {"preset", *PARTS})
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
    about = f"Train {method_name} on {env_name}. Constants: --preset {{{','.join(PRESETS)}}}. Swap a part: {parts}."
    given = parse(f"emc {command} {method_name} {env_name}", flags, rest, flags(Where(), budget_of(task(env_name)), env, method), about)
    where: Where = given.where
    for field, value in task(env_name).fields.items():
        if getattr(given.env, field) != value:
            raise UserError(f"--env.{field} {getattr(given.env, field)} is not {env_name}: name that {field} instead of {env_name}")
    if not 1 <= where.seeds <= MOST_SEEDS or where.seed < 0:
        raise UserError(f"--seeds {where.seeds} must be at least 1 and at most {MOST_SEEDS}, and --seed {where.seed} at least 0")
    seeds = tuple(range(where.seed, where.seed + where.seeds))
    return RunConfig(method_name, given.method, env_name, given.env, given.budget, seeds), where


def plan(words: list[str]) -> None:
    from emc.runs.sizes import planned
    from emc.training.plan import available_bytes, readable

    config, _ = _configured("plan", words)
    needed = planned(config)
    for name in ("replay", "memory", "networks", "peak"):
        print(f"{name:<10}{readable(vars(needed)[name]):>12}{'  (estimate)' if name == 'peak' else ''}")
    if (free := available_bytes()) is not None:
        verdict = (
            "" if needed.peak <= free else "  it does not fit: lower --replay-episodes, --batch-episodes, --memory.capacity or --seeds"
        )
        print(f"{'free':<10}{readable(free):>12}{verdict}")


def prepare_jax() -> None:
    """Keep compiled programs between runs; the user's own settings win."""
    import jax

    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        jax.config.update("jax_compilation_cache_dir", str(cache / "emc" / "xla"))
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
