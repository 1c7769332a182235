"""Whatever stands where a file of a run should: nobody waits, nobody runs out of memory, and no other run is lost to it."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import emc
from emc.envs import make_env
from emc.errors import UserError
from emc.files import remove
from emc.report.ceilings import ceiling_of
from emc.report.curves import group_runs
from emc.report.marl_eval import marl_eval
from emc.report.site import Site
from emc.runs import read_metrics
from emc.runs.metric_lines import summary
from emc.runs.reading import FORMS, last_line, read_lines
from emc.runs.session import resume
from emc.suite import known_optimum
from emc.sweeps.calibration import forecast
from emc.sweeps.jobs import State, Survey, steps_of
from tests.report.fabricate import new_run, snapshot, training, win_rates
from tests.runs.deep import dig
from tests.runs.test_hostile import CONFIG, job, newest, stopped

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs pipes with names")


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(6 * 10**9)


Spoil = Callable[[Path], None]
INSTEAD: Mapping[str, Spoil] = {
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
    "a link that leads nowhere": lambda path: path.symlink_to(path.parent / "nowhere"),
    "a link to itself": lambda path: path.symlink_to(path),
    "nothing but holes": sparse,
    "nothing": Path.touch,
    "no text": lambda path: path.write_bytes(os.urandom(999) + b"\n") and None,
    "deep lists": lambda path: path.write_text("[" * 5_000 + "]" * 5_000 + "\n") and None,
    "deep objects": lambda path: path.write_text('{"a": ' * 5_000 + "1" + "}" * 5_000 + "\n") and None,
    "many digits": lambda path: path.write_text('{"steps": ' + "9" * 5_000 + "}\n") and None,
    "another kind of document": lambda path: path.write_text("[1, 2]\n") and None,
    "an object without fields": lambda path: path.write_text("{}\n") and None,
    "a line without end": lambda path: path.write_bytes(b'{"x": "' + b"x" * (33 * 2**20)) and None,
}
FILES = ["manifest.json", "metrics.jsonl", "maps.jsonl", "speed.jsonl", "end.jsonl", "lost.jsonl", "lock", "episode.gif"]
FILES += ["checkpoints", "checkpoints/STEP", "checkpoints/STEP/checkpoint.json", "checkpoints/STEP/arrays.safetensors", "tensorboard"]
FILES += ["checkpoints/none-yet.json"]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stopped(tmp_path_factory.mktemp("kept"), 0)


@pytest.mark.parametrize("file", FILES)
def test_one_bad_run_never_stops_the_others(file: str, kept: Path, tmp_path: Path) -> None:
    good = new_run(tmp_path, [*win_rates(0, {30: 0.5}), training(0, 40)], method_name="vdn")
    bad: list[Path] = []
    for number, spoil in enumerate(INSTEAD.values()):
        bad.append(tmp_path / "gridworld" / "vdn" / f"{kept.name}-{number}")
        shutil.copytree(kept, bad[-1])
        path = bad[-1] / file.replace("STEP", newest(kept).name)
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        spoil(path)
    site = Site([tmp_path])
    runs = site.runs()
    assert good.path in [run.path for run in runs]
    assert all("\n" not in problem for problem in site.problems)
    said = list[str]()
    assert "wins 50%" in site.page(runs, say=said.append)
    assert "seed_0" in str(marl_eval(group_runs(runs)))
    survey = Survey(tmp_path)
    survey.look(job(0))
    assert "\n" not in survey.left_out()
    assert [*map(steps_of, bad)]
    assert [*itertools.islice(forecast([(job(0), path) for path in bad], 1), 1)]  # how much memory: from the runs themselves
    usable = [path for path in bad if not refusal(emc.load, path)]
    for path in {*bad} - {*usable[2:]}:  # two that are gone on with are enough
        refusal(resume, path)
    links = sum(path.is_symlink() for path in (run / file for run in bad))
    assert len(usable) in (
        0,
        len(bad) - links,
        len(bad),
    )  # without what it needs, with links that may lead anywhere, without what it need not


def refusal(use: Callable[[Path], object], run: Path) -> str:
    """What is said, in one line; nothing if the run can be used."""
    try:
        use(run)
    except UserError as error:
        said = str(error)
        assert said.isprintable()
        return said
    return ""


def lines_of(kept: Path, file: str) -> list[str]:
    if file == "lost.jsonl":
        return ['{"steps": 12, "reason": "died"}\n']
    if file == "end.jsonl":
        return ['{"steps": 150, "reason": "budget"}\n']
    return (kept / file).read_text().splitlines(keepends=True)


DAMAGE: Mapping[str, Callable[[str], str]] = {
    "a letter of its first field": lambda line: line.replace("k", "x", 1).replace('"s', '"t'),
    "no steps": lambda line: line.replace('"steps"', '"stops"'),
    "steps in words": lambda line: json.dumps(json.loads(line) | {"steps": "many"}) + "\n",
    "steps as a list": lambda line: json.dumps(json.loads(line) | {"steps": [1]}) + "\n",
    "no steps at all": lambda line: json.dumps(json.loads(line) | {"steps": None}) + "\n",
    "fewer than none": lambda line: json.dumps(json.loads(line) | {"steps": -1}) + "\n",
    "more than can be counted": lambda line: json.dumps(json.loads(line) | {"steps": 10**30}) + "\n",
    "half of it": lambda line: line[: len(line) // 2] + "\n",
    "all of it twice": lambda line: line.strip() + line,
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("file", FORMS)
def test_a_damaged_line_is_a_refusal_or_an_omission(file: str, damage: str, kept: Path, tmp_path: Path) -> None:
    *first, last = lines_of(kept, file)
    (tmp_path / file).write_text("".join(first) + last)
    whole = read_lines(tmp_path / file)
    assert last_line(tmp_path / file) == whole[-1] == read_metrics(tmp_path / file)[-1]
    (tmp_path / file).write_text("".join(first) + DAMAGE[damage](last))
    with pytest.raises(UserError, match=rf"line {len(whole)}: not a ") as caught:
        read_lines(tmp_path / file)
    assert "\n" not in str(caught.value)
    assert last_line(tmp_path / file) == (whole[-2] if first else None)


EVAL = {"kind": "eval", "seed": 0, "steps": 12, "return": [1.0, 0.0], "won": [True, False], "length": [3, 4]}


@pytest.mark.parametrize("change", [{"length": value} for value in (5, None, "xy", [1], [[1], [2, 3]])] + [{"x": [{}] * 3}])
def test_every_field_of_a_test_is_one_that_emc_writes(change: dict[str, Any]) -> None:
    assert FORMS["metrics.jsonl"](EVAL)
    assert not FORMS["metrics.jsonl"](EVAL | change)


def test_a_line_that_is_refused_is_the_last_that_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "metrics.jsonl").write_text("{}\n" * 1000)
    read = list[bytes]()
    monkeypatch.setattr("emc.files.parsed", lambda content: read.append(content) or {})
    with pytest.raises(UserError, match="line 1: not a line that emc writes"):
        read_lines(tmp_path / "metrics.jsonl")
    assert len(read) == 1


def test_seeds_whose_lines_have_other_fields_are_summed_up_in_those_they_share() -> None:
    lines = [training(0, 40), {name: value for name, value in training(1, 40).items() if name != "epsilon"}]
    shown = summary(lines)
    assert "epsilon" in summary(lines[:1])
    assert "epsilon" not in shown
    assert "train_return" in shown


def test_folders_in_folders_without_end_stop_nobody(kept: Path, tmp_path: Path) -> None:
    """Deeper than a program can call itself, and than a path may be long."""
    run = tmp_path / "runs" / "gridworld" / "vdn" / kept.name
    shutil.copytree(kept, run)
    (run.parents[1] / "manifest.json").write_text("x")  # of no run, above some
    for deep in (tmp_path / "runs" / "deep", run / "checkpoints" / f"{999:012d}.tmp-5", run / "checkpoints" / "none-yet.json"):
        dig(deep, 5_000)
    site = Site([tmp_path / "runs"])
    assert [found.path for found in site.runs()] == [run]
    assert len(site.problems) == 1
    resume(run)
    assert [path.name for path in (run / "checkpoints").glob("*") if not path.name.isdigit()] == []
    remove(tmp_path / "runs" / "deep")
    assert not (tmp_path / "runs" / "deep").exists()


@pytest.mark.parametrize(
    "line", [{"steps": 2**62, "seconds": 1.0, "steps_since_start": 1}, {"steps": 1, "seconds": 1e99, "steps_since_start": 1}]
)
def test_a_forecast_says_some_time_whatever_a_line_says_of_speed(line: dict[str, Any], kept: Path, tmp_path: Path) -> None:
    run = tmp_path / kept.name
    shutil.copytree(kept, run)
    (run / "speed.jsonl").write_text(json.dumps(line) + "\n")
    assert "time       about " in [*forecast([(job(0), run)], 1)][-1]


def test_a_directory_that_was_being_made_is_no_run(kept: Path, tmp_path: Path) -> None:
    shutil.copytree(kept, tmp_path / "gridworld" / "vdn" / f"{kept.name}.tmp-123")
    assert Survey(tmp_path).look(job(0)) == (State.MISSING, None)


def test_a_picture_of_more_points_than_any_of_ours_is_not_drawn(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emc.report.records.MOST_PIXELS", 99)
    run = tmp_path / kept.name
    shutil.copytree(kept, run)
    Image.new("P", (10, 10)).save(run / "episode.gif")
    said = list[str]()
    Site([run]).page(Site([run]).runs(), say=said.append)
    assert "cannot be read as a GIF" in said[0]


def test_episodes_too_long_for_tables_have_no_line_and_are_refused_by_name() -> None:
    env = make_env("gridworld", episode_limit=2**20)
    with pytest.raises(UserError, match="an episode of 1,048,576 steps is too long"):
        known_optimum(env, 0.9)
    assert ceiling_of(dataclasses.replace(CONFIG, env=env)) is None


FIELDS = {"metrics.jsonl": ("kind", "seed", "steps"), "maps.jsonl": ("seed", "steps", "visits", "bonus", "bonus_visits")}
FIELDS |= {"speed.jsonl": ("steps", "seconds", "steps_since_start"), "end.jsonl": ("steps", "reason"), "lost.jsonl": ("steps", "reason")}


@pytest.mark.parametrize("file", FORMS)
def test_no_field_may_be_missing_or_of_another_type(file: str, kept: Path) -> None:
    line = json.loads(lines_of(kept, file)[-1])
    assert FORMS[file](line)
    for field in FIELDS[file]:
        assert not FORMS[file]({name: value for name, value in line.items() if name != field})
        for wrong in (None, True, "x", [], [[]], {}, [["x"]], -1):
            assert (wrong == "x" and field == "reason") or not FORMS[file](line | {field: wrong}), (field, wrong)


def test_tables_of_a_map_have_one_shape() -> None:
    good = snapshot(0, 10, [[1.0, 2.0], [3.0, 4.0]])
    assert FORMS["maps.jsonl"](good)
    for wrong in ([[1.0, 2.0]], [[1.0], [2.0]], [[1.0, 2.0], [3.0]]):
        assert not FORMS["maps.jsonl"](good | {"visits": wrong})
    uneven = [[1.0, 2.0], [3.0]]
    assert not FORMS["maps.jsonl"](good | {"visits": uneven, "bonus": uneven, "bonus_visits": uneven})


def test_a_sweep_goes_on_beside_runs_that_nobody_can_read(kept: Path, tmp_path: Path) -> None:
    run = tmp_path / "gridworld" / "vdn" / "bad"
    shutil.copytree(kept, run)
    (run / "speed.jsonl").write_text('{"steps": "many"}\n')
    survey = Survey(tmp_path)
    assert survey.look(job(0)) == (State.MISSING, None)  # its checkpoint saw other lines
    (run / "speed.jsonl").write_bytes((kept / "speed.jsonl").read_bytes() + b'{"steps": "many"}\n')
    survey = Survey(tmp_path)
    assert survey.look(job(0)) == (State.BEGUN, run)  # what came after it will be cut off
    assert steps_of(run) == steps_of(kept)
    (newest(run) / "checkpoint.json").write_text("[" * 5_000)
    assert Survey(tmp_path).state(job(0)) is State.BEGUN
    assert CONFIG.seeds == (0,)
