"""One screen about what is there and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from emc.cli import main
from emc.doctor import PACKAGES


def test_what_is_missing_comes_with_a_remedy(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SC2PATH", str(tmp_path))
    main(["doctor"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    missing = [number for number, line in enumerate(lines) if line.startswith("  missing")]
    assert all("->" in lines[number + 1] for number in missing)
    assert any("the game" in lines[number] for number in missing)
    for name in PACKAGES:
        assert any(name in line for line in lines)


def test_a_game_that_is_there_is_found(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "Versions" / "Base69232").mkdir(parents=True)
    (tmp_path / "Maps" / "SMAC_Maps").mkdir(parents=True)
    (tmp_path / "Maps" / "SMAC_Maps" / "3m.SC2Map").touch()
    monkeypatch.setenv("SC2PATH", str(tmp_path))
    main(["doctor"])
    out = capsys.readouterr().out
    assert "found    the game" in out
    assert f"found    SMAC's maps  1 in {tmp_path}" in out
