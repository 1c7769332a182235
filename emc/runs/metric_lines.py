"""The lines of a run's JSONL files: what one seed has to say at one moment, in plain numbers."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np

from emc.methods import Method
from emc.training.loop import Maps, Tally
from emc.training.rollout import Outcome


@dataclasses.dataclass(frozen=True)
class Reading:
    """What one seed has to say."""

    seed: int
    steps: Any
    episodes: Any
    updates: Any
    tally: Tally
    maps: Maps


def train_line(reading: Reading, method: Method) -> dict[str, Any]:
    """What training was like since the last line."""
    tally, steps = reading.tally, int(reading.steps)
    episodes, updates = max(int(tally.episodes), 1), int(tally.updates)
    line: dict[str, Any] = {
        "kind": "train",
        "seed": reading.seed,
        "steps": steps,
        "episodes": int(reading.episodes),
        "updates": int(reading.updates),
        "epsilon": float(method.epsilon(jnp.asarray(steps))),
        "return": float(tally.returns) / episodes,
        "win_rate": int(tally.wins) / episodes,
        "length": int(tally.steps) / episodes,
    }
    return line | ({name: float(total) / updates for name, total in sorted(tally.metrics.items())} if updates else {})


def eval_line(reading: Reading, outcome: Outcome) -> dict[str, Any]:
    """Each test episode as it was."""
    return {
        "kind": "eval",
        "seed": reading.seed,
        "steps": int(reading.steps),
        "return": np.asarray(outcome.episode_return).tolist(),
        "length": np.asarray(outcome.length).tolist(),
        "won": np.asarray(outcome.won).tolist(),
    }


def extrinsic_metrics(outcome: Outcome) -> dict[str, float]:
    """How the agents do that curiosity learnt without its bonus (phi), tested greedily as often as the policy."""
    return {"phi_test_return": float(np.mean(outcome.episode_return)), "phi_test_win_rate": float(np.mean(outcome.won))}


def map_line(reading: Reading) -> dict[str, Any]:
    """Where agents went and what was novel since the last snapshot."""
    maps = {name: np.asarray(value).tolist() for name, value in vars(reading.maps).items()}
    return {"seed": reading.seed, "steps": int(reading.steps)} | maps


def summary(lines: list[dict[str, Any]]) -> dict[str, float]:
    """Means over seeds of the newest lines."""
    train, test = [line for line in lines if line["kind"] == "train"], [line for line in lines if line["kind"] == "eval"]
    names = [name for name in train[0] if all(isinstance(line.get(name), float) for line in train)]
    means = {f"train_{name}" if name in ("return", "win_rate", "length") else name: _mean(train, name) for name in names}
    return means | ({"test_return": _mean(test, "return"), "test_win_rate": _mean(test, "won")} if test else {})


def _mean(lines: list[dict[str, Any]], name: str) -> float:
    return float(np.mean([line[name] for line in lines]))
