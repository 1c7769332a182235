"""Tasks where exploration is the bottleneck: what the best play earns, how often random play succeeds, and what is hard about each."""

from __future__ import annotations

from emc.envs.base import HasSpec
from emc.envs.foraging import Foraging
from emc.envs.gridworld import Gridworld
from emc.envs.predator_prey import PredatorPrey
from emc.errors import UserError
from emc.suite import boards, games, gridworld
from emc.suite.optimum import GAMMA, Optimum, Play
from emc.user_input import check_number

__all__ = ["GAMMA", "Optimum", "Play", "known_optimum"]


def known_optimum(env: HasSpec, gamma: float = GAMMA, whole: bool = True) -> Optimum:
    """What the best play of an environment earns, only `best` if not the `whole`; an error where nothing is known."""
    check_number("gamma", gamma, "give a discount, such as the default 0.9.", low=0.0, high=1.0)
    if isinstance(env, Gridworld):
        return gridworld.solve(env, gamma, whole)
    if isinstance(env, boards.Board):
        return boards.solve(env, gamma)
    if isinstance(env, games.Game):
        return games.solve(env, gamma)
    if isinstance(env, PredatorPrey):
        captures = min(env.n_prey, env.n_agents // 2)
        return _bound(
            captures * max(env.capture_reward, 0.0), gamma, f"every capture takes two predators out of the game: {captures} at most"
        )
    if isinstance(env, Foraging):
        return _bound(1.0, gamma, "all food pays 1 together")
    raise UserError(f"no optimum of {type(env).__name__} is known: its states are too many to go through, and no bound is written down")


def _bound(highest: float, gamma: float, how: str) -> Optimum:
    """No play earns more, and whether one earns as much is not known."""
    return Optimum(Play(highest, highest, None), gamma, f"not computed; {how}", exact=False)
