"""The C library's allocator: keep what compiled programs give back, instead of returning it to the system after every call.

A training call frees its temporaries when it ends and needs the same again at once. By default glibc maps and unmaps each large block, so
the kernel hands out (and clears) every page of it anew: up to a quarter of the time of an update on a CPU. Two settings end most of it, for
the process that trains and only from its first training on; importing emc changes nothing:

* M_MMAP_MAX = 0: large blocks come from the heap, not from maps of their own,
* M_TRIM_THRESHOLD at its maximum: the heap's freed end is kept.

Threads keep heaps of their own. One heap for all of them (M_ARENA_MAX = 1) would save a few more pages, but compiling leaves it in
many pieces, and every small block that a product asks for then takes long to find: training took a third longer. But a heap of a thread
other than the first has no block above 64 MiB, so the temporaries of large tasks are still mapped anew with every call. In huge pages that
costs a fifth. glibc asks for them only when a variable (`GLIBC_TUNABLES`) says so before the process begins, so the commands that train
begin once more with it, if the system leaves the choice to programs, and so do the processes that they start; a program of yours that
trains can be started with `GLIBC_TUNABLES=glibc.malloc.hugetlb=1`.

The price is memory that stays with the process: what a run has freed is there for the next one. `EMC_KEEP_MEMORY=0` in the environment
leaves the allocator as it is. On other systems, and with other C libraries, nothing is done.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

SWITCH = "EMC_KEEP_MEMORY"
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # glibc's malloc.h
TUNABLES, HUGE_PAGES = "GLIBC_TUNABLES", "glibc.malloc.hugetlb"
BEGUN = "EMC_BEGUN_IN_HUGE_PAGES"  # set where that was tried, whatever came of it
WHO_CHOOSES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def give_back() -> None:
    """Return what is freed to the system now, where that can be asked for: before free memory is counted."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def huge_pages(environment: Mapping[str, str], who_chooses: Path = WHO_CHOOSES) -> dict[str, str]:
    """What a process is to have in its environment to get huge pages; nothing where it has it, would not get them, or is not to."""
    given = environment.get(TUNABLES, "")
    if _is_off(environment) or HUGE_PAGES in given or platform.libc_ver()[0] != "glibc":
        return {}
    try:
        ours_to_choose = "[madvise]" in who_chooses.read_text()
    except OSError:
        return {}
    return {TUNABLES: f"{given}:{HUGE_PAGES}=1".removeprefix(":")} if ours_to_choose else {}


def begin_with_huge_pages() -> None:
    """Begin this very command once more, in the same process, with huge pages; return where there is nothing to gain."""
    was_tried, more = os.environ.pop(BEGUN, ""), huge_pages(os.environ)
    if more and not was_tried and sys.executable:
        with contextlib.suppress(OSError):
            os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **more, BEGUN: "1"})


def _is_off(environment: Mapping[str, str]) -> bool:
    return environment.get(SWITCH, "1").strip().lower() in ("0", "no", "false", "off")


@functools.cache
def keep_freed_memory() -> str:
    """Set it up, once for the process; what was done, in words."""
    if _is_off(os.environ):
        return f"as it is ({SWITCH} is set so)"
    if platform.libc_ver()[0] != "glibc":
        return "as it is (no glibc here)"
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return "as it is (no mallopt here)"
    done = [mallopt(M_MMAP_MAX, 0), mallopt(M_TRIM_THRESHOLD, 2**31 - 1)]
    return f"keeps what is freed ({SWITCH}=0 turns it off)" if all(done) else "as it is (mallopt refused)"
