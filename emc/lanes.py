"""Lanes: a batch laid out so that learning costs what was played.

Episodes differ in length, and most of a padded batch never happened. Here they stand end to end in lanes of about equal length: the longest
is placed first, each next one where most room is left.

    lane 0   a a a a a a a a a a a a a a A
    lane 1   b b b b b b b b b B e e e E          A, B, ... are last moments: seen, but followed by no step
    lane 2   c c c c c C d d d d D f f F

All lanes are worked through side by side, and every loop ends with the longest of them. What a step led to stands at the next moment of its
lane, so whatever belongs to steps is an array `[moments, lanes]` with a mask (`played`), and recurrent networks begin again where an
episode does (`first`). Few lanes waste little, many make large products: see `layout_for`.

`along` is the one mechanism for work per moment: a function of a block of moments is called block by block, and differentiated block by
block by computing it again; short lanes are one block, which is differentiated as usual. A mixer or a loss is written for moments and knows
nothing of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PyTree, Shaped

from emc.types import Episodes, shared_maximum

# What `layout_for` knows of CPUs, measured with one thread of one that has 512-bit vectors and 1 MiB of cache for each core.
VECTOR = 16  # rows that are handled at once
UNEVEN_COST = 1.1  # of rows that fill no whole vectors
MOMENT_COST = 24  # of one more moment, in rows
MOST_ROWS = 112  # above, what a moment touches leaves the cache
BLOCK = 16  # moments of every lane handled at once in work per moment
ACCELERATOR_BLOCK = 128  # the same where width is what counts: whole episodes on most tasks
Tree = TypeVar("Tree")


class Moment(eqx.Module):
    """What a batch knows of some moments, whatever keeps it."""

    obs: Shaped[Array, "*K N O"]
    state: Shaped[Array, "*K S"]
    available: Bool[Array, "*K N A"]
    previous: Int[Array, "*K N"]  # the last action, -1 before the first
    action: Int[Array, "*K N"]
    reward: Float[Array, "*K"]
    terminated: Bool[Array, "*K"]
    choice: PyTree


class Lanes(eqx.Module):
    """A batch of episodes end to end. Legend as in `types`; `M` moments along, `W` lanes beside each other."""

    inputs: Float[Array, "M W N I"]  # what the agents' networks read: the observation, then what the policy adds
    state: Float[Array, "M W S"]
    available: Bool[Array, "M W N A"]
    action: Int[Array, "M W N"]
    reward: Float[Array, "M W"]
    terminated: Bool[Array, "M W"]  # no bootstrap at this step
    played: Bool[Array, "M W"]  # whether a step was taken at this moment
    first: Bool[Array, "M W"]  # whether an episode begins here
    time: Int[Array, "M W"]  # the moment of the episode
    episode: Int[Array, "M W"]  # which of the batch; B where there is none
    choice: PyTree  # decisions of each step, "M W ..."; the last one also at the moment after it
    length: Int[Array, " B"]  # steps of each episode
    moments: Int[Array, ""]  # of the longest lane, over everything that is computed side by side
    limit: int = eqx.field(static=True)  # of an episode, in steps
    block: int = eqx.field(static=True)  # moments handled at once in work per moment

    @property
    def inside(self) -> Bool[Array, "M W"]:
        """Where there is an episode, its last moment included."""
        return self.episode < self.length.shape[0]

    def by_episode(self, values: Shaped[Array, "M W *rest"]) -> Shaped[Array, "B T *rest"]:
        """What belongs to steps, in padded rows of episodes."""
        blank = jnp.zeros((self.length.shape[0], self.limit, *values.shape[2:]), values.dtype)
        return blank.at[self._row, self.time].set(values, mode="drop")

    def per_episode(self, values: Float[Array, "M W"]) -> Float[Array, " B"]:
        """Sums over the steps of each episode."""
        return jnp.zeros(self.length.shape[0]).at[self._row].add(values, mode="drop")

    @property
    def _row(self) -> Int[Array, "M W"]:
        return jnp.where(self.played, self.episode, self.length.shape[0])


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a batch is laid out. The choice changes speed and rounding, and nothing else."""

    lanes: int  # beside each other
    block: int  # moments of every lane that work per moment handles at once

    def longest(self, episodes: int, limit: int) -> int:
        """Moments of a lane, if all of so many episodes lasted to their limit."""
        return -(-episodes // self.lanes) * (limit + 1)

    def block_within(self, longest: int) -> int:
        """Moments of a block, where lanes have so many at most: what would be two blocks of the usual size is one."""
        return longest if longest <= 2 * BLOCK == 2 * self.block else min(self.block, longest)


def layout_for(episodes: int, n_agents: int, usual_length: float, lanes: int = 0, block: int = 0) -> Layout:
    """The layout of so many episodes that usually last this share of the longest: as asked, or, for 0, as suits the machine."""
    on_cpu = jax.default_backend() == "cpu"
    block = block or (BLOCK if on_cpu else ACCELERATOR_BLOCK)
    if lanes or not on_cpu:  # an accelerator wants width above all: one lane for each episode, and loops up to the longest episode
        return Layout(min(lanes or episodes, episodes), block)
    return Layout(_lanes_on_a_cpu(episodes, n_agents, usual_length), block)


def _lanes_on_a_cpu(episodes: int, n_agents: int, usual_length: float) -> int:
    """The cheapest number of lanes.

    A moment of all lanes costs about as much as its rows (agents of all lanes), in whole vectors, and a little more; and lanes are as long
    as they share the moments of the batch, but no shorter than the longest episode. Episodes of equal length must fit them too, with little
    waste.
    """

    def cost(lanes: int) -> float:
        rows = lanes * n_agents
        whole = -(-rows // VECTOR) * VECTOR * (1.0 if rows % VECTOR == 0 else UNEVEN_COST)
        return (whole + MOMENT_COST) / min(lanes, usual_length * episodes)

    narrow = [
        lanes for lanes in range(1, episodes + 1) if lanes * n_agents <= MOST_ROWS and -(-episodes // lanes) * lanes <= 1.05 * episodes
    ]
    return min(narrow or [1], key=cost)


class _Places(eqx.Module):
    """What stands where."""

    episode: Int[Array, "M W"]
    time: Int[Array, "M W"]
    first: Bool[Array, "M W"]
    longest: Int[Array, ""]


def arrange(length: Int[Array, " B"], limit: int, layout: Layout) -> _Places:
    """Episodes of given lengths in lanes: longest first, each where most room is left.

    No lane gets longer than if all episodes had full length: one of the lanes has always had less than its share of them.
    """
    episodes, lanes = length.shape[0], layout.lanes
    longest = layout.longest(episodes, limit)
    block = layout.block_within(longest)
    size = -(-longest // block) * block + 1  # whole blocks, and one moment for what the last step could lead to
    order = jnp.argsort(-length, stable=True)

    def place(end: Array, episode: Array) -> tuple[Array, tuple[Array, Array]]:
        lane = jnp.argmin(end)
        return end.at[lane].add(length[episode] + 1), (lane, end[lane])

    end, (lane, start) = lax.scan(place, jnp.zeros(lanes, jnp.int32), order)
    begins = jnp.full((size, lanes), -1).at[start, lane].set(order)
    moment = jnp.arange(size)[:, None]
    since = lax.cummax(jnp.where(begins >= 0, moment, -1), axis=0)
    episode = jnp.take_along_axis(begins, jnp.maximum(since, 0), axis=0)
    time = moment - since
    there = (since >= 0) & (time <= length[episode])
    return _Places(jnp.where(there, episode, episodes), jnp.where(there, time, 0), begins >= 0, jnp.max(end))


def lay(
    read: Callable[[Int[Array, "K W"], Int[Array, "K W"]], Moment],
    length: Int[Array, " B"],
    limit: int,
    layout: Layout,
    see: Callable[[Array, Array], Array],
) -> Lanes:
    """Lay a batch out; `read` gives moments of its episodes by number and time, `see` makes the agents' inputs of observation and action.

    Only what was played is read, unpacked and turned into inputs, and that once for all networks that look at it.
    """
    places, size = arrange(length, limit, layout), layout.block_within(layout.longest(length.shape[0], limit))
    moments = shared_maximum(places.longest)
    there = places.episode < length.shape[0]

    def some(episode: Array, time: Array) -> dict[str, Any]:
        on = episode < length.shape[0]
        row = jnp.minimum(episode, length.shape[0] - 1)
        moment = read(row, time)
        steps = on & (time < length[row])
        seen = {
            "inputs": see(moment.obs, moment.previous),
            "state": moment.state.astype(jnp.float32),
            "available": moment.available,
            "choice": moment.choice,
        }
        done = {"action": moment.action, "reward": moment.reward, "terminated": moment.terminated}
        return jax.tree.map(partial(_only, on), seen) | jax.tree.map(partial(_only, steps), done)

    def fill(block: Array, tracks: dict[str, Any]) -> dict[str, Any]:
        here = some(*_blocks((places.episode, places.time), block, size))
        return jax.tree.map(lambda track, part: _write(track, part, block), tracks, here)

    blank = jax.tree.map(
        lambda part: jnp.zeros((places.time.shape[0], *part.shape[1:]), part.dtype),
        jax.eval_shape(some, places.episode[:size], places.time[:size]),
    )
    tracks = lax.fori_loop(0, -(-moments // size), fill, blank)
    played = there & (places.time < length[jnp.minimum(places.episode, length.shape[0] - 1)])
    return Lanes(
        **tracks,
        played=played,
        first=places.first,
        time=places.time,
        episode=places.episode,
        length=length,
        moments=moments,
        limit=limit,
        block=size,
    )


def lay_episodes(episodes: Episodes, layout: Layout, see: Callable[[Array, Array], Array]) -> Lanes:
    """Lay out padded rows of episodes."""

    def read(row: Array, time: Array) -> Moment:
        step = jnp.minimum(time, episodes.action.shape[1] - 1)
        before = episodes.action[row, jnp.maximum(time - 1, 0)]
        last = jnp.maximum(jnp.minimum(time, episodes.length[row] - 1), 0)
        return Moment(
            obs=episodes.obs[row, time],
            state=episodes.state[row, time],
            available=episodes.available[row, time],
            previous=jnp.where(time[..., None] > 0, before, -1),
            action=episodes.action[row, step],
            reward=episodes.reward[row, step],
            terminated=episodes.terminated[row, step],
            choice=jax.tree.map(lambda x: x[row, last], episodes.choice),
        )

    return lay(read, episodes.length, episodes.action.shape[1], layout, see)


Work = Callable[[Any, Any, Any, Any], Any]  # of weights, tracks, what is fixed, and data


def along(work: Work, lanes: Lanes, weights: PyTree, tracks: PyTree = (), fixed: PyTree = (), data: PyTree = ()) -> PyTree:
    """Outputs of `work(weights, tracks, fixed, data)` at every moment of the lanes, block by block; beyond their end it is of no meaning.

    `weights` and `fixed` are handed over whole. Of `tracks` and `data` the moments of one block are, of `data` also the moment after it:
    `data[:-1]` belongs to the steps, `data[1:]` to what they led to. Gradients flow to weights and tracks, none to fixed and data.
    """
    return fold(lambda weights, carry, *rest: (carry, work(weights, *rest)), lanes, weights, (), tracks, fixed, data)[1]


def fold(work: Callable[..., Any], lanes: Lanes, weights: PyTree, carry: PyTree, tracks: PyTree, fixed: PyTree, data: PyTree) -> Any:
    """The same for work that carries something from block to block: `work(weights, carry, tracks, fixed, data)` gives what to carry on and
    the block's outputs; the answer is the last of the one and all of the other."""
    if lanes.time.shape[0] // lanes.block == 1:
        return _at_once(work, lanes.block, weights, carry, tracks, fixed, data)
    return _travel(work, lanes.block, lanes.moments, weights, carry, tracks, fixed, data)


def backwards(step: Callable[[Tree, PyTree], Tree], lanes: Lanes, start: Tree, data: PyTree) -> Tree:
    """What `step(later, data)` makes at each moment, from the end of the lanes to their beginning; not differentiable."""

    def one(i: Array, carry: tuple[Tree, Tree]) -> tuple[Tree, Tree]:
        later, track = carry
        t = lanes.moments - 1 - i
        now = step(later, jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, t, keepdims=False), data))
        return now, jax.tree.map(lambda track, value: lax.dynamic_update_index_in_dim(track, value, t, 0), track, now)

    blank = jax.tree.map(lambda x: jnp.zeros((lanes.time.shape[0], *x.shape), x.dtype), start)
    return lax.fori_loop(0, lanes.moments, one, (start, blank))[1]


def ahead(values: Shaped[Array, "M *rest"]) -> Shaped[Array, "M *rest"]:
    """What stands one moment later: for a step, what it led to."""
    return jnp.concatenate([values[1:], jnp.zeros_like(values[:1])])


def _at_once(work: Callable[..., Any], size: int, weights: Any, carry: Any, tracks: Any, fixed: Any, data: Any) -> Any:
    """Work on a single block, differentiated as usual: nothing would be gained by computing it again."""
    here = jax.tree.map(lambda x: x[:size], tracks)
    last, out = work(weights, carry, here, *lax.stop_gradient((fixed, data)))
    return last, jax.tree.map(lambda x: jnp.concatenate([x, jnp.zeros_like(x[:1])]), out)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _travel(work: Callable[..., Any], size: int, moments: Array, weights: Any, carry: Any, tracks: Any, fixed: Any, data: Any) -> Any:
    return _go(work, size, moments, weights, carry, tracks, fixed, data)[0]


def _go(
    work: Callable[..., Any], size: int, moments: Array, weights: Any, carry: Any, tracks: Any, fixed: Any, data: Any
) -> tuple[tuple[Any, Any], Any]:
    """The last carry and all outputs, then what each block began with."""
    longest = jax.tree.leaves((tracks, data))[0].shape[0]

    def at(block: Array, carry: Any) -> tuple[Any, Any]:
        return work(weights, carry, _blocks(tracks, block, size), fixed, _blocks(data, block, size, after=1))

    def one(block: Array, going: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        carry, out, begun = going
        begun = jax.tree.map(lambda kept, now: lax.dynamic_update_index_in_dim(kept, now, block, 0), begun, carry)
        carry, here = at(block, carry)
        return carry, jax.tree.map(lambda track, part: _write(track, part, block), out, here), begun

    shapes = jax.eval_shape(at, jnp.zeros((), jnp.int32), carry)[1]
    out = jax.tree.map(lambda part: jnp.zeros((longest, *part.shape[1:]), part.dtype), shapes)
    begun = jax.tree.map(lambda x: jnp.zeros((longest // size, *x.shape), x.dtype), carry)
    last, out, begun = lax.fori_loop(0, -(-moments // size), one, (carry, out, begun))
    return (last, out), begun


def _travel_forward(
    work: Callable[..., Any], size: int, moments: Array, weights: Any, carry: Any, tracks: Any, fixed: Any, data: Any
) -> tuple[Any, Any]:
    out, begun = _go(work, size, moments, weights, carry, tracks, fixed, data)
    return out, (moments, weights, begun, tracks, fixed, data)


def _travel_backward(work: Callable[..., Any], size: int, residuals: Any, cotangent: Any) -> Any:
    moments, weights, begun, tracks, fixed, data = residuals
    d_last, d_out = cotangent
    blocks = -(-moments // size)

    def one(i: Array, going: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        d_weights, d_carry, d_tracks = going
        block = blocks - 1 - i
        began = jax.tree.map(lambda x: lax.dynamic_index_in_dim(x, block, keepdims=False), begun)
        here, some = _blocks(tracks, block, size), _blocks(data, block, size, after=1)
        _, back = jax.vjp(lambda weights, carry, here: work(weights, carry, here, fixed, some), weights, began, here)
        more, d_carry, d_here = back((d_carry, _blocks(d_out, block, size)))
        return jax.tree.map(jnp.add, d_weights, more), d_carry, jax.tree.map(lambda x, part: _write(x, part, block), d_tracks, d_here)

    start = (jax.tree.map(jnp.zeros_like, weights), d_last, jax.tree.map(jnp.zeros_like, tracks))
    d_weights, d_carry, d_tracks = lax.fori_loop(0, blocks, one, start)
    return None, d_weights, d_carry, d_tracks, None, None


_travel.defvjp(_travel_forward, _travel_backward)


def _blocks(tree: Tree, block: Int[Array, ""], size: int, after: int = 0) -> Tree:
    """The moments of one block, and some after it."""
    return jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, block * size, size + after, 0), tree)


def _write(track: Shaped[Array, "M *rest"], part: Shaped[Array, "K *rest"], block: Int[Array, ""]) -> Shaped[Array, "M *rest"]:
    return lax.dynamic_update_slice_in_dim(track, part, block * part.shape[0], 0)


def _only(where: Bool[Array, "K W"], values: Shaped[Array, "K W *rest"]) -> Shaped[Array, "K W *rest"]:
    """Zero elsewhere."""
    return jnp.where(where.reshape(*where.shape, *[1] * (values.ndim - 2)), values, jnp.zeros((), values.dtype))
