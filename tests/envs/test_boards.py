"""Pass, Secret Room and Push-Box against steps of the released environments, plain-Python twins, and their rules by hand."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.envs import Pass, PushBox, SecretRoom
from emc.envs.base import HasAreas
from emc.envs.board import DOWN, LEFT, RIGHT, UP
from emc.types import Timestep
from tests.envs.board_twins import PassTwin, PushBoxTwin, SecretRoomTwin

GOLDEN = Path(__file__).parents[1] / "golden"
KEY = jax.random.key(0)
step = jax.jit(lambda env, world, action: env.step(world, action, KEY))


def start(env: Any) -> tuple[Any, Timestep]:
    return jax.device_get(_start(env))


_start = jax.jit(lambda env: env.reset(KEY))


def follow(env: Any, world: Any, actions: list[list[int]]) -> tuple[Any, Timestep]:
    """The worlds and moments that joint actions lead to, one after another: an episode is one call."""
    padded = np.zeros((-(-len(actions) // 100) * 100, 2), np.int32)  # few lengths, since each is compiled
    padded[: len(actions)] = actions
    return jax.tree.map(lambda leaf: np.asarray(leaf)[: len(actions)], _follow(env, world, padded))


@jax.jit
def _follow(env: Any, world: Any, actions: jax.Array) -> tuple[Any, Timestep]:
    def one(world: Any, action: jax.Array) -> tuple[Any, tuple[Any, Timestep]]:
        after = env.step(world, action, KEY)
        return after[0], after

    return jax.lax.scan(one, world, actions)[1]


def play(env: Any, world: Any, first: int, second: int) -> tuple[Any, Timestep]:
    return jax.device_get(step(env, world, np.array([first, second], np.int32)))


def placed(world: Any, first: tuple[int, int], second: tuple[int, int]) -> Any:
    """The same world with the agents elsewhere."""
    return eqx.tree_at(lambda world: world.position, world, np.array([first, second], np.int32))


def numbers(world: Any) -> list[int]:
    """A world as the released environments write it down."""
    position = [int(place) for place in world.position.reshape(-1)]
    if hasattr(world, "box"):
        return [*position, *map(int, world.box)]
    return [*position, int(world.door) if hasattr(world, "door") else int(world.doors @ np.array((4, 2, 1)))]


@pytest.mark.parametrize(
    ("name", "env"), [("pass_10", Pass()), ("secret_room_15", SecretRoom()), ("push_box_9", PushBox())], ids=lambda value: str(value)[:12]
)
def test_the_steps_of_the_released_environments_replay_exactly(name: str, env: Any) -> None:
    golden = np.load(GOLDEN / f"{name}.npz")
    assert env.spec.episode_limit == golden["limit"]
    assert env.size == golden["size"]
    first, _ = start(env)
    assert numbers(first) == golden["first"].tolist()
    ends = np.flatnonzero(golden["over"]) + 1
    for begin, end in itertools.pairwise([0, *ends, *([] if ends[-1] == len(golden["action"]) else [len(golden["action"])])]):
        worlds, shown = follow(env, first, golden["action"][begin:end].tolist())
        for number in range(begin, end):
            assert numbers(jax.tree.map(lambda leaf, time=number - begin: leaf[time], worlds)) == golden["after"][number].tolist(), number
        np.testing.assert_array_equal(shown.reward, golden["reward"][begin:end])
        np.testing.assert_array_equal(shown.terminated, golden["over"][begin:end])


TWINS = [
    (Pass(), PassTwin()),
    (Pass(size=30), PassTwin(30, 300)),
    (Pass(size=5, episode_limit=70), PassTwin(5, 70)),
    (SecretRoom(), SecretRoomTwin()),
    (SecretRoom(size=25), SecretRoomTwin(25, 300)),
    (SecretRoom(size=9, episode_limit=70), SecretRoomTwin(9, 70)),
    (PushBox(), PushBoxTwin()),
    (PushBox(size=15), PushBoxTwin(15, 300)),
    (PushBox(size=10, episode_limit=70), PushBoxTwin(10, 70)),
]


@pytest.mark.parametrize(("env", "twin"), TWINS, ids=[repr(twin) for _, twin in TWINS])
def test_every_step_equals_the_twin(env: Any, twin: Any) -> None:
    generator = np.random.default_rng(1)
    met = {"changed": False, "limit": False}
    for episode in range(2400 // env.limit):
        world, shown = start(env)
        expected = twin.reset()
        assert_same(shown, expected)
        first = expected["state"][4 * env.size :]
        heading = generator.integers(4, size=2)
        actions: list[list[int]] = []
        moments: list[dict[str, Any]] = []
        while not expected["terminated"]:
            heading = np.where(generator.random(2) < 0.25, generator.integers(4, size=2), heading)  # straight paths get further
            if episode % 2:
                heading[1] = heading[0]  # and pushes are made together
            actions.append([int(action) for action in heading])
            expected = twin.step(actions[-1])
            moments.append(expected)
            met["changed"] |= not np.array_equal(expected["state"][4 * env.size :], first)
            met["limit"] |= expected["terminated"] and not expected["won"]
        assert_same(follow(env, world, actions)[1], {name: np.array([moment[name] for moment in moments], float) for name in expected})
    assert met["changed"], "a door must open, or the box move"


def assert_same(shown: Any, expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        np.testing.assert_array_equal(np.asarray(getattr(shown, name), float), value, err_msg=name)


def test_pass_is_won_by_holding_a_switch_for_the_other_twice() -> None:
    env = Pass()
    twin = PassTwin()
    world, shown = start(env)
    twin.reset()
    # Agent 0 walks down to the near switch at (1, 8), agent 1 through the door at (5, 4 to 6) and up to the far switch at (8, 1).
    plan = [(DOWN, RIGHT), (DOWN, RIGHT), (DOWN, RIGHT), (DOWN, DOWN), (DOWN, DOWN), (LEFT, DOWN), (LEFT, RIGHT)]
    plan += [(LEFT, RIGHT)] * 3 + [(LEFT, UP)] * 2
    for first, second in plan:
        world, shown = play(env, world, first, second)
        twin.step([first, second])
    assert world.position.tolist() == [[0, 7], [8, 2]]
    assert world.door
    assert not shown.terminated
    for first in [RIGHT] * 4 + [UP, RIGHT, RIGHT]:  # agent 1 stays within 1.5 of its switch, walking into the border and back
        world, shown = play(env, world, first, LEFT if world.position[1, 0] == 9 else RIGHT)
    assert world.position[0].tolist() == [6, 6]
    assert shown.won
    assert shown.terminated
    assert shown.reward == 1.0


def test_a_shut_door_is_a_wall_and_whoever_is_in_it_may_leave() -> None:
    env = Pass()
    world, _ = start(env)
    world = placed(world, (4, 5), (4, 3))
    after, _ = play(env, world, RIGHT, RIGHT)
    assert after.position.tolist() == [[4, 5], [4, 3]]
    after, _ = play(env, eqx.tree_at(lambda world: world.door, world, np.bool_(True)), RIGHT, RIGHT)
    assert after.position.tolist() == [[5, 5], [4, 3]], "the door is open, the wall beside it is not"
    assert not after.door, "nobody is near a switch"
    after, _ = play(env, after, UP, UP)
    assert after.position.tolist() == [[5, 5], [4, 2]], "a cell of the shut door blocks"
    after, _ = play(env, after, RIGHT, UP)
    assert after.position.tolist() == [[6, 5], [4, 1]]


def test_the_first_switch_with_an_agent_decides_which_doors_open() -> None:
    env = SecretRoom()
    np.testing.assert_array_equal(env.switches, [(3, 12), (12, 2), (12, 7), (12, 12)])
    world, _ = start(env)
    for first, second, doors in [
        ((3, 12), (12, 11), (True, True, True)),
        ((12, 3), (0, 0), (True, False, False)),
        ((12, 8), (12, 3), (True, False, False)),
        ((12, 8), (12, 13), (False, True, False)),
        ((0, 0), (12, 13), (False, False, True)),
        ((0, 0), (1, 1), (False, False, False)),
    ]:
        after, _ = play(env, placed(world, first, second), UP, UP)
        assert tuple(map(bool, after.doors)) == doors, (first, second)


def test_the_box_moves_only_when_both_push_the_same_side() -> None:
    env = PushBox()
    world, _ = start(env)

    def pushed(first: tuple[int, int], second: tuple[int, int], actions: tuple[int, int]) -> tuple[list[int], list[list[int]]]:
        after, _ = play(env, placed(world, first, second), *actions)
        return after.box.tolist(), after.position.tolist()

    assert pushed((3, 6), (5, 6), (UP, UP)) == ([4, 3], [[3, 5], [5, 5]]), "both follow the box"
    assert pushed((3, 6), (3, 6), (UP, UP)) == ([4, 3], [[3, 5], [3, 5]]), "also from one cell"
    assert pushed((2, 3), (2, 5), (RIGHT, RIGHT)) == ([5, 4], [[3, 3], [3, 5]])
    assert pushed((3, 6), (5, 6), (UP, LEFT)) == ([4, 4], [[3, 6], [4, 6]]), "one alone is blocked"
    assert pushed((3, 6), (3, 2), (UP, DOWN)) == ([4, 4], [[3, 6], [3, 2]]), "against each other"
    assert pushed((3, 6), (6, 6), (UP, UP)) == ([4, 4], [[3, 6], [6, 5]]), "a corner is no side"


def test_the_box_at_the_border_is_success() -> None:
    env = PushBox()
    world, _ = start(env)
    world = placed(world, (3, 6), (5, 6))
    for left in (2, 1, 0):
        world, shown = play(env, world, UP, UP)
        assert world.box.tolist() == [4, 1 + left]
        assert (bool(shown.won), float(shown.reward)) == (left == 0, float(left == 0))


@pytest.mark.parametrize("env", [Pass(), Pass(size=30), SecretRoom(), PushBox()], ids=repr)
def test_maps_and_areas_have_the_size_of_the_board(env: Any) -> None:
    world, shown = start(env)
    occupancy = env.occupancy(jnp.asarray(shown.state))
    assert occupancy.shape == env.spec.map_shape == (env.size, env.size)
    for x, y in world.position:
        assert occupancy[y, x] == 1
    assert occupancy.sum() == 2
    if isinstance(env, HasAreas):
        assert all(mask.shape == (env.size, env.size) and mask.any() for mask in env.areas().values())


@pytest.mark.parametrize("env", [Pass(), SecretRoom(), PushBox()], ids=repr)
def test_a_drawing_shows_both_agents_also_in_one_cell(env: Any) -> None:
    figure = pytest.importorskip("matplotlib.figure")
    world, _ = start(env)
    for moment in (world, placed(world, (1, 1), (1, 1))):
        axes = figure.Figure().subplots()
        env.draw(axes, moment)
        assert {"0", "1"} <= {text.get_text() for text in axes.texts}
        axes.clear()
        env.draw_outlines(axes)
        assert axes.patches


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (Pass, {"size": 4}, "size=4 is not a whole number of at least 5: choose a larger board"),
        (SecretRoom, {"size": 8}, "size=8 is not a whole number of at least 9"),
        (PushBox, {"size": 8}, "size=8 is not a whole number of at least 9"),
        (Pass, {"episode_limit": 0}, "episode_limit=0 is not a whole number of at least 1"),
    ],
)
def test_a_wrong_field_is_refused_in_one_line(kind: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        kind(**fields)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)
