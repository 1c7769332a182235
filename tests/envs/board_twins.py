"""Plain-Python twins of Pass, Secret Room, Push-Box, level-based foraging and the repeated matrix games, written from their rules."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

MOVES = [(0, -1), (0, 1), (-1, 0), (1, 0)]  # up, down, left, right


@dataclasses.dataclass
class BoardTwin:
    """What the three boards share."""

    size: int
    limit: int

    def reset(self) -> dict[str, Any]:
        self.steps = 0
        self.agents = self.starts()
        self.begin()
        return self.show(False)

    def move_agents(self, actions: list[int]) -> None:
        for agent in (0, 1):
            x, y = self.agents[agent]
            right, down = MOVES[actions[agent]]
            x, y = x + right, y + down
            if 0 <= x < self.size and 0 <= y < self.size and not self.is_wall(x, y):
                self.agents[agent] = (x, y)

    def show(self, won: bool) -> dict[str, Any]:
        rows = []
        for me, other in ((0, 1), (1, 0)):
            row: list[int] = []
            for x, y in (self.agents[me], self.agents[other]):
                row += [int(place == x) for place in range(self.size)]
                row += [int(place == y) for place in range(self.size)]
            rows.append(row + self.extras())
        return {
            "obs": np.array(rows),
            "state": np.array(rows[0]),
            "available": np.ones((2, 4), bool),
            "reward": float(won),
            "terminated": won or self.steps == self.limit,
            "truncated": False,
            "won": won,
        }

    def starts(self) -> list[tuple[int, int]]:
        near = self.size // 10
        return [(1 + near, 1 + near), (near, near)]

    def begin(self) -> None: ...

    def is_wall(self, x: int, y: int) -> bool:
        raise NotImplementedError

    def extras(self) -> list[int]:
        raise NotImplementedError


@dataclasses.dataclass
class PassTwin(BoardTwin):
    size: int = 10
    limit: int = 50

    def begin(self) -> None:
        self.open = False

    def step(self, actions: list[int]) -> dict[str, Any]:
        self.move_agents(actions)
        small, large = self.size // 10, int(0.8 * self.size)
        self.open = any(math.dist(agent, switch) <= 1.5 * small for agent in self.agents for switch in ((small, large), (large, small)))
        self.steps += 1
        return self.show(all(x >= self.size / 2 + 1 for x, _ in self.agents))

    def is_wall(self, x: int, y: int) -> bool:
        middle = self.size // 2
        in_door = abs(y - middle) <= self.size // 10
        return x == middle and not (self.open and in_door)

    def extras(self) -> list[int]:
        return [int(self.open)]


@dataclasses.dataclass
class SecretRoomTwin(BoardTwin):
    size: int = 15
    limit: int = 150

    def begin(self) -> None:
        third, two_thirds = self.size // 3, 2 * self.size // 3
        self.rows = [third // 2, (third + two_thirds) // 2, (two_thirds + self.size) // 2]
        self.open = [False, False, False]

    def step(self, actions: list[int]) -> dict[str, Any]:
        self.move_agents(actions)
        small, large = int(0.2 * self.size), int(0.8 * self.size)
        self.open = [False, False, False]
        for number, switch in enumerate([(small, large)] + [(large, row) for row in self.rows]):
            if any(math.dist(agent, switch) <= 1.5 for agent in self.agents):
                if number == 0:
                    self.open = [True, True, True]
                else:
                    self.open[number - 1] = True
                break
        self.steps += 1
        return self.show(all(x >= self.size / 2 + 1 and y <= self.size // 3 + 1 for x, y in self.agents))

    def is_wall(self, x: int, y: int) -> bool:
        middle = self.size // 2
        if x == middle and any(door and abs(y - row) <= 1 for door, row in zip(self.open, self.rows, strict=True)):
            return False
        return x == middle or (x > middle and y in (self.size // 3, 2 * self.size // 3))

    def extras(self) -> list[int]:
        return [int(door) for door in self.open]


@dataclasses.dataclass
class PushBoxTwin(BoardTwin):
    size: int = 9
    limit: int = 50

    def starts(self) -> list[tuple[int, int]]:
        middle = self.size // 2
        return [(4 + middle, 4 + middle), (2 + middle, 2 + middle)]

    def begin(self) -> None:
        self.box = (self.size // 2, self.size // 2)

    def step(self, actions: list[int]) -> dict[str, Any]:
        x, y = self.box
        pushes = [0, 0, 0, 0]
        for (agent_x, agent_y), action in zip(self.agents, actions, strict=True):
            beside_column, beside_row = abs(agent_x - x) <= 1, abs(agent_y - y) <= 1
            below, above = beside_column and agent_y == y + 2, beside_column and agent_y == y - 2
            to_the_right, to_the_left = beside_row and agent_x == x + 2, beside_row and agent_x == x - 2
            pushes[action] += [below, above, to_the_right, to_the_left][action]
        for direction, (right, down) in enumerate(MOVES):
            if pushes[direction] == 2 and 1 <= x + right <= self.size - 2 and 1 <= y + down <= self.size - 2:
                self.box = (x + right, y + down)
        self.move_agents(actions)
        self.steps += 1
        return self.show(min(self.box) == 1 or max(self.box) == self.size - 2)

    def is_wall(self, x: int, y: int) -> bool:
        return abs(x - self.box[0]) <= 1 and abs(y - self.box[1]) <= 1

    def extras(self) -> list[int]:
        return [int(place == where) for where in self.box for place in range(self.size)]


@dataclasses.dataclass
class ForagingTwin:
    """Level-based foraging; food is a dictionary of levels by (row, column)."""

    size: int = 8
    players: int = 2
    foods: int = 2
    sight: int | None = None
    episode_limit: int = 50
    penalty: float = 0.0

    def reset(self, agents: list[tuple[int, int]], levels: list[int], food: dict[tuple[int, int], int]) -> dict[str, Any]:
        self.agents, self.levels, self.food = list(agents), list(levels), dict(food)
        self.spawned = sum(food.values())
        self.steps = 0
        return self.show(0.0)

    def step(self, actions: list[int]) -> dict[str, Any]:
        wishes = []
        for (row, column), action in zip(self.agents, actions, strict=True):
            down, right = [(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1), (0, 0)][action]
            wish = (row + down, column + right)
            possible = 0 <= wish[0] < self.size and 0 <= wish[1] < self.size and wish not in self.food
            wishes.append(wish if possible else (row, column))
        for agent, wish in enumerate(wishes):
            if wishes.count(wish) == 1:
                self.agents[agent] = wish
        reward = 0.0
        for place, level in list(self.food.items()):
            loaders = [
                agent
                for agent, where in enumerate(self.agents)
                if actions[agent] == 5 and abs(where[0] - place[0]) + abs(where[1] - place[1]) == 1
            ]
            if not loaders:
                continue
            if sum(self.levels[agent] for agent in loaders) >= level:
                reward += level / self.spawned
                del self.food[place]
            else:
                reward -= self.penalty * len(loaders)
        self.steps += 1
        return self.show(reward)

    def show(self, reward: float) -> dict[str, Any]:
        rows = [self.view(agent) for agent in range(self.players)]
        state = self.listed(sorted(self.food.items()), self.foods)
        state += self.listed(list(zip(self.agents, self.levels, strict=True)), self.players)
        gone = not self.food
        return {
            "obs": np.array(rows),
            "state": np.array(state),
            "available": np.ones((self.players, 6), bool),
            "reward": reward,
            "terminated": gone or self.steps == self.episode_limit,
            "truncated": False,
            "won": gone and self.steps > 0,
        }

    def view(self, me: int) -> list[int]:
        sight = self.size if self.sight is None else self.sight
        row, column = self.agents[me]
        top, left = max(row - sight, 0), max(column - sight, 0)
        food = [
            ((r - top, c - left), level)
            for (r, c), level in sorted(self.food.items())
            if abs(r - row) <= sight and abs(c - column) <= sight
        ]
        others = []
        for who in [me, *(who for who in range(self.players) if who != me)]:
            r, c = self.agents[who][0] - top, self.agents[who][1] - left
            if 0 <= r <= 2 * sight and 0 <= c <= 2 * sight:
                others.append(((r, c), self.levels[who]))
        return self.listed(food, self.foods) + self.listed(others, self.players)

    def listed(self, entries: list[tuple[tuple[int, int], int]], slots: int) -> list[int]:
        numbers: list[int] = []
        for (row, column), level in entries:
            numbers += [row, column, level]
        return numbers + [-1, -1, 0] * (slots - len(entries))


@dataclasses.dataclass
class RepeatedTwin:
    """A table of payoffs, played several times."""

    table: list[list[float]]
    limit: int = 25

    def reset(self) -> dict[str, Any]:
        self.rewards: list[float] = []
        return self.show(0.0)

    def step(self, first: int, second: int) -> dict[str, Any]:
        self.rewards.append(self.table[first][second])
        return self.show(self.rewards[-1])

    def show(self, reward: float) -> dict[str, Any]:
        over = len(self.rewards) == self.limit
        return {
            "obs": np.ones((2, 1)),
            "state": np.ones(1),
            "available": np.ones((2, 3), bool),
            "reward": reward,
            "terminated": over,
            "truncated": False,
            "won": over and all(paid == max(map(max, self.table)) for paid in self.rewards),
        }
