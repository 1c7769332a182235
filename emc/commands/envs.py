"""`emc envs`."""

from __future__ import annotations

from emc.commands.common import Nothing
from emc.envs import TASKS
from emc.flags import parse
from emc.plugins import ENVS, offered

FAMILIES = ("smax/MAP", "jaxmarl/NAME", "pettingzoo/MODULE", "smac/MAP", "smacv2/MAP", "smaclite/MAP", "pymarl/module:callable")


def main(words: list[str]) -> None:
    parse("emc envs", Nothing, words, about="The environments, a line each.\n\nExample:\n  emc envs")
    width = max(map(len, TASKS))
    for name, entry in TASKS.items():
        print(f"{name:<{width}}  {entry.description}")
    for name, source in offered(ENVS).items():
        print(f"{name:<{width}}  {source}, of an installed package")
    print("\nlbf/NAME takes any name of level-based foraging, such as lbf/2s-8x8-2p-2f-coop or lbf/Foraging-2s-8x8-2p-2f-coop-v3.")
    print(f"Of other packages, where installed: {', '.join(FAMILIES)}. Your own: module:Class (emc docs your-environment).")
