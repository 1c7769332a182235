"""Sweeps: what they consist of, what of it is missing, and that doing it together changes nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from emc.cli import _configured, main
from emc.errors import UserError
from emc.runs.config import RunConfig
from emc.runs.session import is_finished, start
from emc.sweeps import Job, State, Survey, Sweep, jobs_of, read_sweep
from emc.sweeps.engine import Progress
from emc.sweeps.table import summary

SMALL = "--steps 90 --evaluate-every 40 --test-episodes 2 --policy.hidden 4 --batch-episodes 2 --replay-episodes 8 --env.episode-limit 12"


def configured(words: list[str]) -> RunConfig:
    return _configured("train", words)[0]


def names(sweep: Sweep) -> list[str]:
    return [job.name for job in jobs_of(sweep, configured)]


def test_a_sweep_is_the_cross_product_with_seeds_innermost() -> None:
    sweep = Sweep(("vdn", "qmix --mixer.embed 8"), ("gridworld",), (0, 1), (("env.penalty", ("0", "2")),), "--steps 100")
    assert len(sweep) == 8
    assert names(sweep)[:3] == [
        "vdn gridworld --env.penalty 0 --steps 100 --seed 0",
        "vdn gridworld --env.penalty 0 --steps 100 --seed 1",
        "vdn gridworld --env.penalty 2 --steps 100 --seed 0",
    ]
    assert names(sweep)[-1] == "qmix gridworld --mixer.embed 8 --env.penalty 2 --steps 100 --seed 1"


def test_a_file_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(
        'methods = ["vdn"]\nenvs = ["gridworld"]\nseeds = [3, 5]\nflags = "--steps 100"\n[set]\nenv.noisy_reward = [0, 0.5]\ngamma = 0.9\n'
    )
    expected = Sweep(("vdn",), ("gridworld",), (3, 5), (("env.noisy-reward", ("0", "0.5")), ("gamma", ("0.9",))), "--steps 100")
    assert read_sweep(path) == expected
    path.write_text('methods = ["vdn"]\nenvs = ["gridworld"]\nseeds = 3\n')
    assert read_sweep(path).seeds == (0, 1, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("methods = [", "is not TOML"),
        ('method = ["vdn"]', "Did you mean methods"),
        ('methods = "vdn"\nenvs = ["gridworld"]', "methods must be a list"),
        ('methods = ["vdn"]\nenvs = []', "a sweep needs envs"),
        ('methods = ["vdn"]\nenvs = ["gridworld"]\nseeds = [0.5]', "seeds"),
        ('methods = ["vdn"]\nenvs = ["gridworld"]\nseeds = 0', "a sweep needs seeds"),
        ('methods = ["vdn", "vdn"]\nenvs = ["gridworld"]', "each of them once"),
    ],
)
def test_a_mistake_in_a_file_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as error:
        read_sweep(path)
    assert "\n" not in str(error.value)


def test_mistakes_in_runs_and_equal_runs_are_found_before_the_first_begins() -> None:
    with pytest.raises(UserError, match="Did you mean vdn"):
        names(Sweep(("qmix", "vdm"), ("gridworld",)))
    with pytest.raises(UserError, match=r"two runs of this sweep are the same: vdn gridworld --gamma 0\.9"):
        names(Sweep(("vdn", "vdn --gamma 0.9"), ("gridworld",)))


def small(seed: int) -> Job:
    words = ["vdn", "gridworld", *SMALL.split(), "--seed", str(seed)]
    return Job(tuple(words), configured(words))


def test_runs_are_known_by_what_decides_their_numbers(tmp_path: Path) -> None:
    run = start(small(0).config, tmp_path, command="by another way")
    survey = Survey(tmp_path)
    assert survey.find(small(0)) == run.path
    assert (survey.state(small(0)), survey.state(small(1))) == (State.DONE, State.MISSING)
    newest = max((run.path / "checkpoints").iterdir())
    (newest / "checkpoint.json").unlink()
    assert survey.state(small(0)) is State.BEGUN
    manifest = run.path / "manifest.json"
    manifest.write_text("{")
    assert Survey(tmp_path).state(small(0)) is State.MISSING


def test_what_is_left_is_summed_up_at_the_speed_of_what_is_going_on() -> None:
    now = time.monotonic()
    runs = [
        Progress(small(0), State.RUNNING, steps=45, began=now - 10),
        Progress(small(1), State.MISSING),
        Progress(small(2), State.DONE, 90),
    ]
    assert summary(runs, now) == "1 done, 1 to do, 1 running; about 0:00:30 left"
    assert runs[0].seconds_left(now) == pytest.approx(10)
    assert runs[1].seconds_left(now) is None


@pytest.mark.slow
def test_a_sweep_does_what_is_missing_like_single_runs_do_and_nothing_twice(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sweep = ["sweep", "--methods", "vdn", "--envs", "gridworld", "--seeds", "2", "--runs", str(tmp_path / "runs")]
    words, dry = ([*sweep, *more, "--", *SMALL.split()] for more in ([], ["--dry-run"]))
    main(dry)
    said = capfd.readouterr().out
    assert said.count("to do") == 2
    assert "steps/s: vdn on gridworld (a short try)" in said
    assert not (tmp_path / "runs").exists()
    alone = start(small(0).config, tmp_path / "runs")  # one of the two is there already
    main(words)
    assert f"all 2 runs are done, in {tmp_path / 'runs'}" in capfd.readouterr().out
    runs = sorted(path.parent for path in (tmp_path / "runs").glob("*/*/*/manifest.json"))
    assert len(runs) == 2
    assert alone.path in runs
    (other,) = set(runs) - {alone.path}
    flags = {**os.environ, "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}  # several threads would round differently
    command = [sys.executable, "-m", "emc", "train", *small(1).words, "--runs", str(tmp_path / "other")]
    subprocess.run(command, env=flags, check=True, capture_output=True, cwd=Path(__file__).parents[2])
    (again,) = (tmp_path / "other").glob("*/*/*/metrics.jsonl")
    assert (other / "metrics.jsonl").read_bytes() == again.read_bytes()
    main(words)
    assert len(list((tmp_path / "runs").glob("*/*/*/manifest.json"))) == 2
    main(dry)
    assert "nothing is left to do" in capfd.readouterr().out


@pytest.mark.slow
def test_a_failure_stops_no_other_run_and_ctrl_c_leaves_everything_to_go_on_with(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    long = SMALL.replace("--steps 90", "--steps 100000")
    command = [sys.executable, "-m", "emc", "sweep", "--methods", "vdn,vdn --learning-rate 1e30", "--envs", "gridworld"]
    command += ["--runs", str(runs), "--workers", "2", "--", *long.split()]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=Path(__file__).parents[2])
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("failed"):
            break
    deadline = time.monotonic() + 120
    while not any(runs.glob("*/*/*/metrics.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=120)
    text = "".join(lines) + rest
    assert process.returncode == 130
    assert "is not a finite number" in text
    assert "1 runs are left and everything is kept" in text
    good = [path.parent for path in runs.glob("*/*/*/manifest.json") if "1e+30" not in path.read_text()]
    assert len(good) == 1
    assert not is_finished(good[0])
    assert json.loads((good[0] / "manifest.json").read_text())["config"]["budget"]["steps"] == 100_000
    assert list((good[0] / "checkpoints").iterdir())
    assert not list(runs.glob("*.log"))
