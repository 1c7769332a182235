"""Roles: clusters of actions, and the action spaces that the rules make of them, against hand-made cases and a plain Python twin."""

from __future__ import annotations

import functools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from emc.policies.roles import Roles, cluster, most_roles, role_spaces
from tests.twins import assert_close, bits, quick

IDLE, MOVES = (0, 1), (2, 3, 4, 5)  # StarCraft's layout: no-op, stop, four moves, then attacks


found_spaces = quick(role_spaces, static_argnums=(1, 2, 3, 4))


def spaces(label: list[int], clusters: int, least: int = 3) -> list[set[int]]:
    """The action sets of the roles that exist."""
    space, exists = found_spaces(np.array(label), clusters, IDLE, MOVES, least)
    assert space.shape == (most_roles(clusters, least), len(label))
    return [set(np.flatnonzero(row).tolist()) for row in np.asarray(space)[np.asarray(exists)]]


def test_small_clusters_are_dropped_pairs_are_kept_and_large_ones_may_also_move() -> None:
    label = [0, 1, 1, 1, 2, 2, 0, 2, 3, 3]  # {no-op, 6}, {stop, 2, 3}, {4, 5, 7}, {8, 9}
    assert spaces(label, 4) == [{0, 1, 2, 3}, {0, 1, 2, 3, 4, 5, 7}, {0, 8, 9}]


def test_roles_that_are_too_few_are_repeated_until_there_are_enough() -> None:
    two = [0, 0, 1, 1, 2, 2, 3, 4]  # {no-op, stop} has nothing to do, {6} and {7} are alone
    assert spaces(two, 5) == [{0, 2, 3}, {0, 4, 5}] * 2  # the released code appends both
    one = [0, 0, 0, 0, 1, 2]
    assert spaces(one, 3) == [{0, 1, 2, 3}] * 3


def test_where_no_cluster_makes_a_role_every_role_holds_all_actions() -> None:
    assert spaces([0, 1, 2, 3, 4], 5) == [{0, 1, 2, 3, 4}] * 3


def twin(label: list[int], clusters: int, least: int) -> list[set[int]]:
    """The rules, one cluster after the other."""
    found: list[set[int]] = []
    for c in range(clusters):
        members = {a for a, mine in enumerate(label) if mine == c}
        active = members - set(IDLE)
        if len(active) == 2:
            found.append(members | {IDLE[0]})
        elif len(active) > 2:
            found.append(members | set(IDLE) | set(MOVES))
    found = found or [set(range(len(label)))]
    repeated = list(found)
    while len(repeated) < least:
        repeated += found
    return repeated


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(label=st.lists(st.integers(0, 3), min_size=10, max_size=10), least=st.sampled_from([1, 3]))
def test_every_clustering_gives_the_roles_of_the_rules(label: list[int], least: int) -> None:
    assert spaces(label, 4, least) == twin(label, 4, least)


run = functools.partial(quick, static_argnums=(1, 2))(cluster)


@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(label=st.permutations([0, 0, 0, 0, 1, 1, 1, 2, 3, 3]), seed=st.integers(0, 2**16))
def test_clusters_that_lie_apart_are_found_and_found_again(label: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    centres = 10.0 * np.eye(4, 6) + rng.normal(size=6)
    points = jnp.asarray(centres[label] + 0.5 * rng.uniform(-1, 1, (10, 6)), jnp.float32)
    found = np.asarray(run(points, 4, 10))
    same = np.equal.outer(label, label)
    assert np.array_equal(np.equal.outer(found, found), same)
    assert bits(run(points, 4, 10)) == bits(found)


def test_the_tightest_of_the_results_wins() -> None:
    points = jnp.array([[3.0], [7.0], [8.0], [9.0], [11.0]])  # from the first point on, 3 and 7 would end up together
    found = np.asarray(run(points, 2, 20))
    assert np.array_equal(found == found[0], [True, False, False, False, False])


def test_points_that_are_fewer_than_clusters_stand_alone() -> None:
    points = jnp.asarray(np.random.default_rng(0).normal(size=(3, 2)), jnp.float32)
    assert len(set(np.asarray(run(points, 5, 5)).tolist())) == 3


def test_a_roles_latent_is_the_mean_of_its_actions_embeddings() -> None:
    label = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2])
    embedding = np.random.default_rng(1).normal(size=(10, 3)) * 0.1 + 5.0 * np.eye(3)[label]
    roles = jax.jit(lambda x: Roles.form(x, 3, IDLE, MOVES, 3, 10))(jnp.asarray(embedding, jnp.float32))
    assert bool(roles.formed)
    for space, latent in zip(np.asarray(roles.space), np.asarray(roles.latent), strict=True):
        assert_close(latent, embedding[space].mean(axis=0), 1e-5)


@pytest.mark.parametrize(("least", "most"), [(3, 5), (2, 2)])
def test_before_roles_are_formed_the_initial_ones_hold_everything(least: int, most: int) -> None:
    roles = Roles.unformed(4, 6, least, most)
    assert np.asarray(roles.exists).tolist() == [i < least for i in range(most)]
    assert np.all(np.asarray(roles.space))
    assert np.all(np.asarray(roles.embedding) == 1.0)
    assert np.all(np.asarray(roles.latent) == 1.0)
    assert not bool(roles.formed)
