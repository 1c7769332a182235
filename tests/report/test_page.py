"""The report is one file that loads nothing, shows everything, and trusts nobody."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import math
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from emc.errors import UserError
from emc.methods import make_method
from emc.report.curves import scores
from emc.report.page import reached, write_report
from emc.runs import RunDirectory
from emc.sampling import Uniform
from tests.report.fabricate import MACHINE, evaluation, new_run, plausible_run, win_rates

HOSTILE = "</code></title><script>alert('x')</script><img src=x onerror=\"alert(1)\">&amp;{body}{title}"
VOID = {"meta", "img", "source", "br"}


class Page(HTMLParser):
    """A page taken apart; elements must nest."""

    def __init__(self, document: str) -> None:
        super().__init__()
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
        self.text += data if self.open[-1:] != ["style"] else ""

    def values(self, tag: str, attribute: str) -> list[str]:
        return [attrs[attribute] for name, attrs in self.tags if name == tag and attribute in attrs]

    @property
    def loaded(self) -> list[str]:
        """Whatever a browser would fetch."""
        return self.values("img", "src") + self.values("source", "srcset") + self.values("link", "href") + self.values("script", "src")


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
    document = json.loads((stranger.path / "manifest.json").read_text())
    document |= {"id": HOSTILE, "created": HOSTILE, "lone surrogate": "\ud800"}
    document["config"]["method"]["mixer"] = {"type": HOSTILE, HOSTILE: [HOSTILE]}
    (stranger.path / "manifest.json").write_text(json.dumps(document))
    runs = [first, uniform, RunDirectory.open(stranger.path)]
    return report(runs, tmp_path_factory.mktemp("out"), {first.path: gif(root / "episode.gif")})


def test_the_page_loads_nothing_from_anywhere(comparison: Page) -> None:
    assert comparison.loaded
    assert all(reference.startswith("data:image/") for reference in comparison.loaded)
    assert all(link.startswith("#run-") for link in comparison.values("a", "href"))
    assert not {tag for tag, _ in comparison.tags} & {"script", "link", "iframe", "object", "embed", "form", "base"}
    policy = next(attrs["content"] for tag, attrs in comparison.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def test_every_image_can_be_decoded_and_is_described_in_words(comparison: Page) -> None:
    kinds: list[str] = []
    for reference in comparison.loaded:
        head, _, content = reference.partition(";base64,")
        kinds.append(head.removeprefix("data:image/"))
        data = base64.b64decode(content, validate=True)
        if kinds[-1] == "svg+xml":
            assert ElementTree.fromstring(data).tag.endswith("svg")
        else:
            Image.open(io.BytesIO(data)).load()
    assert kinds.count("svg+xml") == 2  # the curves, light and dark
    assert kinds.count("gif") == 1
    assert kinds.count("png") == 1 + 2 + 2  # the still frame; the maps and the diagnostics of one run, light and dark
    described = [attrs.get("alt", "") for tag, attrs in comparison.tags if tag == "img"]
    assert all(len(alt) > 20 for alt in described)


def test_text_from_a_manifest_is_never_markup(comparison: Page) -> None:
    assert not [attrs for _, attrs in comparison.tags if any(name.startswith("on") for name in attrs)]
    assert comparison.text.count(HOSTILE) > 8
    assert comparison.text.count("emc training report") == 1


def test_several_runs_are_compared_in_one_table(comparison: Page) -> None:
    for words in ("3 methods on gridworld", "emc-vdn, uniform replay", "Final median [25–75%]", "First at 90%", "3 runs, 5 seeds"):
        assert words in comparison.text
    assert len(comparison.values("h2", "id")) == 3


def test_every_field_of_the_configuration_is_shown(comparison: Page) -> None:
    for words in ("predictor_learning_rate", "new_priority", "evaluate_every", "win_reward", "parallel_envs", "Prioritised"):
        assert words in comparison.text
    assert "preset: Prioritised" in comparison.text
    assert "emc-marl 0.1.0, commit 0123456789abcdef" in comparison.text
    assert "emc train emc-vdn gridworld --seeds 0" in comparison.text


def test_the_result_is_said_in_words_and_numbers(tmp_path: Path) -> None:
    lines = [line for seed, rate in enumerate((0.5, 0.9, 1.0)) for line in win_rates(seed, {30: 0.0, 1000: 0.9 * (seed > 0), 2000: rate})]
    page = report([new_run(tmp_path, lines, seeds=(0, 1, 2))], tmp_path)
    assert "emc-vdn wins 90% of its greedy test episodes after 2,000 steps (median of 3 seeds, middle half 70–95%)." in page.text
    assert "1 run, 3 seeds, 9 evaluations, 90 test episodes." in page.text
    assert "1k (2 of 3 seeds)" in page.text
    assert "2,000 of 505,000: not finished" in page.text
    assert "smoothed" not in page.text


def test_long_curves_are_smoothed_only_where_it_says_so(tmp_path: Path) -> None:
    page = report([new_run(tmp_path, win_rates(0, {30 + 1000 * k: k / 200 for k in range(200)}))], tmp_path)
    assert "Every evaluation by itself, not smoothed" in page.text
    assert len(page.loaded) == 4


def test_where_nothing_can_be_won_returns_are_reported(tmp_path: Path) -> None:
    lines = [evaluation(0, steps, [False] * 2, [value, value + 1]) for steps, value in ((200, 0.0), (10_000, 30.0), (20_000, 20.0))]
    page = report([new_run(tmp_path, lines, env_name="predator-prey", method_name="qmix")], tmp_path)
    assert "qmix earns a mean return of 20.5 in greedy test episodes after 20,000 steps (one seed)." in page.text
    assert "30.5 at 10k" in page.text
    assert "First at 27.45" in page.text


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
    assert "No command was recorded" in page.text
    assert page.loaded == []


def test_a_manifest_of_unknown_shape_still_has_a_page(tmp_path: Path) -> None:
    run = new_run(tmp_path, win_rates(0, {30: 0.5}))
    run.manifest |= {"config": ["nothing we know"], "machine": 7, "command": None}
    assert "emc-vdn wins 50%" in report([run], tmp_path).text


def test_a_report_on_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no runs"):
        write_report([], tmp_path / "report.html")


def test_a_failure_leaves_an_older_report_as_it_was(tmp_path: Path) -> None:
    out, broken = tmp_path / "report.html", tmp_path / "broken.gif"
    out.write_text("older")
    broken.write_bytes(b"GIF89a?")
    run = new_run(tmp_path / "runs")
    with pytest.raises(UserError, match=r"broken\.gif: cannot be read as a GIF"):
        write_report([run], out, {run.path: broken})
    with pytest.raises(UserError, match=r"missing\.gif: cannot be read as a GIF"):
        write_report([run], out, {run.path: tmp_path / "missing.gif"})
    with pytest.raises(UserError, match="A file stands where a directory should"):
        write_report([run], out / "inside.html")
    assert out.read_text() == "older"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.gif", "report.html", "runs"]


def test_the_first_good_evaluation_is_found() -> None:
    (curve,) = scores(win_rates(0, {30: 0.0, 1000: 0.9, 2000: 0.5, 3000: 1.0}), winnable=True)
    assert reached(curve, 0.9) == 1000
    assert reached(curve, 0.95) == 3000
    assert reached(curve, 1.1) == math.inf
