"""Claims by name: the files of `experiments/`, which a wheel installs beside the package as `emc_experiments`."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
from pathlib import Path

from emc.claims.claim import Claim
from emc.errors import UserError
from emc.user_input import lookup

PLACES = ("emc_experiments", "experiments")


def claims() -> dict[str, Claim]:
    """Every claim there is, in the order of the paper."""
    return {one.name: one for one in sorted(map(_load, _files()), key=lambda one: (one.section, one.name))}


def claim(name: str) -> Claim:
    """The claim called `name`."""
    files = {path.stem.replace("_", "-"): path for path in _files()}
    if not files:
        raise UserError("the files of the claims are not installed here: install emc from a wheel, or use its source tree")
    return _load(lookup("claim", name, files))


def _files() -> list[Path]:
    beside = Path(__file__).parents[2]
    folder = next((beside / place for place in PLACES if (beside / place / "gridworld_penalty.py").exists()), None)
    if folder is None:
        return []
    return [path for path in folder.glob("*.py") if "\nCLAIM = " in path.read_text(encoding="utf-8")]


def _load(path: Path) -> Claim:
    spec = importlib.util.spec_from_file_location(f"emc_experiments.{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} cannot be read as a claim")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dataclasses.replace(module.CLAIM, name=path.stem.replace("_", "-"), about=inspect.cleandoc(module.__doc__ or ""))
