"""Worker processes that start at once, for tests of what workers do; how they are started is tested with real ones."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from emc.envs import workers

REAL = workers.PROGRAM


@pytest.fixture(scope="session")
def warm_program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ...]]:
    """What takes the place of `python -m emc.envs.workers`: a worker that is forked, where the platform can."""
    if sys.platform != "linux":
        yield REAL
        return
    place = tmp_path_factory.mktemp("warm") / "place"
    command = [sys.executable, "-W", "ignore", "-m", "tests.envs.warm_worker", str(place)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        yield ("-I", "-S", str(Path(__file__).with_name("warm_worker.py")), str(place))
        server.terminate()


@pytest.fixture
def warm_workers(warm_program: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "PROGRAM", warm_program)


@pytest.fixture
def real_workers(warm_workers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "PROGRAM", REAL)
