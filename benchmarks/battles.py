"""Battles: random play beside JaxMARL's SMAX in the same run, compiling, and bytes of replay.

    python benchmarks/battles.py [MAP ...]        all maps unless some are named; SMAX needs the extra `smax`
    python benchmarks/battles.py --before FOLDER  five maps beside an earlier checkout of emc in FOLDER, battles alone and side by side

A step is one joint action with observations, states and masks. Both games are played by `vmap` with random available actions inside one
compiled loop for fifty steps from their beginning. SMAX's own `step` prepares a new episode each time; the ratio without
that (`step_env`) is measured too. Bytes are compared with the same arrays in 32-bit floats. Two versions of emc are measured in turns, each
three times in a process of its own, by processor time; the fastest of each counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from common import keep, machine, seconds

from emc.envs.battle import MAPS, Battle
from emc.envs.jaxmarl import made
from emc.errors import UserError
from emc.training.replay import Replay
from emc.types import bytes_of

STEPS = 50
COMPARED, COUNTS, TURNS = ("3m", "2s3z", "3s5z_vs_3s6z", "MMM2", "corridor"), (1, 32, 256), 3
HERE = Path(__file__).parents[1]


def random_actions(available: jax.Array, key: jax.Array) -> jax.Array:
    """One of the available actions for each agent."""
    return jax.random.categorical(key, jnp.where(available, 0.0, -jnp.inf))


def battles(name: str, count: int) -> Callable[[jax.Array], Any]:
    """A block of battles, from their beginning."""
    env = Battle(name)

    def run(key: jax.Array) -> Any:
        def step(carry: Any, key: jax.Array) -> tuple[Any, Any]:
            world, now = carry
            act, move = jax.random.split(key)
            action = jax.vmap(random_actions)(now.available, jax.random.split(act, count))
            world, now = jax.vmap(env.step)(world, action, jax.random.split(move, count))
            return (world, now), (now.reward, jnp.sum(now.obs, axis=(1, 2)), jnp.sum(now.state, axis=1))

        start = jax.vmap(env.reset)(jax.random.split(key, count))
        return jax.lax.scan(step, start, jax.random.split(key, STEPS))[1]

    return run


def smax(name: str, count: int, renewed: bool) -> Callable[[jax.Array], Any]:
    """The same in SMAX."""
    env = made(f"smax/{name}", "")
    advance = env.step if renewed else env.step_env

    def run(key: jax.Array) -> Any:
        def step(carry: Any, key: jax.Array) -> tuple[Any, Any]:
            obs, state = carry
            act, move = jax.random.split(key)
            masks = jax.vmap(env.get_avail_actions)(state)
            keys = jax.random.split(act, (len(env.agents), count))
            action = {agent: jax.vmap(random_actions)(masks[agent], keys[i]) for i, agent in enumerate(env.agents)}
            obs, state, reward, _, _ = jax.vmap(advance)(jax.random.split(move, count), state, action)
            return (obs, state), (reward[env.agents[0]], sum(jnp.sum(value, axis=1) for value in obs.values()))

        start = jax.vmap(env.reset)(jax.random.split(key, count))
        return jax.lax.scan(step, start, jax.random.split(key, STEPS))[1]

    return run


def steps_per_second(run: Callable[[jax.Array], Any], count: int) -> tuple[float, float]:
    """Environment steps per second of a compiled block, and the seconds that compiling took."""
    began = time.perf_counter()
    compiled = jax.jit(run).lower(jax.random.key(0)).compile()
    compiling = time.perf_counter() - began
    return STEPS * count / seconds(lambda: compiled(jax.random.key(1)), repeats=3), compiling


def processor_time(name: str, count: int) -> float:
    """Seconds of a compiled block, the fastest of several."""
    run, key, times = jax.jit(battles(name, count)), jax.random.key(1), list[float]()
    jax.block_until_ready(run(key))
    for _ in range(4 if count > 100 else 20):
        begun = time.process_time()
        jax.block_until_ready(run(key))
        times.append(time.process_time() - begun)
    return min(times)


def in_process(name: str, count: int, code: Path) -> float:
    """The same with a given version of emc."""
    if not (code / "emc" / "__init__.py").is_file():
        raise SystemExit(f"{code} is no checkout of emc")
    words = [sys.executable, __file__, "--once", name, str(count)]
    done = subprocess.run(words, env=os.environ | {"PYTHONPATH": str(code)}, stdout=subprocess.PIPE, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def compare(before: Path) -> None:
    """How many times as fast as an earlier version, and how far the turns of each lie apart."""
    result = machine()
    for name in COMPARED:
        for count in COUNTS:
            turns = [(in_process(name, count, before), in_process(name, count, HERE)) for _ in range(TURNS)]
            earlier, now = zip(*turns, strict=True)
            title = f"{name}, {count} side by side" if count > 1 else f"{name}, one battle"
            result[f"{title}: times as fast"] = min(earlier) / min(now)
            result[f"{title}: spread of turns, before and now"] = [max(times) / min(times) for times in (earlier, now)]
            print(title, f"{min(earlier) / min(now):.2f}", flush=True)
    keep("battles-before", result)


def main(names: list[str]) -> None:
    result = machine()
    for name in names:
        spec = Battle(name).spec
        for count in (32, 256):
            ours, compiling = steps_per_second(battles(name, count), count)
            result[f"{name}, {count} side by side: steps/s"] = ours
            if count == 32:
                result[f"{name}: seconds to compile"] = compiling
            try:
                theirs, slower = steps_per_second(smax(name, count, renewed=True), count)
            except UserError:  # not a map of SMAX, or no SMAX
                continue
            result[f"{name}, {count} side by side: times SMAX"] = ours / theirs
            if count == 32:
                bare, _ = steps_per_second(smax(name, count, renewed=False), count)
                result[f"{name}, {count} side by side: times SMAX without its resets"] = ours / bare
                result[f"{name}: compiling, times SMAX"] = compiling / slower
        moments, steps, agents = spec.episode_limit + 1, spec.episode_limit, spec.n_agents
        whole = 4 * (moments * (agents * (spec.obs_size + spec.n_actions) + spec.state_size) + steps * (agents + 3))
        stored = bytes_of(jax.eval_shape(lambda spec=spec: Replay.empty(spec, 1)).episodes)
        result |= {f"{name}: kB of replay per episode": stored / 1e3, f"{name}: replay, share of float32": stored / whole}
        print(name, "done", flush=True)
    keep("battles", result, partial={*names} != {*MAPS})


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--once", name, count]:
            print(json.dumps(processor_time(name, int(count))))
        case ["--before", before]:
            compare(Path(before).resolve())
        case names:
            main(names or list(MAPS))
