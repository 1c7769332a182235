"""Counts: a joint state is the more novel the less often it was visited (bonus 1 / sqrt(n), Strehl and Littman 2008).

States are told apart as the episodic memory does it: by a short random projection in a hashed index, up to rounding. Where no state recurs,
as in battles, everything is equally new and the bonus is a constant.
"""

from __future__ import annotations

import dataclasses
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree, Shaped

from emc.errors import UserError
from emc.lanes import Lanes, along
from emc.memory import index
from emc.parts import Actors, Curiosity, Metrics, Policy
from emc.schedules import DecayingWeight, WeightState
from emc.types import EnvSpec, Episodes
from emc.user_input import check_size


class Counted(eqx.Module):
    """How often each state was visited, and the weight of the bonus."""

    projection: Float[Array, "S axis"]
    table: index.Table  # of visits
    weight: WeightState


@dataclasses.dataclass(frozen=True)
class Counts(Curiosity):
    """One over the square root of the visits to the joint state that a step led to."""

    weight: DecayingWeight = DecayingWeight()  # EMC's schedule
    capacity: int = 1_000_000
    key_size: int = 4
    radius: float = 2e-4  # as in the episodic memory: a test for equality with room for rounding

    def __post_init__(self) -> None:
        check_size("curiosity.capacity", self.capacity, "a million is usual", low=1)
        if not (1 <= self.key_size <= 8 and 1e-12 <= self.radius <= 1e6):
            raise UserError(f"key_size={self.key_size} must be 1 to 8, radius={self.radius} between 1e-12 and 1e6")

    def init(self, key: PRNGKeyArray, spec: EnvSpec, policy: Policy, policy_net: PyTree) -> Counted:
        projection = jax.random.normal(key, (spec.state_size, self.key_size)) / math.sqrt(self.key_size)
        return Counted(projection, index.empty(self.capacity, self.key_size), self.weight.init())

    def observe(self, state: Counted, fresh: Episodes) -> Counted:
        moment = jnp.arange(fresh.state.shape[1])
        there = (moment <= fresh.length[:, None]) & (fresh.length[:, None] > 0)
        keys = _keys(state, fresh.state).reshape(-1, self.key_size)
        order, count = index.in_order(keys, there.reshape(-1))
        keys = keys[order]
        around = index.neighbourhood(state.table, keys, self.radius)

        def look(i: Int[Array, ""], table: index.Table, carry: tuple[()]) -> tuple[tuple[Array, index.Place, Array], tuple[()]]:
            place = index.find(table, keys[i], jax.tree.map(lambda x: x[i], around), i < count, self.radius)
            return (keys[i], place, jnp.where(place.found, table.value[place.bucket, place.way], 0.0) + 1.0), ()

        table = index.in_turn(count, look, lambda table, done: index.enter(table, *done), state.table, ())[0]
        return dataclasses.replace(state, table=table)

    def learn(
        self, state: Counted, batch: Lanes, actors: Actors, gamma: float, env_steps: Int[Array, ""]
    ) -> tuple[Counted, Float[Array, "M W"], Metrics]:
        def look(weights: tuple[()], tracks: tuple[()], state: Counted, data: tuple[Array, Array]) -> tuple[index.Match, Array]:
            states, played = data
            keys = _keys(state, states[1:])
            match = index.lookup(state.table, keys.reshape(-1, keys.shape[-1]), played[:-1].reshape(-1), self.radius)
            found = jax.tree.map(lambda x: x.reshape(keys.shape[:2]), match)
            return found, state.table.value[found.bucket, found.way]

        match, visits = along(look, batch, (), fixed=state, data=(batch.state, batch.played))
        novelty = jnp.where(match.found, 1.0 / jnp.sqrt(jnp.maximum(visits, 1.0)), 1.0)  # what was forgotten is new
        bonus = state.weight.value * novelty * batch.played
        report = {"curiosity_weight": state.weight.value, "curiosity_states": state.table.entries.astype(jnp.float32)}
        after = Counted(state.projection, index.refresh(state.table, match), self.weight.advance(state.weight, env_steps))
        return after, bonus, report


def _keys(state: Counted, states: Shaped[Array, "*B S"]) -> Float[Array, "*B axis"]:
    # Accelerators multiply float32 matrices at reduced precision unless told otherwise, which moves keys by more than the radius.
    return jnp.matmul(states.astype(jnp.float32), state.projection, precision=jax.lax.Precision.HIGHEST)
