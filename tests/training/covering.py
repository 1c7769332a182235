"""Few methods that hold between them every part that any method has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from emc.methods import Method

KINDS = ("policy", "mixer", "loss", "curiosity", "memory", "optimiser")


def parts(method: Method) -> set[tuple[str, object]]:
    return {(kind, getattr(method, kind)) for kind in KINDS}


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
