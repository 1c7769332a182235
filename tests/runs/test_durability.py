"""What was done is on the disk, in this order; and what others left behind does not stand in the way."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from emc.errors import FileError
from emc.files import written_whole
from emc.report.records import RUNNING, UNFINISHED, state_of
from emc.runs import RunDirectory
from tests.report.fabricate import new_run, win_rates

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs links, and folders that can be synced")


class Synced:
    """What has reached the disk, with the size that it had then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.known: list[tuple[int, int]] = []
        sync = os.fsync
        monkeypatch.setattr(os, "fsync", lambda descriptor: (self._note(os.fstat(descriptor)), sync(descriptor))[1])

    def _note(self, found: os.stat_result) -> None:
        self.known.append((found.st_ino, found.st_size))

    def __contains__(self, path: Path) -> bool:
        return path.stat().st_ino in [number for number, _ in self.known]

    def has(self, path: Path, size: int) -> bool:
        return (path.stat().st_ino, size) in self.known


def test_a_new_run_is_on_the_disk_with_every_folder_above_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = Synced(monkeypatch)
    run = RunDirectory.create(tmp_path / "a" / "b", "gridworld", "vdn", {})
    for path in (run.path / "manifest.json", run.path, *(parent for parent in run.path.parents if parent.is_relative_to(tmp_path))):
        assert path in synced, path


def test_cutting_lines_back_reaches_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunDirectory.create(tmp_path, "gridworld", "vdn", {})
    with run:
        run.append([{"steps": 1}, {"steps": 2}])
        run.append([{"steps": 2}], "lost.jsonl")
    with RunDirectory.open(run.path) as again:
        synced = Synced(monkeypatch)
        again.truncate({"metrics.jsonl": 13})
        assert synced.has(run.path / "metrics.jsonl", 13)
        assert run.path in synced  # since a file was removed from it


def test_a_first_checkpoint_is_on_the_disk_with_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunDirectory.create(tmp_path, "gridworld", "vdn", {}) as run:
        synced = Synced(monkeypatch)
        run.save_checkpoint(3, {"x": np.zeros(3)}, {})
        folder = run.path / "checkpoints" / f"{3:012d}"
        for path in (*folder.iterdir(), folder, folder.parent, run.path):
            assert path in synced, path


def test_a_note_that_there_is_no_checkpoint_is_on_the_disk_before_any_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunDirectory.create(tmp_path, "gridworld", "vdn", {}) as run:
        synced = Synced(monkeypatch)
        run.begin()
        for path in (run.path / "checkpoints" / "none-yet.json", run.path / "checkpoints", run.path):
            assert path in synced, path


def test_a_page_is_on_the_disk_before_it_has_its_name_and_its_folders_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = Synced(monkeypatch)
    named = Path.replace

    def replace(beside: Path, path: Path) -> Path:
        assert synced.has(beside, 4)
        assert path.parent not in synced
        return named(beside, path)

    monkeypatch.setattr(Path, "replace", replace)
    with written_whole(tmp_path / "a" / "b" / "page.html") as beside:
        beside.write_text("page")
    for path in (tmp_path / "a" / "b", tmp_path / "a", tmp_path):
        assert path in synced, path


def test_what_is_rescued_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunDirectory.create(tmp_path, "gridworld", "vdn", {}) as run:
        run.append([{"steps": 1}])
        synced = Synced(monkeypatch)
        rescued = run.rescue(3, {"x": np.zeros(3)}, {}, run.written())
    folder = rescued / "checkpoints" / f"{3:012d}"
    for path in (rescued / "manifest.json", rescued / "metrics.jsonl", *folder.iterdir(), folder, folder.parent, rescued, rescued.parent):
        assert path in synced, path


def test_a_page_that_cannot_be_written_leaves_no_folder_behind(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="too long"), written_whole(tmp_path / "a" / "b" / ("x" * 300)) as beside:
        beside.write_text("page")
    assert [*tmp_path.iterdir()] == []


def test_a_time_that_is_still_to_come_keeps_no_run_running(tmp_path: Path) -> None:
    run = new_run(tmp_path, win_rates(0, {30: 0.5}))
    assert state_of(run) == RUNNING
    for moment in (time.time() + 10**9, time.time() - 10**6):
        for path in run.path.iterdir():
            os.utime(path, (moment, moment))
        assert state_of(run) == UNFINISHED


def test_leftovers_of_any_kind_do_not_block_a_run(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine.txt").write_text("mine")
    with RunDirectory.create(tmp_path, "gridworld", "vdn", {}) as run:
        run.save_checkpoint(10, {"x": np.zeros(3)}, {})
    folder = run.path / "checkpoints"
    (folder / f"{20:012d}.tmp-5").write_text("half")
    (folder / f"{30:012d}.tmp-5").symlink_to(outside)
    (folder / f"{30:012d}.tmp-old").symlink_to(outside)
    (folder / f"{40:012d}.tmp-old").write_text("half")
    (folder / f"{50:012d}.tmp-old").symlink_to(tmp_path / "nowhere")
    (folder / f"{60:012d}.tmp-7").mkdir()
    with RunDirectory.open(run.path) as again:
        again.save_checkpoint(20, {"x": np.zeros(3)}, {})
        assert again.steps() == [10, 20]
    assert sorted(path.name for path in folder.iterdir()) == [f"{10:012d}", f"{20:012d}"]
    assert [path.name for path in outside.iterdir()] == ["mine.txt"]


def test_a_page_is_not_written_through_a_link_of_its_temporary_name(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / f".page.html.tmp-{os.getpid()}").symlink_to(tmp_path / "victim")
    with written_whole(tmp_path / "page.html") as beside:
        beside.write_text("page")
    assert (tmp_path / "victim").read_text() == "mine"
    assert (tmp_path / "page.html").read_text() == "page"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "victim"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs pipes with names")
@pytest.mark.parametrize(
    "make",
    [os.mkfifo, Path.mkdir, lambda path: path.symlink_to(path.with_name("victim")), lambda path: path.symlink_to("/dev/null")],
    ids=["a pipe", "a folder", "a link to a file", "a link to a device"],
)
def test_a_page_takes_the_place_of_nothing_but_a_file(make: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    page = tmp_path / "page.html"
    make(page)
    before = os.lstat(page)
    with pytest.raises(FileError, match="is there and is not a file"), written_whole(page) as beside:
        beside.write_text("page")
    assert os.lstat(page)[:4] == before[:4]  # what it is, and which one
    assert (tmp_path / "victim").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "victim"]
