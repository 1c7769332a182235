"""Workers forked from a process that has imported everything, so that starting one takes no time.

`python -m tests.envs.warm_worker PLACE` is that process; it listens at PLACE. `python warm_worker.py PLACE DESCRIPTOR ...` stands where
`python -m emc.envs.workers DESCRIPTOR ...` would: it hands its connection over, and ends as the forked worker does; killing it kills both.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
from pathlib import Path


def stand_in(place: str, descriptor: str, *words: str) -> None:
    """End like the worker that is forked for these words."""
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(place)
        socket.send_fds(server, [json.dumps([words, str(Path.cwd()), {**os.environ}]).encode()], [int(descriptor)])
        os.close(int(descriptor))
        code = int(server.recv(100))
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


def serve(place: str) -> None:
    """Fork a worker for everybody who comes, until asked to end."""
    import tests.envs.host_examples  # noqa: F401
    from emc.envs.workers import main

    listening = socket.socket(socket.AF_UNIX)
    listening.bind(place)
    listening.listen(64)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    print("ready", flush=True)
    while True:
        client, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            _look_after(client, main)
        client.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _look_after(client: socket.socket, main: object) -> None:
    """Fork the worker, tell its stand-in how it ended, and end it where nobody waits any more."""
    said, (descriptor,), *_ = socket.recv_fds(client, 2**20, 1)
    words, folder, environment = json.loads(said)
    worker = os.fork()
    if worker == 0:
        client.close()
        os.setsid()
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.path[0] = folder
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        code = 1
        try:
            main(str(descriptor), *words)  # type: ignore[operator]
            code = 0
        finally:
            os._exit(code)
    os.close(descriptor)
    watched = os.pidfd_open(worker)
    ready, *_ = select.select([watched, client], [], [])
    if watched not in ready:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker, signal.SIGKILL)  # whatever it started
    with contextlib.suppress(OSError):
        client.sendall(str(code).encode())
    os._exit(0)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(sys.argv[1])
    else:
        stand_in(*sys.argv[1:])
