"""The engine for many machines: each run is a task of a Ray cluster, on run directories that all of its nodes share.

A task only watches over the run's own process, so neither can hurt the other. Ray itself repeats nothing: a run whose worker or node is
lost comes back here, and is begun again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import signal
import socket
from collections.abc import Generator
from pathlib import Path
from typing import Any

from emc.errors import UserError
from emc.files import content_of
from emc.processes import STOPPED, End, Order, attend, unseen
from emc.sweeps.engine import LOCK, Attempt, Engine
from emc.sweeps.local import cores

STORE_BYTES = 100 * 2**20  # for objects, of which there are next to none; the least that Ray takes is 75 MB
CONNECT_SECONDS = 10.0
PASSED_ON = ("JAX_", "XLA_", "PYTHONPATH")  # beginnings of the variables that runs elsewhere get from here


class RayEngine(Engine):
    """Tasks on a Ray cluster: the one at the address, else the one that RAY_ADDRESS names, else one that it starts on this machine."""

    def __init__(self, address: str = "", workers: int = 0, cpus: float = 1.0):
        self.address, self.workers, self.cpus = address or os.environ.get("RAY_ADDRESS", ""), workers, cpus
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            self.ray: Any = importlib.import_module("ray")
        except ImportError as error:
            raise UserError("the engine ray needs an extra package: pip install 'emc-marl[ray]'") from error
        self.sign = ("", "")  # a file, and what every node must find in it

    @contextlib.contextmanager
    def ready(self) -> Generator[None]:
        """Join the cluster, or start one; one that the caller has joined already is used and left as it is."""
        if self.ray.is_initialized():
            yield
            return
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": None}
        if not self.address:
            quiet |= {"num_cpus": self.workers or len(cores()), "object_store_memory": STORE_BYTES, "include_dashboard": False}
        try:
            _knock(self.address)
            self.ray.init(address=self.address or "local", **quiet)
        except Exception as error:  # Ray raises all kinds
            what = f"join the Ray cluster at {self.address}" if self.address else "start a Ray cluster here"
            raise UserError(f"cannot {what}: {_first_line(error)}") from error
        try:
            yield
        finally:
            self.ray.shutdown()

    def check(self, root: Path) -> None:
        """Every node that can take runs must see the sweep's own lock file there."""
        self.sign = (str(root / LOCK), content_of(root / LOCK, "sweep").decode())
        affinity: Any = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        task = self.ray.remote(num_cpus=0, max_retries=0)(unseen)
        nodes = [node["NodeID"] for node in self.ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        asked = [task.options(scheduling_strategy=affinity(node, soft=False)).remote(*self.sign) for node in nodes]
        for answer in asked:
            try:
                complaint = self.ray.get(answer)
            except self.ray.exceptions.RayTaskError as error:
                raise UserError(f"a node of the Ray cluster cannot do runs: {_first_line(error.cause)}") from error
            except self.ray.exceptions.RayError:
                continue  # the node left while it was asked
            if complaint:
                raise UserError(complaint)

    def room(self) -> int:
        """As many as were asked for, else as many as all processors of the cluster can take; nodes may come and go."""
        return self.workers or int(self.ray.cluster_resources().get("CPU", 0) // self.cpus)

    def begin(self, order: Order, place: int) -> Attempt:
        """A task for whichever node has a processor free."""
        surroundings = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
        task = self.ray.remote(num_cpus=self.cpus, max_retries=0)(attend)
        return _Task(self.ray, task.remote(order, self.sign, surroundings, str(Path.cwd())))


@dataclasses.dataclass
class _Task:
    ray: Any
    answer: Any

    def end(self) -> End | None:
        ready, _ = self.ray.wait([self.answer], timeout=0)
        return self._result() if ready else None

    def stop(self, at_once: bool = False) -> None:
        self.ray.cancel(self.answer, force=at_once)

    def _result(self) -> End:
        errors = self.ray.exceptions
        try:
            end: End = self.ray.get(self.answer)
        except errors.TaskCancelledError:
            return End(STOPPED)
        except errors.RayTaskError as error:
            return End(1, f"{type(error.cause).__name__}: {_first_line(error.cause)}")
        except errors.RayError as error:
            return End(1, f"its worker was lost: {_first_line(error)}", lost=True)
        outside = end.stopped or end.code == -signal.SIGKILL  # nodes that shut down or run out of memory do that
        return dataclasses.replace(end, lost=outside)


def _knock(address: str) -> None:
    """Ray itself waits for minutes for a cluster that is not there."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        with socket.create_connection((host, int(port)), CONNECT_SECONDS):
            pass


def _first_line(error: BaseException) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
