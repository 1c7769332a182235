"""What `sweep` and `reproduce` share: the engine that does runs, and what is said about them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from emc.commands.common import Trusting, prepare_jax
from emc.commands.messages import fail, note
from emc.errors import UserError
from emc.runs.trust import Trust
from emc.sweeps import (
    Engine,
    Job,
    LocalEngine,
    RayEngine,
    State,
    Survey,
    find_accelerator,
    grouped,
    leave_to_runs,
    seeds_in_one_run,
    trusted_by,
)
from emc.sweeps.calibration import forecast
from emc.sweeps.table import table_for_this_terminal
from emc.user_input import in_one_line, lookup, printable

MOST_WORKERS = 10_000  # runs at a time: more than any cluster has processors for


@dataclasses.dataclass(frozen=True, kw_only=True)
class ManyFlags(Trusting):
    """Where many runs are done and kept."""

    runs: Path = Path("runs")  # directory that holds all runs
    workers: int = 0  # runs at a time; 0: as many as there are cores, here or in the cluster; one on an accelerator
    together: Literal["auto", "yes", "no"] = "auto"  # train seeds side by side in one run; auto: on an accelerator, which is faster so
    engine: str = "local"  # where the runs are done: local (this machine) or ray (a Ray cluster; pip install emc-marl[ray])
    address: str = ""  # of the Ray cluster; default: RAY_ADDRESS, else a cluster is started on this machine
    dry_run: bool = False  # only say what would be done, how much memory that needs, and about how long it takes

    def check(self) -> None:
        if not 0 <= self.workers <= MOST_WORKERS:
            raise UserError(f"--workers {self.workers} must be at least 0 and at most {MOST_WORKERS}")

    def survey(self, jobs: Sequence[Job]) -> Survey:
        """The runs that are there; what the jobs are made of is trusted."""
        return Survey(self.runs, Trust([*self.trust, *trusted_by(jobs).names]))

    def make_engine(self) -> Engine:
        """The engine that was asked for; it comes before anything else is computed, which would take the accelerator from the runs."""
        if self.engine == "local" and self.address:
            raise UserError(f"--address {self.address} is for --engine ray")
        engines = {"local": lambda: LocalEngine(self.workers, find_accelerator()), "ray": lambda: RayEngine(self.address, self.workers)}
        engine: Engine = lookup("engine", self.engine, engines)()
        if not self.dry_run:  # which tries how fast runs are where they will be
            leave_to_runs()
        return engine

    def grouped(self, jobs: Sequence[Job], engine: Engine, wish: bool | None = None) -> Sequence[Job]:
        """Seeds in runs of their own or side by side, as flags say, or else the file, or else as is faster here."""
        if self.together == "no":
            return jobs
        together = self.together == "yes" or (engine.faster_together() if wish is None else wish)
        memory = engine.memory() if together else 0
        return grouped(jobs, self.survey(jobs), lambda job: seeds_in_one_run(job, memory) if together else 1)

    def say_what_is_left(self, jobs: Sequence[Job], engine: Engine) -> None:
        """The runs of a sweep, and what those that are not done will take."""
        prepare_jax()
        survey = self.survey(jobs)
        found = [(job, *survey.look(job)) for job in jobs]
        for job, state, _ in found:
            print(f"{state.value:<10} {printable(job.name)}")
        if left_out := survey.left_out():
            note(left_out)
        left = [(job, run) for job, state, run in found if state is not State.DONE]
        with engine.ready():
            for line in forecast(left, max(engine.room(), 1)):
                print(line)

    def run_all(self, jobs: Sequence[Job], engine: Engine) -> str:
        """Do what is missing of some runs; what to say if some failed. Ends here when it is stopped."""
        prepare_jax()
        with table_for_this_terminal() as watch:
            results = engine.run(jobs, self.runs, watch, note)
        failed = [one for one in results if one.state is State.FAILED]
        for one in failed:
            print(f"failed: {printable(one.job.name)}: {in_one_line(one.reason)}")
        if any(len(one.job.config.seeds) > 1 for one in failed):
            print("of seeds that failed together, --together no tries each by itself")
        left = sum(one.state is not State.DONE for one in results) - len(failed)
        if left:
            fail(f"stopped with {left} of {len(results)} runs to do; everything is kept and the same command goes on", 130)
        return f"{len(failed)} of {len(results)} runs failed; the same command tries them again" if failed else ""
