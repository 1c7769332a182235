"""Odds of random success against exact distributions."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from emc.cli import main
from emc.envs import Climbing, Gridworld, NStepGame, Pass, PushBox
from emc.errors import UserError
from emc.suite.boards import numbered
from emc.suite.odds import Odds, measure
from emc.suite.tasks import SUITE, read
from tests.envs.test_gridworld import random_play_solved

CHUNK = 2**14


def exact(env: Any) -> float:
    """The chance that random play succeeds, from the distribution of all worlds step by step."""
    start, expand, worlds = numbered(env)
    found = np.array([start])
    after: dict[str, np.ndarray] = {}
    known = np.zeros(worlds, bool)
    known[start] = True
    blocks: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    while len(found):  # all worlds that can be reached
        for begin in range(0, len(found), CHUNK):
            some = found[begin : begin + CHUNK]
            padded = np.full(CHUNK, some[0], np.int32)
            padded[: len(some)] = some
            code, won = (np.asarray(part)[: len(some)] for part in expand(jnp.asarray(padded)))
            blocks.append((some, code, won))
        new = np.unique(np.concatenate([code[~won] for _, code, won in blocks[-math.ceil(len(found) / CHUNK) :]]))
        found = new[~known[new]]
        known[found] = True
    after["from"], after["code"], after["won"] = (np.concatenate([block[part] for block in blocks]) for part in range(3))
    place, chance = np.zeros(worlds), 0.0
    place[start] = 1.0
    for _ in range(env.spec.episode_limit):
        here = place[after["from"]][:, None] / after["code"].shape[1]
        chance += float((here * after["won"]).sum())
        place = np.bincount(after["code"].reshape(-1), (here * ~after["won"]).reshape(-1), worlds)
    return chance


def deviation(odds: Odds, chance: float) -> float:
    return math.sqrt(chance * (1 - chance) / odds.episodes)


def test_measured_odds_are_the_exact_ones_of_a_small_board() -> None:
    env = Pass(size=5, episode_limit=100)
    odds, chance = measure(env, 20_000), exact(env)
    assert abs(odds.wins / odds.episodes - chance) < 4 * deviation(odds, chance)
    assert odds.mean_return == odds.wins / odds.episodes
    assert odds.wins > 10


@pytest.mark.slow
@pytest.mark.parametrize(("name", "env"), [("pass", Pass()), ("push-box", PushBox())])
def test_kept_odds_are_the_exact_ones(name: str, env: Any) -> None:
    odds, chance = read()[name].odds, exact(env)
    assert abs(odds.wins / odds.episodes - chance) < 4 * deviation(odds, chance)


def test_kept_odds_of_the_gridworld_are_the_exact_ones() -> None:
    odds, (chance, _, _) = read()["gridworld"].odds, random_play_solved()
    assert abs(odds.wins / odds.episodes - chance) < 4 * deviation(odds, chance)


def test_random_returns_are_those_of_the_tables() -> None:
    odds = measure(Climbing(), 5_000)
    table = np.array(Climbing().payoff)
    assert odds.mean_return == pytest.approx(25 * table.mean(), abs=4 * math.sqrt(25 / 5_000) * table.std())
    assert odds.wins == 0
    odds = measure(NStepGame(steps=2), 5_000)  # two of four branches pay 1, then one of four pairs 1 or, after (0, 0), 1, 1, 1 or 4
    chance = 1 / 4 * 1 / 4
    assert abs(odds.wins / odds.episodes - chance) < 4 * deviation(odds, chance)


def test_the_same_seed_measures_the_same_and_an_odd_number_of_episodes_is_counted() -> None:
    env = Gridworld(rows=5, columns=6)
    assert measure(env, 5_000, 3) == measure(env, 5_000, 3)
    assert measure(env, 5_000, 3) != measure(env, 5_000, 4)
    assert measure(env, 4_097).episodes == 4_097
    with pytest.raises(UserError, match="0 episodes cannot be played"):
        measure(env, 0)


def test_wilsons_interval_by_hand() -> None:
    low, high = Odds(10, 5, 0.5).interval()
    assert (low, high) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    low, high = Odds(100, 0, 0.0).interval()
    assert low == pytest.approx(0.0, abs=1e-12)
    assert high == pytest.approx(1.96**2 / (100 + 1.96**2))


def test_the_command_lists_the_suite(capsys: pytest.CaptureFixture[str]) -> None:
    main(["suite"])
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == len(SUITE) + 3
    assert rows[0].split()[:3] == ["task", "limit", "trap"]
    (line,) = [row for row in rows if row.startswith("gridworld slip=0.5")]
    assert "0.930 won" in line
    assert "30" in line


def test_the_command_measures_anew_and_adds_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "odds.json"
    main(["suite", "--tasks", "climbing", "--episodes", "50", "--out", str(out)])
    main(["suite", "--tasks", "n-step", "--episodes", "60", "--seed", "5", "--out", str(out)])
    shown = capsys.readouterr().out
    assert "n-step-game" in shown.splitlines()[5]
    assert {name: line.odds.episodes for name, line in read(out).items()} == {"climbing": 50, "n-step-game": 60}
    out.write_text(json.dumps({"tasks": {"climbing": {"odds": 3}}}))
    with pytest.raises(SystemExit) as stop:
        main(["suite", "--tasks", "climbing", "--episodes", "50", "--out", str(out)])
    assert stop.value.code == 2
    assert "not a file that `emc suite --out` writes" in capsys.readouterr().err
