"""emc: cooperative multi-agent reinforcement learning with coordinated exploration, in JAX.

import emc
run = emc.train("emc-vdn", "gridworld", steps=100_000)
steps, values = run.metrics("test_win_rate")
policy = run.policy()
actions = policy.act(obs, available)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from emc.api import LoadedPolicy as LoadedPolicy
    from emc.api import Run as Run
    from emc.api import load as load
    from emc.api import resume as resume
    from emc.api import runs as runs
    from emc.api import shipped as shipped
    from emc.api import train as train
    from emc.envs import TASKS as TASKS
    from emc.envs import make_env as make_env
    from emc.errors import UserError as UserError
    from emc.methods import METHODS as METHODS
    from emc.methods import Method as Method
    from emc.methods import make_method as make_method
    from emc.training.learner import init_learner as init_learner
    from emc.training.learner import observe as observe
    from emc.training.learner import update as update
    from emc.training.loop import Budget as Budget
    from emc.types import EnvSpec as EnvSpec
    from emc.types import Episodes as Episodes
    from emc.types import HostTimestep as HostTimestep
    from emc.types import Timestep as Timestep

__version__ = "0.1.0"

_HOMES = {
    "LoadedPolicy": "emc.api",
    "Run": "emc.api",
    "load": "emc.api",
    "resume": "emc.api",
    "shipped": "emc.api",
    "train": "emc.api",
    "TASKS": "emc.envs",
    "make_env": "emc.envs",
    "UserError": "emc.errors",
    "METHODS": "emc.methods",
    "Method": "emc.methods",
    "make_method": "emc.methods",
    "init_learner": "emc.training.learner",
    "observe": "emc.training.learner",
    "update": "emc.training.learner",
    "Budget": "emc.training.loop",
    "EnvSpec": "emc.types",
    "Episodes": "emc.types",
    "HostTimestep": "emc.types",
    "Timestep": "emc.types",
}  # found on first use, so that importing the package costs nothing
_MODULES = ("envs", "interop", "methods", "report", "runs")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"emc.{name}")
    if name in _HOMES:
        return vars(importlib.import_module(_HOMES[name]))[name]
    raise AttributeError(f"module 'emc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*_HOMES, *_MODULES]
