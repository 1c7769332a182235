"""Environments by name, each with how long to train on it and how often to test (the released configurations, where there are any)."""

from __future__ import annotations

import dataclasses
import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import jax

from emc.envs.base import Environment, HasSpec, checked_spec
from emc.envs.battle import MAPS, Battle, describe
from emc.envs.foraging import Foraging, fields_of
from emc.envs.gridworld import Gridworld
from emc.envs.hosted import FAMILIES, Hosted, runs_in_jax
from emc.envs.jaxmarl import JaxMARL
from emc.envs.matrix import NStepGame, OneStepGame, TwoStepGame
from emc.envs.passing import Pass
from emc.envs.predator_prey import PredatorPrey
from emc.envs.push_box import PushBox
from emc.envs.repeated import Climbing, Penalty
from emc.envs.secret_room import SecretRoom
from emc.errors import MISTAKES, UserError, in_short
from emc.plugins import ENVS, imported, offered
from emc.user_input import lookup


@dataclasses.dataclass(frozen=True)
class Task:
    """An environment and its usual experiment."""

    name: str
    kind: Callable[..., HasSpec]
    steps: int  # environment steps of training
    evaluate_every: int  # environment steps between tests
    test_episodes: int
    description: str
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # what makes this task of its kind
    preset: str = "released"  # whose constants methods have there, unless others are asked for
    scale: tuple[float, float] = (0.0, 1.0)  # what counts as 0 and as 1 beside other tasks: of the win rate, or the return without wins

    def make(self, **fields: Any) -> HasSpec:
        """The environment, with some of its fields changed."""
        known = [name for name in inspect.signature(self.kind).parameters if name not in self.fields]
        for field in fields:
            lookup(f"field of {self.name}", field, dict.fromkeys(known))
        try:
            with warnings.catch_warnings(action="ignore"):  # of Equinox about arrays as fields, of which a refusal speaks
                env = self.kind(**self.fields, **fields)
        except UserError:
            raise
        except TypeError as error:
            raise UserError(f"{self.name} cannot be made: {error}. Give every field a default; flags change it") from error
        except MISTAKES as error:  # whatever the user's class does wrong
            raise UserError(f"{self.name} cannot be made ({in_short(error)})") from error
        return env if isinstance(env, Hosted) else _in_jax(self.name, env)


def _in_jax(name: str, env: Any) -> HasSpec:
    """An environment that can be compiled, or one line about what it lacks."""
    if not dataclasses.is_dataclass(env) or jax.tree_util.all_leaves([env]):
        raise UserError(f"{name} is no eqx.Module: derive the class from equinox.Module, as in emc docs your-environment")
    checked_spec(name, env)
    if not isinstance(env, Environment):
        raise UserError(f"{name} is not an environment: it has no reset. See emc docs your-environment")
    return env


STARCRAFT = (2_000_000, 10_000, 32)  # steps, steps between tests and test episodes of StarCraft-like maps
USUAL = (1_000_000, 10_000, 16)  # the same where nothing else is known


def _battles() -> list[Task]:
    """Every map as a task."""
    return [
        Task(name, Battle, *STARCRAFT, f"StarCraft-like battle: {describe(battle)}", {"map": name}, "starcraft")
        for name, battle in MAPS.items()
    ]


def _boards() -> list[Task]:
    """CMAE's boards, the published sizes before the small ones: those are of their kind in any size."""
    passing = "one agent holds a switch that opens the door for the other, twice"
    rooms = "four switches, three doors, and one of three rooms to be in"
    box = "a box that moves only when both agents push the same side"
    return [
        Task("pass-30", Pass, 2_000_000, 20_000, 10, f"{passing}; 30 x 30", {"size": 30}),
        Task("pass", Pass, 500_000, 5_000, 10, f"{passing}; 10 x 10"),
        Task("secret-room-25", SecretRoom, 2_000_000, 20_000, 10, f"{rooms}; 25 x 25", {"size": 25}),
        Task("secret-room", SecretRoom, 500_000, 5_000, 10, f"{rooms}; 15 x 15"),
        Task("push-box-15", PushBox, 2_000_000, 20_000, 10, f"{box}; 15 x 15", {"size": 15}),
        Task("push-box", PushBox, 500_000, 5_000, 10, f"{box}; 9 x 9"),
    ]


def _foraging(name: str, field: str) -> Task:
    return Task(name, Foraging, 2_000_000, 20_000, 32, f"food that only agents together can load: {field}", fields_of(field))


TASKS: Mapping[str, Task] = {
    task.name: task
    for task in (
        Task("gridworld", Gridworld, 505_000, 1_000, 30, "two agents on two sides of a wall must reach their goals at the same time"),
        Task(
            "predator-prey",
            PredatorPrey,
            1_100_000,
            10_000,
            16,
            "eight predators catch prey in pairs; a lone attempt is punished",
            scale=(0.0, 40.0),  # nobody catches; each pair of predators catches a prey
        ),
        Task("one-step-game", OneStepGame, 10_000, 500, 10, "one table of payoffs, its best entry among the most costly mistakes (QTRAN)"),
        Task("two-step-game", TwoStepGame, 20_000, 1_000, 10, "one agent chooses between a safe table and a better one (QMIX)"),
        Task("n-step-game", NStepGame, 105_000, 1_000, 64, "two branches to keep to, the better one found only at its end (MAVEN)"),
        Task(
            "climbing", Climbing, 100_000, 2_500, 10, "the best pair of actions stands beside the worst ones; 25 times", scale=(0.0, 275.0)
        ),
        Task(
            "penalty",
            Penalty,
            100_000,
            2_500,
            10,
            "two best pairs of actions, and a punishment for mixing them; 25 times",
            scale=(0.0, 250.0),
        ),
        *_boards(),
        *(_foraging(f"lbf/{field}", field) for field in ("8x8-2p-2f-coop", "10x10-3p-3f")),
        *_battles(),
    )
}

COMPILED_FAMILIES = {"smax": STARCRAFT, "jaxmarl": USUAL}  # of JaxMARL, and their usual experiments
BATTLE_FAMILIES = ("smac", "smacv2", "smaclite", "smax")  # of environments that are battles, whatever the map


def task(name: str) -> Task:
    """The task called `name`; also `module:Class`, `family/name`, and what installed packages offer as `emc.envs`."""
    if name not in TASKS:
        source = offered(ENVS).get(name, name)
        if "/" in source:
            return _of_family(name, source)
        if ":" in source:
            return _custom(name, source)
    return lookup("environment", name, TASKS)


def _of_family(name: str, source: str) -> Task:
    family, _, rest = source.partition("/")
    lookup("family of environments", family, {**FAMILIES, **COMPILED_FAMILIES, "lbf": None})
    if family == "lbf":
        return _foraging(name, rest)
    if family in COMPILED_FAMILIES:
        return Task(name, JaxMARL, *COMPILED_FAMILIES[family], f"{source} of JaxMARL", {"source": source}, preset_for(source))
    return _hosted(name, source)


def _custom(name: str, source: str) -> Task:
    kind = imported(source)
    if not runs_in_jax(kind):
        return _hosted(name, source)
    return Task(name, kind, *USUAL, f"the environment {source}")


def _hosted(name: str, source: str) -> Task:
    return Task(name, Hosted, *USUAL, f"{source}, in worker processes", {"source": source}, preset_for(source))


def is_battle(name: str) -> bool:
    """Whether an environment is a StarCraft-like battle, here or of another package."""
    return name in MAPS or name.partition("/")[0] in BATTLE_FAMILIES


def preset_for(name: str) -> str:
    """Whose constants methods have on an environment, unless others are asked for."""
    return "starcraft" if is_battle(name) else "released"


def task_of(env: HasSpec) -> Task | None:
    """The task that an environment belongs to, whatever its other fields; None for one that is not listed."""
    fits = (entry for entry in TASKS.values() if isinstance(env, entry.kind))  # pyright: ignore[reportArgumentType]
    return next((entry for entry in fits if all(getattr(env, name) == value for name, value in entry.fields.items())), None)


def make_env(name: str, **fields: Any) -> HasSpec:
    """The environment called `name`, with some of its fields changed: `make_env("gridworld", penalty=0.5)`."""
    return task(name).make(**fields)
