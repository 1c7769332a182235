"""What training does to the C library's allocator, and that it can be left alone."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from emc import __main__ as command
from emc.allocator import huge_pages

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


@pytest.mark.parametrize(
    ("environment", "system", "added"),
    [
        ({}, "always [madvise] never", "glibc.malloc.hugetlb=1"),
        ({"GLIBC_TUNABLES": "glibc.malloc.check=1"}, "always [madvise] never", "glibc.malloc.check=1:glibc.malloc.hugetlb=1"),
        ({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}, "always [madvise] never", None),
        ({"EMC_KEEP_MEMORY": "0"}, "always [madvise] never", None),
        ({}, "[always] madvise never", None),
        ({}, "always madvise [never]", None),
        ({}, None, None),
    ],
)
def test_huge_pages_are_asked_for_where_that_helps(
    environment: dict[str, str], system: str | None, added: str | None, tmp_path: Path
) -> None:
    if system is not None:
        (tmp_path / "enabled").write_text(system)
    assert huge_pages(environment, tmp_path / "enabled") == ({} if added is None else {"GLIBC_TUNABLES": added})


AGAIN = """
import os, sys
import emc.allocator
emc.allocator.huge_pages = lambda environment: {} if "BEGUN" in environment else {"BEGUN": "again"}
print(os.getpid(), os.environ.get("BEGUN"), *sys.argv[1:], flush=True)
emc.allocator.begin_with_huge_pages()
print("goes on")
"""


def test_a_command_begins_once_more_as_it_was_and_in_the_same_process() -> None:
    child = subprocess.Popen([sys.executable, "-c", AGAIN, "train", "a b", "--x"], stdout=subprocess.PIPE, text=True)
    assert child.communicate()[0].splitlines() == [f"{child.pid} None train a b --x", f"{child.pid} again train a b --x", "goes on"]


def test_where_the_environment_does_not_last_a_command_goes_on_as_it_is(tmp_path: Path) -> None:
    forgetful = tmp_path / "python"
    forgetful.write_text(f'#!/bin/sh\nunset GLIBC_TUNABLES\nexec {sys.executable} "$@"\n')
    forgetful.chmod(0o755)
    program = "import sys, emc.allocator as a; sys.executable = sys.argv[1]; a.begin_with_huge_pages(); print('goes on')"
    child = subprocess.run([sys.executable, "-c", program, str(forgetful)], capture_output=True, text=True, timeout=600, check=True)
    assert child.stdout.splitlines() == ["goes on"]


def test_training_is_begun_in_huge_pages_and_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []
    monkeypatch.setattr(command, "begin_with_huge_pages", lambda: begun.append(sys.argv[1]))
    monkeypatch.setattr(command, "main", lambda: None)
    for words in (["train", "vdn", "gridworld"], ["resume", "RUN"], ["demo"], ["sweep", "FILE"], ["methods"], []):
        monkeypatch.setattr(sys, "argv", ["emc", *words])
        command.command()
    assert begun == ["train", "resume", "demo"]
