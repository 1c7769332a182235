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


class Walk(eqx.Module):
    """A walk of four steps that can be made to break any promise."""

    breaks: str = eqx.field(default="", static=True)

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(n_agents=2, n_actions=2, obs_size=1, state_size=1, episode_limit=0 if self.breaks == "spec" else 4)

    def reset(self, key: Any) -> Any:
        return jnp.int32(0), self._show(jnp.int32(0), 1.0 if self.breaks == "reset" else 0.0)

    def step(self, world: Any, action: Any, key: Any) -> Any:
        if self.breaks == "trace":
            world = world + (2 if bool(action[0] > 5) else 0)
        world = world + 1.0 if self.breaks == "world" else world + 1
        return world, self._show(world, jnp.nan if self.breaks == "finite" else 1.0)

    def _show(self, world: Any, reward: Any) -> Timestep:
        late = world >= (9 if self.breaks == "limit" else 4)
        return Timestep(
            obs=jnp.full((2, 2 if self.breaks == "shape" else 1), world, jnp.float32),
            state=jnp.full(1, world, jnp.float32),
            available=jnp.full((2, 2), (world < 3) | (self.breaks != "available")),
            reward=jnp.asarray(reward, jnp.float32),
            terminated=late,
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
    ],
)
def test_a_broken_promise_is_named(breaks: str, promise: str) -> None:
    found = broken(Walk(breaks))
    assert any(promise in one for one in found), found


@pytest.mark.parametrize("name", ["gridworld", "predator-prey", "two-step-game", "3m"])
def test_the_packages_own_environments_keep_them(name: str) -> None:
    env = make_env(name, **({"episode_limit": 8} if name in ("gridworld", "predator-prey") else {}))
    assert broken(env) == []


def test_an_episode_that_cannot_be_repeated_is_found() -> None:
    assert broken(Hosted("tests.envs.host_examples:Moody")) == ["the same episode comes again given the seed"]


def test_the_command_says_what_is_broken_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["check-env", "tests.envs.test_check:Walk", "--env.breaks", "limit"])
    assert stop.value.code == 2
    shown = capsys.readouterr()
    assert "BROKEN  every episode ends by its limit: not over after 4 steps" in shown.out
    assert shown.err.startswith("emc: tests.envs.test_check:Walk breaks 1 of")
    main(["check-env", "tests.envs.test_check:Walk"])
    assert "BROKEN" not in capsys.readouterr().out


def test_jax_is_told_from_plain_python() -> None:
    assert isinstance(make_env("tests.envs.test_check:Walk"), eqx.Module)
    assert not isinstance(make_env("tests.envs.test_check:Walk"), Hosted)
