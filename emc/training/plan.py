"""How many bytes a run will need, known before anything is compiled."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import jax

from emc.envs.base import Described
from emc.errors import UserError
from emc.methods import Method
from emc.training.loop import Budget, check_cadence, init
from emc.training.packing import blank_episodes
from emc.types import bytes_of

LIVE_ARRAYS_PER_UNROLL = 12  # [moments, rows, hidden] arrays alive at the peak of one trained network's forward and backward pass


@dataclasses.dataclass(frozen=True)
class Plan:
    """Bytes, over all seeds."""

    replay: int
    memory: int
    networks: int  # weights, targets and optimisers of all modules
    peak: int  # the above, plus one batch and the activations of one update (an estimate)
    seeds: int


def plan(method: Method, env: Described, budget: Budget, seeds: int) -> Plan:
    """Sizes from shapes alone; what could not be trained is refused."""
    check_cadence(method, budget)
    state = jax.eval_shape(lambda: init(method, env, 0))
    spec = env.spec
    replay, memory = bytes_of(state.replay), bytes_of(state.learner.memory)
    networks = bytes_of((state.learner.values, state.learner.policy, state.learner.curiosity))
    moments, rows = spec.episode_limit + 1, method.batch_episodes * spec.n_agents
    hidden = method.policy.hidden
    inputs = spec.obs_size + spec.n_actions + spec.n_agents
    activations = 4 * moments * rows * (LIVE_ARRAYS_PER_UNROLL * hidden + inputs)
    episode = bytes_of(jax.eval_shape(lambda: blank_episodes(spec, (), method.policy.blank_choice(spec))))
    batch, test = episode * method.batch_episodes, episode * max(budget.test_episodes, budget.parallel_envs)
    total = replay + memory + networks + 2 * batch + activations + 2 * test
    return Plan(replay * seeds, memory * seeds, networks * seeds, total * seeds, seeds)


def check_fits(needed: Plan) -> None:
    """Refuse a run that cannot fit, before it starts."""
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
