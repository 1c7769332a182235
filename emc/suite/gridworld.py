"""The coordinated gridworld solved by dynamic programming, for every penalty and slip.

On their own sides of the wall the agents move independently of each other, each with its own slips, so that one step of a joint value
table is two matrix products for all pairs of actions. Noise on rewards has mean zero and changes no expectation. Agents that see
the whole world can play the centralised optimum. Under the other rules of vision an agent acts on the step, its own cell and the other's
if seen (a recurrent agent can count steps): `decentralise` improves such policies one decision at a time, each with the exact
distribution of worlds behind what the agent sees, so that no decision can lower the value. What it ends in is a policy that attains its
numbers, not a proof that there is no better one: it remembers nothing of what was seen before, and may end in a local optimum.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Int

from emc.envs.gridworld import MOVES, STAY, Gridworld
from emc.errors import UserError
from emc.suite.optimum import Optimum, Play

Joint = Float[np.ndarray, "n n"]  # something of every pair of cells, the first agent's and the second's
Policy = Int[np.ndarray, "T n n"]  # one agent's action at every step in every pair of cells
ACTIONS = len(MOVES)
MOST_CELLS, MOST_STEPS = 400, 3_000  # of one side, and of an episode
TIE = 1e-9  # values closer than this are equal; the win rate decides, then the order of actions


@dataclasses.dataclass(frozen=True)
class Model:
    """The game as tables. Cells of a side are numbered row by row."""

    moves: Float[np.ndarray, "2 A n n"]  # chance that an agent's action leads from one cell to another
    reward: Joint  # expected, of a step that ends in a pair of cells
    won: Bool[np.ndarray, "n n"]
    sees: Bool[np.ndarray, "2 n n"]  # whether each agent sees the other
    start: tuple[int, int]
    steps: int

    def after(self, values: Joint) -> Float[np.ndarray, "A A n n"]:
        """What is expected of the pair of cells that a pair of actions leads to."""
        first, second = (np.ascontiguousarray(own).reshape(-1, len(values)) for own in self.moves)
        joint = (first @ values) @ second.T  # two products of large matrices instead of many small ones
        return joint.reshape(ACTIONS, len(values), ACTIONS, len(values)).transpose(0, 2, 1, 3)

    def best(self, gamma: float, steps: int) -> tuple[Float[np.ndarray, "T n n"], Int[np.ndarray, "T n n"]]:
        """At each step of an episode of so many: the discounted value of the best play from there, and its joint actions."""
        value, found = np.zeros_like(self.reward), list[tuple[Joint, Int[np.ndarray, "n n"]]]()
        for _ in range(steps):
            joint = self.after(self.reward + gamma * np.where(self.won, 0.0, value)).reshape(ACTIONS**2, *value.shape)
            value = joint.max(axis=0)
            found.append((value, _first_best(joint)))
        values, actions = zip(*reversed(found), strict=True)
        return np.stack(values), np.stack(actions)

    def ahead(self, policies: tuple[Policy, Policy]) -> list[Joint]:
        """Where the agents are before each step; an episode that is won is nowhere."""
        place = np.zeros(self.won.shape)
        place[self.start] = 1.0
        found = [place]
        for first, second in zip(*policies, strict=True):
            pairs = [(a, b, place * ((first == a) & (second == b))) for a in range(ACTIONS) for b in range(ACTIONS)]
            place = sum((self.moves[0, a].T @ part @ self.moves[1, b] for a, b, part in pairs if part.any()), np.zeros_like(place))
            place = np.where(self.won, 0.0, place)
            found.append(place)
        return found[:-1]


def model_of(env: Gridworld) -> Model:
    """The tables of a gridworld."""
    rows, half = env.rows, env.columns // 2
    if rows * half > MOST_CELLS:
        raise UserError(f"a side of {rows * half} cells is too large for tables of all pairs: the most is {MOST_CELLS}")
    cells = np.stack(np.divmod(np.arange(rows * half), half), axis=1)
    if env.episode_limit > MOST_STEPS:
        raise UserError(f"an episode of {env.episode_limit:,} steps is too long for tables of all of them: the most is {MOST_STEPS:,}")
    target = cells[:, None] + MOVES
    inside = np.all((target >= 0) & (target < (rows, half)), axis=2)
    reached = np.where(inside, target[..., 0] * half + target[..., 1], np.arange(len(cells))[:, None])
    to = np.eye(len(cells))[reached]  # [cell, action, cell]
    free = inside[:, :STAY]
    share = 1.0 / (np.sum(free, axis=1) + 1)  # of each available move, and of the blank that keeps the intended action
    slipped = np.einsum("sa,sac->sc", free * share[:, None], to[:, :STAY])[:, None] + share[:, None, None] * to
    moves = np.moveaxis((1 - env.slip) * to + env.slip * slipped, 1, 0)
    own = [cells, cells + np.array((0, half))]
    on_goal = [np.all(places == goal, axis=1) for places, goal in zip(own, env.goals, strict=True)]
    won, alone = on_goal[0][:, None] & on_goal[1], on_goal[0][:, None] ^ on_goal[1]
    first, last = env.vision_area
    inside_area = [np.all((places >= first) & (places <= last), axis=1) for places in own]
    in_area = np.stack(np.broadcast_arrays(inside_area[0][:, None], inside_area[1]))
    sees = {"reversed": in_area[::-1], "origin": in_area, "pomdp": in_area & in_area[::-1], "full_observation": np.ones_like(in_area)}
    return Model(
        moves=np.stack([moves, moves]),
        reward=np.where(won, env.win_reward, np.where(alone, -env.penalty, 0.0)),
        won=won,
        sees=sees[env.vision],
        start=(0, len(cells) - 1),
        steps=env.episode_limit,
    )


def solve(env: Gridworld, gamma: float, whole: bool = True) -> Optimum:
    """The optimum with everything seen, and on the whole also the best found for what agents do see."""
    model = model_of(env)
    best = centralised(model, gamma, model.reward)
    how = f"dynamic programming over {model.won.size:,} pairs of cells and {model.steps} steps"
    if not whole:
        return Optimum(evaluate(model, best, gamma), gamma, how)
    most = evaluate(model, centralised(model, 1.0, model.reward), 1.0)
    surest = evaluate(model, centralised(model, 1.0, model.won.astype(float)), 1.0)
    own = best if model.sees.all() or env.slip == 0 else decentralise(model, best, gamma)  # without chance nothing need be seen
    return Optimum(
        best=evaluate(model, best, gamma),
        gamma=gamma,
        how=how,
        best_return=most.episode_return,
        best_win_rate=surest.win_rate,
        decentralised=None if own is best else evaluate(model, own, gamma),
        policy=own,
    )


def centralised(model: Model, gamma: float, reward: Joint) -> tuple[Policy, Policy]:
    """The actions of the highest discounted sum of a reward; among equal ones those that win most."""
    value, win = np.zeros_like(reward), np.zeros_like(reward)
    chosen: list[Int[np.ndarray, "n n"]] = []
    for _ in range(model.steps):
        value = model.after(reward + gamma * np.where(model.won, 0.0, value)).reshape(-1, *reward.shape)
        win = model.after(np.where(model.won, 1.0, win)).reshape(-1, *reward.shape)
        action = _first_best(np.where(value >= np.max(value, axis=0) - TIE, win, -1.0))
        chosen.append(action)
        value, win = (np.take_along_axis(table, action[None], axis=0)[0] for table in (value, win))
    first, second = np.divmod(np.array(chosen[::-1]), ACTIONS)
    return first, second


def evaluate(model: Model, policies: tuple[Policy, Policy], gamma: float) -> Play:
    """What two policies come to, exactly."""
    value, total, win = (np.zeros(model.won.shape) for _ in range(3))
    for first, second in zip(policies[0][::-1], policies[1][::-1], strict=True):
        going_on = ~model.won
        value = _chosen(model.after(model.reward + gamma * going_on * value), first, second)
        total = _chosen(model.after(model.reward + going_on * total), first, second)
        win = _chosen(model.after(np.where(model.won, 1.0, win)), first, second)
    return Play(*(float(table[model.start]) for table in (value, total, win)))


def decentralise(model: Model, policies: tuple[Policy, Policy], gamma: float, most_rounds: int = 60) -> tuple[Policy, Policy]:
    """Policies of what each agent sees, from any others: every decision is the best one for the worlds that may be behind it."""
    views = [_views(model, agent) for agent in (0, 1)]
    best, last = policies, -np.inf
    for _ in range(most_rounds):
        where = model.ahead(best)
        value = np.zeros(model.won.shape)
        first, second = best[0].copy(), best[1].copy()
        for time in range(model.steps - 1, -1, -1):
            q = model.after(model.reward + gamma * np.where(model.won, 0.0, value))
            weight = where[time] + 1e-12  # what never happens is decided as if all of it were equally likely
            for _ in range(2):
                second_chosen = np.take_along_axis(q, second[time][None, None], axis=1)[:, 0]
                first[time] = _decided(second_chosen, weight, views[0])
                first_chosen = np.take_along_axis(q, first[time][None, None], axis=0)[0]
                second[time] = _decided(first_chosen, weight, views[1])
            value = _chosen(q, first[time], second[time])
        best = (first, second)
        if value[model.start] <= last + 10 * TIE:
            break
        last = value[model.start]
    return best


def _views(model: Model, agent: int) -> Int[np.ndarray, "n n"]:
    """A number for what an agent sees in each pair of cells: its own, and the other's or that it is out of sight."""
    n = len(model.won)
    own, other = np.indices((n, n)) if agent == 0 else np.indices((n, n))[::-1]
    return own * (n + 1) + np.where(model.sees[agent], other, n)


def _decided(q: Float[np.ndarray, "A n n"], weight: Joint, view: Int[np.ndarray, "n n"]) -> Int[np.ndarray, "n n"]:
    """The best action for everything that looks the same."""
    total = np.bincount(view.reshape(-1), weight.reshape(-1))
    means = np.stack([np.bincount(view.reshape(-1), (weight * own).reshape(-1)) for own in q]) / np.where(total > 0, total, 1.0)
    return _first_best(means)[view]


def _first_best(options: Float[np.ndarray, "options *place"]) -> Int[np.ndarray, "*place"]:
    """The first of the best options: the same on every machine, however it rounds."""
    return np.argmax(options >= np.max(options, axis=0) - TIE, axis=0)


def _chosen(q: Float[np.ndarray, "A A n n"], first: Int[np.ndarray, "n n"], second: Int[np.ndarray, "n n"]) -> Joint:
    joint = q.reshape(-1, *first.shape)
    return np.take_along_axis(joint, (first * ACTIONS + second)[None], axis=0)[0]
