"""Hostile testing for as long as it is told to: kills, damaged files, and command lines that nobody means well with.

    python benchmarks/hostile.py --minutes 60                   prints counts, and every breach with how to repeat it
    python benchmarks/hostile.py --only files:17 --seed 3       one round again

A round is a function of the seed and its number. `kills/...` trains in another process, kills it with SIGKILL at random moments of its
progress, resumes it, and compares every byte with a run that was never killed. `files` changes a file of a run and lets every command look
at it: whatever is accepted must be what was written. `words` gives random words to `emc`.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import resource
import shutil
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
    """One configuration, trained in other processes."""

    def __init__(self, root: Path, name: str) -> None:
        self.root, self.name = root, name
        self.whole: dict[str, bytes] = {}  # what a run leaves that nobody kills

    def round(self, dice: random.Random, counts: collections.Counter[str]) -> None:
        """Kill it up to three times, let it finish, and compare."""
        if not self.whole:
            self.whole = self._finished(self.root / "whole")
        runs = Path(tempfile.mkdtemp(dir=self.root))
        most = sum(content.count(b"\n") for path, content in self.whole.items() if path.endswith("metrics.jsonl"))
        killed = 0
        for lines in sorted(dice.randrange(most) for _ in range(dice.randint(1, 3))):
            child = self._begin(runs)
            self._wait(child, runs, lines, dice)
            if child.poll() is None:
                killed += 1
                counts["kills"] += 1
                counts["kills of runs with lines"] += bool(metrics_below(runs))
                counts["kills while a checkpoint was being written"] += being_written(runs)
                child.kill()
            said = child.communicate()[0]
            if child.returncode not in (0, -signal.SIGKILL) and "finished at step" not in said:
                raise Breach(f"{self.name} ended with {child.returncode}: {said[-300:]}")
            if child.returncode != -signal.SIGKILL:
                break
        found = self._finished(runs)
        if found != self.whole:
            different = sorted(path for path in {*found, *self.whole} if found.get(path) != self.whole.get(path))
            raise Breach(f"{self.name} differs from the run that was never killed, in {', '.join(different)}; it is kept in {runs}")
        if killed:
            counts[f"killed runs that ended bit for bit the same: {self.name}"] += 1
        shutil.rmtree(runs)

    def _wait(self, child: subprocess.Popen[str], runs: Path, lines: int, dice: random.Random) -> None:
        """For so many lines, whatever time they take, and half of the time for the next checkpoint that is being written."""
        while child.poll() is None and sum(path.read_bytes().count(b"\n") for path in metrics_below(runs)) < lines:
            time.sleep(0.005)
        if dice.random() < 0.5:
            while child.poll() is None and not being_written(runs):
                time.sleep(0.0005)
        elif child.poll() is None:
            time.sleep(dice.uniform(0.0, 1.0) ** 2)

    def _begin(self, runs: Path) -> subprocess.Popen[str]:
        words = CONFIGURATIONS[self.name].split()
        begun = begun_below(runs)
        if self.name == "sweep":
            at = words.index("--")
            words = [*words[:at], "--runs", str(runs), *words[at:], "--checkpoint-minutes", "0"]
        elif begun:
            words = ["resume", str(begun[0]), *(["--trust", HOST] if self.name == "host" else [])]
        else:
            words += ["--runs", str(runs), "--checkpoint-minutes", "0"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
        return subprocess.Popen(
            [sys.executable, "-m", "emc", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, env=environment
        )

    def _finished(self, runs: Path) -> dict[str, bytes]:
        """Train to the end, and what that leaves which no kill may change."""
        for _ in range(3):  # a run that was finished when it was killed refuses to go on
            child = self._begin(runs)
            said = child.communicate()[0]
            if child.returncode == 0 or "finished at step" in said:
                return dict(self._left(runs))
        raise Breach(f"{self.name} cannot be finished: {said[-300:]}")

    def _left(self, runs: Path) -> Iterator[tuple[str, bytes]]:
        for run in begun_below(runs):
            config = json.loads((run / "manifest.json").read_text())["config"]
            called = f"{config['env_name']}/{config['method_name']}/{config['seeds']}"
            for file in ("metrics.jsonl", "maps.jsonl", "end.jsonl"):
                yield f"{called}/{file}", (run / file).read_bytes() if (run / file).exists() else b""
            yield f"{called}/arrays", (max((run / "checkpoints").glob("[0-9]*")) / "arrays.safetensors").read_bytes()


def begun_below(runs: Path) -> list[Path]:
    """Run directories; one that was killed while it was being made has a temporary name, and is none."""
    return sorted(path.parent for path in runs.glob("*/*/*/manifest.json") if ".tmp-" not in path.parent.name)


def metrics_below(runs: Path) -> list[Path]:
    """Files of lines that are there now; folders may vanish meanwhile, which `os.walk` takes as it is."""
    return [Path(folder) / name for folder, _, names in os.walk(runs) for name in names if name == "metrics.jsonl"]


def being_written(runs: Path) -> bool:
    """Whether something has a temporary name now."""
    return any(".tmp-" in name for _, folders, names in os.walk(runs) for name in (*folders, *names))


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
    folder = Path(tempfile.mkdtemp(prefix="hostile-"))
    os.environ.update(XLA_FLAGS="--xla_cpu_multi_thread_eigen=false", JAX_COMPILATION_CACHE_DIR=str(folder / "compiled"))
    from hostile_files import Files
    from hostile_words import Words

    from emc.files import remove

    kinds = {"files": Files(folder / "files"), "words": Words(folder / "words")}
    kinds |= {f"kills/{name}": Kills(folder / "kills" / name, name) for name in CONFIGURATIONS}
    share = {kind: 2 / len(CONFIGURATIONS) if kind.startswith("kills") else 1.0 for kind in kinds}  # kills take half the time
    counts, breaches = collections.Counter[str](), list[str]()
    spent, numbers = dict.fromkeys(kinds, 0.0), collections.Counter[str]()
    for kind in kinds:
        (folder / kind).mkdir(parents=True)
    began = time.monotonic()
    while time.monotonic() - began < 60 * flags.minutes or flags.only:
        kind = min(spent, key=lambda one: spent[one] / share[one])
        number = numbers[kind]
        if flags.only:
            kind, number = flags.only.rsplit(":", 1)[0], int(flags.only.rsplit(":", 1)[1])
        numbers[kind] += 1
        start = time.monotonic()
        try:
            with contextlib.nullcontext() if kind.startswith("kills") else watched():
                kinds[kind].round(random.Random(f"{flags.seed}/{kind}/{number}"), counts)
        except (Exception, SystemExit) as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            said = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})".replace(str(folder), "FOLDER")
            breaches.append(f"{said}; again with: python benchmarks/hostile.py --seed {flags.seed} --only '{kind}:{number}'")
            print(f"BREACH {breaches[-1]}", flush=True)
        spent[kind] += time.monotonic() - start
        counts[f"rounds of {kind.partition('/')[0]}"] += 1
        if flags.only:
            break
    used = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    times = {"minutes": round((time.monotonic() - began) / 60, 1), "minutes of processor time": round(used / 60, 1)}
    result = {"commit": commit(), **times, "seed": flags.seed, **dict(sorted(counts.items())), "breaches": breaches}
    for name, value in result.items():
        print(f"{name}: {len(value) if isinstance(value, list) else value}")
    if breaches:
        print(f"what they left is in {folder}")
    else:
        remove(folder)  # some of it is deeper than Python can call itself
    if not flags.only:
        RESULT.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(bool(breaches))


def commit() -> str:
    """What was tested."""
    asked = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=12", "--dirty"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
