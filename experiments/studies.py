"""The runs behind the page of results: what is missing is run, what is unfinished is resumed, one single-threaded process per core.

    python experiments/studies.py RUNS [STUDY ...]       RUNS: directory that keeps the runs; STUDY: one of the names below, or all

Afterwards `python experiments/results.py keep RUNS` and `... page`. Stopping it loses nothing but the last minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from emc.runs.session import is_finished

STUDIES: dict[str, list[str]] = {
    "gridworld-p2": [
        f"{method} --seed {seed}"
        for method in (
            "emc-vdn gridworld",
            "vdn gridworld",
            "emc-vdn gridworld --replay uniform",
            "vdn gridworld --replay prioritised",
        )
        for seed in range(1, 7)
    ],
    "predator-prey": [f"{method} predator-prey --seed {seed}" for seed in (1, 2, 3) for method in ("vdn", "emc-vdn")],
    "noisy-gridworld": [
        f"{method} --env.noisy-reward {noise} --steps 200000 --seed {seed}"
        for seed in (1, 2, 3)
        for noise in ("0.5", "0.0")
        for method in ("emc-vdn gridworld", "emc-td gridworld --mixer vdn", "emc-ind gridworld --mixer vdn", "vdn gridworld")
    ],
    "predator-prey-baselines": [
        f"{method} --seed {seed}"
        for seed in (1, 2, 3)
        for method in ("ow-qmix predator-prey", "qmix predator-prey", "vdn predator-prey --epsilon.steps 1000000")
    ],
    "n-step-game": [
        *(
            f"{method} n-step-game --seeds 6 --epsilon.steps 10000{finish}{weight}"
            for finish in (" --epsilon.finish 0", "")
            for method, weight in (("qmix", ""), ("maven", " --policy.information-weight 1"))
        ),
        # QMIX with the discount and the hypernetworks that MAVEN has.
        "qmix n-step-game --seeds 6 --epsilon.steps 10000 --gamma 0.99 --mixer.layers 1",
    ],
    "battles": [f"{method} 3m --preset starcraft --steps 500000 --seed 1" for method in ("qmix", "emc-qplex")],
}


def existing(root: Path) -> dict[str, Path]:
    """Run directories by the command that began them, without where it kept them."""
    found: dict[str, Path] = {}
    for manifest in root.glob("*/*/*/manifest.json"):
        words = json.loads(manifest.read_text())["command"].removeprefix("emc train ").split()
        if "--runs" in words:
            del words[words.index("--runs") : words.index("--runs") + 2]
        found[" ".join(words)] = manifest.parent
    return found


def main(root: Path, studies: list[str]) -> None:
    known = existing(root)
    commands: list[list[str]] = []
    for line in (line for study in studies for line in STUDIES[study]):
        if line not in known:
            commands.append(["train", *line.split(), "--runs", str(root)])
        elif not is_finished(known[line]):
            commands.append(["resume", str(known[line])])
    cores: SimpleQueue[int] = SimpleQueue()
    count = os.cpu_count() or 1
    for core in range(count):
        cores.put(core)

    def run(words: list[str]) -> None:
        core = cores.get()
        print("begin", *words, flush=True)
        environment = {**os.environ, "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
        bind = ["taskset", "-c", str(core)] if sys.platform == "linux" else []
        code = subprocess.run(
            [*bind, sys.executable, "-c", "from emc.cli import main; main()", *words], env=environment, check=False
        ).returncode
        print("end" if code == 0 else f"failed ({code})", *words, flush=True)
        cores.put(core)

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(run, commands))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2:] or list(STUDIES))
