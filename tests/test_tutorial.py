"""The tutorial's code is real: every module in it is trained on, from the command line."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from emc.cli import main

PAGE = Path(__file__).resolve().parents[1] / "docs" / "your-environment.md"
MODULES = dict(re.findall(r"```python (\w+)\n(.*?)```", PAGE.read_text(), flags=re.DOTALL))
QUICK = ["--steps", "40", "--evaluate-every", "20", "--test-episodes", "2", "--batch-episodes", "2", "--replay-episodes", "8"]


@pytest.fixture
def tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the tutorial's modules, as a user would be in it."""
    for name, code in MODULES.items():
        (tmp_path / f"{name}.py").write_text(code)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("source", "flags"),
    [("my_envs:Meeting", ["--env.step-cost", "0.2"]), ("my_games:Meeting", ["--env.arguments", "length=5", "--parallel-envs", "2"])],
)
def test_the_environments_of_the_tutorial_train_and_evaluate_and_nothing_loads_them_without_trust(
    tutorial: Path, capsys: pytest.CaptureFixture[str], source: str, flags: list[str]
) -> None:
    main(["train", "vdn", source, *QUICK, *flags])
    (run,) = tutorial.glob("runs/*/vdn/*")
    module = source.partition(":")[0]
    del sys.modules[module]
    with pytest.raises(SystemExit) as refused:
        main(["evaluate", str(run)])
    assert refused.value.code == 2
    assert f"--trust {source}" in capsys.readouterr().err
    assert module not in sys.modules
    main(["evaluate", str(run), "--episodes", "3", "--trust", source])
    assert "win rate" in capsys.readouterr().out


def test_the_tutorials_classes_are_short() -> None:
    assert set(MODULES) == {"my_envs", "my_games"}
    for code in MODULES.values():
        body = code[code.index("class Meeting") :]
        assert len(body.strip().splitlines()) <= 40
