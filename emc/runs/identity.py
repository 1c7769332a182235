"""What ties the files of a run together.

A run has a number of its own that no other has, and its manifest a seal: a digest over that number and all that decides numbers. Every
checkpoint repeats both, and holds a checksum of each file of lines as far as it was written then. So files of two runs do not mix, and a
field that was changed afterwards is noticed. Runs that are older than this have neither, and are taken as they are.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emc import files
from emc.errors import CheckpointError, RunError
from emc.runs.jsonl import Prefix, checksum_of, plain, revived

NUMBER, SEAL = "run", "seal"
SEALED = ("format", "version", NUMBER, "env_name", "method_name", "config")  # the rest describes the machine, or how the run was asked for


def new_number() -> str:
    """One that no other run has."""
    return secrets.token_hex(16)


def seal_of(document: Mapping[str, Any]) -> str:
    """The digest of what a manifest says of a run's numbers, whatever its layout."""
    sealed = {name: document.get(name) for name in SEALED}
    return hashlib.sha256(json.dumps(sealed, sort_keys=True).encode()).hexdigest()


def is_as_sealed(document: Mapping[str, Any]) -> bool:
    """Whether a manifest is as it was written; one that was never sealed is."""
    if NUMBER not in document and SEAL not in document:
        return True
    return isinstance(document.get(NUMBER), str) and document.get(SEAL) == seal_of(document)


def identity_of(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What a checkpoint repeats of its run; nothing where the run is older."""
    return {name: manifest[name] for name in (NUMBER, SEAL) if name in manifest}


def said_at(manifest: Mapping[str, Any], step: int, meta: Mapping[str, Any], prefixes: Mapping[str, Prefix]) -> dict[str, Any]:
    """What a checkpoint says beside its arrays."""
    return {"step": step, **identity_of(manifest), "lines": {name: [*prefix] for name, prefix in prefixes.items()}, "meta": plain(meta)}


def own(folder: Path, manifest: Mapping[str, Any], content: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Prefix]]:
    """The meta of a checkpoint in its folder, and the lines that it saw; one that no run wrote, or another run, is refused."""
    try:
        prefixes = _prefixes(content)
        meta, said = dict[str, Any](content["meta"]), content["step"]
        whole = type(said) is int and said >= 0 and all(type(size) is int and size >= 0 for size, _ in prefixes.values())
    except (KeyError, TypeError, ValueError, AttributeError):
        meta, prefixes, said, whole = {}, {}, 0, False
    if not whole:
        raise CheckpointError(f"{folder}: was not written by a run.")
    if identity_of(content) != identity_of(manifest):
        whose = "this run as another manifest describes it" if content.get(NUMBER) == manifest.get(NUMBER) else "another run"
        raise CheckpointError(f"{folder}: is a checkpoint of {whose}. Put back what belongs here, or remove it.")
    if folder.name != f"{said:012d}":
        raise CheckpointError(f"{folder}: was written at step {said} and renamed. Give it back its name, {said:012d}.")
    return revived(meta), prefixes


def _prefixes(content: Mapping[str, Any]) -> dict[str, Prefix]:
    if "lines" not in content:  # as it was before there were checksums
        return {str(name): Prefix(size) for name, size in content["sizes"].items()}
    return {str(name): Prefix(*known) for name, known in content["lines"].items()}


def must_continue(run: Path, folder: Path, prefixes: Mapping[str, Prefix]) -> None:
    """Refuse lines that do not begin with those that a checkpoint saw: cut, changed, or those of another run."""
    for name, prefix in prefixes.items():
        path = lines_path(run, name)
        try:
            with files.opened(path) as file:
                found = os.fstat(file.fileno()).st_size
                same = prefix.checksum is None or checksum_of(file, prefix.size) == prefix.checksum
        except FileNotFoundError:
            found, same = 0, True
        except OSError as error:
            raise RunError(f"{path}: cannot be read ({error.strerror}).") from error
        if found < prefix.size:
            advice = "Restore it from a copy, or start a new run"
            raise RunError(f"{path}: has {found} bytes, but had {prefix.size} at checkpoint {folder.name}. {advice}.")
        if not same:
            raise RunError(f"{path}: is not what it was at checkpoint {folder.name}. Restore it from a copy, or start a new run.")


def lines_path(run: Path, name: str) -> Path:
    """Where a file of lines is; checked, since the name may come from a stranger's checkpoint."""
    if not re.fullmatch(r"[A-Za-z0-9_-]+\.jsonl", name):
        raise RunError(f"{name!a:.80} is not a name for a metrics file. Use letters, digits, - and _, ending in .jsonl.")
    return run / name
