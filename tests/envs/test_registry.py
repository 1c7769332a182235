"""Environments by name."""

from __future__ import annotations

import json
from typing import Any

import equinox as eqx
import jax
import jaxtyping
import numpy as np
import pytest

from emc.cli import main
from emc.envs import TASKS, Gridworld, PredatorPrey, make_env
from emc.envs.base import HasMap
from emc.envs.registry import task, task_of
from emc.errors import UserError
from emc.runs.config import from_json, to_json
from emc.types import EnvSpec
from emc.user_input import UnknownName, lookup
from tests.twins import quick


def test_the_tasks_have_the_released_lengths() -> None:
    schedules = {name: (entry.steps, entry.evaluate_every, entry.test_episodes) for name, entry in TASKS.items()}
    assert schedules["gridworld"] == (505_000, 1_000, 30)
    assert schedules["predator-prey"] == (1_100_000, 10_000, 16)
    assert schedules["n-step-game"] == (105_000, 1_000, 64)


@pytest.mark.parametrize("name", TASKS)
def test_every_task_makes_an_environment_that_can_be_played(name: str) -> None:
    entry = task(name)
    assert entry.name == name
    assert entry.description
    assert "\n" not in entry.description
    env, key = make_env(name), jax.random.key(0)
    world, shown = quick(env.reset)(key)
    action = np.asarray(shown.available).argmax(axis=1).astype(np.int32)
    later = jax.eval_shape(env.step, world, action, key)  # what steps do is compared with twins, for each of them
    assert [leaf.shape for leaf in jax.tree.leaves(later)] == [leaf.shape for leaf in jax.tree.leaves((world, shown))]
    assert shown.obs.shape == (env.spec.n_agents, env.spec.obs_size)
    assert isinstance(env, HasMap) == bool(env.spec.map_shape[0])
    if isinstance(env, HasMap):
        occupancy = quick(env.occupancy)(shown.state)
        assert occupancy.shape == env.spec.map_shape
        assert occupancy.sum() == env.spec.n_agents


@pytest.mark.parametrize("name", [*TASKS, "lbf/2s-15x15-4p-5f-coop"])
def test_every_environment_comes_back_from_json(name: str) -> None:
    env = make_env(name)
    assert from_json(json.loads(json.dumps(to_json(env)))) == env
    assert task_of(env) == task(name) or name.startswith("lbf/2s")


def test_fields_are_passed_on() -> None:
    assert make_env("gridworld", penalty=0.5, vision="origin") == Gridworld(penalty=0.5, vision="origin")
    assert make_env("predator-prey", n_prey=4) == PredatorPrey(n_prey=4)


@pytest.mark.parametrize(
    ("name", "suggestion"), [("gridwrold", "gridworld"), ("predator_prey", "predator-prey"), ("GRIDWORLD", "gridworld")]
)
def test_an_unknown_name_lists_the_known_ones_and_suggests_the_nearest(name: str, suggestion: str) -> None:
    for ask in (task, make_env):
        with pytest.raises(UnknownName) as error:
            ask(name)
        assert str(error.value) == f"unknown environment {name!r}; known: {', '.join(sorted(TASKS))}. Did you mean {suggestion}?"


def test_an_unknown_field_lists_the_known_ones_and_suggests_the_nearest() -> None:
    with pytest.raises(UnknownName) as error:
        make_env("gridworld", penalty=1.0, noisy_rewards=0.1)
    assert str(error.value).startswith("unknown field of gridworld 'noisy_rewards'; known: columns, episode_limit,")
    assert str(error.value).endswith("Did you mean noisy_reward?")


class Still(eqx.Module):
    """What all wrong environments below have in common."""

    def reset(self, key: Any) -> Any: ...

    def step(self, world: Any, action: Any, key: Any) -> Any: ...


class Sized(Still):
    size: int


class Speechless(Still):
    pass


class Misspelt(Still):
    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(n_agents=1, n_action=2, obs_size=1, state_size=1, episode_limit=1)  # pyright: ignore[reportCallIssue]


class Loose(Still):
    @property
    def spec(self) -> Any:
        return {"n_agents": 1}


class WrongType(Still):
    @property
    def spec(self) -> EnvSpec:
        return EnvSpec(n_agents=1, n_actions=2, obs_size=1, state_size=1, episode_limit=1, obs_dtype="flot32")


class Plain:
    spec = EnvSpec(n_agents=1, n_actions=2, obs_size=1, state_size=1, episode_limit=1)

    def reset(self, key: Any) -> Any: ...

    def step(self, world: Any, action: Any, key: Any) -> Any: ...


class Endless(eqx.Module):
    spec = Plain.spec

    def step(self, world: Any, action: Any, key: Any) -> Any: ...


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("Sized", "missing 1 required positional argument: 'size'. Give every field a default"),
        ("Speechless", "no spec that can be used .*no attribute 'spec'"),
        ("Misspelt", "no spec that can be used .*'n_action"),
        ("Loose", "its spec is a dict, not an EnvSpec"),
        ("WrongType", "obs_dtype='flot32' is not the name of a type"),
        ("Plain", "is no eqx.Module"),
        ("Endless", "it has no reset"),
    ],
)
def test_a_mistake_in_ones_own_class_is_one_line(kind: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    source = f"tests.envs.test_registry:{kind}"
    with pytest.raises(UserError, match=message):
        make_env(source)
    with pytest.raises(SystemExit) as stop:
        main(["check-env", source])
    assert stop.value.code == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert source in shown or kind == "WrongType"


@pytest.mark.parametrize("wrong", ["flot32", "str", "complex64"])
def test_a_type_that_is_none_of_numbers_is_refused(wrong: str) -> None:
    with pytest.raises(UserError, match="state_dtype="):
        EnvSpec(n_agents=1, n_actions=2, obs_size=1, state_size=1, episode_limit=1, state_dtype=wrong)


def test_places_may_be_said_as_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as a user has it
    sizes: Any = {"n_agents": 1, "n_actions": 2, "obs_size": 3, "state_size": 1, "episode_limit": 1}
    said, meant = EnvSpec(obs_flags=[0, 2], idle_actions=[1], **sizes), EnvSpec(obs_flags=(0, 2), idle_actions=(1,), **sizes)
    assert {said: "found"}[meant] == "found"


def test_a_name_unlike_any_other_gets_no_suggestion() -> None:
    with pytest.raises(UnknownName) as error:
        lookup("colour", "x", {"green": 1, "blue": 2})
    assert str(error.value) == "unknown colour 'x'; known: blue, green."


def test_a_known_name_gives_its_entry() -> None:
    assert lookup("colour", "blue", {"green": 1, "blue": 2}) == 2


def test_a_suggestion_does_not_depend_on_capitals_and_keeps_them() -> None:
    with pytest.raises(UnknownName) as error:
        lookup("method", "qmx", {"VDN": 1, "QMIX": 2})
    assert str(error.value) == "unknown method 'qmx'; known: QMIX, VDN. Did you mean QMIX?"
