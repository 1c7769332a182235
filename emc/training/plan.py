"""How many bytes a run will need, known before anything is compiled."""

from __future__ import annotations

import dataclasses
import functools
import os
from pathlib import Path

import jax

from emc.allocator import give_back
from emc.envs.base import HasSpec
from emc.errors import UserError
from emc.methods import Method
from emc.nets import KEPT, tape_moments
from emc.training.loop import Budget, check_cadence, shapes
from emc.training.packing import blank_episodes
from emc.types import EnvSpec, bytes_of

TRACKS = 4  # of hidden states and values that are alive at the peak of an update


@dataclasses.dataclass(frozen=True)
class Plan:
    """Bytes, over all seeds."""

    replay: int
    memory: int
    networks: int  # weights, targets and optimisers of all modules
    peak: int  # the above, plus one batch and the activations of one update (an estimate)
    seeds: int


def plan(method: Method, env: HasSpec, budget: Budget, seeds: int) -> Plan:
    """Sizes from shapes alone; what could not be trained is refused."""
    check_cadence(method, budget)
    state, (update, episode) = shapes(method, env.spec), _temporary(method, env.spec)
    replay, memory = bytes_of(state.replay), bytes_of(state.learner.memory)
    networks = bytes_of((state.learner.values, state.learner.policy, state.learner.curiosity))
    test = episode * max(budget.test_episodes, budget.parallel_envs)
    total = replay + memory + networks + update + 2 * test
    return Plan(replay * seeds, memory * seeds, networks * seeds, total * seeds, seeds)


@functools.lru_cache(maxsize=64)
def _temporary(method: Method, spec: EnvSpec) -> tuple[int, int]:
    """What one update makes at its peak (a batch laid out, a tape, gradients, and the tracks of all unrolls), and one episode."""
    episode = bytes_of(jax.eval_shape(lambda: blank_episodes(spec, (), method.policy.blank_choice(spec))))
    replay, layout = shapes(method, spec).replay, method.layout(spec)
    rows = jax.ShapeDtypeStruct((method.batch_episodes,), "int32")
    batch = jax.eval_shape(lambda replay, rows: replay.lay(rows, layout, method.policy), replay, rows)
    moments, side_by_side = batch.time.shape[0], layout.lanes * spec.n_agents
    tape = tape_moments(moments) * KEPT * method.policy.hidden
    tracks = moments * TRACKS * (method.policy.hidden + spec.n_actions)
    return bytes_of(batch) + 4 * side_by_side * (tape + tracks), episode


def check_fits(needed: Plan) -> None:
    """Refuse a run that cannot fit, before it starts; what earlier runs of the process have freed counts as free."""
    give_back()
    available = available_bytes()
    if available is not None and needed.peak > available:
        raise UserError(
            f"this run needs about {readable(needed.peak)} and {readable(available)} are free: "
            "lower --replay-episodes, --batch-episodes, --memory.capacity or --seeds"
        )


def available_bytes() -> int | None:
    """Free memory of the device that JAX computes on; None where it cannot be told."""
    stats = jax.devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    limits = [limit for limit in (_container_bytes(), _system_bytes()) if limit is not None]
    if limits:
        return min(limits)
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _system_bytes(file: Path = Path("/proc/meminfo")) -> int | None:
    """What Linux could still hand out."""
    try:
        entries = dict(line.split(":", 1) for line in file.read_text().splitlines())
        return int(entries["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


def _container_bytes(group: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What a container's own limit leaves, if it has one; file caches count as free."""
    try:
        caches = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        return limit - used + int(caches["inactive_file"])
    except (OSError, KeyError, ValueError):  # no such limit ("max"), or another system
        return None


def readable(size: int | float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
