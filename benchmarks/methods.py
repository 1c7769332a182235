"""One gradient step of every method at gridworld size, as a multiple of VDN's.

    python benchmarks/methods.py

Batches of 32 full-length episodes for all, whatever their own batch size. RODE is measured twice: while it learns what actions do, and
after its roles are formed.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from common import keep, machine, seconds
from update import SIZES, full_batch

from emc.methods import METHODS, Method
from emc.training.learner import init_learner, update
from emc.types import EnvSpec, Episodes

STEPS_PER_CALL = 5
SPEC: EnvSpec = dataclasses.replace(SIZES["gridworld"], idle_actions=(4,), move_actions=(0, 1, 2, 3))


def batch_for(method: Method) -> Episodes:
    """Random episodes with whatever decisions the policy would have recorded."""
    batch = full_batch(SPEC, 32, SPEC.episode_limit)
    shape = batch.reward.shape
    choice = jax.tree.map(lambda x: jnp.zeros((*shape, *x.shape), x.dtype), method.policy.blank_choice(SPEC))
    return dataclasses.replace(batch, choice=choice)


def time_update(method: Method, env_steps: int) -> float:
    """Seconds of one gradient step inside a compiled loop."""
    batch = batch_for(method)
    state, _ = update(method, init_learner(method, SPEC, jax.random.key(1)), batch, jnp.asarray(env_steps))  # forms roles if it is time

    @jax.jit
    def several(state, batch, env_steps):
        return jax.lax.fori_loop(0, STEPS_PER_CALL, lambda i, s: update(method, s, batch, env_steps + i)[0], state)

    return seconds(lambda: several(state, batch, env_steps), repeats=5) / STEPS_PER_CALL


def main() -> None:
    result = machine()
    baseline = time_update(METHODS["vdn"].method, 0)
    result["vdn: milliseconds"] = baseline * 1e3
    for name, entry in METHODS.items():
        result[f"{name}: times VDN"] = time_update(entry.method, 0) / baseline
    result["rode with roles: times VDN"] = time_update(METHODS["rode"].method, 1_000_000) / baseline
    keep("methods", result)


if __name__ == "__main__":
    main()
