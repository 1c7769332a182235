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
from emc.errors import UserError
from emc.flags import parse
from emc.report.animation import animate, record
from emc.runs.directory import EPISODE
from emc.user_input import check_size

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
    print(drawn(loaded(flags.run, flags.trained_seed, flags.trust, flags.policy), str(flags.run), out, flags.seed, flags.vision))


def drawn(policy: LoadedPolicy, name: str, out: Path, seed: int = 0, vision: int | None = None) -> Path:
    """Draw an episode of trained agents."""
    check_size("--seed", seed, "name another one", low=0)
    env = policy.env
    if not isinstance(env, Environment):
        raise UserError(f"{name}: its environment runs in worker processes and cannot be drawn here")
    if not isinstance(env, Drawable):
        raise UserError(f"{name}: its environment cannot be drawn. Give it the method draw of emc.envs.base.Drawable")
    animate(env, record(env, policy.actors, jax.random.key(seed)), out, vision)
    return out
