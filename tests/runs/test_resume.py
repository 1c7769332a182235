"""A killed run, resumed, is the run that was never killed."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from emc.runs.directory import RunDirectory

PATIENCE = 7200.0  # seconds for what takes a minute or two: a machine may be busy with something else
SMALL = "--policy.hidden 8 --batch-episodes 4 --replay-episodes 24 --evaluate-every 120 --test-episodes 4 --memory.capacity 4096"
TRAIN = f"train emc-vdn gridworld --memory episodic --seed 3 --steps 1500 --epsilon.steps 500 {SMALL}"


def emc(*words: str, wait: bool = True) -> subprocess.Popen[str]:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    process = subprocess.Popen(
        [sys.executable, "-c", "from emc.cli import main; main()", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        cwd=Path(__file__).parents[2],
    )
    if wait:
        process.wait(PATIENCE)
    return process


def only_run(root: Path) -> Path:
    (path,) = root.glob("*/*/*")
    return path


def final_bytes(run: Path) -> dict[str, bytes]:
    """Everything that must not depend on interruptions: all arrays of the last checkpoint and all deterministic lines."""
    last = run / "checkpoints" / f"{RunDirectory.open(run).steps()[-1]:012d}"
    return {
        "arrays": (last / "arrays.safetensors").read_bytes(),
        "metrics": (run / "metrics.jsonl").read_bytes(),
        "maps": (run / "maps.jsonl").read_bytes(),
    }


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    root = tmp_path_factory.mktemp("uninterrupted")
    done = emc(*TRAIN.split(), "--runs", str(root))
    assert done.returncode == 0, done.stdout and done.stdout.read()
    return final_bytes(only_run(root))


@pytest.mark.slow
@pytest.mark.parametrize("dice", [1, 2])
def test_a_run_killed_at_random_points_ends_bit_for_bit_like_one_that_was_not(
    dice: int, tmp_path: Path, uninterrupted: dict[str, bytes]
) -> None:
    chance = random.Random(dice)
    words, kills = [*TRAIN.split(), "--runs", str(tmp_path)], 0
    for _ in range(20):
        process = emc(*words, "--checkpoint-minutes", "0", wait=False)
        deadline = time.monotonic() + PATIENCE
        if kills < 3:
            while process.poll() is None and time.monotonic() < deadline and not list(tmp_path.glob("*/*/*/checkpoints/[0-9]*")):
                time.sleep(0.05)
            time.sleep(chance.uniform(0.0, 1.5) if kills else chance.uniform(0.0, 0.4))
            process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, process.stdout and process.stdout.read()
        kills += 1
        words = ["resume", str(only_run(tmp_path))]
    assert kills >= 1
    for name, content in final_bytes(only_run(tmp_path)).items():
        assert content == uninterrupted[name], name


@pytest.mark.slow
def test_an_interrupt_keeps_a_checkpoint_and_says_how_to_go_on(tmp_path: Path, uninterrupted: dict[str, bytes]) -> None:
    process = emc(*TRAIN.split(), "--runs", str(tmp_path), wait=False)
    deadline = time.monotonic() + PATIENCE
    while not list(tmp_path.glob("*/*/*/metrics.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.wait(PATIENCE)
    said = process.stdout.read() if process.stdout else ""
    assert process.returncode == 130
    assert f"emc resume {only_run(tmp_path)}" in said
    assert "Traceback" not in said
    resumed = emc("resume", str(only_run(tmp_path)))
    assert resumed.returncode == 0
    assert final_bytes(only_run(tmp_path)) == uninterrupted
    again = emc("resume", str(only_run(tmp_path)))
    assert again.returncode == 2
    assert "finished" in (again.stdout.read() if again.stdout else "")
