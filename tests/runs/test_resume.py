"""A killed run, resumed, is the run that was never killed."""

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from emc.cli import main
from emc.runs.directory import RunDirectory

SMALL = "--policy.hidden 8 --batch-episodes 4 --replay-episodes 24 --evaluate-every 120 --test-episodes 4 --memory.capacity 4096"
TRAIN = f"train emc-vdn gridworld --memory episodic --seed 3 --steps 1500 --epsilon.steps 500 {SMALL}"


SIGNALLED = """
import os, signal, threading
from emc.runs.directory import RunDirectory

save, left = RunDirectory.save_checkpoint, {checkpoints}

def saving(*given):
    global left
    left -= 1
    if left == 0:
        threading.Timer({seconds}, os.kill, (os.getpid(), signal.{name})).start()
    return save(*given)

RunDirectory.save_checkpoint = saving
"""  # at a moment of its progress, which does not depend on how busy the machine is


def ended_early(*words: str, first: str) -> subprocess.CompletedProcess[str]:
    """A process that a signal ends; what nothing ends goes on in this one."""
    return subprocess.run(
        [sys.executable, "-c", f"{first}\nfrom emc.cli import main; main()", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )


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
    main([*TRAIN.split(), "--runs", str(root)])
    return final_bytes(only_run(root))


@pytest.mark.slow
def test_a_run_killed_at_random_points_ends_bit_for_bit_like_one_that_was_not(tmp_path: Path, uninterrupted: dict[str, bytes]) -> None:
    chance = random.Random(1)
    words = [*TRAIN.split(), "--runs", str(tmp_path), "--checkpoint-minutes", "0"]
    for _ in range(3):
        moment = SIGNALLED.format(checkpoints=chance.randint(2, 4), seconds=chance.uniform(0.0, 0.02), name="SIGKILL")
        killed = ended_early(*words, first=moment)
        assert killed.returncode == -signal.SIGKILL, killed.stdout
        words = ["resume", str(only_run(tmp_path)), "--checkpoint-minutes", "0"]
    main(words)
    for name, content in final_bytes(only_run(tmp_path)).items():
        assert content == uninterrupted[name], name


@pytest.mark.slow
def test_an_interrupt_keeps_a_checkpoint_and_says_how_to_go_on(
    tmp_path: Path, uninterrupted: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    moment = SIGNALLED.format(checkpoints=3, seconds=0.0, name="SIGINT")
    stopped = ended_early(*TRAIN.split(), "--runs", str(tmp_path), "--checkpoint-minutes", "0", first=moment)
    assert stopped.returncode == 130
    assert f"emc resume {only_run(tmp_path)}" in stopped.stdout
    assert "Traceback" not in stopped.stdout
    main(["resume", str(only_run(tmp_path))])
    assert final_bytes(only_run(tmp_path)) == uninterrupted
    with pytest.raises(SystemExit) as again:
        main(["resume", str(only_run(tmp_path))])
    assert again.value.code == 2
    assert "finished" in capsys.readouterr().err
