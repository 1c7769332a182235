"""What one recalled and one written state cost, against a KD-tree used as the released code uses it and against a stronger use of it.

The released code rebuilds a KD-tree every 200 updates and queries it state by state in Python. The stronger baseline queries all states
of a batch in one call; it still needs the rebuild, and between two of them it sees nothing new. Ours runs jitted, in place.

    python benchmarks/memory.py [--largest 1000000]
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial import cKDTree

from emc.lanes import BLOCK, Layout, lay_episodes
from emc.memory import EpisodicMemory
from emc.memory.episodic import Remembered
from emc.parts import Recollection
from emc.types import EnvSpec, Episodes

STATE_SIZE = 92
STEPS = 99  # with the moment after the last step, 100 states per episode
BATCH = 32  # episodes per recall
LAYOUT = Layout(16, BLOCK)  # of the batch, which is part of what is timed
FILL = 100  # episodes per call while filling
GAMMA = 0.99
UPDATES_PER_REBUILD = 200  # released code
SPEC = EnvSpec(n_agents=1, n_actions=1, obs_size=1, state_size=STATE_SIZE, episode_limit=STEPS)


def episodes_from(states: np.ndarray) -> Episodes:
    """Episodes through the given states, on the device."""
    count = len(states)
    last = np.arange(STEPS) == STEPS - 1
    return jax.device_put(
        Episodes(
            obs=np.zeros((count, STEPS + 1, 1, 1), np.float32),
            state=states,
            available=np.ones((count, STEPS + 1, 1, 1), bool),
            action=np.zeros((count, STEPS, 1), np.int32),
            reward=np.ones((count, STEPS), np.float32),
            terminated=np.tile(last, (count, 1)),
            played=np.ones((count, STEPS), bool),
        )
    )


def states_of(seed: int, count: int = FILL) -> np.ndarray:
    return np.random.default_rng(seed).random((count, STEPS + 1, STATE_SIZE), np.float32)


def median_seconds(call: Callable[[int], None], times: int) -> float:
    """Of calls that each bring other states, so that nothing waits in a cache."""
    durations: list[float] = []
    for i in range(times + 1):
        start = time.perf_counter()
        call(i)
        durations.append(time.perf_counter() - start)
    return float(np.median(durations[1:]))  # the first one compiles


class Ours:
    """The package's memory, carried in place."""

    def __init__(self) -> None:
        self.memory = EpisodicMemory()
        self.state = self.memory.init(jax.random.key(0), SPEC)
        self.observe = jax.jit(lambda state, fresh: self.memory.observe(state, fresh, GAMMA), donate_argnums=0)
        self.recall = jax.jit(self._recall, donate_argnums=0)
        self.filled: list[tuple[int, int]] = []  # seed and number of episodes of each batch
        self.evictions: list[tuple[int, int]] = []  # after how many written states

    def _recall(self, state: Remembered, batch: Episodes) -> tuple[Remembered, Recollection]:
        return self.memory.recall(state, lay_episodes(batch, LAYOUT, lambda obs, previous: obs.astype(jnp.float32)), GAMMA)

    def fill(self, entries: int) -> None:
        written = self.evictions[-1][0] if self.evictions else 0
        while written < entries:
            count = min(FILL, (entries - written) // (STEPS + 1))
            self.filled.append((len(self.filled), count))
            self.state = self.observe(self.state, episodes_from(states_of(*self.filled[-1])))
            written += count * (STEPS + 1)
            self.evictions.append((written, int(self.state.table.evictions)))

    def seconds_per_recalled(self, batches: list[Episodes]) -> float:
        def call(i: int) -> None:
            self.state, recollection = self.recall(self.state, batches[i])
            jax.block_until_ready(recollection)

        return median_seconds(call, len(batches) - 1) / (BATCH * STEPS)

    def seconds_per_written(self, fresh: list[Episodes]) -> float:
        def call(i: int) -> None:
            self.state = jax.block_until_ready(self.observe(self.state, fresh[i]))

        return median_seconds(call, len(fresh) - 1) / (STEPS + 1)


class Tree:
    """A KD-tree over the same keys, one state at a time or all at once."""

    def __init__(self, keys: np.ndarray, projection: np.ndarray) -> None:
        self.keys, self.projection = keys, projection
        start = time.perf_counter()
        self.tree = cKDTree(keys)
        self.rebuild_seconds = time.perf_counter() - start
        self.values, self.stamps, self.clock = np.zeros(len(keys), np.float32), np.zeros(len(keys), np.float32), 0.0

    def peek(self, state: np.ndarray) -> float | None:
        key = state @ self.projection
        _, nearest = self.tree.query(key, k=1)
        if np.allclose(self.keys[nearest], key):
            self.clock += 0.01
            self.stamps[nearest] = self.clock
            return float(self.values[nearest])
        return None

    def peek_all(self, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        keys = states @ self.projection
        _, nearest = self.tree.query(keys, k=1)
        known = np.all(np.isclose(self.keys[nearest], keys), axis=-1)
        self.clock += 0.01
        self.stamps[nearest[known]] = self.clock
        return np.where(known, self.values[nearest], 0.0), known

    def seconds_one_by_one(self, states: list[np.ndarray]) -> float:
        return median_seconds(lambda i: [self.peek(state) for state in states[i]] and None, len(states) - 1) / len(states[0])

    def seconds_at_once(self, states: list[np.ndarray]) -> float:
        return median_seconds(lambda i: self.peek_all(states[i]) and None, len(states) - 1) / len(states[0])


def measure(ours: Ours, entries: int) -> dict[str, float]:
    """Microseconds per state, and how many times longer the trees take."""
    ours.fill(entries)
    rng = np.random.default_rng(0)

    def known_states() -> np.ndarray:
        chosen = rng.choice(len(ours.filled), size=min(4, len(ours.filled)), replace=False)
        pool = np.concatenate([states_of(*ours.filled[i]) for i in chosen])
        return pool[rng.integers(len(pool), size=BATCH)]

    known = [known_states() for _ in range(12)]
    unknown = [states_of(10**9 + i, BATCH) for i in range(12)]
    projection = np.asarray(ours.state.projection, np.float64)
    keys = np.concatenate([states_of(*batch).reshape(-1, STATE_SIZE) @ projection for batch in ours.filled]).astype(np.float32)
    tree = Tree(keys, projection)
    share = tree.rebuild_seconds / (UPDATES_PER_REBUILD * BATCH * STEPS)
    few = [states[0, 1:] for states in known]

    recall = ours.seconds_per_recalled([episodes_from(states) for states in known])
    miss = ours.seconds_per_recalled([episodes_from(states) for states in unknown])
    loop = tree.seconds_one_by_one(few) + share
    vector = tree.seconds_at_once([states[:, 1:].reshape(-1, STATE_SIZE) for states in known]) + share
    write = ours.seconds_per_written([episodes_from(states_of(2 * 10**9 + i, 1)) for i in range(40)])
    loop_write = tree.seconds_one_by_one([states[0] for states in unknown])
    return {
        "entries": entries,
        "recall_us": recall * 1e6,
        "recall_unknown_us": miss * 1e6,
        "write_us": write * 1e6,
        "tree_rebuild_ms": tree.rebuild_seconds * 1e3,
        "tree_one_by_one_recall_us": loop * 1e6,
        "tree_one_by_one_write_us": loop_write * 1e6,
        "tree_at_once_recall_us": vector * 1e6,
        "ratio_recall_one_by_one": loop / recall,
        "ratio_recall_at_once": vector / recall,
        "ratio_write_one_by_one": loop_write / write,
    }


def load_at(evictions: list[tuple[int, int]], share: float, capacity: int) -> float | None:
    """Keys written per slot when more than this share of them had been evicted."""
    return next((written / capacity for written, evicted in evictions if evicted > share * written), None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=int, default=1_000_000)
    largest = parser.parse_args().largest
    ours, rows = Ours(), list[dict[str, float]]()
    print("microseconds per state; xN is how many times longer the KD-tree takes\n")
    print("  entries | recall  unknown   write | tree, one by one   tree, at once | write one by one | rebuild ms")
    for entries in (10**3, 10**4, 10**5, 10**6):
        if entries > largest:
            break
        row = measure(ours, entries)
        rows.append(row)
        print(
            f"{entries:9,} | {row['recall_us']:6.2f} {row['recall_unknown_us']:8.2f} {row['write_us']:7.2f} |"
            f" {row['tree_one_by_one_recall_us']:7.1f} x{row['ratio_recall_one_by_one']:<8.0f}"
            f" {row['tree_at_once_recall_us']:6.2f} x{row['ratio_recall_at_once']:<6.1f} |"
            f" {row['tree_one_by_one_write_us']:7.1f} x{row['ratio_write_one_by_one']:<7.1f} | {row['tree_rebuild_ms']:8.1f}",
            flush=True,
        )
    capacity = ours.state.table.value.size
    fill = {
        "first_eviction_at_load": load_at(ours.evictions, 0.0, capacity),
        "one_in_a_thousand_evicted_at_load": load_at(ours.evictions, 1e-3, capacity),
        "one_in_a_hundred_evicted_at_load": load_at(ours.evictions, 1e-2, capacity),
        "evicted_at_the_end": ours.evictions[-1][1] / ours.evictions[-1][0],
    }
    print("\nkeys written per slot:", fill)
    result = {"jax": jax.__version__, "cpus": os.cpu_count(), "backend": jax.default_backend(), "sizes": rows, "fill": fill}
    path = pathlib.Path(__file__).parent / "results" / "memory.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
