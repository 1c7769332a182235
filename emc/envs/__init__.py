"""Environments: what agents can be trained in."""

from emc.envs.base import Environment
from emc.envs.gridworld import Gridworld
from emc.envs.matrix import NStepGame, OneStepGame, TwoStepGame
from emc.envs.predator_prey import PredatorPrey
from emc.envs.registry import TASKS, make_env

__all__ = ["TASKS", "Environment", "Gridworld", "NStepGame", "OneStepGame", "PredatorPrey", "TwoStepGame", "make_env"]
