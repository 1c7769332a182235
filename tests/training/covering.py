"""Few methods that hold between them every part that any method has."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from emc.methods import Method

KINDS = ("policy", "mixer", "loss", "curiosity", "memory", "optimiser")
SMALLEST_SIZE = 9  # whole numbers from here on are sizes; below it they count layers, heads and the like, of which there is code for each


def parts(method: Method) -> set[tuple[object, ...]]:
    """The parts of a method and the parts of these, as the code that they are: sizes and shares make no difference, 0 and 1 do."""
    return {found for kind in KINDS for found in _parts(kind, getattr(method, kind))}


def _parts(kind: str, part: Any) -> Iterator[tuple[object, ...]]:
    fields = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    inner = {name: value for name, value in fields.items() if dataclasses.is_dataclass(value)}
    yield kind, type(part), *((name, _alike(value)) for name, value in fields.items() if name not in inner)
    yield from ((kind, type(part), name, type(value)) for name, value in inner.items())
    for name, value in inner.items():
        yield from _parts(f"{kind}.{name}", value)


def _alike(value: Any) -> object:
    if isinstance(value, tuple):
        return tuple(map(_alike, value))
    size = isinstance(value, int) and value >= SMALLEST_SIZE
    share = isinstance(value, float) and value not in (0.0, 1.0)
    return type(value) if size or share else value


# Of the second of each pair nothing is special but what `together` takes.
PAIRS = {
    "iql": "emc-dec",
    "qmix-tuned": "qplex-emu",
    "qtran": "emc-cen",
    "cw-qmix": "emc-ind",
    "ow-qmix": "qplex-local",
    "maven": "qplex-counts",
    "rode": "qplex-global",
}


def together(one: Method, other: Method) -> Method:
    """A method with the curiosity, the memory and the replay of another: parts know nothing of one another, so one program shows both."""
    return dataclasses.replace(one, curiosity=other.curiosity, memory=other.memory, replay=other.replay)


def paired(methods: Mapping[str, Method]) -> dict[str, Method]:
    """The pairs of these methods, each under both names."""
    return {f"{one} with {other}": together(methods[one], methods[other]) for one, other in PAIRS.items()}


def covering(methods: Mapping[str, Method], first: Collection[str], known: Iterable[Method] = ()) -> dict[str, Method]:
    """The methods named first, then whichever has most parts that were in none before, nor in those that are known already.

    Parts know nothing of one another, so a method whose parts are all in others compiles the same code once more.
    """
    chosen = [name for name in methods if name in first]
    held = {part for method in known for part in parts(method)}
    while True:
        held |= {part for name in chosen for part in parts(methods[name])}
        best = max(methods, key=lambda name: len(parts(methods[name]) - held))
        if not parts(methods[best]) - held:
            return {name: methods[name] for name in methods if name in chosen}
        chosen.append(best)
