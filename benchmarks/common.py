"""What all benchmarks share: timing, the machine's matrix-product peak measured in the same run, and kept results."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")  # one thread: two such processes beat one with two
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp

RESULTS = Path(__file__).parent / "results"


def seconds(run: Callable[[], Any], repeats: int = 7) -> float:
    """The fastest of several runs, after one to warm up."""
    jax.block_until_ready(run())
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - start)
    return min(times)


def sgemm_peak(size: int = 1536) -> float:
    """Floating-point operations per second of one large matrix product."""
    matrix = jnp.ones((size, size))
    product = jax.jit(lambda a: a @ a)
    return 2 * size**3 / seconds(lambda: product(matrix), repeats=5)


def keep(name: str, result: dict[str, Any], partial: bool = False) -> None:
    """Print a result beside the one kept before, and keep it; a partial one leaves what it did not measure as it was."""
    path = RESULTS / f"{name}.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    for key, value in result.items():
        earlier = before.get(key)
        ratio = (
            f"  ({value / earlier:.2f} x the kept result)" if isinstance(value, float) and isinstance(earlier, float) and earlier else ""
        )
        print(f"{key:<58} {value:.4g}{ratio}" if isinstance(value, float) else f"{key:<58} {value}")
    RESULTS.mkdir(exist_ok=True)
    path.write_text(json.dumps({**before, **result} if partial else result, indent=1) + "\n")


def machine() -> dict[str, Any]:
    """What the numbers were measured with."""
    return {"jax": jax.__version__, "cpus": os.cpu_count(), "threads": 1}
