"""End-to-end training: environment steps per second.

    python benchmarks/training.py                        EMC-VDN on the gridworld: one process, then two at once, one core each
    python benchmarks/training.py --battles BEFORE       three methods on four maps, beside an earlier checkout of emc in the folder BEFORE
    python benchmarks/training.py --playing              what playing the one battle of an iteration takes, beside what that iteration takes

The gridworld is measured with 30 test episodes per 1,000 steps, after compilation, in the phase that every run shares, where episodes
mostly run to their limit and one gradient step buys 30 environment steps. The released PyTorch code makes about 250 steps/s with two
threads and 2 x 200 as two processes on a machine of this kind. Battles are measured without tests, from the first update on, in turns:
earlier code, this code; in steps per second of processor time of the one thread, kernel included, so that other processes matter little.
Where the rules of battles differ between the two, so may the lengths of episodes, and with them how many steps an update buys.
Playing is measured in the same way, alone and within training, by an untrained team that explores in three of ten actions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

WARM_UP, MEASURED = 2_000, 15_000
RELEASED_ONE, RELEASED_TWO = 250.0, 400.0
METHODS, MAPS = ("emc-qplex", "qplex", "qmix"), ("3m", "2s3z", "MMM2", "corridor")
ITERATIONS = 20  # of the timed call
HERE = Path(__file__).parents[1]


def on_core(core: int) -> None:
    """One thread, on a core of its own."""
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


def gridworld(core: int) -> float:
    """Steps per second of one single-threaded process."""
    on_core(core)
    from emc.allocator import begin_with_huge_pages, keep_freed_memory
    from emc.envs import make_env
    from emc.methods import make_method
    from emc.training.loop import Budget, Program, Until

    begin_with_huge_pages()
    keep_freed_memory()
    budget = Budget()
    program = Program(make_method("emc-vdn"), budget, make_env("gridworld"), (1,))
    state, iteration, evaluations, begun = program.init(), 0, 0, None
    while True:
        goal = (int(state.env_steps) // budget.evaluate_every + 1) * budget.evaluate_every
        state = program.advance(state, iteration, goal, Until(goal))
        iteration = int(state.replay.added)
        program.evaluate(state, evaluations).won.block_until_ready()
        evaluations += 1
        steps = int(state.env_steps)
        if begun is None and steps >= WARM_UP:
            begun = (steps, time.perf_counter())
        if begun is not None and steps >= WARM_UP + MEASURED:
            return (steps - begun[0]) / (time.perf_counter() - begun[1])


def battle(method: str, name: str) -> float:
    """Steps per second of processor time in training. Earlier versions have no allocator to set up."""
    on_core(max(os.sched_getaffinity(0)))
    import contextlib

    with contextlib.suppress(ImportError):
        from emc.allocator import begin_with_huge_pages, keep_freed_memory

        begin_with_huge_pages()
        keep_freed_memory()
    import jax

    from emc.envs import make_env
    from emc.methods import make_method
    from emc.training.loop import Budget, Program

    program = Program(make_method(method, "starcraft", name), Budget(), make_env(name), (1,))
    state = jax.block_until_ready(program.advance(program.init(), 0, 40))
    state = jax.block_until_ready(program.advance(state, 40, 2))
    before, begun = int(state.env_steps), time.process_time()
    state = jax.block_until_ready(program.advance(state, 42, ITERATIONS))
    return (int(state.env_steps) - before) / (time.process_time() - begun)


def playing() -> None:
    """Microseconds of playing for each step, and its share of the iterations of two methods."""
    import jax
    import jax.numpy as jnp
    from common import keep, machine

    from emc.envs import make_env
    from emc.methods import make_method
    from emc.parts import Actors
    from emc.training.rollout import play

    result = machine()
    for name in MAPS:
        env, policy = make_env(name), make_method("qmix", "starcraft", name).policy
        actors = Actors(policy, policy.init_net(jax.random.key(0), env.spec), ())

        @jax.jit
        def ten(key: jax.Array, env: Any = env, actors: Actors = actors) -> jax.Array:
            def one(i: jax.Array, before: jax.Array) -> jax.Array:
                return before + jnp.sum(play(env, actors, jax.random.fold_in(key, i), jnp.float32(0.3), 1)[1].length)

            return jax.lax.fori_loop(0, 10, one, 0)

        steps, times = int(ten(jax.random.key(1))), []
        for _ in range(10):
            begun = time.process_time()
            jax.block_until_ready(ten(jax.random.key(1)))
            times.append(time.process_time() - begun)
        each = min(times) / steps
        result[f"{name}: microseconds of playing a step"] = 1e6 * each
        for method in ("emc-qplex", "qmix"):
            result[f"{method} on {name}: share of playing"] = each * answer(in_process("battle", method, name))
    keep("playing", result)


def in_process(*words: str, code: Path = HERE) -> subprocess.Popen[str]:
    """This file in a process of its own, with a given version of emc."""
    environment = os.environ | {"PYTHONPATH": str(code)}
    return subprocess.Popen([sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True, env=environment)


def answer(process: subprocess.Popen[str]) -> float:
    return float(json.loads(process.communicate()[0].strip().splitlines()[-1]))


def battles(before: Path) -> None:
    from common import keep, machine

    result = machine()
    for name in MAPS:
        for method in METHODS:
            earlier, now = (answer(in_process("battle", method, name, code=code)) for code in (before, HERE))
            title = f"{method} on {name}"
            result |= {f"{title}: steps/s before": earlier, f"{title}: steps/s": now, f"{title}: times as fast": now / earlier}
            print(title, f"{earlier:.1f} -> {now:.1f}", flush=True)
    keep("training-battles", result)


def main() -> None:
    from common import keep, machine

    alone = answer(in_process("gridworld", "0"))
    together = sum(map(answer, [in_process("gridworld", core) for core in ("0", "1")]))
    keep(
        "training",
        machine()
        | {
            "one process: steps/s": alone,
            "one process: times the released code": alone / RELEASED_ONE,
            "two processes: steps/s": together,
            "two processes: times the released code": together / RELEASED_TWO,
        },
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["gridworld", core]:
            print(json.dumps(gridworld(int(core))))
        case ["battle", method, name]:
            print(json.dumps(battle(method, name)))
        case ["--playing"]:
            on_core(max(os.sched_getaffinity(0)))
            playing()
        case ["--battles", before]:
            battles(Path(before).resolve())
        case _:
            main()
