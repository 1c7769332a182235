"""The runs that a claim rests on: which ones it needs, and what those that exist have measured.

A run counts for an arm if its configuration is the arm's in everything but seeds and length. Curves are cut at the panel's number of steps,
so a longer run says the same as one that stopped there; a seed that has not got that far is drawn, but judged only when it has.
"""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from emc.claims.claim import Arm, Claim, Panel
from emc.envs.registry import task
from emc.errors import UserError
from emc.report.ceilings import on_scale
from emc.report.curves import Curve, read_lines, scores, tracks, until
from emc.report.heatmaps import read_maps
from emc.runs.config import RunConfig
from emc.runs.directory import RunDirectory
from emc.statistics import final
from emc.sweeps.grid import seeded
from emc.sweeps.jobs import Job, Survey


@dataclasses.dataclass(frozen=True)
class Sample:
    """What is known of one arm of a panel."""

    arm: Arm
    panel: Panel
    config: RunConfig
    curves: tuple[Curve, ...]  # of the panel's seeds as far as they have got; wins or returns, not scaled
    runs: Mapping[int, RunDirectory]  # by seed
    repeated: int = 0  # runs that add no seed: a longer one has it
    extrinsic: tuple[Curve, ...] = ()  # of seeds whose values without the bonus (phi) were tested beside the policy, as `curves`

    @property
    def method_name(self) -> str:
        """The method, which decides the colour."""
        return self.config.method_name

    def scaled(self, score: float) -> float:
        """A win rate, or a return where nothing is won, on the scale of the task."""
        return on_scale(task(self.config.env_name), self.config, score)

    @property
    def complete(self) -> tuple[Curve, ...]:
        """The seeds that were tested at the panel's end."""
        return tuple(curve for curve in self.curves if curve.steps[-1] >= self.panel.steps)

    @property
    def finals(self) -> Float[np.ndarray, " seeds"]:
        """The score of each complete seed at the panel's end, on the task's scale."""
        return np.array([self.scaled(final(curve.values.tolist())) for curve in self.complete])

    @property
    def extrinsic_finals(self) -> Float[np.ndarray, " seeds"]:
        """What phi scores greedily at the panel's end, of those complete seeds where it was tested; as `finals`."""
        complete = {curve.seed for curve in self.complete}
        return np.array([self.scaled(final(curve.values.tolist())) for curve in self.extrinsic if curve.seed in complete])

    def snapshots(self) -> list[dict[str, Any]]:
        """Heat maps of the panel's seeds and steps."""
        return self._within(read_maps)

    def lines(self) -> list[dict[str, Any]]:
        """What was written down in training and tests, of the panel's seeds and steps."""
        return self._within(read_lines)

    def _within(self, read: Callable[[RunDirectory], Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
        found = [line for seed, run in self.runs.items() for line in read(run) if line["seed"] == seed]
        return [line for line in found if line["steps"] <= self.panel.steps + self.config.budget.evaluate_every]


@dataclasses.dataclass(frozen=True)
class Evidence:
    """All samples of a claim at one budget."""

    claim: Claim
    budget: str
    samples: Mapping[str, Mapping[str, Sample]]  # by panel, then by arm

    def sample(self, panel: str, arm: str) -> Sample | None:
        """One of them; None where this budget has no such panel or arm."""
        return self.samples.get(panel, {}).get(arm)

    def __iter__(self) -> Iterator[Sample]:
        return (sample for arms in self.samples.values() for sample in arms.values())


def jobs_of(panels: Sequence[Panel]) -> list[Job]:
    """Every run that some panels need, first seeds first: what is stopped early has something of everything.

    Of runs that differ in nothing but their length the longest says all.
    """
    found: dict[tuple[str, tuple[int, ...]], Job] = {}
    asked = [(seed, panel, arm) for panel in panels for arm in panel.arms for seed in panel.seeds]
    for seed, panel, arm in sorted(asked, key=lambda one: one[0]):
        job = _job(arm, panel, seed)
        known = found.setdefault((job.kind.kin, job.kind.seeds), job)
        if known.kind.steps < job.kind.steps:
            found[job.kind.kin, job.kind.seeds] = job
    return [*found.values()]


def _job(arm: Arm, panel: Panel, seed: int) -> Job:
    return seeded(shlex.split(arm.words), seed, panel.steps)


def gather(claim: Claim, budget: str, surveys: Sequence[Survey]) -> Evidence:
    """What the runs below some directories say about a claim."""
    panels = claim.panels(budget)
    return Evidence(
        claim,
        budget,
        {panel.title: {arm.name: _sample(panel, arm, surveys) for arm in panel.arms} for panel in panels},
    )


def _readable(survey: Survey, job: Job) -> Iterator[tuple[RunDirectory, list[dict[str, Any]]]]:
    """The runs that differ from a job in nothing but seeds and length, with their lines; one whose files are damaged is left out."""
    for path in survey.kin(job):
        try:
            run = RunDirectory.open(path, survey.trust)
            read_maps(run)
            yield run, read_lines(run)
        except UserError as error:
            survey.leave_out(path, str(error))


def _sample(panel: Panel, arm: Arm, surveys: Sequence[Survey]) -> Sample:
    job = _job(arm, panel, panel.seeds[0])
    curves: dict[int, Curve] = {}
    runs: dict[int, RunDirectory] = {}
    found = {run: lines for survey in surveys for run, lines in _readable(survey, job)}
    for run, lines in found.items():
        for curve in scores(lines, job.config.env.spec.winnable):
            known = curves.get(curve.seed)
            if curve.seed in panel.seeds and (known is None or curve.steps[-1] > known.steps[-1]):
                curves[curve.seed], runs[curve.seed] = curve, run
    repeated = len(found) - len({run.path for run in runs.values()})
    cut = [until(curves[seed], panel.steps) for seed in sorted(curves)]
    begun = tuple(curve for curve in cut if len(curve.steps))
    beside = [curve for seed in sorted(runs) for curve in _extrinsic(found[runs[seed]], job.config.env.spec.winnable) if curve.seed == seed]
    extrinsic = tuple(curve for curve in (until(curve, panel.steps) for curve in beside) if len(curve.steps))
    return Sample(arm, panel, job.config, begun, {seed: runs[seed] for seed in sorted(runs)}, repeated, extrinsic)


def _extrinsic(lines: Sequence[Mapping[str, Any]], winnable: bool) -> list[Curve]:
    """How the values without the bonus did in tests of their own, seed by seed."""
    field = "phi_test_win_rate" if winnable else "phi_test_return"
    return tracks((line for line in lines if line.get("kind") == "train"), lambda line: line.get(field, math.nan))
