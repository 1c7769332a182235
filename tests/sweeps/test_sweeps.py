"""Sweeps: what they consist of, what of it is missing, and that doing it together changes nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
from rich.console import Console

from emc.cli import main
from emc.configuration import configure
from emc.envs.gridworld import Gridworld
from emc.envs.hosted import Hosted
from emc.errors import UserError
from emc.processes import STOPPED, End, Order, attend, unseen
from emc.runs.config import MOST_SEEDS, to_json
from emc.runs.directory import RunDirectory
from emc.runs.lock import Lock
from emc.runs.restoring import is_finished
from emc.runs.session import start
from emc.sweeps import Job, LocalEngine, State, Survey, Sweep, grouped, jobs_of, read_sweep, seeds_in_one_run
from emc.sweeps.accelerator import ASK, Accelerator, find_accelerator
from emc.sweeps.engine import MOST_LOSSES, Engine, Progress
from emc.sweeps.grid import seeded
from emc.sweeps.jobs import score_of
from emc.sweeps.table import LiveTable, short_names, summary
from emc.training.loop import Budget
from emc.training.plan import plan

PATIENCE = 7200.0  # seconds for what takes a minute or two: a machine may be busy with something else
SMALL = "--steps 90 --evaluate-every 40 --test-episodes 2 --policy.hidden 4 --batch-episodes 2 --replay-episodes 8 --env.episode-limit 12"


@pytest.fixture(autouse=True)
def _on_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine has; and this process, which is the sweep here, stays as it is."""
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setattr("emc.sweeps.leave_to_runs", lambda: None)


def names(sweep: Sweep) -> list[str]:
    return [job.name for job in jobs_of(sweep)]


def test_a_sweep_is_the_cross_product_with_seeds_innermost() -> None:
    sweep = Sweep(("vdn", "qmix --mixer.embed 8"), ("gridworld",), (0, 1), (("env.penalty", ("0", "2")),), "--steps 100")
    assert sweep.count == 8
    assert names(sweep)[:3] == [
        "vdn gridworld --env.penalty 0 --steps 100 --seed 0",
        "vdn gridworld --env.penalty 0 --steps 100 --seed 1",
        "vdn gridworld --env.penalty 2 --steps 100 --seed 0",
    ]
    assert names(sweep)[-1] == "qmix gridworld --mixer.embed 8 --env.penalty 2 --steps 100 --seed 1"


def many(job: Job) -> int:
    return 100


def test_seeds_side_by_side_are_one_run(tmp_path: Path) -> None:
    jobs = jobs_of(Sweep(("vdn", "qmix"), ("gridworld",), (4, 3, 2, 7), (("env.penalty", ("0", "2")),)))
    assert grouped(jobs, Survey(tmp_path)) == jobs
    merged = grouped(jobs, Survey(tmp_path), many)
    assert [job.config.seeds for job in merged] == [(2, 3, 4), (7,)] * 4
    assert [job.name for job in merged[:2]] == [
        "vdn gridworld --env.penalty 0 --seed 2 --seeds 3",
        "vdn gridworld --env.penalty 0 --seed 7",
    ]
    for job in merged:
        assert configure(job.words) == job.config
    mixed = grouped([jobs[at] for at in (2, 6, 1, 5, 0)], Survey(tmp_path), many)  # as claims list them, first seeds first
    assert [job.name for job in mixed] == [f"vdn gridworld --env.penalty {p} --seed 2 --seeds {n}" for p, n in ((0, 3), (2, 2))]
    assert [job.config.seeds for job in grouped(jobs[:4], Survey(tmp_path), lambda job: 2)] == [(4,), (2, 3), (7,)]


def unfinished(run: Path) -> Path:
    """The same run as if it had been stopped before its end."""
    newest = max((run / "checkpoints").iterdir())
    (newest / "checkpoint.json").unlink()
    return run


def test_seeds_go_on_where_they_were_begun(tmp_path: Path) -> None:
    jobs = [small(seed) for seed in range(5)]
    alone = unfinished(start(jobs[1].config, tmp_path).path)
    merged = grouped(jobs, Survey(tmp_path), many)
    assert [job.config.seeds for job in merged] == [(0,), (1,), (2, 3, 4)]
    several = unfinished(start(merged[2].config, tmp_path).path)
    lines = (several / "metrics.jsonl").read_text().splitlines(keepends=True)
    behind = max(number for number, line in enumerate(lines) if '"eval"' in line and json.loads(line)["seed"] == 3)
    (several / "metrics.jsonl").write_text("".join([*lines[:behind], *lines[behind + 1 :]]))
    survey = Survey(tmp_path)
    assert [survey.state(job) for job in jobs] == [State.MISSING, State.BEGUN, State.DONE, State.MISSING, State.DONE]  # 3 is behind
    for side_by_side in (many, lambda job: 1):
        again = grouped([*jobs, small(5)], survey, side_by_side)
        assert [job.config.seeds for job in again] == [(0,), (1,), (2, 3, 4), (5,)]
        assert [survey.find(job) for job in again] == [None, alone, several, None]
    longer = small(3, 180)
    assert grouped([longer], survey) == [longer]  # the run of several will never get that far


def begun(root: Path, *seeds: int) -> Path:
    """A run that has only just begun."""
    config = dataclasses.replace(small(0).config, seeds=seeds)
    return RunDirectory.create(root, "gridworld", "vdn", {"config": to_json(config)}, "-".join(map(str, seeds))).path


def test_a_run_is_gone_on_with_once_and_no_seed_is_trained_twice(tmp_path: Path) -> None:
    several, alone = begun(tmp_path, 0, 1, 2, 3), begun(tmp_path, 1)
    survey = Survey(tmp_path)
    assert [survey.find(job) for job in grouped([small(1)], survey)] == [alone]
    assert [survey.find(job) for job in grouped([small(0), small(1)], survey)] == [several]  # which has to go on for 0, and has 1 too
    said_otherwise = Job(("vdn", "gridworld", *SMALL.split(), "--gamma", "0.99", "--seed", "2"), small(2).config)
    assert [survey.find(job) for job in grouped([small(0), said_otherwise], survey)] == [several]
    assert len(grouped([small(4), dataclasses.replace(said_otherwise, config=small(5).config)], survey, many)) == 1


def test_seeds_that_no_command_can_name_together_are_not_gone_on_with(tmp_path: Path) -> None:
    begun(tmp_path, 3, 1)  # by `emc.train`, which takes any
    begun(tmp_path, 4, 6)
    jobs = [small(seed) for seed in range(7)]
    assert grouped(jobs, Survey(tmp_path)) == jobs


def test_only_as_many_seeds_are_side_by_side_as_there_is_room_for() -> None:
    job = small(0)
    peak = plan(job.config.method, job.config.env, job.config.budget, 1).peak
    assert [seeds_in_one_run(job, memory) for memory in (0, peak // 2, 4 * peak)] == [MOST_SEEDS, 1, 3]  # with some to spare
    hosted = dataclasses.replace(job, config=dataclasses.replace(job.config, env=Hosted("tests.envs.host_examples:Race")))
    assert seeds_in_one_run(hosted) == 1


@pytest.mark.parametrize(
    ("plugin", "code", "expected"),
    [
        (False, "print('cuda', 1)", None),  # nobody is asked
        (True, "print('cuda', 16)", Accelerator(16)),
        (True, "print('a warning'); print('cpu', 0)", None),
        (True, "raise SystemExit('no device')", None),
        (True, "", None),
    ],
)
def test_an_accelerator_is_found_by_asking_another_process(
    plugin: bool, code: str, expected: Accelerator | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emc.sweeps.accelerator._may_have_one", lambda: plugin)
    monkeypatch.setattr("emc.sweeps.accelerator.ASK", code)
    assert find_accelerator() == expected


def test_what_is_asked_about_accelerators_can_be_answered() -> None:
    result = subprocess.run(
        [sys.executable, "-c", ASK], env={**os.environ, "JAX_PLATFORMS": "cpu"}, capture_output=True, text=True, check=True
    )
    assert result.stdout.split() == ["cpu", "0"]


def test_an_accelerator_has_one_run_at_a_time_and_seeds_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert LocalEngine(0, Accelerator()).room() == 1
    assert LocalEngine(3, Accelerator()).room() == 3
    monkeypatch.setattr("emc.sweeps.engine.available_bytes", lambda: 1000)
    assert [engine.memory() for engine in (LocalEngine(3, Accelerator(600)), LocalEngine(4))] == [200, 250]
    monkeypatch.setattr("emc.commands.many.find_accelerator", Accelerator)
    monkeypatch.setattr("emc.sweeps.calibration._tried_speed", lambda config: 100.0)
    usual = ["--methods", "vdn", "--envs", "gridworld", "--seeds", "3"]
    (tmp_path / "apart.toml").write_text('methods = ["vdn"]\nenvs = ["gridworld"]\nseeds = 3\ntogether = false\n')
    apart, together = [f"to do      vdn gridworld --seed {seed}" for seed in range(3)], ["to do      vdn gridworld --seed 0 --seeds 3"]
    for words, expected in (
        (usual, together),
        ([*usual, "--together", "no"], apart),
        ([*usual[:-1], "1,4", "--together", "no"], [f"to do      vdn gridworld --seed {seed}" for seed in (1, 4)]),
        ([str(tmp_path / "apart.toml")], apart),
        ([str(tmp_path / "apart.toml"), "--together", "yes"], together),
    ):
        main(["sweep", *words, "--runs", str(tmp_path / "runs"), "--dry-run"])
        lines = capsys.readouterr().out.splitlines()
        assert [line for line in lines if line.startswith("to do")] == expected
        assert "with 1 at a time" in lines[-1]


OWN_ENV = """
import jax.numpy as jnp
from emc.envs.gridworld import Gridworld
from emc.envs.hosted import Hosted

COMPUTED = jnp.zeros(3)  # when the module is imported

class Mine(Gridworld): ...
"""


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["--trust", "mine:Mine"]])
def test_a_sweep_leaves_the_accelerator_to_its_runs(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN_ENV)
    command = [sys.executable, "-m", "emc", "sweep", "--methods", "vdn", "--envs", "mine:Mine", "--runs", str(tmp_path / "runs"), *words]
    nowhere = {**os.environ, "JAX_PLATFORMS": "nowhere", "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}"}
    result = subprocess.run([*command, "--", *SMALL.split()], env=nowhere, capture_output=True, text=True, check=False)
    assert result.returncode == 1, result.stderr  # the sweep computed something without asking for that platform; its run did ask
    assert "failed: vdn mine:Mine" in result.stdout
    assert "nowhere" in result.stdout


def test_a_file_says_the_same(tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(
        'methods = ["vdn"]\nenvs = ["gridworld"]\nseeds = [3, 5]\nflags = "--steps 100"\n[set]\nenv.noisy_reward = [0, 0.5]\ngamma = 0.9\n'
    )
    expected = Sweep(("vdn",), ("gridworld",), (3, 5), (("env.noisy-reward", ("0", "0.5")), ("gamma", ("0.9",))), "--steps 100")
    assert read_sweep(path) == expected
    path.write_text('methods = ["vdn"]\nenvs = ["gridworld"]\nseeds = 3\ntogether = true\n')
    assert read_sweep(path) == Sweep(("vdn",), ("gridworld",), (0, 1, 2), together=True)


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
        ('methods = ["vdn"]\nenvs = ["gridworld"]\ntogether = 1', "must be true or false"),
        ('methods = ["vdn"]\nenvs = ["gridworld"]\nseeds = 1000000000', "seeds = 1000000000 is more than a sweep can have"),
        ('methods = [" "]\nenvs = ["gridworld"]', "needs names of methods: got ' '"),
        ('methods = [\'vdn "\']\nenvs = ["gridworld"]', 'vdn " cannot be read as words of a command'),
        ("methods = ['vdn']\nenvs = ['gridworld']\nflags = '--steps \"9'", '--steps "9 cannot be read as words of a command'),
        ('methods = ["vdn"]\nenvs = ["gridworld"]\nflags = ["--steps", "90"]', "flags must be one string"),
        ('methods = ["vdn"]\nenvs = ["gridworld"]\nset = 3', "set must be a table"),
    ],
)
def test_a_mistake_in_a_file_is_one_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as error:
        read_sweep(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--methods", 'vdn "', "--envs", "gridworld"], 'vdn " cannot be read as words of a command (No closing quotation)'),
        (["--methods", "vdn", "--envs", "gridworld", "--seeds", "1000000000"], "--seeds 1000000000 is more than a sweep can have"),
        (["--methods", "vdn", "--envs", "gridworld", "--seeds", "-1"], "--seeds -1 must be how many"),
        (["--methods", "vdn", "--envs", "gridworld", "--seeds", "1,x"], "--seeds '1,x' is neither a number nor a list"),
        (["--methods", "vdn", "--envs", "gridworld", "--seeds", ""], "--seeds '' is neither a number nor a list"),
        (["--methods", "vdn", "--envs", "gridworld", "--seeds", "2,2"], "each of them once: got 2, 2"),
        (["--methods", " ", "--envs", "gridworld"], "a sweep needs methods"),
        (["--methods", "vdn", "--envs", "gridworld", "--", "--seed", "3"], "--seed cannot be among the settings of a sweep's runs"),
        (["--methods", "vdn", "--envs", "gridworld", "--", "--seeds=3"], "--seeds cannot be among the settings of a sweep's runs"),
        (["--methods", "vdn", "--envs", "gridworld", "--", "--runs", "elsewhere"], "--runs cannot be among the settings"),
        (["--methods", "qmix,vdn --seed 3", "--envs", "gridworld"], "--seed cannot be among the settings of a sweep's runs"),
        (["--methods", "vdn", "--envs", "gridworld", "--set", "seed=3"], "--seed cannot be among the settings of a sweep's runs"),
        (["--methods", "vdn", "--envs", "gridworld", "--set", "gamma=0.9", "gamma=0.8"], "--gamma is set twice for vdn"),
        (["--methods", "vdn", "--envs", "gridworld", "--set", "gamma=0.9", "--set", "gamma=0.8"], "--gamma is set twice for vdn"),
        (["--methods", "vdn", "--methods", "qmix", "--envs", "gridworld"], "--methods is said twice"),
        (["--methods", "vdn --gamma 0.9", "--envs", "gridworld", "--", "--gamma=0.8"], "--gamma is set twice for vdn --gamma 0.9"),
        (
            ["--methods", "vdn", "--envs", "gridworld", "--set", "test_episodes=3", "--", "--test-episodes", "2"],
            "--test-episodes is set twice",
        ),
    ],
)
def test_a_mistake_in_flags_is_one_line(words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["sweep", "--runs", str(tmp_path / "runs"), *words])
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("flags", [["--seeds", "5"], ["--seeds", "1"], ["--set", "gamma=0.9"], ["--", "--steps", "90"]])
def test_what_to_sweep_is_said_in_a_file_or_in_flags(flags: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text('methods = ["vdn"]\nenvs = ["gridworld"]\nseeds = 2\n')
    with pytest.raises(SystemExit) as stop:
        main(["sweep", str(path), *flags])
    assert stop.value.code == 2
    assert capsys.readouterr().err == f"emc: say what to sweep in {path} or in flags, not in both\n"


def test_mistakes_in_runs_and_equal_runs_are_found_before_the_first_begins() -> None:
    with pytest.raises(UserError, match="Did you mean vdn"):
        names(Sweep(("qmix", "vdm"), ("gridworld",)))
    with pytest.raises(UserError, match=r"two runs of this sweep are the same: vdn gridworld --gamma 0\.9"):
        names(Sweep(("vdn", "vdn --gamma 0.9"), ("gridworld",)))


def test_seeds_and_lengths_mean_the_same_whether_said_in_words_or_not() -> None:
    words = ["emc-vdn", "gridworld", "--env.penalty", "1"]
    job, whole = seeded(words, 7, 1234), [*words, "--steps", "1234", "--seed", "7"]
    assert (job.words, job.config) == (tuple(whole), configure(whole))
    said = seeded([*words, "--steps", "1234"], 7)
    assert (said.words, said.config) == (job.words, job.config)
    with pytest.raises(UserError, match="steps"):
        seeded(words, 7, -1)


def small(seed: int, steps: int = 90) -> Job:
    words = ["vdn", "gridworld", *SMALL.split(), "--steps", str(steps), "--seed", str(seed)]
    return Job(tuple(words), configure(words))


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


def test_lines_that_were_kept_without_checkpoints_are_never_trained_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = RunDirectory.create(tmp_path, "gridworld", "vdn", {"config": to_json(small(0).config)})
    assert Survey(tmp_path).state(small(0)) is State.BEGUN  # killed before its first line: there is nothing to lose
    (run.path / "metrics.jsonl").write_text("{}\n")
    (run.path / "speed.jsonl").write_text('{"steps": 40, "seconds": 1.0, "steps_since_start": 40}\n')
    assert Survey(tmp_path).state(small(0)) is State.MISSING
    assert Survey(tmp_path).find(small(0)) is None
    for _ in range(2):  # being refused changes nothing
        with pytest.raises(SystemExit) as stop:
            main(["resume", str(run.path)])
        assert stop.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "has lines, but no checkpoint to go on from. Put its checkpoints back, or start a new run" in line
    assert {path.name for path in run.path.iterdir()} == {"manifest.json", "metrics.jsonl", "speed.jsonl"}
    assert (run.path / "metrics.jsonl").read_text() == "{}\n"
    (run.path / "lock").touch()
    assert Survey(tmp_path).find(small(0)) is None  # a process trained here, but nothing says that it wrote no checkpoint
    with RunDirectory.open(run.path) as begun:
        begun.begin()
    assert Survey(tmp_path).find(small(0)) == run.path
    assert Survey(tmp_path).state(small(0)) is State.BEGUN
    (run.path / "lock").unlink()
    shutil.rmtree(run.path / "checkpoints")
    (run.path / "speed.jsonl").write_text('{"steps": 90, "seconds": 1.0, "steps_since_start": 90}\n')
    assert Survey(tmp_path).state(small(0)) is State.DONE


def test_a_folder_is_listed_once_per_change_and_no_job_looks_at_the_runs_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = small(0)
    jobs = [dataclasses.replace(first, config=dataclasses.replace(first.config, seeds=(seed,))) for seed in range(20)]
    paths = [RunDirectory.create(tmp_path, "gridworld", "vdn", {"config": to_json(job.config)}).path for job in jobs[:-1]]
    folder = paths[0].parent
    bare = folder / "bare"
    bare.mkdir()
    os.utime(folder, (1_000_000, 1_000_000))
    seen: list[Path] = []
    opened, glob = RunDirectory.open, Path.glob

    def noting(path: Path, trust: Any) -> RunDirectory:
        seen.append(path)
        return opened(path, trust)

    def listing(path: Path, pattern: str) -> Iterator[Path]:
        seen.append(path)
        return glob(path, pattern)

    monkeypatch.setattr(RunDirectory, "open", noting)
    monkeypatch.setattr(Path, "glob", listing)
    survey = Survey(tmp_path)
    assert [survey.look(job) for job in jobs] == [*((State.BEGUN, path) for path in paths), (State.MISSING, None)]
    assert seen.count(folder) == 1
    assert all(seen.count(path) < 5 for path in paths)
    shutil.copy(paths[3] / "manifest.json", bare)  # as when somebody copies a run: the folder itself does not change
    assert {*survey.kin(first)} == {*paths, bare}
    last = RunDirectory.create(tmp_path, "gridworld", "vdn", {"config": to_json(jobs[-1].config)})
    assert survey.look(jobs[-1]) == (State.BEGUN, last.path)
    shutil.rmtree(paths[0])
    assert survey.look(first) == (State.MISSING, None)


def test_what_is_left_is_summed_up_at_the_speed_of_all_that_was_done_here() -> None:
    now = time.monotonic()
    runs = [
        Progress(small(0), State.RUNNING, steps=45, began=now - 10),
        Progress(small(1), State.MISSING),
        Progress(small(2), State.DONE, 90),
    ]
    assert summary(runs, now) == "1 done, 1 to do, 1 running; about 0:00:30 left"
    assert runs[0].seconds_left(now) == pytest.approx(10)
    assert runs[1].seconds_left(now) is None
    ended = Progress(small(3), State.DONE, 90, began=now - 20, first=45)  # a run of two at a time has just ended, the other goes on
    assert summary([*runs, ended], now) == "2 done, 1 to do, 1 running; about 0:00:30 left"
    begins = Progress(small(4), State.RUNNING, began=now)  # and the next has not got anywhere yet
    assert summary([*runs, ended, begins], now) == "2 done, 1 to do, 2 running; about 0:00:50 left"
    together = [Progress(small(seed), State.DONE, 90, began=now - 90) for seed in range(5, 9)]  # the last cannot be any faster
    assert summary([*together, Progress(small(9), State.RUNNING, 45, began=now - 90)], now) == "4 done, 1 running; about 0:01:30 left"


def test_runs_are_named_by_what_tells_them_apart(tmp_path: Path) -> None:
    jobs = jobs_of(Sweep(("vdn", "qmix --mixer.embed 8"), ("gridworld",), (0, 1), (("env.penalty", ("0",)),), "--steps 100"))
    assert short_names(jobs) == ["vdn", "vdn", "qmix --mixer.embed 8", "qmix --mixer.embed 8"]
    assert short_names(jobs[:2]) == ["vdn gridworld", "vdn gridworld"]
    both = Sweep(("vdn", "vdn --gamma 0.5"), ("gridworld",), (0, 1), (("env.penalty", ("0", "2")),), "--steps 100")
    plain, *_, last = short_names(grouped(jobs_of(both), Survey(tmp_path), many))
    assert (plain, last) == ("--env.penalty 0", "--gamma 0.5 --env.penalty 2")


def test_a_table_of_80_columns_tells_runs_apart_and_shows_state_steps_time_left_and_why_some_failed() -> None:
    flags = f"{SMALL} --checkpoint-minutes 0 --keep-checkpoints 3"
    jobs = jobs_of(Sweep(("vdn", "qmix --mixer.embed 8"), ("gridworld",), tuple(range(4)), (), flags))
    long = [dataclasses.replace(job, config=dataclasses.replace(job.config, budget=Budget(steps=10_000_000))) for job in jobs]
    reason = "emc: runs/gridworld/vdn/20260101-120000-abc123: loss is not a finite number near step 50. There is no checkpoint yet"
    runs = [
        *(Progress(job, State.RUNNING, steps=5_000_000, began=time.monotonic() - 400_000) for job in long[:6]),
        Progress(long[6], State.FAILED, reason=reason),
        Progress(long[7], State.BEGUN, steps=5_000_000),
    ]
    console = Console(width=80, height=40, record=True, file=io.StringIO())
    with LiveTable(console) as watch:
        watch(runs)
    lines = console.export_text().splitlines()
    assert all(len(line) <= 80 for line in lines)
    going = [line for line in lines if " running " in line and "/" in line]
    assert len({line.split(" running ")[0] for line in going}) == 6
    assert going[5].split()[:5] == ["qmix", "--mixer.embed", "8", "1", "running"]
    assert all("5,000,000 / 10,000,000" in line and "4 d 15 h" in line for line in going)
    assert sum("to resume" in line for line in lines) == 2  # in the summary, and the run itself
    assert reason in " ".join(" ".join(lines).split())


def test_the_live_table_shows_the_score_of_the_last_tests(tmp_path: Path) -> None:
    def lines(seed: int, *rates: float) -> str:
        tests = [{"kind": "eval", "seed": seed, "steps": 10 * k, "won": [rate], "return": [3 * rate]} for k, rate in enumerate(rates)]
        return "".join(json.dumps(test) + "\n" for test in tests)

    text = lines(0, 1.0, *[0.0] * 5) + lines(1, 0.0, 0.0, *[0.2] * 4) + lines(2, 0.5, *[1.0] * 4)
    (tmp_path / "metrics.jsonl").write_text(text)
    assert score_of(tmp_path, winnable=True) == pytest.approx(0.16)  # of 0, (4 x 0.2) / 5 and 0.9
    assert score_of(tmp_path, winnable=False) == pytest.approx(0.48)
    assert score_of(tmp_path / "nowhere", winnable=True) is None
    won, earned = (seeded([*f"vdn {env}".split()], 0) for env in ("gridworld", "predator-prey"))
    console = Console(width=80, height=40, record=True, file=io.StringIO())
    with LiveTable(console) as watch:
        watch([Progress(won, State.DONE, score=0.16), Progress(earned, State.DONE, score=12.3456), Progress(won, State.MISSING)])
    shown = [line for line in console.export_text().splitlines() if "/" in line]
    assert [line.split()[-1] for line in shown] == ["505,000", "16%", "12.35"]


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
    threads = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false"  # several would round differently
    command = [sys.executable, "-m", "emc", "train", *small(1).words, "--runs", str(tmp_path / "other")]
    subprocess.run(command, env={**os.environ, "XLA_FLAGS": threads}, check=True, capture_output=True, cwd=Path(__file__).parents[2])
    (again,) = (tmp_path / "other").glob("*/*/*/metrics.jsonl")
    assert (other / "metrics.jsonl").read_bytes() == again.read_bytes()
    main(words)
    assert len(list((tmp_path / "runs").glob("*/*/*/manifest.json"))) == 2
    main(dry)
    assert "nothing is left to do" in capfd.readouterr().out


ENGINES = ["local", pytest.param("ray", marks=pytest.mark.skipif(find_spec("ray") is None, reason="the extra 'ray' is not installed"))]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_failure_stops_no_other_run_and_ctrl_c_leaves_everything_to_go_on_with(engine: str, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    long = SMALL.replace("--steps 90", "--steps 100000")
    command = [sys.executable, "-m", "emc", "sweep", "--methods", "vdn,vdn --learning-rate 1e30", "--envs", "gridworld"]
    command += ["--runs", str(runs), "--workers", "2", "--engine", engine, "--", *long.split()]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=Path(__file__).parents[2])
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("failed"):
            break
    deadline = time.monotonic() + PATIENCE
    while not any(runs.glob("*/*/*/metrics.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=PATIENCE)
    text = "".join(lines) + rest
    assert process.returncode == 130
    assert "is not a finite number" in text
    assert "stopped with 1 of 2 runs to do; everything is kept" in text
    good = [path.parent for path in runs.glob("*/*/*/manifest.json") if "1e+30" not in path.read_text()]
    assert len(good) == 1
    assert not is_finished(good[0])
    assert json.loads((good[0] / "manifest.json").read_text())["config"]["budget"]["steps"] == 100_000
    assert list((good[0] / "checkpoints").iterdir())
    assert {path.name for path in runs.iterdir()} == {"gridworld", "sweep.lock"}


@pytest.mark.slow
def test_when_a_sweep_is_killed_its_runs_end_with_it_and_can_go_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "emc", "sweep", "--methods", "vdn", "--envs", "gridworld", "--runs", str(tmp_path)]
    command += ["--", *SMALL.replace("--steps 90", "--steps 10000000").split()]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=Path(__file__).parents[2])
    deadline = time.monotonic() + PATIENCE
    while not (found := list(tmp_path.glob("*/*/*/metrics.jsonl"))) and time.monotonic() < deadline:
        time.sleep(0.2)
    process.kill()
    process.wait()
    run = RunDirectory.open(found[0].parent)
    run.patience = 1800  # forever, if it went on by itself
    with run:
        assert Survey(tmp_path).find(small(0, 10_000_000)) == run.path


@dataclasses.dataclass
class Scripted:
    """An attempt that ends as it was told to, once it was looked at."""

    how: End | None
    stopped: bool = False

    def end(self) -> End | None:
        return End(STOPPED) if self.stopped else self.how

    def stop(self, at_once: bool = False) -> None:
        self.stopped = True


class ScriptedEngine(Engine):
    """Two runs at a time, which end one after the other as told."""

    def __init__(self, *ends: End | None):
        self.ends, self.orders = list(ends), list[Order]()

    def ready(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def check(self, root: Path) -> None: ...

    def room(self) -> int:
        return 2

    def begin(self, order: Order, place: int) -> Scripted:
        self.orders.append(order)
        return Scripted(self.ends.pop(0))


LOST = End(1, "its worker was lost", lost=True)


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emc.sweeps.engine.LOOK_SECONDS", 0.0)


@pytest.mark.usefixtures("_at_once")
def test_a_run_that_loses_its_worker_is_begun_again_in_the_same_directory(tmp_path: Path) -> None:
    engine = ScriptedEngine(End(0), LOST, LOST, End(0))
    results = engine.run([small(0), small(1)], tmp_path, lambda runs: None)
    assert [one.state for one in results] == [State.DONE, State.DONE]
    first, *others = [order.run for order in engine.orders]
    assert first not in others
    assert len(set(others)) == 1


@pytest.mark.usefixtures("_at_once")
def test_a_run_that_loses_every_worker_without_getting_further_fails_and_stops_no_other(tmp_path: Path) -> None:
    results = ScriptedEngine(LOST, End(0), *[LOST] * MOST_LOSSES).run([small(0), small(1)], tmp_path, lambda runs: None)
    assert [(one.state, one.reason) for one in results] == [(State.FAILED, "its worker was lost"), (State.DONE, "")]


@pytest.mark.usefixtures("_at_once")
def test_a_run_that_is_killed_says_by_what(tmp_path: Path) -> None:
    results = ScriptedEngine(End(-signal.SIGSEGV, "12 / 90 steps"), End(3)).run([small(0), small(1)], tmp_path, lambda runs: None)
    assert [one.reason for one in results] == ["was killed by SIGSEGV", "ended with code 3"]


def test_a_second_sweep_in_the_same_directory_is_refused_and_told_why(tmp_path: Path) -> None:
    engine, lock = ScriptedEngine(), Lock(tmp_path / "sweep.lock")
    with pytest.raises(UserError, match=f"another sweep is running in {tmp_path}"):
        engine.run([small(0)], tmp_path, lambda runs: None)
    lock.release()
    assert engine.orders == []


@pytest.mark.usefixtures("_at_once")
def test_runs_that_cannot_be_read_are_counted_once_in_one_line(tmp_path: Path) -> None:
    notes: list[str] = []
    ScriptedEngine(End(0)).run([small(0)], tmp_path, lambda runs: None, notes.append)
    assert notes == []
    run = RunDirectory.create(tmp_path, "gridworld", "vdn", {"config": to_json(small(0).config)}, "a").path
    text = (run / "manifest.json").read_text()
    (run / "manifest.json").write_text(text.replace('"version": 1', '"version": 99'))
    RunDirectory.create(tmp_path, "gridworld", "vdn", {"config": {}}, "b")
    results = ScriptedEngine(End(0), End(0)).run([small(0), small(1)], tmp_path, lambda runs: None, notes.append)
    assert [one.state for one in results] == [State.DONE, State.DONE]
    assert notes == [
        f"2 run directories below {tmp_path} cannot be read and will not be counted; the first: "
        f"{run}: has run format version 99, this emc reads 1. Use the emc that made it."
    ]
    assert all(one.run not in (run, run.with_name("b")) for one in results)


@pytest.mark.usefixtures("_at_once")
def test_a_sweep_says_on_stderr_which_runs_it_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    RunDirectory.create(tmp_path, "gridworld", "vdn", {"config": {}})
    monkeypatch.setattr("emc.commands.many.ManyFlags.make_engine", lambda flags: ScriptedEngine(End(0)))
    main(["sweep", "--methods", "vdn", "--envs", "gridworld", "--runs", str(tmp_path)])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"emc: 1 run directory below {tmp_path} cannot be read and will not be counted; the first: ")


@pytest.mark.usefixtures("_at_once")
def test_being_asked_to_stop_begins_no_further_run(tmp_path: Path) -> None:
    engine = ScriptedEngine(None, None, End(0))
    asked: list[int] = []

    def ask_once(runs: Sequence[Progress]) -> None:
        if not asked:
            asked.append(1)
            signal.raise_signal(signal.SIGTERM)

    results = engine.run([small(seed) for seed in range(3)], tmp_path, ask_once)
    assert [one.state for one in results] == [State.MISSING] * 3
    assert len(engine.orders) == 2


class Own(Gridworld):
    """An environment outside the package."""


@pytest.mark.usefixtures("_at_once")
def test_a_run_of_ones_own_environment_can_go_on_since_the_sweep_names_it(tmp_path: Path) -> None:
    job = dataclasses.replace(small(0), config=dataclasses.replace(small(0).config, env=Own()))
    engine = ScriptedEngine(End(0), End(0))
    engine.run([job, small(1)], tmp_path, lambda runs: None)
    own, usual = engine.orders
    assert own.command() == ["train", *job.words, "--runs", str(tmp_path)]
    Path(own.run).mkdir(parents=True)
    assert own.command()[:2] == ["resume", own.run]
    assert own.command()[-2:] == ["--trust", f"{__name__}:Own"]
    assert usual.resume == ()


def test_a_node_that_does_not_share_the_directory_of_runs_refuses(tmp_path: Path) -> None:
    file = tmp_path / "sweep.lock"
    file.write_text("7 on here")
    assert unseen(str(file), "7 on here") == ""
    assert "choose a directory on shared storage with --runs" in unseen(str(file), "8 on there")
    order = Order(str(tmp_path / "run"), str(tmp_path), ("vdn", "gridworld"))
    end = attend(order, (str(tmp_path / "elsewhere" / "sweep.lock"), "7 on here"), {}, str(tmp_path))
    assert (end.code, end.lost) == (1, False)
    assert f"does not see {tmp_path / 'elsewhere'}" in end.reason
