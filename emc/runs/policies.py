"""Trained agents without the run that trained them: weights only, and what they are. Some come with the package, one for a task."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from emc.envs.base import Environment
from emc.errors import CheckpointError, UserError
from emc.parts import Actors
from emc.runs.config import RunConfig, from_json, to_json
from emc.training import checkpoint
from emc.training.learner import init_learner, tested
from emc.user_input import lookup

SHIPPED = Path(__file__).parents[1] / "trained_agents"  # a folder for each task


@dataclasses.dataclass(frozen=True)
class Kept:
    """Trained agents, and what is known of them."""

    actors: Actors
    config: RunConfig  # of the run that trained them
    seed: int
    step: int  # of training
    score: float  # share of won episodes, or the mean return where nothing can be won
    episodes: int  # that the score was measured on


def save(folder: Path, kept: Kept) -> None:
    """Write agents to a folder of their own."""
    facts = {name: getattr(kept, name) for name in ("seed", "step", "score", "episodes")}
    checkpoint.save(folder, (kept.actors.net, kept.actors.state), {"config": to_json(kept.config), **facts})


def load(folder: Path) -> Kept:
    """Read them again; nothing in the folder is executed."""
    meta = cast(dict[str, Any], checkpoint.described(folder)["meta"])
    config, facts = from_json(meta.get("config")), [meta.get(name) for name in ("seed", "step", "score", "episodes")]
    if not isinstance(config, RunConfig) or not isinstance(config.env, Environment) or None in facts:
        raise CheckpointError(f"{folder}: does not say what the agents are. Use a folder that emc wrote.")
    like = jax.eval_shape(lambda: tested(config.method, init_learner(config.method, config.env.spec, jax.random.key(0))))
    (net, state), _ = checkpoint.load(folder, (like.net, like.state))
    if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((net, state)) if jnp.issubdtype(leaf.dtype, jnp.floating)):
        raise CheckpointError(f"{folder}: a weight is not a finite number. Use another policy.")
    return Kept(Actors(like.policy, net, state), config, *cast(list[Any], facts))


def shipped() -> tuple[str, ...]:
    """The tasks that come with a trained policy."""
    return tuple(sorted(path.parent.name for path in SHIPPED.glob(f"*/{checkpoint.DESCRIPTION}")))


def load_shipped(task: str) -> Kept:
    """The policy that comes with the package for a task."""
    try:
        return load(SHIPPED / lookup("shipped policy", task, dict.fromkeys(shipped(), task)))
    except CheckpointError as error:
        raise UserError(f"the policy for {task} cannot be read: {error}") from error
