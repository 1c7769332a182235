"""A table of keys with values that finds the exact nearest key within a radius, in constant time, at a fixed shape, inside `jit`.

Space is cut into cubic cells at least sixteen radii wide, so the ball around a key meets at most two cells along each axis, 16 in four
dimensions, and along most axes its own alone. A cell is hashed to one bucket of `WAYS` entries, and an entry lives in the bucket of its own
cell and nowhere else. Looking into the buckets of those 16 cells therefore sees every stored key within the radius; distances decide, so
cells that share a bucket do no harm. The answer is exact for everything that is stored, at any magnitude of keys: see `cell_width`.

What is approximate is which entry gives way when the table is full. The entry evicted is the least recently used of its own bucket,
not of the whole table: exact LRU up to a capacity of `WAYS`, set-associative LRU above. Because buckets fill unevenly, evictions
begin before the table is full. Measured with 1,000,000 slots and keys that fall into different cells: the first eviction at 0.32 of
the capacity, 0.1 % of all keys evicted at 0.51, 1 % at 0.67, 10 % once as many keys have arrived as there are slots. Keys that crowd one
cell (a radius that is large against the spread of the keys) compete for that cell's ways; `evictions` counts how often that happened.

Almost every key that is looked up is stored itself, at a distance of rounding error, and then the home cell alone decides; of those that
are not, wide cells leave three in five to their home cell. So `lookup` probes one cell for all keys and the full neighbourhood only for
those that could have something nearer across a border.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt32

from emc.types import shared_maximum

Tables = TypeVar("Tables")
Carry = TypeVar("Carry")
Done = TypeVar("Done")
WAYS = 16  # entries per bucket: 8 are probed almost twice as fast, but evict 1 % of the keys at 0.52 of the capacity already
CHUNK = 256  # keys whose whole neighbourhood is probed at once: twice as fast as 16, and more gain nothing
NARROWEST = 2.0**-24  # of all cells, for a radius of zero
FURTHEST = 2.0**30  # cells beyond are one cell: still exact, and the index never overflows an int32
MARGIN = 1.0 + 2.0**-16  # covers the rounding of squared distances with room to spare; costs nothing
VACANT = np.uint32(2**32 - 1)  # the age of an empty slot: it goes first


@final
class Table(eqx.Module):
    """Entries in buckets of equal size; an empty slot has an infinite key."""

    key: Float[Array, "bucket axis way"]  # ways last: one bucket is contiguous and its distances are computed side by side
    value: Float[Array, "bucket way"]
    stamp: UInt32[Array, "bucket way"]  # the clock when the entry was last used
    clock: UInt32[Array, ""]  # ticks once per written key and once per refresh; ages are differences, so wrapping round is harmless
    entries: Int[Array, ""]
    evictions: UInt32[Array, ""]


@final
class Match(eqx.Module):
    """Where the nearest stored key of each query is, if there is one within the radius."""

    bucket: Int[Array, "*query"]
    way: Int[Array, "*query"]
    found: Bool[Array, "*query"]


@final
class Neighbourhood(eqx.Module):
    """The buckets of the cells that the ball around a key meets, the home cell's first."""

    bucket: Int[Array, "*n probe"]
    size: Int[Array, "*n"]  # how many of them are to be probed


def empty(capacity: int, axes: int) -> Table:
    """A table without entries; the capacity is rounded up to buckets of equal size."""
    buckets = -(-capacity // WAYS)
    ways = -(-capacity // buckets)
    return Table(
        key=jnp.full((buckets, axes, ways), jnp.inf, jnp.float32),
        value=jnp.zeros((buckets, ways), jnp.float32),
        stamp=jnp.zeros((buckets, ways), jnp.uint32),
        clock=jnp.zeros((), jnp.uint32),
        entries=jnp.zeros((), jnp.int32),
        evictions=jnp.zeros((), jnp.uint32),
    )


def insert(table: Table, keys: Float[Array, "n axis"], values: Float[Array, " n"], wanted: Bool[Array, " n"], radius: float) -> Table:
    """Write the wanted keys one after the other: raise the value of the nearest key within the radius, or else add an entry."""
    order, count = in_order(keys, wanted)
    keys, values = keys[order], values[order]
    around = neighbourhood(table, keys, radius)

    def look(i: Int[Array, ""], table: Table, carry: tuple[()]) -> tuple[tuple[Array, Place, Array], tuple[()]]:
        place = find(table, keys[i], jax.tree.map(lambda x: x[i], around), i < count, radius)
        best = jnp.where(place.found, jnp.maximum(table.value[place.bucket, place.way], values[i]), values[i])
        return (keys[i], place, best), ()

    def write(table: Table, done: tuple[Array, Place, Array]) -> Table:
        return enter(table, *done)

    return in_turn(count, look, write, table, ())[0]


def in_turn(
    count: Int[Array, ""],
    look: Callable[[Array, Tables, Carry], tuple[Done, Carry]],
    write: Callable[[Tables, Done], Tables],
    tables: Tables,
    carry: Carry,
) -> tuple[Tables, Carry]:
    """`count` times in turn: `look` at the tables and say what to do, then `write` it.

    What one turn says is written at the beginning of the next, when it is nothing but numbers: a compiler that finds a table to be read
    for one write and written to by another copies all of it, for every key. So there is one turn more, in which nothing is due: it must
    not change what is carried.
    """

    def turn(i: Int[Array, ""], going: tuple[Tables, Done, Carry]) -> tuple[Tables, Done, Carry]:
        tables, done, carry = going
        tables = write(tables, done)
        return tables, *look(i, tables, carry)

    shapes = jax.eval_shape(look, jnp.zeros((), jnp.int32), tables, carry)[0]
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    tables, _, carry = jax.lax.fori_loop(0, shared_maximum(count) + 1, turn, (tables, nothing, carry))
    return tables, carry


@final
class Place(eqx.Module):
    """Where the entry of a key is, or will be."""

    bucket: Int[Array, ""]
    way: Int[Array, ""]
    found: Bool[Array, ""]  # whether it is there
    vacant: Bool[Array, ""]  # whether a new one takes nobody's place
    due: Bool[Array, ""]  # whether anything is to be written

    def put(self, column: Shaped[Array, "bucket way"], value: Shaped[Array, ""]) -> Shaped[Array, "bucket way"]:
        """A column of entries with another value there."""
        bucket = jnp.where(self.due, self.bucket, column.shape[0])  # past the last: what is written there is dropped
        return column.at[bucket, self.way].set(value, mode="drop")


def in_order(keys: Float[Array, "n axis"], wanted: Bool[Array, " n"]) -> tuple[Int[Array, " n"], Int[Array, ""]]:
    """The rows of wanted keys in their order, others after them, and how many are wanted."""
    wanted = wanted & jnp.all(jnp.isfinite(keys), axis=-1)
    return jnp.nonzero(wanted, size=len(keys), fill_value=0)[0], jnp.sum(wanted)


def find(table: Table, key: Float[Array, " axis"], around: Neighbourhood, due: Bool[Array, ""], radius: float) -> Place:
    """The place of a key: its entry, or else the bucket's oldest.

    `due` holds always, except under `vmap` while another table has more to write.
    """
    match = _nearest(table, key, around, radius)
    home = around.bucket[0]
    age = jnp.where(jnp.isinf(table.key[home, 0]), VACANT, jnp.minimum(table.clock - table.stamp[home], VACANT - 1))
    oldest = jnp.max(age)
    victim = jnp.argmax(age == oldest).astype(jnp.int32)
    bucket, way = jnp.where(match.found, match.bucket, home), jnp.where(match.found, match.way, victim)
    return Place(bucket, way, match.found, oldest == VACANT, due)


def enter(table: Table, key: Float[Array, " axis"], place: Place, value: Float[Array, ""]) -> Table:
    """Write a value at the place of a key, which is entered if it is not there, and mark it as used now."""
    new = place.due & ~place.found
    return Table(
        key=table.key.at[jnp.where(new, place.bucket, _nowhere(table)), :, place.way].set(key, mode="drop"),
        value=place.put(table.value, value),
        stamp=place.put(table.stamp, table.clock),
        clock=table.clock + place.due.astype(jnp.uint32),
        entries=table.entries + (new & place.vacant),
        evictions=table.evictions + (new & ~place.vacant).astype(jnp.uint32),
    )


def lookup(table: Table, keys: Float[Array, "n axis"], wanted: Bool[Array, " n"], radius: float) -> Match:
    """The nearest stored key within the radius of each wanted key."""
    n = len(keys)
    chunk = min(CHUNK, n)
    cell = _cell(keys, radius)
    bucket, way, distance = jax.vmap(_probe, in_axes=(None, 0, 0))(table, keys, _bucket(table, cell))
    match = Match(bucket, way, wanted & (distance <= radius**2))
    reach = jnp.sqrt(jnp.minimum(distance, radius**2))[:, None]  # only a nearer key could change the answer
    unsure = wanted & jnp.any(_beside(keys, reach, radius) != cell, axis=-1)
    (order,) = jnp.nonzero(unsure, size=n + chunk, fill_value=n)

    def search(i: Int[Array, ""], match: Match) -> Match:
        which = jax.lax.dynamic_slice_in_dim(order, i * chunk, chunk)
        some = keys.at[which].get(mode="clip")
        exact = jax.vmap(_nearest, in_axes=(None, 0, 0, None))(table, some, neighbourhood(table, some, radius), radius)
        return jax.tree.map(lambda whole, part: whole.at[which].set(part, mode="drop"), match, exact)

    return jax.lax.fori_loop(0, shared_maximum(-(-jnp.sum(unsure) // chunk)), search, match)


def refresh(table: Table, match: Match) -> Table:
    """Mark what was found as used now, all of it at the same tick."""
    bucket = jnp.where(match.found, match.bucket, _nowhere(table))
    stamp = table.stamp.at[bucket, match.way].set(table.clock, mode="drop")
    return eqx.tree_at(lambda t: (t.stamp, t.clock), table, (stamp, table.clock + jnp.uint32(1)))


def cell_width(radius: float) -> float:
    """The smallest power of two that is at least sixteen radii.

    A power of two makes `key / width` exact, so cells are monotone in the key. Rounding is monotone too, and stored keys are floats: from
    `key - reach <= stored` follows `float(key - reach) <= stored`. The cells of `key - reach` and `key + reach` therefore enclose the
    cell of every stored key within reach, whatever the magnitude of the key. At most one of the two differs from the home cell: where
    floats are a width or more apart, the bound away from zero rounds to the key itself; elsewhere rounding adds at most a quarter of a
    width to the eighth that a reach to both sides spans.
    """
    return 2.0 ** math.ceil(math.log2(max(16.0 * radius, NARROWEST)))


def _cell(keys: Float[Array, "*n axis"], radius: float) -> Int[Array, "*n axis"]:
    """The cell that holds a key."""
    return jnp.clip(jnp.floor(keys / cell_width(radius)), -FURTHEST, FURTHEST).astype(jnp.int32)


def _beside(keys: Float[Array, "*n axis"], reach: Float[Array, "*n 1"] | float, radius: float) -> Int[Array, "*n axis"]:
    """Along each axis, the other cell that keys within reach can lie in; the home cell where there is none."""
    below, home, above = _cell(keys - reach * MARGIN, radius), _cell(keys, radius), _cell(keys + reach * MARGIN, radius)
    return jnp.where(below != home, below, above)


def neighbourhood(table: Table, keys: Float[Array, "n axis"], radius: float) -> Neighbourhood:
    """The buckets of all cells that balls around the keys meet."""
    axes = keys.shape[-1]
    home, beside = _cell(keys, radius), _beside(keys, radius, radius)
    crossed = home != beside
    # The cells are counted in binary, one digit per crossed axis, so the first 2**crossings of them are all different and the rest repeat.
    digit = jnp.cumsum(crossed, axis=-1) - 1
    chosen = crossed[:, None] & ((np.arange(2**axes)[:, None] >> digit[:, None]) & 1 == 1)
    return Neighbourhood(_bucket(table, jnp.where(chosen, beside[:, None], home[:, None])), 2 ** jnp.sum(crossed, axis=-1))


def _bucket(table: Table, cells: Int[Array, "*n axis"]) -> Int[Array, "*n"]:
    """The bucket of a cell: a multiplicative hash of its coordinates."""
    mixed = jnp.zeros(cells.shape[:-1], jnp.uint32)
    for axis in range(cells.shape[-1]):
        mixed = (mixed ^ cells[..., axis].astype(jnp.uint32)) * np.uint32(0x9E3779B1)
        mixed = mixed ^ (mixed >> 15)
    mixed = mixed * np.uint32(0x85EBCA6B)
    mixed = mixed ^ (mixed >> 13)
    return (mixed % np.uint32(table.key.shape[0])).astype(jnp.int32)


def _nearest(table: Table, key: Float[Array, " axis"], around: Neighbourhood, radius: float) -> Match:
    """The nearest entry in the neighbourhood of one key, if it is within the radius."""

    def probe(i: Int[Array, ""], best: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        here, (_, _, nearest) = _probe(table, key, around.bucket[i]), best
        return jax.tree.map(lambda new, old: jnp.where(here[2] < nearest, new, old), here, best)

    first = (around.bucket[0], jnp.zeros((), jnp.int32), jnp.full((), jnp.inf))
    bucket, way, distance = jax.lax.fori_loop(0, around.size, probe, first)
    return Match(bucket, way, distance <= radius**2)


def _probe(table: Table, key: Float[Array, " axis"], bucket: Int[Array, ""]) -> tuple[Array, Array, Array]:
    """The nearest entry of one bucket: the bucket, the way, and the squared distance."""
    stored = jax.lax.dynamic_index_in_dim(table.key, bucket, keepdims=False)
    distances = jnp.sum(jnp.square(stored - key[:, None]), axis=0)
    return bucket, jnp.argmin(distances).astype(jnp.int32), jnp.min(distances)


def _nowhere(table: Table) -> int:
    """The bucket number past the last: what is written there is dropped."""
    return table.key.shape[0]
