"""Run directories with made-up numbers, in the format that training writes."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from emc.envs.base import Environment
from emc.envs.registry import make_env
from emc.methods import Method, make_method
from emc.runs import RunDirectory
from emc.runs.config import RunConfig, to_json
from emc.runs.identity import seal_of
from emc.training.loop import Budget

MACHINE = {
    "python": "3.11.7",
    "packages": {"emc-marl": "0.1.0", "jax": "0.10.2"},
    "platform": "Linux x86_64",
    "cpus": 2,
    "device": {"platform": "cpu", "kind": "cpu", "count": 1},
    "commit": {"emc": "0123456789abcdef0123456789abcdef01234567", "working_directory": None},
}


def new_run(
    root: Path,
    lines: Iterable[Mapping[str, Any]] = (),
    maps: Iterable[Mapping[str, Any]] = (),
    *,
    method_name: str = "emc-vdn",
    method: Method | None = None,
    env_name: str = "gridworld",
    env: Environment | None = None,
    seeds: Sequence[int] = (0,),
    budget: Budget = Budget(),
    command: str = "emc train emc-vdn gridworld --seeds 0",
    machine: Mapping[str, Any] = MACHINE,
) -> RunDirectory:
    """A run directory with the given metrics."""
    config = RunConfig(method_name, method or make_method(method_name), env_name, env or make_env(env_name), budget, tuple(seeds))
    run = RunDirectory.create(root, env_name, method_name, {"config": to_json(config), "machine": machine, "command": command})
    with run:
        run.append(lines)
        run.append(maps, "maps.jsonl")
        run.append([{"steps": 1000, "seconds": 4.0, "steps_since_start": 1000}], "speed.jsonl")
    return run


def rewrite_manifest(run: RunDirectory, **changes: Any) -> RunDirectory:
    """What a stranger can do: change fields of the manifest, and make its seal fit."""
    document = json.loads((run.path / "manifest.json").read_text()) | changes
    document["seal"] = seal_of(document)
    (run.path / "manifest.json").write_text(json.dumps(document))
    return RunDirectory.open(run.path)


def evaluation(seed: int, steps: int, won: Sequence[bool], returns: Sequence[float] | None = None) -> dict[str, Any]:
    """The line of one evaluation."""
    returns = [10.0 * w for w in won] if returns is None else returns
    return {"kind": "eval", "seed": seed, "steps": steps, "return": list(returns), "length": [30] * len(won), "won": list(won)}


def win_rates(seed: int, rates: Mapping[int, float], episodes: int = 10) -> list[dict[str, Any]]:
    """Evaluations with the given win rates by step."""
    return [evaluation(seed, steps, [i < round(rate * episodes) for i in range(episodes)]) for steps, rate in rates.items()]


def training(seed: int, steps: int, **values: float) -> dict[str, Any]:
    """The line about training since the last one."""
    usual = {"episodes": steps // 30, "updates": steps // 30, "epsilon": 0.5, "return": 1.0, "win_rate": 0.1, "length": 30.0}
    return {"kind": "train", "seed": seed, "steps": steps} | usual | values


def snapshot(seed: int, steps: int, visits: Any, bonus: Any = None, bonus_visits: Any = None) -> dict[str, Any]:
    """Maps since the last snapshot."""
    visits = np.asarray(visits, float)
    bonus = np.zeros_like(visits) if bonus is None else np.asarray(bonus, float)
    bonus_visits = visits if bonus_visits is None else np.asarray(bonus_visits, float)
    return {"seed": seed, "steps": steps, "visits": visits.tolist(), "bonus": bonus.tolist(), "bonus_visits": bonus_visits.tolist()}


def plausible_run(
    root: Path, final: float = 0.97, evaluations: int = 505, snapshots: int = 20, played: float = 1.0, **settings: Any
) -> RunDirectory:
    """A run that looks like training: scores that rise and waver, all diagnostics, maps that narrow to the way to the goals."""
    budget = Budget(steps=1000 * (evaluations - 1), test_episodes=settings.pop("test_episodes", 30))
    seeds = settings.setdefault("seeds", (0, 1, 2))
    settings.setdefault("env_name", "gridworld")
    env = settings.setdefault("env", make_env(settings["env_name"]))
    rng = np.random.default_rng([zlib.crc32(settings.get("method_name", "").encode()), *seeds])
    lines: list[dict[str, Any]] = []
    curious = settings.get("method_name", "emc-vdn").startswith("emc")
    for seed in seeds:
        middle, slope = budget.steps * rng.uniform(0.2, 0.55), budget.steps * 0.03
        for index in range(int(played * evaluations)):
            steps = 30 if index == 0 else 1000 * index + int(rng.integers(0, 30))
            share = final / (1 + np.exp(-(steps - middle) / slope))
            won = rng.random(budget.test_episodes) < np.clip(share + 0.06 * rng.normal() * (0.02 < share < 0.98), 0, 1)
            lines.append(training(seed, steps) | (_diagnostics(rng, steps, share, curious) if steps > 1000 else {"epsilon": 1.0}))
            returns = np.where(won, 10.0, -2.0 * rng.poisson(0.3, len(won)))
            lines.append(evaluation(seed, steps, won.tolist(), returns.tolist()))
    maps = [_map(rng, env, seed, budget.steps, k, snapshots, curious) for k in range(1, snapshots + 1) for seed in seeds]
    return new_run(root, lines, maps if env.spec.map_shape != (0, 0) else (), budget=budget, **settings)


def _diagnostics(rng: np.random.Generator, steps: int, share: float, curious: bool) -> dict[str, float]:
    noise = np.exp(0.25 * rng.normal(size=4))
    weight = max(0.01, 0.2 * 0.9 ** (steps // 5000))
    q = 6 * share + 0.3 * rng.normal()
    values = {
        "epsilon": max(0.05, 1 - steps / 50_000),
        "return": 10 * share - 0.5,
        "loss": 0.3 * noise[0] * (0.05 + share * (1 - share)),
        "td_error": 0.4 * noise[1] * (0.1 + share * (1 - share)),
        "q": q,
        "target": q + 0.1 * rng.normal(),
        "reward_extrinsic": 0.5 * share * noise[2] - 0.03,
        "reward_intrinsic": 2.0 * weight * noise[3] if curious else 0.0,
        "memory_hit_rate": 0.0,
    }
    return values | ({"curiosity_weight": weight} if curious else {})


def _map(rng: np.random.Generator, env: Environment, seed: int, total: int, k: int, of: int, curious: bool) -> dict[str, Any]:
    rows, columns = env.spec.map_shape
    r, c = np.mgrid[:rows, :columns]
    age = k / of
    left, right = r + c, (rows - 1 - r) + (columns - 1 - c)
    start = np.where(c < columns // 2, np.exp(-left / (2 + 4 * age)), np.exp(-right / (2 + 4 * age)))
    way = np.exp(-np.abs(r - rows // 2) / 0.6) + np.where(c < columns // 2, np.exp(-c / 0.5), np.exp(-(columns - 1 - c) / 0.5))
    visits = rng.poisson(2 * total / of * ((1 - age) * start + age * way) / np.sum((1 - age) * start + age * way))
    seen = rng.poisson(30 * visits)
    near = np.exp(-(np.abs(r - rows / 2 + 0.5) / 3 + np.abs(c - columns / 2 + 0.5) / 3))
    bonus = seen * max(0.01, 0.2 * 0.9 ** (total * age / 5000)) * near * rng.uniform(0.8, 1.2, near.shape)
    return snapshot(seed, int(total * age), visits, bonus if curious else 0.0 * bonus, seen)
