"""What changes about the units in a battle, what the agents order, and how many battles are fought side by side.

Battles are the last axis of every array of the rules, units the first: that is the only layout in which a processor's vector units have
enough to do with five units a side. `side_by_side` turns `vmap` over battles into that axis.
"""

from __future__ import annotations

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from emc.envs.battle import units as rules
from emc.envs.battle.army import Army

NOBODY = -1
NEVER = 1e9  # seconds


class Forces(eqx.Module):
    """What changes about the units."""

    x: Float[Array, "U *B"]
    y: Float[Array, "U *B"]
    life: Float[Array, "U *B"]  # 0: dead
    shield: Float[Array, "U *B"]
    energy: Float[Array, "U *B"]
    cooldown: Float[Array, "U *B"]  # seconds until the weapon is ready; not below 0
    unhurt: Float[Array, "U *B"]  # seconds since the last damage
    target: Int[Array, "U *B"]  # whom a unit attacks or heals, or NOBODY
    swing: Float[Array, "U *B"]  # seconds until the damage point of the attack under way; NEVER when none is
    swing_target: Int[Array, "U *B"]  # whom the last attack was begun on
    recovery: Float[Array, "U *B"]  # seconds after an attack in which a unit does not follow its target; not below 0
    blow: Float[Array, "U *B"]  # seconds until a missile arrives or a second hit falls; NEVER when none is due
    blow_target: Int[Array, "U *B"]
    speed: Float[Array, "U *B"]  # of those that accelerate
    detour: Float[Array, "U *B"]  # seconds that a unit still goes round its target, by its left (above 0) or its right (below 0)
    facing: Float[Array, "U *B"]  # radians; of the weapons that turn slowly
    bursting: Bool[Array, "U *B"]  # killed in the last loop, and about to explode
    healing: Bool[Array, "U *B"]  # in the middle of a heal, which needs less energy than to begin one
    shot: Int[Array, "U *B"]  # whom the unit hit or healed in this step, or NOBODY: only for drawing
    burst: Bool[Array, "U *B"]  # exploded in this step: only for drawing


class Orders(eqx.Module):
    """What the agents were told to do for this step."""

    x: Float[Array, "N *B"]  # where to walk
    y: Float[Array, "N *B"]
    walk: Bool[Array, "N *B"]
    target: Int[Array, "N *B"]  # the unit to attack or heal, or NOBODY


def recruits(army: Army) -> Forces:
    """Everyone as a battle begins; one battle, no batch axis."""
    nobody = jnp.full(army.size, NOBODY, jnp.int32)
    zero, no, never = jnp.zeros(army.size), jnp.zeros(army.size, bool), jnp.full(army.size, NEVER, jnp.float32)
    return Forces(
        x=jnp.asarray(army.start[:, 0]),
        y=jnp.asarray(army.start[:, 1]),
        life=jnp.asarray(army.of("life")),
        shield=jnp.asarray(army.of("shield")),
        energy=jnp.asarray(np.where(army.has("heals"), np.float32(rules.ENERGY_START), np.float32(0))),
        cooldown=zero,
        unhurt=jnp.full(army.size, rules.SHIELD_DELAY, jnp.float32),
        target=nobody,
        swing=never,
        swing_target=nobody,
        recovery=zero,
        blow=never,
        blow_target=nobody,
        speed=zero,
        detour=zero,
        facing=jnp.full(army.size, np.deg2rad(rules.FACING), jnp.float32),
        bursting=no,
        healing=no,
        shot=nobody,
        burst=no,
    )


def column(constant: np.ndarray) -> np.ndarray:
    """A constant of the map, the same for all battles."""
    return constant[..., None]


def side_by_side(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """A function of many battles (their number the last axis of all arrays) as one of a single battle, which `vmap` gives many."""

    def call(*arguments: PyTree) -> PyTree:
        leaves, structure = jax.tree.flatten(arguments)

        @jax.custom_batching.custom_vmap
        def joined(*leaves: Array) -> PyTree:
            return function(*jax.tree.unflatten(structure, leaves))

        @joined.def_vmap
        def _join(size: int, batched: list[bool], *leaves: Array) -> tuple[PyTree, PyTree]:
            def join(leaf: Array, is_batched: bool) -> Array:
                leaf = leaf if is_batched else jnp.broadcast_to(leaf, (size, *leaf.shape))
                last = jnp.moveaxis(leaf, 0, -2)
                return last.reshape(*last.shape[:-2], size * leaf.shape[-1])

            def part(leaf: Array) -> Array:
                return jnp.moveaxis(leaf.reshape(*leaf.shape[:-1], size, leaf.shape[-1] // size), -2, 0)

            result = jax.tree.map(part, joined(*map(join, leaves, batched)))
            return result, jax.tree.map(lambda _: True, result)

        return jax.tree.map(lambda leaf: leaf[..., 0], joined(*(leaf[..., None] for leaf in leaves)))

    return call
