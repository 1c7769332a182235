"""Policies that others trained in the real game, played here without retraining: what a battle is worth as a model of SMAC.

    python benchmarks/real_policies.py FOLDER [MAP ...] [--episodes N] [--formations F ...] [--orders O ...]

`FOLDER` has one `MAP.npz` per map with the arrays of a recurrent agent that all agents share: `x = relu(fc1 [obs, one-hot agent id])`, a
GRU cell in PyTorch's order of gates (`rnn.*`), `fc2` with one score per action; the best available action is taken. Each policy is played
under every formation and order of the enemies that is asked for, since a policy of the real game has seen one start only.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from emc.envs.battle import Battle
from emc.envs.battle.battle import World
from emc.types import Timestep

Weights = dict[str, Float[np.ndarray, "..."]]


def gru(weights: Weights, x: Float[Array, "N H"], hidden: Float[Array, "N H"]) -> Float[Array, "N H"]:
    """PyTorch's GRU cell."""
    from_x = x @ weights["rnn.weight_ih"].T + weights["rnn.bias_ih"]
    from_hidden = hidden @ weights["rnn.weight_hh"].T + weights["rnn.bias_hh"]
    (reset_x, update_x, new_x), (reset_h, update_h, new_h) = (jnp.split(gates, 3, axis=1) for gates in (from_x, from_hidden))
    update = jax.nn.sigmoid(update_x + update_h)
    new = jnp.tanh(new_x + jax.nn.sigmoid(reset_x + reset_h) * new_h)
    return (1 - update) * new + update * hidden


def act(weights: Weights, now: Timestep, hidden: Float[Array, "N H"]) -> tuple[Array, Float[Array, "N H"]]:
    """Everyone's best available action, and what they remember."""
    inputs = jnp.concatenate([now.obs.astype(jnp.float32), jnp.eye(len(now.obs))], axis=1)
    hidden = gru(weights, jax.nn.relu(inputs @ weights["fc1.weight"].T + weights["fc1.bias"]), hidden)
    scores = hidden @ weights["fc2.weight"].T + weights["fc2.bias"]
    return jnp.argmax(jnp.where(now.available, scores, -jnp.inf), axis=1), hidden


def episodes(env: Battle, weights: Weights, count: int, key: Any, watch: bool = False) -> Any:
    """Returns, wins, lengths and who was left of battles side by side; with `watch`, every world and action of them instead."""
    world, now = jax.vmap(env.reset)(jax.random.split(key, count))
    hidden = jnp.zeros((count, env.spec.n_agents, weights["rnn.weight_hh"].shape[1]))

    def step(carry: Any, key: Any) -> tuple[Any, Any]:
        world, now, hidden, running, total, won, length = carry
        action, hidden = jax.vmap(lambda now, hidden: act(weights, now, hidden))(now, hidden)
        after, seen = jax.vmap(env.step)(world, action, jax.random.split(key, count))

        def kept(new: Array, old: Array) -> Array:
            return jnp.where(running.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

        world: World = jax.tree.map(kept, after, world)
        outcome = total + running * seen.reward, won | (running & seen.won), length + running
        return (world, seen, hidden, running & ~seen.terminated, *outcome), (world, action, running) if watch else None

    start = (world, now, hidden, jnp.ones(count, bool), jnp.zeros(count), jnp.zeros(count, bool), jnp.zeros(count, int))
    (world, *_, total, won, length), seen = jax.lax.scan(step, start, jax.random.split(key, env.spec.episode_limit))
    if watch:
        return seen
    life = world.forces.life > 0
    n = env.spec.n_agents
    return total, won, length, life[:, :n].sum(axis=1), life[:, n:].sum(axis=1)


def load(path: Path) -> Weights:
    """The arrays of a policy."""
    with np.load(path) as file:
        return {name: np.asarray(file[name], np.float32) for name in file.files}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("maps", nargs="*")
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--formations", nargs="*", default=["spiral"])
    parser.add_argument("--orders", nargs="*", default=["created"])
    arguments = parser.parse_args()
    for name in arguments.maps or sorted(path.stem for path in arguments.folder.glob("*.npz")):
        weights = load(arguments.folder / f"{name}.npz")
        for formation, order in itertools.product(arguments.formations, arguments.orders):
            env = Battle(name, formation=formation, enemy_order=order)
            found = jax.jit(lambda key, env=env, weights=weights: episodes(env, weights, arguments.episodes, key))(jax.random.key(0))
            total, won, length, allies, enemies = (float(np.mean(value)) for value in found)
            ended = f"wins {won:5.2f}  return {total:5.2f}  length {length:5.1f}  left {allies:4.1f} : {enemies:4.1f}"
            print(f"{name:14} {formation:10}{order:10} {ended}", flush=True)


if __name__ == "__main__":
    main()
