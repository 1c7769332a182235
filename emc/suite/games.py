"""Matrix games solved by dynamic programming over their tables."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from emc.envs.matrix import TWO_STEPS, NStepGame, OneStepGame, TwoStepGame
from emc.envs.repeated import Repeated
from emc.errors import UserError
from emc.suite.optimum import Optimum, Play

Game = OneStepGame | TwoStepGame | NStepGame | Repeated
Pair = tuple[int, int]
MOST_STEPS = 3_000


def solve(env: Game, gamma: float) -> Optimum:
    """The joint actions of the highest discounted return; nothing is random, so that each agent can know its own."""
    if env.spec.episode_limit > MOST_STEPS:
        raise UserError(f"a game of {env.spec.episode_limit:,} steps is too long to be solved step by step: the most is {MOST_STEPS:,}")
    plan, rewards = _best(env, gamma)
    _, most = _best(env, 1.0)
    value = float(np.dot(rewards, gamma ** np.arange(len(rewards))))
    total, win = float(np.sum(rewards)), None
    if env.spec.winnable:
        win = float(total >= np.sum(most))
    return Optimum(
        best=Play(value, total, win),
        gamma=gamma,
        how=f"dynamic programming over its tables and {len(plan)} steps",
        best_return=float(np.sum(most)),
        best_win_rate=None if win is None else 1.0,
        plan=tuple(plan),
    )


def _best(env: Game, gamma: float) -> tuple[list[Pair], list[float]]:
    """A best plan and its rewards."""
    if isinstance(env, OneStepGame):
        return _repeated(np.asarray(env.payoff, float), 1)
    if isinstance(env, Repeated):
        return _repeated(np.asarray(env.payoff, float), env.episode_limit)
    if isinstance(env, TwoStepGame):
        second = [_repeated(np.asarray(table, float), 1) for table in TWO_STEPS[1:]]
        branch = int(np.argmax([rewards[0] for _, rewards in second]))
        plan, rewards = second[branch]
        return [(branch, 0), *plan], [0.0, *rewards]
    return _n_steps(env, gamma)


def _repeated(table: Float[np.ndarray, "A A"], times: int) -> tuple[list[Pair], list[float]]:
    """What was played changes nothing that comes, so that each step is best by itself."""
    first, second = (int(index) for index in np.unravel_index(int(np.argmax(table)), table.shape))
    return [(first, second)] * times, [float(table[first, second])] * times


def _n_steps(env: NStepGame, gamma: float) -> tuple[list[Pair], list[float]]:
    """Backwards on every branch; a reward of zero ends the episode."""
    joint = [*itertools.product(range(2), range(2))]

    def tables(branch: int) -> Sequence[Float[np.ndarray, "2 2"]]:
        return [np.asarray(env.payoff(jnp.int32(branch), jnp.int32(time)), float) for time in range(env.steps)]

    best: tuple[float, list[Pair], list[float]] = (-np.inf, [], [])
    for branch, first in enumerate(joint):
        value, plan, rewards = 0.0, list[Pair](), list[float]()
        for time, table in reversed([*enumerate(tables(branch))]):
            options = joint if time else [first]  # the first joint action is the branch
            pays = [float(table[pair]) for pair in options]
            worth = [pay + gamma * value * (pay > 0) for pay in pays]
            choice = int(np.argmax(worth))
            ended = pays[choice] <= 0
            value = worth[choice]
            plan, rewards = [options[choice], *([] if ended else plan)], [pays[choice], *([] if ended else rewards)]
        best = max(best, (value, plan, rewards))
    return best[1], best[2]
