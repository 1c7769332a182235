"""Training in a run directory, from the host's side."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import emc
from emc.curiosity import ValueCuriosity
from emc.display import PlainDisplay
from emc.envs import make_env
from emc.errors import RunError, UserError
from emc.loggers import with_loggers
from emc.methods import Method, make_method
from emc.mixers import VDN
from emc.policies import RecurrentQ
from emc.runs import session
from emc.runs.config import RunConfig, from_json, to_json
from emc.runs.directory import RunDirectory
from emc.runs.jsonl import read_metrics
from emc.runs.machine import describe_machine, differences
from emc.runs.session import END, MAPS, Interrupted, Keeping, Silent, Status, keeping_of, resume, start
from emc.training.loop import Budget, Program

SMALL = Method(policy=RecurrentQ(hidden=4), batch_episodes=2, replay_episodes=8)
ENV = make_env("gridworld", rows=5, columns=6, episode_limit=12)  # small enough that luck ends some episodes early
BUDGET = Budget(steps=150, evaluate_every=40, test_episodes=2)


def config(**changes: object) -> RunConfig:
    return dataclasses.replace(RunConfig("vdn", SMALL, "gridworld", ENV, BUDGET, (0, 1)), **changes)


def test_a_run_ends_when_every_seed_has_had_its_budget_and_tests_all_at_the_end(tmp_path: Path) -> None:
    run = start(config(), tmp_path)
    lines = read_metrics(run.path / "metrics.jsonl")
    tests = {seed: [line["steps"] for line in lines if line["kind"] == "eval" and line["seed"] == seed] for seed in (0, 1)}
    assert tests[0][-1] != tests[1][-1]  # their episodes differ in length, or this would show nothing
    assert min(tests[0][-1], tests[1][-1]) >= BUDGET.steps
    for steps in tests.values():
        assert steps == sorted(set(steps))
        gaps = [later - earlier for earlier, later in itertools.pairwise(steps)]
        assert max(gaps) <= BUDGET.evaluate_every + ENV.spec.episode_limit
    assert all(len(line["won"]) == BUDGET.test_episodes for line in lines if line["kind"] == "eval")
    assert [line["reason"] for line in read_metrics(run.path / END)] == ["budget"]


def test_how_long_the_host_looks_away_changes_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lines() -> list[dict[str, Any]]:
        run = start(config(budget=dataclasses.replace(BUDGET, log_every=25)), tmp_path)
        return read_metrics(run.path / "metrics.jsonl")

    calls: list[int] = []
    advance = Program.advance

    def counted(self: Program, state: Any, iteration: int, iterations: int, until: Any) -> Any:
        calls.append(iterations)
        return advance(self, state, iteration, iterations, until)

    monkeypatch.setattr(Program, "advance", counted)
    seldom, few = lines(), len(calls)
    assert max(calls) > 1
    monkeypatch.setattr(session, "LOOK_SECONDS", 0.0)
    assert lines() == seldom
    assert set(calls[few:]) == {1}
    assert len(calls) - few > few


def test_values_that_curiosity_learns_without_its_bonus_are_tested_beside_the_policy(tmp_path: Path) -> None:
    budget = Budget(steps=60, evaluate_every=40, test_episodes=2, log_every=15)
    curious = dataclasses.replace(SMALL, curiosity=ValueCuriosity())
    lines = read_metrics(start(config(method=curious, budget=budget, seeds=(0,)), tmp_path).path / "metrics.jsonl")
    tested = [line["steps"] for line in lines if "phi_test_return" in line]
    assert tested == [line["steps"] for line in lines if line["kind"] == "eval"]
    assert len(tested) < sum(line["kind"] == "train" for line in lines)
    assert all(0.0 <= line["phi_test_win_rate"] <= 1.0 for line in lines if line["steps"] in tested and line["kind"] == "train")
    plain = read_metrics(start(config(budget=budget, seeds=(0,)), tmp_path).path / "metrics.jsonl")
    assert not any("phi_test_return" in line for line in plain)


def test_a_seed_that_waits_for_the_others_says_no_more(tmp_path: Path) -> None:
    budget = Budget(steps=1_200, evaluate_every=12, test_episodes=2)  # long enough for luck to set the seeds apart
    run = start(config(budget=budget), tmp_path)
    tests = [line for line in read_metrics(run.path / "metrics.jsonl") if line["kind"] == "eval"]
    counts = {seed: sum(line["seed"] == seed for line in tests) for seed in (0, 1)}
    assert len(set(counts.values())) > 1  # some had their budget before others, or this would show nothing
    for seed in counts:
        assert sum(line["seed"] == seed and line["steps"] >= budget.steps for line in tests) == 1


def test_a_run_may_end_when_it_is_enough(tmp_path: Path) -> None:
    seen: list[float] = []

    def enough(latest: dict[str, float]) -> bool:
        seen.append(latest["test_win_rate"])
        return len(seen) == 2

    longer = dataclasses.replace(BUDGET, steps=3_000)  # whose maps would not be written yet
    run = start(config(budget=longer), tmp_path, enough=enough)
    (end,) = read_metrics(run.path / END)
    assert end["reason"] == "enough"
    assert end["steps"] < BUDGET.steps
    assert len(run.steps()) == 1
    visits = sum(np.sum(line["visits"]) for line in read_metrics(run.path / MAPS))
    lines = [line for line in read_metrics(run.path / "metrics.jsonl") if line["kind"] == "train"]
    assert visits == sum(
        ENV.spec.n_agents * max(line["steps"] for line in lines if line["seed"] == seed) for seed in (0, 1)
    )  # to the last step


def test_numbers_that_are_not_finite_stop_the_run_and_the_first_is_named(tmp_path: Path) -> None:
    wild = dataclasses.replace(SMALL, learning_rate=1e30)
    with pytest.raises(RunError, match=r"(parameter_norm|q|target|td_error|loss|gradient_norm) is not a finite number near step \d+\."):
        start(config(method=wild, seeds=(0,)), tmp_path)
    (path,) = tmp_path.glob("*/*/*")
    assert not list(path.glob("checkpoints/[0-9]*"))  # nothing broken is kept


def test_what_could_never_be_loaded_again_is_not_trained() -> None:
    @dataclasses.dataclass(frozen=True)
    class Armed(VDN):
        table: Any = dataclasses.field(default_factory=lambda: np.ones(2), hash=False)

    with pytest.raises(UserError, match="could not be resumed or loaded"):
        config(method=dataclasses.replace(make_method("vdn"), mixer=Armed()))
    with pytest.raises(UserError, match="different whole numbers"):
        config(seeds=(1, 1))


def test_training_is_logged_on_its_own_interval_and_with_every_evaluation(tmp_path: Path) -> None:
    often = dataclasses.replace(BUDGET, log_every=15)
    usual, finer = (
        read_metrics(start(config(budget=budget, seeds=(0,)), tmp_path / name).path / "metrics.jsonl")
        for name, budget in {"usual": BUDGET, "finer": often}.items()
    )
    tests = [line for line in usual if line["kind"] == "eval"]
    assert [line for line in finer if line["kind"] == "eval"] == tests  # looking more often changes nothing
    assert [line["steps"] for line in usual if line["kind"] == "train"] == [line["steps"] for line in tests]
    logged = [line["steps"] for line in finer if line["kind"] == "train"]
    assert set(logged) > {line["steps"] for line in tests}
    limit = ENV.spec.episode_limit
    assert all(later // 15 > earlier // 15 and later - earlier < 15 + limit for earlier, later in itertools.pairwise(logged[1:-1]))
    # No episode is lost or counted twice, wherever lines are written.
    for lines in (usual, finer):
        train = [line for line in lines if line["kind"] == "train"]
        episodes = [0, *(line["episodes"] for line in train)]
        played = [line["length"] * (after - before) for line, before, after in zip(train, episodes, episodes[1:], strict=False)]
        assert sum(played) == pytest.approx(train[-1]["steps"])


def test_going_on_with_other_versions_says_so() -> None:
    machine = describe_machine()
    assert differences(machine) == ""
    other = {**machine, "packages": {**machine["packages"], "jax": "0.1"}, "device": {"platform": "gpu", "kind": "X", "count": 1}}
    assert differences(other).startswith(f"jax was 0.1, is {machine['packages']['jax']}, device was gpu X 1, is ")
    assert "jax was None" in differences("nothing we know")
    assert differences({**machine, "commit": {"emc": "abc"}}).startswith("commit was abc")
    assert differences({**machine, "packages": {**machine["packages"], "emc-marl": "0.0"}}).startswith("emc-marl was 0.0")


class Watching(Silent):
    """Remembers what it was shown."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.shown: list[Status] = []

    def show(self, status: Status) -> None:
        self.shown.append(status)

    def note(self, line: str) -> None:
        self.notes.append(line)


def cut_short(tmp_path: Path, keeping: Keeping = Keeping()) -> Path:
    """A run as Ctrl-C after the second test leaves it."""
    tests = itertools.count()

    def interrupt(latest: dict[str, float]) -> bool:
        if next(tests) == 1:
            signal.raise_signal(signal.SIGINT)
        return False

    with pytest.raises(Interrupted) as stop:
        start(config(seeds=(0,)), tmp_path, keeping, enough=interrupt)
    return stop.value.run.path


def test_going_on_keeps_as_much_as_the_run_was_asked_to_and_shows_where_it_was(tmp_path: Path) -> None:
    path = cut_short(tmp_path, Keeping(checkpoint_minutes=0.0, keep_checkpoints=3))
    assert len(RunDirectory.open(path).steps()) == 3
    display = Watching()
    before = [line for line in read_metrics(path / "metrics.jsonl") if line["kind"] == "eval"][-1]
    resume(path, display=display)
    assert len(RunDirectory.open(path).steps()) == 3
    assert display.shown[0].latest["test_return"] == pytest.approx(np.mean(before["return"]))
    assert keeping_of(RunDirectory(path, {"keeping": {"keep_checkpoints": "many"}})) == Keeping()


def test_a_finished_run_without_checkpoints_keeps_its_lines(tmp_path: Path) -> None:
    run = start(config(seeds=(0,)), tmp_path)
    shutil.rmtree(run.path / "checkpoints")
    before = (run.path / "metrics.jsonl").read_bytes()
    with pytest.raises(RunError, match="is finished, and its checkpoints are gone"):
        resume(run.path)
    with pytest.raises(RunError, match="its checkpoints are gone, so its agents cannot be loaded"):
        emc.load(run.path)
    assert (run.path / "metrics.jsonl").read_bytes() == before


def test_a_run_that_never_came_to_a_checkpoint_begins_again_and_says_so(tmp_path: Path) -> None:
    path = cut_short(tmp_path)
    shutil.rmtree(path / "checkpoints")
    with RunDirectory.open(path) as run:
        run.begin()  # as a kill before the first checkpoint leaves it
    display = Watching()
    resume(path, display=display)
    assert display.notes == ["there is no checkpoint yet: the run begins again"]
    whole = start(config(seeds=(0,)), tmp_path / "other")
    assert (path / "metrics.jsonl").read_bytes() == (whole.path / "metrics.jsonl").read_bytes()


def test_time_left_is_not_guessed_from_compiling(tmp_path: Path) -> None:
    display = Watching()
    start(config(seeds=(0,)), tmp_path, display=display)
    assert display.shown[0].seconds_left == math.inf
    assert display.shown[-1].seconds_left == 0.0


def test_the_last_plain_line_is_about_the_last_test(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = start(config(seeds=(0,)), tmp_path, display=PlainDisplay(winnable=True))
    last = [line for line in read_metrics(run.path / "metrics.jsonl") if line["kind"] == "eval"][-1]
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1].startswith(f"{last['steps']} / 150 steps")
    assert f"test return {np.mean(last['return']):.3g}" in printed[-1]
    assert sum(line.startswith(f"{last['steps']} /") for line in printed) == 1


def test_tensorboard_gets_every_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensorboard = pytest.importorskip("tensorboardX", reason="the extra `tensorboard` is not installed")
    written: list[tuple[str, float, int]] = []
    monkeypatch.setattr(tensorboard.SummaryWriter, "add_scalar", lambda self, name, value, step: written.append((name, value, step)))
    run = start(config(seeds=(0,)), tmp_path, display=with_loggers(Silent(), ["tensorboard"]))
    tests = {line["steps"]: np.mean(line["return"]) for line in read_metrics(run.path / "metrics.jsonl") if line["kind"] == "eval"}
    assert {step: value for name, value, step in written if name == "test_return"} == pytest.approx(tests)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("env",), None),
        (("budget",), None),
        (("method",), "vdn"),
        (("method", "mixer"), "qmix"),
        (("method", "mixer"), {"type": "Epsilon"}),
        (("env",), {"type": "Budget"}),
        (("method", "loss", "double_q"), "no"),
        (("seeds",), [0.5]),
        (("env", "penalty"), [1]),
    ],
)
def test_a_manifest_whose_fields_are_of_another_type_is_refused_in_one_line(path: tuple[str, ...], value: Any) -> None:
    data = json.loads(json.dumps(to_json(config())))
    place = data
    for name in path[:-1]:
        place = place[name]
    assert path[-1] in place
    place[path[-1]] = value
    with pytest.raises(RunError, match="the run's manifest cannot be used") as error:
        from_json(data)
    assert "\n" not in str(error.value)
