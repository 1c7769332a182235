"""A recorded episode is the greedy one, and its GIF shows every moment of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from PIL import Image, ImageSequence

from emc.envs.gridworld import DOWN, LEFT, RIGHT, STAY, UP, Gridworld
from emc.errors import UserError
from emc.parts import Actors, Policy, Step
from emc.report.animation import LAST_FRAME_MILLISECONDS, Moment, animate, pace, record

SMALL = Gridworld(rows=5, columns=6, episode_limit=6)


@dataclasses.dataclass(frozen=True)
class Scripted(Policy):
    """Follows a table of values: the net holds one row of them for each agent and step."""

    def init_net(self, key: Any, spec: Any) -> Any:
        return ()

    def begin(self, net: Any, state: Any, first: Any, key: Any, spec: Any) -> Any:
        return jnp.zeros((), jnp.int32)

    def step(self, net: Any, state: Any, carry: Any, obs: Any, available: Any, previous: Any, key: Any, epsilon: Any) -> Any:
        return Step(carry + 1, jax.nn.one_hot(net[carry], 5), available, ())

    def unroll(self, net: Any, state: Any, batch: Any) -> Any:
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Contrary(Scripted):
    """Goes down or up first, and stays ever after it remembers having gone anywhere."""

    def step(self, net: Any, state: Any, carry: Any, obs: Any, available: Any, previous: Any, key: Any, epsilon: Any) -> Any:
        return Step(carry, jax.nn.one_hot(jnp.where(previous == -1, jnp.array([DOWN, UP]), STAY), 5), available, ())


# Two down and two right for one, two up and two left for the other: both arrive at the fourth step.
WINNING = jnp.array([(DOWN, UP), (DOWN, UP), (RIGHT, LEFT), (RIGHT, LEFT), (STAY, STAY), (STAY, STAY)])


@pytest.fixture(scope="module")
def moments() -> list[Moment]:
    return record(SMALL, Actors(Scripted(), WINNING, ()), jax.random.key(0))


def test_an_episode_is_recorded_from_its_start_to_its_end(moments: list[Moment]) -> None:
    assert [moment.world.position.tolist() for moment in moments] == [
        [[0, 0], [4, 5]],
        [[1, 0], [3, 5]],
        [[2, 0], [2, 5]],
        [[2, 1], [2, 4]],
        [[2, 2], [2, 3]],
    ]
    assert [moment.episode_return for moment in moments] == [0.0, 0.0, 0.0, 0.0, 10.0]
    assert [(moment.over, moment.won) for moment in moments] == [(False, False)] * 4 + [(True, True)]


def test_agents_are_told_their_last_action() -> None:
    moments = record(SMALL, Actors(Contrary(), (), ()), jax.random.key(0))
    assert len(moments) == 1 + SMALL.episode_limit
    assert moments[1].world.position.tolist() == moments[-1].world.position.tolist() == [[1, 0], [3, 5]]
    assert (moments[-1].over, moments[-1].won) == (True, False)


def test_the_animation_has_one_frame_for_each_moment_and_holds_the_last(moments: list[Moment], tmp_path: Path) -> None:
    animate(SMALL, moments, tmp_path / "deep" / "episode.gif")
    with Image.open(tmp_path / "deep" / "episode.gif") as image:
        assert (image.format, image.size, image.info["loop"]) == ("GIF", (512, 512), 0)
        frames = [frame.convert("RGB") for frame in ImageSequence.Iterator(image)]
        durations = [frame.info["duration"] for frame in ImageSequence.Iterator(image)]
    assert durations == [1000, 1000, 1000, 1000, 2000]
    assert len({frame.tobytes() for frame in frames}) == 5
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["episode.gif"]


def test_a_failure_leaves_an_older_animation_as_it_was(moments: list[Moment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "episode.gif"
    path.write_bytes(b"older")

    def full_disk(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", full_disk)
    with pytest.raises(UserError, match="Free some space"):
        animate(SMALL, moments[:2], path)
    assert path.read_bytes() == b"older"
    assert [found.name for found in tmp_path.iterdir()] == ["episode.gif"]


@pytest.mark.parametrize("steps", [8, 20, 60, 123, 400, 501, 1500])
def test_an_episode_of_any_length_lasts_8_to_15_seconds(steps: int) -> None:
    every, milliseconds = pace(steps)
    shown = len(range(0, steps, every))
    assert 8_000 <= shown * milliseconds + LAST_FRAME_MILLISECONDS <= 15_000
    assert milliseconds % 10 == 0
    assert milliseconds >= 20  # browsers show less than that as a tenth of a second
