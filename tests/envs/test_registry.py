"""Environments by name."""

from __future__ import annotations

import jax
import pytest

from emc.envs import TASKS, Gridworld, PredatorPrey, make_env
from emc.envs.registry import task
from emc.names import UnknownName, lookup


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
    env = make_env(name)

    @jax.jit
    def play(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        world, shown = env.reset(key)
        _, shown = env.step(world, shown.available.argmax(axis=1), key)
        return shown.obs, env.occupancy(shown.state)

    obs, occupancy = play(jax.random.key(0))
    assert obs.shape == (env.spec.n_agents, env.spec.obs_size)
    assert occupancy.shape == env.spec.map_shape
    assert occupancy.sum() == (env.spec.n_agents if occupancy.size else 0)


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
