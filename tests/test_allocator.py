"""What training does to the C library's allocator, and that it can be left alone."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

FAULTS = """
import ctypes, resource
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.memset.argtypes, libc.free.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t], [ctypes.c_void_p]
{first}
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = libc.malloc(64_000_000)
    libc.memset(block, 1, 64_000_000)
    libc.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults(), faults()
print(faults())
"""
KEEP = "from emc.allocator import keep_freed_memory; keep_freed_memory()"
pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is told anything")


def faults_after(first: str, **environment: str) -> int:
    """Pages that the system hands out for a large block, the third time."""
    program = [sys.executable, "-c", FAULTS.format(first=first)]
    return int(subprocess.run(program, env=os.environ | environment, capture_output=True, text=True, check=True).stdout)


def test_what_is_freed_is_used_again() -> None:
    assert faults_after("") > 10_000
    assert faults_after(KEEP) < 1_000


def test_the_environment_can_say_no_and_importing_changes_nothing() -> None:
    assert faults_after(KEEP, EMC_KEEP_MEMORY="0") > 10_000
    assert faults_after("import emc; emc.make_method('vdn')") > 10_000
