"""The page in a real browser: nothing is complained about, and what can be clicked does what it says."""

from __future__ import annotations

import dataclasses
import io
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from emc.envs.gridworld import Gridworld
from emc.methods import make_method
from emc.report.page import write_report
from emc.report.site import Site
from emc.report.watch import Watch
from emc.runs import RunDirectory
from tests.report.browser import PATIENCE, Browser, BrowserEnded, find_browser
from tests.report.fabricate import evaluation, new_run, plausible_run, win_rates

pytestmark = pytest.mark.skipif(
    os.name != "posix" or find_browser() is None, reason="no Chromium here: install one (Debian: apt-get install chromium)"
)
HOSTILE = "<img src=x onerror=document.title='taken'>"
SHOWN = "[...document.querySelectorAll('#all tbody tr')].filter(row => !row.hidden && !row.parentElement.hidden)"


def started(executable: str, profile: Path) -> Browser:
    """A browser, or none of the tests that need it: some systems have a name that leads nowhere."""
    try:
        return Browser(executable, profile)
    except (BrowserEnded, OSError) as error:
        pytest.skip(f"{executable} does not start: {error}")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    executable = find_browser()
    assert executable is not None
    found = started(executable, tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunDirectory]:
    """Two methods on two tasks, a variant, and a stranger's run."""
    root = tmp_path_factory.mktemp("runs")
    variant = dataclasses.replace(make_method("vdn"), gamma=0.5)
    slippery = Gridworld(slip=0.2)
    return [
        plausible_run(root, evaluations=12, snapshots=3, seeds=(0, 1)),
        plausible_run(root, evaluations=12, snapshots=3, seeds=(0,), method_name="vdn", final=0.3),
        plausible_run(root, evaluations=12, snapshots=3, seeds=(1,), method_name="vdn", method=variant, env=slippery, final=0.2),
        new_run(root, [evaluation(0, k, [False], [0.1 * k]) for k in (10, 20)], env_name="predator-prey", method_name="vdn"),
        new_run(root, win_rates(0, {30: 0.5}), method_name=HOSTILE, method=make_method("vdn"), command=HOSTILE),
    ]


@pytest.fixture(scope="module")
def page(runs: list[RunDirectory], tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("site") / "report.html"
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    frames[0].save(gif := path.with_name("episode.gif"), save_all=True, append_images=frames[1:])
    write_report(runs, path, {runs[0].path: gif})
    return path.as_uri()


@pytest.fixture
def quiet(browser: Browser) -> Iterator[Browser]:
    """The browser, with a console that must stay empty."""
    browser.leave()  # with whatever the last page has to say
    browser.complaints.clear()
    browser.look("light")
    yield browser
    assert browser.complaints == []


def link(run: RunDirectory) -> str:
    return f"#run-{run.manifest['id']}"


def visible(selector: str) -> str:
    return f"[...document.querySelectorAll({selector!r})].filter(node => node.checkVisibility() && node.getBoundingClientRect().width > 50)"


def enter(browser: Browser, field: str, value: str) -> None:
    browser.ask(f"document.getElementById({field!r}).value = {value!r}")
    browser.ask(f"document.getElementById({field!r}).dispatchEvent(new Event('input'))")


def test_the_page_opens_from_disk_with_its_figures(quiet: Browser, page: str, runs: list[RunDirectory]) -> None:
    quiet.open(page)
    assert quiet.ask("document.querySelector('h1').textContent") == "3 methods on gridworld, gridworld, slip 0.2, predator-prey"
    assert quiet.ask(f"{SHOWN}.length") == len(runs)
    quiet.wait_for("document.querySelectorAll('figure .chart > svg').length === 3")  # two settings of one environment, and another
    assert quiet.ask("[...document.querySelectorAll('.panel h3')].map(head => head.textContent)") == ["gridworld", "slip 0.2"]
    assert quiet.ask(f"{visible('figure .chart > svg')}.map(drawn => drawn.querySelectorAll('polyline.line').length)") == [3, 1, 1]
    assert quiet.ask("document.title") == "3 methods on gridworld, gridworld, slip 0.2, predator-prey"  # and not what the stranger wanted


def test_the_legend_switches_lines_off_and_brings_one_forward(quiet: Browser, page: str) -> None:
    quiet.open(page)
    quiet.wait_for("document.querySelectorAll('figure .chart > svg').length === 3")
    lines = "[...document.querySelectorAll('#task-1 polyline.line')].map(line => line.dataset.line)"
    button = "document.querySelectorAll('#task-1 .legend button')[1]"
    assert quiet.ask(lines) == ["0", "1", "2", "3"]
    assert quiet.ask(f"{button}.textContent") == "vdn"
    quiet.ask(f"{button}.dispatchEvent(new PointerEvent('pointerenter'))")
    assert quiet.ask("[...document.querySelectorAll('#task-1 polyline.line:not(.behind)')].map(line => line.dataset.line)") == ["1"]
    quiet.ask(f"{button}.dispatchEvent(new PointerEvent('pointerleave'))")
    quiet.ask(f"{button}.click()")
    assert quiet.ask(lines) == ["0", "2", "3"]
    assert quiet.ask(f"{button}.ariaPressed") == "false"
    quiet.ask(f"{button}.click()")
    assert quiet.ask(lines) == ["0", "1", "2", "3"]


def test_the_pointer_reads_all_lines_off_the_best_first(quiet: Browser, page: str) -> None:
    quiet.open(page)
    quiet.wait_for("document.querySelectorAll('figure .chart > svg').length === 3")
    drawn = "document.querySelector('#task-1 .chart > svg')"
    quiet.ask(f"{drawn}.dispatchEvent(new PointerEvent('pointermove', {{clientX: {drawn}.getBoundingClientRect().right - 20}}))")
    told = quiet.ask("[...document.querySelectorAll('#task-1 .tip div')].map(line => line.textContent)")
    assert told[0] == "11.01k"
    assert [words.rstrip("0123456789.%") for words in told[1:]] == ["emc-vdn", "vdn"]  # the stranger's ended long before
    quiet.ask(f"{drawn}.dispatchEvent(new PointerEvent('pointerleave'))")
    assert quiet.ask("document.querySelector('#task-1 .tip').hidden")


def test_runs_of_one_configuration_are_one_row_until_asked_for(quiet: Browser, tmp_path: Path) -> None:
    runs = [new_run(tmp_path, win_rates(seed, {30: rate}), seeds=(seed,)) for seed, rate in ((0, 0.2), (1, 0.4), (5, 0.9))]
    runs.append(new_run(tmp_path, win_rates(2, {30: 0.1}), seeds=(2,), method_name="vdn"))
    write_report(runs, tmp_path / "report.html")
    quiet.open((tmp_path / "report.html").as_uri())
    cells = f"{SHOWN}.map(row => [row.cells[0].textContent, row.cells[3].textContent, row.cells[6].textContent])"
    assert quiet.ask(cells) == [["emc-vdn", "3 seeds", "40%"], ["vdn", "seed 2", "10%"]]
    quiet.ask("document.querySelector('#all tbody button').click()")
    inside = [["seed 0", "", "20%"], ["seed 1", "", "40%"], ["seed 5", "", "90%"]]
    assert quiet.ask(cells) == [["emc-vdn", "3 seeds", "40%"], *inside, ["vdn", "seed 2", "10%"]]
    enter(quiet, "q", str(runs[1].manifest["id"]))
    assert quiet.ask(cells) == [["emc-vdn", "3 seeds", "40%"], ["seed 1", "", "40%"]]
    assert quiet.ask("document.getElementById('shown').textContent") == "1 of 4 runs"
    quiet.ask(f"document.querySelector('#all a[href=\"{link(runs[1])}\"]').click()")
    quiet.wait_for("!document.getElementById('run').hidden")
    assert quiet.ask("document.querySelector('#run h2').firstChild.textContent") == "emc-vdn on gridworld, seed 1"


def test_a_policy_that_forbids_everything_else_is_enforced(browser: Browser, page: str) -> None:
    browser.open(page)
    browser.complaints.clear()
    browser.ask("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.taken = 1\"><b style=\"color: red\">')")
    assert browser.ask("fetch('data:,x').then(() => 'loaded', () => 'refused')") == "refused"
    while sum("Content Security Policy" in line for line in browser.complaints) < 3:  # picture, style, address: whenever they come
        browser.ask("new Promise(requestAnimationFrame)")
    assert browser.ask("window.taken ?? null") is None


def test_search_and_filters_show_the_runs_that_fit(quiet: Browser, page: str) -> None:
    quiet.open(page)
    enter(quiet, "method", "vdn")
    assert quiet.ask(f"{SHOWN}.length") == 3
    assert quiet.ask("document.getElementById('shown').textContent") == "3 of 5 runs"
    enter(quiet, "task", "predator-prey")
    assert quiet.ask(f"{SHOWN}.length") == 1
    quiet.ask("document.getElementById('clear').click()")
    assert quiet.ask("document.getElementById('shown').textContent") == "5 runs"
    enter(quiet, "q", "GAMMA vdn")
    assert quiet.ask(f"{SHOWN}.map(row => row.cells[2].textContent)") == ["gamma 0.5"]
    enter(quiet, "q", "nothing like it")
    assert quiet.ask(f"{SHOWN}.length") == 0


def test_filters_and_order_are_in_the_address(quiet: Browser, page: str) -> None:
    quiet.open(page)
    enter(quiet, "method", "vdn")
    enter(quiet, "q", "vdn")
    quiet.ask("document.querySelectorAll('#all thead button')[6].click()")  # the largest final score first
    order = quiet.ask(f"{SHOWN}.map(row => Number(row.cells[6].dataset.by))")
    assert order == sorted(order, reverse=True)
    assert len(order) == 3
    address = quiet.ask("location.href")
    assert address != page
    quiet.open(address)
    assert quiet.ask(f"{SHOWN}.map(row => Number(row.cells[6].dataset.by))") == order
    assert quiet.ask("document.getElementById('q').value") == "vdn"
    quiet.ask("document.querySelectorAll('#all thead button')[6].click()")
    assert quiet.ask(f"{SHOWN}.map(row => Number(row.cells[6].dataset.by))") == order[::-1]


def test_what_has_no_number_is_sorted_last(quiet: Browser, tmp_path: Path) -> None:
    rates = {"vdn": 0.5, "qmix": None, "iql": 1.0}
    runs = [new_run(tmp_path, win_rates(0, {30: r}) if r is not None else (), method_name=name) for name, r in rates.items()]
    write_report(runs, tmp_path / "report.html")
    for column, order in (("-6", ["100%", "50%", "—"]), ("6", ["50%", "100%", "—"])):
        quiet.open(f"{(tmp_path / 'report.html').as_uri()}#sort={column}")
        assert quiet.ask(f"{SHOWN}.map(row => row.cells[6].textContent)") == order


def test_a_run_has_a_page_of_its_own(quiet: Browser, page: str, runs: list[RunDirectory]) -> None:
    quiet.open(f"{page}#q=emc")
    quiet.ask(f"document.querySelector('#all a[href=\"{link(runs[0])}\"]').click()")
    quiet.wait_for("!document.getElementById('run').hidden")
    quiet.wait_for("document.querySelectorAll('.chart svg').length >= 6")  # the score, and what training looked like inside
    assert quiet.ask("document.getElementById('overview').checkVisibility()") is False
    assert quiet.ask("document.querySelector('#run h2').firstChild.textContent") == "emc-vdn on gridworld"
    assert quiet.ask(f"{visible('.chart polyline.line')}.length") >= 6
    assert quiet.ask(f"{visible('.cells canvas')}.length") == 6  # visits and intrinsic reward: early, middle, late
    quiet.wait_for("document.querySelector('.episode img').naturalWidth === 8")
    assert quiet.ask("document.querySelector('pre').textContent") == "emc train emc-vdn gridworld --seeds 0"
    quiet.ask("document.getElementById('back').click()")
    quiet.wait_for("document.getElementById('run').hidden")
    assert quiet.ask("document.getElementById('q').value") == "emc"  # where one came from


def test_a_map_shows_its_cells_in_colours(quiet: Browser, page: str, runs: list[RunDirectory]) -> None:
    quiet.open(page + link(runs[0]))
    cells = "document.querySelector('.cells canvas')"
    assert quiet.ask(f"[{cells}.width, {cells}.height]") == [12, 11]
    colours = f"new Set(new Uint32Array({cells}.getContext('2d').getImageData(0, 0, 12, 11).data.buffer)).size"
    quiet.wait_for(f"{colours} > 10")
    quiet.wait_for("[...document.querySelectorAll('.cells img')].every(image => image.naturalWidth > 100)")


def test_a_configuration_is_compared_with_another_runs(quiet: Browser, page: str, runs: list[RunDirectory]) -> None:
    quiet.open(page + link(runs[1]))
    assert "method.gamma" not in quiet.ask("document.getElementById('configuration').textContent")
    quiet.ask(f"document.getElementById('against').value = {link(runs[2])[1:]!r}")
    quiet.ask("document.getElementById('against').dispatchEvent(new Event('change'))")
    rows = "[...document.querySelectorAll('#fields-0 tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))"
    expected = [["method.gamma", "0.9", "0.5"], ["env.slip", "0.0", "0.2"], ["seeds", "0", "1"]]
    assert quiet.ask(rows) == expected
    quiet.open(quiet.ask("location.href"))
    assert quiet.ask(rows) == expected


def test_what_differs_from_the_preset_is_marked(quiet: Browser, page: str, runs: list[RunDirectory]) -> None:
    quiet.open(page + link(runs[2]))
    marked = quiet.ask("[...document.querySelectorAll('#fields-0 .changed')].map(mark => mark.closest('tr').textContent)")
    assert marked == ["gamma0.5 preset: 0.9", "slip0.2 preset: 0.0"]


def test_a_strangers_run_is_only_text(quiet: Browser, page: str, runs: list[RunDirectory]) -> None:
    quiet.open(page + link(runs[4]))
    quiet.wait_for("document.querySelector('pre')")
    assert quiet.ask("document.querySelector('pre').textContent") == HOSTILE
    assert quiet.ask("document.querySelectorAll('img[src=x]').length") == 0
    assert quiet.ask("document.title").startswith(HOSTILE)


def test_light_and_dark_look_differ_by_preference_and_by_switch(quiet: Browser, page: str) -> None:
    def brightness() -> float:
        return float(np.mean(np.asarray(Image.open(io.BytesIO(quiet.screenshot())).convert("L"))))

    shown = "getComputedStyle(document.querySelector('polyline.line[data-line=\"1\"]')).stroke"  # vdn
    quiet.open(page)
    light = brightness()
    strokes = [quiet.ask(shown)]
    quiet.look("dark")
    quiet.wait_for("document.documentElement.dataset.theme === 'dark'")
    dark = brightness()
    assert (light > 200, dark < 60) == (True, True), (light, dark)
    strokes.append(quiet.ask(shown))
    assert strokes[0] != strokes[1]
    quiet.ask("document.getElementById('look').click()")
    assert brightness() > 200
    until = time.monotonic() + PATIENCE
    quiet.open(page)
    while quiet.ask("document.documentElement.dataset.theme") != "light":  # as chosen, though the screen prefers dark
        assert time.monotonic() < until  # another process of the browser keeps it, and may do so a little later
        quiet.open(page)
    quiet.ask("localStorage.clear()")


@pytest.mark.parametrize("width", [390, 800, 1400])
def test_nothing_sticks_out_of_the_window(quiet: Browser, page: str, runs: list[RunDirectory], width: int) -> None:
    quiet.look("light", width)
    for place in ("", link(runs[0]), f"{link(runs[1])}&against={link(runs[2])[1:]}"):
        quiet.open(page + place)
        quiet.ask("new Promise(requestAnimationFrame)")
        assert quiet.ask("document.documentElement.scrollWidth") <= width


def test_a_browser_that_ends_at_once_is_none(tmp_path: Path) -> None:
    (stub := tmp_path / "chromium").write_text("#!/bin/sh\nexit 1\n")
    stub.chmod(0o755)
    with pytest.raises(pytest.skip.Exception, match="does not start"):
        started(str(stub), tmp_path)


@pytest.mark.parametrize("end", ["#%", "#%E0%A4%A", "#constructor", "#&", "#toString&against=x"])
def test_an_address_that_means_nothing_shows_all_runs(quiet: Browser, page: str, runs: list[RunDirectory], end: str) -> None:
    quiet.open(page + end)
    assert quiet.ask(f"{SHOWN}.filter(row => row.checkVisibility()).length") == len(runs)


@pytest.mark.parametrize("other", ["constructor", "__proto__", "run-nowhere", "%"])
def test_a_run_beside_one_that_is_not_there_is_shown_alone(quiet: Browser, page: str, runs: list[RunDirectory], other: str) -> None:
    quiet.open(f"{page}{link(runs[0])}&against={other}")
    assert quiet.ask("document.getElementById('against').value") == ""
    assert not quiet.ask("Boolean(document.querySelector('.difference'))")


def test_a_run_without_an_episode_says_how_to_get_one(quiet: Browser, page: str, runs: list[RunDirectory]) -> None:
    quiet.open(page + link(runs[1]))
    assert "No episode: no checkpoint was kept" in quiet.ask("document.getElementById('run').textContent")
    quiet.open(page + link(runs[0]))
    assert "No episode" not in quiet.ask("document.getElementById('run').textContent")


def test_print_has_every_column_and_no_arrows(quiet: Browser, page: str) -> None:
    quiet.look("light", width=720, media="print")  # a sheet of paper
    quiet.open(f"{page}#sort=6")
    assert quiet.ask("Math.max(...[...document.querySelectorAll('#all td')].map(cell => cell.getBoundingClientRect().right))") <= 720
    assert quiet.ask("getComputedStyle(document.querySelector('.tall')).contain") == "none"
    arrows = "[...document.querySelectorAll('#all thead button')].map(head => getComputedStyle(head, '::after').content)"
    assert {*quiet.ask(arrows)} == {"none"}


def test_one_run_alone_is_shown_at_once(quiet: Browser, runs: list[RunDirectory], tmp_path: Path) -> None:
    write_report(runs[:1], tmp_path / "report.html")
    quiet.open((tmp_path / "report.html").as_uri())
    assert quiet.ask("[document.getElementById('overview').hidden, document.getElementById('run').hidden]") == [False, False]
    assert quiet.ask("document.getElementById('all')") is None
    quiet.wait_for("document.querySelectorAll('.chart svg').length >= 6")


def test_a_watched_page_shows_new_data_and_keeps_its_place(quiet: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IDLE_SECONDS", "LONGEST_SECONDS"):  # which a busy machine might take
        monkeypatch.setattr(f"emc.report.watch.{name}", 3600.0)
    first, second = (new_run(tmp_path / "runs", win_rates(0, {30: 0.0}), method_name=name) for name in ("vdn", "emc-vdn"))
    watch, ended = Watch(Site([tmp_path / "runs"]), 0), threading.Event()
    thread = threading.Thread(target=watch.run, args=(ended,))
    thread.start()
    try:
        quiet.open(f"{watch.address}#q=emc&sort=-6")
        scores = f"{SHOWN}.map(row => row.cells[6].textContent)"
        assert quiet.ask(scores) == ["0%"]
        with second:
            second.append(win_rates(0, {1000: 0.9}))
        quiet.wait_for(f"{scores}.join() === '45%'")  # filtered as before
        quiet.wait_for("document.getElementById('live').textContent === 'live'")
        quiet.ask(f"location.hash = {link(first)!r}")
        quiet.wait_for("!document.getElementById('run').hidden")
        quiet.ask("document.getElementById('fields-0').open = true")
        with first:
            first.append(win_rates(0, {2000: 0.4}))
        quiet.wait_for("document.querySelector('#run dl')?.textContent.includes('2,000')")
        assert quiet.ask("document.getElementById('fields-0').open")
        quiet.leave()
    finally:
        ended.set()
        thread.join()
