"""Whom everyone goes for: agents whom they were told to, the enemy by the game's automatic targeting.

No computer player commands the enemy: its units have one order, to attack on their way to a point, and choose targets themselves. A unit
notices whoever is 5 away, edge to edge, or within its weapon's reach where that is more. It keeps a target within its reach, and runs after
one that has left it as long as nobody else is within reach; then, and when it has none, it takes the nearest it notices. Before all this
come those that attack it: it leaves whoever does not for somebody who does. That is what a unit of the agents looks like that does nothing
but walk: their units never fight of their own accord. Healers count as attacking everyone. Where the order is to attack the agents'
units themselves, a unit stays with its target until that is dead.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from emc.envs.battle import units as rules
from emc.envs.battle.army import Army
from emc.envs.battle.forces import NEVER, NOBODY, Forces, column
from emc.envs.battle.maps import Map

FIRST = 1e3  # more than any distance: what ranks before everything else


class Aim(eqx.Module):
    """Everyone's target."""

    has: Bool[Array, "U B"]
    x: Float[Array, "U B"]
    y: Float[Array, "U B"]
    away: Float[Array, "U B"]  # edge to edge; 0 without a target
    on_enemy: Bool[Array, "N E B"]  # whether an agent's unit aims at a unit of the enemy
    on_ally: Bool[Array, "N E B"]  # whether a unit of the enemy aims at an agent's


@dataclasses.dataclass(frozen=True)
class Targeting:
    """Who aims at whom on one map."""

    map: Map
    army: Army

    def choose(self, now: Forces, alive: Bool[Array, "U B"], gap: Float[Array, "N E B"], ordered: Int[Array, "N B"]) -> Int[Array, "E B"]:
        """Whom each of the enemy goes for."""
        army, n = self.army, self.army.n_allies
        everyone = column(np.arange(n, dtype=np.int32)[:, None])
        targets = alive[:n, None] & column(army.damage[n:, :n].T > 0)
        had = (everyone == now.target[n:]) & targets
        if self.map.goal is None:  # it was told to attack the agents' units, one after the other
            kept, noticed, rank = jnp.any(had, axis=0), targets, gap
        else:
            close = targets & (gap <= column(army.of("reach")[n:]))
            noticed = targets & (gap <= column(army.scan[n:]))
            swinging = (now.swing[n:] < NEVER) & (gap <= column((army.of("reach") + army.of("slop"))[n:]))
            threat = noticed & self._threatens(ordered)
            holds, has, can_hit, by_threat, threatened = _any_of(had & (close | swinging), had, close, had & threat, threat)
            kept = (holds | (has & ~can_hit)) & (by_threat | ~threatened)
            rank = gap - FIRST * threat
        cost = jnp.where(noticed, rank, jnp.inf)
        least = jnp.min(cost, axis=0)
        best = jnp.min(jnp.where(cost == least, everyone, n), axis=0)
        chosen = jnp.where(kept, now.target[n:], jnp.where(jnp.isfinite(least), best, NOBODY))
        for healer in np.nonzero(army.has("heals"))[0]:
            if healer >= n:
                chosen = chosen.at[healer - n].set(self._patient(int(healer), now, alive))
        return chosen.astype(jnp.int32)

    def _threatens(self, ordered: Int[Array, "N B"]) -> Bool[Array, "N E B"]:
        """Which of the agents' units attack which of the enemy's; a healer threatens everyone."""
        army, n = self.army, self.army.n_allies
        attacks = ordered[:, None] == column(np.arange(n, army.size, dtype=np.int32))
        heals = army.has("heals")[:n]
        return attacks | column(heals[:, None]) if heals.any() else attacks

    def _patient(self, healer: int, now: Forces, alive: Bool[Array, "U B"]) -> Int[Array, " B"]:
        """Whom a healer that is left alone goes for: the one with the lowest share of its life, and of these the nearest."""
        army = self.army
        radius = army.of("radius")
        gap = jnp.sqrt((now.x - now.x[healer]) ** 2 + (now.y - now.y[healer]) ** 2) - column(radius + radius[healer])
        share = now.life / column(army.of("life"))
        wounded = alive & (share < 1) & column(army.healable[healer]) & (gap <= rules.HEAL_SCAN)
        worst = jnp.min(jnp.where(wounded, share, jnp.inf), axis=0)
        cost = jnp.where(wounded & (share <= worst), gap, jnp.inf)
        return jnp.where(jnp.any(wounded, axis=0), jnp.argmin(cost, axis=0), NOBODY)

    def aim(self, now: Forces, alive: Bool[Array, "U B"], target: Int[Array, "U B"]) -> Aim:
        """Where everyone's target is, and how far away."""
        army, n = self.army, self.army.n_allies
        everyone = np.arange(army.size, dtype=np.int32)
        on_enemy = (target[:n, None] == column(everyone[n:])) & alive[n:] & column(army.damage[:n, n:] > 0)
        on_ally = (column(everyone[:n, None]) == target[n:]) & alive[:n, None]

        def theirs(value: Float[Array, "U B"]) -> Float[Array, "U B"]:
            return jnp.concatenate(
                [jnp.sum(jnp.where(on_enemy, value[n:], 0), axis=1), jnp.sum(jnp.where(on_ally, value[:n, None], 0), axis=0)]
            )

        has = jnp.concatenate([jnp.any(on_enemy, axis=1), target[n:] != NOBODY])  # the enemy chooses among the living
        x, y, radius = theirs(now.x), theirs(now.y), army.of("radius")
        room = radius[0] if np.ptp(radius) == 0 else theirs(jnp.broadcast_to(column(radius), now.x.shape))
        away = jnp.where(has, jnp.sqrt((x - now.x) ** 2 + (y - now.y) ** 2) - room - column(radius), 0.0)
        aim = Aim(has, x, y, away, on_enemy, on_ally)
        for healer in np.nonzero(army.has("heals"))[0]:
            aim = self._aim_at_patient(int(healer), aim, now, alive, target[healer])
        return aim

    def _aim_at_patient(self, healer: int, aim: Aim, now: Forces, alive: Bool[Array, "U B"], patient: Int[Array, " B"]) -> Aim:
        """The same for a healer, whose target is of its own team."""
        army = self.army
        on = (column(np.arange(army.size, dtype=np.int32)) == patient) & alive & column(army.healable[healer])
        has = jnp.any(on, axis=0)
        x, y = (jnp.sum(jnp.where(on, value, 0), axis=0) for value in (now.x, now.y))
        room = jnp.sum(jnp.where(on, column(army.of("radius")), 0), axis=0) + army.of("radius")[healer]
        away = jnp.where(has, jnp.sqrt((x - now.x[healer]) ** 2 + (y - now.y[healer]) ** 2) - room, 0.0)
        rows = (aim.has, aim.x, aim.y, aim.away)
        return eqx.tree_at(
            lambda a: (a.has, a.x, a.y, a.away),
            aim,
            tuple(row.at[healer].set(value) for row, value in zip(rows, (has, x, y, away), strict=True)),
        )


def _any_of(*flags: Bool[Array, "N E B"]) -> tuple[Bool[Array, "E B"], ...]:
    """Whether each flag holds for any agent: all of them in one pass over the agents."""
    bits = sum((flag.astype(jnp.int32) << number for number, flag in enumerate(flags)), jnp.int32(0))
    found = jax.lax.reduce(bits, np.int32(0), jax.lax.bitwise_or, (0,))
    return tuple((found >> number) & 1 > 0 for number in range(len(flags)))
