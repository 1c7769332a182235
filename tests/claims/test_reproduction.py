"""Claims as they are shipped, and what reproducing one leaves behind."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path

import pytest
from PIL import Image

from emc.claims import Arm, Claim, Panel, Statement, VerdictKind, gather, jobs_of
from emc.claims.catalogue import claim, claims
from emc.claims.judgement import OUTSIDE, wins
from emc.claims.reproduction import missing, verdicts_of, write
from emc.cli import main
from emc.configuration import configure
from emc.errors import UserError
from emc.runs import RunDirectory
from emc.sweeps.jobs import Job, State, Survey
from emc.training.loop import Budget
from tests.report.fabricate import evaluation, new_run, training, win_rates

ROOT = Path(__file__).resolve().parents[2]
ARMS = (Arm("emc-vdn gridworld"), Arm("vdn gridworld", "plain VDN"))
TOY = Claim(
    "A toy", "5.1", (Panel("p = 2", ARMS, 3_000, (1, 2, 3)),), (), (Statement("EMC-VDN wins", wins("p = 2", "emc-vdn")),), name="toy"
)


@pytest.mark.parametrize("name", sorted(claims()))
def test_every_claim_can_be_run_and_says_what_it_is(name: str) -> None:
    one = claim(name)
    assert one.about.count("\n\n") >= 1  # what is claimed, and how it is asked
    assert one.statements
    for budget in ("small", "paper"):
        assert all([*panel.seeds] == sorted({*panel.seeds}) for panel in one.panels(budget))
        two = [dataclasses.replace(panel, seeds=panel.seeds[:2]) for panel in one.panels(budget)]  # as well as all of them
        jobs = jobs_of(two)  # every word of every arm is understood
        assert len({job.key for job in jobs}) == len(jobs)
        seeds = [seed for job in jobs for seed in job.config.seeds]
        assert seeds == sorted(seeds)
    found = [gather(one, budget, [Survey(Path("nowhere"))]) for budget in ("small", "paper")]
    for (text, small), (_, paper) in zip(*map(verdicts_of, found), strict=True):
        assert {small.kind, paper.kind} == {VerdictKind.UNKNOWN}  # nothing was run, so nothing may be concluded
        parts = [{panel for panel, fact in verdict.facts if fact != OUTSIDE} for verdict in (small, paper)]
        named = {panel for verdict in (small, paper) for panel, _ in verdict.facts}
        assert named <= parts[0] | parts[1], f"{text}: names a panel or a method that no budget has"


def test_what_a_longer_run_says_is_not_run_twice() -> None:
    arms = tuple(Arm(f"{method} gridworld") for method in ("vdn", "qmix"))
    panels = [Panel("short", arms, 1_000, (1, 2)), Panel("long", arms[:1], 2_000, (1, 3))]
    jobs = [(job.config.method_name, job.config.seeds, job.config.budget.steps) for job in jobs_of(panels)]
    assert jobs == [("vdn", (1,), 2_000), ("qmix", (1,), 1_000), ("vdn", (2,), 1_000), ("qmix", (2,), 1_000), ("vdn", (3,), 2_000)]
    assert {job.key for job in jobs_of([*reversed(panels)])} == {job.key for job in jobs_of(panels)}


def test_the_claims_of_the_paper_are_all_there() -> None:
    wanted = "gridworld-penalty heat-maps noise slip predator-prey starcraft ablations design-choices memory-weight"
    assert {*wanted.split()} <= {*claims()}
    penalties = [panel.title for panel in claim("gridworld-penalty").paper]
    assert penalties == ["p = 0", "p = 0.5", "p = 1", "p = 1.5", "p = 2"]
    assert all(len(panel.arms) == 9 and len(panel.seeds) == 6 for panel in claim("gridworld-penalty").paper)
    assert len(claim("starcraft").paper) == 17
    with pytest.raises(UserError, match="claim"):
        claim("gridwrld")


def run(root: Path, name: str, seeds: tuple[int, ...], steps: int, rates: dict[int, float], **settings: object) -> Path:
    """A run of the gridworld with given win rates, which has got as far as its last test."""
    made = new_run(
        root,
        [line for seed in seeds for line in win_rates(seed, rates)],
        method_name=name,
        seeds=seeds,
        budget=Budget(steps=steps, evaluate_every=1_000, test_episodes=30),
        **settings,  # type: ignore[arg-type]
    )
    (made.path / "speed.jsonl").write_text(json.dumps({"steps": max(rates), "seconds": 1.0, "steps_since_start": 1}) + "\n")
    return made.path


def test_runs_count_whatever_their_length_and_seeds_and_are_cut_at_the_panels_end(tmp_path: Path) -> None:
    run(tmp_path, "emc-vdn", (1,), 3_000, {1_000: 0.0, 2_000: 0.5, 3_005: 1.0})
    run(tmp_path, "emc-vdn", (2, 3, 4), 9_000, {1_000: 0.0, 3_000: 0.8, 5_000: 0.0})  # longer, with a seed that nobody asked for
    run(tmp_path, "emc-vdn", (1,), 3_000, {1_000: 1.0})  # the same seed, not as far
    run(tmp_path, "vdn", (1,), 3_000, {1_000: 1.0, 3_000: 1.0}, method=configure(["vdn", "gridworld", "--gamma", "0.5"]).method)
    evidence = gather(TOY, "small", [Survey(tmp_path)])
    ours, theirs = evidence.samples["p = 2"].values()
    assert [curve.seed for curve in ours.curves] == [1, 2, 3]
    assert [curve.steps.tolist() for curve in ours.curves] == [[1_000, 2_000, 3_005], [1_000, 3_000], [1_000, 3_000]]
    assert not theirs.curves  # another discount is another method
    assert missing(evidence) == (3, 6)


def test_values_without_the_bonus_score_the_mean_of_their_last_five_tests_up_to_the_panels_end(tmp_path: Path) -> None:
    def tested(seed: int, rates: dict[int, float], until: int = 9_000) -> None:
        lines = [training(seed, steps, phi_test_win_rate=rate, phi_test_return=99.0) for steps, rate in rates.items()]
        lines += [*win_rates(seed, dict.fromkeys((1_000, until), 0.0)), training(seed, 2_700)]  # that one is between two tests
        lines.sort(key=lambda line: line["steps"])
        new_run(tmp_path, lines, seeds=(seed,), budget=Budget(steps=until, evaluate_every=1_000, test_episodes=30))

    tested(1, {500: 0.9, 1_000: 0.1, 1_500: 0.2, 2_000: 0.3, 2_500: 0.4, 3_010: 0.5, 4_000: 1.0})  # the first and the last do not count
    tested(2, {1_000: 1.0, 3_000: 0.5})
    tested(3, {1_000: 1.0}, until=2_000)  # not complete
    ours, theirs = gather(TOY, "small", [Survey(tmp_path)]).samples["p = 2"].values()
    assert [curve.seed for curve in ours.extrinsic] == [1, 2, 3]
    assert ours.extrinsic_finals.tolist() == pytest.approx([0.3, 0.75])
    assert theirs.extrinsic == ()
    words = ["emc-vdn", "predator-prey"]
    returns = Claim("A toy", "5.1", (Panel("prey", (Arm(" ".join(words)),), 2_000, (1,)),), (), ())
    lines = [evaluation(1, 2_000, [False], [4.0]), training(1, 2_000, phi_test_return=36.0)]
    asked = configure(words)
    new_run(tmp_path, lines, env_name=words[1], method=asked.method, seeds=(1,), budget=dataclasses.replace(asked.budget, steps=2_000))
    (hunt,) = gather(returns, "small", [Survey(tmp_path)])
    assert hunt.extrinsic_finals.tolist() == pytest.approx([0.9])  # of 40


def test_a_job_is_done_when_a_longer_run_has_its_steps_and_seed(tmp_path: Path) -> None:
    def job(steps: int, seed: int) -> Job:
        words = ["emc-vdn", "gridworld", "--steps", str(steps), "--seed", str(seed)]
        return Job(tuple(words), configure(words))

    long = run(tmp_path, "emc-vdn", (2, 3), 9_000, {1_000: 0.0, 5_000: 0.0})
    survey = Survey(tmp_path)
    assert survey.state(job(3_000, 2)) is State.DONE
    assert survey.find(job(3_000, 2)) == long
    assert survey.state(job(6_000, 2)) is State.MISSING  # it has not got that far, and resuming it would go further than asked
    assert survey.state(job(3_000, 1)) is State.MISSING
    short = run(tmp_path, "emc-vdn", (1,), 3_000, {1_000: 0.0})
    with RunDirectory.open(short) as begun:
        begun.begin()
    assert survey.state(job(3_000, 1)) is State.BEGUN
    assert survey.find(job(3_000, 1)) == short


def test_what_is_written(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        run(tmp_path / "runs", "emc-vdn", (seed,), 3_000, {1_000: 0.0, 3_000: 1.0})
    evidence = gather(TOY, "small", [Survey(tmp_path / "runs")])
    files = {path.name: path for path in write(evidence, tmp_path / "out")}
    assert {*files} == {"curves.png", "curves.pdf", "curves.csv", "checklist.json"}
    with files["curves.csv"].open(newline="") as text:
        rows = [*csv.DictReader(text)]
    assert rows[1] == {"panel": "p = 2", "method": "emc-vdn", "seed": "1", "steps": "3000", "value": "1"}
    assert len(rows) == 6
    document = json.loads(files["checklist.json"].read_text())
    assert [one["verdict"] for one in document["statements"]] == ["does not hold"]  # the last tests are 0 and 1: a half
    assert document["panels"]["p = 2"]["emc-vdn"]["complete"] == [1, 2, 3]
    assert files["curves.pdf"].read_bytes().startswith(b"%PDF")
    with Image.open(files["curves.png"]) as picture:
        assert picture.width > 500
    first = {name: path.read_bytes() for name, path in files.items()}
    assert {path.name: path.read_bytes() for path in write(evidence, tmp_path / "again")} == first  # the same bytes every time


@pytest.mark.slow
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    main(["reproduce"])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*claims()]
    main(["reproduce", "replay", "--budget", "paper", "--draw-only", "--runs", str(ROOT / "results"), "--out", "out"])
    drawn = capsys.readouterr().out
    assert "[holds] EMC-VDN as released, with prioritised replay, wins" in drawn
    assert "24 of 24 runs are complete" in drawn
    assert (tmp_path / "out" / "replay-paper" / "curves.pdf").exists()
    for words, said in (
        (("replya",), "replay"),
        (("replay", "--budget", "huge"), "budget"),
        (("replay", "--workers", "-1"), "--workers -1"),
        (("replay", "--draw-only", "--runs", "nowhere"), "nowhere: no such directory"),
    ):
        with pytest.raises(SystemExit) as wrong:
            main(["reproduce", *words])
        assert wrong.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line
    assert not (tmp_path / "runs").exists()
