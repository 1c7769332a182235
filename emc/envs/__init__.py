"""Environments: what agents can be trained in."""

from emc.envs.base import Environment
from emc.envs.foraging import Foraging
from emc.envs.gridworld import Gridworld
from emc.envs.matrix import NStepGame, OneStepGame, TwoStepGame
from emc.envs.passing import Pass
from emc.envs.predator_prey import PredatorPrey
from emc.envs.push_box import PushBox
from emc.envs.registry import TASKS, make_env
from emc.envs.repeated import Climbing, Penalty
from emc.envs.secret_room import SecretRoom

__all__ = [
    "TASKS",
    "Climbing",
    "Environment",
    "Foraging",
    "Gridworld",
    "NStepGame",
    "OneStepGame",
    "Pass",
    "Penalty",
    "PredatorPrey",
    "PushBox",
    "SecretRoom",
    "TwoStepGame",
    "make_env",
]
