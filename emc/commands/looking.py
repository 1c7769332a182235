"""Commands that look at runs: `evaluate`, `render`, `report` and `export`; and `demo`, which trains one to look at."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emc.commands.parsing import note, parse, selections, take
from emc.commands.scripting import evaluate_script
from emc.commands.training import prepare_jax
from emc.errors import UserError

MOST_EPISODES = 100_000
SIDE_BY_SIDE = 256  # episodes that `evaluate` plays at once


@dataclasses.dataclass(frozen=True)
class EvaluateFlags:
    """Complete greedy episodes with the trained agents."""

    episodes: int = 32
    seed: int = 0  # of the episodes' randomness
    trained_seed: int | None = None  # which agents, where the run trained several; default: the first


def evaluate(words: list[str]) -> None:
    if words[:1] == ["--script"]:
        evaluate_script(words[1:])
        return
    import jax
    import jax.numpy as jnp
    import numpy as np

    from emc.envs.hosted import Hosted
    from emc.envs.workers import Workers
    from emc.training.host_loop import play_hosted
    from emc.training.rollout import play

    flags = parse("emc evaluate RUN", EvaluateFlags, take(words, "RUN"))
    if flags.episodes < 1:
        raise UserError(f"--episodes {flags.episodes} must be at least 1")
    if flags.episodes > MOST_EPISODES:
        raise UserError(f"--episodes {flags.episodes} is more than anybody needs; the most is {MOST_EPISODES}")
    policy = _loaded(Path(words[0]), flags.trained_seed)
    prepare_jax()
    key, never = jax.random.key(flags.seed), jnp.zeros(())
    if isinstance(policy.env, Hosted):
        with contextlib.closing(Workers(policy.env, min(flags.episodes, os.cpu_count() or 1))) as workers:
            blocks = [play_hosted(workers, policy.actors, key, never, flags.episodes)[1]]
    else:  # only outcomes leave the compiled program, and not all episodes are played at once: whole ones would fill the memory
        size = min(flags.episodes, SIDE_BY_SIDE)
        some = jax.jit(lambda env, actors, key: play(env, actors, key, never, size)[1])
        blocks = [some(policy.env, policy.actors, jax.random.fold_in(key, i)) for i in range(-(-flags.episodes // size))]
    outcome = jax.tree.map(lambda *parts: np.concatenate(parts)[: flags.episodes], *blocks)
    returns = outcome.episode_return
    if policy.spec.winnable:
        print(f"win rate {np.mean(outcome.won):.3f}")
    print(f"return   {np.mean(returns):.3f} (from {returns.min():.3f} to {returns.max():.3f})")
    print(f"length   {np.mean(outcome.length):.1f}")
    print(f"episodes {flags.episodes}, greedy, complete, agents of seed {policy.seed} after {policy.step:,} steps")


def _loaded(run: Path, trained_seed: int | None) -> Any:
    """A run's agents; what had to be passed over to find them is said."""
    from emc.api import load

    policy = load(run, trained_seed)
    for warning in policy.warnings:
        note(f"skipped a checkpoint: {warning}")
    return policy


@dataclasses.dataclass(frozen=True)
class RenderFlags:
    """An episode of the trained agents as a GIF."""

    out: Path | None = None  # default: episode.gif in the run directory
    seed: int = 0  # of the episode's randomness
    trained_seed: int | None = None  # which agents, where the run trained several; default: the first
    vision: int | None = None  # an agent: shade what it does not see (battles)


def render(words: list[str]) -> None:
    from emc.runs.directory import EPISODE

    flags = parse("emc render RUN", RenderFlags, take(words, "RUN"))
    prepare_jax()
    print(_rendered(Path(words[0]), flags.out or Path(words[0]) / EPISODE, flags.seed, flags.trained_seed, flags.vision))


def _rendered(run: Path, out: Path, seed: int = 0, trained_seed: int | None = None, vision: int | None = None) -> Path:
    import jax

    from emc.envs.base import Drawn, Environment
    from emc.report.animation import animate, record

    policy = _loaded(run, trained_seed)
    env = policy.env
    if not isinstance(env, Environment):
        raise UserError(f"{run}: its environment runs in worker processes and cannot be drawn here")
    if not isinstance(env, Drawn):
        raise UserError(f"{run}: its environment cannot be drawn. Give it the methods occupancy, draw and draw_outlines of emc.envs.base")
    animate(env, record(env, policy.actors, jax.random.key(seed)), out, vision)
    return out


@dataclasses.dataclass(frozen=True)
class ReportFlags:
    """One self-contained page about one or several runs, or about all runs in a directory, which is `runs` if none is named.

    With --watch the page is not written but served on a loopback address, and made anew while runs go on, until Ctrl-C.
    """

    out: Path | None = None  # default: report.html in the directory, or here for several
    episodes: int = 4  # runs to render an episode of, the best of each method first; older ones are shown too. --watch renders none
    watch: bool = False
    port: int = 8642  # of --watch; 0: any that is free


def report(words: list[str]) -> None:
    from emc.report.site import Site

    values, roots = selections([word for word in words if word != "--watch"], {"out", "episodes", "port"})
    unknown = [word for word in roots if word.startswith("-")]
    given = [word for name, value in values.items() for word in (f"--{name}", value)]
    flags: ReportFlags = parse("emc report DIR ...", ReportFlags, [*given, *unknown])
    if not roots:
        if not Path("runs").is_dir():
            raise UserError("RUN expected: name one or several run directories, or a directory that holds some. See emc --help")
        roots = ["runs"]
    if flags.episodes < 0:
        raise UserError(f"--episodes {flags.episodes} must be at least 0")
    paths = [Path(root) for root in roots]
    if "--watch" not in words:
        if "port" in values:
            raise UserError("--port belongs to --watch, which serves the page instead of writing it")
        prepare_jax()
        print(_reported(paths, flags.out, flags.episodes))
        return
    if flags.out is not None:
        raise UserError("--watch serves the page and writes no file: leave out either --watch or --out")
    _watched(Site(paths), flags)


def _watched(site: Any, flags: ReportFlags) -> None:
    """Serve until Ctrl-C."""
    import threading

    from emc.report.watch import Watch

    for root in site.roots:
        if not root.is_dir():
            raise UserError(f"{root}: no such directory. Name a run directory, or one that holds some or will.")

    watch = Watch(site, flags.port, _say_left_out)
    print(f"{watch.address} (Ctrl-C ends it)", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        watch.run(threading.Event())


@dataclasses.dataclass(frozen=True)
class ExportFlags:
    """The tests of runs, named or found below a directory, in the JSON format of marl-eval."""

    out: Path = Path("marl-eval.json")


def export(words: list[str]) -> None:
    from emc.files import explained, written_whole
    from emc.report.curves import group_runs
    from emc.report.marl_eval import marl_eval
    from emc.report.site import Site

    chosen, roots = selections(words, {"out"})
    if unknown := [word for word in roots if word.startswith("-")]:
        parse("emc export RUN ...", ExportFlags, unknown)
    if not roots:
        raise UserError("RUN expected: name one or several run directories, or a directory that holds some. See emc --help")
    site, out = Site([Path(root) for root in roots]), Path(chosen.get("out") or "marl-eval.json")
    runs = site.runs()
    for problem in site.problems:
        _say_left_out(problem)
    if not runs:
        raise UserError(f"{', '.join(roots)}: no runs there. Name run directories, or a directory that holds some")
    tree = marl_eval(group_runs(runs))
    with explained(out), written_whole(out) as beside:
        beside.write_text(json.dumps(tree) + "\n")
    print(out)


def _reported(paths: list[Path], out: Path | None, episodes: int) -> Path:
    from emc.report.page import write_report
    from emc.report.site import Site

    site = Site(paths)
    runs = site.runs()
    for problem in site.problems:
        _say_left_out(problem)
    if not runs:
        raise UserError(f"{', '.join(map(str, paths))}: no runs in there. Name run directories, or a directory that holds some.")
    out = out or (paths[0] / "report.html" if len(paths) == 1 else Path("report.html"))
    _render_some(runs, episodes)
    write_report(runs, out, say=_say_left_out)
    return out


def _say_left_out(what: str) -> None:
    note(f"left out: {what}")


def _render_some(runs: Sequence[Any], most: int) -> None:
    """Animate an episode of some runs, the best of each method first."""
    from emc.report.site import best_first
    from emc.runs.directory import EPISODE

    playable = [run for run in best_first(runs) if run.steps()] if most else []
    if most and not playable:
        note("no animation: there is no checkpoint to play from")
    for run in playable[:most]:
        try:
            _rendered(run.path, run.path / EPISODE)
        except UserError as error:  # the page is worth having without an episode
            note(f"no animation: {error}")


@dataclasses.dataclass(frozen=True)
class DemoFlags:
    """Train EMC-VDN on the gridworld (p = 2) until it wins, then write a report page."""

    runs: Path = Path("demo")
    seed: int = 2
    steps: int = 300_000  # at most


def demo(words: list[str]) -> None:
    from emc.demo import run_demo

    flags = parse("emc demo", DemoFlags, words)
    prepare_jax()
    run = run_demo(flags.runs, flags.seed, flags.steps)
    print(f"open this page: {_reported([run], None, 1).resolve()}")
