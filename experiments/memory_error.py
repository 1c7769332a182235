"""How far what is remembered is from the truth, along training: H against the exact optimum on the gridworld with slips.

    python experiments/memory_error.py [STEPS [SEED ...]]      200000 and 1 unless said otherwise; adds to results/memory-error.json

EMC-VDN learns with a memory of each statistic, as in the claim `chance`. At regular steps every visit to a state in the latest episodes is
looked up and compared with the value of the best joint play from there in the steps that were left: a memory that does not know the time
cannot be right of all of them. What has been measured is not measured again.
"""

from __future__ import annotations

import argparse
import functools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from emc.configuration import configure
from emc.files import written_whole
from emc.memory import EpisodicMemory
from emc.runs.machine import commit_of
from emc.suite.gridworld import model_of
from emc.training.loop import MOST_STEPS, Program, Until
from emc.training.packing import Packed, lengths, unpack
from emc.types import EnvSpec

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "results" / "memory-error.json"
SLIPS, STATISTICS = (0.3, 0.5), ("best", "mean", "bound")
EVERY = 10_000  # steps between two looks
LATEST = 200  # episodes whose visits count


def measure(slip: float, statistic: str, seed: int, steps: int) -> list[dict[str, float]]:
    """Mean error and its root mean square over visits to states that are remembered, and the share of these, as training goes on."""
    words = f"emc-vdn gridworld --env.slip {slip:g} --memory episodic --memory.weight 0.1 --memory.statistic {statistic} --seed {seed}"
    config = configure([*words.split(), "--steps", str(steps)])
    env: Any = config.env
    value, _ = model_of(env).best(config.method.gamma, env.spec.episode_limit)
    program = Program(config.method, config.budget, env, config.seeds)
    state, found = program.init(), []
    for until in range(EVERY, steps + 1, EVERY):
        state = program.advance(state, int(state.replay.added) // config.budget.parallel_envs, MOST_STEPS // 2, Until(furthest=until))
        found.append({"steps": int(state.env_steps), **errors(config, state, value)})
    return found


def errors(config: Any, state: Any, value: np.ndarray) -> dict[str, float]:
    """What the memory says at each visit of the latest episodes, against what the best play is worth from there on."""
    added, spec = int(state.replay.added), config.env.spec
    rows = np.arange(added - min(added, LATEST), added) % state.replay.capacity
    length, states = map(np.asarray, latest(spec, state.replay.episodes, rows))
    row, time = np.nonzero(np.arange(spec.episode_limit) < length[:, None])
    places, which = np.unique(states[row, time], axis=0, return_inverse=True)
    every = np.zeros((value[0].size, spec.state_size), np.float32)  # one size for all looks, so that one program serves them
    every[: len(places)] = places
    known, held = (np.asarray(x)[which] for x in look_up(config.method.memory, state.learner.memory, every))
    error = (held - value[time, *cells(config.env, states[row, time])])[known]
    found = {"bias": np.mean(error), "rms": np.sqrt(np.mean(error**2)), "found": np.mean(known)}
    return {name: round(float(number), 4) for name, number in found.items()}


look_up = jax.jit(EpisodicMemory.look_up, static_argnums=0)


@functools.partial(jax.jit, static_argnums=0)
def latest(spec: EnvSpec, episodes: Packed, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
    """How long some stored episodes are, and all their states, those after the end too."""
    length = lengths(spec, episodes.step_flags[rows])
    row, time = (x.reshape(-1) for x in jnp.meshgrid(jnp.arange(len(rows)), jnp.arange(spec.episode_limit), indexing="ij"))
    states = unpack(spec, episodes, rows[row], time, length[row]).state
    return length, states.reshape(len(rows), spec.episode_limit, -1)


def cells(env: Any, states: np.ndarray) -> np.ndarray:
    """Both agents' cells, each on its own side of the wall and numbered row by row, as the optimum's tables have them."""
    own = states.reshape(len(states), 2, -1)
    row = own[:, :, : env.rows].argmax(axis=2)
    column = own[:, :, env.rows : env.rows + env.columns].argmax(axis=2)
    half = env.columns // 2
    return (row * half + column - np.array([0, half])).T


def main(steps: int, seeds: list[int]) -> None:
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else []
    commit = commit_of(ROOT)
    for seed in seeds:
        for slip in SLIPS:
            for statistic in STATISTICS:
                asked = {"slip": slip, "statistic": statistic, "seed": seed, "steps": steps}
                if any(asked == {name: one[name] for name in asked} for one in kept):
                    continue
                kept.append({**asked, "commit": commit, "lines": measure(slip, statistic, seed, steps)})
                print(asked, kept[-1]["lines"][-1], flush=True)
                with written_whole(KEPT) as beside:
                    beside.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", type=int, nargs="?", default=200_000)
    parser.add_argument("seeds", type=int, nargs="*", default=[1])
    asked = parser.parse_args()
    if asked.steps < EVERY or min(asked.seeds) < 0:
        parser.error(f"steps must be at least {EVERY}, the first look, and seeds at least 0")
    main(asked.steps, asked.seeds)
