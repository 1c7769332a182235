"""The shortest way to succeed where nothing is random: breadth-first search with the environment's own steps, many worlds at a time.

Pass, Secret Room and Push-Box pay 1 for success and nothing else, so the shortest way is the optimum for every discount, and 1 or 0 the
best return, by whether the limit allows it. Nothing being random, agents can follow the plan with their eyes shut: centralised and
decentralised play are the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from emc.envs.passing import Pass
from emc.envs.push_box import PushBox
from emc.envs.secret_room import SecretRoom
from emc.errors import UserError
from emc.suite.optimum import Optimum, Play

Board = Pass | SecretRoom | PushBox
CHUNK = 2**15  # worlds whose steps are computed at once
MOST_WORLDS = 2**25  # five bytes are kept for each
Expand = Callable[[Int[Array, " W"]], tuple[Int[Array, "W J"], Bool[Array, "W J"]]]


def solve(env: Board, gamma: float) -> Optimum:
    """The shortest plan that succeeds, if the limit allows one."""
    start, expand, worlds = numbered(env)
    plan, seen = shortest(start, expand, worlds, env.spec.episode_limit)
    won = float(plan is not None)
    value = gamma ** (len(plan) - 1) if plan else 0.0
    return Optimum(
        best=Play(value, won, won),
        gamma=gamma,
        how=f"breadth-first search through {seen:,} of {worlds:,} states",
        steps=len(plan) if plan else None,
        plan=tuple(divmod(action, env.spec.n_actions) for action in plan or ()),
    )


def numbered(env: Board) -> tuple[int, Expand, int]:
    """Worlds as numbers, time aside: the first, what every joint action makes of some, and how many there are."""
    world, _ = jax.jit(env.reset)(jax.random.key(0))
    leaves, shape = jax.tree.flatten(world)
    clock = next(number for number, leaf in enumerate(leaves) if leaf is world.time)
    base = np.array(
        [2 if leaf.dtype == bool else env.size for number, leaf in enumerate(leaves) if number != clock for _ in range(leaf.size)]
    )
    if (worlds := math.prod(base.tolist())) > MOST_WORLDS:  # a number of NumPy's would wrap around
        raise UserError(f"{type(env).__name__} of size {env.size} has {worlds:,} states, too many to search: choose a smaller size")
    pairs = np.stack(np.divmod(np.arange(env.spec.n_actions**2, dtype=np.int32), env.spec.n_actions), axis=1)
    weights = np.append(1, np.cumprod(base[:-1])).astype(np.int32)

    def number(world: Any) -> Int[Array, ""]:
        parts = [jnp.ravel(leaf) for place, leaf in enumerate(jax.tree.leaves(world)) if place != clock]
        return jnp.dot(jnp.concatenate([part.astype(jnp.int32) for part in parts]), weights)

    def world_of(code: Int[Array, ""]) -> Any:
        digits, found, used = code // weights % jnp.asarray(base, jnp.int32), list[Array](), 0
        for place, leaf in enumerate(leaves):
            if place == clock:
                found.append(jnp.zeros_like(leaf))
                continue
            found.append(digits[used : used + leaf.size].reshape(leaf.shape).astype(leaf.dtype))
            used += leaf.size
        return jax.tree.unflatten(shape, found)

    def every_step(code: Int[Array, ""]) -> tuple[Int[Array, " J"], Bool[Array, " J"]]:
        def one(pair: Int[Array, " N"]) -> tuple[Int[Array, ""], Bool[Array, ""]]:
            after, shown = env.step(world_of(code), pair, jax.random.key(0))
            return number(after), shown.won

        return jax.vmap(one)(jnp.asarray(pairs))

    return int(jax.jit(number)(world)), jax.jit(jax.vmap(every_step)), worlds


def shortest(start: int, expand: Expand, worlds: int, limit: int) -> tuple[list[int] | None, int]:
    """The fewest joint actions that win, and how many worlds were looked at; None if none win within the limit."""
    parent = np.full(worlds, -1, np.int32)
    by = np.zeros(worlds, np.int8)
    parent[start] = start
    frontier, seen = np.array([start], np.int32), 1
    for _ in range(limit):
        found: list[np.ndarray] = []
        for block in np.array_split(frontier, math.ceil(len(frontier) / CHUNK)):
            padded = np.full(CHUNK if len(frontier) > 256 else 256, block[0], np.int32)
            padded[: len(block)] = block
            code, won = (np.asarray(part)[: len(block)] for part in expand(jax.device_put(padded)))
            if won.any():
                row, action = (int(index) for index in np.argwhere(won)[0])
                return [*_path(int(block[row]), start, parent, by), action], seen
            flat, first = np.unique(code, return_index=True)
            new = parent[flat] < 0
            flat, first = flat[new], first[new]
            parent[flat], by[flat] = block[first // code.shape[1]], first % code.shape[1]
            found.append(flat)
        frontier = np.concatenate(found)
        seen += len(frontier)
        if not len(frontier):
            break
    return None, seen


def _path(code: int, start: int, parent: Int[np.ndarray, " W"], by: Int[np.ndarray, " W"]) -> list[int]:
    """The joint actions that lead to a world."""
    actions: list[int] = []
    while code != start:
        actions.append(int(by[code]))
        code = int(parent[code])
    return actions[::-1]
