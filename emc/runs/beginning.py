"""How a run begins: the loop that it needs, and the networks of another run where it starts from one."""

from __future__ import annotations

from typing import Any, cast

import equinox as eqx
import jax
import numpy as np

from emc.allocator import keep_freed_memory
from emc.envs.base import Environment
from emc.envs.hosted import Hosted
from emc.errors import UserError
from emc.runs.config import RunConfig, config_of
from emc.runs.directory import RunDirectory
from emc.runs.identity import identity_of
from emc.runs.restoring import restored
from emc.training.host_loop import HostProgram
from emc.training.loop import Loop, Program, TrainState


def loop_of(config: RunConfig) -> Loop:
    """The loop that a run's environment needs."""
    keep_freed_memory()
    if isinstance(config.env, Hosted):
        return HostProgram(config.method, config.budget, config.env, config.seeds)
    return Program(config.method, config.budget, cast(Environment, config.env), config.seeds)


def with_networks(state: TrainState, config: RunConfig, run: RunDirectory) -> tuple[TrainState, dict[str, Any]]:
    """A state that begins with the networks of another run's last good checkpoint, and where they are from.

    The agents' networks must fit; those of a mixer and a loss are taken where both runs have the same. Optimisers, curiosity and memory
    begin anew. A run of one seed serves all seeds, one of several must have as many.
    """
    run.must_belong_together()
    theirs = config_of(run)
    if config.method.policy.own_unit or theirs.method.policy.own_unit:
        raise UserError(
            "networks that count rewards in a unit of their own (policy.largest_reward) mean something else in another run: start without "
            "it, from a run without it"
        )
    if len(theirs.seeds) not in (1, len(config.seeds)):
        raise UserError(f"{run.path} has {len(theirs.seeds)} seeds, and this run {len(config.seeds)}: one, or as many, can be taken over")
    found, _ = restored(run, theirs)
    source = found.tree.learner.values.online
    several, one = len(config.seeds) > 1, len(theirs.seeds) == 1

    def taken(name: str, same: bool) -> Any:
        own, new = getattr(state.learner.values.online, name), getattr(source, name)
        if several and one:
            new = jax.device_put(jax.tree.map(lambda leaf: np.broadcast_to(leaf, (len(config.seeds), *np.shape(leaf))), new))
        fits = jax.tree.structure(own) == jax.tree.structure(new) and all(
            np.shape(a) == np.shape(b) for a, b in zip(jax.tree.leaves(own), jax.tree.leaves(new), strict=True)
        )
        if name == "policy" and not fits:
            raise UserError(f"the agents of {run.path} have networks of other shapes: start from a run on an environment of the same sizes")
        return new if fits and same else own

    nets = type(source)(
        taken("policy", True),
        taken("mixer", config.method.mixer == theirs.method.mixer),
        taken("loss", config.method.loss == theirs.method.loss),
    )
    online, target = (jax.device_put(nets, may_alias=False) for _ in range(2))  # both are overwritten, so each has memory of its own
    state = eqx.tree_at(lambda s: (s.learner.values.online, s.learner.values.target), state, (online, target))
    return state, {"path": str(run.path), "step": found.step, **identity_of(run.manifest)}
