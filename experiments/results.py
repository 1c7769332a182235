"""What was really run: keep runs' raw lines in the repository, and write the page of results from them.

    python experiments/results.py keep RUNS     copy manifests and metrics of all studies' runs, finished or not, into results/STUDY/
    python experiments/results.py page          write docs/results.md from results/

Every number on the page is computed here from `results/`; nothing is typed in.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import studies

from emc.envs.gridworld import Gridworld
from emc.report.curves import as_png, group_runs, plot_curves
from emc.runs.directory import RunDirectory
from emc.runs.jsonl import read_metrics

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "results", ROOT / "docs" / "results.md"
KEPT = ("manifest.json", "metrics.jsonl", "maps.jsonl", "speed.jsonl")
SCRIPTED = RESULTS / "scripted-battles.json"
HUNT = (-20.0, 41.0)  # untrained agents earn far less, which would flatten everything else
CURVES = {
    "gridworld-p2": (-0.02, 1.02),
    "predator-prey": HUNT,
    "predator-prey-baselines": HUNT,
    "battles": (-0.02, 1.02),
}  # studies shown as curves, and their scale
HOLDS = 10  # evaluations in a row, all won entirely, that count as having won


def keep(root: Path) -> None:
    """Copy what a reader needs to check a number; checkpoints stay where they are."""
    known = studies.existing(root)
    for study, lines in studies.STUDIES.items():
        for run in (known[line] for line in lines if line in known):
            if (run / "metrics.jsonl").exists():  # it has been tested at least once
                keep_run(run, RESULTS / study / run.name)


def keep_run(run: Path, target: Path) -> None:
    """The files of one run."""
    target.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        if (run / name).exists():
            shutil.copyfile(run / name, target / name)
    manifest = json.loads((target / "manifest.json").read_text())
    words = shlex.split(manifest["command"])
    if "--runs" in words:  # where it was kept is nobody's business
        del words[words.index("--runs") : words.index("--runs") + 2]
    manifest["command"] = shlex.join(words)
    (target / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


class Kept:
    """One seed of a run in `results/`."""

    def __init__(self, path: Path, manifest: dict[str, Any], seed: int):
        self.path, self.manifest, self.seed = path, manifest, seed
        self.config: dict[str, Any] = manifest["config"]
        lines = [line for line in read_metrics(path / "metrics.jsonl") if line["kind"] == "eval" and line["seed"] == seed]
        self.steps = np.array([line["steps"] for line in lines])
        self.won = np.array([np.mean(line["won"]) for line in lines])
        self.returns = np.array([np.mean(line["return"]) for line in lines])

    @property
    def label(self) -> str:
        """The method, how it chooses what to replay, and what else tells the runs of a study apart."""
        method, env = self.config["method"], self.config["env"]
        words = [self.manifest["method_name"], f"{method['replay']['type'].lower()} replay"]
        if method["epsilon"]["steps"] != 50_000:
            words.append(f"epsilon over {thousands(method['epsilon']['steps'])}")
        if method["epsilon"]["finish"] != 0.05:
            words.append(f"to {method['epsilon']['finish']:g}")
        if self.path.parent.name == "n-step-game":
            words.append(f"gamma {method['gamma']:g}")
        if "noisy_reward" in env and self.noise_matters:
            words.append(f"noise {env['noisy_reward']:g}")
        return ", ".join(words)

    @property
    def noise_matters(self) -> bool:
        """Whether the study varies the noise."""
        return "noisy" in self.path.parent.name

    def visits(self) -> np.ndarray:
        """Agent-steps on each cell, over the whole run."""
        return np.sum([line["visits"] for line in read_metrics(self.path / "maps.jsonl")], axis=0)

    def first_win(self) -> float:
        """Steps at the first of many evaluations in a row that were all won entirely; infinite if that never happened."""
        perfect = self.won == 1.0
        for i in range(len(perfect) - HOLDS + 1):
            if perfect[i : i + HOLDS].all():
                return float(self.steps[i])
        return float("inf")


def load(study: str) -> dict[str, list[Kept]]:
    """Runs of a study by label, each sorted by seed."""
    groups: dict[str, list[Kept]] = defaultdict(list)
    for path in sorted((RESULTS / study).glob("*/manifest.json")):
        manifest = json.loads(path.read_text())
        for seed in manifest["config"]["seeds"]:
            run = Kept(path.parent, manifest, seed)
            groups[run.label].append(run)
    return {label: sorted(runs, key=lambda run: run.seed) for label, runs in groups.items()}


def thousands(steps: float) -> str:
    """Steps in words."""
    return "never" if steps == float("inf") else f"{steps / 1000:.0f}k"


def gridworld(groups: dict[str, list[Kept]]) -> list[str]:
    """Who wins the gridworld, and when."""
    lines = [
        "| method | seeds | reached (steps) | won by 100k | won by 200k | won by 505k | first win, per seed | median |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for label, runs in sorted(groups.items()):
        wins = [run.first_win() for run in runs]
        by = [sum(win <= limit for win in wins) for limit in (100_000, 200_000, 505_500)]
        reached = ", ".join(thousands(run.steps[-1]) for run in runs)
        each = ", ".join(thousands(win) for win in wins)
        lines.append(f"| {label} | {len(runs)} | {reached} | {by[0]} | {by[1]} | {by[2]} | {each} | {thousands(float(np.median(wins)))} |")
    return lines


def predator_prey(groups: dict[str, list[Kept]]) -> list[str]:
    """Returns on predator-prey: 40 is the most there is, 0 is never catching."""
    lines = ["| method | seed | reached (steps) | mean test return, last 10 evaluations | best evaluation |", "|---|---|---|---|---|"]
    for label, runs in sorted(groups.items()):
        lines += [
            f"| {label} | {run.seed} | {thousands(run.steps[-1])} | {np.mean(run.returns[-10:]):.1f} | {run.returns.max():.1f} |"
            for run in runs
        ]
    return lines


def noisy_gridworld(groups: dict[str, list[Kept]]) -> list[str]:
    """Who wins with and without a noisy area, and where agents spent their time: that area, or the cells around the goals."""
    areas = Gridworld().areas()
    lines = ["| method | seeds | reached (steps) | won | time in the noisy area | around the goals |", "|---|---|---|---|---|---|"]
    for label, runs in sorted(groups.items()):
        shares = [
            [float(run.visits()[areas[name]].sum() / run.visits().sum()) for name in ("noisy area", "around the goals")] for run in runs
        ]
        reached = ", ".join(thousands(run.steps[-1]) for run in runs)
        won = ", ".join(thousands(run.first_win()) for run in runs)
        columns = [", ".join(f"{share[i]:.1%}" for share in shares) for i in range(2)]
        lines.append(f"| {label} | {len(runs)} | {reached} | {won} | {columns[0]} | {columns[1]} |")
    return lines


def n_step_game(groups: dict[str, list[Kept]]) -> list[str]:
    """What greedy episodes earn at the end of training, seed by seed."""
    lines = [
        "| method | reached (steps) | greedy return per seed, mean of the last 10 evaluations | best return there is |",
        "|---|---|---|---|",
    ]
    for label, runs in sorted(groups.items()):
        best = runs[0].config["env"]["steps"] + 3
        each = ", ".join(f"{np.mean(run.returns[-10:]):.1f}" for run in runs)
        lines.append(f"| {label} | {thousands(runs[0].steps[-1])} | {each} | {best} |")
    return lines


def battles(groups: dict[str, list[Kept]]) -> list[str]:
    """Who wins a battle, and when."""
    lines = [
        "| method | map | seed | reached (steps) | test win rate, last 5 tests | first test won by 90 % |",
        "|---|---|---|---|---|---|",
    ]
    for label, runs in sorted(groups.items()):
        for run in runs:
            won = [step for step, rate in zip(run.steps, run.won, strict=True) if rate >= 0.9]
            last, first = f"{np.mean(run.won[-5:]):.0%}", thousands(won[0] if won else float("inf"))
            lines.append(f"| {label} | {run.config['env']['map']} | {run.seed} | {thousands(run.steps[-1])} | {last} | {first} |")
    return lines


def scripted(found: dict[str, Any]) -> list[str]:
    """Win rates of players that learn nothing."""
    scripts = list(next(iter(found["maps"].values())))
    lines = [f"| map | {' | '.join(scripts)} |", "|---|" + "---|" * len(scripts)]
    for name, rows in found["maps"].items():
        rates = [f"{rows[script]['wins'] / found['episodes']:.0%}" for script in scripts]
        lines.append(f"| {name} | {' | '.join(rates)} |")
    return lines


def draw_curves(study: str) -> str:
    """The study's learning curves as a picture beside the page, and the line that shows it."""
    runs = [RunDirectory.open(path.parent) for path in sorted((RESULTS / study).glob("*/manifest.json"))]
    target = PAGE.parent / "figures" / f"{study}.png"
    target.parent.mkdir(exist_ok=True)
    figure = plot_curves(group_runs(runs))
    figure.axes[0].set_ylim(CURVES[study])
    target.write_bytes(as_png(figure))
    return f"![Learning curves of {study}: median over seeds and the middle half of them](figures/{study}.png)"


def commands(groups: dict[str, list[Kept]]) -> list[str]:
    """The exact commands, and the commit each ran at."""
    rows: set[str] = set()
    for runs in groups.values():
        for run in runs:
            words = run.manifest["command"]
            commit = (run.manifest["machine"]["commit"] or {}).get("emc") or "?"
            rows.add(f"    {words}    # {commit[:10]}, results/{run.path.parent.name}/{run.path.name}")
    return sorted(rows)


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


GAMES: dict[str, tuple[str, Callable[[dict[str, Any]], list[str]]]] = {
    "one-step-game": ("One-step matrix game, uniform exploration", one_step_game),
    "two-step-game": ("Two-step matrix game, uniform exploration", two_step_game),
}
STUDIES: dict[str, tuple[str, Callable[[dict[str, list[Kept]]], list[str]]]] = {
    "gridworld-p2": ("Gridworld, p = 2", gridworld),
    "predator-prey": ("Predator-prey, epsilon over 50k steps", predator_prey),
    "predator-prey-baselines": ("Predator-prey, other methods and a longer anneal", predator_prey),
    "noisy-gridworld": ("Gridworld with a noisy area", noisy_gridworld),
    "n-step-game": ("MAVEN's game of ten steps", n_step_game),
    "battles": ("Battles: learning", battles),
}


def not_here_yet() -> str:
    """What the studies still lack."""
    lacking = []
    for study, lines in studies.STUDIES.items():
        runs = {run.path: run for group in load(study).values() for run in group}
        ended = sum(run.steps[-1] >= run.config["budget"]["steps"] for run in runs.values())
        if ended < len(lines):
            begun = f", {len(runs) - ended} more begun" if len(runs) > ended else ""
            lacking.append(f"* `{study}`: {ended} of {len(lines)} runs are complete{begun}")
    return "Not here yet; `python experiments/studies.py RUNS STUDY` makes what is missing:\n\n" + "\n".join(lacking) if lacking else ""


def page() -> str:
    """The whole page."""
    parts = [(ROOT / "experiments" / "results_head.md").read_text().rstrip(), *filter(None, [not_here_yet()])]
    for study, (title, table) in STUDIES.items():
        groups = load(study)
        if not groups:
            continue
        reading = ROOT / "experiments" / f"{study}.md"
        parts.append(f"## {title}\n\n" + "\n".join(table(groups)))
        parts += [draw_curves(study)] if study in CURVES else []
        if reading.exists():
            parts.append(reading.read_text().rstrip())
        parts.append("Commands:\n\n" + "\n".join(commands(groups)))
    for game, (title, show) in GAMES.items():
        values, reading = RESULTS / game / "values.json", ROOT / "experiments" / f"{game}.md"
        if values.exists():
            found = json.loads(values.read_text())
            commit = ((found["methods"][0]["machine"]["commit"] or {}).get("emc") or "?")[:10]
            command = (
                f"Command: `python experiments/matrix_games.py RUNS {game}` at {commit}; raw tables of all seeds in `results/{game}/`."
            )
            parts.append(f"## {title}\n\n" + "\n".join(show(found)))
            parts += [*([reading.read_text().rstrip()] if reading.exists() else []), command]
    if SCRIPTED.exists():
        found, reading = json.loads(SCRIPTED.read_text()), ROOT / "experiments" / "scripted-battles.md"
        parts += ["## Battles: players that learn nothing\n\n" + "\n".join(scripted(found)), reading.read_text().rstrip()]
        parts.append(f"Command: `python experiments/scripted_battles.py {found['episodes']}` at {found['commit'][:10]}.")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["keep", root]:
            keep(Path(root))
        case ["page"]:
            PAGE.write_text(page())
        case _:
            raise SystemExit(__doc__)
