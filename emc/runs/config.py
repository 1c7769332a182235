"""What a run was asked to do, as a record and as JSON.

A dataclass becomes `{"type": name, field: value, ...}` and back. Only the package's own types can be named, and environments that the user
has said to trust, so reading a stranger's manifest constructs nothing else.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from emc import curiosity, losses, memory, mixers, optimisers, policies, sampling, schedules
from emc.envs.base import Described
from emc.envs.hosted import Hosted, foreign, imported
from emc.envs.jaxmarl import JaxMARL
from emc.envs.registry import TASKS
from emc.envs.sizes import check_sizes
from emc.errors import RunError, UserError
from emc.methods import Method
from emc.names import lookup
from emc.training.loop import Budget


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run's numbers."""

    method_name: str
    method: Method
    env_name: str
    env: Described
    budget: Budget
    seeds: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or any(not 0 <= seed < 2**31 for seed in self.seeds):
            raise UserError(f"seeds={self.seeds} must be different whole numbers from 0 to {2**31 - 1}")
        if not isinstance(self.env, Hosted):  # asking which would start it
            check_sizes(self.env)
        accept(self.env)
        for part in (self.method, self.env):
            if why := why_not_kept(part):
                raise UserError(why)


def why_not_kept(part: Any) -> str:
    """Why a run of a method or an environment could not be resumed or loaded; empty if it could."""
    try:
        same = bool(from_json(json.loads(json.dumps(to_json(part)))) == part)
    except UserError as error:
        return f"a run of {type(part).__name__} could not be resumed or loaded: {error}"
    except (TypeError, ValueError):  # arrays, which JSON does not know
        same = False
    return "" if same else f"{type(part).__name__} holds more than plain numbers and words, so a run of it could not be resumed or loaded"


MOST_SEEDS = 1_000  # side by side in one run
_TRUSTED: dict[str, Callable[..., Any]] = {}  # classes outside the package that manifests may name, as module:Class


def trust(source: str) -> None:
    """Let manifests name a class of one's own, which is code that reading them will run."""
    _TRUSTED[source] = imported(source.rpartition("/")[2]) if ":" in source else Hosted


def accept(env: Described) -> None:
    """An environment that the caller holds needs no further trust."""
    if isinstance(env, Hosted):
        _TRUSTED.setdefault(env.source, Hosted)
    elif type(env).__name__ not in _types():
        _TRUSTED[_source(env)] = type(env)


def code_outside(env: Described) -> str:
    """The code outside the package that an environment is made of, as `trust` names it; empty if there is none."""
    source = env.source if isinstance(env, Hosted) else "" if type(env).__name__ in _types() else _source(env)
    return source if foreign(source) else ""


def _source(value: Any) -> str:
    return f"{type(value).__module__}:{type(value).__qualname__}"


def _check_trusted(source: str) -> None:
    if foreign(source) and source not in _TRUSTED:
        raise RunError(f"this run's environment is code outside emc, {source}: if you trust it, add --trust {source}")


def _types() -> Mapping[str, Callable[..., Any]]:
    return {**_part_types(), **{task.kind.__name__: task.kind for task in TASKS.values()}, "Hosted": Hosted, "JaxMARL": JaxMARL}


@functools.cache
def _part_types() -> Mapping[str, Callable[..., Any]]:
    modules = (curiosity, losses, memory, mixers, optimisers, policies, sampling, schedules)
    found: dict[str, Callable[..., Any]] = {"RunConfig": RunConfig, "Method": Method, "Budget": Budget}
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
    if hint is Described:  # asking a hosted environment itself would start it
        return hasattr(type(value), "spec")
    if hint in (int, float):
        return isinstance(value, int if hint is int else int | float) and not isinstance(value, bool)
    return isinstance(value, hint) if isinstance(hint, type) and hint is not object else True


def to_json(value: Any) -> Any:
    """A dataclass with all its fields, recursively."""
    if is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"type": type(value).__name__ if type(value).__name__ in _types() else _source(value)} | fields
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    return value


def from_json(data: Any) -> Any:
    """The dataclass that `to_json` was given."""
    if isinstance(data, list):
        return tuple(from_json(item) for item in data)
    if not isinstance(data, dict):
        return data
    fields = {name: from_json(value) for name, value in data.items() if name != "type"}
    kind = str(data.get("type"))
    for source in (kind, str(fields.get("source", "")) if kind == "Hosted" else ""):
        _check_trusted(source)
    try:
        made = lookup("type in the run's manifest", kind, {**_types(), **_TRUSTED})
        _check_fields(made, fields)
        _check_types(made, fields)
        return made(**fields)
    except TypeError as error:
        raise RunError(f"the run's manifest does not fit this version of emc ({error}): use the version that wrote it") from error
    except ValueError as error:
        raise RunError(f"the run's manifest cannot be used: {error}") from error
