"""Battles on the maps of the StarCraft Multi-Agent Challenge, in pure JAX."""

from emc.envs.battle.battle import Battle
from emc.envs.battle.maps import MAPS, Map, describe, register_map

__all__ = ["MAPS", "Battle", "Map", "describe", "register_map"]
