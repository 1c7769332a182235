"""One scripted battle on each of some maps as a GIF: how the units move.

    python experiments/battle_pictures.py FOLDER [MAP ...] [--script NAME] [--pixels N]

Writes `FOLDER/battle-MAP.gif`; those of the documentation are in `docs/pictures`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import jax
import jax.numpy as jnp

from emc.envs.battle import Battle
from emc.envs.battle.forces import NOBODY
from emc.policies.scripted import SCRIPTS
from emc.report.animation import Moment, animate

MAPS = ("corridor", "MMM2", "2c_vs_64zg", "3s5z_vs_3s6z", "bane_vs_bane")


def battle(env: Battle, script: str) -> list[Moment]:
    """The moments of one battle."""
    player, step = jax.jit(SCRIPTS[script](env)), jax.jit(env.step)
    world, now = env.reset(jax.random.key(0))
    memory = jnp.full(env.spec.n_agents, NOBODY)
    moments, total = [Moment(jax.device_get(world), 0.0, over=False, won=False)], 0.0
    for number in range(env.spec.episode_limit):
        act, move = jax.random.split(jax.random.key(number))
        action, memory = player(world, now, act, memory)
        world, now = step(world, action, move)
        total += float(now.reward)
        moments.append(Moment(jax.device_get(world), total, bool(now.terminated), bool(now.won)))
        if now.terminated:
            break
    return moments


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("maps", nargs="*", default=MAPS)
    parser.add_argument("--script", choices=list(SCRIPTS), default="focus-fire")
    parser.add_argument("--pixels", type=int, default=320)
    arguments = parser.parse_args()
    for name in arguments.maps:
        env = Battle(name)
        moments = battle(env, arguments.script)
        path = arguments.folder / f"battle-{name}.gif"
        animate(env, moments, path, size=arguments.pixels)
        print(f"{path}: {len(moments) - 1} steps, {'won' if moments[-1].won else 'lost'}, {path.stat().st_size / 1e3:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
