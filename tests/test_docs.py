"""The documentation: the site builds without a broken link, the terminal shows every page, and numbers are those that were measured."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from emc.cli import main
from emc.methods import METHODS, make_method
from emc.reference import EQUATIONS, methods_page

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ROOT / "benchmarks" / "results"


@pytest.mark.skipif(find_spec("mkdocs") is None, reason="the extra 'docs' is not installed")
def test_the_site_builds_without_a_broken_link_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (tmp_path / "site").glob("*.html")}
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} | {"methods", "python"} <= pages.keys()
    assert "emc.LoadedPolicy" in pages["python"]
    assert all(f'id="{name}"' in pages["methods"] for name in METHODS)
    for name, page in pages.items():
        loaded = re.findall(r'<(?:script|img|link)[^>]*(?:src|href)="(https?:[^"]+)"', page)
        assert loaded == [], name


def test_every_page_is_shown_in_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    main(["docs"])
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line][:-1]
    assert {*listed} == {path.stem for path in (ROOT / "docs").glob("*.md")} | {"methods"}
    for page in listed[:2]:
        main(["docs", page])
        assert capsys.readouterr().out == (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    main(["docs", "docs/battle.md"])  # as a message of an earlier version would have said it
    assert capsys.readouterr().out.startswith("# Battles")
    with pytest.raises(SystemExit) as stop:
        main(["docs", "batle"])
    assert stop.value.code == 2
    assert "Did you mean battle" in capsys.readouterr().err


def test_no_message_points_to_a_file_that_a_wheel_does_not_have() -> None:
    assert [path for path in (ROOT / "emc").rglob("*.py") if re.search(r"\bdocs/[a-z-]+\.md", path.read_text())] == []
    named = {name for path in (ROOT / "emc").rglob("*.py") for name in re.findall(r"emc docs ([a-z-]+)", path.read_text())}
    assert "your-environment" in named
    assert named <= {path.stem for path in (ROOT / "docs").glob("*.md")} | {"methods"}


def test_the_page_of_methods_has_every_method_with_its_own_constants() -> None:
    page = methods_page()
    sections = {part.partition("\n")[0]: part for part in page.split("\n## ")[1:]}
    assert {*METHODS} <= sections.keys()
    for name, entry in METHODS.items():
        assert EQUATIONS[type(entry.method.mixer).__name__] in sections[name]
    weight = make_method("emc-vdn").curiosity.weight  # pyright: ignore[reportAttributeAccessIssue]
    assert f"start {weight.start}, rate {weight.rate}, every {weight.every}" in sections["emc-vdn"]
    assert "Preset `starcraft`:" in sections["vdn"]
    assert "`gamma` 0.99" in sections["vdn"].partition("Preset `starcraft`:")[2]
    assert "changes `gamma` 0.99" in sections["qtran"]


def test_speeds_that_are_named_are_those_that_were_measured() -> None:
    page = (ROOT / "docs" / "speed.md").read_text()
    training, battles, memory = (json.loads((MEASURED / f"{name}.json").read_text()) for name in ("training", "battles", "memory"))
    for processes in ("one process", "two processes"):
        assert f"{training[f'{processes}: steps/s']:,.0f} steps/s" in page
        assert f"{training[f'{processes}: times the released code']:.1f} times the released code" in page
    times = [value for name, value in battles.items() if name.endswith("32 side by side: times SMAX")]
    assert f"{min(times):.1f} to {max(times):.1f} times JaxMARL's SMAX" in page
    assert f"{memory['sizes'][-1]['ratio_recall_one_by_one']:.0f} times as fast" in page
    learning = json.loads((MEASURED / "training-battles.json").read_text())
    for method, title in (("emc-qplex", "EMC-QPLEX"), ("qplex", "QPLEX"), ("qmix", "QMIX")):
        cells = [
            f"{learning[f'{method} on {name}: steps/s']:.0f} ({learning[f'{method} on {name}: times as fast']:.1f})"
            for name in ("3m", "2s3z", "MMM2", "corridor")
        ]
        assert f"| {title} | {' | '.join(cells)} |" in page
    before = json.loads((MEASURED / "battles-before.json").read_text())
    for count in ("one battle", "32 side by side", "256 side by side"):
        times = [f"{before[f'{name}, {count}: times as fast']:.2f}" for name in ("3m", "2s3z", "3s5z_vs_3s6z", "MMM2", "corridor")]
        assert f"| {count} | {' | '.join(times)} |" in page
    update = json.loads((MEASURED / "update.json").read_text())
    sizes = ("gridworld", "3m", "2s3z", "3s_vs_5z", "MMM2", "27m_vs_30m", "corridor")
    shares = [f"{update[f'{size}: share of SGEMM peak, on played moments']:.2f}" for size in sizes]
    assert f"| share of SGEMM, on played moments | {' | '.join(shares)} |" in page


RENAMED = {  # what the README says of a method, and its task and name on the page of results
    "emc-apart-vdn: no curiosity weight to set": "gridworld, p = 2 | apart",
    "emc-apart-vdn: exploring ends at 300k": "ξ = 0.5, then earning | apart",
    "emc-vdn: as released": "ξ = 0.5 | no memory",
}


def test_the_readme_has_measured_numbers_only() -> None:
    readme = (ROOT / "README.md").read_text()
    kept = (ROOT / "docs" / "results.md").read_text()
    rows = re.findall(r"\| ([a-z][a-z, -]*) \| (\d) \| (-?[\d.]+ \[[^]]+\]) \|", readme)
    assert len(rows) == 11
    for method, seeds, score in rows:
        assert f"| {method} | {seeds} | {score} |" in kept
    for said, shown in RENAMED.items():
        (found,) = re.findall(rf"\| {re.escape(said)} \| (\d \| [^|]+) \|", readme)
        assert f"| {shown} | {found} |" in kept
    speed = (ROOT / "docs" / "speed.md").read_text()
    for number in re.findall(r"\| ([\d,]+(?: to [\d,]+)? steps/s) \| ([\d.]+(?: to [\d.]+)? times)", readme):
        assert all(part in speed for part in number)
    pictures = re.findall(r'src="([^"]+)"', readme)
    assert len(pictures) == 3
    assert all((ROOT / path).is_file() and (ROOT / path).stat().st_size < 200_000 for path in pictures)


def test_the_first_screen_of_the_readme_has_the_two_commands() -> None:
    assert "make demo\nmake test" in "\n".join((ROOT / "README.md").read_text().splitlines()[:10])
