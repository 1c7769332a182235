"""The report is one file that loads nothing, shows everything, and trusts nobody."""

from __future__ import annotations

import base64
import copy
import dataclasses
import hashlib
import io
import json
import math
import os
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from emc.envs.registry import make_env
from emc.errors import UserError
from emc.methods import make_method
from emc.report.curves import scores
from emc.report.page import Memo, build_page, write_report
from emc.report.records import summary
from emc.report.tasks import reached
from emc.runs import RunDirectory
from emc.sampling import Uniform
from emc.training.loop import Budget
from tests.report.fabricate import MACHINE, evaluation, new_run, plausible_run, rewrite_manifest, snapshot, training, win_rates

HOSTILE = "</code></title><script>alert('x')</script><img src=x onerror=\"alert(1)\">&amp;{body}{title}"
VOID = {"meta", "img", "source", "br", "input"}


class Page(HTMLParser):
    """A page taken apart; elements must nest."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.inside = {"style": list[str](), "script": list[str]()}
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(document)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        (self.inside[self.open[-1]].append if self.open[-1:] and self.open[-1] in self.inside else self.read)(data)

    def read(self, data: str) -> None:
        self.text += data

    @property
    def data(self) -> dict[str, Any]:
        """What the pages of single runs are drawn from."""
        return json.loads(self.inside["script"][0])

    @property
    def runs(self) -> list[dict[str, Any]]:
        return [*self.data["runs"].values()]

    def values(self, tag: str, attribute: str) -> list[str]:
        return [attrs[attribute] for name, attrs in self.tags if name == tag and attribute in attrs]

    @property
    def loaded(self) -> list[str]:
        """Whatever a browser would fetch."""
        pictures = [picture for run in self.runs if run["episode"] for picture in run["episode"].values()]
        pictures += [ground["image"] for ground in self.data["outlines"].values()]
        return self.values("img", "src") + self.values("link", "href") + self.values("script", "src") + pictures


def gif(path: Path) -> Path:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=250, loop=0)
    return path


def report(runs: list[RunDirectory], folder: Path, animations: dict[Path, Path] | None = None) -> Page:
    write_report(runs, folder / "report.html", animations)
    assert [path.name for path in folder.glob("*report*")] == ["report.html"]
    return Page((folder / "report.html").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """Three methods, one of them with all pictures, one from a stranger."""
    root = tmp_path_factory.mktemp("runs")
    first = plausible_run(root, evaluations=12, snapshots=3, seeds=(0, 1))
    method = dataclasses.replace(make_method("emc-vdn"), replay=Uniform())
    uniform = new_run(root, win_rates(0, {30: 0.0, 1000: 0.4}) + win_rates(1, {30: 0.0, 1000: 0.4}), method=method, seeds=(0, 1))
    machine = {**MACHINE, "platform": HOSTILE, HOSTILE: HOSTILE, "packages": {"emc-marl": HOSTILE}, "commit": {"emc": HOSTILE}}
    stranger = new_run(
        root, win_rates(0, {30: 0.1, 1000: 0.4}), method_name=HOSTILE, method=make_method("vdn"), command=HOSTILE, machine=machine
    )
    config = copy.deepcopy(stranger.manifest["config"])
    config["method"]["mixer"] = {"type": HOSTILE, HOSTILE: [HOSTILE]}
    odd: dict[str, Any] = {"id": HOSTILE, "created": HOSTILE, "lone surrogate": "\ud800", "config": config}
    runs = [first, uniform, rewrite_manifest(stranger, **odd)]
    return report(runs, tmp_path_factory.mktemp("out"), {first.path: gif(root / "episode.gif")})


def test_the_page_loads_nothing_from_anywhere(comparison: Page) -> None:
    assert comparison.loaded
    assert all(reference.startswith("data:image/") for reference in comparison.loaded)
    assert sorted(link.removeprefix("#") for link in comparison.values("a", "href")) == sorted(comparison.data["runs"])
    assert not {tag for tag, _ in comparison.tags} & {"link", "iframe", "object", "embed", "form", "base"}


def test_the_page_runs_nothing_but_its_own_script(comparison: Page) -> None:
    def digest(text: str) -> str:
        return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"

    assert [attrs.get("type") for tag, attrs in comparison.tags if tag == "script"] == ["application/json", None]
    assert not [attrs for _, attrs in comparison.tags if "style" in attrs]  # the policy would forbid them
    policy = next(attrs["content"] for tag, attrs in comparison.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    style, (_, script) = comparison.inside["style"][0], comparison.inside["script"]
    own = f"style-src '{digest(style)}'; script-src '{digest(script)}'"
    assert policy == f"default-src 'none'; img-src data:; {own}; base-uri 'none'"


def test_every_image_can_be_decoded_and_is_described_in_words(comparison: Page) -> None:
    kinds: list[str] = []
    for reference in comparison.loaded:
        head, _, content = reference.partition(";base64,")
        kinds.append(head.removeprefix("data:image/"))
        data = base64.b64decode(content, validate=True)
        Image.open(io.BytesIO(data)).load()
    assert kinds.count("gif") == 1
    assert kinds.count("png") == 1 + 1  # the still frame, and the outlines over the maps
    described = [attrs.get("aria-label", "") for tag, attrs in comparison.tags if attrs.get("class") == "chart"]
    assert len(described) == 1  # the curves
    assert all(len(alt) > 20 for alt in described)


def test_text_from_a_manifest_is_never_markup(comparison: Page) -> None:
    assert not [attrs for _, attrs in comparison.tags if any(name.startswith("on") for name in attrs)]
    assert comparison.text.count(HOSTILE) >= 3
    assert json.dumps(comparison.runs[2]).count("onerror") > 8
    assert comparison.text.count("emc training report") == 1


def test_several_runs_are_compared_in_one_table(comparison: Page) -> None:
    for words in ("2 methods on gridworld", "emc-vdn, uniform replay", "Final median [25–75%]", "First at 90%", "3 runs, 5 seeds"):
        assert words in comparison.text
    assert len(comparison.runs) == 3


def test_every_field_of_the_configuration_is_there(comparison: Page) -> None:
    first, uniform, _ = comparison.runs
    fields = dict(first["fields"][0])
    for path in ("method.curiosity.predictor_learning_rate", "method.replay.new_priority", "budget.evaluate_every", "env.win_reward"):
        assert path in fields
    assert fields["method.replay"] == "Prioritised"
    assert dict(first["fields"][1])["packages.jax"] == "0.10.2"
    assert (first["preset"], uniform["preset"]) == ([], [["method.replay", "Prioritised"]])
    assert first["source"].startswith("With emc-marl 0.1.0, commit 0123456789abcdef")
    assert first["command"] == "emc train emc-vdn gridworld --seeds 0"


def test_fields_younger_than_a_run_make_no_difference(tmp_path: Path) -> None:
    new, old = (new_run(tmp_path, win_rates(0, {30: 0.5})) for _ in range(2))
    document = json.loads((old.path / "manifest.json").read_text())
    del document["config"]["budget"]["log_every"], document["config"]["method"]["episodes_per_update"]
    del document["run"], document["seal"]  # younger too
    (old.path / "manifest.json").write_text(json.dumps(document))
    first, second = report([new, RunDirectory.open(old.path)], tmp_path).runs
    assert first["fields"][0] == second["fields"][0]


def test_a_runs_curves_are_the_median_and_quartiles_of_its_seeds(tmp_path: Path) -> None:
    lines = [line for seed in range(3) for line in win_rates(seed, {30: 0.0, 1000: 0.1 * seed, 2000: 0.2 * seed})]
    lines += [training(seed, 2000, loss=1.0 + seed, q=0.0) for seed in range(3)]
    (run,) = report([new_run(tmp_path, lines, seeds=(0, 1, 2))], tmp_path).runs
    (scored,) = run["score"]
    assert (scored["low"], scored["median"], scored["high"]) == ([0, 0.05, 0.1], [0, 0.1, 0.2], [0, 0.15, 0.3])
    assert run["grids"][scored["grid"]] == [30, 1000, 2000]
    assert run["seeds"][2] == ["2", "2,000", "20%", "40%"]  # the mean of the last five, and the best
    panels = {panel["title"]: panel["lines"] for panel in run["panels"]}
    assert panels["Loss"][0]["median"] == [2]
    assert "Value and its target" not in panels  # zero throughout


def test_long_curves_are_thinned_from_the_first_to_the_last_point(tmp_path: Path) -> None:
    lines = win_rates(0, {30 + 1000 * k: k / 999 for k in range(1000)}, episodes=1000)
    (run,) = report([new_run(tmp_path, lines)], tmp_path).runs
    (scored,) = run["score"]
    assert len(scored["median"]) == len(run["grids"][0]) == 300
    assert (run["grids"][0][0], run["grids"][0][-1]) == (30, 999_030)
    assert (scored["median"][0], scored["median"][-1]) == (0, 1)


def test_a_runs_maps_are_its_cells_under_the_outlines_of_its_ground(tmp_path: Path) -> None:
    visits = np.zeros((11, 12))
    visits[3, 4] = 7
    maps = [snapshot(0, steps, visits) for steps in (1000, 2000)]
    page = report(
        [new_run(tmp_path, [], maps), new_run(tmp_path, [], maps, seeds=(1,)), new_run(tmp_path, env_name="two-step-game")], tmp_path
    )
    first, _, without = page.runs
    assert [phase["name"] for phase in first["maps"]["phases"]] == ["early", "late"]
    cells = first["maps"]["phases"][0]["visits"]
    assert (len(cells), len(cells[0]), cells[3][4], cells[0][0]) == (11, 12, 7, None)
    assert first["maps"]["phases"][0]["bonus"] is None  # nothing was ever paid
    assert without["maps"] is None
    assert [*page.data["outlines"]] == [first["maps"]["outlines"]]  # one for both
    left, right, top, bottom = page.data["outlines"][first["maps"]["outlines"]]["view"]
    assert left < 0 < 11 < right
    assert top < 0 < 10 < bottom


@pytest.mark.parametrize(
    "line",
    [
        '{"seed": 0, "steps": 10}',
        '{"seed": 0, "steps": 10, "visits": 1, "bonus": "x", "bonus_visits": []}',
        f'{{"seed": 0, "steps": 10, "visits": [[{"9" * 400}]], "bonus": [[1]], "bonus_visits": [[1]]}}',
        '{"seed": 0, "steps": "NaN", "visits": [[1]], "bonus": [[1]], "bonus_visits": [[1]]}',
        "not JSON",
    ],
)
def test_maps_that_are_none_are_left_out_in_one_line(tmp_path: Path, line: str) -> None:
    run, said = plausible_run(tmp_path, evaluations=5, snapshots=2), list[str]()
    (run.path / "maps.jsonl").write_text(line + "\n")
    (shown,) = Page(build_page([run], say=said.append)).runs
    assert shown["maps"] is None
    assert shown["score"]
    assert len(said) == 1
    assert "maps" in said[0]


def test_gifs_that_are_none_are_left_out_in_one_line(tmp_path: Path) -> None:
    run, other = (plausible_run(tmp_path, evaluations=5, snapshots=2, seeds=(seed,)) for seed in (0, 1))
    whole = gif(tmp_path / "whole.gif").read_bytes()
    vast = whole[:6] + b"\xff\xff\xff\xff" + whole[10:]
    good = gif(tmp_path / "good.gif")
    for content in (b"", b"GIF89a?", b"GIF89a" + b"\x00" * 20, whole[:20], vast):
        (broken := tmp_path / "broken.gif").write_bytes(content)
        said = list[str]()
        first, second = Page(build_page([run, other], {run.path: broken, other.path: good}, say=said.append)).runs
        assert first["episode"] is None
        assert second["episode"] is not None
        assert said == [f"{broken}: cannot be read as a GIF. Make it again with emc render, or remove it."]


def test_what_has_become_of_a_run_is_told(tmp_path: Path) -> None:
    def state(run: RunDirectory) -> str:
        return summary(run, winnable=True).state

    lines, budget = win_rates(0, {30: 0.0, 2000: 0.5}), Budget(steps=2000)
    assert state(new_run(tmp_path, lines, budget=budget)) == "finished"
    begun = new_run(tmp_path, lines)
    assert state(begun) == "running"  # its lock is there and it has just written
    for path in begun.path.iterdir():
        os.utime(path, (0, 0))
    assert state(begun) == "unfinished"
    with begun:
        begun.append([{"steps": 2000, "reason": "enough"}], "end.jsonl")
    assert state(begun) == "goal reached"
    both = new_run(tmp_path, lines + win_rates(1, {30: 0.0}), seeds=(0, 1), budget=budget)
    assert state(both) == "running"  # one seed is behind


def test_the_result_is_said_in_words_and_numbers(tmp_path: Path) -> None:
    lines = [line for seed, rate in enumerate((0.3, 0.9, 0.9)) for line in win_rates(seed, {30: 0.0, 1000: 0.9 * (seed > 0), 2000: rate})]
    page = report([new_run(tmp_path, lines, seeds=(0, 1, 2))], tmp_path)
    assert "emc-vdn wins 60% of its greedy test episodes after 2,000 steps (median of 3 seeds, middle half 35–60%)." in page.text
    assert "1 run, 3 seeds, 9 evaluations, 90 test episodes. A final score is the mean of a seed’s last five evaluations." in page.text
    assert "1k (2 of 3 seeds)" in page.text
    assert dict(page.runs[0]["facts"])["Steps"] == "2,000 of 505,000: still running"
    assert "smoothed" not in page.text


def test_long_curves_are_smoothed_only_where_it_says_so(tmp_path: Path) -> None:
    page = report([new_run(tmp_path, win_rates(0, {30 + 1000 * k: 0.3 * (k % 2) for k in range(200)}))], tmp_path)
    assert "every evaluation by itself, not smoothed" in page.text
    assert "running means over 3 evaluations" in page.text
    (panel,) = page.data["plots"]["task-1"]["panels"]
    assert (panel["raw"][0]["median"][:3], panel["lines"][0]["median"][:2]) == ([0, 0.3, 0], [0.15, 0.1])


def test_where_nothing_can_be_won_returns_are_reported(tmp_path: Path) -> None:
    lines = [evaluation(0, steps, [False] * 2, [value, value + 1]) for steps, value in ((200, 0.0), (10_000, 30.0), (20_000, 20.0))]
    page = report([new_run(tmp_path, lines, env_name="predator-prey", method_name="qmix")], tmp_path)
    assert "qmix earns a mean return of 17.17 in greedy test episodes after 20,000 steps (one seed)." in page.text
    assert "30.5 at 10k" in page.text
    assert "First at 36" in page.text  # nine tenths of 40
    assert "90% of what can be earned at most" in page.text
    assert "— (0 of 1 seed)" in page.text


def test_a_task_counts_as_solved_from_nine_tenths_of_the_best_possible_play(tmp_path: Path) -> None:
    """Of which 93 % win where half of all actions slip."""
    curve = win_rates(0, {1000: 0.83, 2000: 0.84}, episodes=100)
    page = report([new_run(tmp_path, curve, env=make_env("gridworld", slip=0.5))], tmp_path)
    assert "First at 83.7%" in page.text
    assert "90% of the best possible play" in page.text
    assert "2k (1 of 1 seed)" in page.text
    farther = dataclasses.replace(make_method("vdn"), gamma=0.99)  # whose best play wins 92.66 % of episodes
    page = report([new_run(tmp_path, curve, env=make_env("gridworld", slip=0.5), method=farther, method_name="far")], tmp_path)
    assert "First at 83.4%" in page.text
    two = [new_run(tmp_path / "two", curve, env=make_env("gridworld", slip=slip)) for slip in (0.0, 0.5)]
    assert "First at 90% of the best" in report(two, tmp_path).text


def test_a_method_that_never_won_is_said_to_have_never_won(tmp_path: Path) -> None:
    page = report([new_run(tmp_path, win_rates(0, {30: 0.0, 1000: 0.0}), method_name="vdn")], tmp_path)
    assert "vdn has won none of its greedy test episodes (0%) after 1,000 steps (one seed)." in page.text
    assert "— (0 of 1 seed)" in page.text


def test_a_run_without_any_metrics_still_has_a_page(tmp_path: Path) -> None:
    run = new_run(tmp_path, command="")
    for path in run.path.glob("*.jsonl"):
        path.unlink()
    page = report([run], tmp_path)
    assert "Nothing has been evaluated on gridworld yet." in page.text
    assert page.runs[0]["command"] == ""
    assert page.loaded == []


def test_a_manifest_of_unknown_shape_still_has_a_page(tmp_path: Path) -> None:
    run = new_run(tmp_path, win_rates(0, {30: 0.5}))
    run.manifest |= {"config": ["nothing we know"], "machine": 7, "command": None}
    assert "emc-vdn wins 50%" in report([run], tmp_path).text


def test_a_report_on_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no runs"):
        write_report([], tmp_path / "report.html")


def test_a_failure_leaves_an_older_report_as_it_was(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    out.write_text("older")
    run, damaged = new_run(tmp_path / "runs"), new_run(tmp_path / "runs")
    (damaged.path / "metrics.jsonl").write_text("damaged\n")
    with pytest.raises(UserError, match="the file is damaged"):
        write_report([run, damaged], out)
    with pytest.raises(UserError, match="A file stands where a directory should"):
        write_report([run], out / "inside.html")
    assert out.read_text() == "older"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "runs"]


def test_the_first_good_evaluation_is_found() -> None:
    (curve,) = scores(win_rates(0, {30: 0.0, 1000: 0.9, 2000: 0.5, 3000: 1.0}), winnable=True)
    assert reached(curve, 0.9) == 1000
    assert reached(curve, 0.95) == 3000
    assert reached(curve, 1.1) == math.inf


def test_only_what_has_changed_is_made_again() -> None:
    memo, made = Memo(), list[str]()

    def make(value: str) -> str:
        made.append(value)
        return value

    assert [memo("a", source, lambda s=source: make(f"a{s}")) for source in (1, 1, 2)] == ["a1", "a1", "a2"]
    assert memo("b", 1, lambda: make("b")) == "b"
    assert made == ["a1", "a2", "b"]


def test_a_page_made_again_from_memory_is_the_same_page(tmp_path: Path) -> None:
    memo, runs = Memo(), [plausible_run(tmp_path, evaluations=5, snapshots=2, seeds=(seed,)) for seed in (0, 1)]
    first = build_page(runs, memo=memo)
    assert build_page(runs, memo=memo) == first
    with runs[0]:
        runs[0].append(win_rates(0, {900_000: 0.3}))
    again = build_page(runs, memo=memo)
    assert again == build_page(runs)
    assert again != first


def test_a_section_made_again_from_memory_knows_what_stands_beside_it(tmp_path: Path) -> None:
    memo, late = Memo(), [new_run(tmp_path, win_rates(0, {30: 0.5}))]
    build_page(late, memo=memo)
    early = [
        new_run(tmp_path, win_rates(0, {30: rate}), env_name=name, env=make_env("gridworld"))
        for name, rate in (("all tasks", 0.2), ("3m", 0.3))
    ]
    both = build_page([*early, *late], memo=memo)
    assert both == build_page([*early, *late])
    assert "Results on gridworld" in both
    assert [both.count(f'id="task-{number}"') for number in (1, 2, 3)] == [1, 1, 1]


def test_no_runs_yet_is_a_page_too() -> None:
    assert "No runs yet" in Page(build_page([])).text
