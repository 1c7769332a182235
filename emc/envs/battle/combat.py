"""Half a second of battle: eight game loops of aiming, walking, pushing, hitting, healing and dying, for many battles side by side.

One loop: enemies choose targets; attacks begin, go on or are broken off; everyone walks towards what it was told or chose, unless its
target is already within reach; units that overlap are pushed apart; hits fall on those who were there when the loop began; explosions,
healing and regeneration follow. Hits land in the order of the attackers' numbers, first on the shield, and what it does not absorb, less
the armour, on life. Everyone alive at the beginning of a loop gets to act in it; a baneling killed in a loop explodes in the next.
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
from emc.envs.battle.forces import NOBODY, Forces, Orders, column
from emc.envs.battle.maps import Map
from emc.envs.battle.movement import CROWD, FEW, Movement, Way
from emc.envs.battle.targeting import Aim, Targeting
from emc.envs.battle.units import TICK
from emc.envs.battle.weapons import Attack, Weapons

STEP_LOOPS = 8  # game loops in one step of the environment
BLOCK = 3_000  # units that go through a step together: what is known of them stays in the processor's cache


@dataclasses.dataclass(frozen=True)
class Combat:
    """The rules on one map."""

    map: Map
    army: Army

    def half_second(self, forces: Forces, orders: Orders, jitter: Float[Array, "U *B"]) -> Forces:
        """Everyone eight loops later; a weapon fires at most once in them, so it needs one draw from [0, 1)."""
        nobody = jnp.full_like(forces.shot, NOBODY)
        calm = dataclasses.replace(forces, shot=nobody, burst=jnp.zeros_like(forces.burst))

        def loops(part: tuple[Forces, Orders, Float[Array, "U b"]]) -> Forces:
            now, orders, jitter = part
            return jax.lax.fori_loop(0, STEP_LOOPS, lambda _, now: self.loop(now, orders, jitter), now)

        return _by_blocks(loops, (calm, orders, jitter), jitter.shape[-1], self.army.size)

    def loop(self, now: Forces, orders: Orders, jitter: Float[Array, "U B"]) -> Forces:
        """Everyone one game loop later."""
        army, n = self.army, self.army.n_allies
        alive = now.life > 0
        dx, dy = _between(now.x, n), _between(now.y, n)  # from each agent's unit to each of the enemy
        distance = jnp.sqrt(dx * dx + dy * dy)
        radius = army.of("radius")
        gap = distance - column(radius[:n, None] + radius[n:])

        targeting, weapons = Targeting(self.map, army), Weapons(army)
        target = jnp.concatenate([orders.target, targeting.choose(now, alive, gap, orders.target)])
        aim = targeting.aim(now, alive, target)
        attack = weapons.attack(now, alive, aim, target, jitter)
        now = eqx.tree_at(lambda f: f.target, now, target)
        now = self._walk(now, alive, orders, aim, attack)
        return self._fight(now, alive, aim, attack, gap, dx, dy)

    def _walk(self, now: Forces, alive: Bool[Array, "U B"], orders: Orders, aim: Aim, attack: Attack) -> Forces:
        """Everyone after walking and being pushed."""
        army, n = self.army, self.army.n_allies
        reached = aim.has & (aim.away <= column(army.of("reach")))
        told = jnp.concatenate([orders.walk, ~attack.busy[n:] & (self.map.goal is not None)])
        walks = alive & jnp.where(aim.has, ~reached & ~attack.busy, told)
        goal_x, goal_y = (jnp.full_like(now.x[n:], axis) for axis in self.map.goal or (0.0, 0.0))
        way = Way(
            x=jnp.where(aim.has, aim.x, jnp.concatenate([orders.x, goal_x])),
            y=jnp.where(aim.has, aim.y, jnp.concatenate([orders.y, goal_y])),
            walks=walks,
            stalks=walks & aim.has & (aim.away <= CROWD) & column(army.of("reach") < 1),
            fights=alive & attack.busy,
        )
        (x, y), speed, detour = Movement(self.map.terrain, army).after((now.x, now.y), way, alive, now.speed, now.detour)
        return eqx.tree_at(lambda f: (f.x, f.y, f.speed, f.detour), now, (x, y, speed, detour))

    def _fight(
        self,
        now: Forces,
        alive: Bool[Array, "U B"],
        aim: Aim,
        attack: Attack,
        gap: Float[Array, "N E B"],
        dx: Float[Array, "N E B"],
        dy: Float[Array, "N E B"],
    ) -> Forces:
        """Hits, explosions, healing, regeneration and deaths."""
        army, n = self.army, self.army.n_allies
        weapons, strikes = Weapons(army), attack.strikes
        shot = jnp.where(strikes, now.target, now.shot)
        bursts = (strikes | now.bursting) & column(army.has("blast"))

        def harmed() -> tuple[Float[Array, "U B"], Float[Array, "U B"]]:
            hit_enemy, hit_ally = self._hits(now, alive, aim, attack, bursts, gap, dx, dy)
            allies = weapons.hurt(now.life[:n], now.shield[:n], hit_ally, slice(n, None), slice(0, n), axis=1)
            enemies = weapons.hurt(now.life[n:], now.shield[n:], hit_enemy, slice(0, n), slice(n, None), axis=0)
            life, shield = (jnp.concatenate(teams) for teams in zip(allies, enemies, strict=True))
            return life, shield

        # In many loops nobody is hit; in the others a branch keeps the compiler from working out attacks anew for each pair of units.
        if army.size > FEW:
            life, shield = jax.lax.cond(jnp.any(strikes | attack.lands | bursts), harmed, lambda: (now.life, now.shield))
        else:  # a branch would cost more than it saves
            life, shield = harmed()
        hurt = (life < now.life) | (shield < now.shield)
        energy, healing = now.energy, now.healing
        for healer in np.nonzero(army.has("heals"))[0]:
            life, energy, healing, shot = self._heal(int(healer), now, alive & (life > 0), aim, life, energy, healing, shot)
        unhurt = now.unhurt
        if army.of("shield").any():
            unhurt = jnp.where(hurt, 0.0, unhurt + TICK)
            rested = unhurt >= rules.SHIELD_DELAY
            shield = jnp.where(rested, jnp.minimum(shield + rules.SHIELD_RATE * TICK, column(army.of("shield"))), shield)
        life = jnp.where(bursts, 0.0, life)
        survives = alive & (life > 0)
        if army.of("regeneration").any():
            life = jnp.minimum(life + column(army.of("regeneration") * np.float32(TICK)), column(army.of("life")))
        return Forces(
            x=now.x,
            y=now.y,
            life=jnp.where(survives, life, 0.0),
            shield=jnp.where(survives, shield, 0.0),
            energy=energy,
            cooldown=attack.cooldown,
            unhurt=unhurt,
            target=now.target,
            swing=attack.swing,
            swing_target=attack.swing_target,
            recovery=attack.recovery,
            blow=attack.blow,
            blow_target=attack.blow_target,
            speed=now.speed,
            detour=now.detour,
            facing=attack.facing,
            bursting=alive & ~survives & ~bursts & column(army.has("blast")),
            healing=healing,
            shot=shot,
            burst=now.burst | bursts,
        )

    def _hits(
        self,
        now: Forces,
        alive: Bool[Array, "U B"],
        aim: Aim,
        attack: Attack,
        bursts: Bool[Array, "U B"],
        gap: Float[Array, "N E B"],
        dx: Float[Array, "N E B"],
        dy: Float[Array, "N E B"],
    ) -> tuple[Bool[Array, "N E B"], Bool[Array, "N E B"]]:
        """Whom the agents' units hit, and whom the enemy's: blows, missiles, explosions and the colossus's line of fire."""
        army, n = self.army, self.army.n_allies
        weapons, strikes = Weapons(army), attack.strikes
        everyone = np.arange(army.size, dtype=np.int32)
        direct = strikes & ~column(army.has("missile_speed"))
        hit_enemy = aim.on_enemy & direct[:n, None]
        hit_ally = aim.on_ally & direct[n:]
        if (army.has("second_hit") | army.has("missile_speed")).any():
            hit_enemy |= attack.lands[:n, None] & (now.blow_target[:n, None] == column(everyone[n:])) & alive[n:]
            hit_ally |= attack.lands[n:] & (now.blow_target[n:] == column(everyone[:n, None])) & alive[:n, None]

        if army.has("blast").any():
            around = gap + column(army.of("radius")[:n, None]) <= column(army.of("blast")[:n, None])
            hit_enemy = jnp.where(column(army.has("blast")[:n, None]), bursts[:n, None] & around & alive[n:], hit_enemy)
            around = gap + column(army.of("radius")[n:]) <= column(army.of("blast")[n:])
            hit_ally = jnp.where(column(army.has("blast")[n:]), bursts[n:] & around & alive[:n, None], hit_ally)
        for colossus in np.nonzero(army.has("beams"))[0]:
            if colossus < n:
                line = weapons.beam(dx[colossus], dy[colossus], aim.on_enemy[colossus], army.of("radius")[n:]) & alive[n:]
                hit_enemy = hit_enemy.at[colossus].set(strikes[colossus] & line)
            else:
                at = colossus - n
                line = weapons.beam(-dx[:, at], -dy[:, at], aim.on_ally[:, at], army.of("radius")[:n]) & alive[:n]
                hit_ally = hit_ally.at[:, at].set(strikes[colossus] & line)
        return hit_enemy, hit_ally

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
        close = aim.has[healer] & (aim.away[healer] <= army.of("reach")[healer]) & alive[healer]
        on = (column(np.arange(army.size, dtype=np.int32)) == patient) & alive & close
        ready = healing[healer] | (energy[healer] >= rules.HEAL_START)
        rate, affordable = rules.HEAL_RATE * TICK, energy[healer] / rules.HEAL_COST
        healed = jnp.where(on & ready, jnp.clip(column(full) - life, 0, jnp.minimum(rate, affordable)), 0)
        spent = jnp.sum(healed, axis=0)
        left = jnp.minimum(energy[healer] - spent * rules.HEAL_COST + rules.ENERGY_RATE * TICK, rules.ENERGY_MAX)
        return (
            life + healed,
            energy.at[healer].set(left),
            healing.at[healer].set((spent > 0) & (affordable > rate)),
            shot.at[healer].set(jnp.where(spent > 0, patient, shot[healer])),
        )


def _between(value: Float[Array, "U B"], n: int) -> Float[Array, "N E B"]:
    return value[n:] - value[:n, None]


def _by_blocks(function: Callable[[PyTree], PyTree], battles: PyTree, count: int, units: int) -> PyTree:
    """A function of many battles (their number the last axis), a block of them at a time where all together would not stay in cache."""
    block = count
    while block % 2 == 0 and block * units > BLOCK:
        block //= 2
    if block == count:
        return function(battles)

    def part(leaf: Array) -> Array:
        return jnp.moveaxis(leaf.reshape(*leaf.shape[:-1], count // block, block), -2, 0)

    def join(leaf: Array) -> Array:
        return jnp.moveaxis(leaf, 0, -2).reshape(*leaf.shape[1:-1], count)

    return jax.tree.map(join, jax.lax.map(function, jax.tree.map(part, battles)))
