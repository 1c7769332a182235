"""The trained agents of a run, weights only, as the policy that comes with the package for its task.

    python experiments/ship.py RUN [--episodes N] [--seed S]

Measures its score over N complete greedy episodes (1,000), and keeps it in `emc/trained_agents` unless what is there for the task scores
as much.
"""

from __future__ import annotations

import argparse

import jax
import jax.numpy as jnp

from emc.api import load
from emc.envs import TASKS, make_env
from emc.runs import policies
from emc.runs.config import config_of
from emc.runs.directory import RunDirectory
from emc.training.rollout import play


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--episodes", type=int, default=1_000)
    parser.add_argument("--seed", type=int, help="which agents, where the run trained several")
    arguments = parser.parse_args()
    policy, config = load(arguments.run, arguments.seed), config_of(RunDirectory.open(arguments.run))
    name = config.env_name
    if name not in TASKS or "/" in name or config.env != make_env(name):
        raise SystemExit(f"{arguments.run}: was not trained on a task as emc has it")
    outcome = jax.jit(lambda key: play(policy.env, policy.actors, key, jnp.zeros(()), arguments.episodes)[1])(jax.random.key(12345))
    score = float(jnp.mean(outcome.won if policy.spec.winnable else outcome.episode_return))
    before = policies.load_shipped(name).score if name in policies.shipped() else None
    print(f"{config.method_name} on {name}: {score:g} over {arguments.episodes} episodes; shipped before: {before}")
    if before is None or score > before:
        kept = policies.Kept(policy.actors, config, policy.seed, policy.step, score, arguments.episodes)
        policies.save(policies.SHIPPED / name, kept)


if __name__ == "__main__":
    main()
