"""One screen about what is there and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from emc.cli import main
from emc.doctor import LOGGERS, PACKAGES


def test_what_is_missing_comes_with_a_remedy(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SC2PATH", str(tmp_path))
    main(["doctor"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    missing = [number for number, line in enumerate(lines) if line.startswith("  missing")]
    assert all("->" in lines[number + 1] for number in missing)
    assert any("the game" in lines[number] for number in missing)
    for name in PACKAGES | LOGGERS:
        assert any(f" {name} " in line for line in lines)


def test_a_game_that_is_there_is_found(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "Versions" / "Base69232").mkdir(parents=True)
    (tmp_path / "Maps" / "SMAC_Maps").mkdir(parents=True)
    (tmp_path / "Maps" / "SMAC_Maps" / "3m.SC2Map").touch()
    monkeypatch.setenv("SC2PATH", str(tmp_path))
    main(["doctor"])
    out = capsys.readouterr().out
    assert "found    the game     Base69232 in" in out
    assert f"found    SMAC's maps  1 in {tmp_path}" in out


def test_a_package_that_cannot_be_imported_is_broken_and_says_why(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "smac").mkdir()
    (tmp_path / "smac" / "__init__.py").write_text("raise TypeError('Descriptors cannot be created directly')\n")
    monkeypatch.syspath_prepend(tmp_path)
    main(["doctor"])
    lines = capsys.readouterr().out.splitlines()
    (number,) = [number for number, line in enumerate(lines) if line.startswith("  broken")]
    assert "smac" in lines[number]
    assert "TypeError: Descriptors cannot be created directly; pysc2 needs protobuf older than 3.21" in lines[number + 1]
