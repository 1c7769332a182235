"""`emc render RUN`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import jax
from tyro.conf import Positional, arg

from emc.api import LoadedPolicy
from emc.commands.common import Trusting, loaded, prepare_jax
from emc.envs.base import Drawable, Environment
from emc.errors import MISTAKES, UserError, in_short
from emc.flags import parse
from emc.report.animation import animate, record
from emc.runs.config import outside
from emc.runs.directory import EPISODE, must_be_outside_runs
from emc.user_input import check_size, printable

ABOUT = """An episode of the trained agents as a GIF.

Examples:
  emc render runs/gridworld/emc-vdn/20260101-120000-abc123
  emc render RUN --seed 4 --out won.gif
  emc render RUN --vision 0
  emc render gridworld --policy shipped"""


@dataclasses.dataclass(frozen=True)
class Flags(Trusting):
    """An episode of the trained agents as a GIF."""

    run: Annotated[Path, Positional, arg(metavar="RUN")]  # directory of the run; with --policy a task
    out: Path | None = None  # default: episode.gif in the run directory, or TASK.gif here
    policy: str = ""  # shipped: the agents that come with emc for the task
    seed: int = 0  # of the episode's randomness
    trained_seed: int | None = None  # which agents, where the run trained several; default: the first
    vision: int | None = None  # an agent: shade what it does not see (battles)


def main(words: list[str]) -> None:
    flags: Flags = parse("emc render", Flags, words, about=ABOUT)
    prepare_jax()
    out = flags.out or (Path(f"{flags.run.name}.gif") if flags.policy else flags.run / EPISODE)
    path = drawn(loaded(flags.run, flags.trained_seed, flags.trust, flags.policy), str(flags.run), out, flags.seed, flags.vision)
    print(printable(str(path)))


def drawn(policy: LoadedPolicy, name: str, out: Path, seed: int = 0, vision: int | None = None) -> Path:
    """Draw an episode of trained agents."""
    check_size("--seed", seed, "name another one", low=0)
    env = policy.env
    must_be_outside_runs(out)
    if not isinstance(env, Environment):
        raise UserError(f"{name}: its environment runs in worker processes and cannot be drawn here")
    if not isinstance(env, Drawable):
        raise UserError(f"{name}: its environment cannot be drawn. Give it the method draw of emc.envs.base.Drawable")
    try:
        animate(env, record(env, policy.actors, jax.random.key(seed)), out, vision)
    except UserError:
        raise
    except MISTAKES as error:  # whatever the user's class does wrong
        if not outside(env):
            raise
        raise UserError(f"{name}: its environment cannot be drawn ({in_short(error)})") from error
    return out
