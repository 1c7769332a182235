"""Runs as others' tools read them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emc.cli import main
from emc.report.curves import group_runs
from emc.report.marl_eval import marl_eval
from tests.report.fabricate import evaluation, new_run, win_rates


def test_every_test_of_every_seed_is_there_with_its_raw_values(tmp_path: Path) -> None:
    first = [evaluation(0, 1000, [False, True]), evaluation(1, 1003, [True, True]), evaluation(0, 2000, [False, False])]
    runs = [new_run(tmp_path, first, seeds=(0, 1)), new_run(tmp_path, [evaluation(0, 1000, [False])], method_name="vdn")]
    tree = marl_eval(group_runs(runs))
    assert set(tree["gridworld"]["gridworld"]) == {"emc-vdn", "vdn"}
    found = tree["gridworld"]["gridworld"]["emc-vdn"]
    assert found["seed_0"] == {
        "step_0": {"step_count": 1000, "mean_episode_return": [0.0, 10.0], "win_rate": [0.0, 1.0]},
        "step_1": {"step_count": 2000, "mean_episode_return": [0.0, 0.0], "win_rate": [0.0, 0.0]},
        "absolute_metrics": {"mean_episode_return": [0.0, 10.0], "win_rate": [0.0, 1.0]},
    }
    assert found["seed_1"]["step_0"]["step_count"] == 1003


def test_the_command_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = new_run(tmp_path, [evaluation(0, 1000, [True])])
    out = tmp_path / "all.json"
    main(["export", str(run.path), "--out", str(out)])
    assert capsys.readouterr().out.strip() == str(out)
    assert json.loads(out.read_text())["gridworld"]["gridworld"]["emc-vdn"]["seed_0"]["step_0"]["win_rate"] == [1.0]
    with pytest.raises(SystemExit) as stop:
        main(["export", "--out", str(out)])
    assert stop.value.code == 2


def test_the_command_takes_a_directory_of_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for method in ("vdn", "emc-vdn"):
        new_run(tmp_path / "runs", win_rates(0, {1000: 0.5}), method_name=method)
    main(["export", str(tmp_path / "runs"), "--out", str(tmp_path / "tests.json")])
    assert {*json.loads((tmp_path / "tests.json").read_text())["gridworld"]["gridworld"]} == {"vdn", "emc-vdn"}
    capsys.readouterr()
    (tmp_path / "empty").mkdir()
    for words in ([str(tmp_path / "empty")], []):
        with pytest.raises(SystemExit) as stop:
            main(["export", *words])
        assert stop.value.code == 2
        assert capsys.readouterr().err.count("\n") == 1
