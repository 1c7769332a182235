"""Commands about the best possible play: `suite` and `optimum`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

from emc.commands.parsing import parse, take
from emc.commands.training import prepare_jax
from emc.errors import UserError


@dataclasses.dataclass(frozen=True)
class SuiteFlags:
    """The tasks where exploration is the bottleneck, with the odds of random success and the optimum."""

    episodes: int = 0  # measure random play anew, over so many episodes of each task; 0: show what was measured before
    seed: int = 0  # of these episodes
    tasks: str = ""  # only those whose names contain this
    out: Path | None = None  # also write what was measured, as JSON; other tasks that are in there stay


def suite(words: list[str]) -> None:
    from emc.suite.listing import SUITE, known, read, table, write

    flags: SuiteFlags = parse("emc suite", SuiteFlags, words)
    if flags.episodes < 0:
        raise UserError(f"--episodes {flags.episodes} must be at least 0")
    if flags.out is not None and not flags.episodes:
        raise UserError("--out writes what is measured: say with --episodes over how many")
    chosen = [entry for entry in SUITE if flags.tasks in entry.name]
    if not chosen:
        raise UserError(f"no task of the suite is called like {flags.tasks!r}; they are: {', '.join(entry.name for entry in SUITE)}")
    lines = {} if flags.episodes else read()
    if flags.episodes:
        prepare_jax()
        for entry in chosen:
            lines[entry.name] = known(entry, flags.episodes, flags.seed)
    lines = {entry.name: lines[entry.name] for entry in chosen if entry.name in lines}
    rows = table(lines)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print("\nRandom: uniform among available actions, 95 % intervals. Optimum: exact but for `at most`; won by the best play at gamma 0.9.")
    if flags.out is not None:
        from emc.runs.directory import explained

        with explained(flags.out):
            write({**(read(flags.out) if flags.out.exists() else {}), **lines}, flags.out)


def optimum(words: list[str]) -> None:
    import tyro

    from emc.envs import make_env
    from emc.envs.registry import task
    from emc.suite import GAMMA, known_optimum

    rest = [f"--{word.removeprefix('--env.')}" if word.startswith("--env.") else word for word in take(words, "ENV")]
    usual = make_env(words[0])
    flat = tyro.conf.arg(name="")
    kind = dataclasses.make_dataclass("Flags", [("gamma", float), ("env", Annotated[type(usual), flat])], frozen=True)
    about = f"What the best possible play earns on {words[0]}; --gamma is the discount it is best for."
    given: Any = parse(f"emc optimum {words[0]}", kind, rest, kind(GAMMA, usual), about)
    for field, value in task(words[0]).fields.items():
        if getattr(given.env, field) != value:
            raise UserError(f"--{field} {getattr(given.env, field)} is not {words[0]}: leave it out, or name another task")
    prepare_jax()
    for line in _told(known_optimum(given.env, given.gamma)):
        print(line)


def _told(best: Any) -> list[str]:
    """An optimum in words."""
    if not best.exact:
        return [f"return at most {best.best.episode_return:g} ({best.how})"]
    lines = [f"exact, by {best.how}"]
    if best.steps is not None:
        lines.append(f"shortest success    {best.steps} steps")
    lines.append(f"{f'best at gamma {best.gamma:g}':<19} {_play(best.best)}")
    own = "the same: each agent can play its part of it with what it sees"
    if best.decentralised is not None:
        own = f"{_play(best.decentralised)}; the best found for agents that act on what they see"
    lines.append(f"decentralised       {own}")
    if best.best_return is not None:
        lines.append(f"highest return      {best.best_return:.6g}")
    if best.best_win_rate is not None:
        lines.append(f"highest win rate    {best.best_win_rate:.4f}, whatever it costs")
    return lines


def _play(play: Any) -> str:
    won = "" if play.win_rate is None else f", wins {play.win_rate:.4f}"
    return f"value {play.value:.6g}, return {play.episode_return:.6g}{won}"
