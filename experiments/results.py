"""What was really run: keep runs' raw lines in the repository, and write the page of results from them.

    python experiments/results.py keep RUNS     copy manifests and metrics of all runs that a claim counts, finished or not, into results/
    python experiments/results.py page          write docs/results.md and its figures from results/

Every number on the page is computed from `results/`; only the readings (NAME.md beside the claims) are typed in.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path

from emc.claims import Claim, Evidence, gather, jobs_of
from emc.claims.catalogue import claims
from emc.claims.reproduction import missing
from emc.files import written_whole
from emc.sweeps.jobs import Survey
from results_page.memory_errors import draw_memory_errors, memory_error_section
from results_page.overview import at_a_glance
from results_page.pictures import FRONT_CLAIM, draw, draw_front
from results_page.places import FIGURES, PAGE, RESULTS, SOURCES
from results_page.sections import section, sources
from results_page.tables import matrix_games, scripted_battles

KEPT = ("manifest.json", "metrics.jsonl", "maps.jsonl", "speed.jsonl")


def keep(root: Path) -> None:
    """Copy what a reader needs to check a number; checkpoints stay where they are."""
    survey = Survey(root)
    panels = [panel for claim in claims().values() for budget in ("small", "paper") for panel in claim.panels(budget)]
    for path in sorted({path for job in jobs_of(panels) for path in survey.kin(job)}):
        if (path / "metrics.jsonl").exists():  # it has been tested at least once
            keep_run(path, RESULTS / path.relative_to(root))


def keep_run(run: Path, target: Path) -> None:
    """The files of one run, each of them whole."""
    target.mkdir(parents=True, exist_ok=True)
    for name in KEPT[1:]:
        if (run / name).exists():
            with written_whole(target / name) as beside:
                shutil.copyfile(run / name, beside)
    manifest = json.loads((run / "manifest.json").read_text())
    words = shlex.split(manifest["command"])
    if "--runs" in words:  # where it was kept is nobody's business
        del words[words.index("--runs") : words.index("--runs") + 2]
    manifest["command"] = shlex.join(words)
    with written_whole(target / "manifest.json") as beside:
        beside.write_text(json.dumps(manifest, indent=1) + "\n")


def evidence_of(claim: Claim) -> Evidence:
    """What is kept about a claim: at the budget of the paper where all of that was run, else at the small one."""
    survey = Survey(RESULTS)
    found = gather(claim, "small", [survey])
    if missing(found)[0]:
        return found
    whole = gather(claim, "paper", [survey])
    return found if missing(whole)[0] else whole


def page(every: list[Evidence]) -> str:
    """The whole page."""
    claimed = (part for evidence in every for part in section(evidence))
    return "\n\n".join([*at_a_glance(every), *claimed, *matrix_games(), *memory_error_section(), *scripted_battles()]) + "\n"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["keep", root]:
            keep(Path(root))
        case ["page"]:
            found = [evidence_of(claim) for claim in claims().values()]
            shutil.rmtree(FIGURES, ignore_errors=True)
            for evidence in found:
                draw(evidence)
                if evidence.claim.name == FRONT_CLAIM:
                    draw_front(evidence)
            draw_memory_errors()
            for path, text in ((PAGE, page(found)), (SOURCES, sources(found))):
                with written_whole(path) as beside:
                    beside.write_text(text)
        case _:
            raise SystemExit(__doc__)
