"""Whether an environment can be trained on: its promises, and what only those who train and keep runs can know."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from emc.envs.base import Described
from emc.envs.check import EPISODES, Finding, check, in_short
from emc.envs.hosted import Hosted
from emc.errors import UserError
from emc.methods import make_method
from emc.runs.config import accept, code_outside, why_not_kept
from emc.training.learner import actors_of, init_learner
from emc.training.rollout import play


def promises(env: Described, episodes: int = EPISODES, patience: int = 1) -> list[Finding]:
    """Every promise that was tested, the last ones by whoever trains."""
    accept(env)
    why = why_not_kept(env)
    findings = [Finding("its fields can be kept with a run", not why, why)]
    if not why:
        findings += check(env, episodes, patience)
    if all(finding.kept for finding in findings) and not isinstance(env, Hosted):
        findings.append(_plays_as_in_training(env))
    return findings


def must_keep_its_promises(env: Described) -> None:
    """Refuse to train on somebody's own class that breaks one. A worker may fail as often as in training, and one episode shows enough."""
    if not (outside := code_outside(env)):
        return
    hosted = isinstance(env, Hosted)
    findings = promises(env, 1 if hosted else EPISODES, env.patience if hosted else 1)
    for finding in findings:
        if not finding.kept:
            said = f"{finding.promise}{f': {finding.detail}' if finding.detail else ''}"
            raise UserError(f"{outside} breaks a promise, {said}. See all of them with: emc check-env {outside}")


def _plays_as_in_training(env: Any) -> Finding:
    method, key = make_method("vdn"), jax.random.key(0)
    try:
        actors = actors_of(method, init_learner(method, env.spec, key))
        jax.block_until_ready(jax.jit(lambda env: play(env, actors, key, jnp.ones(()), 2))(env))
    except Exception as error:  # whatever the user's class does wrong
        return Finding("it can be trained on", kept=False, detail=in_short(error))
    return Finding("it can be trained on", kept=True)
