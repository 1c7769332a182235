"""How tests are compiled: quickly, where only results count, and as users have it where speed does.

`make unit` runs the two kinds one after the other, each with its own flags for XLA; without `--compiled` all tests run with whatever flags
there are.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

# Before anything of emc: what its modules import first, jaxtyping, which checks types in tests, compiles anew, in each process.
import beartype  # noqa: F401
import equinox  # noqa: F401
import jax
import optax  # noqa: F401
import pytest

ROOT = Path(__file__).parents[1]
AS_USERS_HAVE_IT = {  # files whose tests search many states or play many episodes
    "tests/suite/test_odds.py",
    "tests/suite/test_optimum.py",
}


MOST_MAPS = 40_000  # a process may have 65,530 on Linux; compiled programs take some dozens each, and JAX dies when there are no more


@pytest.fixture(autouse=True, scope="module")
def few_compiled_programs() -> Iterator[None]:
    """Let go of compiled programs before there are more than a process can hold."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and len(maps.read_bytes().splitlines()) > MOST_MAPS:
        jax.clear_caches()
        gc.collect()


def pytest_collection_finish() -> None:
    """All that is imported by now stays: nobody need look for garbage in it, nor so often while programs are traced."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--compiled", choices=["quickly", "as-users-have-it"], help="only the tests that are to be compiled like this")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files of the other kind are not even imported, unless they are named."""
    how = config.getoption("--compiled")
    named = {Path(word.partition("::")[0]).resolve() for word in config.args}
    if how is None or not collection_path.name.startswith("test_") or collection_path in named:
        return None
    return _is_whole(collection_path) != (how == "as-users-have-it") or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    how = config.getoption("--compiled")
    if how is None:
        return
    chosen, others = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        (chosen if _is_whole(item.path) == (how == "as-users-have-it") else others).append(item)
    config.hook.pytest_deselected(items=others)
    items[:] = chosen


def _is_whole(path: Path) -> bool:
    return path.relative_to(ROOT).as_posix() in AS_USERS_HAVE_IT
