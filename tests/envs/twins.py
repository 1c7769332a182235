"""Plain-Python twins of the environments, written from their rules: loops and ifs, one thing after the other.

A twin takes the same random draws as the environment it checks, as numpy arrays, so both can be compared step by step.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np


@dataclasses.dataclass
class GridworldTwin:
    """The coordinated gridworld."""

    rows: int = 11
    columns: int = 12
    episode_limit: int = 30
    vision: str = "reversed"
    observation_noise: int = 0
    penalty: float = 2.0
    noisy_reward: float = 0.0
    slip: float = 0.0
    win_reward: float = 10.0

    def reset(self, noise: np.ndarray) -> dict[str, Any]:
        self.agents = [(0, 0), (self.rows - 1, self.columns - 1)]
        self.steps = 0
        return self.show(noise, 0.0, False, False)

    def step(self, actions: list[int], slip: np.ndarray, choice: np.ndarray, reward: float, obs: np.ndarray) -> dict[str, Any]:
        for agent in (0, 1):
            action = actions[agent]
            if slip[agent] < np.float32(self.slip):
                action = self.slipped(agent, action, choice[agent])
            if action in self.available(agent):
                row, column = self.agents[agent]
                row_step, column_step = [(-1, 0), (1, 0), (0, -1), (0, 1), (0, 0)][action]
                self.agents[agent] = (row + row_step, column + column_step)
        self.steps += 1

        middle, wall = self.rows // 2, self.columns // 2
        on_goal = [self.agents[0] == (middle, wall - 1), self.agents[1] == (middle, wall)]
        pay, won = 0.0, False
        if on_goal[0] and on_goal[1]:
            pay, won = self.win_reward, True
        elif on_goal[0] or on_goal[1]:
            pay = -self.penalty
        if any(self.in_noisy_area(*cell) for cell in self.agents):
            pay += self.noisy_reward * reward
        return self.show(obs, pay, won or self.steps == self.episode_limit, won)

    def slipped(self, agent: int, action: int, draw: float) -> int:
        moves = [move for move in self.available(agent) if move != 4]
        pick = int(np.float32(draw) * np.float32(len(moves) + 1))
        return moves[pick] if pick < len(moves) else action

    def available(self, agent: int) -> list[int]:
        row, column = self.agents[agent]
        wall = self.columns // 2
        first, last = (0, wall - 1) if agent == 0 else (wall, self.columns - 1)
        actions = []
        if row > 0:
            actions.append(0)
        if row < self.rows - 1:
            actions.append(1)
        if column > first:
            actions.append(2)
        if column < last:
            actions.append(3)
        return [*actions, 4]

    def in_vision_area(self, row: int, column: int) -> bool:
        middle, wall = self.rows // 2, self.columns // 2
        return middle - 2 <= row <= middle + 2 and wall - 3 <= column < wall + 3

    def in_noisy_area(self, row: int, column: int) -> bool:
        middle, wall = self.rows // 2, self.columns // 2
        return row < middle - 3 and wall - 3 <= column < wall + 3

    def sees(self, agent: int) -> bool:
        me, other = self.in_vision_area(*self.agents[agent]), self.in_vision_area(*self.agents[1 - agent])
        return {"reversed": other, "origin": me, "pomdp": me and other, "full_observation": True}[self.vision]

    def show(self, noise: np.ndarray, reward: float, terminated: bool, won: bool) -> dict[str, Any]:
        size = self.rows + self.columns
        obs = np.zeros((2, 2 * size + self.observation_noise))
        available = np.zeros((2, 5), bool)
        for agent in (0, 1):
            row, column = self.agents[agent]
            obs[agent, row] = 1
            obs[agent, self.rows + column] = 1
            if self.sees(agent):
                row, column = self.agents[1 - agent]
                obs[agent, size + row] = 1
                obs[agent, size + self.rows + column] = 1
            obs[agent, 2 * size :] = noise[agent]
            available[agent, self.available(agent)] = True
        state = np.concatenate(list(obs))
        return {
            "obs": obs,
            "state": state,
            "available": available,
            "reward": reward,
            "terminated": terminated,
            "truncated": False,
            "won": won,
        }


SIDES = [(0, 1), (1, 0), (0, -1), (-1, 0)]  # right, down, left, up


@dataclasses.dataclass
class PredatorPreyTwin:
    """The stag hunt. Positions are (row, column), or None for who has left."""

    grid_size: int = 10
    n_agents: int = 8
    n_prey: int = 8
    vision_radius: int = 2
    episode_limit: int = 200
    punishment: float = -2.0
    capture_reward: float = 10.0

    def reset(self, predators: list[tuple[int, int] | None], prey: list[tuple[int, int] | None]) -> dict[str, Any]:
        self.predators, self.prey = list(predators), list(prey)
        self.steps = 0
        return self.show(0.0)

    def step(self, actions: list[int], predator_turn: np.ndarray, prey_turn: np.ndarray, choice: np.ndarray) -> dict[str, Any]:
        for predator in sorted(range(self.n_agents), key=lambda who: predator_turn[who]):
            cell = self.predators[predator]
            if cell is not None and actions[predator] < 4:
                target = self.beside(cell)[actions[predator]]
                if self.on_grid(target) and not self.occupied(target):
                    self.predators[predator] = target

        reward = 0.0
        for prey in sorted(range(self.n_prey), key=lambda who: prey_turn[who]):
            cell = self.prey[prey]
            if cell is None:
                continue
            catchers = [who for who in range(self.n_agents) if self.predators[who] in self.beside(cell) and actions[who] == 5]
            if len(catchers) >= 2:
                reward += self.capture_reward
                self.prey[prey] = None
                for who in catchers:
                    self.predators[who] = None
                continue
            if len(catchers) == 1:
                reward += self.punishment
            free = [side for side in self.beside(cell) if self.on_grid(side) and not self.occupied(side)]
            if free:
                self.prey[prey] = free[int(np.float32(choice[prey]) * np.float32(len(free)))]
        self.steps += 1
        return self.show(reward)

    def beside(self, cell: tuple[int, int]) -> list[tuple[int, int]]:
        return [(cell[0] + row, cell[1] + column) for row, column in SIDES]

    def on_grid(self, cell: tuple[int, int]) -> bool:
        return 0 <= cell[0] < self.grid_size and 0 <= cell[1] < self.grid_size

    def occupied(self, cell: tuple[int, int]) -> bool:
        return cell in self.predators or cell in self.prey

    def show(self, reward: float) -> dict[str, Any]:
        size, radius = self.grid_size, self.vision_radius
        grid = np.zeros((size, size, 3), bool)
        for cell in self.predators:
            if cell is not None:
                grid[cell][0] = True
        for cell in self.prey:
            if cell is not None:
                grid[cell][1] = True
        window = 2 * radius + 1
        obs = np.zeros((self.n_agents, window, window, 3), bool)
        available = np.zeros((self.n_agents, 6), bool)
        for predator, cell in enumerate(self.predators):
            available[predator, 4] = True
            if cell is None:
                continue
            for row in range(window):
                for column in range(window):
                    there = (cell[0] + row - radius, cell[1] + column - radius)
                    if self.on_grid(there):
                        obs[predator, row, column] = grid[there]
            for action, side in enumerate(self.beside(cell)):
                available[predator, action] = self.on_grid(side)
                available[predator, 5] |= side in self.prey
        over = all(cell is None for cell in self.prey) or all(cell is None for cell in self.predators)
        return {
            "obs": obs.reshape(self.n_agents, -1),
            "state": grid.reshape(-1),
            "available": available,
            "reward": reward,
            "terminated": over,
            "truncated": self.steps == self.episode_limit and not over,
            "won": False,
        }


@dataclasses.dataclass
class NStepGameTwin:
    """MAVEN's game of several steps."""

    steps: int = 10
    good_branches: int = 2

    def reset(self) -> dict[str, Any]:
        self.past: list[tuple[int, int]] = []
        self.earned = 0
        return self.show(0, over=False)

    def step(self, first: int, second: int) -> dict[str, Any]:
        self.past.append((first, second))
        branch = self.past[0]
        if self.steps > 1 and len(self.past) == self.steps and branch == (0, 0):
            pay = 4 if first == second == 1 else 1
        elif self.good_branches == 2 and branch[0] != branch[1]:
            pay = 0
        else:
            pay = 1 if (first, second) == branch else 0
        self.earned += pay
        return self.show(pay, over=pay == 0 or len(self.past) == self.steps)

    def show(self, pay: int, over: bool) -> dict[str, Any]:
        state = [0] * (self.steps + 1)
        state[len(self.past)] = 1
        if self.steps > 1:
            branch = [0] * 4
            branch[[(0, 0), (0, 1), (1, 0), (1, 1)].index(self.past[0] if self.past else (0, 0))] = 1
            state += branch
        best = 1 if self.steps == 1 else self.steps - 1 + 4
        return {
            "obs": np.array([state, state]),
            "state": np.array(state),
            "available": np.ones((2, 2), bool),
            "reward": float(pay),
            "terminated": over,
            "truncated": False,
            "won": over and self.earned == best,
        }
