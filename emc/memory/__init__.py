"""Memories: what the best return ever seen from a state was."""

from emc.memory.episodic import EpisodicMemory
from emc.memory.none import NoMemory

__all__ = ["EpisodicMemory", "NoMemory"]
