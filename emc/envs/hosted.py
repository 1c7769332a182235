"""Environments that run in worker processes: games, simulators and anything else that is plain Python.

`Hosted` names one, and knows its sizes by asking a worker. A source is `module:Class`, a class with the methods of `HostEnvironment`, or
`family/name`, one of the adapters in `FAMILIES`. What the class is constructed with is given as words like `difficulty=7 seed=3`.
"""

from __future__ import annotations

import ast
import inspect
import shlex
from collections.abc import Callable, Collection, Mapping
from typing import Any

import equinox as eqx

from emc.envs.base import HostEnvironment, checked_spec
from emc.errors import UserError
from emc.plugins import imported
from emc.types import EnvSpec
from emc.user_input import check_number, check_size, lookup


class Hosted(eqx.Module):
    """An environment that runs in worker processes."""

    source: str = eqx.field(static=True)  # module:Class, or family/name
    arguments: str = eqx.field(default="", static=True)  # for its constructor: name=value name=value ...
    timeout: float = eqx.field(default=120.0, static=True)  # seconds for one reset or step, after which a worker counts as hung
    patience: int = eqx.field(default=5, static=True)  # failures of a worker in a row, without a whole episode, that end the run

    def __check_init__(self) -> None:
        parse_arguments(self.arguments)
        check_number("timeout", self.timeout, "give the seconds that a step may take.", low=1e-3)
        check_size("patience", self.patience, "say how many failures in a row are too many.", low=1)

    @property
    def spec(self) -> EnvSpec:
        """The sizes of the environment, asked from a worker once."""
        from emc.envs.workers import spec_of

        return spec_of(self)


def parse_arguments(words: str, texts: Collection[str] = ()) -> dict[str, Any]:
    """`step_mul=4 title="two words"` as keyword arguments; what is no Python literal is text, and so is every value named in `texts`."""
    try:
        pieces = shlex.split(words)
    except ValueError as error:
        raise UserError(f"arguments {words!r} cannot be read: {error}") from error
    found: dict[str, Any] = {}
    for word in pieces:
        name, equals, value = word.partition("=")
        if not (equals and name.isidentifier()):
            raise UserError(f"argument {word!r} is not name=value: write arguments like step_mul=4 reward_sparse=True")
        try:
            found[name] = value if name in texts else ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found


def make_host(source: str, arguments: str, number: int = 0) -> HostEnvironment:
    """Construct the environment, in this process; `number` tells apart those that are made of the same arguments."""
    family, slash, name = source.partition("/")
    fields = parse_arguments(arguments, STARCRAFT_TEXTS if family in ("smac", "smacv2") else ())
    if isinstance(fields.get("seed"), int):
        fields["seed"] += number  # with one seed for all, a game that takes its seed there would be played by all workers alike
    if slash:
        return lookup("family of environments", family, FAMILIES)(name, fields)
    kind = imported(source)
    if hasattr(kind, "get_env_info"):
        return FAMILIES["pymarl"](source, fields)
    try:
        env = kind(**fields)
    except TypeError as error:
        raise UserError(f"{source} cannot be made with {arguments or 'no arguments'}: {error}") from error
    if missing := [name for name in ("spec", "reset", "step", "close") if not hasattr(type(env), name) and not hasattr(env, name)]:
        raise UserError(f"{source} is not an environment: it has no {', '.join(missing)}. See emc docs your-environment")
    checked_spec(source, env)
    return env


def foreign(source: str) -> bool:
    """Whether making this environment runs code that nobody but the user can vouch for."""
    family, _, name = source.rpartition("/")
    return ":" in source or (family == "pettingzoo" and name.partition(".")[0] not in KNOWN_ZOOS)


def runs_in_jax(kind: Callable[..., Any]) -> bool:
    """Whether a class is a JAX environment: its step needs a world, actions and a key, where a host's needs actions only."""
    step = getattr(kind, "step", None)
    if not callable(step):
        return False
    given = inspect.signature(step).parameters.values()
    needed = [one for one in given if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    return len(needed) > 2  # beside itself and the actions


def _pymarl(package: str) -> Callable[[str, dict[str, Any]], HostEnvironment]:
    def make(name: str, fields: dict[str, Any]) -> HostEnvironment:
        from emc.envs.pymarl import PyMARL

        return PyMARL.called(name, **fields) if package == "pymarl" else PyMARL.made(package, name, **fields)

    return make


def _pettingzoo(name: str, fields: dict[str, Any]) -> HostEnvironment:
    from emc.envs.pettingzoo import PettingZoo

    return PettingZoo(name, **fields)


STARCRAFT_TEXTS = ("difficulty", "game_version", "replay_dir", "replay_prefix")  # that may look like numbers: SMAC wants "7" and "4.10"
KNOWN_ZOOS = ("pettingzoo", "mpe2")  # packages of PettingZoo's own makers
FAMILIES: Mapping[str, Callable[[str, dict[str, Any]], HostEnvironment]] = {
    "pymarl": _pymarl("pymarl"),
    "smac": _pymarl("smac"),
    "smacv2": _pymarl("smacv2"),
    "smaclite": _pymarl("smaclite"),
    "pettingzoo": _pettingzoo,
}
