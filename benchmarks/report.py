"""A report on 200 runs: how long it takes to make, how large it is, and how fast it is in a browser.

The runs are made up: five methods on four tasks with ten seeds, 150 evaluations each, with maps where a task has some. Times are of one
core; in the browser (any Chromium) they are medians of several tries. CPU times are there because wall times depend on what else the
machine does.

    python benchmarks/report.py [--runs 200]
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import keep, machine

sys.path.insert(0, str(Path(__file__).parents[1]))

from emc.report.site import Site
from tests.report.browser import Browser, find_browser
from tests.report.fabricate import plausible_run

METHODS = ("emc-vdn", "vdn", "qmix", "qplex", "emc-qplex")
TASKS = ("gridworld", "predator-prey", "2s3z", "two-step-game")
EVALUATIONS = 150
TRIES = 9

# Until the next frame has been laid out and painted, as a reader would notice it.
TIMED = """new Promise(done => {{
  const began = performance.now();
  {action};
  const handled = performance.now() - began;
  document.body.offsetHeight;
  const laidOut = performance.now() - began;
  requestAnimationFrame(() => setTimeout(() => done([handled, laidOut, performance.now() - began])));
}})"""
FILTER = "document.getElementById('q').value = {value!r}; document.getElementById('q').dispatchEvent(new Event('input'))"


def made_up(root: Path, count: int) -> None:
    """So many run directories."""
    wanted = itertools.islice(itertools.product(range(-(-count // (len(METHODS) * len(TASKS)))), METHODS, TASKS), count)
    for seed, method_name, env_name in wanted:
        plausible_run(root, evaluations=EVALUATIONS, seeds=(seed,), method_name=method_name, env_name=env_name)


def built(root: Path, page: Path) -> dict[str, Any]:
    """Make the page, and make it again after one run has gone on."""
    site, began = Site([root]), time.perf_counter()
    used = time.process_time()
    runs = site.runs()
    page.write_text(site.page(runs), encoding="utf-8")
    result: dict[str, Any] = {
        "runs": len(runs),
        "build seconds": time.perf_counter() - began,
        "build CPU seconds": time.process_time() - used,
    }
    result["megabytes"] = page.stat().st_size / 1e6
    with runs[0] as run, (run.path / "metrics.jsonl").open() as lines:
        last = json.loads(lines.readlines()[-1])
        run.append([last | {"steps": last["steps"] + 1000}])
    used = time.process_time()
    site.page(site.runs())
    return result | {"CPU seconds after one run went on": time.process_time() - used}


def browsed(page: Path, folder: Path) -> dict[str, Any]:
    """Load the page, filter it, and open a run."""
    executable = find_browser()
    if executable is None:
        return {"browser": "none here"}
    browser = Browser(executable, folder)
    browser.look("light")
    loads: list[float] = []
    for _ in range(3):
        browser.open(page.as_uri())
        browser.wait_for("performance.getEntriesByType('navigation')[0].loadEventEnd > 0")
        loads.append(browser.ask("performance.getEntriesByType('navigation')[0].loadEventEnd"))
    words = ("emc", "", "qmix predator", "", "2s3z", "", "qplex", "", "finished")
    browser.ask(TIMED.format(action=""))
    busy = browser.busy_seconds()
    filters = [browser.ask(TIMED.format(action=FILTER.format(value=word))) for word in words]
    busy = browser.busy_seconds() - busy
    sorts = [browser.ask(TIMED.format(action="document.querySelectorAll('#all thead button')[6].click()")) for _ in range(TRIES)]
    anchors = browser.ask(f"Object.keys(data.runs).slice(0, {TRIES})")
    opened = [browser.ask(TIMED.format(action=f"history.replaceState(null, '', '#{anchor}'); route()")) for anchor in anchors]
    version, complaints = browser.ask("navigator.userAgent.match(/Chrome\\/(\\d+)/)[1]"), browser.complaints
    browser.close()
    assert complaints == [], complaints
    return {
        "load ms": statistics.median(loads),
        "filter CPU ms": 1e3 * busy / len(words),
        "filter ms": statistics.median(laid_out for _, laid_out, _ in filters),
        "filter ms, slowest": max(laid_out for _, laid_out, _ in filters),
        "filter to next frame ms": statistics.median(painted for *_, painted in filters),
        "sort ms": statistics.median(laid_out for _, laid_out, _ in sorts),
        "open a run ms": statistics.median(laid_out for _, laid_out, _ in opened),
        "browser": f"Chromium {version}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    count = parser.parse_args().runs
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        root, page = Path(folder) / "runs", Path(folder) / "report.html"
        made_up(root, count)
        result = built(root, page)
        keep("report", result | browsed(page, Path(folder) / "profile") | machine())


if __name__ == "__main__":
    main()
