"""Matrix games: which methods represent the values of a game, and which act optimally in it.

    python experiments/matrix_games.py RUNS [GAME ...]      RUNS: directory that keeps the runs; GAME: one-step-game, two-step-game

Claims: under uniform exploration QTRAN, QPLEX and weighted QMIX end with the optimal joint action of the one-step game, VDN and QMIX do not
(Son et al. 2019, Rashid et al. 2020); on the two-step game QMIX takes the branch that pays 8 and VDN the one that pays 7 (Rashid et al.
2018). Every method trains its seeds side by side in one run; a finished run under RUNS is not made again. The learned tables go to
`results/GAME/values.json`, and `python experiments/results.py page` shows them.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import emc
from emc.envs import make_env
from emc.envs.base import Environment
from emc.lanes import Lanes, lay_episodes
from emc.losses import Qtran, Weighted
from emc.losses.td import greedy_actions, mix_now
from emc.methods import Method, make_method
from emc.mixers.qplex import QPLEX
from emc.parts import Actors, Seen
from emc.runs.config import RunConfig
from emc.runs.directory import RunDirectory
from emc.runs.restoring import is_finished
from emc.runs.session import config_of
from emc.schedules import Epsilon
from emc.training.learner import LearnerState, actors_of
from emc.training.loop import Program
from emc.types import Episodes

ROOT = Path(__file__).parents[1]
SEEDS = 3
MATRIX_QPLEX = QPLEX(kernels=10, layers=3)  # what QPLEX's own release sets for matrix games; EMC's sets 4 and 2 for its small tasks


def _uniform(name: str, **parts: Any) -> Method:
    return dataclasses.replace(make_method(name), epsilon=Epsilon(start=1.0, finish=1.0), **parts)


GAMES: dict[str, dict[str, Method]] = {
    "one-step-game": {
        "vdn": _uniform("vdn"),
        "qmix": _uniform("qmix"),
        "qplex": _uniform("qplex", mixer=MATRIX_QPLEX),
        "qplex, 4 kernels, 2 layers": _uniform("qplex"),
        "qtran": _uniform("qtran"),
        "cw-qmix": _uniform("cw-qmix"),
        "ow-qmix": _uniform("ow-qmix"),
    },
    "two-step-game": {"vdn": _uniform("vdn"), "qmix": _uniform("qmix")},
}


def all_plays(env: Environment) -> Episodes:
    """Every sequence of joint actions of a deterministic game, one episode each."""
    spec = env.spec
    joint = list(itertools.product(range(spec.n_actions), repeat=spec.n_agents))
    plays = np.array(list(itertools.product(joint, repeat=spec.episode_limit)))

    def play(actions: jax.Array) -> Episodes:
        world, first = env.reset(jax.random.key(0))

        def step(carry: Any, action: jax.Array) -> Any:
            world, before = carry
            world, after = env.step(world, action, jax.random.key(0))
            return (world, after), (before, after)

        (_, last), (before, after) = jax.lax.scan(step, (world, first), actions)
        around = jax.tree.map(lambda x, y: jnp.concatenate([x, y[None]]), before, last)
        return Episodes(
            around.obs,
            around.state,
            around.available,
            actions,
            after.reward,
            after.terminated,
            jnp.cumsum(after.terminated) - after.terminated == 0,
        )

    return jax.vmap(play)(jnp.asarray(plays))


def learned_values(config: RunConfig, learner: LearnerState, plays: Episodes) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """The team's value along every play, the agents' own greedy actions at each of its moments, and a second value if there is one."""
    actors: Actors = actors_of(config.method, learner)
    count, _, _, n_actions = plays.available.shape
    lanes = lay_episodes(plays, count, partial(config.method.policy.inputs, n_actions=n_actions))
    online = Seen(learner.values.online, actors.unroll(lanes))
    fit = config.method.loss(actors, config.method.mixer, online, online, lanes, lanes.reward, config.method.gamma)
    second = second_value(config.method, actors, online, lanes)
    team, greedy, *rest = (lanes.by_episode(x) for x in (fit.q[..., 0], greedy_actions(online, lanes), *second.values()))
    return np.asarray(team), np.asarray(greedy), {name: np.asarray(values) for name, values in zip(second, rest, strict=True)}


def second_value(method: Method, actors: Actors, online: Seen, plays: Lanes) -> dict[str, jax.Array]:
    """What some papers print beside the team's value: QTRAN's transformed sum, weighted QMIX's unrestricted value."""
    match method.loss:
        case Qtran():
            total = mix_now(method.mixer, online, plays).q + online.nets.loss.value(plays.state)
            return {"sum of the agents' values and V": total[..., 0]}
        case Weighted():
            central = method.loss.central(actors, online, plays)
            return {"Q*": mix_now(method.loss.central_mixer, central, plays).q[..., 0]}
        case _:
            return {}


def trained(root: Path, game: str, method: Method, name: str) -> RunDirectory:
    """A finished run of exactly this method, made now if there is none."""
    for manifest in sorted(root.glob(f"{game}/{name}/*/manifest.json")):
        run = RunDirectory.open(manifest.parent)
        config = config_of(run)
        if is_finished(run.path) and config.method == method and config.budget.steps == BUDGETS[game]["steps"]:
            return run
    return emc.train(method, make_env(game), seeds=SEEDS, runs=root, method_name=name, env_name=game, **BUDGETS[game])


BUDGETS = {
    "one-step-game": {"steps": 5_000, "evaluate_every": 1_000, "test_episodes": 1},
    "two-step-game": {"steps": 10_000, "evaluate_every": 1_000, "test_episodes": 1},
}


def describe(label: str, run: RunDirectory) -> dict[str, Any]:
    """What each seed of a run has learned, move by move."""
    config = config_of(run)
    program = Program(config.method, config.budget, config.env, config.seeds)
    state = run.latest_checkpoint(jax.eval_shape(program.init)).tree
    plays = all_plays(config.env)
    seeds = []
    for i, seed in enumerate(config.seeds):
        learner = jax.tree.map(lambda x, i=i: jnp.asarray(x[i]), state.learner)
        q, greedy, others = learned_values(config, learner, plays)
        beside = {name: value.round(3).tolist() for name, value in others.items()}
        seeds.append({"seed": seed, "values": q.round(3).tolist(), "greedy": greedy.tolist(), "beside": beside})
    return {"label": label, "machine": run.manifest["machine"], "config": run.manifest["config"], "seeds": seeds}


def main(root: Path, games: list[str]) -> None:
    for game in games:
        plays = all_plays(make_env(game))
        found = {"actions": plays.action.tolist(), "rewards": plays.reward.tolist(), "methods": []}
        for label, method in GAMES[game].items():
            found["methods"].append(describe(label, trained(root, game, method, label.split(",")[0])))
            print(game, label, "done", flush=True)
        target = ROOT / "results" / game / "values.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    if unknown := set(sys.argv[2:]) - set(GAMES):
        raise SystemExit(f"unknown game {', '.join(unknown)}; known: {', '.join(GAMES)}")
    main(Path(sys.argv[1]), sys.argv[2:] or list(GAMES))
