"""Half a second of battle: eight game loops of aiming, walking, pushing, hitting, healing and dying, for many battles side by side.

Battles are the last axis of every array here, units the first: that is the only layout in which a processor's vector units have enough
to do with five units a side. `side_by_side` turns `vmap` over battles into that axis.

One loop: enemies choose targets; everyone walks towards what it was told or chose, unless its target is already within reach; units that
overlap are pushed apart; weapons that are ready and had their target within reach when the loop began hit it; explosions, healing and
regeneration follow. Hits land in the order of the attackers' numbers, first on the shield, and what it does not absorb, less the armour,
on life. Everyone alive at the beginning of a loop gets to act in it; a baneling killed in a loop explodes in the next.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from emc.envs.battle import units as rules
from emc.envs.battle.army import Army
from emc.envs.battle.maps import Map
from emc.envs.battle.movement import Movement, Places
from emc.envs.battle.units import LOOPS

STEP_LOOPS = 8  # game loops in one step of the environment
TICK = 1.0 / LOOPS
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
    target: Int[Array, "U *B"]  # whom a unit of the enemy attacks or heals, or NOBODY
    second_hit: Float[Array, "U *B"]  # seconds until the second hit of an attack; NEVER when none is due
    second_target: Int[Array, "U *B"]
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


def recruits(army: Army) -> Forces:
    """Everyone as a battle begins; one battle, no batch axis."""
    nobody = jnp.full(army.size, NOBODY, jnp.int32)
    zero, no = jnp.zeros(army.size), jnp.zeros(army.size, bool)
    return Forces(
        x=jnp.asarray(army.start[:, 0]),
        y=jnp.asarray(army.start[:, 1]),
        life=jnp.asarray(army.of("life")),
        shield=jnp.asarray(army.of("shield")),
        energy=jnp.asarray(np.where(army.which("heals"), np.float32(rules.ENERGY_START), np.float32(0))),
        cooldown=zero,
        unhurt=jnp.full(army.size, rules.SHIELD_DELAY),
        target=nobody,
        second_hit=jnp.full(army.size, NEVER),
        second_target=nobody,
        bursting=no,
        healing=no,
        shot=nobody,
        burst=no,
    )


@dataclasses.dataclass(frozen=True)
class Combat:
    """The rules on one map."""

    map: Map
    army: Army

    def half_second(self, forces: Forces, orders: Orders, jitter: Float[Array, "U *B"]) -> Forces:
        """Everyone eight loops later; a weapon fires at most once in them, so it needs one draw from [0, 1)."""
        calm = dataclasses.replace(forces, shot=jnp.full_like(forces.shot, NOBODY), burst=jnp.zeros_like(forces.burst))
        return jax.lax.fori_loop(0, STEP_LOOPS, lambda _, now: self.loop(now, orders, jitter), calm)

    def loop(self, now: Forces, orders: Orders, jitter: Float[Array, "U B"]) -> Forces:
        """Everyone one game loop later."""
        army, n = self.army, self.army.n_allies
        alive = now.life > 0
        dx, dy = _between(now.x, n), _between(now.y, n)  # from each agent's unit to each of the enemy
        distance = jnp.sqrt(dx * dx + dy * dy)
        radius = army.of("radius")
        gap = distance - _column(radius[:n, None] + radius[n:])

        target = jnp.concatenate([orders.target, self._choose(now, alive, gap)])
        aim = self._aim(now, alive, gap, target)
        x, y = self._walk(now, alive, orders, aim)
        now = eqx.tree_at(lambda f: (f.x, f.y, f.target), now, (x, y, target))
        return self._fight(now, alive, aim, gap, dx, dy, jitter)

    def _choose(self, now: Forces, alive: Bool[Array, "U B"], gap: Float[Array, "N E B"]) -> Int[Array, "E B"]:
        """Whom each of the enemy goes for: whom it can still reach, else the nearest one it notices, those with weapons first.

        One without a weapon is let go of as soon as one with a weapon can be reached.
        """
        army, n = self.army, self.army.n_allies
        can = army.damage[n:, :n].T > 0
        everyone = _column(np.arange(n, dtype=np.int32)[:, None])
        close = alive[:n, None] & (gap <= _column(army.of("reach")[n:]))
        kept = (everyone == now.target[n:]) & close
        held = jnp.any(kept, axis=0)
        armed = army.which("armed")[:n, None]
        if not armed.all():
            held &= jnp.any(kept & _column(armed), axis=0) | ~jnp.any(close & _column(can & armed), axis=0)
        notices = _column(army.scan[n:] if self.map.goal else np.full(army.size - n, np.inf, np.float32))
        seen = alive[:n, None] & (gap <= notices) & _column(can)
        cost = jnp.where(seen, gap + _column(np.where(armed, 0, 1e3).astype(np.float32)), jnp.inf)
        least = jnp.min(cost, axis=0)
        nearest = jnp.min(jnp.where(cost == least, everyone, n), axis=0)
        chosen = jnp.where(jnp.isfinite(least), nearest, NOBODY)
        chosen = jnp.where(held, now.target[n:], chosen)
        for healer in np.nonzero(army.which("heals"))[0]:
            if healer >= n:
                chosen = chosen.at[healer - n].set(self._patient(int(healer), now, alive))
        return chosen.astype(jnp.int32)

    def _patient(self, healer: int, now: Forces, alive: Bool[Array, "U B"]) -> Int[Array, " B"]:
        """The nearest wounded that a healer notices."""
        army = self.army
        radius = army.of("radius")
        gap = jnp.hypot(now.x - now.x[healer], now.y - now.y[healer]) - _column(radius + radius[healer])
        wounded = alive & (now.life < _column(army.of("life"))) & _column(army.healable[healer]) & (gap <= army.scan[healer])
        cost = jnp.where(wounded, gap, jnp.inf)
        return jnp.where(jnp.any(wounded, axis=0), jnp.argmin(cost, axis=0), NOBODY)

    def _aim(self, now: Forces, alive: Bool[Array, "U B"], gap: Float[Array, "N E B"], target: Int[Array, "U B"]) -> Aim:
        """Where everyone's target is, and whether it is within reach."""
        army, n = self.army, self.army.n_allies
        everyone = np.arange(army.size, dtype=np.int32)
        on_enemy = (target[:n, None] == _column(everyone[n:])) & alive[n:] & _column(army.damage[:n, n:] > 0)
        on_ally = (_column(everyone[:n, None]) == target[n:]) & alive[:n, None]

        def theirs(value: Float[Array, "U B"]) -> Float[Array, "U B"]:
            return jnp.concatenate(
                [jnp.sum(jnp.where(on_enemy, value[n:], 0), axis=1), jnp.sum(jnp.where(on_ally, value[:n, None], 0), axis=0)]
            )

        has = jnp.concatenate([jnp.any(on_enemy, axis=1), jnp.any(on_ally, axis=0)])
        away = jnp.concatenate([jnp.sum(jnp.where(on_enemy, gap, 0), axis=1), jnp.sum(jnp.where(on_ally, gap, 0), axis=0)])
        aim = Aim(has, theirs(now.x), theirs(now.y), has & (away <= _column(army.of("reach"))), on_enemy, on_ally)
        for healer in np.nonzero(army.which("heals"))[0]:
            aim = self._aim_at_patient(int(healer), aim, now, alive, target[healer])
        return aim

    def _aim_at_patient(self, healer: int, aim: Aim, now: Forces, alive: Bool[Array, "U B"], patient: Int[Array, " B"]) -> Aim:
        """The same for a healer, whose target is of its own team."""
        army = self.army
        on = (_column(np.arange(army.size, dtype=np.int32)) == patient) & alive & _column(army.healable[healer])
        has = jnp.any(on, axis=0)
        x, y = (jnp.sum(jnp.where(on, value, 0), axis=0) for value in (now.x, now.y))
        room = jnp.sum(jnp.where(on, _column(army.of("radius")), 0), axis=0) + army.of("radius")[healer]
        close = has & (jnp.hypot(x - now.x[healer], y - now.y[healer]) - room <= army.of("reach")[healer])
        rows = (aim.has, aim.x, aim.y, aim.reached)
        return eqx.tree_at(
            lambda a: (a.has, a.x, a.y, a.reached),
            aim,
            tuple(row.at[healer].set(value) for row, value in zip(rows, (has, x, y, close), strict=True)),
        )

    def _walk(self, now: Forces, alive: Bool[Array, "U B"], orders: Orders, aim: Aim) -> Places:
        """Where everyone is after walking and being pushed."""
        n = self.army.n_allies
        goal_x, goal_y = self.map.goal or (0.0, 0.0)
        idle_x = jnp.concatenate([orders.x, jnp.full_like(now.x[n:], goal_x)])
        idle_y = jnp.concatenate([orders.y, jnp.full_like(now.y[n:], goal_y)])
        ordered = jnp.full_like(alive[n:], self.map.goal is not None)
        for healer in np.nonzero(self.army.which("heals"))[0]:
            if healer >= n:
                there, x, y = self._comrade(int(healer), now, alive)
                idle_x = idle_x.at[healer].set(jnp.where(there, x, idle_x[healer]))
                idle_y = idle_y.at[healer].set(jnp.where(there, y, idle_y[healer]))
                ordered = ordered.at[healer - n].set(ordered[healer - n] | there)
        walks = alive & jnp.where(aim.has, ~aim.reached, jnp.concatenate([orders.walk, ordered]))
        towards = jnp.where(aim.has, aim.x, idle_x), jnp.where(aim.has, aim.y, idle_y)
        return Movement(self.map.terrain, self.army).after((now.x, now.y), towards, walks, alive, TICK)

    def _comrade(
        self, healer: int, now: Forces, alive: Bool[Array, "U B"]
    ) -> tuple[Bool[Array, " B"], Float[Array, " B"], Float[Array, " B"]]:
        """The nearest armed unit of a healer's team, which it follows while it has nothing to do: alone it would be ahead of everyone."""
        army = self.army
        mates = alive & _column(army.which("armed") & (army.allied == army.allied[healer]))
        away = jnp.where(mates, jnp.hypot(now.x - now.x[healer], now.y - now.y[healer]), jnp.inf)
        nearest = _column(np.arange(army.size, dtype=np.int32)) == jnp.argmin(away, axis=0)
        x, y = (jnp.sum(jnp.where(nearest, value, 0), axis=0) for value in (now.x, now.y))
        return jnp.any(mates, axis=0), x, y

    def _fight(
        self,
        now: Forces,
        alive: Bool[Array, "U B"],
        aim: Aim,
        gap: Float[Array, "N E B"],
        dx: Float[Array, "N E B"],
        dy: Float[Array, "N E B"],
        jitter: Float[Array, "U B"],
    ) -> Forces:
        """Hits, explosions, healing, regeneration and deaths."""
        army, n = self.army, self.army.n_allies
        cooldown = jnp.maximum(now.cooldown - TICK, 0.0)
        fires = alive & aim.reached & (cooldown <= 0) & _column(army.which("armed"))
        low, high = rules.JITTER
        cooldown = jnp.where(fires, _column(army.of("period")) + low + (high - low) * jitter, cooldown)

        due = now.second_hit - TICK
        again = alive & (due <= 0)
        shot = jnp.where(fires, now.target, now.shot)
        hit_enemy = aim.on_enemy & fires[:n, None]
        hit_ally = aim.on_ally & fires[n:]
        if army.which("second_hit").any():
            everyone = np.arange(army.size, dtype=np.int32)
            hit_enemy |= again[:n, None] & (now.second_target[:n, None] == _column(everyone[n:])) & alive[n:]
            hit_ally |= again[n:] & (now.second_target[n:] == _column(everyone[:n, None])) & alive[:n, None]
        doubles = fires & _column(army.which("second_hit"))
        due = jnp.where(doubles, _column(army.of("second_hit")), jnp.where(again, NEVER, due))
        second_target = jnp.where(doubles, now.target, now.second_target)

        bursts = jnp.zeros_like(alive)
        if army.which("blast").any():
            bursts = (fires | now.bursting) & _column(army.which("blast"))
            around = gap + _column(army.of("radius")[:n, None]) <= _column(army.of("blast")[:n, None])
            hit_enemy = jnp.where(_column(army.which("blast")[:n, None]), bursts[:n, None] & around & alive[n:], hit_enemy)
            around = gap + _column(army.of("radius")[n:]) <= _column(army.of("blast")[n:])
            hit_ally = jnp.where(_column(army.which("blast")[n:]), bursts[n:] & around & alive[:n, None], hit_ally)
        for colossus in np.nonzero(army.which("beams"))[0]:
            if colossus < n:
                line = self._beam(dx[colossus], dy[colossus], aim.on_enemy[colossus], army.of("radius")[n:]) & alive[n:]
                hit_enemy = hit_enemy.at[colossus].set(fires[colossus] & line)
            else:
                at = colossus - n
                line = self._beam(-dx[:, at], -dy[:, at], aim.on_ally[:, at], army.of("radius")[:n]) & alive[:n]
                hit_ally = hit_ally.at[:, at].set(fires[colossus] & line)

        life_allies, shield_allies = self._hurt(now.life[:n], now.shield[:n], jnp.swapaxes(hit_ally, 0, 1), slice(n, None), slice(0, n))
        life_enemies, shield_enemies = self._hurt(now.life[n:], now.shield[n:], hit_enemy, slice(0, n), slice(n, None))
        life, shield = jnp.concatenate([life_allies, life_enemies]), jnp.concatenate([shield_allies, shield_enemies])
        hurt = jnp.concatenate([jnp.any(hit_ally, axis=1), jnp.any(hit_enemy, axis=0)])

        energy, healing = now.energy, now.healing
        for healer in np.nonzero(army.which("heals"))[0]:
            life, energy, healing, shot = self._heal(int(healer), now, alive & (life > 0), aim, life, energy, healing, shot)
        unhurt = jnp.where(hurt, 0.0, now.unhurt + TICK)
        if army.of("shield").any():
            rested = unhurt >= rules.SHIELD_DELAY
            shield = jnp.where(rested, jnp.minimum(shield + rules.SHIELD_RATE * TICK, _column(army.of("shield"))), shield)
        life = jnp.where(bursts, 0.0, life)
        survives = alive & (life > 0)
        if army.of("regeneration").any():
            life = jnp.minimum(life + _column(army.of("regeneration") * np.float32(TICK)), _column(army.of("life")))
        return Forces(
            x=now.x,
            y=now.y,
            life=jnp.where(survives, life, 0.0),
            shield=jnp.where(survives, shield, 0.0),
            energy=energy,
            cooldown=cooldown,
            unhurt=unhurt,
            target=now.target,
            second_hit=due,
            second_target=second_target,
            bursting=alive & ~survives & ~bursts & _column(army.which("blast")),
            healing=healing,
            shot=shot,
            burst=now.burst | bursts,
        )

    def _hurt(
        self, life: Float[Array, "t B"], shield: Float[Array, "t B"], hits: Bool[Array, "a t B"], attackers: slice, targets: slice
    ) -> tuple[Float[Array, "t B"], Float[Array, "t B"]]:
        """Life and shield of a team after the hits of the other."""
        army = self.army
        damage, armour = army.damage[attackers, targets], army.of("armour")[targets]
        twice = army.which("beams")[attackers]
        if not army.of("shield")[targets].any():
            net = np.maximum(damage - armour, np.float32(rules.LEAST_DAMAGE)) * (1 + twice[:, None]) * (damage > 0)
            return life - jnp.sum(jnp.where(hits, _column(net.astype(np.float32)), 0), axis=0), shield
        for attacker in range(len(damage)):
            for _ in range(2 if twice[attacker] else 1):
                strength = jnp.where(hits[attacker], _column(damage[attacker]), 0)
                absorbed = jnp.minimum(shield, strength)
                rest = strength - absorbed
                shield = shield - absorbed
                life = life - jnp.where(rest > 0, jnp.maximum(rest - _column(armour), rules.LEAST_DAMAGE), 0)
        return life, shield

    def _beam(
        self, dx: Float[Array, "t B"], dy: Float[Array, "t B"], on: Bool[Array, "t B"], radius: Float[np.ndarray, " t"]
    ) -> Bool[Array, "t B"]:
        """Who stands on the line across the direction of fire, through the target."""
        to_x, to_y = (jnp.sum(jnp.where(on, value, 0), axis=0) for value in (dx, dy))
        length = jnp.maximum(jnp.sqrt(to_x * to_x + to_y * to_y), 1e-6)
        ahead_x, ahead_y = to_x / length, to_y / length
        off_x, off_y = dx - to_x, dy - to_y
        across = -off_x * ahead_y + off_y * ahead_x
        beyond = across - jnp.clip(across, -rules.BEAM_HALF_LENGTH, rules.BEAM_HALF_LENGTH)
        along = off_x * ahead_x + off_y * ahead_y
        return jnp.sqrt(beyond * beyond + along * along) <= _column(radius + np.float32(rules.BEAM_RADIUS))

    def _heal(
        self,
        healer: int,
        now: Forces,
        alive: Bool[Array, "U B"],
        aim: Aim,
        life: Float[Array, "U B"],
        energy: Float[Array, "U B"],
        healing: Bool[Array, "U B"],
        shot: Int[Array, "U B"],
    ) -> tuple[Float[Array, "U B"], Float[Array, "U B"], Bool[Array, "U B"], Int[Array, "U B"]]:
        """One loop of a healer's work."""
        army = self.army
        full = army.of("life")
        patient = now.target[healer]
        on = (_column(np.arange(army.size, dtype=np.int32)) == patient) & alive & (aim.reached[healer] & alive[healer])
        ready = healing[healer] | (energy[healer] >= rules.HEAL_START)
        rate, affordable = rules.HEAL_RATE * TICK, energy[healer] / rules.HEAL_COST
        healed = jnp.where(on & ready, jnp.clip(_column(full) - life, 0, jnp.minimum(rate, affordable)), 0)
        spent = jnp.sum(healed, axis=0)
        left = jnp.minimum(energy[healer] - spent * rules.HEAL_COST + rules.ENERGY_RATE * TICK, rules.ENERGY_MAX)
        return (
            life + healed,
            energy.at[healer].set(left),
            healing.at[healer].set((spent > 0) & (affordable > rate)),
            shot.at[healer].set(jnp.where(spent > 0, patient, shot[healer])),
        )


class Aim(eqx.Module):
    """Everyone's target."""

    has: Bool[Array, "U B"]
    x: Float[Array, "U B"]
    y: Float[Array, "U B"]
    reached: Bool[Array, "U B"]
    on_enemy: Bool[Array, "N E B"]  # whether an agent's unit aims at a unit of the enemy
    on_ally: Bool[Array, "N E B"]  # whether a unit of the enemy aims at an agent's


def _between(value: Float[Array, "U B"], n: int) -> Float[Array, "N E B"]:
    return value[n:] - value[:n, None]


def _column(constant: np.ndarray) -> np.ndarray:
    """A constant of the map, the same for all battles."""
    return constant[..., None]
