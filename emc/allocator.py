"""The C library's allocator: keep what compiled programs give back, instead of returning it to the system after every call.

A training call frees its temporaries when it ends and needs the same again at once. By default glibc maps and unmaps each large block, so
the kernel hands out (and clears) every page of it anew: up to a quarter of the time of an update on a CPU. Two settings end most of it, for
the process that trains and only from its first training on; importing emc changes nothing:

* M_MMAP_MAX = 0: large blocks come from the heap, not from maps of their own,
* M_TRIM_THRESHOLD at its maximum: the heap's freed end is kept.

Threads keep heaps of their own. One heap for all of them (M_ARENA_MAX = 1) would save a few more pages, but compiling leaves it in
many pieces, and every small block that a product asks for then takes long to find: training took a third longer.

The price is memory that stays with the process: what a run has freed is there for the next one. `EMC_KEEP_MEMORY=0` in the environment
leaves the allocator as it is. On other systems, and with other C libraries, nothing is done.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform

SWITCH = "EMC_KEEP_MEMORY"
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # glibc's malloc.h


def give_back() -> None:
    """Return what is freed to the system now, where that can be asked for: before free memory is counted."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


@functools.cache
def keep_freed_memory() -> str:
    """Set it up, once for the process; what was done, in words."""
    if os.environ.get(SWITCH, "1").strip().lower() in ("0", "no", "false", "off"):
        return f"as it is ({SWITCH} is set so)"
    if platform.libc_ver()[0] != "glibc":
        return "as it is (no glibc here)"
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return "as it is (no mallopt here)"
    done = [mallopt(M_MMAP_MAX, 0), mallopt(M_TRIM_THRESHOLD, 2**31 - 1)]
    return f"keeps what is freed ({SWITCH}=0 turns it off)" if all(done) else "as it is (mallopt refused)"
