"""Attacks, from their beginning to the damage they do, for many battles side by side (the last axis of every array).

An attack begins when the weapon is ready and its target within reach. It reaches its damage point some moments later, unless until then
its unit turns to something else or the target gets farther away than the weapon's slop allows: then nothing happened, and the weapon is
ready again. At the damage point the hit falls, or a missile is launched that arrives by itself. After it the unit stands for its backswing
before it follows a target that has moved away; an order to do something else ends that at once.
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
from emc.envs.battle.forces import NEVER, Forces, column
from emc.envs.battle.targeting import Aim
from emc.envs.battle.units import TICK


class Attack(eqx.Module):
    """What everyone's weapon does in a loop."""

    cooldown: Float[Array, "U B"]
    swing: Float[Array, "U B"]
    swing_target: Int[Array, "U B"]
    recovery: Float[Array, "U B"]
    blow: Float[Array, "U B"]
    blow_target: Int[Array, "U B"]
    facing: Float[Array, "U B"]
    busy: Bool[Array, "U B"]  # does not walk towards its target
    strikes: Bool[Array, "U B"]  # is at its damage point
    lands: Bool[Array, "U B"]  # the missile it launched arrives, or its second hit falls


@dataclasses.dataclass(frozen=True)
class Weapons:
    """The weapons of a map's units."""

    army: Army

    def attack(self, now: Forces, alive: Bool[Array, "U B"], aim: Aim, target: Int[Array, "U B"], jitter: Float[Array, "U B"]) -> Attack:
        """Begin, go on with or break off everyone's attacks."""
        army = self.army
        reach, slop = column(army.of("reach")), column(army.of("slop"))
        in_reach = aim.has & (aim.away <= reach)
        under_way = now.swing < NEVER
        faithful = alive & aim.has & (now.swing_target == target) & (aim.away <= reach + slop)
        goes_on = under_way & faithful
        ready = jnp.maximum(jnp.where(under_way & ~goes_on, 0.0, now.cooldown) - TICK, 0.0)

        facing, points = self._turn(now, aim)
        begins = alive & in_reach & (ready <= 0) & ~goes_on & points & column(army.has("armed"))
        low, high = rules.JITTER
        cooldown = jnp.where(begins, column(army.of("period")) + low + (high - low) * jitter, ready)
        swing = jnp.where(goes_on, now.swing - TICK, jnp.where(begins, column(army.of("damage_point")), NEVER))
        strikes = (goes_on | begins) & (swing <= 0)
        swing_target = jnp.where(begins, target, now.swing_target)
        swing = jnp.where(strikes, NEVER, swing)

        resting = jnp.where(aim.has & (target != now.swing_target) & column(army.allied), 0.0, jnp.maximum(now.recovery - TICK, 0.0))
        recovery = jnp.where(strikes, column(army.of("backswing")), resting)

        busy = (swing < NEVER) | (recovery > 0)
        blow, blow_target, lands = self._blows(now, aim, target, strikes, faithful)
        return Attack(cooldown, swing, swing_target, recovery, blow, blow_target, facing, busy, strikes, lands)

    def _blows(
        self, now: Forces, aim: Aim, target: Int[Array, "U B"], strikes: Bool[Array, "U B"], faithful: Bool[Array, "U B"]
    ) -> tuple[Float[Array, "U B"], Int[Array, "U B"], Bool[Array, "U B"]]:
        """When missiles and second hits that are due come, on whom, and which come now."""
        army = self.army
        later = army.has("second_hit") | army.has("missile_speed")
        if not later.any():
            return now.blow, now.blow_target, jnp.zeros_like(strikes)
        blow = now.blow - TICK
        if army.has("second_hit").any():
            blow = jnp.where(column(army.has("second_hit")) & ~faithful, NEVER, blow)
        lands = blow <= 0
        launches = strikes & column(later)
        blow = jnp.where(launches, self._delay(aim.away), jnp.where(lands, NEVER, blow))
        return blow, jnp.where(launches, target, now.blow_target), lands

    def _turn(self, now: Forces, aim: Aim) -> tuple[Float[Array, "U B"], Bool[Array, "U B"]]:
        """Where weapons that turn slowly point after this loop, and who points at its target."""
        rate = self.army.of("turn_rate")
        if not rate.any():
            return now.facing, jnp.ones_like(aim.has)
        wanted = jnp.where(aim.has, jnp.arctan2(aim.y - now.y, aim.x - now.x), now.facing)
        off = jnp.remainder(wanted - now.facing + np.pi, 2 * np.pi) - np.pi
        most = column(np.where(rate > 0, np.deg2rad(rate) * TICK, np.float32(np.pi)).astype(np.float32))
        turned = jnp.clip(off, -most, most)
        return now.facing + turned, jnp.abs(off - turned) <= np.deg2rad(rules.ARC)

    def _delay(self, away: Float[Array, "U B"]) -> Float[Array, "U B"]:
        """Seconds until a missile has flown this far, or until a second hit."""
        army = self.army
        speed, acceleration = (column(army.of(field)) for field in ("missile_speed", "missile_acceleration"))
        distance = jnp.maximum(away, 0.0)
        flight = distance / np.maximum(speed, np.float32(1e-3))
        if acceleration.any():
            faster = (jnp.sqrt(speed * speed + 2 * acceleration * distance) - speed) / np.maximum(acceleration, np.float32(1e-3))
            flight = jnp.where(acceleration > 0, faster, flight)
        return jnp.where(column(army.has("second_hit")), column(army.of("second_hit")), flight)

    def hurt(
        self,
        life: Float[Array, "t B"],
        shield: Float[Array, "t B"],
        hits: Bool[Array, "N E B"],
        attackers: slice,
        targets: slice,
        axis: int,
    ) -> tuple[Float[Array, "t B"], Float[Array, "t B"]]:
        """Life and shield of a team after the hits of the other, whose units are along an axis of the hits."""
        army = self.army
        damage, armour = army.damage[attackers, targets], army.of("armour")[targets]
        twice = army.has("beams")[attackers]
        if not army.of("shield")[targets].any():
            net = np.maximum(damage - armour, np.float32(rules.LEAST_DAMAGE)) * (1 + twice[:, None]) * (damage > 0)
            return life - jnp.sum(jnp.where(hits, column(np.moveaxis(net.astype(np.float32), 0, axis)), 0), axis=axis), shield
        for attacker in range(len(damage)):
            for _ in range(2 if twice[attacker] else 1):
                strength = jnp.where(jax.lax.index_in_dim(hits, attacker, axis, keepdims=False), column(damage[attacker]), 0)
                absorbed = jnp.minimum(shield, strength)
                rest = strength - absorbed
                shield = shield - absorbed
                life = life - jnp.where(rest > 0, jnp.maximum(rest - column(armour), rules.LEAST_DAMAGE), 0)
        return life, shield

    def beam(
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
        return jnp.sqrt(beyond * beyond + along * along) <= column(radius + np.float32(rules.BEAM_RADIUS))
