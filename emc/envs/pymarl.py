"""Environments with the interface of PyMARL: StarCraft II through SMAC or SMACv2, SMAClite, and any other (`pymarl/module:callable`).

They agree on names and differ in details: tuples of three or five, integers that must be Python's own, missing methods and keys, time
limits inside or missing. All of that ends here. As in PyMARL's default, reaching the time limit counts as the end of the task, a defeat,
unless the environment says that the episode only was cut.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import math
from typing import Any

import numpy as np
from jaxtyping import Int

from emc.envs.battle import MAPS
from emc.errors import UserError
from emc.plugins import imported
from emc.types import EnvSpec, HostTimestep
from emc.user_input import lookup

WANTED = {
    "smac": "StarCraft II and SMAC, from the repository oxwhirl/smac (the package called smac on the index is another one)",
    "smacv2": "StarCraft II and SMACv2, from the repository oxwhirl/smacv2",
    "smaclite": "SMAClite, from its repository uoe-agents/smaclite",
}
# SMACv2 draws its teams from a description. Its authors' for each race: kinds, how likely each is, and what no team may consist of alone.
TEAMS = {
    "10gen_terran": (("marine", "marauder", "medivac"), (0.45, 0.45, 0.1), ("medivac",)),
    "10gen_protoss": (("stalker", "zealot", "colossus"), (0.45, 0.45, 0.1), ()),
    "10gen_zerg": (("zergling", "baneling", "hydralisk"), (0.45, 0.1, 0.45), ("baneling",)),
}
TEAM_SIZE = 5
LITE_LIMIT = 120  # of a map of SMAClite that is none of SMAC's


class PyMARL:
    """One such environment behind `HostEnvironment`."""

    def __init__(self, env: Any, episode_limit: int | None = None, won: str = "battle_won", starcraft: bool = True):
        self.env, self.won, self.starcraft = env, won, starcraft
        self.spec = self._sizes(episode_limit)
        self.seeded = "seed" in inspect.signature(env.reset).parameters
        self.time = 0

    @classmethod
    def made(cls, package: str, name: str, episode_limit: int | None = None, **fields: Any) -> PyMARL:
        """StarCraft II or a copy of it, by the name of its map."""
        if "map_name" in fields:
            raise UserError(f"map_name is part of the environment's name: write {package}/{fields['map_name']}")
        if package == "smaclite" and episode_limit is None:  # it has no limits of its own; its maps are SMAC's
            episode_limit = MAPS[name].limit if name in MAPS else LITE_LIMIT
        return cls(cls._starcraft(package, name, fields), episode_limit)

    @classmethod
    def called(cls, source: str, episode_limit: int | None = None, won: str = "", **fields: Any) -> PyMARL:
        """Any other, by what constructs it; `won` is the entry of its `info` that tells of a win, if there is one."""
        return cls(imported(source)(**fields), episode_limit, won, starcraft=False)

    @staticmethod
    def _starcraft(package: str, name: str, fields: dict[str, Any]) -> Any:
        # Imported only when asked for: SMAC and SMACv2 cannot be imported side by side.
        try:
            if package == "smac":
                make = functools.partial(importlib.import_module("smac.env").StarCraft2Env, map_name=name)
            elif package == "smacv2":
                wrapper = importlib.import_module("smacv2.env.starcraft2.wrapper").StarCraftCapabilityEnvWrapper
                make, fields = functools.partial(wrapper, map_name=name), _published(name, fields)
            else:
                importlib.import_module("smaclite")
                make = functools.partial(importlib.import_module("gymnasium").make, f"smaclite/{name}-v0")
        except (ImportError, AttributeError) as error:
            raise UserError(f"{package}/{name} needs {WANTED[package]} ({error}). `emc doctor` says what is missing") from error
        try:
            env = make(**fields)
        except Exception as error:  # each package has its own for a map that it does not know
            reason = f"{type(error).__name__}: {error}"
            raise UserError(f"{package}/{name} cannot be made: there is no such map, or not with these arguments ({reason})") from error
        return env.unwrapped if package == "smaclite" else env

    def _sizes(self, limit: int | None) -> EnvSpec:
        info: dict[str, Any] = self.env.get_env_info() if hasattr(self.env, "get_env_info") else {}

        def size(key: str, attribute: str) -> int:
            return math.prod(np.atleast_1d(info[key] if key in info else getattr(self.env, attribute)).tolist())  # images are flattened

        if not limit and "episode_limit" not in info and not hasattr(self.env, "episode_limit"):
            raise UserError("the environment does not say how long an episode may last: give episode_limit=N")
        return EnvSpec(
            n_agents=size("n_agents", "n_agents"),
            n_actions=size("n_actions", "n_actions"),
            obs_size=size("obs_shape", "obs_size"),
            state_size=size("state_shape", "state_size"),
            episode_limit=limit or size("episode_limit", "episode_limit"),
            unit_size=int(info.get("unit_dim", 0) or _unit_size(self.env)),
            usual_length=0.4 if self.starcraft else 1.0,
            winnable=bool(self.won),
            idle_actions=(1, 0) if self.starcraft else (),
            move_actions=(2, 3, 4, 5) if self.starcraft else (),
        )

    def reset(self, seed: int) -> HostTimestep:
        """Start an episode; only some of these environments can be seeded, and only at the start of a game."""
        self.time = 0
        if self.seeded:
            self.env.reset(seed=seed)
        else:
            self.env.reset()
        return self._shown()

    def step(self, action: Int[np.ndarray, " N"]) -> HostTimestep:
        """Play one joint action."""
        self.time += 1
        answer = self.env.step([int(one) for one in action])
        reward, terminated, info = (answer[1], answer[2], answer[4]) if len(answer) == 5 else answer
        if self.starcraft and terminated and "battle_won" not in info:
            # SMAC's answer when it has lost the game: nothing that was fought out, so nothing to learn from.
            raise UserError("lost its connection to StarCraft II in the middle of an episode")
        cut = bool(info.get("episode_limit", False))
        over = bool(terminated) or self.time >= self.spec.episode_limit
        return self._shown(float(reward), terminated=over and not cut, truncated=over and cut, won=bool(info.get(self.won, False)))

    def close(self) -> None:
        """Quit the game."""
        self.env.close()

    def _shown(self, reward: float = 0.0, terminated: bool = False, truncated: bool = False, won: bool = False) -> HostTimestep:
        available = np.asarray(self.env.get_avail_actions()).astype(bool)
        available[~available.any(axis=1), 0] = True  # an agent must be able to do something
        obs = np.asarray(self.env.get_obs(), np.float32).reshape(self.spec.n_agents, -1)
        return HostTimestep(obs, np.ravel(self.env.get_state()), available, reward, terminated, truncated, won)


def _published(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Arguments of SMACv2: its authors' settings, except for what is given."""
    settings = {"obs_own_pos": True, "use_unit_ranges": True, **fields}
    if "capability_config" in fields:
        return settings
    kinds, weights, exceptions = lookup("map of SMACv2", name, TEAMS)
    units = settings.pop("n_units", TEAM_SIZE)
    sizes = {"n_units": units, "n_enemies": settings.pop("n_enemies", units)}
    team = {"dist_type": "weighted_teams", "unit_types": [*kinds], "weights": [*weights], "exception_unit_types": [*exceptions]}
    places = {"dist_type": "surrounded_and_reflect", "p": 0.5, "map_x": 32, "map_y": 32}
    return {**settings, "capability_config": {**sizes, "team_gen": {**team, "observe": True}, "start_positions": places}}


def _unit_size(env: Any) -> int:
    """Features of an agent's unit at the head of the state, however the environment tells of them; 0 where it does not."""
    if hasattr(env, "get_ally_num_attributes"):  # SMAC and SMACv2, whose units have capabilities too
        return int(env.get_ally_num_attributes())
    if hasattr(env, "ally_state_feat_size"):  # SMAClite
        return int(env.ally_state_feat_size)
    return 4 + int(env.shield_bits_ally) + int(env.unit_type_bits) if hasattr(env, "shield_bits_ally") else 0
