"""One gradient step of every method at gridworld size, as a multiple of VDN's.

    python benchmarks/methods.py

Batches of 32 full-length episodes for all, whatever their own batch size. RODE is measured twice: while it learns what actions do, and
after its roles are formed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from common import keep, machine, seconds
from update import made_up

from emc.envs import make_env
from emc.methods import METHODS, Method
from emc.training.learner import LearnerState, init_learner, update
from emc.types import EnvSpec, Episodes

STEPS_PER_CALL = 5
TURNS = 10
SPEC: EnvSpec = make_env("gridworld").spec


def batch_for(method: Method) -> Episodes:
    """Random episodes with whatever decisions the policy would have recorded."""
    batch = made_up(SPEC, 32, SPEC.episode_limit)
    shape = batch.reward.shape
    choice = jax.tree.map(lambda x: jnp.zeros((*shape, *x.shape), x.dtype), method.policy.blank_choice(SPEC))
    return dataclasses.replace(batch, choice=choice)


def compiled(method: Method, env_steps: int) -> Callable[[], LearnerState]:
    """Several gradient steps inside a compiled loop."""
    batch = batch_for(method)
    state, _ = update(method, init_learner(method, SPEC, jax.random.key(1)), batch, jnp.asarray(env_steps))  # forms roles if it is time

    @jax.jit
    def several(state, batch, env_steps):
        return jax.lax.fori_loop(0, STEPS_PER_CALL, lambda i, s: update(method, s, batch, env_steps + i)[0], state)

    return lambda: several(state, batch, env_steps)


def ratio(run: Callable[[], LearnerState], baseline: Callable[[], LearnerState]) -> tuple[float, float]:
    """How many times longer one takes than the other, and the other's time; they take turns, so that both meet the same machine."""
    pairs = [(seconds(baseline, repeats=1), seconds(run, repeats=1)) for _ in range(TURNS)]
    theirs, ours = (min(times) for times in zip(*pairs, strict=True))
    return ours / theirs, theirs / STEPS_PER_CALL


def main() -> None:
    result = machine()
    vdn = compiled(METHODS["vdn"].method, 0)
    rode = METHODS["rode"].method
    rode = dataclasses.replace(rode, policy=dataclasses.replace(rode.policy, clusters=2))  # five actions have no room for five roles
    cases = {name: (entry.method, 0) for name, entry in METHODS.items()} | {"rode": (rode, 0), "rode with roles": (rode, 1_000_000)}
    for name, case in cases.items():
        times, baseline = ratio(compiled(*case), vdn)
        result |= {f"{name}: times VDN": times, "vdn: milliseconds": 1e3 * baseline}
        print(f"{name} {times:.2f}", flush=True)
    keep("methods", result)


if __name__ == "__main__":
    main()
