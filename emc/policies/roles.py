"""Roles: which actions belong together (RODE, Wang et al. 2021, section 3.1).

Actions with similar effects are clustered by k-means, and each cluster becomes the action space of a role. What the released code knows
about StarCraft's actions follows from two lists of the environment here: idle actions (no-op, stop) and moves. Different from it:

* k-means starts from every action once, spreads its centres as far apart as they go, and keeps the tightest result; the released code has
  random starts of a fixed seed. Both are deterministic; their results differ only where clusters are not clear.
* Where no cluster makes a role (action sets that are too small), all roles hold all actions; the released code would fail.

Where fewer roles than the initial ones are found, all of them are repeated until there are enough: with three initial roles one becomes
three and two become four, as in the released code.

An action whose cluster is discarded may belong to no role: greedy agents then never take it, as in the released code.
"""

from __future__ import annotations

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Count = TypeVar("Count", int, Array)


class Roles(eqx.Module):
    """What the roles are; `R` counts the most there can be, `E` is the size of an action's embedding."""

    embedding: Float[Array, "A E"]  # what is known of each action's effects; ones before roles are formed, so no action is preferred
    space: Bool[Array, "R A"]  # the actions of each role
    exists: Bool[Array, " R"]
    latent: Float[Array, "R E"]  # mean embedding of each role's actions; ones before, so no role is preferred
    formed: Bool[Array, ""]

    @staticmethod
    def unformed(n_actions: int, embedding: int, least: int, most: int) -> Roles:
        """`least` roles that all hold all actions."""
        return Roles(
            jnp.ones((n_actions, embedding)),
            jnp.ones((most, n_actions), bool),
            jnp.arange(most) < least,
            jnp.ones((most, embedding)),
            jnp.zeros((), bool),
        )

    @staticmethod
    def form(
        embedding: Float[Array, "A E"], clusters: int, idle: tuple[int, ...], moves: tuple[int, ...], least: int, iterations: int
    ) -> Roles:
        """The roles of given action embeddings."""
        space, exists = role_spaces(cluster(embedding, clusters, iterations), clusters, idle, moves, least)
        share = space / jnp.sum(space, axis=1, keepdims=True)
        return Roles(embedding, space, exists, share @ embedding, jnp.ones((), bool))


def role_spaces(
    label: Int[Array, " A"], clusters: int, idle: tuple[int, ...], moves: tuple[int, ...], least: int
) -> tuple[Bool[Array, "R A"], Bool[Array, " R"]]:
    """The action space of each role by the cluster of each action, and which roles exist: the first ones, at least `least`."""
    actions = jnp.arange(label.shape[0])
    member = label == jnp.arange(clusters)[:, None]
    active = jnp.sum(member & ~jnp.isin(actions, jnp.array(idle, jnp.int32)), axis=1)
    space = jnp.where(active[:, None] >= 3, member | jnp.isin(actions, jnp.array(idle + moves, jnp.int32)), member)
    kept = active >= 2
    found = jnp.maximum(jnp.sum(kept), 1)
    first_kept = jnp.argsort(~kept, stable=True)
    role = jnp.arange(most_roles(clusters, least))
    space = space[first_kept[role % found]] | ~jnp.any(kept)
    return space | (actions == idle[0]), role < repeated(found, least)


def repeated(found: Count, least: int) -> Count:
    """How many roles there are when all that were found are repeated until there are enough."""
    return found * -(-least // found)


def most_roles(clusters: int, least: int) -> int:
    """The most roles that so many clusters can lead to."""
    return max(repeated(found, least) for found in range(1, clusters + 1))


def cluster(points: Float[Array, "A E"], clusters: int, iterations: int) -> Int[Array, " A"]:
    """The cluster of each point by k-means: of the results from every first centre, the tightest."""

    def one(first: Float[Array, " E"]) -> tuple[Int[Array, " A"], Float[Array, ""]]:
        centres = jax.lax.fori_loop(0, iterations, lambda _, centres: _recentre(points, centres), _spread(points, first, clusters))
        apart = _squared_distances(points, centres)
        return jnp.argmin(apart, axis=1), jnp.sum(jnp.min(apart, axis=1))

    label, looseness = jax.vmap(one)(points)
    return label[jnp.argmin(looseness)]


def _spread(points: Float[Array, "A E"], first: Float[Array, " E"], clusters: int) -> Float[Array, "K E"]:
    """Centres at points: each the farthest from those before it."""

    def add(i: Int[Array, ""], centres: Float[Array, "K E"]) -> Float[Array, "K E"]:
        return centres.at[i].set(points[jnp.argmax(jnp.min(_squared_distances(points, centres), axis=1))])

    return jax.lax.fori_loop(1, clusters, add, jnp.tile(first, (clusters, 1)))


def _recentre(points: Float[Array, "A E"], centres: Float[Array, "K E"]) -> Float[Array, "K E"]:
    """Each centre in the middle of the points nearest to it; one without any stays where it is."""
    nearest = jax.nn.one_hot(jnp.argmin(_squared_distances(points, centres), axis=1), centres.shape[0])
    count = jnp.sum(nearest, axis=0)[:, None]
    return jnp.where(count > 0, nearest.T @ points / jnp.maximum(count, 1.0), centres)


def _squared_distances(points: Float[Array, "A E"], centres: Float[Array, "K E"]) -> Float[Array, "A K"]:
    return jnp.sum((points[:, None] - centres) ** 2, axis=-1)
