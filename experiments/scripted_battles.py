"""Win rates of players that learn nothing, on every map and from every start that is plausible: how hard the battles are.

python experiments/scripted_battles.py [EPISODES [MAP ...]]      64 unless said otherwise; writes results/scripted-battles.json map by map
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from emc.envs.battle import MAPS, Battle
from emc.envs.battle.formation import FORMATIONS
from emc.policies.scripted import SCRIPTS, play
from emc.runs.machine import commit_of

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "results" / "scripted-battles.json"
BLOCK = 64  # battles side by side


def measure(name: str, episodes: int) -> dict[str, dict[str, Any]]:
    """Wins, return and length of every script on one map; wins from each formation, since the game's is not known."""
    env, found, size = Battle(name), {}, min(episodes, BLOCK)
    starts = {formation: jnp.asarray(Battle(name, formation).start) for formation in FORMATIONS}
    for script, make in SCRIPTS.items():
        some = jax.jit(lambda key, start, player=make(env): play(env, player, size, key, start))
        wins = {}
        for formation, start in starts.items():
            blocks = [some(jax.random.key(number), start) for number in range(-(-episodes // size))]
            total = jax.tree.map(lambda *parts: np.concatenate(parts)[:episodes], *blocks)
            wins[formation] = int(np.sum(total.won))
            if formation == env.formation:
                returns, length = float(np.mean(total.episode_return)), float(np.mean(total.length))
                found[script] = {"wins": wins[formation], "return": round(returns, 2), "length": round(length, 1)}
        found[script]["wins by formation"] = wins
    return found


def main(episodes: int, names: list[str]) -> None:
    maps: dict[str, Any] = {}
    for name in names:
        maps[name] = measure(name, episodes)
        shown = {script: "/".join(str(wins) for wins in result["wins by formation"].values()) for script, result in maps[name].items()}
        print(name, shown, f"of {episodes}", flush=True)
        KEPT.write_text(json.dumps({"episodes": episodes, "commit": commit_of(ROOT), "maps": maps}, indent=1) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 64, sys.argv[2:] or list(MAPS))
