"""The Python API: train a method, go on with it, look at what it measured, act with what it learned."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from emc.display import LiveDisplay, PlainDisplay
from emc.envs import make_env
from emc.envs.base import HasSpec
from emc.envs.registry import task, task_of
from emc.errors import UserError
from emc.loggers import Logger, logged_by, names_in, with_loggers
from emc.methods import Method, Preset, make_method
from emc.parts import Actors
from emc.policies.exploration import act_greedily, values_of
from emc.report.site import run_directories
from emc.runs import policies, session
from emc.runs.config import RunConfig, budget_of, config_of
from emc.runs.directory import RunDirectory
from emc.runs.measurements import Series, rows, series
from emc.runs.reading import METRICS, SPEED, last_line
from emc.runs.restoring import is_finished, restored
from emc.runs.session import Display, Keeping, Silent
from emc.runs.trust import Trusted
from emc.statistics import final
from emc.training.learner import tested
from emc.training.loop import Budget
from emc.training.rollout import begin_compiled

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


class Run:
    """A run on disk: what it was asked to do, what it measured, and the agents that it trained."""

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory

    @property
    def path(self) -> Path:
        """Its directory."""
        return self.directory.path

    @property
    def config(self) -> RunConfig:
        """What it was asked to do: `config.method`, `config.env`, `config.budget`, `config.seeds`."""
        return config_of(self.directory)

    @property
    def method_name(self) -> str:
        """What its method is called."""
        return str(self.directory.manifest.get("method_name"))

    @property
    def env_name(self) -> str:
        """What its environment is called."""
        return str(self.directory.manifest.get("env_name"))

    @property
    def finished(self) -> bool:
        """Whether it came to its end."""
        return is_finished(self.path)

    @property
    def steps(self) -> int:
        """Environment steps at its last test."""
        line = last_line(self.path / SPEED)
        return line["steps"] if line else 0

    def metrics(self, name: str = "test_win_rate") -> Series:
        """Steps and values, each `[seeds, points]`; not a number where a seed has fewer points than another.

        `test_win_rate`, `test_return` and `test_length` are means over the greedy episodes of a test; `train_return` and the like, and all
        that a method reports (`loss`, `epsilon`, `reward_intrinsic`, ...), are of training.
        """
        return series(self.directory.lines(METRICS), name, self.config.seeds)

    @property
    def score(self) -> float:
        """Its final score, as reports and claims have it: the mean of a seed's last five tests, of several seeds the median.

        Of tests it is the win rate, or the return where nothing can be won.
        """
        values = self.metrics("test_win_rate" if self.config.env.spec.winnable else "test_return").values
        return float(np.median([final(own[np.isfinite(own)].tolist()) for own in values]))

    def frame(self) -> pandas.DataFrame:
        """All that was measured, a row for each seed and step, as a table of pandas."""
        try:
            import pandas
        except ImportError as error:
            raise UserError("a frame needs an extra package: pip install pandas. Without it, metrics(name) gives arrays") from error
        return pandas.DataFrame(rows(self.directory.lines(METRICS)))

    def policy(self, seed: int | None = None) -> LoadedPolicy:
        """The agents of its last good checkpoint, of the first seed unless another is named."""
        return load(self.directory, seed)

    def figure(self) -> Figure:
        """Its learning curve."""
        from emc.report.curves import group_runs, plot_curves

        return plot_curves(group_runs([self.directory]))

    def __repr__(self) -> str:
        seeds = len(self.config.seeds)
        return f"Run({str(self.path)!r}: {self.method_name} on {self.env_name}, {seeds} seed{'s' * (seeds > 1)}, {self.steps:,} steps)"


def train(
    method: str | Method,
    env: str | HasSpec,
    *,
    preset: str = "",
    seeds: int | tuple[int, ...] = 1,
    runs: str | Path = "runs",
    method_name: str = "custom",
    env_name: str = "",
    start_from: str | Path | Run = "",
    trust: Trusted = (),
    log: str | Sequence[str | Logger] = (),
    progress: bool | None = None,
    keeping: Keeping = Keeping(),
    display: Display | None = None,
    command: str = "",
    **budget: int,
) -> Run:
    """Train a method on an environment; `seeds` is how many, or which.

    `preset` says whose constants a method that is named has; without it the environment does. `steps`, `evaluate_every`, `test_episodes`
    and `parallel_envs` override the task's own; an environment with changed fields is still of its task. `start_from` is a run whose
    networks to begin with; `trust` names code outside the package that it may be made of. `log` says where else
    numbers go: "tensorboard,csv", or a list of such names and loggers of your own (`emc.loggers`). `progress` is shown in a notebook or a
    terminal unless it is False.
    """
    known = task(env) if isinstance(env, str) else task_of(env)
    default = budget_of(known) if known else Budget()
    unknown = set(budget) - {field.name for field in dataclasses.fields(Budget)}
    if unknown:
        own = [name for name, parameter in inspect.signature(train).parameters.items() if parameter.kind is parameter.KEYWORD_ONLY]
        known_ones = ", ".join([*(field.name for field in dataclasses.fields(Budget)), *own])
        raise UserError(f"unknown option {', '.join(sorted(unknown))}; known: {known_ones}")
    whose = Preset.of(preset, known.name if known else "this environment", known.preset if known else "released")
    config = RunConfig(
        method_name=method if isinstance(method, str) else method_name,
        method=make_method(method, whose.name, known.name if known else "") if isinstance(method, str) else method,
        env_name=env if isinstance(env, str) else env_name or (known.name if known else "custom"),
        env=make_env(env) if isinstance(env, str) else env,
        budget=dataclasses.replace(default, **budget),
        seeds=tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds),
        start_from=str(start_from.path if isinstance(start_from, Run) else start_from),
    )
    loggers = names_in(log) if isinstance(log, str) else log
    shown = with_loggers(display or display_for(progress, config), loggers)
    named = [one for one in loggers if isinstance(one, str)]
    preset_said = whose if isinstance(method, str) else None
    return Run(session.start(config, Path(runs), keeping, shown, command, preset=preset_said, trust=trust, log=named))


def resume(
    run: str | Path | Run,
    *,
    steps: int | None = None,
    trust: Trusted = (),
    log: str | Sequence[str | Logger] = (),
    progress: bool | None = None,
    keeping: Keeping | None = None,
    display: Display | None = None,
) -> Run:
    """Go on with a run from its last good checkpoint; with `steps`, so many in all, also with one that is finished."""
    directory = run.directory if isinstance(run, Run) else RunDirectory.open(run, trust)
    loggers = dict.fromkeys([*logged_by(directory), *(names_in(log) if isinstance(log, str) else log)])
    shown = with_loggers(display or display_for(progress, config_of(directory)), [*loggers])
    return Run(session.resume(directory.path, keeping, shown, trust=directory.trust, steps=steps))


def runs(
    *roots: str | Path,
    method: str | None = None,
    env: str | None = None,
    finished: bool | None = None,
    where: Callable[[Run], bool] = lambda run: True,
    trust: Trusted = (),
) -> list[Run]:
    """The runs below some directories (`runs` if none is named), by path: all, or those of a method, on an environment, finished or not.

    `where` may ask for anything else: `emc.runs(where=lambda run: run.config.method.gamma > 0.9)`. What cannot be read is passed over.
    """
    found: list[Run] = []
    for root in roots or ("runs",):
        if not Path(root).is_dir():
            raise UserError(f"{root}: no such directory. Name one that holds runs")
        for path in run_directories(Path(root)):
            try:
                run = Run(RunDirectory.open(path, trust))
                wanted = (
                    method in (None, run.method_name) and env in (None, run.env_name) and finished in (None, run.finished) and where(run)
                )
            except UserError:
                continue
            found += [run] if wanted else []
    return found


def display_for(progress: bool | None, config: RunConfig) -> Display:
    """Who watches: a live display in a terminal, lines in a notebook, nobody elsewhere or where progress is not wanted."""
    notebook = "ipykernel" in sys.modules
    if progress is False or (progress is None and not (notebook or sys.stdout.isatty())):
        return Silent()
    winnable = config.env.spec.winnable
    return LiveDisplay(winnable) if sys.stdout.isatty() and not notebook else PlainDisplay(winnable)


class LoadedPolicy:
    """Trained agents, acting greedily, in one episode or in many side by side; call `reset` at the start of every episode."""

    def __init__(self, actors: Actors, env: HasSpec, seed: int = 0, step: int = 0, warnings: tuple[str, ...] = ()):
        self.actors, self.env, self.spec, self.seed = actors, env, env.spec, seed
        self.step, self.warnings = step, warnings  # of training, and a line for each newer checkpoint that could not be used
        self._key = jax.random.key(seed)
        self._carry: Any = None
        self._acted = False
        if not actors.policy.reads_first_state:
            self.reset()

    def reset(self, state: Any = None, episodes: int | None = None, only: Any = None) -> None:
        """Forget the episode so far; `state` is the global state it begins in, which few methods need.

        With `episodes` so many begin side by side (a `state` is then `[episodes, size]`); `only` marks those of them that begin again.
        """
        size = 1 if episodes is None else episodes
        if only is not None:
            mask = np.asarray(only, bool)
            if self._carry is None or mask.shape != (len(self._previous),):
                raise UserError(f"only has shape {mask.shape}: mark each of the episodes that were begun with reset(episodes=...)")
            size = len(mask)
        if state is None and self.actors.policy.reads_first_state:
            raise UserError("these agents decide on how to begin from the global state: give it as reset(state=...)")
        first = np.zeros((size, self.spec.state_size)) if state is None else np.asarray(state)
        if first.shape not in ((size, self.spec.state_size), *([(self.spec.state_size,)] if size == 1 else [])):
            wanted = (size, self.spec.state_size) if size > 1 else (self.spec.state_size,)
            raise UserError(f"state has shape {first.shape}, this policy expects {wanted}")
        first = first.reshape(size, self.spec.state_size)
        carry, previous = begin_compiled(self.actors, self.spec, first, self._keys(size)), np.full((size, self.spec.n_agents), -1, np.int32)
        if only is not None:
            mask = np.asarray(only, bool)
            carry, previous = jax.tree.map(
                lambda new, old: jnp.where(mask.reshape(-1, *[1] * (new.ndim - 1)), new, old),
                (carry, previous),
                (self._carry, self._previous),
            )
        self._carry, self._previous, self._acted = carry, previous, only is not None

    def act(self, obs: Any, available: Any) -> np.ndarray:
        """The joint action for observations `[agents, size]` and availability `[agents, actions]`; for many episodes at once both have an
        axis of episodes before these, and so has the answer."""
        seen = self._seen(obs, available)
        self._carry, self._previous = _act(self.actors, self._carry, *seen, self._previous, self._keys(len(self._previous)))
        self._acted = True
        action = np.asarray(self._previous)
        return action if np.ndim(obs) == 3 else action[0]

    def values(self, obs: Any, available: Any) -> np.ndarray:
        """What the agents expect of each action at this moment, `[agents, actions]`; asking is not acting, and changes nothing."""
        seen = self._seen(obs, available)
        keys = jax.random.split(self._key, len(self._previous))
        found = np.asarray(_values(self.actors, self._carry, *seen, self._previous, keys))
        return found if np.ndim(obs) == 3 else found[0]

    def _seen(self, obs: Any, available: Any) -> tuple[np.ndarray, np.ndarray]:
        """Both arrays with an axis of episodes; the first that come decide how many there are."""
        many = np.ndim(obs) == 3
        if self._carry is None:
            raise UserError("call reset(state=...) before the first action")
        if many and not self._acted and len(self._previous) != len(obs) and not self.actors.policy.reads_first_state:
            self.reset(episodes=len(obs))
        episodes = (len(self._previous),) if many else ()
        wanted = {
            "obs": (*episodes, self.spec.n_agents, self.spec.obs_size),
            "available": (*episodes, self.spec.n_agents, self.spec.n_actions),
        }
        seen = {"obs": np.asarray(obs), "available": np.asarray(available, bool)}
        for name, array in seen.items():
            if array.shape != wanted[name]:
                raise UserError(f"{name} has shape {array.shape}, this policy expects {wanted[name]}")
        if not many and len(self._previous) != 1:
            raise UserError(f"{len(self._previous)} episodes were begun, and this is one: call reset() first")
        return (seen["obs"], seen["available"]) if many else (seen["obs"][None], seen["available"][None])

    def _keys(self, count: int) -> Any:
        self._key, key = jax.random.split(self._key)
        return jax.random.split(key, count)


# Compiled once for all policies of the same form.
_act = jax.jit(jax.vmap(act_greedily, in_axes=(None, 0, 0, 0, 0, 0)))
_values = jax.jit(jax.vmap(values_of, in_axes=(None, 0, 0, 0, 0, 0)))


def shipped(task: str) -> LoadedPolicy:
    """The trained agents that come with the package for a task: `emc.shipped("gridworld")`."""
    kept = policies.load_shipped(task)
    return LoadedPolicy(jax.device_put(kept.actors), kept.config.env, kept.seed, kept.step)


def load(run: str | Path | Run | RunDirectory, seed: int | None = None, *, trust: Trusted = ()) -> LoadedPolicy:
    """The agents of a run's last good checkpoint; `seed` picks one where the run trained several, else it is the first.

    `trust` names code outside the package that the run may be made of: `["my_parts:Mine"]`, or the class itself.
    """
    if isinstance(run, Run):
        run = run.directory
    directory = run if isinstance(run, RunDirectory) else RunDirectory.open(run, trust)
    directory.must_belong_together()
    config = config_of(directory)
    chosen = config.seeds[0] if seed is None else seed
    if chosen not in config.seeds:
        raise UserError(f"seed {seed} was not trained in this run; it has {', '.join(map(str, config.seeds))}")
    found, _ = restored(directory, config)
    learner = found.tree.learner
    if len(config.seeds) > 1:
        learner = jax.tree.map(lambda x: x[config.seeds.index(chosen)], learner)
    actors = tested(config.method, learner)
    return LoadedPolicy(jax.device_put(actors), config.env, chosen, found.step, tuple(found.warnings))
