"""Runs in the JSON format of marl-eval: environment, task, algorithm, run, step, and the raw values of every test episode.

Its "absolute" metrics are meant for the best policy, tested anew; nothing was tested anew here, so they repeat the best test.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from emc.report.curves import Group, read_lines
from emc.runs.directory import RunDirectory

Tree = dict[str, Any]


def marl_eval(groups: Sequence[Group]) -> Tree:
    """All groups as one tree; every seed is a run."""
    tree: Tree = {}
    for group in groups:
        wanted = {curve.seed for curve in group.curves}
        found = {seed: run for run in group.runs for seed, run in _runs(run, wanted).items()}
        algorithm = tree.setdefault(group.env_name, {}).setdefault(group.task, {}).setdefault(group.label, {})
        algorithm |= {f"seed_{seed}": found[seed] for seed in sorted(found)}
    return tree


def _runs(run: RunDirectory, seeds: set[int]) -> dict[int, Tree]:
    tests: dict[int, list[Tree]] = {}
    for line in read_lines(run):
        if line["kind"] == "eval" and line["seed"] in seeds:
            tests.setdefault(line["seed"], []).append(line)
    return {seed: _run(lines) for seed, lines in tests.items()}


def _run(lines: list[Tree]) -> Tree:
    steps = {f"step_{number}": {"step_count": line["steps"], **_metrics(line)} for number, line in enumerate(lines)}
    return steps | {"absolute_metrics": _metrics(max(lines, key=lambda line: (np.mean(line["won"]), np.mean(line["return"]))))}


def _metrics(line: Tree) -> Tree:
    return {"mean_episode_return": line["return"], "win_rate": [float(won) for won in line["won"]]}
