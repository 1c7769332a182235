"""`emc optimum ENV`."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from tyro.conf import Positional, arg

from emc.commands.common import prepare_jax
from emc.envs import make_env
from emc.envs.registry import task
from emc.envs.sizes import check_sizes
from emc.errors import UserError
from emc.flags import parse, parse_known
from emc.suite import GAMMA, known_optimum

ABOUT = """What the best possible play earns, exactly where the states can be gone through.

Examples:
  emc optimum gridworld
  emc optimum gridworld --env.penalty 1 --gamma 0.99
  emc optimum push-box"""


@dataclasses.dataclass(frozen=True)
class Named:
    """What decides which other flags there are."""

    env: Annotated[str, Positional, arg(metavar="ENV")]  # one of `emc envs`, or your own as module:Class
    gamma: float = GAMMA  # the discount that the play is best for


def main(words: list[str]) -> None:
    named, rest = parse_known("emc optimum", Named, words, ABOUT)
    usual = make_env(named.env)
    kind = dataclasses.make_dataclass("Flags", [("env", type(usual))], frozen=True)
    env: Any = parse(f"emc optimum {named.env}", kind, rest, kind(usual), ABOUT).env
    for field, value in task(named.env).fields.items():
        if getattr(env, field) != value:
            raise UserError(f"--env.{field} {getattr(env, field)} is not {named.env}: leave it out, or name another task")
    check_sizes(env)
    prepare_jax()
    for line in _told(known_optimum(env, named.gamma)):
        print(line)


def _told(best: Any) -> list[str]:
    """An optimum in words."""
    if not best.exact:
        return [f"return at most {best.best.episode_return:g} ({best.how})"]
    lines = [f"exact, by {best.how}"]
    if best.steps is not None:
        lines.append(f"shortest success    {best.steps} steps")
    lines.append(f"{f'best at gamma {best.gamma:g}':<19} {_play(best.best)}")
    own = "the same: each agent can play its part of it with what it sees"
    if best.decentralised is not None:
        own = f"{_play(best.decentralised)}; the best found for agents that act on what they see"
    lines.append(f"decentralised       {own}")
    if best.best_return is not None:
        lines.append(f"highest return      {best.best_return:.6g}")
    if best.best_win_rate is not None:
        lines.append(f"highest win rate    {best.best_win_rate:.4f}, whatever it costs")
    return lines


def _play(play: Any) -> str:
    won = "" if play.win_rate is None else f", wins {play.win_rate:.4f}"
    return f"value {play.value:.6g}, return {play.episode_return:.6g}{won}"
