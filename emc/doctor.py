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
    "ray": ("sweeps on a cluster", "pip install 'emc-marl[ray]'"),
}
LOGGERS = {  # what `--log` and the Python interface import
    "tensorboardX": ("--log tensorboard", "pip install 'emc-marl[tensorboard]'"),
    "wandb": ("--log wandb", "pip install 'emc-marl[wandb]'"),
    "mlflow": ("--log mlflow", "pip install 'emc-marl[mlflow]'"),
    "pandas": ("run.frame()", "pip install pandas"),
    "optuna": ("emc docs tuning", "pip install optuna"),
}


def diagnosis() -> Iterator[str]:
    """The lines of the screen."""
    import jax

    from emc import __version__
    from emc.allocator import huge_pages, keep_freed_memory

    devices = ", ".join(str(device) for device in jax.devices())
    yield f"emc {__version__}, Python {platform.python_version()}, jax {jax.__version__} on {devices}"
    pages = " and is asked for huge pages" if huge_pages(os.environ) else ""
    yield f"while training the C library's allocator {keep_freed_memory()}{pages}"
    yield ""
    yield "Playable here with nothing else: everything that `emc envs` lists."
    yield ""
    yield "For other environments, and many machines:"
    for name, (purpose, remedy) in PACKAGES.items():
        yield _package(name, purpose, remedy)
    yield ""
    yield "For numbers in other places:"
    for name, (purpose, remedy) in LOGGERS.items():
        yield _package(name, purpose, remedy)
    yield ""
    yield "For the real StarCraft II (smac/3m and the like):"
    yield from _game(Path(os.environ.get("SC2PATH", GAME)))


def _package(name: str, purpose: str, remedy: str) -> str:
    """Whether a package is there. Looking for a part of `smac`, to tell it from its namesake, imports it, and that may fail in any way."""
    try:
        found = all(importlib.util.find_spec(part) is not None for part in (["smac", "smac.env"] if name == "smac" else [name]))
    except Exception as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return _line("broken ", name, purpose, f"importing it raised {reason}; pysc2 needs protobuf older than 3.21")
    return _line("found  ", name, purpose) if found else _line("missing", name, purpose, remedy)


def _game(root: Path) -> Iterator[str]:
    where = f"{root} ({'from SC2PATH' if 'SC2PATH' in os.environ else 'the usual place; SC2PATH says otherwise'})"
    versions = sorted(path.name for path in root.glob("Versions/Base*"))
    remedy = (
        "get Blizzard's Linux package, version 4.6.2 (Base69232) or 4.10 (Base75689) as in the SMAC documentation, and set SC2PATH to it"
    )
    if versions:
        yield _line("found  ", "the game", f"{', '.join(versions)} in {where}")
    else:
        yield _line("missing", "the game", f"in {where}", remedy)
    maps = len(list(root.glob("Maps/SMAC_Maps/*.SC2Map")))
    remedy = "" if maps else "copy the directory SMAC_Maps of the smac repository there"
    yield _line("found  " if maps else "missing", "SMAC's maps", f"{maps} in {root / 'Maps' / 'SMAC_Maps'}", remedy)


def _line(verdict: str, name: str, purpose: str, remedy: str = "") -> str:
    return f"  {verdict}  {name:<12} {purpose}" + (f"\n           {'':<12} -> {remedy}" if remedy else "")
