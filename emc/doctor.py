"""What this machine has, and what it lacks for the real StarCraft II: one screen."""

from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Iterator
from pathlib import Path

GAME = Path.home() / "StarCraftII"  # where the game looks for itself when SC2PATH is not set
PACKAGES = {
    "smac": ("the real maps", "pip install git+https from the repository oxwhirl/smac; the package `smac` on the index is another one"),
    "smacv2": ("maps with random teams", "pip install git+https from the repository oxwhirl/smacv2"),
    "pysc2": ("needed by both", "comes with them; with protobuf older than 3.21"),
    "smaclite": ("a light copy of SMAC", "pip install git+https from the repository uoe-agents/smaclite"),
    "pettingzoo": ("PettingZoo's environments", "pip install pettingzoo, or the package of one environment, such as mpe2"),
    "jaxmarl": ("SMAX and JaxMARL's others", "pip install 'emc-marl[smax]'"),
    "tensorboard": ("curves in TensorBoard", "pip install tensorboard"),
}


def diagnosis() -> Iterator[str]:
    """The lines of the screen."""
    import jax

    from emc import __version__

    devices = ", ".join(str(device) for device in jax.devices())
    yield f"emc {__version__}, Python {platform.python_version()}, jax {jax.__version__} on {devices}"
    yield ""
    yield "Playable here with nothing else: everything that `emc envs` lists."
    yield ""
    yield "For other environments:"
    for name, (purpose, remedy) in PACKAGES.items():
        yield _line(_installed(name), name, purpose, remedy)
    yield ""
    yield "For the real StarCraft II (smac/3m and the like):"
    yield from _game(Path(os.environ.get("SC2PATH", GAME)))


def _installed(name: str) -> bool:
    if name != "smac":
        return importlib.util.find_spec(name) is not None
    return importlib.util.find_spec("smac") is not None and importlib.util.find_spec("smac.env") is not None


def _game(root: Path) -> Iterator[str]:
    where = f"{root} ({'from SC2PATH' if 'SC2PATH' in os.environ else 'the usual place; SC2PATH says otherwise'})"
    versions = sorted(path.name for path in root.glob("Versions/Base*"))
    remedy = "get Blizzard's Linux package, version 4.6.2 or 4.10 as in the SMAC documentation, and set SC2PATH to it"
    yield _line(bool(versions), "the game", f"in {where}", remedy)
    maps = len(list(root.glob("Maps/SMAC_Maps/*.SC2Map")))
    yield _line(
        maps > 0, "SMAC's maps", f"{maps} in {root / 'Maps' / 'SMAC_Maps'}", "copy the directory SMAC_Maps of the smac repository there"
    )


def _line(fine: bool, name: str, purpose: str, remedy: str) -> str:
    return f"  {'found  ' if fine else 'missing'}  {name:<12} {purpose}" + ("" if fine else f"\n           {'':<12} -> {remedy}")
