"""`emc evaluate --script NAME MAP`: players that learn nothing, on the battles here or on the real game."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

from emc.commands.parsing import parse, take
from emc.errors import UserError
from emc.names import lookup

HOSTED = {"random": "", "heuristic": "heuristic_ai=True", "heuristic-rest": "heuristic_ai=True heuristic_rest=True"}
BLOCK = 64  # battles side by side


@dataclasses.dataclass(frozen=True)
class ScriptFlags:
    """Complete battles of a scripted player, on a map of this package or, as smac/MAP, in StarCraft II."""

    episodes: int = 256
    seed: int = 0
    formation: str = "spiral"  # how units stand at the start; the game has its own
    enemy_order: str = "created"  # how the enemy's units are numbered; the game has its own


def evaluate_script(words: list[str]) -> None:
    """Play a script and print how it ended."""
    import numpy as np

    flags = parse("emc evaluate --script NAME MAP", ScriptFlags, take(words, "NAME", "MAP"))
    name, where = words[:2]
    if flags.episodes < 1:
        raise UserError(f"--episodes {flags.episodes} must be at least 1")
    won, returns, length = _in_the_game(name, where, flags) if "/" in where else _here(name, where, flags)
    print(f"win rate {np.mean(won):.3f}")
    print(f"return   {np.mean(returns):.3f} (from {np.min(returns):.3f} to {np.max(returns):.3f})")
    print(f"length   {np.mean(length):.1f}")
    print(f"episodes {flags.episodes}, {name} on {where}")


def _here(name: str, where: str, flags: ScriptFlags) -> tuple[Any, Any, Any]:
    import jax
    import numpy as np

    from emc.commands.training import prepare_jax
    from emc.envs.battle import Battle
    from emc.envs.battle.scripts import SCRIPTS, play

    script = lookup("script", name, SCRIPTS)
    env = Battle(where, flags.formation, flags.enemy_order)
    prepare_jax()
    size = min(flags.episodes, BLOCK)
    some = jax.jit(lambda key: play(env, script(env), size, key))
    blocks = [some(jax.random.fold_in(jax.random.key(flags.seed), i)) for i in range(-(-flags.episodes // size))]
    total = jax.tree.map(lambda *parts: np.concatenate(parts)[: flags.episodes], *blocks)
    return total.won, total.episode_return, total.length


def _in_the_game(name: str, where: str, flags: ScriptFlags) -> tuple[Any, Any, Any]:
    """SMAC plays its own scripts itself: what it is given as actions then only has to be available."""
    import numpy as np

    from emc.envs.hosted import make_host

    if name not in HOSTED:
        raise UserError(f"{name} needs to see the whole world, which {where} does not show: play one of {', '.join(HOSTED)} there")
    draw = np.random.default_rng(flags.seed)
    outcomes = []
    with contextlib.closing(make_host(where, HOSTED[name])) as env:
        for episode in range(flags.episodes):
            now, total, length = env.reset(flags.seed + episode), 0.0, 0
            while not (now.terminated or now.truncated):
                now = env.step(np.array([draw.choice(np.flatnonzero(mask)) for mask in now.available]))
                total, length = total + now.reward, length + 1
            outcomes.append((now.won, total, length))
    won, returns, length = (np.array(values) for values in zip(*outcomes, strict=True))
    return won, returns, length
