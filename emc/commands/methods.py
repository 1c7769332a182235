"""`emc methods`."""

from __future__ import annotations

import dataclasses
from typing import Any

from emc.commands.common import Nothing
from emc.curiosity import NoCuriosity
from emc.flags import parse
from emc.memory import NoMemory
from emc.methods import METHODS, Method

NUMBERS = ("gamma", "epsilon", "optimiser", "learning_rate", "gradient_clip", "batch_episodes", "episodes_per_update", "target_interval")


def main(words: list[str]) -> None:
    parse("emc methods", Nothing, words, about="The methods, a line each: what they are made of.\n\nExample:\n  emc methods")
    usual = Method()
    for name, entry in METHODS.items():
        method = entry.method
        parts = (method.policy, method.mixer, method.loss, method.curiosity, method.memory, method.replay)
        composed = " + ".join(_in_short(part) for part in parts if part not in (NoCuriosity(), NoMemory()))
        changed = [field for field in NUMBERS if vars(method)[field] != vars(usual)[field]]
        own = "".join(f", {field}={_in_short(vars(method)[field])}" for field in changed)
        print(f"{name:<12}  {entry.about} ({entry.paper}): {composed}{own}")


def _in_short(part: Any) -> str:
    """A part's name and what of it is not as usual; anything else as it is."""
    if not dataclasses.is_dataclass(part):
        return str(part)
    usual = type(part)()
    changed = [
        f"{field.name}={_in_short(value)}"
        for field in dataclasses.fields(part)
        if (value := getattr(part, field.name)) != getattr(usual, field.name)
    ]
    return type(part).__name__ + (f"({', '.join(changed)})" if changed else "")
