"""Environments by other authors, as they come from the package index: seen through the adapters, and trained on end to end."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import emc
from emc.envs import make_env
from emc.envs.check import check
from emc.envs.jaxmarl import made
from emc.errors import UserError
from emc.policies import RecurrentQ
from emc.runs.config import from_json, to_json
from emc.runs.jsonl import read_metrics

LEVEL = "pymarl/tests.envs.lle_level:level"


def play(env: Any, actions: Any, steps: int, seed: int = 0) -> Any:
    """Moments of one episode, played on past its end; `actions(available, key)` chooses."""

    def turn(carry: Any, key: Any) -> Any:
        world, now = carry
        world, now = env.step(world, actions(now.available, key), key)
        return (world, now), (world, now)

    carry = jax.jit(env.reset)(jax.random.key(seed))
    _, shown = jax.jit(lambda carry: jax.lax.scan(turn, carry, jax.random.split(jax.random.key(seed + 1), steps)))(carry)
    return carry, shown


def randomly(available: Any, key: Any) -> Any:
    return jax.random.categorical(key, jnp.where(available, 0.0, -jnp.inf), axis=-1)


class TestSMAX:
    @pytest.fixture(autouse=True)
    def package(self) -> None:
        pytest.importorskip("jaxmarl", reason="the extra `smax` is not installed")

    def test_an_episode_is_one_game_and_ends_once(self) -> None:
        env: Any = make_env("smax/3m")
        spec = env.spec
        assert (spec.n_agents, spec.n_actions, spec.obs_size, spec.state_size, spec.episode_limit) == (3, 8, 75, 72, 100)
        first, (world, now) = play(env, randomly, 110)
        over = np.asarray(now.terminated)
        end = int(np.argmax(over))
        assert over.any()
        alive = np.asarray(world[0].state.unit_alive)
        if end < 99:  # one team is gone, and what is shown is the field it left, not the next one
            assert not alive[end, :3].any() or not alive[end, 3:].any()
        assert not np.array_equal(np.asarray(now.state)[end], np.asarray(first[1].state))
        np.testing.assert_array_equal(np.asarray(now.won), alive[:, :3].any(1) & ~alive[:, 3:].any(1))

    def test_walking_into_the_border_kills_nobody_and_the_limit_is_a_defeat_at_its_own_step(self) -> None:
        env: Any = make_env("smax/3m", arguments="enemy_shoots=False", episode_limit=40)
        _, (world, now) = play(env, lambda available, _: jnp.full(3, 1), 40)
        assert np.asarray(world[0].state.unit_alive).all()
        assert np.flatnonzero(np.asarray(now.terminated)).tolist() == [39]
        assert not np.asarray(now.truncated).any()
        assert not np.asarray(now.won).any()

    def test_actions_mean_the_same_whatever_their_type(self) -> None:
        env: Any = make_env("smax/3m")
        world, _ = env.reset(jax.random.key(3))
        south = [env.step(world, jnp.full(3, 2, kind), jax.random.key(4))[1].state for kind in (jnp.int8, jnp.int32)]
        np.testing.assert_array_equal(*south)

    def test_it_is_trained_and_its_manifest_read_again(self, tmp_path: Path) -> None:
        small = dataclasses.replace(emc.make_method("vdn"), policy=RecurrentQ(hidden=8), batch_episodes=2, replay_episodes=4)
        run = emc.train(small, "smax/3m", runs=tmp_path, steps=160, evaluate_every=80, test_episodes=2)
        lines = [line for line in read_metrics(run.path / "metrics.jsonl") if line["kind"] == "eval"]
        assert len(lines) >= 2
        assert all(0 <= won <= 1 for line in lines for won in line["won"])
        assert emc.load(run.path).env == make_env("smax/3m")

    def test_mistakes_are_one_line(self) -> None:
        for source, fields, message in [
            ("smax/3n", {}, "Did you mean 3m"),
            ("smax/3m", {"arguments": "colour=1"}, "cannot be made with colour=1"),
            ("jaxmarl/hanaby", {}, "Did you mean hanabi"),
            ("jaxmarl/coin_game", {}, "give --env.episode-limit"),
            ("smax/3m", {"reward": "som"}, "Did you mean sum"),
        ]:
            with pytest.raises(UserError, match=message) as error:
                make_env(source, **fields)
            assert "\n" not in str(error.value)

    def test_any_other_environment_of_jaxmarl_is_cut_at_its_limit_and_shares_its_reward(self) -> None:
        env: Any = make_env("jaxmarl/MPE_simple_spread_v3")
        assert dataclasses.astuple(env.spec)[:5] == (3, 5, 18, 54, 25)
        first, (_, now) = play(env, randomly, 25)
        assert not np.asarray(now.terminated).any()
        assert np.flatnonzero(np.asarray(now.truncated)).tolist() == [24]
        inner, key, action = made("jaxmarl/MPE_simple_spread_v3", ""), jax.random.key(5), jnp.array([0, 1, 2])
        *_, rewards, _, _ = inner.step_env(key, first[0][0], {agent: action[i] for i, agent in enumerate(inner.agents)})
        values = [float(rewards[agent]) for agent in inner.agents]
        assert float(env.step(first[0], action, key)[1].reward) == pytest.approx(np.mean(values), rel=1e-5)
        summed: Any = make_env("jaxmarl/MPE_simple_spread_v3", reward="sum")
        assert float(summed.step(first[0], action, key)[1].reward) == pytest.approx(np.sum(values), rel=1e-5)
        assert from_json(to_json(summed)) == summed


def test_what_needs_jaxmarl_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jaxmarl", None)
    made.cache_clear()
    with pytest.raises(UserError, match=r"smax/3m needs JaxMARL .*pip install 'emc-marl\[smax\]'"):
        make_env("smax/3m", episode_limit=77)  # one that no other test has made


def trained(method: str, source: str, tmp_path: Path, steps: int, **fields: Any) -> list[dict[str, Any]]:
    """Tests of a short run in worker processes."""
    env, parts = make_env(source, **fields), {"policy": RecurrentQ(hidden=8), "batch_episodes": 4, "replay_episodes": 16}
    small = dataclasses.replace(emc.make_method(method), **parts)
    run = emc.train(small, env, runs=tmp_path, steps=steps, evaluate_every=steps // 2, test_episodes=3, parallel_envs=2)
    assert not (run.path / "lost.jsonl").exists()
    return [line for line in read_metrics(run.path / "metrics.jsonl") if line["kind"] == "eval"]


@pytest.mark.usefixtures("warm_workers")
def test_a_pettingzoo_environment_keeps_its_promises_and_is_trained(tmp_path: Path) -> None:
    pytest.importorskip("mpe2", reason="the package mpe2 is not installed")
    env = make_env("pettingzoo/mpe2.simple_spread_v3", arguments="max_cycles=10")
    assert dataclasses.astuple(env.spec)[:5] == (3, 5, 18, 54, 10)
    assert [finding for finding in check(env) if not finding.kept] == []
    lines = trained("qmix", "pettingzoo/mpe2.simple_spread_v3", tmp_path, 200, arguments="max_cycles=10")
    assert len(lines) >= 2
    assert all(length == 10 for line in lines for length in line["length"])
    assert all(value < 0 for line in lines for value in line["return"])  # distances, and never all of them zero


def test_a_pymarl_environment_keeps_its_promises_and_is_trained(tmp_path: Path) -> None:
    pytest.importorskip("lle", reason="the package laser-learning-environment is not installed")
    env = make_env(LEVEL, arguments="number=2 steps=12")
    assert dataclasses.astuple(env.spec)[:5] == (2, 5, 7 * 12 * 13, 7, 12)  # images are flattened
    assert not env.spec.winnable
    assert [finding for finding in check(env) if not finding.kept] == []
    lines = trained("vdn", LEVEL, tmp_path, 200, arguments="number=2 steps=12")
    assert len(lines) >= 2
    assert all(1 <= length <= 12 for line in lines for length in line["length"])
