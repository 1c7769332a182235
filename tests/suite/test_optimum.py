"""Optima against brute force, the published numbers, play of their own policies and plans, and what is kept of them."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.claims.catalogue import claim
from emc.cli import main
from emc.envs import Climbing, Gridworld, NStepGame, OneStepGame, Pass, Penalty, PredatorPrey, PushBox, SecretRoom, TwoStepGame, make_env
from emc.envs.gridworld import MOVES
from emc.errors import UserError
from emc.suite import known_optimum
from emc.suite.gridworld import _views, centralised, decentralise, evaluate, model_of
from emc.suite.optimum import Optimum
from emc.suite.tasks import SUITE, read
from tests.envs.board_twins import PassTwin, PushBoxTwin, SecretRoomTwin
from tests.envs.twins import GridworldTwin

KEY = jax.random.key(0)


# The gridworld.


@pytest.mark.parametrize(
    ("slip", "win", "own", "value"),
    [(0.0, 1.0, 1.0, 3.874), (0.1, 1.0, 1.0, 3.353), (0.2, 1.0, 1.0, 2.844), (0.3, 0.998, 0.998, 2.339), (0.5, 0.930, 0.929, 1.340)],
)
def test_the_gridworld_has_the_known_ceilings(slip: float, win: float, own: float, value: float) -> None:
    best = known_optimum(Gridworld(slip=slip))
    assert best.best.win_rate == pytest.approx(win, abs=5e-4)
    assert best.best.value == pytest.approx(value, abs=5e-4)
    decentralised = best.decentralised or best.best
    assert decentralised.win_rate == pytest.approx(own, abs=5e-4)
    assert decentralised.value <= best.best.value
    assert best.best_return is not None
    assert best.best_win_rate is not None
    assert best.best_return >= best.best.episode_return
    assert best.best_win_rate >= (best.best.win_rate or 0.0)


@pytest.mark.parametrize(("slip", "names"), [(0.3, ("chance", "one-setting", "what-parts-add")), (0.5, ("chance",))])
def test_claims_about_slips_know_what_the_best_possible_play_scores(slip: float, names: tuple[str, ...]) -> None:
    best = known_optimum(Gridworld(slip=slip), whole=False).score
    for name in names:
        found = {panel.best for panel in claim(name).paper if f"--env.slip {slip:g}" in panel.arms[0].words}
        assert found == {round(best, 3)}, name


@pytest.mark.parametrize(
    ("fields", "gamma"),
    [
        ({"penalty": 2.0, "slip": 0.3}, 0.9),
        ({"penalty": 0.0, "slip": 0.7}, 1.0),
        ({"penalty": 5.0, "slip": 1.0, "win_reward": 3.0}, 0.99),
        ({"penalty": 1.0, "slip": 0.0}, 0.5),
    ],
)
def test_a_small_gridworld_is_solved_as_by_brute_force(fields: dict[str, Any], gamma: float) -> None:
    env = Gridworld(rows=5, columns=6, episode_limit=6, **fields)
    best = known_optimum(env, gamma)
    assert best.best.value == pytest.approx(expected_value(GridworldTwin(rows=5, columns=6, **fields), 6, gamma), abs=1e-12)


def expected_value(twin: GridworldTwin, steps: int, gamma: float) -> float:
    """The best discounted return, by going through everything that can happen."""

    def moved(agent: int, place: tuple[int, int], action: int) -> dict[tuple[int, int], float]:
        twin.agents = [place, place]
        legal = twin.available(agent)
        moves = [move for move in legal if move != 4]
        outcomes: dict[tuple[int, int], float] = {}
        for taken, chance in [(action, 1 - twin.slip + twin.slip / (len(moves) + 1)), *((m, twin.slip / (len(moves) + 1)) for m in moves)]:
            down, right = [(-1, 0), (1, 0), (0, -1), (0, 1), (0, 0)][taken if taken in legal else 4]
            cell = (place[0] + down, place[1] + right)
            outcomes[cell] = outcomes.get(cell, 0.0) + chance
        return outcomes

    goals = ((twin.rows // 2, twin.columns // 2 - 1), (twin.rows // 2, twin.columns // 2))

    @functools.cache
    def value(first: tuple[int, int], second: tuple[int, int], left: int) -> float:
        if left == 0:
            return 0.0
        options = []
        for a, b in itertools.product(range(5), range(5)):
            total = 0.0
            for (one, p), (two, q) in itertools.product(moved(0, first, a).items(), moved(1, second, b).items()):
                on_goal = (one == goals[0]) + (two == goals[1])
                reward = {0: 0.0, 1: -twin.penalty, 2: twin.win_reward}[on_goal]
                total += p * q * (reward + (0.0 if on_goal == 2 else gamma * value(one, two, left - 1)))
            options.append(total)
        return max(options)

    return value((0, 0), (twin.rows - 1, twin.columns - 1), steps)


@pytest.mark.parametrize("vision", ["reversed", "pomdp"])
def test_the_decentralised_policy_attains_its_numbers_when_played(vision: Any) -> None:
    env, n = Gridworld(slip=0.5, vision=vision), 20_000
    best = known_optimum(env)
    assert best.decentralised is not None
    first, second = (jnp.asarray(table) for table in best.policy)
    half = env.columns // 2

    @jax.jit
    @jax.vmap
    def episode(key: jax.Array) -> Any:
        world, _ = env.reset(key)

        def move(now: Any, key: jax.Array) -> Any:
            world, over = now
            rows, columns = world.position[:, 0], world.position[:, 1]
            one, two = rows[0] * half + columns[0], rows[1] * half + columns[1] - half
            action = jnp.stack([first[world.time, one, two], second[world.time, one, two]])
            world, shown = env.step(world, action, key)
            return (world, over | shown.terminated), (jnp.where(over, 0.0, shown.reward), ~over & shown.won)

        _, (reward, won) = jax.lax.scan(move, (world, jnp.bool(False)), jax.random.split(key, env.episode_limit))
        return reward, jnp.any(won)

    reward, won = jax.device_get(episode(jax.random.split(jax.random.key(1), n)))
    returns, values = reward.sum(axis=1), reward @ 0.9 ** np.arange(env.episode_limit)
    for played, told in (
        (won, best.decentralised.win_rate),
        (returns, best.decentralised.episode_return),
        (values, best.decentralised.value),
    ):
        assert abs(played.mean() - told) < 4 * played.std() / math.sqrt(n)


def test_the_best_play_of_every_moment_is_found_by_hand_and_by_its_own_policy() -> None:
    """Without slips the nearer agent waits off its goal, then both step onto theirs at once, for 10; in too short a time nothing is won."""
    env = Gridworld()
    model, half = model_of(env), env.columns // 2
    row, column = np.divmod(np.arange(len(model.won)), half)
    away = [abs(row - goal[0]) + abs(column + agent * half - goal[1]) for agent, goal in enumerate(env.goals)]
    last = np.maximum(away[0][:, None], away[1])
    for left, value in enumerate(model.best(0.9, 30)[0][::-1], 1):
        wanted = np.where(last <= left, 10 * 0.9 ** (last - 1.0), 0.0)
        np.testing.assert_allclose(value[~model.won], wanted[~model.won], atol=1e-9)
    slippery = model_of(Gridworld(slip=0.5))
    values, joint = slippery.best(0.9, slippery.steps)
    first, second = np.divmod(joint, len(MOVES))
    assert evaluate(slippery, (first, second), 0.9).value == pytest.approx(values[0][slippery.start], rel=1e-12)
    assert evaluate(slippery, centralised(slippery, 0.9, slippery.reward), 0.9).value == pytest.approx(values[0][slippery.start], rel=1e-9)


def test_a_decentralised_policy_never_tells_apart_what_looks_the_same() -> None:
    model = model_of(Gridworld(slip=0.5))
    policies = decentralise(model, centralised(model, 0.9, model.reward), 0.9)
    for agent, policy in enumerate(policies):
        views = _views(model, agent).reshape(-1)
        for table in policy:
            of_view = np.zeros(views.max() + 1, int)
            of_view[views] = table.reshape(-1)
            assert np.array_equal(of_view[views], table.reshape(-1))


def test_rounding_decides_nothing() -> None:
    model = model_of(Gridworld(slip=0.5))
    noise = np.random.default_rng(0).normal(0.0, 1e-14, model.reward.shape)
    played = []
    for reward in (model.reward, model.reward + noise):
        rounded = dataclasses.replace(model, reward=reward)
        played.append(evaluate(model, decentralise(rounded, centralised(rounded, 0.9, reward), 0.9), 0.9))
    assert played[0] == played[1]


def test_agents_that_see_everything_keep_the_optimum_and_more_rounds_never_lose() -> None:
    model = model_of(Gridworld(slip=0.5, vision="full_observation"))
    best = centralised(model, 0.9, model.reward)
    assert evaluate(model, decentralise(model, best, 0.9), 0.9).value == pytest.approx(evaluate(model, best, 0.9).value)
    model = model_of(Gridworld(slip=0.5))
    values = [evaluate(model, decentralise(model, best, 0.9, rounds), 0.9).value for rounds in (1, 2, 3, 10)]
    assert (np.diff(values) > -1e-7).all()


# Boards.


@pytest.mark.parametrize(
    ("env", "twin"),
    [
        (Pass(), PassTwin()),
        (Pass(size=5), PassTwin(5)),
        (PushBox(), PushBoxTwin()),
        (SecretRoom(size=9), SecretRoomTwin(9)),
    ],
    ids=repr,
)
def test_the_shortest_way_is_that_of_a_search_in_plain_python(env: Any, twin: Any) -> None:
    best = known_optimum(env, 0.9)
    twin.reset()
    level, seen = [copy.copy(vars(twin))], set()
    for depth in range(1, 60):
        after = []
        for state, actions in itertools.product(level, itertools.product(range(4), range(4))):
            vars(twin).clear()
            vars(twin).update({name: copy.copy(value) for name, value in state.items()})  # lists of numbers and tuples at most
            if twin.step([*actions])["won"]:
                assert best.steps == depth
                assert best.best.value == pytest.approx(0.9 ** (depth - 1))
                return
            key = (*twin.agents, *twin.extras())
            if key not in seen:
                seen.add(key)
                after.append(dict(vars(twin)))
        level = after
    pytest.fail("nothing was found")


PLANS = {"pass": 13, "secret-room": 21, "push-box": 8, "pass-30": 33, "secret-room-25": 37, "push-box-15": 11}


def kept_as_computed(name: str, best: Optimum) -> None:
    line = read()[name]
    assert (line.score, line.best_return) == pytest.approx((best.score, best.best.episode_return), abs=1e-9)
    assert (line.exact, line.steps) == (best.exact, best.steps)


def test_what_is_kept_is_all_of_the_suite_and_as_computed_now() -> None:
    assert set(read()) == {entry.name for entry in SUITE} > set(PLANS)
    for entry in SUITE:
        assert read()[entry.name].odds.episodes >= 100_000
        if entry.name not in PLANS:  # which take long to find, and are looked at below
            kept_as_computed(entry.name, known_optimum(entry.make()))


@pytest.mark.parametrize(("name", "steps"), PLANS.items())
def test_the_plan_succeeds_at_its_last_step_and_is_kept_as_computed_now(name: str, steps: int) -> None:
    env: Any = make_env(name)
    best = known_optimum(env)
    kept_as_computed(name, best)
    assert best.steps == len(best.plan) == steps
    step = jax.jit(env.step)
    world, shown = jax.jit(env.reset)(KEY)
    for actions in best.plan:
        assert not shown.won
        world, shown = step(world, np.array(actions, np.int32), KEY)
    assert shown.won
    assert shown.reward == 1.0


def test_a_limit_that_is_too_short_leaves_nothing_to_win() -> None:
    assert known_optimum(Pass(episode_limit=13)).best.win_rate == 1.0
    best = known_optimum(Pass(episode_limit=12))
    assert (best.best.win_rate, best.best.episode_return, best.steps) == (0.0, 0.0, None)


# Matrix games.


@pytest.mark.parametrize("gamma", [1.0, 0.9, 0.1])
@pytest.mark.parametrize(
    "env",
    [
        OneStepGame(), OneStepGame(payoff=((-1.0, -5.0), (-3.0, -2.0))), TwoStepGame(),
        NStepGame(steps=4), NStepGame(steps=3, good_branches=4), NStepGame(steps=1),
        Climbing(episode_limit=3), Climbing(k=0.0, episode_limit=2), Penalty(episode_limit=3),
    ],
    ids=repr,
)  # fmt: skip
def test_games_are_solved_as_by_playing_everything(env: Any, gamma: float) -> None:
    best, n = known_optimum(env, gamma), env.spec.n_actions
    step = jax.jit(env.step)

    def most(world: Any) -> float:
        found = []
        for pair in itertools.product(range(n), range(n)):
            after, shown = jax.device_get(step(world, np.array(pair), KEY))
            found.append(float(shown.reward) + (0.0 if shown.terminated else gamma * most(after)))
        return max(found)

    world, _ = jax.device_get(env.reset(KEY))
    assert best.best.value == pytest.approx(most(world), abs=1e-5)
    earned = []
    for pair in best.plan:
        world, shown = jax.device_get(step(world, np.array(pair), KEY))
        earned.append(float(shown.reward))
    assert shown.terminated
    assert sum(earned) == pytest.approx(best.best.episode_return)
    assert np.dot(earned, gamma ** np.arange(len(earned))) == pytest.approx(best.best.value)
    if env.spec.winnable:
        assert bool(shown.won) == (best.best.win_rate == 1.0)


def test_climbing_and_penalty_have_the_published_optima() -> None:
    assert known_optimum(Climbing()).score == 275
    assert known_optimum(Penalty()).score == 250
    assert known_optimum(NStepGame()).best.episode_return == 13


# What cannot be computed.


def test_where_the_states_are_too_many_there_is_a_bound_or_one_line() -> None:
    bound = known_optimum(PredatorPrey())
    assert (bound.score, bound.exact) == (40.0, False)
    assert known_optimum(PredatorPrey(n_prey=3, capture_reward=2.0)).score == 6.0
    assert known_optimum(make_env("lbf/10x10-3p-3f")).score == 1.0
    with pytest.raises(UserError, match="no optimum of Battle is known"):
        known_optimum(make_env("3m"))
    with pytest.raises(UserError, match="too many to search"):
        known_optimum(PushBox(size=41))
    with pytest.raises(UserError, match="a side of 462 cells is too large"):
        known_optimum(Gridworld(rows=21, columns=44))
    with pytest.raises(UserError, match="has 147,573,952,589,676,412,928 states, too many to search"):
        known_optimum(SecretRoom(size=2**16))


def test_the_command_tells_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    main(["optimum", "gridworld", "--env.slip", "0.5"])
    told = capsys.readouterr().out
    assert "4,356 pairs of cells and 30 steps" in told
    assert "best at gamma 0.9   value 1.34041, return 7.6438, wins 0.9296" in told
    assert "decentralised       value 1.33668, return 7.62803, wins 0.9288; the best found" in told
    assert "highest win rate    0.9552" in told
    main(["optimum", "penalty", "--env.k", "-50", "--gamma", "1"])
    assert "value 250, return 250\n" in capsys.readouterr().out
    main(["optimum", "predator-prey"])
    assert capsys.readouterr().out.startswith("return at most 40 (not computed")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("optimum", "ENV expected"),
        ("optimum gridworl", "Did you mean gridworld?"),
        ("optimum gridworld --env.slop 1", "Perhaps you meant --env.slip?"),
        ("optimum gridworld --env.slip 2", "slip=2.0 is not a finite number from 0 to 1"),
        ("optimum gridworld --gamma 2", "gamma=2.0 is not a finite number from 0 to 1"),
        ("optimum pass-30 --env.size 10", "--env.size 10 is not pass-30"),
        ("optimum 3m", "no optimum of Battle is known"),
        ("suite --episodes -1", "must be at least 0"),
        ("suite --out somewhere.json", "say with --episodes over how many"),
        ("suite --tasks chess", "no task of the suite is called like 'chess'"),
    ],
)
def test_a_mistake_is_one_line(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(words.split())
    assert stop.value.code == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1
