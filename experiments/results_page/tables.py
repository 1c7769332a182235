"""What is not a learning curve: learned values of matrix games, and battles of players that learn nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from results_page.places import RESULTS, ROOT

SCRIPTED = RESULTS / "scripted-battles.json"


def one_step_game(found: dict[str, Any]) -> list[str]:
    """Learned values of every joint action beside what they pay, method by method, and where the agents' own greedy actions end."""
    payoff = np.array(found["rewards"])[:, 0]
    size = round(len(payoff) ** 0.5)
    best = found["actions"][int(np.argmax(payoff))][0]

    def rows(values: np.ndarray) -> list[str]:
        return [" / ".join(f"{v:.1f}" for v in row) for row in values.reshape(size, size)]

    lines = [
        "| method | values of agent 0's first action | of its second | of its third | greedy joint action, per seed | optimal |",
        "|---|" + "---|" * 5,
    ]
    lines.append(f"| *payoff* | {' | '.join(rows(payoff))} | | |")
    for method in found["methods"]:
        seeds = method["seeds"]
        ends = [tuple(seed["greedy"][0][0]) for seed in seeds]
        each = ", ".join(f"({a}, {b})" for a, b in ends)
        good = sum(end == tuple(best) for end in ends)
        lines.append(f"| {method['label']} | {' | '.join(rows(np.array(seeds[0]['values'])[:, 0]))} | {each} | {good} of {len(seeds)} |")
        for name, values in seeds[0].get("beside", {}).items():
            lines.append(f"| its {name} | {' | '.join(rows(np.array(values)[:, 0]))} | | |")
    return lines


def two_step_game(found: dict[str, Any]) -> list[str]:
    """Learned values of the second step in both branches, and what the agents' own greedy actions earn."""
    actions, rewards = np.array(found["actions"]), np.array(found["rewards"])
    lines = ["| method | second step in branch 2A | in branch 2B | greedy return, per seed |", "|---|---|---|---|"]
    for method in found["methods"]:
        values = np.array(method["seeds"][0]["values"])

        def table(branch: int, values: np.ndarray = values) -> str:
            inside = (actions[:, 0, 0] == branch) & (actions[:, 0, 1] == 0)
            return " / ".join(f"{v:.2f}" for v in values[inside, 1])

        earned = []
        for seed in method["seeds"]:
            follows = np.all(np.array(seed["greedy"]) == actions, axis=(1, 2))  # the plays in which every action is the greedy one
            earned.append(float(rewards[follows].sum(axis=1)[0]))
        lines.append(f"| {method['label']} | {table(0)} | {table(1)} | {', '.join(f'{r:g}' for r in earned)} |")
    return lines


def scripted(found: dict[str, Any]) -> list[str]:
    """Win rates of players that learn nothing, of every formation that a battle may begin in."""
    scripts = list(next(iter(found["maps"].values())))
    lines = [f"| map | {' | '.join(scripts)} |", "|---|" + "---|" * len(scripts)]
    for name, rows in found["maps"].items():
        each = [[f"{wins / found['episodes']:.0%}" for wins in rows[script]["wins by formation"].values()] for script in scripts]
        rates = [" / ".join(formations) for formations in each]
        lines.append(f"| {name} | {' | '.join(rates)} |")
    return lines


GAMES: dict[str, tuple[str, Callable[[dict[str, Any]], list[str]]]] = {
    "one-step-game": ("One-step matrix game, uniform exploration", one_step_game),
    "two-step-game": ("Two-step matrix game, uniform exploration", two_step_game),
}


def matrix_games() -> Iterator[str]:
    """A section for each game whose learned values are kept."""
    for game, (title, show) in GAMES.items():
        values = RESULTS / game / "values.json"
        if values.exists():
            found = json.loads(values.read_text())
            commit = ((found["methods"][0]["machine"]["commit"] or {}).get("emc") or "?")[:10]
            yield f"## {title}\n\n" + "\n".join(show(found))
            yield (ROOT / "experiments" / f"{game.replace('-', '_')}.md").read_text().rstrip()
            yield f"Command: `python experiments/matrix_games.py RUNS {game}` at {commit}; raw tables of all seeds in `results/{game}/`."


def scripted_battles() -> Iterator[str]:
    """The section of players that learn nothing."""
    if SCRIPTED.exists():
        found = json.loads(SCRIPTED.read_text())
        yield "## Battles: players that learn nothing\n\n" + "\n".join(scripted(found))
        yield (ROOT / "experiments" / "scripted_battles.md").read_text().rstrip()
        yield f"Command: `python experiments/scripted_battles.py {found['episodes']}` at {found['commit'][:10]}."
