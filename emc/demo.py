"""The demonstration: EMC-VDN learns to win the gridworld, from nothing, in a few minutes."""

from __future__ import annotations

from pathlib import Path

from emc.display import display_for_this_terminal
from emc.envs import make_env
from emc.methods import Preset, make_method
from emc.runs.config import RunConfig
from emc.runs.session import Interrupted, Keeping, start
from emc.training.loop import Budget

WINS_IN_A_ROW = 5  # evaluations won entirely before the demonstration is convinced: those that a final score is the mean of


def run_demo(root: Path, seed: int, steps: int) -> Path:
    """Train until several evaluations in a row are won entirely; the run directory. Stopping early shows what there is."""
    config = RunConfig("emc-vdn", make_method("emc-vdn"), "gridworld", make_env("gridworld"), Budget(steps=steps), (seed,))
    won: list[bool] = []

    def enough(latest: dict[str, float]) -> bool:
        won.append(latest["test_win_rate"] == 1.0)
        return len(won) >= WINS_IN_A_ROW and all(won[-WINS_IN_A_ROW:])

    command = f"emc demo --seed {seed} --steps {steps}"
    try:
        preset = Preset.of("", "gridworld", "released")
        path = start(config, root, Keeping(), display_for_this_terminal(True), command, enough, preset=preset).path
    except Interrupted as stop:
        print(f"stopped at step {stop.step}: go on with emc resume {stop.run.path}")
        return stop.run.path
    print("it wins" if all(won[-WINS_IN_A_ROW:]) else f"it has not won within {steps:,} steps; another --seed may be luckier")
    return path
