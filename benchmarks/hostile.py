"""Hostile testing for as long as it is told to: kills, damaged files, and command lines that nobody means well with.

    python benchmarks/hostile.py --minutes 60                   prints counts, and every breach with how to repeat it
    python benchmarks/hostile.py --only files:17 --seed 3       one round again

A round is a function of the seed and its number. `kills` trains in another process, kills it with SIGKILL at random moments, resumes it,
and compares every byte with a run that was never killed. `files` changes a file of a run and lets every command look at it: whatever is
accepted must be what was written. `words` gives random words to `emc`.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]
RESULT = Path(__file__).parent / "results" / "hostile.json"
HANGS_AFTER = 600  # seconds in which a look at one run, or one command line, must be over on the busiest machine
SMALL = "--policy.hidden 8 --batch-episodes 4 --replay-episodes 16 --test-episodes 2"
HOST = "tests.envs.host_examples:Race"
CONFIGURATIONS = {  # words after `emc`
    "memory": f"train emc-vdn gridworld --memory episodic --memory.capacity 4096 --steps 900 --evaluate-every 120 {SMALL}",
    "predator-prey": f"train qmix predator-prey --env.episode-limit 20 --steps 400 --evaluate-every 80 {SMALL}",
    "battle": f"train vdn 3m --steps 300 --evaluate-every 120 {SMALL}",
    "several seeds": f"train vdn gridworld --seeds 3 --steps 900 --evaluate-every 120 {SMALL}",
    "prioritised": f"train emc-qplex n-step-game --replay prioritised --steps 900 --evaluate-every 120 {SMALL}",
    "host": f"train vdn {HOST} --steps 120 --evaluate-every 40 {SMALL}",
    "sweep": f"sweep --methods vdn,qmix --envs gridworld --seeds 2 --workers 1 -- --steps 300 --evaluate-every 120 {SMALL}",
}


class Breach(Exception):
    """Something that must hold did not."""


class Kills:
    """Training in other processes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.whole: dict[str, tuple[dict[str, bytes], float]] = {}  # what a run leaves that nobody kills, and how long it takes

    def round(self, dice: random.Random, counts: collections.Counter[str]) -> None:
        """One configuration, killed up to three times."""
        name = dice.choice([*CONFIGURATIONS])
        if name not in self.whole:
            began = time.monotonic()
            left = self._finished(name, self.root / "whole" / name)
            self.whole[name] = left, time.monotonic() - began
        expected, seconds = self.whole[name]
        runs = Path(tempfile.mkdtemp(dir=self.root))
        for _ in range(dice.randint(1, 3)):
            child = self._begin(name, runs)
            moment = dice.uniform(0.3, 1.0) * seconds
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(moment)
            if child.poll() is None:
                counts["kills"] += 1
                counts["kills of runs with lines"] += any(runs.rglob("metrics.jsonl"))
                counts["kills while a checkpoint was being written"] += any(runs.rglob("*.tmp-*"))
                child.kill()
            said = child.communicate()[0]
            if child.returncode not in (0, -signal.SIGKILL):
                raise Breach(f"{name} ended with {child.returncode}: {said[-300:]}")
            if child.returncode == 0:
                break
        found = self._finished(name, runs)
        if found != expected:
            different = sorted(path for path in {*found, *expected} if found.get(path) != expected.get(path))
            raise Breach(f"{name} differs from the run that was never killed, in {', '.join(different)}; it is kept in {runs}")
        counts["killed runs that ended bit for bit the same"] += 1

    def _begin(self, name: str, runs: Path) -> subprocess.Popen[str]:
        words = CONFIGURATIONS[name].split()
        begun = [*runs.glob("*/*/*/manifest.json")]
        if name == "sweep":
            at = words.index("--")
            words = [*words[:at], "--runs", str(runs), *words[at:], "--checkpoint-minutes", "0"]
        elif begun:
            words = ["resume", str(begun[0].parent), *(["--trust", HOST] if name == "host" else [])]
        else:
            words += ["--runs", str(runs), "--checkpoint-minutes", "0"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
        return subprocess.Popen(
            [sys.executable, "-m", "emc", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, env=environment
        )

    def _finished(self, name: str, runs: Path) -> dict[str, bytes]:
        """Train to the end, and what that leaves which no kill may change."""
        for _ in range(3):  # a run that was finished when it was killed refuses to go on
            child = self._begin(name, runs)
            said = child.communicate()[0]
            if child.returncode == 0 or "finished at step" in said:
                return dict(self._left(runs))
        raise Breach(f"{name} cannot be finished: {said[-300:]}")

    def _left(self, runs: Path) -> Iterator[tuple[str, bytes]]:
        for manifest in sorted(runs.glob("*/*/*/manifest.json")):
            run, config = manifest.parent, json.loads(manifest.read_text())["config"]
            called = f"{config['env_name']}/{config['method_name']}/{config['seeds']}"
            for file in ("metrics.jsonl", "maps.jsonl", "end.jsonl"):
                yield f"{called}/{file}", (run / file).read_bytes() if (run / file).exists() else b""
            yield f"{called}/arrays", (max((run / "checkpoints").glob("[0-9]*")) / "arrays.safetensors").read_bytes()


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Nothing may take for ever."""

    def ring(number: int, frame: object) -> None:
        raise Breach(f"nothing happened for {HANGS_AFTER} seconds")

    signal.signal(signal.SIGALRM, ring)
    signal.alarm(HANGS_AFTER)
    try:
        yield
    finally:
        signal.alarm(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="one round again, such as files:17")
    flags = parser.parse_args()
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    from hostile_files import Files
    from hostile_words import Words

    counts, breaches = collections.Counter[str](), list[str]()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        kinds = {"kills": Kills(Path(folder) / "kills"), "files": Files(Path(folder) / "files"), "words": Words(Path(folder) / "words")}
        spent, numbers = dict.fromkeys(kinds, 0.0), collections.Counter[str]()
        for kind in kinds:
            (Path(folder) / kind).mkdir()
        while time.monotonic() - began < 60 * flags.minutes or flags.only:
            kind = min(spent, key=lambda one: spent[one] / (2 if one == "kills" else 1))  # which take half the time
            number = numbers[kind]
            if flags.only:
                kind, number = flags.only.split(":")[0], int(flags.only.split(":")[1])
            numbers[kind] += 1
            start = time.monotonic()
            try:
                with contextlib.nullcontext() if kind == "kills" else watched():
                    kinds[kind].round(random.Random(f"{flags.seed}/{kind}/{number}"), counts)
            except (Exception, SystemExit) as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                said = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})".replace(folder, "FOLDER")
                breaches.append(f"{said}; again with: python benchmarks/hostile.py --seed {flags.seed} --only {kind}:{number}")
                print(f"BREACH {breaches[-1]}", flush=True)
            spent[kind] += time.monotonic() - start
            counts[f"rounds of {kind}"] += 1
            if flags.only:
                break
    used = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    times = {"minutes": round((time.monotonic() - began) / 60, 1), "minutes of processor time": round(used / 60, 1)}
    result = {**times, "seed": flags.seed, **dict(sorted(counts.items())), "breaches": breaches}
    for name, value in result.items():
        print(f"{name}: {len(value) if isinstance(value, list) else value}")
    if not flags.only:
        RESULT.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(bool(breaches))


if __name__ == "__main__":
    main()
