"""`emc doctor`."""

from __future__ import annotations

from emc.commands.common import Nothing
from emc.doctor import diagnosis
from emc.flags import parse


def main(words: list[str]) -> None:
    parse(
        "emc doctor", Nothing, words, about="What is installed here, and what the real StarCraft II still needs.\n\nExample:\n  emc doctor"
    )
    for line in diagnosis():
        print(line)
