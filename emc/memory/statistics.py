"""What is remembered of all the returns that followed a state: the best, the mean, or a bound of what the best play is worth there.

The best return is right where nothing is left to chance, and misleads where luck decides: it is the luckiest. The mean is right about what
was done, not about what could be. A statistic of states cannot tell the two kinds of spread apart; one of states and joint actions can:
spread over actions is choice (take the best), spread under one action is chance (take the mean). `Bounds` therefore keeps for each pair of
state and joint action a value q, and of the state H(s) = max(max_u [q(s, u) - c sigma / sqrt(n(s, u))], mean return):

    backwards through an episode, with W = r + gamma (1 - terminated) H(s') and f what (r, s') looked like, where s' is known
    n += 1; random |= n > 1 and f != the last f; if n > 1: D += 1, and SS += (W - q)^2 if f != the last f; sigma = sqrt(SS / D)
    q = W at first; while the pair has always led to the same, the highest W if nothing after it was ever random, else the last;
    then q += 4 / (3 + n) (W - q)
    the pair becomes the state's champion if its bound q - c sigma / sqrt(n) exceeds the champion's, which is renewed when it is played

Without chance sigma is 0: H is at least the best return, and equal to it where episodes never cross; it is no more than the optimum where
tasks end episodes. (Every W can be had there, so the highest counts; behind chance it would be the luckiest.) That holds where states tell
that they are the last. A limit that is part of the task ends it in states that go on otherwise: ending there is no joint action, so its 0
counts with the mean alone, and H may be below a best return that is negative elsewhere. And it holds while there is room: a state or a
pair that was evicted and comes back looks like chance. What follows a limit that is not part of the task counts as nothing while it is not
known, so of an episode that was cut both H and the best return may exceed an optimum that is negative from there. With chance every q of a
random pair that recurs converges (Robbins-Monro steps), those of pairs that lead to it with it, and H to the optimum where every pair
recurs. The floor keeps pessimism from feeding on itself: without it a bound that enters the W of its predecessors widens their spread, and
so all bounds.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped, UInt32

from emc.memory import index
from emc.types import EnvSpec, Episodes

UNKNOWN = np.uint32(0xFFFFFFFF)  # the champion of a state in which nothing was done yet, the entry of a state that is not written


class Visits(eqx.Module):
    """Moments of episodes in a row: one episode after the other, each from its end to its start."""

    key: Float[Array, "n axis"]
    wanted: Bool[Array, " n"]
    ends: Bool[Array, " n"]  # whether it is the last moment of its episode, where nothing is done
    returned: Float[Array, " n"]  # the discounted return that followed
    reward: Float[Array, " n"]  # of the step from there; 0 at the end
    goes_on: Float[Array, " n"]  # gamma, or 0 where that step ended the task
    action: Int[Array, "n N"]


class Means(eqx.Module):
    """How often each state was visited."""

    visits: Int[Array, "bucket way"]


class Bounds(eqx.Module):
    """What is kept of states beside H, and of pairs of state and joint action."""

    visits: Int[Array, "bucket way"]
    mean: Float[Array, "bucket way"]  # of the returns
    champion: UInt32[Array, "bucket way"]  # the joint action with the highest bound, as a number
    bound: Float[Array, "bucket way"]  # its bound
    chancy: Bool[Array, "bucket way"]  # whether anything that was done there was ever random, or led to where something was
    action_projection: Float[Array, "N A axis"]  # joins actions to the keys of states
    pairs: index.Table  # of q
    pair_visits: Int[Array, "bucket way"]
    pair_led_to: UInt32[Array, "bucket way"]  # what the last (r, s') looked like, as a number
    pair_random: Bool[Array, "bucket way"]  # whether it ever led to something else
    squares: Float[Array, ""]
    recurrences: Float[Array, ""]


class Wins(eqx.Module):
    """How often each state was visited, and how often in an episode that was won."""

    visits: Int[Array, "bucket way"]
    wins: Int[Array, "bucket way"]


def begin_wins(table: index.Table) -> Wins:
    """Nothing visited yet."""
    return Wins(*(jnp.zeros(table.value.shape, jnp.int32) for _ in range(2)))


def begin_means(table: index.Table) -> Means:
    """Nothing visited yet."""
    return Means(jnp.zeros(table.value.shape, jnp.int32))


def begin_bounds(table: index.Table, key: PRNGKeyArray, spec: EnvSpec, scale: float) -> Bounds:
    """Nothing visited yet; as many pairs fit as states."""
    states, (_, axes, _) = table.value.shape, table.key.shape
    pairs = index.empty(table.value.size, axes)
    return Bounds(
        visits=jnp.zeros(states, jnp.int32),
        mean=jnp.zeros(states),
        champion=jnp.full(states, UNKNOWN, jnp.uint32),
        bound=jnp.zeros(states),
        chancy=jnp.zeros(states, bool),
        action_projection=scale * jax.random.normal(key, (spec.n_agents, spec.n_actions, axes)),
        pairs=pairs,
        pair_visits=jnp.zeros(pairs.value.shape, jnp.int32),
        pair_led_to=jnp.zeros(pairs.value.shape, jnp.uint32),
        pair_random=jnp.zeros(pairs.value.shape, bool),
        squares=jnp.zeros(()),
        recurrences=jnp.zeros(()),
    )


def write_wins(table: index.Table, wins: Wins, visits: Visits, won: Bool[Array, " n"], radius: float) -> tuple[index.Table, Wins]:
    """Write visits one after the other: the best return, as ever, and whether an episode was won that came by."""
    order, count = index.in_order(visits.key, visits.wanted)
    visits, won = jax.tree.map(lambda x: x[order], (visits, won))
    around = index.neighbourhood(table, visits.key, radius)

    def look(i: Int[Array, ""], kept: tuple[index.Table, Wins], carry: tuple[()]) -> tuple[Any, tuple[()]]:
        table, own = kept
        place = index.find(table, visits.key[i], _at(around, i), i < count, radius)
        before, n, k = (jnp.where(place.found, x[place.bucket, place.way], 0) for x in (table.value, own.visits, own.wins))
        best = jnp.where(place.found, jnp.maximum(before, visits.returned[i]), visits.returned[i])
        return ((visits.key[i], place, best), n + 1, k + won[i]), ()

    def write(kept: tuple[index.Table, Wins], done: Any) -> tuple[index.Table, Wins]:
        (table, own), (entry, n, k) = kept, done
        return index.enter(table, *entry), Wins(entry[1].put(own.visits, n), entry[1].put(own.wins, k))

    return index.in_turn(count, look, write, (table, wins), ())[0]


def write_means(table: index.Table, means: Means, visits: Visits, radius: float) -> tuple[index.Table, Means]:
    """Write visits one after the other: the running mean of what followed each state."""
    order, count = index.in_order(visits.key, visits.wanted)
    visits = jax.tree.map(lambda x: x[order], visits)
    around = index.neighbourhood(table, visits.key, radius)

    def look(i: Int[Array, ""], kept: tuple[index.Table, Means], carry: tuple[()]) -> tuple[Any, tuple[()]]:
        table, own = kept
        place = index.find(table, visits.key[i], _at(around, i), i < count, radius)
        n, mean = _averaged(place, own.visits, table.value, visits.returned[i])
        return ((visits.key[i], place, mean), n), ()

    def write(kept: tuple[index.Table, Means], done: Any) -> tuple[index.Table, Means]:
        (table, own), (entry, n) = kept, done
        return index.enter(table, *entry), Means(entry[1].put(own.visits, n))

    return index.in_turn(count, look, write, (table, means), ())[0]


def write_bounds(table: index.Table, bounds: Bounds, visits: Visits, radius: float, pessimism: float) -> tuple[index.Table, Bounds]:
    """Write visits one after the other: see the top of this file."""
    # What is known of the states that limits cut episodes at, which are not written: found before anything is.
    there = index.lookup(table, visits.key, visits.ends & ~visits.wanted, radius)
    beyond = (
        jnp.where(there.found, table.value[there.bucket, there.way], 0.0),
        jnp.where(there.found, _entry(table, there), UNKNOWN),
        there.found & bounds.chancy[there.bucket, there.way],
    )
    order, count = index.in_order(visits.key, visits.wanted | visits.ends)
    visits, beyond = jax.tree.map(lambda x: x[order], (visits, beyond))
    chosen = jax.nn.one_hot(visits.action, bounds.action_projection.shape[1])
    joined = jnp.einsum("kna,nax->kx", chosen, bounds.action_projection, precision=jax.lax.Precision.HIGHEST)
    pair_keys, actions = visits.key + joined, numbered(visits.action)
    around, pairs_around = (index.neighbourhood(t, k, radius) for t, k in ((table, visits.key), (bounds.pairs, pair_keys)))

    def look(i: Int[Array, ""], kept: tuple[index.Table, Bounds], carry: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        (table, own), ((later, led_to, chancy), squares, recurrences) = kept, carry
        v = jax.tree.map(lambda x: x[i], visits)
        due = (i < count) & v.wanted
        place = index.find(table, v.key, _at(around, i), due, radius)
        acted = due & ~v.ends
        pair = index.find(own.pairs, pair_keys[i], _at(pairs_around, i), acted, radius)

        worth = v.reward + v.goes_on * later
        looks = jnp.where(led_to == UNKNOWN, UNKNOWN, _mixed(led_to, jax.lax.bitcast_convert_type(v.reward, jnp.uint32)))
        again = acted & pair.found
        q = own.pairs.value[pair.bucket, pair.way]
        looked = jnp.where(pair.found, own.pair_led_to[pair.bucket, pair.way], UNKNOWN)
        differs = again & (looks != looked) & (looks != UNKNOWN) & (looked != UNKNOWN)
        chance = (pair.found & own.pair_random[pair.bucket, pair.way]) | differs
        n = jnp.where(pair.found, own.pair_visits[pair.bucket, pair.way], 0) + 1
        squares, recurrences = squares + jnp.where(differs, (worth - q) ** 2, 0.0), recurrences + again
        behind = chancy & (v.goes_on > 0)
        fixed = jnp.where(behind, worth, jnp.maximum(q, worth))
        q = jnp.where(pair.found, jnp.where(chance, q + 4.0 / (3.0 + n) * (worth - q), fixed), worth)
        low = q - pessimism * jnp.sqrt(squares / jnp.maximum(recurrences, 1.0) / n)

        times, mean = _averaged(place, own.visits, own.mean, v.returned)
        champion = jnp.where(place.found, own.champion[place.bucket, place.way], UNKNOWN)
        bound = own.bound[place.bucket, place.way]
        nobody = champion == UNKNOWN
        wins = acted & (nobody | (champion == actions[i]) | (low > bound))
        champion, bound = jnp.where(wins, actions[i], champion), jnp.where(wins, low, bound)
        value = jnp.where(champion == UNKNOWN, mean, jnp.maximum(bound, mean))

        chancy = (place.found & own.chancy[place.bucket, place.way]) | (acted & (chance | behind))

        of_state = (v.key, place, value), {"visits": times, "mean": mean, "champion": champion, "bound": bound, "chancy": chancy}
        seen = jnp.where(looks == UNKNOWN, looked, looks)
        of_pair = (pair_keys[i], pair, q), {"pair_visits": n, "pair_led_to": seen, "pair_random": chance}
        # What the step that led here leads to.
        here = value, _entry(table, place), chancy
        leads_to = tuple(jnp.where(v.wanted, known, cut[i]) for known, cut in zip(here, beyond, strict=True))
        return (of_state, of_pair), (leads_to, squares, recurrences)

    def write(kept: tuple[index.Table, Bounds], done: Any) -> tuple[index.Table, Bounds]:
        (table, own), ((state, of_state), (pair, of_pair)) = kept, done
        columns = {name: state[1].put(vars(own)[name], value) for name, value in of_state.items()}
        columns |= {name: pair[1].put(vars(own)[name], value) for name, value in of_pair.items()}
        return index.enter(table, *state), dataclasses.replace(own, pairs=index.enter(own.pairs, *pair), **columns)

    start = ((jnp.zeros(()), jnp.zeros((), jnp.uint32), jnp.zeros((), bool)), bounds.squares, bounds.recurrences)
    (table, bounds), (_, squares, recurrences) = index.in_turn(count, look, write, (table, bounds), start)
    return table, dataclasses.replace(bounds, squares=squares, recurrences=recurrences)


def visits_of(
    fresh: Episodes, keys: Float[Array, "B T1 axis"], returns: Float[Array, "B T1"], known: Bool[Array, "B T1"], gamma: float
) -> Visits:
    """Moments of fresh episodes, in the order in which they are written."""

    def in_a_row(values: Shaped[Array, "B T1 *rest"]) -> Shaped[Array, "n *rest"]:
        return jnp.flip(values, axis=1).reshape(-1, *values.shape[2:])

    def to_the_end(values: Shaped[Array, "B T *rest"]) -> Shaped[Array, "B T1 *rest"]:
        return jnp.concatenate([values, jnp.zeros_like(values[:, :1])], axis=1)

    moment, length = jnp.arange(keys.shape[1]), fresh.length[:, None]
    return Visits(
        key=in_a_row(keys),
        wanted=in_a_row(known),
        ends=in_a_row((moment == length) & (length > 0)),
        returned=in_a_row(returns),
        reward=in_a_row(to_the_end(jnp.where(fresh.played, fresh.reward, 0.0))),
        goes_on=in_a_row(to_the_end(gamma * (1.0 - fresh.terminated.astype(jnp.float32)))),
        action=in_a_row(to_the_end(fresh.action)),
    )


def numbered(actions: Int[Array, "n N"]) -> UInt32[Array, " n"]:
    """A number for each joint action; two different ones share one in 2^32."""
    number = jnp.zeros(actions.shape[0], jnp.uint32)
    for agent in range(actions.shape[1]):
        number = _mixed(number, actions[:, agent].astype(jnp.uint32))
    return number


def _mixed(number: UInt32[Array, "*n"], more: UInt32[Array, "*n"]) -> UInt32[Array, "*n"]:
    """A number of both, in which every bit of either matters."""
    mixed = (number ^ (more * jnp.uint32(0x9E3779B1))) * jnp.uint32(0x85EBCA6B) + jnp.uint32(1)
    return mixed ^ (mixed >> 15)


def _averaged(
    place: index.Place, visits: Int[Array, "bucket way"], mean: Float[Array, "bucket way"], value: Float[Array, ""]
) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """How often a state was visited with this visit, and the mean of what followed."""
    n = jnp.where(place.found, visits[place.bucket, place.way], 0) + 1
    old = jnp.where(place.found, mean[place.bucket, place.way], 0.0)
    return n, old + (value - old) / n


def _entry(table: index.Table, where: index.Place | index.Match) -> UInt32[Array, "*n"]:
    """The number of an entry."""
    return (where.bucket * table.value.shape[1] + where.way).astype(jnp.uint32)


def _at(around: index.Neighbourhood, i: Int[Array, ""]) -> index.Neighbourhood:
    return jax.tree.map(lambda x: x[i], around)
