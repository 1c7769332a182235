"""Worker processes, one environment each. A worker that dies, raises or hangs costs its own episode and nothing else: it is started anew.

Parent and worker talk in frames of bytes with a fixed layout, so nothing that arrives is ever executed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import multiprocessing.connection
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any, cast

import numpy as np
from jaxtyping import Int

from emc.envs.base import HostEnvironment
from emc.envs.hosted import Hosted, make_host
from emc.errors import UserError
from emc.types import EnvSpec, HostTimestep

INTRODUCTION, MOMENT, FAILURE, RESET, STEP, LEAVE = b"I", b"M", b"F", b"R", b"S", b"L"
START_SECONDS = 300.0  # a game may take long to start
CLOSE_SECONDS = 2.0  # and to be closed after something went wrong in it
PACKAGE = Path(__file__).parents[1]
PROGRAM = ("-m", "emc.envs.workers")  # what a worker is, for Python


@dataclasses.dataclass(frozen=True)
class Failure:
    """Why a worker had no answer."""

    reason: str
    closing: bool = False  # whether the worker said so itself, and is letting go of its game


class Worker:
    """One process with one environment."""

    def __init__(self, env: Hosted, number: int = 0):
        ours, theirs = socket.socketpair()
        words = [sys.executable, *PROGRAM, str(theirs.fileno()), env.source, env.arguments, str(number)]
        package = str(Path(__file__).parents[2])
        paths = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
        surroundings = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": paths}
        # Its own session: Ctrl-C is for the parent, which then stops its workers.
        self.process = subprocess.Popen(
            words, pass_fds=[theirs.fileno()], env=surroundings, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
        )
        theirs.close()
        self.connection = multiprocessing.connection.Connection(ours.detach())

    def introduction(self) -> EnvSpec | Failure:
        """The sizes of its environment, said once after starting."""
        answer = self.answer(time.monotonic() + START_SECONDS)
        if isinstance(answer, Failure):
            return answer
        fields: dict[str, Any] = json.loads(answer[1:], object_hook=_with_tuples)
        return EnvSpec(**fields)

    def answer(self, deadline: float) -> bytes | Failure:
        """What it says before the deadline."""
        try:
            if not self.connection.poll(max(deadline - time.monotonic(), 0.0)):
                return Failure("gave no answer in time")
            frame = self.connection.recv_bytes()
        except (EOFError, OSError):
            return Failure(f"died ({_code(self.process)})")
        return Failure(frame[1:].decode(), closing=True) if frame[:1] == FAILURE else frame

    def send(self, frame: bytes) -> None:
        """Say something; a dead worker shows in its answer."""
        with contextlib.suppress(OSError):
            self.connection.send_bytes(frame)

    def kill(self, after: float = 0.0) -> None:
        """End it, and whatever it started, after some seconds if it does not go by itself."""
        self.connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=after)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def leave(self) -> None:
        """Ask it to go, and make sure."""
        self.send(LEAVE)
        self.kill(after=5.0)


class Workers:
    """Several workers with the same environment."""

    def __init__(self, env: Hosted, count: int):
        self.env, self.spec = env, env.spec
        self.workers = [Worker(env, number) for number in range(count)]
        self.started = count
        self.introduced = [False] * count
        self.failures: list[str] = []  # reasons, since somebody last looked

    def reset(self, number: int, seed: int) -> None:
        """Ask a worker to start an episode."""
        self.workers[number].send(RESET + struct.pack("<q", seed))

    def step(self, number: int, action: Int[np.ndarray, " N"]) -> None:
        """Ask a worker to play a joint action."""
        self.workers[number].send(STEP + np.ascontiguousarray(action, "<i4").tobytes())

    def answers(self, numbers: list[int]) -> dict[int, HostTimestep | Failure]:
        """What these workers show next, or why they do not; the ones that do not are started anew."""
        deadline = time.monotonic() + self.env.timeout
        found: dict[int, HostTimestep | Failure] = {}
        for number in numbers:
            worker = self.workers[number]
            # Starting may fail like any step: a machine that is short of memory for a moment must not cost a run.
            introduction = None if self.introduced[number] else worker.introduction()
            if introduction is not None:
                self.introduced[number] = True
                deadline = time.monotonic() + self.env.timeout
            answer = introduction if isinstance(introduction, Failure) else worker.answer(deadline)
            if isinstance(answer, Failure):
                self.failures.append(answer.reason)
                worker.kill(CLOSE_SECONDS if answer.closing else 0.0)
                self.workers[number] = Worker(self.env, self.started)
                self.started += 1
                self.introduced[number] = False
                found[number] = answer
            else:
                found[number] = decode(self.spec, answer[1:])
        return found

    def close(self) -> None:
        """End all of them."""
        for worker in self.workers:
            worker.leave()
        self.workers = []


@functools.lru_cache(maxsize=32)
def spec_of(env: Hosted) -> EnvSpec:
    """The sizes of a hosted environment."""
    worker = Worker(env)
    try:
        introduction = worker.introduction()
    finally:
        worker.leave()
    if isinstance(introduction, Failure):
        raise UserError(introduction.reason)
    return introduction


def encode(spec: EnvSpec, now: HostTimestep) -> bytes:
    """A moment as bytes; wrong shapes and numbers are refused here, where the environment can be blamed."""
    wanted = {"obs": (spec.n_agents, spec.obs_size), "state": (spec.state_size,), "available": (spec.n_agents, spec.n_actions)}
    arrays = {"obs": np.asarray(now.obs, "<f4"), "state": np.asarray(now.state, "<f4"), "available": np.asarray(now.available, bool)}
    for name, array in arrays.items():
        if array.shape != wanted[name]:
            raise UserError(f"{name} has shape {array.shape}, its spec says {wanted[name]}")
    reward = np.float32(now.reward)  # as it is stored
    for name, value in (("obs", arrays["obs"]), ("state", arrays["state"]), ("reward", reward)):
        if not np.isfinite(value).all():
            raise UserError(f"{name} has a number that is not finite")
    if not arrays["available"].any(axis=1).all():
        raise UserError(f"available leaves agent {int(arrays['available'].any(axis=1).argmin())} no action at all")
    flags = struct.pack("<d3?", float(now.reward), bool(now.terminated), bool(now.truncated), bool(now.won))
    return flags + b"".join(array.tobytes() for array in arrays.values())


def decode(spec: EnvSpec, frame: bytes) -> HostTimestep:
    """The moment again, as numpy arrays."""
    reward, terminated, truncated, won = struct.unpack_from("<d3?", frame)
    at = struct.calcsize("<d3?")
    sizes = (spec.n_agents * spec.obs_size, spec.state_size, spec.n_agents * spec.n_actions)
    obs = np.frombuffer(frame, "<f4", sizes[0], at).reshape(spec.n_agents, spec.obs_size)
    state = np.frombuffer(frame, "<f4", sizes[1], at + 4 * sizes[0])
    available = np.frombuffer(frame, bool, sizes[2], at + 4 * sizes[0] + 4 * sizes[1]).reshape(spec.n_agents, spec.n_actions)
    return HostTimestep(obs, state, available, reward, terminated, truncated, won)


def _with_tuples(fields: dict[str, Any]) -> dict[str, Any]:
    """JSON knows lists only."""
    return {name: tuple(cast(list[Any], value)) if isinstance(value, list) else value for name, value in fields.items()}


def _code(process: subprocess.Popen[bytes]) -> str:
    try:
        code = process.wait(timeout=5.0)
    except subprocess.TimeoutExpired:
        return "its connection broke"
    return f"signal {-code}" if code < 0 else f"exit code {code}"


class _ParentGone(Exception):
    """There is nobody left to answer; not an OSError, which an environment may raise for reasons of its own."""


def _receive(connection: multiprocessing.connection.Connection) -> bytes:
    try:
        return connection.recv_bytes()
    except (EOFError, OSError) as error:
        raise _ParentGone from error


def _send(connection: multiprocessing.connection.Connection, frame: bytes) -> None:
    try:
        connection.send_bytes(frame)
    except OSError as error:
        raise _ParentGone from error


def serve(connection: multiprocessing.connection.Connection, env: HostEnvironment) -> None:
    """Answer the parent until it leaves."""
    spec = env.spec
    _send(connection, INTRODUCTION + json.dumps(dataclasses.asdict(spec)).encode())
    while (frame := _receive(connection))[:1] != LEAVE:
        if frame[:1] == RESET:
            now = env.reset(struct.unpack("<q", frame[1:])[0])
        else:
            now = env.step(np.frombuffer(frame[1:], "<i4").astype(np.int64))
        _send(connection, MOMENT + encode(spec, now))


def main(descriptor: str, source: str, arguments: str, number: str) -> None:
    """The worker's side."""
    connection = multiprocessing.connection.Connection(int(descriptor))
    with contextlib.ExitStack() as at_last, contextlib.suppress(_ParentGone):
        try:
            env = make_host(source, arguments, int(number))
            at_last.callback(_close, env)  # whatever happens: a game that nobody closes goes on running
            serve(connection, env)
        except _ParentGone:
            raise
        except BaseException as error:
            _send(connection, FAILURE + (str(error) if isinstance(error, UserError) else _blame(source, error)).encode())


def _close(env: HostEnvironment) -> None:
    """Nobody waits for an answer any more, so that there is nobody to tell what goes wrong."""
    with contextlib.suppress(Exception):
        env.close()


def _blame(source: str, error: BaseException) -> str:
    """What went wrong in an environment, and where: the innermost line outside this package."""
    outside = [frame for frame in traceback.extract_tb(error.__traceback__) if not Path(frame.filename).is_relative_to(PACKAGE)]
    where = f" ({outside[-1].filename}:{outside[-1].lineno} in {outside[-1].name})" if outside else ""
    return f"{source} raised {type(error).__name__}: {' '.join(str(error).split())}{where}"


if __name__ == "__main__":
    main(*sys.argv[1:])
