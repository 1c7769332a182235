"""The page of results says what the kept data say."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from emc.claims import Arm, Claim, Evidence, Panel, Sample, evidence, figures
from emc.configuration import configure
from emc.report.curves import Curve

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def results() -> Iterator[ModuleType]:
    """The program that writes the page; what it asks for again and again is read and computed once."""
    spec = importlib.util.spec_from_file_location("results", ROOT / "experiments" / "results.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("figures_of", "verdicts_of", "data_hash"):
        setattr(module, name, remembered(getattr(module, name), lambda found: found.claim.name))
    module.Survey = remembered(module.Survey, str)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(figures, "different", lambda configs: [])  # optima take longer to compute than all else to draw
        monkeypatch.setattr(evidence, "read_lines", remembered(evidence.read_lines, lambda run: str(run.path)))
        yield module


def remembered(function: Callable[[Any], Any], name_of: Callable[[Any], str]) -> Callable[[Any], Any]:
    """The same function, which computes its answer once for each name."""
    found: dict[str, Any] = {}

    def ask(what: Any) -> Any:
        if name_of(what) not in found:
            found[name_of(what)] = function(what)
        return found[name_of(what)]

    return ask


def test_page_and_data_agree(results: ModuleType) -> None:
    """Otherwise run `python experiments/results.py page`. One test, because gathering the evidence takes longest."""
    every = [results.evidence_of(claim) for claim in results.claims().values()]
    page_is_of(results, every)
    verdicts_come_first(results, every)
    every_kept_run_belongs_to_some_claim(results)


def page_is_of(results: ModuleType, every: list[Any]) -> None:
    assert results.page(every).splitlines() == results.PAGE.read_text().splitlines()
    shown = set[str]()
    for found in every:
        for name in results.figures_of(found):
            path = results.FIGURES / f"{found.claim.name}-{name}.png"
            shown.add(path.name)
            with Image.open(path) as picture:
                assert picture.info["data"] == results.data_hash(found), f"{path.name} was drawn from other data"
            if found.claim.name == results.FRONT_CLAIM:
                with Image.open(results.FRONT) as picture:
                    assert picture.info["data"] == results.data_hash(found)
    if results.MEMORY_ERROR.exists():
        shown.add(results.MEMORY_ERROR_FIGURE.name)
        with Image.open(results.MEMORY_ERROR_FIGURE) as picture:
            assert picture.info["data"] == hashlib.sha256(results.MEMORY_ERROR.read_bytes()).hexdigest()
    assert {path.name for path in results.FIGURES.iterdir()} == shown  # no picture is left over


def every_kept_run_belongs_to_some_claim(results: ModuleType) -> None:
    survey = results.Survey(results.RESULTS)
    panels = [panel for claim in results.claims().values() for budget in ("small", "paper") for panel in claim.panels(budget)]
    one_seed = [dataclasses.replace(panel, seeds=panel.seeds[:1]) for panel in panels]  # kin have any
    known = {path for job in results.jobs_of(one_seed) for path in survey.kin(job)}
    games = {results.RESULTS / game for game in results.GAMES}
    kept = {path.parent for path in results.RESULTS.glob("*/*/*/manifest.json") if path.parents[2] not in games}
    assert kept
    assert kept - known == set()


def verdicts_come_first(results: ModuleType, every: list[Any]) -> None:
    head, table, _ = results.at_a_glance(every)
    kinds = [verdict.kind for found in every for _, verdict in results.verdicts_of(found)]
    holds, fails, unknown = (kinds.count(kind) for kind in results.VerdictKind)
    assert f"Of {len(kinds)} statements {holds} hold, {fails} do not, and {unknown} cannot be judged yet." in head
    rows = [row.split(" | ") for row in table.splitlines()[2:]]
    assert [sum(row[0].endswith(sign) for row in rows) for sign in ("✔ holds", "✘ does not hold")] == [holds, fails]
    open_ones = [row[2] for row in rows if row[0].endswith("? unknown")]
    assert sum(int(words.split()[0]) for words in open_ones) == unknown
    assert max(len(cell) for row in rows for cell in row) < 120
    lines = results.PAGE.read_text().splitlines()
    assert all(len(line) < 400 for line in lines if line.startswith("|"))
    for row in rows:  # every link leads somewhere on the page
        anchor = row[1].partition("(#")[2].rstrip(")")
        assert f'<a id="{anchor}"></a>' in lines


def put(panel: Panel, name: str, ends: Sequence[Sequence[float]], beside: Sequence[Curve] = ()) -> Sample:
    """An arm of a panel, whose seeds have these scores in tests, the last of them at the panel's end."""
    curves = [Curve(seed, np.linspace(1_000.0, panel.steps, len(values)), np.array(values)) for seed, values in enumerate(ends, 1)]
    return Sample(Arm("vdn gridworld", name), panel, configure(["vdn", "gridworld"]), tuple(curves), {}, extrinsic=tuple(beside))


def ended(panel: Panel, name: str, *ends: float) -> Sample:
    return put(panel, name, [[end] * 5 for end in ends])


def test_arms_are_put_together_over_the_tasks_that_have_all_of_them(results: ModuleType) -> None:
    """By hand: the middle half of 1, 1, 1, 1, 0.5, 0.5, 0, 0 is 1, 1, 0.5, 0.5; ours are better on one task and tied on the other."""
    one, two, alone, few = (Panel(title, (), 5_000, (1, 2, 3, 4)) for title in ("one", "two", "alone", "few"))
    samples = {
        "one": {"ours": ended(one, "ours", 1.0, 1.0, 1.0, 1.0), "theirs": ended(one, "theirs", 0.0, 0.0, 0.0, 0.0)},
        "two": {"theirs": ended(two, "theirs", 0.5, 0.0, 0.5, 0.0), "ours": ended(two, "ours", 0.5, 0.5, 0.0, 0.0)},
        "alone": {"ours": ended(alone, "ours", 0.0, 0.0, 0.0, 0.0)},
        "few": {"ours": ended(few, "ours", 0.0, 0.0), "theirs": ended(few, "theirs", 1.0, 1.0)},
    }
    claim = Claim("a claim", "5.1", (), (), (), compared=("ours", "theirs"))
    said, table = results._together(Evidence(claim, "small", samples))
    assert "over the 2 tasks" in said
    assert said.endswith("one (4), two (4).")
    head, _, first, second = table.splitlines()
    assert head == "| method | IQM [95 %] | ours is better [95 %] |"
    assert first.startswith("| ours | 0.75 [")
    assert second.startswith("| theirs | 0.00 [0.00, ")
    assert "] | 0.75 [" in second  # half of 1 and 1/2
    assert [*results._together(Evidence(claim, "small", {"one": samples["one"]}))] == []
    assert [*results._together(Evidence(Claim("a claim", "5.1", (), (), ()), "small", samples))] == []


def test_times_count_those_who_never_get_there_as_the_last_and_only_complete_seeds(results: ModuleType) -> None:
    panel = Panel("grid", (), 5_000, (1, 2, 3, 4), best=0.5)  # so that 0.45 and more is won
    soon, late, never = [0.45] * 5, [0.0, 0.0, 0.45, 0.5, 0.5], [1.0, 0.0, 0.4, 1.0, 1.0]
    slow = Curve(4, np.array([1_000.0, 2_000.0]), np.zeros(2))
    phi = [Curve(seed, np.array([5_000.0]), np.array([value])) for seed, value in ((1, 1.0), (4, 0.0))]
    half = put(panel, "half", [soon, late, never], phi)
    begun = dataclasses.replace(put(panel, "begun", []), curves=(slow,))
    samples = {
        "half": dataclasses.replace(half, curves=(*half.curves, slow)),
        "two": put(panel, "two", [never, soon, never]),
        "even": put(panel, "even", [never, late]),
        "begun": begun,
    }
    rows = [*results._scores(Evidence(Claim("a claim", "5.1", (), (), ()), "small", {"grid": samples}))]
    assert rows[:2] == [
        "| task | method | seeds | score | φ, greedily | half of the seeds by | first at nine tenths and held, seed by seed |",
        "|---|---|---|---|---|---|---|",
    ]
    assert [row.split(" | ")[4:] for row in rows[2:]] == [
        ["1.00 [1.00, 1.00] (1 of 3)", "3k", "1k, 3k, never, not by 2k |"],
        ["–", "not by 5k", "never, 1k, never |"],
        ["–", "3k", "never, 3k |"],
        ["–", "–", "not by 2k |"],
    ]
    without = results._scores(Evidence(Claim("a claim", "5.1", (), (), ()), "small", {"grid": {"two": samples["two"]}}))
    assert "φ" not in next(without)


def test_of_a_memory_measured_twice_the_longer_counts(results: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(seed: int, biases: list[float]) -> dict[str, Any]:
        lines = [{"steps": 10_000 * number, "bias": bias, "rms": 1.0} for number, bias in enumerate(biases, 1)]
        return {"slip": 0.3, "statistic": "best", "seed": seed, "steps": 10_000 * len(biases), "lines": lines}

    monkeypatch.setattr(results, "MEMORY_ERROR", tmp_path / "errors.json")
    monkeypatch.setattr(results, "MEMORY_ERROR_FIGURE", tmp_path / "errors.png")
    every = [measured(1, [9.0]), measured(1, [1.0, 1.0, 1.0, 1.0, -2.0]), measured(2, [2.0, 2.0, 2.0, 2.0, -1.0])]
    results.MEMORY_ERROR.write_text(json.dumps(every))
    assert [*results.memory_error_table()][2:] == ["| 0.3 | best | 2 | +1.50 / 1.00 | -1.50 / 1.00 |"]
    results.draw_memory_errors()
    with Image.open(results.MEMORY_ERROR_FIGURE) as picture:
        assert picture.info["data"] == hashlib.sha256(results.MEMORY_ERROR.read_bytes()).hexdigest()
