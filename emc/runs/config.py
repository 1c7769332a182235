"""What a run was asked to do, as a record and as JSON.

A dataclass becomes `{"type": name, field: value, ...}` and back. A manifest may name the package's own types, what installed packages offer
as entry points, and what whoever reads it trusts; so reading a stranger's manifest runs no other code.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from types import UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from emc import curiosity, losses, memory, mixers, optimisers, policies, sampling, schedules
from emc.envs.base import HasSpec
from emc.envs.hosted import Hosted, foreign
from emc.envs.jaxmarl import JaxMARL
from emc.envs.registry import TASKS, Task
from emc.envs.sizes import check_sizes
from emc.errors import MISTAKES, RunError, UserError, in_short
from emc.methods import Method
from emc.runs.directory import RunDirectory
from emc.runs.reading import steps_asked_later
from emc.runs.trust import Trust, Trusted, source_of
from emc.training.loop import Budget
from emc.user_input import lookup


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run's numbers."""

    method_name: str
    method: Method
    env_name: str
    env: HasSpec
    budget: Budget
    seeds: tuple[int, ...] = (0,)
    start_from: str = ""  # directory of a run whose networks it begins with

    def until(self, steps: int) -> RunConfig:
        """The same with so many steps in all."""
        return dataclasses.replace(self, budget=dataclasses.replace(self.budget, steps=steps))

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or any(not 0 <= seed < 2**31 for seed in self.seeds):
            raise UserError(f"seeds={self.seeds} must be different whole numbers from 0 to {2**31 - 1}")
        if not isinstance(self.env, Hosted):  # asking which would start it
            check_sizes(self.env)
        for part in (self.method, self.env):
            if why := why_not_kept(part):
                raise UserError(why)


def why_not_kept(part: Any) -> str:
    """Why a run of a method or an environment could not be resumed or loaded; empty if it could."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of Equinox about arrays as fields: the refusal below speaks of them
            same = bool(from_json(json.loads(json.dumps(to_json(part))), held(part)) == part)
    except UserError as error:
        return f"a run of {type(part).__name__} could not be resumed or loaded: {error}"
    except (TypeError, ValueError):  # arrays, which JSON does not know
        same = False
    except MISTAKES as error:  # whatever the user's class does wrong when it is compared, or its fields are looked at
        return f"a run of {type(part).__name__} could not be resumed or loaded ({in_short(error)})"
    return "" if same else f"{type(part).__name__} holds more than plain numbers and words, so a run of it could not be resumed or loaded"


def config_of(run: RunDirectory, size: int | None = None) -> RunConfig:
    """What a run was asked to do, and until which step it was later told to go on, by the time that END had so many bytes."""
    config = from_json(run.manifest.get("config"), run.trust)
    if not isinstance(config, RunConfig):
        raise RunError(f"{run.path}: its manifest holds no configuration. Use the version of emc that made it.")
    later = steps_asked_later(run.path, size)
    return config if later is None else config.until(later)


def budget_of(a_task: Task) -> Budget:
    """How long the paper trains on a task and how often it looks."""
    return Budget(a_task.steps, a_task.evaluate_every, a_task.test_episodes)


MOST_SEEDS = 1_000  # side by side in one run


def held(value: Any) -> Trust:
    """Trust in the code of parts and environments that the caller holds: whoever has made them has run it."""
    return Trust([*outside(value), *(type(one) for one in _records_in(value) if not _is_ours(type(one)))])


def outside(value: Any) -> tuple[str, ...]:
    """The code outside the package that a method, an environment or a whole run is made of, as `--trust` names it."""
    return tuple(dict.fromkeys(source for one in _records_in(value) if (source := _outside(one))))


def _outside(value: Any) -> str:
    source = value.source if isinstance(value, Hosted) else "" if _is_ours(type(value)) else source_of(type(value))
    return source if foreign(source) else ""


def _is_ours(kind: type) -> bool:
    return _types().get(kind.__name__) is kind


def _records_in(value: Any) -> Iterator[Any]:
    """A dataclass, and all that its fields hold."""
    if isinstance(value, tuple | list):
        for item in cast(Sequence[Any], value):
            yield from _records_in(item)
    elif is_dataclass(value) and not isinstance(value, type):
        yield value
        for field in dataclasses.fields(value):
            yield from _records_in(getattr(value, field.name))


@functools.cache
def _types() -> Mapping[str, Callable[..., Any]]:
    """The package's own, by their names."""
    modules = (curiosity, losses, memory, mixers, optimisers, policies, sampling, schedules)
    found: dict[str, Callable[..., Any]] = {
        "RunConfig": RunConfig,
        "Method": Method,
        "Budget": Budget,
        "Hosted": Hosted,
        "JaxMARL": JaxMARL,
    }
    found |= {task.kind.__name__: task.kind for task in TASKS.values()}
    return found | {
        name: kind for module in modules for name, kind in vars(module).items() if isinstance(kind, type) and is_dataclass(kind)
    }


def _check_fields(kind: Callable[..., Any], fields: Mapping[str, Any]) -> None:
    """Refuse a field that this version does not have, by its name."""
    if isinstance(kind, type) and is_dataclass(kind):
        for name in fields.keys() - {field.name for field in dataclasses.fields(kind) if field.init}:
            raise RunError(
                f"the run's manifest has a field {name!a:.80} of {kind.__name__} that is unknown here: use the emc that wrote it"
            )


def _check_types(kind: Callable[..., Any], fields: Mapping[str, Any]) -> None:
    """Refuse a record with a field of another type than it says, which a damaged or hand-written manifest may hold."""
    hints = _hints(kind) if isinstance(kind, type) else {}
    for name, value in fields.items():
        if not _fits(value, hints.get(name, Any)):
            raise RunError(f"the run's manifest cannot be used: {name} of {kind.__name__} is {value!r:.80}")


_hints = functools.cache(get_type_hints)  # a directory of many runs asks for the same few types over and over


def _fits(value: Any, hint: Any) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is tuple:
        many = inner[:1] * len(value) if inner[1:] == (...,) and isinstance(value, tuple) else inner
        return isinstance(value, tuple) and len(value) == len(many) and all(map(_fits, value, many))
    if origin is Literal:
        return value in inner
    if hint is Any:
        return True
    if hint is HasSpec:  # asking a hosted environment itself would start it
        return hasattr(type(value), "spec")
    if hint in (int, float):
        return isinstance(value, int if hint is int else int | float) and not isinstance(value, bool)
    return isinstance(value, hint) if isinstance(hint, type) and hint is not object else True


def to_json(value: Any) -> Any:
    """A dataclass with all its fields, recursively."""
    if is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"type": type(value).__name__ if _is_ours(type(value)) else source_of(type(value))} | fields
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    return value


def from_json(data: Any, trusted: Trusted = ()) -> Any:
    """The dataclass that `to_json` was given."""
    return _read(data, Trust.of(trusted))


def _read(data: Any, trust: Trust) -> Any:
    if isinstance(data, list):
        return tuple(_read(item, trust) for item in data)
    if not isinstance(data, dict):
        return data
    fields = {name: _read(value, trust) for name, value in data.items() if name != "type"}
    name = str(data.get("type"))
    if name == "Hosted":
        trust.check(str(fields.get("source", "")))
    own = trust.kind(name) if ":" in name else None
    try:
        kind = own or lookup("type in the run's manifest", name, _types())
        _check_fields(kind, fields)
        _check_types(kind, fields)
        return kind(**fields)
    except TypeError as error:
        raise RunError(f"the run's manifest does not fit this version of emc ({error}): use the version that wrote it") from error
    except ValueError as error:
        raise RunError(f"the run's manifest cannot be used: {error}") from error
