"""`emc render RUN`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import jax
from tyro.conf import Positional, arg

from emc.commands.common import Trusting, loaded, prepare_jax
from emc.envs.base import Drawable, Environment
from emc.errors import UserError
from emc.flags import parse
from emc.report.animation import animate, record
from emc.runs.directory import EPISODE
from emc.runs.trust import Trusted

ABOUT = """An episode of the trained agents as a GIF.

Examples:
  emc render runs/gridworld/emc-vdn/20260101-120000-abc123
  emc render RUN --seed 4 --out won.gif
  emc render RUN --vision 0"""


@dataclasses.dataclass(frozen=True)
class Flags(Trusting):
    """An episode of the trained agents as a GIF."""

    run: Annotated[Path, Positional, arg(metavar="RUN")]  # directory of the run
    out: Path | None = None  # default: episode.gif in the run directory
    seed: int = 0  # of the episode's randomness
    trained_seed: int | None = None  # which agents, where the run trained several; default: the first
    vision: int | None = None  # an agent: shade what it does not see (battles)


def main(words: list[str]) -> None:
    flags: Flags = parse("emc render", Flags, words, about=ABOUT)
    prepare_jax()
    print(rendered(flags.run, flags.out or flags.run / EPISODE, flags.trust, flags.seed, flags.trained_seed, flags.vision))


def rendered(run: Path, out: Path, trust: Trusted, seed: int = 0, trained_seed: int | None = None, vision: int | None = None) -> Path:
    """Draw an episode of a run's agents."""
    policy = loaded(run, trained_seed, trust)
    env = policy.env
    if not isinstance(env, Environment):
        raise UserError(f"{run}: its environment runs in worker processes and cannot be drawn here")
    if not isinstance(env, Drawable):
        raise UserError(f"{run}: its environment cannot be drawn. Give it the method draw of emc.envs.base.Drawable")
    animate(env, record(env, policy.actors, jax.random.key(seed)), out, vision)
    return out
