"""The page of results says what the kept data say."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import results
from emc.claims import Arm, Claim, Evidence, Panel, Sample, VerdictKind, evidence, figures, jobs_of
from emc.claims.catalogue import claims
from emc.claims.reproduction import figures_of, verdicts_of
from emc.configuration import configure
from emc.report.curves import Curve
from results_page import memory_errors, overview, pictures, sections
from results_page.places import FIGURES, PAGE, RESULTS, SOURCES
from results_page.tables import GAMES


@pytest.fixture(scope="module", autouse=True)
def computed_once() -> Iterator[None]:
    """What the page asks for again and again is read and computed once."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name in ("figures_of", "verdicts_of", "data_hash"):
            for module in (overview, pictures, sections):
                if name in vars(module):
                    monkeypatch.setattr(module, name, ONCE[name])
        monkeypatch.setattr(results, "Survey", remembered(results.Survey, str))
        monkeypatch.setattr(figures, "different", lambda configs: [])  # optima take longer to compute than all else to draw
        monkeypatch.setattr(evidence, "read_lines", remembered(evidence.read_lines, lambda run: str(run.path)))
        yield


def remembered(function: Callable[[Any], Any], name_of: Callable[[Any], str]) -> Callable[[Any], Any]:
    """The same function, which computes its answer once for each name."""
    found: dict[str, Any] = {}

    def ask(what: Any) -> Any:
        if name_of(what) not in found:
            found[name_of(what)] = function(what)
        return found[name_of(what)]

    return ask


ONCE = {
    function.__name__: remembered(function, lambda found: found.claim.name) for function in (figures_of, verdicts_of, pictures.data_hash)
}


def test_page_and_data_agree() -> None:
    """Otherwise run `python experiments/results.py page`. One test, because gathering the evidence takes longest."""
    every = [results.evidence_of(claim) for claim in claims().values()]
    page_is_of(every)
    verdicts_come_first(every)
    every_kept_run_belongs_to_some_claim()


def page_is_of(every: list[Any]) -> None:
    assert results.page(every).splitlines() == PAGE.read_text().splitlines()
    assert sections.sources(every) == SOURCES.read_text()
    shown = set[str]()
    for found in every:
        for name in ONCE["figures_of"](found):
            path = FIGURES / f"{found.claim.name}-{name}.png"
            shown.add(path.name)
            with Image.open(path) as picture:
                assert picture.info["data"] == ONCE["data_hash"](found), f"{path.name} was drawn from other data"
            if found.claim.name == pictures.FRONT_CLAIM:
                with Image.open(pictures.FRONT) as picture:
                    assert picture.info["data"] == ONCE["data_hash"](found)
    if memory_errors.MEMORY_ERROR.exists():
        shown.add(memory_errors.MEMORY_ERROR_FIGURE.name)
        with Image.open(memory_errors.MEMORY_ERROR_FIGURE) as picture:
            assert picture.info["data"] == hashlib.sha256(memory_errors.MEMORY_ERROR.read_bytes()).hexdigest()
    assert {path.name for path in FIGURES.iterdir()} == shown  # no picture is left over


def every_kept_run_belongs_to_some_claim() -> None:
    survey = results.Survey(RESULTS)
    panels = [panel for claim in claims().values() for budget in ("small", "paper") for panel in claim.panels(budget)]
    one_seed = [dataclasses.replace(panel, seeds=panel.seeds[:1]) for panel in panels]  # kin have any
    known = {path for job in jobs_of(one_seed) for path in survey.kin(job)}
    games = {RESULTS / game for game in GAMES}
    kept = {path.parent for path in RESULTS.glob("*/*/*/manifest.json") if path.parents[2] not in games}
    assert kept
    assert kept - known == set()


def verdicts_come_first(every: list[Any]) -> None:
    head, papers, _, ours, _ = overview.at_a_glance(every)
    lines = PAGE.read_text().splitlines()
    assert all(len(line) < 400 for line in lines if line.startswith("|"))
    for table, what, of_paper in ((papers, "statements of the paper", True), (ours, "more that it leaves open", False)):
        kinds = [
            verdict.kind
            for found in every
            for statement, (_, verdict) in zip(found.claim.statements, ONCE["verdicts_of"](found), strict=True)
            if (found.claim.section != "beyond" and not statement.beyond) is of_paper
        ]
        holds, fails, unknown = (kinds.count(kind) for kind in VerdictKind)
        assert f"Of {len(kinds)} {what} {holds} hold, {fails} do not, and {unknown} cannot be judged yet." in head
        rows = [row.split(" | ") for row in table.splitlines()[2:]]
        assert [sum(row[0].endswith(sign) for row in rows) for sign in ("✔ holds", "✘ does not hold")] == [holds, fails]
        open_ones = [row[2] for row in rows if row[0].endswith("? unknown")]
        assert sum(int(words.split()[0]) for words in open_ones) == unknown
        assert max(len(cell) for row in rows for cell in row) < 120
        for row in rows:  # every link leads somewhere on the page
            anchor = row[1].partition("(#")[2].rstrip(")")
            assert f'<a id="{anchor}"></a>' in lines


def put(panel: Panel, name: str, ends: Sequence[Sequence[float]], beside: Sequence[Curve] = ()) -> Sample:
    """An arm of a panel, whose seeds have these scores in tests, the last of them at the panel's end."""
    curves = [Curve(seed, np.linspace(1_000.0, panel.steps, len(values)), np.array(values)) for seed, values in enumerate(ends, 1)]
    return Sample(Arm("vdn gridworld", name), panel, configure(["vdn", "gridworld"]), tuple(curves), {}, extrinsic=tuple(beside))


def ended(panel: Panel, name: str, *ends: float) -> Sample:
    return put(panel, name, [[end] * 5 for end in ends])


def test_arms_are_put_together_over_the_tasks_that_have_all_of_them() -> None:
    """By hand: the middle half of 1, 1, 1, 1, 0.5, 0.5, 0, 0 is 1, 1, 0.5, 0.5; ours are better on one task and tied on the other."""
    one, two, alone, few = (Panel(title, (), 5_000, (1, 2, 3, 4)) for title in ("one", "two", "alone", "few"))
    samples = {
        "one": {"ours": ended(one, "ours", 1.0, 1.0, 1.0, 1.0), "theirs": ended(one, "theirs", 0.0, 0.0, 0.0, 0.0)},
        "two": {"theirs": ended(two, "theirs", 0.5, 0.0, 0.5, 0.0), "ours": ended(two, "ours", 0.5, 0.5, 0.0, 0.0)},
        "alone": {"ours": ended(alone, "ours", 0.0, 0.0, 0.0, 0.0)},
        "few": {"ours": ended(few, "ours", 0.0, 0.0), "theirs": ended(few, "theirs", 1.0, 1.0)},
    }
    claim = Claim("a claim", "5.1", (), (), (), compared=("ours", "theirs"))
    said, table = sections._together(Evidence(claim, "small", samples))
    assert "over the 2 tasks" in said
    assert said.endswith("one (4), two (4).")
    head, _, first, second = table.splitlines()
    assert head == "| method | IQM [95 %] | ours is better [95 %] |"
    assert first.startswith("| ours | 0.75 [")
    assert second.startswith("| theirs | 0.00 [0.00, ")
    assert "] | 0.75 [" in second  # half of 1 and 1/2
    assert [*sections._together(Evidence(claim, "small", {"one": samples["one"]}))] == []
    assert [*sections._together(Evidence(Claim("a claim", "5.1", (), (), ()), "small", samples))] == []


def test_times_count_those_who_never_get_there_as_the_last_and_only_complete_seeds() -> None:
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
    rows = [*sections._scores(Evidence(Claim("a claim", "5.1", (), (), ()), "small", {"grid": samples}))]
    assert rows[:2] == [
        f"| task | method | seeds | score | {sections.WON} | φ, greedily | half of the seeds by | {sections.FIRST} |",
        "|---|---|---|---|---|---|---|---|",
    ]
    assert [row.split(" | ")[4:] for row in rows[2:]] == [
        ["2 of 3", "1.00 [1.00, 1.00] (1 of 3)", "3k", "1k, 3k, never, not by 2k |"],
        ["3 of 3", "–", "not by 5k", "never, 1k, never |"],
        ["1 of 2", "–", "3k", "never, 3k |"],
        ["–", "–", "–", "not by 2k |"],
    ]
    without = sections._scores(Evidence(Claim("a claim", "5.1", (), (), ()), "small", {"grid": {"two": samples["two"]}}))
    assert "φ" not in next(without)


def test_of_a_memory_measured_twice_the_longer_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(seed: int, biases: list[float]) -> dict[str, Any]:
        lines = [{"steps": 10_000 * number, "bias": bias, "rms": 1.0} for number, bias in enumerate(biases, 1)]
        return {"slip": 0.3, "statistic": "best", "seed": seed, "steps": 10_000 * len(biases), "lines": lines}

    monkeypatch.setattr(memory_errors, "MEMORY_ERROR", tmp_path / "errors.json")
    monkeypatch.setattr(memory_errors, "MEMORY_ERROR_FIGURE", tmp_path / "errors.png")
    every = [measured(1, [9.0]), measured(1, [1.0, 1.0, 1.0, 1.0, -2.0]), measured(2, [2.0, 2.0, 2.0, 2.0, -1.0])]
    memory_errors.MEMORY_ERROR.write_text(json.dumps(every))
    assert [*memory_errors.memory_error_table()][2:] == ["| 0.3 | best | 2 | +1.50 / 1.00 | -1.50 / 1.00 |"]
    memory_errors.draw_memory_errors()
    with Image.open(memory_errors.MEMORY_ERROR_FIGURE) as picture:
        assert picture.info["data"] == hashlib.sha256(memory_errors.MEMORY_ERROR.read_bytes()).hexdigest()
