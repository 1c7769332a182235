"""Episodic memory: what returns followed each state, in the paper the best ever seen (Eq. 5-8).

States are projected to short keys by a fixed random matrix. When an episode ends, its states are written with the discounted extrinsic
return that followed them, each keeping its maximum (Eq. 6). For a replayed transition the memory answers with the one-step
target r + gamma H(s') (Eq. 7), which pulls Q_tot towards the best that is known to be possible (Eq. 5, 8).

What differs from the released code, which follows the paper less closely here:
* An entry is visible as soon as it is written. The released code searches a KD-tree that is rebuilt every 200 updates; until then revisits
  are appended as duplicates, and which of them a lookup finds is arbitrary, so its H need not be the maximum.
* Padding is never written. The released code writes an all-zero key for every slot after the end.
* Where an episode was cut by a limit that is not part of the task, the final state is not written: nobody saw what would follow. The
  released code writes it with 0, which for negative rewards is better than anything real; `write_cut_states` does so too.
* The match is the paper's ball around the key. The released code asks for equality up to 1e-5 of each component; the paper names no radius.
What does not: the returns of such a cut episode are still summed from 0 backwards, so they are the part of the return that was seen.
There is no (1 - terminated) factor in the target: terminal states are written with 0, and raised if the same key is ever passed in
mid-episode.

Where chance decides, the best return is the luckiest one. `statistic` says what is remembered instead (`statistics.py`): "mean", the mean
of all returns, or "bound", what the best play seems to be worth at least.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal, final, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped

from emc.errors import UserError
from emc.lanes import Lanes, along
from emc.losses import TD
from emc.memory import index
from emc.memory.statistics import (
    Bounds,
    Means,
    Wins,
    begin_bounds,
    begin_means,
    begin_wins,
    visits_of,
    write_bounds,
    write_means,
    write_wins,
)
from emc.parts import Memory, Metrics, Prospect, Recollection, ValueLoss
from emc.types import EnvSpec, Episodes
from emc.user_input import check_number, check_size, lookup

Statistic = Literal["best", "mean", "bound"]


@final
class Remembered(eqx.Module):
    """What an episodic memory carries."""

    projection: Float[Array, "S axis"]
    table: index.Table  # of H
    statistic: tuple[()] | Means | Bounds | Wins = ()  # what it takes to keep H, beside H


@final
@dataclasses.dataclass(frozen=True)
class EpisodicMemory(Memory):
    """What returns followed each state, found by the nearest key within a radius."""

    weight: float = 0.1  # lambda of Eq. 8; released code: 0.1, on corridor 0.01
    capacity: int = 1_000_000  # paper and released code; rounded up to whole buckets
    key_size: int = 4  # released code; not in the paper
    # A test for equality, as in the released code, with room for rounding: the same state projected in batches of different shapes gives
    # keys up to 1e-5 apart at 300 entries and 1e-4 at 2,000 (all of order one; zeros do not count). Different states do not meet: one
    # entry that differs by 1e-3 moves the key by about 1e-3, and among a million Gaussian keys no two are expected to be this close.
    radius: float = 2e-4
    write_cut_states: bool = False  # True: released code, the state at which a limit cut an episode is written with 0
    statistic: Statistic = "best"  # of the returns from a state; the paper's is the best
    incentive: bool = False  # EMU's: what is missing to the best return is paid as far as visits have led to wins; reads the win flag
    pessimism: float = 1.0  # c of "bound": how many standard errors below what a joint action seems to be worth

    def __post_init__(self) -> None:
        lookup("statistic", self.statistic, dict.fromkeys(get_args(Statistic)))
        if self.incentive and self.statistic != "best":
            raise UserError(f"memory.incentive is paid for best returns, not for memory.statistic={self.statistic}: set one of the two")
        check_number("memory.pessimism", self.pessimism, "1 is usual, 0 believes every average", low=0.0)
        check_number("memory.weight", self.weight, "0 only watches", low=0.0)
        check_size("memory.capacity", self.capacity, "set it to 1 or more, or leave memory out (--memory none)", low=1)
        if not 1 <= self.key_size <= 8:
            raise UserError(f"key_size={self.key_size}: a lookup searches 2**key_size cells. Choose 1 to 8.")
        if not (self.radius == 0.0 or 1e-12 <= self.radius <= 1e6):
            raise UserError(f"radius={self.radius} cannot be measured in float32. Choose 0.0 for equal keys, or 1e-12 to 1e6.")

    @property
    def loss_weight(self) -> float:
        return self.weight

    def refuse(self, loss: ValueLoss) -> str:
        """EMU's incentive is measured against the value that a target takes over: the agents' mixed one in a TD loss alone."""
        refused = self.incentive and not isinstance(loss, TD)
        return "memory.incentive is for a plain TD loss, whose targets are the mixed values of the agents: use --loss td" * refused

    def init(self, key: PRNGKeyArray, spec: EnvSpec) -> Remembered:
        # The projection follows the run's seed; the released code draws the same one in all runs.
        projection = jax.random.normal(key, (spec.state_size, self.key_size)) / math.sqrt(self.key_size)
        table = index.empty(self.capacity, self.key_size)
        match self.statistic:
            case "best":
                return Remembered(projection, table, begin_wins(table) if self.incentive else ())
            case "mean":
                return Remembered(projection, table, begin_means(table))
            case "bound":
                own = begin_bounds(table, jax.random.fold_in(key, 1), spec, 1 / math.sqrt(self.key_size))
                return Remembered(projection, table, own)

    def observe(self, state: Remembered, fresh: Episodes, gamma: float, won: Bool[Array, " B"] | None = None) -> Remembered:
        returns = jax.vmap(_discounted, in_axes=(0, None))(jnp.where(fresh.played, fresh.reward, 0.0), gamma)
        ended = jnp.any(fresh.terminated & fresh.played, axis=-1)
        moment, length = jnp.arange(fresh.state.shape[-2]), fresh.length[:, None]
        known = (moment < length) | ((ended[:, None] | self.write_cut_states) & (moment == length))
        keys, own = _keys(state, fresh.state), state.statistic
        if isinstance(own, tuple):
            backwards = (jnp.flip(x, axis=1) for x in (keys, returns, known))
            keys, returns, known = (_in_a_row(x) for x in backwards)  # episode after episode, each from its end to its start
            return Remembered(state.projection, index.insert(state.table, keys, returns, known, self.radius))
        visits = visits_of(fresh, keys, returns, known, gamma)
        if isinstance(own, Wins):
            episodes_won = jnp.zeros(fresh.length.shape, bool) if won is None else won
            each = jnp.repeat(episodes_won, keys.shape[1])
            return Remembered(state.projection, *write_wins(state.table, own, visits, each, self.radius))
        if isinstance(own, Means):
            return Remembered(state.projection, *write_means(state.table, own, visits, self.radius))
        return Remembered(state.projection, *write_bounds(state.table, own, visits, self.radius, self.pessimism))

    def look_up(self, state: Remembered, states: Shaped[Array, "n S"]) -> tuple[Bool[Array, " n"], Float[Array, " n"]]:
        """Whether each state is remembered, and H of those that are."""
        match = index.lookup(state.table, _keys(state, states), jnp.ones(len(states), bool), self.radius)
        return match.found, state.table.value[match.bucket, match.way]

    def recall(self, state: Remembered, batch: Lanes, gamma: float) -> tuple[Remembered, Recollection]:
        def look(weights: tuple[()], tracks: tuple[()], state: Remembered, data: tuple[Array, Array]) -> tuple[index.Match, Array, Any]:
            states, played = data
            match = index.lookup(state.table, _in_a_row(_keys(state, states[1:])), _in_a_row(played[:-1]), self.radius)
            found = jax.tree.map(lambda x: x.reshape(states[1:].shape[:2]), match)
            own = state.statistic
            share = own.wins[found.bucket, found.way] / own.visits[found.bucket, found.way] if isinstance(own, Wins) else ()
            return found, state.table.value[found.bucket, found.way], share

        match, value, share = along(look, batch, (), fixed=state, data=(batch.state, batch.played))
        target = jnp.where(match.found, batch.reward + gamma * value, 0.0)  # Eq. 7
        paying = isinstance(state.statistic, Wins)
        prospect = Prospect(*(jnp.where(match.found, x, 0.0) for x in (value, share))) if paying else None
        return Remembered(state.projection, index.refresh(state.table, match), state.statistic), Recollection(target, match.found, prospect)

    def metrics(self, state: Remembered) -> Metrics:
        table, own = state.table, state.statistic
        report = {
            "memory_entries": table.entries.astype(jnp.float32),
            "memory_occupancy": table.entries / table.value.size,
            "memory_evictions": table.evictions.astype(jnp.float32),
        }
        if isinstance(own, Bounds):
            report |= {
                "memory_pairs": own.pairs.entries.astype(jnp.float32),
                "memory_pair_evictions": own.pairs.evictions.astype(jnp.float32),
                "memory_chance": jnp.sqrt(own.squares / jnp.maximum(own.recurrences, 1.0)),  # sigma: how far outcomes of one action spread
            }
        return report


def _keys(state: Remembered, states: Shaped[Array, "*B S"]) -> Float[Array, "*B axis"]:
    """The keys phi(s) of states."""
    # Accelerators multiply float32 matrices at reduced precision unless told otherwise, which moves keys by more than the radius.
    return jnp.matmul(states.astype(jnp.float32), state.projection, precision=jax.lax.Precision.HIGHEST)


def _in_a_row(values: Shaped[Array, "B T *rest"]) -> Shaped[Array, "moments *rest"]:
    """One episode after the other: the table knows keys, not episodes."""
    return values.reshape(-1, *values.shape[2:])


def _discounted(reward: Float[Array, " T"], gamma: float) -> Float[Array, " T1"]:
    """The return from each moment of one episode (R of Eq. 6); 0 after the last step."""

    def earlier(later: Float[Array, ""], reward: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        value = reward + gamma * later
        return value, value

    _, returns = jax.lax.scan(earlier, jnp.zeros(()), reward, reverse=True)
    return jnp.append(returns, 0.0)
