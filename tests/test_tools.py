"""Other people's tools, as the documentation shows them: Optuna, a logger of one's own, and a notebook in a real kernel."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import emc

DOCS = Path(__file__).resolve().parents[1] / "docs"
CODE = dict(re.findall(r"```python (\w+)\n(.*?)```", (DOCS / "tuning.md").read_text(), flags=re.DOTALL))


def test_optuna_tunes_in_ten_lines_and_goes_on_with_its_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("optuna", reason="the extra `optuna` is not installed")
    assert len([line for line in CODE["tuning"].splitlines() if line.strip()]) <= 10
    quick = CODE["tuning"].replace("steps=2_000, seeds=3", "steps=60, evaluate_every=20").replace("n_trials=20", "n_trials=1")
    assert quick != CODE["tuning"]
    monkeypatch.chdir(tmp_path)
    for trials in (1, 2):
        done: dict[str, Any] = {}
        exec(compile(quick, "tuning", "exec"), done)
        assert len(done["study"].trials) == trials
        runs = emc.runs(tmp_path / "tuning", method="qmix-tuning")
        assert len(runs) == trials
        assert done["study"].best_value == max(run.score for run in runs)
    assert {run.config.method.gamma for run in runs} == {trial.params["gamma"] for trial in done["study"].trials}


def test_the_logger_of_the_page_writes_a_line_for_each_test(tmp_path: Path) -> None:
    found: dict[str, Any] = {}
    exec(compile(CODE["logger"], "logger", "exec"), found)
    run = emc.train("vdn", "one-step-game", runs=tmp_path, steps=60, evaluate_every=20, log=[found["Mine"]()])
    lines = [line.split() for line in (run.path / "mine.txt").read_text().splitlines()]
    steps, values = run.metrics("test_return")
    assert [float(line[0]) for line in lines] == steps[0].tolist()
    assert [float(line[1]) for line in lines] == pytest.approx(values[0].tolist())


@pytest.mark.slow
def test_the_notebook_runs_from_its_first_cell_to_its_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ipykernel", reason="the extra `notebook` is not installed")
    client = pytest.importorskip("nbclient", reason="the extra `notebook` is not installed")
    formats = pytest.importorskip("nbformat")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(DOCS.parent), *sys.path]))
    notebook = formats.read(DOCS / "quick-start.ipynb", as_version=4)
    client.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = [str([output.get("data", output.get("text")) for output in cell.outputs]) for cell in code]
    assert all(cell.execution_count for cell in code)
    assert "qmix on one-step-game, 1 seed" in shown[0]
    assert "first steps after" in shown[0]  # progress is shown where there is a notebook
    assert "image/png" in shown[2]
    assert len(emc.runs(tmp_path / "runs")) == 2
