"""Sweeps on a Ray cluster whose workers and nodes go away, and what is said when there is none."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from emc.cli import main
from emc.configuration import configure
from emc.runs.restoring import is_finished
from emc.sweeps import Job, Progress, RayEngine, State

ROOT = Path(__file__).parents[2]
SMALL = (
    "--steps 6000 --evaluate-every 1000 --test-episodes 2 --policy.hidden 4 --batch-episodes 2 --replay-episodes 8 --env.episode-limit 12"
)
RUNS = 5
STORE = 100 * 2**20

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the extra 'ray' is not installed")


def words(seed: int) -> list[str]:
    return ["vdn", "gridworld", *SMALL.split(), "--seed", str(seed)]


def said(run: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a mistake gives."""
    with pytest.raises(SystemExit) as stop:
        main(["sweep", "--methods", "vdn", "--envs", "gridworld", *run])
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_without_ray_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert said(["--engine", "ray"], capsys) == "emc: the engine ray needs an extra package: pip install 'emc-marl[ray]'"
    assert "Did you mean ray" in said(["--engine", "rya"], capsys)
    assert "is for --engine ray" in said(["--address", "auto"], capsys)


@needs_ray
@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense"])
def test_a_cluster_that_is_not_there_is_one_line(address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = said(["--engine", "ray", "--address", address, "--runs", str(tmp_path / "runs")], capsys)
    assert line.startswith(f"emc: cannot join the Ray cluster at {address}: ")
    assert not (tmp_path / "runs").exists()


@contextlib.contextmanager
def two_nodes() -> Generator[tuple[str, Any, Any]]:
    """The address of a cluster on this machine, and the cluster with its second node."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False})
    try:
        second = cluster.add_node(num_cpus=1, object_store_memory=STORE)
        yield cluster.address, cluster, second
    finally:
        cluster.shutdown()


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def training(run: Path) -> tuple[int, int, int] | None:
    """The process that trains in a run directory, its worker and the worker's node; None if it has just ended."""
    try:
        pid = int((run / "lock").read_text().split()[0])
        return pid, parent(pid), parent(parent(pid))
    except (OSError, IndexError):
        return None


def gone(pid: int) -> bool:
    """Whether a process ends, given time; one that nobody has asked about yet has ended too."""
    deadline = time.monotonic() + 1800
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.1)
    return False


class Faults:
    """Kills a worker of the first node, then takes the second node away, each while a run there has a checkpoint and not half its steps."""

    def __init__(self, cluster: Any, second: Any):
        self.cluster, self.second = cluster, second
        self.first, self.last = (node.all_processes["raylet"][0].process.pid for node in (cluster.head_node, second))
        self.done: list[str] = []

    def watch(self, runs: Sequence[Progress]) -> None:
        for one in runs:
            if one.run and one.state is State.RUNNING and 2 * one.steps < one.total and any(one.run.glob("checkpoints/*/checkpoint.json")):
                self._strike(one.run)

    def _strike(self, run: Path) -> None:
        found = training(run)
        if found is None:
            return
        pid, worker, raylet = found
        if not self.done and raylet == self.first:
            os.kill(worker, signal.SIGKILL)
            assert gone(pid)
            assert not is_finished(run)  # nobody went on by himself
            self.done.append("worker")
        elif self.done == ["worker"] and raylet == self.last:
            self.cluster.remove_node(self.second, allow_graceful=False)
            assert gone(pid)
            self.done.append("node")


@needs_ray
@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_runs_that_lose_a_worker_and_a_node_end_as_those_that_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false"  # several would round differently
    monkeypatch.setenv("XLA_FLAGS", threads)
    monkeypatch.setenv("RAY_worker_niceness", "0")  # or everything else on this machine goes before
    program = f"""
from emc.configuration import configure
from emc.runs.session import start
from pathlib import Path
for seed in range({RUNS}):
    start(configure({words(0)[:-1]!r} + [str(seed)]), Path({str(tmp_path / "calm")!r}))
"""
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT) as calmly:  # beside the cluster, which is mostly waiting
        try:
            jobs = [Job((*words(seed), "--checkpoint-minutes", "0"), configure(words(seed))) for seed in range(RUNS)]
            with two_nodes() as (address, cluster, second):
                faults = Faults(cluster, second)
                results = RayEngine(address).run(jobs, tmp_path / "stormy", faults.watch)
            assert [(one.state, one.reason) for one in results] == [(State.DONE, "")] * RUNS
            assert faults.done == ["worker", "node"]
            assert calmly.wait(1800) == 0
        finally:
            calmly.kill()
    calm, stormy = (by_seed(tmp_path / name) for name in ("calm", "stormy"))
    assert stormy == calm


def by_seed(root: Path) -> dict[int, tuple[bytes, ...]]:
    """What does not depend on the machine, of every run."""
    runs = sorted(path.parent for path in root.glob("*/*/*/manifest.json"))
    assert len(runs) == RUNS
    found: dict[int, tuple[bytes, ...]] = {}
    for run in runs:
        newest = max((run / "checkpoints").iterdir())
        lines = [(run / name).read_bytes() for name in ("metrics.jsonl", "maps.jsonl", "end.jsonl")]
        seed = int(lines[0].partition(b'"seed": ')[2].partition(b",")[0])
        found[seed] = (newest.name.encode(), *lines, *(path.read_bytes() for path in sorted(newest.glob("*.safetensors"))))
    assert sorted(found) == list(range(RUNS))
    return found
