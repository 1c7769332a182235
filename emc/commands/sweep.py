"""`emc sweep FILE`, or with flags in place of the file."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, UseAppendAction, arg

from emc.commands.many import ManyFlags
from emc.commands.messages import fail
from emc.errors import UserError
from emc.flags import parse
from emc.sweeps import Sweep, jobs_of, read_sweep, seeds_of
from emc.user_input import printable

ABOUT = """Every method on every environment, with every setting and seed: a run each, as many at a time as there are cores.

The same command again does only what is missing. What follows `--` goes to every run. Instead of flags, a TOML file may say methods, envs,
seeds, flags, together and [set].

Examples:
  emc sweep --methods vdn,qmix --envs gridworld --seeds 6 -- --steps 200000
  emc sweep --methods vdn --envs gridworld --seeds 3,7,12
  emc sweep --methods emc-vdn --envs gridworld --set env.penalty=0,1,2 --set gamma=0.9,0.99 --dry-run
  emc sweep penalties.toml --workers 4

penalties.toml:
  methods = ["emc-vdn", "vdn --replay prioritised"]
  envs = ["gridworld"]
  seeds = 6
  flags = "--steps 200000"
  [set]
  env.penalty = [0, 1, 2]"""


@dataclasses.dataclass(frozen=True)
class Flags(ManyFlags):
    """Many runs."""

    file: Annotated[tuple[Path, ...], Positional, arg(metavar="[FILE]")] = ()  # a TOML file, in place of the following
    methods: str = ""  # names with commas between them
    envs: str = ""  # names with commas between them
    seeds: str | None = None  # how many, from 0 on, or which, with commas between them; default: 1
    set: UseAppendAction[tuple[tuple[str, ...], ...]] = ()  # field=value1,value2: every value with everything else


def main(words: list[str]) -> None:
    words, common = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    given = [word.partition("=")[0] for word in words if word.startswith("--")]
    if twice := [flag for flag in given if given.count(flag) > 1 and flag not in ("--set", "--trust")]:
        raise UserError(f"{twice[0]} is said twice: say it once, with all that belongs to it")
    flags: Flags = parse("emc sweep", Flags, words, about=ABOUT)
    flags.check()
    wanted = _sweep_of(flags, common)
    engine = flags.make_engine()
    each = jobs_of(wanted)
    jobs = flags.grouped(each, engine, wanted.together)
    if flags.dry_run:
        flags.say_what_is_left(jobs, engine)
        return
    if trouble := flags.run_all(jobs, engine):
        fail(trouble, 1)
    print(f"all {len(each)} runs are done, in {printable(str(flags.runs))}")


def _seeds(text: str) -> int | list[int]:
    """How many, or which."""
    try:
        return [int(seed) for seed in text.split(",") if seed.strip()] if "," in text else int(text)
    except ValueError:
        raise UserError(f"--seeds {text!r} is neither a number nor a list such as 1,2,5") from None


def _sweep_of(flags: Flags, common: Sequence[str]) -> Sweep:
    if len(flags.file) > 1:
        raise UserError(f"one file at a time: got {', '.join(map(str, flags.file))}")
    if flags.file:
        if flags.methods or flags.envs or flags.seeds is not None or flags.set or common:
            raise UserError(f"say what to sweep in {flags.file[0]} or in flags, not in both")
        return read_sweep(flags.file[0])
    settings: list[tuple[str, tuple[str, ...]]] = []
    for word in (word for words in flags.set for word in words):
        field, equals, values = word.partition("=")
        if not equals:
            raise UserError(f"--set {word} is not field=value1,value2")
        settings.append((field, tuple(filter(None, values.split(",")))))
    methods, envs = (tuple(filter(None, (name.strip() for name in text.split(",")))) for text in (flags.methods, flags.envs))
    return Sweep(
        methods, envs, seeds_of(_seeds("1" if flags.seeds is None else flags.seeds), "--seeds"), tuple(settings), shlex.join(common)
    )
