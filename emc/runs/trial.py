"""Whether an environment can be trained on and a method can learn: promises, and what only those who train and keep runs can know."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from emc.envs.base import HasSpec
from emc.envs.check import EPISODES, Finding, check
from emc.envs.hosted import Hosted
from emc.errors import MISTAKES, UserError, in_short
from emc.methods import Method, make_method
from emc.parts import Mixed
from emc.runs.config import RunConfig, outside, why_not_kept
from emc.training.learner import LearnerState, actors_of, init_learner, learn
from emc.training.loop import TrainState, shapes
from emc.training.rollout import play
from emc.types import AgentValues, EnvSpec


def promises(env: HasSpec, episodes: int = EPISODES, patience: int = 1) -> list[Finding]:
    """Every promise that was tested, the last ones by whoever trains."""
    why = why_not_kept(env)
    findings = [Finding("its fields can be kept with a run", not why, why)]
    if not why:
        findings += check(env, episodes, patience)
    if all(finding.kept for finding in findings) and not isinstance(env, Hosted):
        findings.append(_plays_as_in_training(env))
    return findings


def must_keep_its_promises(env: HasSpec) -> None:
    """Refuse to train on somebody's own class that breaks one. A worker may fail as often as in training, and one episode shows enough."""
    if not outside(env):
        return
    hosted = isinstance(env, Hosted)
    findings = promises(env, 1 if hosted else EPISODES, env.patience if hosted else 1)
    for finding in findings:
        if not finding.kept:
            said = f"{finding.promise}{f': {finding.detail}' if finding.detail else ''}"
            (source,) = outside(env)
            raise UserError(f"{source} breaks a promise, {said}. See all of them with: emc check-env {source}")


def must_learn(config: RunConfig) -> None:
    """Refuse somebody's own parts that fail, or change the shape of their state, in one gradient step; it is followed, not computed."""
    if not (sources := outside(config.method)):
        return
    method = config.method

    def once(state: TrainState) -> LearnerState:
        rows = state.replay.draw(jax.random.key(0), method.replay, method.batch_episodes)
        batch = state.replay.lay(rows, method.layout(state.replay.spec), method.policy)
        return learn(method, state.learner, batch, state.env_steps)[0]

    try:
        _check_mixer(method, config.env.spec)
        state = shapes(method, config.env.spec)
        after = jax.eval_shape(once, state)
    except UserError:
        raise
    except MISTAKES as error:  # whatever the user's class does wrong
        raise UserError(f"{', '.join(sources)} cannot learn: {in_short(error)}{_place(error)}. See emc docs your-own-parts") from error
    for part in ("values", "policy", "curiosity", "memory"):
        before, then = (jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), vars(one)[part]) for one in (state.learner, after))
        if before != then:
            raise UserError(f"{', '.join(sources)} cannot learn: a step changes the structure, shapes or types of the state of {part}")


def _check_mixer(method: Method, spec: EnvSpec) -> None:
    spec = method.policy.mixer_spec(spec)

    def mix(value: Array, action: Array, where: Array) -> Mixed:
        return method.mixer(method.mixer.init(jax.random.key(0), spec), AgentValues(value, value, action), where)

    value, action = (jax.ShapeDtypeStruct((spec.n_agents,), kind) for kind in ("float32", "int32"))
    mixed = jax.eval_shape(mix, value, action, jax.ShapeDtypeStruct((spec.state_size,), "float32"))
    shapes = (mixed.q.shape, mixed.regulariser.shape)
    if len(shapes[0]) != 1 or shapes[1] != ():
        name = type(method.mixer).__name__
        raise UserError(f"{name} returns shapes {shapes}: q is a vector of one number (or one for each agent), the regulariser a number")


def _place(error: BaseException) -> str:
    """The line of somebody's own code that an error came from."""
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not any(part in Path(frame.filename).parts for part in ("site-packages", "emc"))
    ]
    return f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""


def _plays_as_in_training(env: Any) -> Finding:
    method, key = make_method("vdn"), jax.random.key(0)
    try:
        actors = actors_of(method, init_learner(method, env.spec, key))
        jax.block_until_ready(jax.jit(lambda env: play(env, actors, key, jnp.ones(()), 2))(env))
    except MISTAKES as error:  # whatever the user's class does wrong
        return Finding("it can be trained on", kept=False, detail=in_short(error))
    return Finding("it can be trained on", kept=True)
