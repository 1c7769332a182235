"""Schedules against hand-computed values and a plain Python twin."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.errors import UserError
from emc.schedules import DecayingWeight, Epsilon, WeightState
from tests.twins import quick


@pytest.mark.parametrize(("steps", "expected"), [(0, 1.0), (1, 1.0 - 0.95 / 50_000), (25_000, 0.525), (50_000, 0.05), (2_000_000, 0.05)])
def test_epsilon_falls_linearly_to_its_floor(steps: int, expected: float) -> None:
    assert float(Epsilon()(jnp.int32(steps))) == pytest.approx(expected, rel=1e-6)


@hypothesis.settings(max_examples=50, deadline=None)
@hypothesis.given(st.integers(0, 300_000), st.integers(1, 200_000), st.floats(0.5, 1), st.floats(0, 0.5))
def test_epsilon_is_the_larger_of_the_line_and_its_floor(now: int, steps: int, start: float, finish: float) -> None:
    expected = max(finish, start - (start - finish) * now / steps)
    assert float(Epsilon(start, finish, steps)(jnp.int32(now))) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [(0, 1.0), (35_000, 0.525), (50_000, 1 - 0.95 * 5 / 7), (50_001, 1 - 0.95 / 20_000), (60_000, 0.525), (70_000, 0.05), (900_000, 0.05)],
)
def test_epsilon_may_start_again_from_the_top(steps: int, expected: float) -> None:
    schedule = Epsilon(steps=70_000, restart_at=50_000, restart_steps=20_000)
    assert float(schedule(jnp.int32(steps))) == pytest.approx(expected, rel=1e-6)


@hypothesis.settings(max_examples=50, deadline=None)
@hypothesis.given(st.integers(0, 300_000), st.integers(1, 100_000), st.integers(1, 200_000))
def test_the_second_time_is_a_schedule_of_its_own(now: int, restart_at: int, restart_steps: int) -> None:
    first, second = Epsilon(), Epsilon(steps=restart_steps)
    expected = second(jnp.int32(now - restart_at)) if now > restart_at else first(jnp.int32(now))
    assert float(Epsilon(restart_at=restart_at, restart_steps=restart_steps)(jnp.int32(now))) == float(expected)


@functools.partial(quick, static_argnums=0)
def _run(schedule: DecayingWeight, calls: jax.Array) -> WeightState:
    def one(state: WeightState, now: jax.Array) -> tuple[WeightState, WeightState]:
        state = schedule.advance(state, now)
        return state, state

    return jax.lax.scan(one, schedule.init(), calls)[1]


def run(schedule: DecayingWeight, calls: list[int]) -> tuple[list[float], list[int]]:
    """The weight and the time of its last decay after each call."""
    states = _run(schedule, jnp.array(calls, jnp.int32))
    return np.asarray(states.value, np.float64).tolist(), np.asarray(states.last).tolist()


def released_code(schedule: DecayingWeight, calls: list[int]) -> tuple[list[float], list[int]]:
    """The same by the released code's rule."""
    scale, last, values, times = schedule.start, 0, [], []
    for now in calls:
        if now - last >= schedule.every:
            scale = scale * schedule.rate if scale > schedule.floor else schedule.floor
            last = now
        values.append(scale)
        times.append(last)
    return values, times


def test_ten_decays_have_come_when_episodes_of_thirty_steps_reach_fifty_thousand_one_hundred() -> None:
    calls = list(range(30, 60_001, 30))
    values, times = run(DecayingWeight(), calls)
    at = calls.index(50_100)
    assert values[at] == pytest.approx(0.2 * 0.9**10, rel=1e-5)
    assert values[at - 1] == pytest.approx(0.2 * 0.9**9, rel=1e-5)
    assert times[at] == 50_100
    assert values[calls.index(5_010) - 1] == pytest.approx(0.2)  # each decay is late by up to one episode
    assert values[calls.index(5_010)] == pytest.approx(0.18)


def test_the_weight_may_undershoot_its_floor_once_and_is_then_set_to_it() -> None:
    values, _ = run(DecayingWeight(start=0.011, rate=0.5, every=10, floor=0.01), [10, 20, 30, 40])
    assert values == pytest.approx([0.0055, 0.01, 0.01, 0.01], rel=1e-6)


def test_a_zero_floor_is_never_reached() -> None:
    values, _ = run(DecayingWeight(start=0.001, rate=0.9, every=100_000, floor=0.0), list(range(100_000, 2_000_001, 100_000)))
    assert values[-1] == pytest.approx(0.001 * 0.9**20, rel=1e-5)
    assert values[-1] == pytest.approx(1.2e-4, rel=0.02)


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(
    schedule=st.sampled_from(
        [DecayingWeight(0.2, 0.9, 50, 0.01), DecayingWeight(0.05, 0.5, 7, 0.01), DecayingWeight(1.0, 0.5, 1, 0.0), DecayingWeight(0.0)]
    ),
    lengths=st.lists(st.integers(0, 40), min_size=40, max_size=40),
)
def test_every_decay_is_the_released_codes(schedule: DecayingWeight, lengths: list[int]) -> None:
    calls = np.cumsum(lengths).tolist()
    values, times = run(schedule, calls)
    expected, expected_times = released_code(schedule, calls)
    assert times == expected_times
    assert values == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Epsilon(start=1.1),
        lambda: Epsilon(finish=-0.1),
        lambda: Epsilon(finish=math.nan),
        lambda: Epsilon(steps=0),
        lambda: Epsilon(restart_at=-1),
        lambda: Epsilon(restart_steps=0),
        lambda: DecayingWeight(start=-1.0),
        lambda: DecayingWeight(start=math.nan),
        lambda: DecayingWeight(rate=0.0),
        lambda: DecayingWeight(rate=1.5),
        lambda: DecayingWeight(every=0),
        lambda: DecayingWeight(floor=math.inf),
    ],
)
def test_schedules_that_make_no_sense_are_refused_in_one_line(make: Callable[[], object]) -> None:
    with pytest.raises(UserError, match=r"^(epsilon|weight)\.[a-z_]+=[^\n]*(must|is not)[^\n]*$"):
        make()
