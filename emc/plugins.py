"""Classes outside the package: those named as `module:Class`, and those that installed packages offer as entry points."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.metadata
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from emc.errors import UserError, in_short
from emc.user_input import lookup

PARTS, ENVS = "emc.parts", "emc.envs"  # groups of entry points
IMPORT_SECONDS = 120.0  # for a module of one's own: a game may take long to load, but not for ever
MOST_RINGS = 5  # interruptions, a second apart, that such a module may swallow


@functools.cache
def offered(group: str) -> Mapping[str, str]:
    """What installed packages offer: `module:Class` by the name that it is offered under."""
    return {point.name: point.value for point in importlib.metadata.entry_points(group=group)}


def imported(source: str) -> Callable[..., Any]:
    """The class, or the function that makes one, that `module:name` names; modules in the current directory count."""
    module, colon, name = source.partition(":")
    if not (colon and module and name):
        raise UserError(f"{source!r} is not module:Class: name a class like my_module:MyClass")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        with _within(IMPORT_SECONDS, f"{source}: importing {module}"):
            found = importlib.import_module(module)
    except _TooLong as error:
        raise UserError(str(error)) from error
    except ModuleNotFoundError as error:
        raise UserError(f"{source}: there is no module {error.name!r} here or among the installed ones") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the user's module does wrong while it is imported
        raise UserError(f"{source}: importing {module} raised {in_short(error)}") from error
    table = {key: value for key, value in vars(found).items() if callable(value) and not key.startswith("_")}
    return lookup(f"class in {module}", name, table)


class _TooLong(BaseException):
    """Not an `Exception`, which a module may catch and go on."""


@contextlib.contextmanager
def _within(seconds: float, what: str) -> Generator[None]:
    """Interrupt what takes longer, where the system can: in the main thread, and not on Windows.

    What swallows every interruption, Ctrl-C among them, ends the process: nothing else could.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    said = f"{what} takes longer than {seconds:g} seconds: does it wait for something?"
    rings = itertools.count(1)

    def ring(number: int, frame: FrameType | None) -> None:
        if next(rings) > MOST_RINGS:
            os.write(2, f"emc: {said}\n".encode())
            os._exit(2)
        raise _TooLong(said)

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
