"""Compile time of the demonstration's training: cold (empty cache) and warm (its programs kept on disk), on all cores.

python benchmarks/compiling.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time


def one() -> dict[str, float]:
    """Seconds until the first iterations and the first evaluation are done."""
    start = time.perf_counter()
    import jax

    from emc.commands.common import prepare_jax
    from emc.envs import make_env
    from emc.methods import make_method
    from emc.training.loop import Budget, Program

    prepare_jax()
    imported = time.perf_counter()
    program = Program(make_method("emc-vdn"), Budget(), make_env("gridworld"), (1,))
    state = jax.block_until_ready(program.init())
    state = jax.block_until_ready(program.advance(state, 0, 1))
    jax.block_until_ready(program.evaluate(state, 0))
    return {"import": imported - start, "compile": time.perf_counter() - imported}


def main() -> None:
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": cache}
        runs = [
            subprocess.run([sys.executable, __file__, "one"], env=environment, capture_output=True, text=True, check=True) for _ in range(2)
        ]
    from common import keep, machine  # afterwards: it binds this process to one core

    cold, warm = (json.loads(run.stdout) for run in runs)
    keep(
        "compiling", machine() | {f"{kind}: seconds to {what}": t for kind, r in (("cold", cold), ("warm", warm)) for what, t in r.items()}
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(one()))
    else:
        main()
