"""What the words of `emc train` mean: METHOD ENV --field value ... as the configuration of a run."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, UseAppendAction, arg

from emc.envs import make_env
from emc.envs.registry import task
from emc.errors import UserError
from emc.flags import parse, parse_known, parse_some
from emc.methods import PARTS, PRESETS, Method, Preset, with_parts
from emc.runs.config import MOST_SEEDS, RunConfig, budget_of
from emc.training.loop import Budget

ABOUT = """{what} METHOD (one of `emc methods`) on ENV (one of `emc envs`, or your own as module:Class).

Examples:
  emc {command} emc-vdn gridworld
  emc {command} qmix 3m --steps 500000 --gamma 0.98 --mixer.embed 64
  emc {command} qmix gridworld --curiosity rnd --memory episodic --env.penalty 2 --seeds 4
  emc {command} emc-vdn gridworld --mixer my_parts:Mine --mixer.width 8
  emc {command} emc-vdn gridworld --start-from runs/gridworld/vdn/20260101-120000-abc123

Constants of METHOD: --preset {{{presets}}}.
Parts of METHOD, whose fields are flags (--mixer.embed 64), can be replaced, also by your own, as module:Class:
{parts}
`emc {command} METHOD ENV --help` lists every field."""


@dataclasses.dataclass(frozen=True)
class Named:
    """What decides which other flags there are."""

    method: Annotated[str, Positional, arg(metavar="METHOD")]  # one of `emc methods`
    env: Annotated[str, Positional, arg(metavar="ENV")]  # one of `emc envs`, or your own as module:Class
    preset: str = ""  # whose constants; default: those that ENV names
    policy: str = ""  # how agents decide, in place of the method's own way
    loss: str = ""  # what the team's value is fitted to
    optimiser: str = ""
    mixer: str = ""  # how the agents' values make the team's
    curiosity: str = ""  # what earns an intrinsic reward
    memory: str = ""  # what is remembered of the best returns
    replay: str = ""  # which stored episodes to learn from


@dataclasses.dataclass(frozen=True)
class Where:
    """Where a run is kept, and which seeds it trains."""

    seed: int = 0  # the first seed
    seeds: int = 1  # how many, trained side by side in one program
    runs: Path = Path("runs")  # directory that holds all runs
    checkpoint_minutes: float = 5.0
    keep_checkpoints: int = 2
    start_from: Path | None = None  # a run whose networks to begin with
    trust: UseAppendAction[tuple[str, ...]] = ()  # code outside emc that the run of --start-from may be made of, as module:Class
    log: str = ""  # where else numbers go, with commas between: tensorboard, wandb, mlflow, csv, or your own as module:Class
    tensorboard: bool = False  # short for --log tensorboard


FLAT: Any = arg(name="")  # fields of a record as flags without its name


@dataclasses.dataclass(frozen=True)
class Shared:
    """The flags that there are for every method and environment."""

    named: Annotated[Named, FLAT]
    where: Annotated[Where, FLAT]
    budget: Annotated[Budget, FLAT]


def configure(words: Sequence[str]) -> RunConfig:
    """What `emc train` makes of METHOD ENV and flags; parsing takes a tenth of a second, and claims and sweeps repeat themselves."""
    return _configure(tuple(words))


@functools.lru_cache(10_000)
def _configure(words: tuple[str, ...]) -> RunConfig:
    return configured("train", "Train", words)[0]


def configured(command: str, what: str, words: Sequence[str]) -> tuple[RunConfig, Where, Preset]:
    """METHOD ENV and every flag after them."""
    parts = "\n".join(f"  --{kind} {{{','.join(table)}}}" for kind, table in PARTS.items())
    about = ABOUT.format(what=what, command=command, parts=parts, presets=",".join(PRESETS))
    named, rest = parse_known(f"emc {command}", Named, words, about, Shared)
    method = _method(named, rest)
    env = make_env(named.env)
    flags = _flags(
        ("where", Annotated[Where, FLAT]), ("budget", Annotated[Budget, FLAT]), ("env", type(env)), ("method", Annotated[Method, FLAT])
    )
    usual = flags(Where(), budget_of(task(named.env)), env, method)
    prog = f"emc {command} {named.method} {named.env}"
    given: Any = _with_named_flags(prog, usual, rest) or parse(prog, flags, rest, usual, about)
    where: Where = given.where
    for field, value in task(named.env).fields.items():
        if getattr(given.env, field) != value:
            raise UserError(f"--env.{field} {getattr(given.env, field)} is not {named.env}: name that {field} instead of {named.env}")
    if not 1 <= where.seeds <= MOST_SEEDS or where.seed < 0:
        raise UserError(f"--seeds {where.seeds} must be at least 1 and at most {MOST_SEEDS}, and --seed {where.seed} at least 0")
    seeds = tuple(range(where.seed, where.seed + where.seeds))
    return (
        RunConfig(named.method, given.method, named.env, given.env, given.budget, seeds, str(where.start_from or "")),
        where,
        preset_of(named),
    )


@functools.lru_cache(256)
def _flags(*fields: tuple[str, Any]) -> type[Any]:
    """A record of records; the parser remembers what it has read of a class."""
    return dataclasses.make_dataclass("Flags", fields, frozen=True)


def _with_named_flags(prog: str, usual: Any, words: Sequence[str]) -> Any:
    """The usual with other steps, seeds, or fields of the parts that the words name; None where more is said.

    The flags of a whole method take far longer to parse than those of two or three of its parts.
    """
    named = {word[2:].partition(".")[0] for word in words if word.startswith("--") and "." in word}
    parts = {name: part for name, part in vars(usual.method).items() if name in named and dataclasses.is_dataclass(part)}
    env = {"env": usual.env} if "env" in named else {}
    fields = ((name, type(value)) for name, value in (env | parts).items())
    some = _flags(("where", Annotated[Where, FLAT]), ("budget", Annotated[Budget, FLAT]), *fields)
    try:
        given, others = parse_some(prog, some, words, some(usual.where, usual.budget, *env.values(), *parts.values()))
        if others:
            return None
        method = dataclasses.replace(usual.method, **{name: vars(given)[name] for name in parts})
    except UserError:  # said with all flags in view
        return None
    return dataclasses.replace(usual, where=given.where, budget=given.budget, method=method, env=given.env if env else usual.env)


def preset_of(named: Named) -> Preset:
    """Whose constants, and why."""
    return Preset.of(named.preset, named.env, task(named.env).preset)


def _method(named: Named, rest: Sequence[str]) -> Method:
    """The method with the parts that were chosen for it; `rest` may only set fields of parts that it then has."""
    preset = preset_of(named).name
    method = with_parts(named.method, {kind: name for kind in PARTS if (name := vars(named)[kind])}, preset, named.env)
    for kind, table in PARTS.items():
        if isinstance(getattr(method, kind), type(table.get("none"))) and any(word.startswith(f"--{kind}.") for word in rest):
            some = ",".join(name for name in table if name != "none")
            raise UserError(f"{named.method} has no {kind} whose fields could be set: add one first with --{kind} {{{some}}}")
    return method
