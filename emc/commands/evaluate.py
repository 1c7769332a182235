"""`emc evaluate RUN`, and `emc evaluate MAP --script NAME` for players that learn nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from tyro.conf import Positional, arg

from emc.commands.common import Trusting, loaded, prepare_jax
from emc.envs.battle import Battle
from emc.envs.hosted import Hosted, make_host
from emc.envs.workers import Workers
from emc.errors import UserError
from emc.flags import parse
from emc.policies.scripted import SCRIPTS
from emc.policies.scripted import play as play_script
from emc.training.host_loop import play_hosted
from emc.training.rollout import play
from emc.user_input import check_size, lookup

MOST_EPISODES = 100_000
SIDE_BY_SIDE = 256  # episodes at once
HOSTED = {"random": "", "heuristic": "heuristic_ai=True", "heuristic-rest": "heuristic_ai=True heuristic_rest=True"}
BLOCK = 64  # battles of a script at once
ABOUT = """Complete greedy episodes with the trained agents of a run, or battles of a scripted player.

Examples:
  emc evaluate runs/gridworld/emc-vdn/20260101-120000-abc123 --episodes 200
  emc evaluate RUN --trained-seed 3 --trust my_envs:Meeting
  emc evaluate gridworld --policy shipped
  emc evaluate 3m --script focus-fire
  emc evaluate smac/3m --script heuristic --episodes 32"""


@dataclasses.dataclass(frozen=True)
class Flags(Trusting):
    """Complete episodes."""

    # directory of the run; with --policy a task; with --script a map, here or, as smac/MAP, in StarCraft II
    run: Annotated[str, Positional, arg(metavar="RUN")]
    episodes: int | None = None  # default: 32, and 256 of a script
    seed: int = 0  # of the episodes' randomness
    trained_seed: int | None = None  # which agents, where the run trained several; default: the first
    policy: str = ""  # shipped: the agents that come with emc for the task
    script: str = ""  # a player that learns nothing, on battles
    formation: str = "spiral"  # how units stand at the start of a script's battles; the game has its own
    enemy_order: str = "created"  # how the enemy's units are numbered in a script's battles; the game has its own


def main(words: list[str]) -> None:
    flags: Flags = parse("emc evaluate", Flags, words, about=ABOUT)
    episodes = flags.episodes if flags.episodes is not None else 256 if flags.script else 32
    if episodes < 1:
        raise UserError(f"--episodes {episodes} must be at least 1")
    if episodes > MOST_EPISODES:
        raise UserError(f"--episodes {episodes} is more than anybody needs; the most is {MOST_EPISODES}")
    check_size("--seed", flags.seed, "name another one", low=0)
    if flags.script and flags.policy:
        raise UserError("say --policy or --script, not both: one player at a time")
    (_evaluate_script if flags.script else _evaluate_run)(flags, episodes)


def _evaluate_run(flags: Flags, episodes: int) -> None:
    policy = loaded(Path(flags.run), flags.trained_seed, flags.trust, flags.policy)
    prepare_jax()
    key, never = jax.random.key(flags.seed), jnp.zeros(())
    if isinstance(policy.env, Hosted):
        with contextlib.closing(Workers(policy.env, min(episodes, os.cpu_count() or 1))) as workers:
            blocks = [play_hosted(workers, policy.actors, key, never, episodes)[1]]
    else:  # only outcomes leave the compiled program, and not all episodes are played at once: whole ones would fill the memory
        size = min(episodes, SIDE_BY_SIDE)
        some: Any = jax.jit(lambda env, actors, key: play(env, actors, key, never, size)[1])
        blocks = [some(policy.env, policy.actors, jax.random.fold_in(key, i)) for i in range(-(-episodes // size))]
    outcome = jax.tree.map(lambda *parts: np.concatenate(parts)[:episodes], *blocks)
    won = outcome.won if policy.spec.winnable else None
    _print(won, outcome.episode_return, outcome.length)
    print(f"episodes {episodes}, greedy, complete, agents of seed {policy.seed} after {policy.step:,} steps")


def _evaluate_script(flags: Flags, episodes: int) -> None:
    _print(*(_in_the_game(flags, episodes) if "/" in flags.run else _here(flags, episodes)))
    print(f"episodes {episodes}, {flags.script} on {flags.run}")


def _print(won: Any, returns: Any, length: Any) -> None:
    if won is not None:
        print(f"win rate {np.mean(won):.3f}")
    print(f"return   {np.mean(returns):.3f} (from {np.min(returns):.3f} to {np.max(returns):.3f})")
    print(f"length   {np.mean(length):.1f}")


def _here(flags: Flags, episodes: int) -> tuple[Any, Any, Any]:
    script = lookup("script", flags.script, SCRIPTS)
    env = Battle(flags.run, flags.formation, flags.enemy_order)
    if env.enemy_order == "shuffled":
        raise UserError(
            "scripts choose units and not numbers, so shuffled numbers have no meaning for them: leave --enemy-order shuffled out"
        )
    prepare_jax()
    size = min(episodes, BLOCK)
    some = jax.jit(lambda key: play_script(env, script(env), size, key))
    blocks = [some(jax.random.fold_in(jax.random.key(flags.seed), i)) for i in range(-(-episodes // size))]
    total = jax.tree.map(lambda *parts: np.concatenate(parts)[:episodes], *blocks)
    return total.won, total.episode_return, total.length


def _in_the_game(flags: Flags, episodes: int) -> tuple[Any, Any, Any]:
    """SMAC plays its own scripts itself: what it is given as actions then only has to be available."""
    if flags.script not in HOSTED:
        raise UserError(
            f"{flags.script} needs to see the whole world, which {flags.run} does not show: play one of {', '.join(HOSTED)} there"
        )
    draw = np.random.default_rng(flags.seed)
    outcomes: list[tuple[bool, float, int]] = []
    with contextlib.closing(make_host(flags.run, HOSTED[flags.script])) as env:
        for episode in range(episodes):
            now, total, length = env.reset(flags.seed + episode), 0.0, 0
            while not (now.terminated or now.truncated):
                now = env.step(np.array([draw.choice(np.flatnonzero(mask)) for mask in now.available]))
                total, length = total + now.reward, length + 1
            outcomes.append((now.won, total, length))
    won, returns, length = (np.array(values) for values in zip(*outcomes, strict=True))
    return won, returns, length
