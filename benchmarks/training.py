"""End-to-end gridworld training of EMC-VDN, with 30 test episodes per 1,000 steps: environment steps per second.

    python benchmarks/training.py               one process, then two at once, one core each

Measured after compilation in the phase that every run shares, where episodes mostly run to their limit and one gradient step buys 30
environment steps. Once the task is solved an episode is about 11 steps long and so is what a gradient step buys: expect about half the
figure there; the runs in `results/` hold what whole runs took.
The released PyTorch code makes about 250 steps/s with two threads and 2 x 200 as two processes on a machine of this kind.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

WARM_UP, MEASURED = 2_000, 15_000
RELEASED_ONE, RELEASED_TWO = 250.0, 400.0


def one(core: int) -> float:
    """Steps per second of one single-threaded process on its own core."""
    import os

    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    from emc.envs import make_env
    from emc.methods import make_method
    from emc.training.loop import Budget, Program

    budget = Budget()
    program = Program(make_method("emc-vdn"), budget, make_env("gridworld"), (1,))
    state, iteration, evaluations, begun = program.init(), 0, 0, None
    while True:
        goal = (int(state.env_steps) // budget.evaluate_every + 1) * budget.evaluate_every
        while (left := goal - int(state.env_steps)) > 0:
            count = max(1, left // 30)
            state = program.advance(state, iteration, count)
            iteration += count
        program.evaluate(state, evaluations).won.block_until_ready()
        evaluations += 1
        steps = int(state.env_steps)
        if begun is None and steps >= WARM_UP:
            begun = (steps, time.perf_counter())
        if begun is not None and steps >= WARM_UP + MEASURED:
            return (steps - begun[0]) / (time.perf_counter() - begun[1])


def in_processes(cores: list[int]) -> list[float]:
    """The same in several processes at once."""
    running = [subprocess.Popen([sys.executable, __file__, str(core)], stdout=subprocess.PIPE, text=True) for core in cores]
    return [float(json.loads(process.communicate()[0])) for process in running]


def main() -> None:
    from common import keep, machine

    (alone,) = in_processes([0])
    together = sum(in_processes([0, 1]))
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
    if len(sys.argv) > 1:
        print(json.dumps(one(int(sys.argv[1]))))
    else:
        main()
