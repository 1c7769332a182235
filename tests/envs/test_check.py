"""`emc check-env`: promises kept, and every way to break one."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import pytest

from emc.cli import main
from emc.envs import make_env
from emc.envs.check import check
from emc.envs.hosted import Hosted
from emc.types import EnvSpec, Timestep


class Untyped(eqx.Module):
    """A moment as it is outside these tests, where nothing looks at types."""

    obs: Any
    state: Any
    available: Any
    reward: Any
    terminated: Any
    truncated: Any
    won: Any


class Walk(eqx.Module):
    """A walk of four steps that can be made to break any promise."""

    breaks: str = eqx.field(default="", static=True)

    @property
    def spec(self) -> EnvSpec:
        limit = 0 if self.breaks == "spec" else 4
        types = {"obs_dtype": "bool"} if self.breaks == "obs type" else {"state_dtype": "int8"} if self.breaks == "state type" else {}
        return EnvSpec(n_agents=2, n_actions=2, obs_size=1, state_size=1, episode_limit=limit, **types)

    def reset(self, key: Any) -> Any:
        return jnp.int32(0), self._show(jnp.int32(0), 1.0 if self.breaks == "reset" else 0.0)

    def step(self, world: Any, action: Any, key: Any) -> Any:
        if self.breaks == "trace":
            world = world + (2 if bool(action[0] > 5) else 0)
        world = world + 1.0 if self.breaks == "world" else world + 1
        return world, self._show(world, jnp.nan if self.breaks == "finite" else 1.0)

    def _show(self, world: Any, reward: Any) -> Any:
        late = world >= (9 if self.breaks == "limit" else 4)
        return (Untyped if "type" in self.breaks else Timestep)(
            obs=jnp.full((2, 2 if self.breaks == "shape" else 1), world, jnp.float32),
            state=jnp.full(1, world * (200 if self.breaks == "state type" else 1), jnp.float32),
            available=jnp.full((2, 2), (world < 3) | (self.breaks != "available")),
            reward=jnp.asarray(reward, jnp.int32 if self.breaks == "reward type" else jnp.float32),
            terminated=late.astype(float) if self.breaks == "flag type" else late,
            truncated=late & (self.breaks == "both"),
            won=(world == 2) & (self.breaks == "won"),
        )


def broken(env: Any) -> list[str]:
    return [finding.promise for finding in check(env) if not finding.kept]


def test_an_environment_that_keeps_its_promises() -> None:
    assert broken(Walk()) == []
    assert broken(Hosted("tests.envs.host_examples:Race")) == []


@pytest.mark.parametrize(
    ("breaks", "promise"),
    [
        ("spec", "whole numbers"),
        ("trace", "compiles"),
        ("world", "same shapes and types"),
        ("finite", "finite"),
        ("shape", "obs always has the shape"),
        ("available", "available action"),
        ("reset", "no reward"),
        ("limit", "ends by its limit"),
        ("both", "both terminated and truncated"),
        ("won", "won moment is the last"),
        ("flag type", "terminated, truncated and won are true or false"),
        ("reward type", "the reward is one float"),
        ("obs type", "obs can be stored as bool"),
        ("state type", "state can be stored as int8"),
    ],
)
def test_a_broken_promise_is_named(breaks: str, promise: str) -> None:
    found = broken(Walk(breaks))
    assert any(promise in one for one in found), found


@pytest.mark.parametrize("name", ["gridworld", "predator-prey", "two-step-game", "3m"])
def test_the_packages_own_environments_keep_them(name: str) -> None:
    env = make_env(name, **({"episode_limit": 8} if name in ("gridworld", "predator-prey") else {}))
    assert broken(env) == []


def test_an_episode_that_cannot_be_repeated_is_remarked_in_a_host_and_does_not_count() -> None:
    env = Hosted("tests.envs.host_examples:Moody")
    assert broken(env) == []
    (remark,) = [finding for finding in check(env) if finding.wish]
    assert remark.promise == "the same episode comes again given the seed"


@pytest.mark.parametrize(
    ("name", "words", "reason"),
    [
        ("Wordy", "", "could not convert string to float"),
        ("Unreliable", "how=die share=1.0", "died"),
        ("Unreliable", "how=hang share=1.0", "no answer in time"),
    ],
)
def test_a_host_that_cannot_be_played_is_a_broken_promise(name: str, words: str, reason: str) -> None:
    (finding,) = [one for one in check(Hosted(f"tests.envs.host_examples:{name}", words, timeout=3.0)) if not one.kept]
    assert finding.promise == "random episodes can be played"
    assert reason in finding.detail


def test_the_command_says_what_is_broken_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["check-env", "tests.envs.test_check:Walk", "--env.breaks", "limit"])
    assert stop.value.code == 2
    shown = capsys.readouterr()
    assert "BROKEN  every episode ends by its limit: not over after 4 steps" in shown.out
    assert shown.err.startswith("emc: tests.envs.test_check:Walk breaks 1 of")
    main(["check-env", "tests.envs.test_check:Walk"])
    shown = capsys.readouterr()
    assert "BROKEN" not in shown.out
    assert "kept    it can be trained on" in shown.out
    main(["check-env", "tests.envs.host_examples:Moody"])
    assert "remark  the same episode comes again given the seed: it does not" in capsys.readouterr().out


def test_what_training_alone_would_find_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def play(*_: Any) -> None:
        raise TypeError("body_fun output and input must have identical types")

    monkeypatch.setattr("emc.training.rollout.play", play)
    with pytest.raises(SystemExit):
        main(["check-env", "tests.envs.test_check:Walk"])
    assert "BROKEN  it can be trained on: TypeError: body_fun output" in capsys.readouterr().out


def test_jax_is_told_from_plain_python() -> None:
    assert isinstance(make_env("tests.envs.test_check:Walk"), eqx.Module)
    assert not isinstance(make_env("tests.envs.test_check:Walk"), Hosted)
