"""Win rates of players that learn nothing, on every map: how hard the battles are, and that none is won by chance.

python experiments/scripted_battles.py [EPISODES]        256 unless said otherwise; writes results/scripted-battles.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jax
import numpy as np

from emc.envs.battle import MAPS, Battle
from emc.envs.battle.scripts import attack_nearest, focus_fire, play, random_play
from emc.runs.machine import commit_of

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "results" / "scripted-battles.json"
SCRIPTS = {"random": random_play, "nearest": attack_nearest, "focus fire": focus_fire}
BLOCK = 64  # battles side by side


def measure(name: str, episodes: int) -> dict[str, dict[str, float]]:
    """Wins, return and length of every script on one map."""
    env, found = Battle(name), {}
    for script, make in SCRIPTS.items():
        some = jax.jit(lambda key, player=make(env): play(env, player, BLOCK, key))
        blocks = [some(jax.random.key(number)) for number in range(-(-episodes // BLOCK))]
        total = jax.tree.map(lambda *parts: np.concatenate(parts)[:episodes], *blocks)
        found[script] = {
            "wins": int(np.sum(total.won)),
            "return": round(float(np.mean(total.episode_return)), 2),
            "length": round(float(np.mean(total.length)), 1),
        }
    return found


def main(episodes: int) -> None:
    maps = {}
    for name in MAPS:
        maps[name] = measure(name, episodes)
        print(name, {script: f"{100 * result['wins'] / episodes:.0f} %" for script, result in maps[name].items()}, flush=True)
    KEPT.write_text(json.dumps({"episodes": episodes, "commit": commit_of(ROOT), "maps": maps}, indent=1) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 256)
