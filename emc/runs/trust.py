"""Which code outside the package a manifest may name: reading one runs no other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from emc.envs.hosted import foreign
from emc.errors import RunError
from emc.plugins import ENVS, PARTS, imported, offered


class Trust:
    """Code that a caller vouches for: by its name, `module:Class`, or as a class that the caller holds."""

    def __init__(self, trusted: str | type | Iterable[str | type] = ()) -> None:
        listed = [trusted] if isinstance(trusted, str | type) else [*trusted]
        self._held = {source_of(one): one for one in listed if isinstance(one, type)}
        self.names = {*self._held, *(one for one in listed if isinstance(one, str))}

    @classmethod
    def of(cls, trusted: Trusted) -> Trust:
        """What a caller says to trust."""
        return trusted if isinstance(trusted, Trust) else cls(trusted)

    def check(self, source: str) -> None:
        """Refuse code that neither the caller nor an installed package vouches for."""
        if foreign(source) and source not in self.names and source not in {*offered(PARTS).values(), *offered(ENVS).values()}:
            raise RunError(f"this run is made of code outside emc, {source}: if you trust it, add --trust {source}")

    def kind(self, source: str) -> Callable[..., Any]:
        """The class that a manifest names as `module:Class`."""
        self.check(source)
        return self._held.get(source) or imported(source)


Trusted = Trust | str | type | Iterable[str | type]  # as a caller may say it


def source_of(kind: type) -> str:
    """A class as `module:Class`."""
    return f"{kind.__module__}:{kind.__qualname__}"
