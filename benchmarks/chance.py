"""How far memories are from the truth where chance decides: H against the exact optimum on the gridworld with slips.

    python benchmarks/chance.py [--episodes 6000] [--epsilon 0.2]

Episodes are played by the optimal policy with some random actions, and written as in training. Printed for every statistic: the mean error
and its root mean square over all visits to states.
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp
import numpy as np

from emc.envs.gridworld import Gridworld
from emc.memory import EpisodicMemory
from emc.suite.gridworld import ACTIONS, model_of
from emc.types import EnvSpec, Episodes

GAMMA, TOGETHER = 0.9, 50
LONG = 200  # steps after which a limit no longer matters


def play(model, policy: np.ndarray, epsilon: float, rng: np.random.Generator) -> tuple[list[tuple[int, int]], np.ndarray, list[float]]:
    """One episode: pairs of cells, joint actions, rewards."""
    cells, actions, rewards = [model.start], [], []
    while len(rewards) < model.steps and not model.won[cells[-1]]:
        chosen = [*divmod(int(policy[cells[-1]]), ACTIONS)]
        for agent in range(2):
            if rng.random() < epsilon:
                chosen[agent] = int(rng.integers(ACTIONS))
        after = tuple(int(rng.choice(len(model.won), p=model.moves[i, chosen[i], cells[-1][i]])) for i in range(2))
        actions.append(chosen)
        rewards.append(float(model.reward[after]))
        cells.append((after[0], after[1]))
    return cells, np.array(actions), rewards


def rows(model, played: list[tuple[list[tuple[int, int]], np.ndarray, list[float]]]) -> Episodes:
    """Padded episodes; a state is both cells as one-hots."""
    count, n = len(played), len(model.won)
    state, action = np.zeros((count, model.steps + 1, 2 * n), np.float32), np.zeros((count, model.steps, 2), np.int32)
    reward, ended, on = (
        np.zeros((count, model.steps), np.float32),
        np.zeros((count, model.steps), bool),
        np.zeros((count, model.steps), bool),
    )
    for row, (cells, actions, rewards) in enumerate(played):
        for t, (first, second) in enumerate(cells):
            state[row, t, first] = state[row, t, n + second] = 1.0
        length = len(rewards)
        action[row, :length], reward[row, :length], on[row, :length], ended[row, length - 1] = actions, rewards, True, True
    shape = (count, model.steps + 1, 2)
    arrays = {"state": state, "action": action, "reward": reward, "terminated": ended, "played": on}
    given = {name: jnp.asarray(array) for name, array in arrays.items()}
    return Episodes(obs=jnp.zeros((*shape, 1)), available=jnp.ones((*shape, ACTIONS), bool), **given)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=6_000)
    parser.add_argument("--epsilon", type=float, default=0.2)
    asked = parser.parse_args()
    observe = jax.jit(lambda memory, state, fresh: memory.observe(state, fresh, GAMMA), static_argnums=0)
    look_up = jax.jit(EpisodicMemory.look_up, static_argnums=0)
    print(f"{asked.episodes} episodes, random actions {asked.epsilon:g}; bias / root mean square")
    for slip in (0.0, 0.1, 0.3, 0.5):
        model, rng = model_of(Gridworld(slip=slip)), np.random.default_rng(0)
        (value, *_), (policy, *_) = model.best(GAMMA, LONG)
        n = len(model.won)
        spec = EnvSpec(n_agents=2, n_actions=ACTIONS, obs_size=1, state_size=2 * n, episode_limit=model.steps)
        memories = [EpisodicMemory(capacity=100_000, statistic=statistic) for statistic in ("best", "mean", "bound")]
        states = [memory.init(jax.random.key(0), spec) for memory in memories]
        visits: dict[tuple[int, int], int] = {}
        for _ in range(asked.episodes // TOGETHER):
            played = [play(model, policy, asked.epsilon, rng) for _ in range(TOGETHER)]
            for cells, _, rewards in played:
                for cell in cells[: len(rewards)]:
                    visits[cell] = visits.get(cell, 0) + 1
            states = [observe(memory, state, rows(model, played)) for memory, state in zip(memories, states, strict=True)]
        told = []
        where = np.array([*visits])
        one_hot = np.zeros((len(where), 2 * n), np.float32)
        one_hot[np.arange(len(where)), where[:, 0]] = one_hot[np.arange(len(where)), n + where[:, 1]] = 1.0
        for memory, state in zip(memories, states, strict=True):
            found, held = map(np.asarray, look_up(memory, state, one_hot))
            error, weight = held - value[where[:, 0], where[:, 1]], np.array([*visits.values()]) * found
            bias, square = np.average(error, weights=weight), np.average(error**2, weights=weight)
            told.append(f"{memory.statistic} {bias:+.2f} / {np.sqrt(square):.2f}")
        print(f"slip {slip:g}, optimum {value[model.start]:.2f}: " + ", ".join(told), flush=True)


if __name__ == "__main__":
    main()
