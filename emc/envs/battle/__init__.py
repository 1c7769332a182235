"""Battles on the maps of the StarCraft Multi-Agent Challenge, in pure JAX."""

from emc.envs.battle.battle import Battle
from emc.envs.battle.maps import MAPS, Map, describe

__all__ = ["MAPS", "Battle", "Map", "describe"]
