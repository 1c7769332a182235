"""What agents see and may do: the observations, states and action masks of SMAC, in its layout and with its constants.

Every agent sees 9 and may order attacks at 6 away from its centre, whatever its unit. Actions: 0 nothing (the dead only), 1 stop,
2-5 north, south, east, west, 6+i attack enemy i; for a healer, heal agent i.

* Observation: 4 moves available; per enemy: may be attacked, distance, dx, dy, life, [shield], [type]; per other agent the same with
  "visible" first; own life, [shield], [type]. The dead observe zeros, and nobody observes the dead.
* State: per agent: life, weapon cooldown (a healer's energy), x, y from the centre, [shield], [type]; per enemy the same without the
  cooldown; then each agent's last action as a one-hot vector. Lengths are fractions of the map, and rows of the dead are zero.

Shields are there where a team has any, types where the agents are of several kinds. Where `numbers` are given, enemy i is the unit of the
enemy that they name; otherwise it is the i-th of the tables.
"""

from __future__ import annotations

import dataclasses
from typing import Protocol

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from emc.envs.battle import terrain as ground
from emc.envs.battle.army import Army
from emc.envs.battle.forces import NOBODY, Forces, Orders
from emc.envs.battle.maps import Map
from emc.envs.battle.units import LOOPS
from emc.types import EnvSpec

SIGHT, SHOOTING = 9.0, 6.0
NOTHING, STOP, NORTH, SOUTH, EAST, WEST = range(6)
FIRST_TARGET = 6
STEP = 2.0  # how far away the point is that a move walks to
PROBE = 1.0  # a move is available where the ground this far ahead is open
DIRECTIONS = np.array([(0, 1), (0, -1), (1, 0), (-1, 0)], np.float32)  # north, south, east, west


Numbers = Int[Array, " E"] | None  # which of the enemy has which number


@dataclasses.dataclass(frozen=True)
class View:
    """The agents' side of one map."""

    map: Map
    army: Army

    @property
    def spec(self) -> EnvSpec:
        """The sizes of the game."""
        n, enemies, bits = self.army.n_allies, self.army.size - self.army.n_allies, self.map.type_bits
        shields, enemy_shields = self._shielded
        actions = FIRST_TARGET + enemies

        def unit(flags: int, numbers: int, shielded: bool) -> list[bool]:
            """Which features of a unit are flags: those before its numbers, and its type."""
            return [True] * flags + [False] * (numbers + 1 + shielded) + [True] * bits

        obs = [True] * 4 + unit(1, 3, enemy_shields) * enemies + unit(1, 3, shields) * (n - 1) + unit(0, 0, shields)
        state = unit(0, 3, shields) * n + unit(0, 2, enemy_shields) * enemies + [True] * (n * actions)
        return EnvSpec(
            n_agents=n,
            n_actions=actions,
            obs_size=len(obs),
            state_size=len(state),
            episode_limit=self.map.limit,
            obs_dtype="bfloat16",
            state_dtype="bfloat16",
            obs_flags=tuple(np.flatnonzero(obs).tolist()),
            state_flags=tuple(np.flatnonzero(state).tolist()),
            unit_size=4 + shields + bits,
            usual_length=0.4,  # between 0.27 and 0.73 with random teams
            map_shape=(ground.SIZE, ground.SIZE),
            idle_actions=(STOP, NOTHING),
            move_actions=(NORTH, SOUTH, EAST, WEST),
        )

    def orders(self, forces: Forces, action: Int[Array, " N"], numbers: Numbers = None) -> Orders:
        """What actions tell the units to do."""
        n = self.army.n_allies
        number = action - FIRST_TARGET
        towards = jnp.asarray(DIRECTIONS)[jnp.clip(action - NORTH, 0, 3)]
        enemy = number if numbers is None else numbers[jnp.maximum(number, 0)]
        target = jnp.where(self.army.has("heals")[:n], number, n + enemy)
        return Orders(
            x=forces.x[:n] + STEP * towards[:, 0],
            y=forces.y[:n] + STEP * towards[:, 1],
            walk=(action >= NORTH) & (action <= WEST),
            target=jnp.where(number >= 0, target, NOBODY).astype(jnp.int32),
        )

    def available(self, forces: Forces, numbers: Numbers = None) -> Bool[Array, "N A"]:
        """Which actions each agent may choose."""
        n, heals = self.army.n_allies, self.army.has("heals")
        alive = forces.life > 0
        live = alive[:n, None]
        near = (self._distance(forces) <= SHOOTING) & alive
        targets = _numbered(near[:, n:], numbers, axis=1)
        if heals[:n].any():
            patients = jnp.pad(near[:, :n] & ~heals[:n], ((0, 0), (0, max(self.army.size - 2 * n, 0))))[:, : self.army.size - n]
            targets = jnp.where(heals[:n, None], patients, targets)
        return jnp.concatenate([~live, live, live & self._moves(forces), live & targets], axis=1)

    def observations(self, forces: Forces, available: Bool[Array, "N A"], numbers: Numbers = None) -> Float[Array, "N O"]:
        """What each agent sees."""
        n = self.army.n_allies
        alive = forces.life > 0
        distance = self._distance(forces)
        visible = alive[:n, None] & alive & (distance < SIGHT)
        dx, dy = (value - value[:n, None] for value in (forces.x, forces.y))
        about = self._about(forces)

        def features(first: Bool[Array, "N m"], columns: slice, shielded: bool, numbers: Numbers = None) -> Float[Array, "N m F"]:
            where = [_numbered(value[:, columns] / SIGHT, numbers, axis=1) for value in (distance, dx, dy)]
            seen = _numbered(about(columns, shielded), numbers, axis=0)
            what = jnp.broadcast_to(seen, (n, *seen.shape))
            both = jnp.concatenate([jnp.stack([first.astype(jnp.float32), *where], axis=2), what], axis=2)
            return both * _numbered(visible[:, columns], numbers, axis=1)[..., None]

        shields, enemy_shields = self._shielded
        enemies = features(available[:, FIRST_TARGET:], slice(n, None), enemy_shields, numbers)
        team = features(visible[:, :n], slice(0, n), shields)
        others = np.array([[j for j in range(n) if j != i] for i in range(n)], np.int32).reshape(n, n - 1)
        mates = team[np.arange(n)[:, None], others]
        return jnp.concatenate(
            [
                available[:, NORTH : WEST + 1].astype(jnp.float32),
                enemies.reshape(n, enemies.shape[1] * enemies.shape[2]),
                mates.reshape(n, mates.shape[1] * mates.shape[2]),
                about(slice(0, n), shields) * alive[:n, None],
            ],
            axis=1,
        )

    def state(self, forces: Forces, last_action: Int[Array, " N"], numbers: Numbers = None) -> Float[Array, " S"]:
        """What only training may see."""
        army, n = self.army, self.army.n_allies
        alive = (forces.life > 0)[:, None]
        left, bottom, right, top = self.map.terrain.playable
        x, y = (forces.x - ground.SIZE / 2) / (right - left), (forces.y - ground.SIZE / 2) / (top - bottom)
        waits = jnp.where(army.has("heals"), forces.energy, forces.cooldown * LOOPS) / army.of("cooldown_scale")
        shields, enemy_shields = self._shielded
        about = self._about(forces)
        own, theirs = about(slice(0, n), shields), about(slice(n, None), enemy_shields)
        place = jnp.stack([x, y], axis=1)
        allies = jnp.concatenate([own[:, :1], waits[:n, None], place[:n], own[:, 1:]], axis=1) * alive[:n]
        enemies = jnp.concatenate([theirs[:, :1], place[n:], theirs[:, 1:]], axis=1) * alive[n:]
        enemies = _numbered(enemies, numbers, axis=0)
        last = (last_action[:, None] == np.arange(self.spec.n_actions)).astype(jnp.float32)
        return jnp.concatenate([table.reshape(table.shape[0] * table.shape[1]) for table in (allies, enemies, last)])

    @property
    def _shielded(self) -> tuple[bool, bool]:
        """Whether the agents' units have shields, and whether the enemy's have."""
        shields, n = self.army.has("shield"), self.army.n_allies
        return bool(shields[:n].any()), bool(shields[n:].any())

    @property
    def _types(self) -> Float[np.ndarray, "U types"]:
        """Each unit's type as a one-hot vector."""
        if not self.map.type_bits:
            return np.zeros((self.army.size, 0), np.float32)
        orders = [self.map.kinds if allied else self.map.enemy_kinds for allied in self.army.allied]
        numbers = [order.index(unit.name) for unit, order in zip(self.army.units, orders, strict=True)]
        return np.eye(self.map.type_bits, dtype=np.float32)[numbers]

    def _about(self, forces: Forces) -> About:
        """Life, [shield] and [type] of units."""
        life = forces.life / self.army.of("life")
        shield = forces.shield / np.maximum(self.army.of("shield"), 1)
        types = self._types

        def about(columns: slice, shielded: bool) -> Float[Array, "m F"]:
            numbers = [life[columns], shield[columns]] if shielded else [life[columns]]
            return jnp.concatenate([jnp.stack(numbers, axis=1), types[columns]], axis=1)

        return about

    def _distance(self, forces: Forces) -> Float[Array, "N U"]:
        """From each agent to everyone."""
        n = self.army.n_allies
        dx, dy = (value - value[:n, None] for value in (forces.x, forces.y))
        return jnp.sqrt(dx * dx + dy * dy)

    def _moves(self, forces: Forces) -> Bool[Array, "N 4"]:
        """Where the ground ahead is open. SMAC asks this of the cell ahead, for units that fly or walk on cliffs too."""
        n = self.army.n_allies
        x, y = (value[:n, None] + PROBE * DIRECTIONS[:, axis] for axis, value in enumerate((forces.x, forces.y)))
        x, y = (jnp.where((value > -1) & (value < 0), 0.0, value) for value in (x, y))  # SMAC truncates towards 0
        inside = (x >= 0) & (y >= 0) & (x < ground.SIZE) & (y < ground.SIZE)
        cell = jnp.clip(x, 0, ground.SIZE - 1).astype(jnp.int32) * ground.SIZE + jnp.clip(y, 0, ground.SIZE - 1).astype(jnp.int32)
        return inside & jnp.asarray(ground.walkable(self.map.terrain).reshape(-1))[cell]


def _numbered(table: Shaped[Array, "..."], numbers: Numbers, axis: int) -> Shaped[Array, "..."]:
    """What is known of the enemy's units, by their numbers."""
    return table if numbers is None else jnp.take(table, numbers, axis=axis)


class About(Protocol):
    """A table of units: life, [shield], [type]."""

    def __call__(self, columns: slice, shielded: bool) -> Float[Array, "m F"]: ...
