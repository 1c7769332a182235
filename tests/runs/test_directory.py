"""A run directory survives kills, full disks, damage and rivals, and says in one line what is wrong."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import jax.numpy as jnp
import numpy as np
import pytest

from emc import files
from emc.errors import RunError, UserError
from emc.files import written_whole
from emc.runs import RunDirectory, describe_machine, read_metrics
from emc.training import checkpoint

STATE = {"x": np.arange(5), "flags": np.array([True, False])}


def new_run(root: Path, **manifest: Any) -> RunDirectory:
    return RunDirectory.create(root, "gridworld", "EMC-VDN", {"method": {"gamma": 0.99}, **manifest})


def state(step: int) -> dict[str, np.ndarray]:
    return {"x": np.full(5, step), "flags": np.array([step % 2 == 0, True])}


def spoil(path: Path) -> None:
    """Flip one bit in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def assert_one_line(error: BaseException) -> None:
    assert isinstance(error, UserError)
    assert "\n" not in str(error)


# Making and opening.


def test_a_new_run_lies_under_its_environment_and_method_with_a_manifest(tmp_path: Path) -> None:
    run = new_run(tmp_path / "runs", bound=math.inf)
    assert re.fullmatch(r"gridworld/EMC-VDN/\d{8}-\d{6}-[0-9a-f]{6}", run.path.relative_to(tmp_path / "runs").as_posix())
    assert [path.name for path in run.path.iterdir()] == ["manifest.json"]
    opened = RunDirectory.open(str(run.path))
    assert opened.manifest == run.manifest
    assert opened.manifest["method"] == {"gamma": 0.99}
    assert opened.manifest["bound"] == math.inf
    assert opened.manifest["id"] == run.path.name


def test_runs_made_in_the_same_second_do_not_collide(tmp_path: Path) -> None:
    assert len({new_run(tmp_path).path for _ in range(20)}) == 20


def test_names_of_environments_and_methods_become_single_folders(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "../battle/3m: hard", "EMC (Dec)", {})
    assert run.path.relative_to(tmp_path).parts[:2] == ("battle-3m-hard", "EMC-Dec")
    assert run.manifest["env_name"] == "../battle/3m: hard"
    with pytest.raises(RunError) as caught:
        RunDirectory.create(tmp_path, "..", "EMC", {})
    assert_one_line(caught.value)


def test_a_manifest_cannot_overwrite_what_the_run_records_itself(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="version"):
        new_run(tmp_path, version=3)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "no manifest.json"),
        ("", "damaged or not ours"),
        ("[1, 2]", "damaged or not ours"),
        ("[" * 100_000, "damaged or not ours"),
        ('{"format": "other", "version": 1}', "not of the format"),
        ('{"format": "emc-run", "version": 99}', "version 99, this emc reads 1"),
        ('{"format": "emc-run", "version": "\\n\\u001b[31m"}', "this emc reads 1"),
    ],
)
def test_what_is_not_a_run_directory_of_this_version_is_refused(tmp_path: Path, content: str | None, expected: str) -> None:
    if content is not None:
        (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(RunError, match=expected) as caught:
        RunDirectory.open(tmp_path)
    assert_one_line(caught.value)


def test_a_directory_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such directory"):
        RunDirectory.open(tmp_path / "absent")


# Metrics.

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5).filter(lambda text: text != "NaN")  # the one word that is taken
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


def same(left: Any, right: Any) -> bool:
    """Equal to the last bit, apart from the payload of NaN."""
    if isinstance(left, float) and isinstance(right, float):
        return struct.pack("d", left) == struct.pack("d", right) or (math.isnan(left) and math.isnan(right))
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(lines=st.lists(st.dictionaries(texts, json_values, max_size=4), max_size=4))
def test_metrics_come_back_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, lines: list[dict[str, Any]]) -> None:
    with new_run(tmp_path_factory.mktemp("runs")) as run:
        run.append(lines)
        assert same(read_metrics(run.path / "metrics.jsonl"), lines)


def test_arrays_in_metrics_become_numbers_and_lists(tmp_path: Path) -> None:
    with new_run(tmp_path) as run:
        run.append([{"a": jnp.float32(0.1), "b": np.float64("nan"), "c": jnp.arange(3)}])
        run.append([{"d": np.bool_(True), "e": jnp.bfloat16(1.5), "f": (1, 2)}])
        first, second = read_metrics(run.path / "metrics.jsonl")
    assert first["a"] == float(np.float32(0.1))
    assert math.isnan(first["b"])
    assert first["c"] == [0, 1, 2]
    assert second == {"d": True, "e": 1.5, "f": [1, 2]}
    for text in (run.path / "metrics.jsonl").read_text().splitlines():
        json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


def test_a_torn_last_line_is_passed_over_and_does_not_swallow_the_next(tmp_path: Path) -> None:
    with new_run(tmp_path) as run:
        run.append([{"step": 1}, {"step": 2}])
    path = run.path / "metrics.jsonl"
    with path.open("ab") as file:
        file.write(b'{"step": 3, "long": "' + b"x" * 200_000)
    assert read_metrics(path) == [{"step": 1}, {"step": 2}]
    with RunDirectory.open(run.path) as again:
        again.append([{"step": 4}])
    assert read_metrics(path) == [{"step": 1}, {"step": 2}, {"step": 4}]


@pytest.mark.parametrize("content", [b"", b"{", b'{"step": 1', b"\x00\x00\x00"])
def test_a_file_with_nothing_but_a_torn_line_is_empty(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(content)
    assert read_metrics(tmp_path / "metrics.jsonl") == []


def test_damage_inside_a_metrics_file_is_reported_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b'{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(RunError, match="line 2") as caught:
        read_metrics(tmp_path / "metrics.jsonl")
    assert_one_line(caught.value)
    with pytest.raises(RunError, match="No such file"):
        read_metrics(tmp_path / "absent.jsonl")


def test_a_resumed_run_leaves_the_same_files_as_an_uninterrupted_one(tmp_path: Path) -> None:
    def work(run: RunDirectory, start: int, end: int) -> None:
        for step in range(start, end):
            run.append([{"step": step, "loss": 1 / (step + 1)}])
            if step >= 4:
                run.append([{"step": step}], file="lost.jsonl")
            if step % 3 == 0:
                run.save_checkpoint(step, state(step), {})

    with new_run(tmp_path) as straight:
        work(straight, 0, 10)
    with new_run(tmp_path) as broken:
        work(broken, 0, 6)
    with (broken.path / "lost.jsonl").open("ab") as file:
        file.write(b'{"torn')
    with RunDirectory.open(broken.path) as again:
        restored = again.latest_checkpoint(STATE)
        again.truncate(restored.sizes)
        assert not (again.path / "lost.jsonl").exists()
        work(again, restored.step + 1, 10)
    for name in ("metrics.jsonl", "lost.jsonl"):
        assert (broken.path / name).read_bytes() == (straight.path / name).read_bytes()


def test_cutting_back_to_more_than_there_is_or_to_foreign_names_is_refused(tmp_path: Path) -> None:
    with new_run(tmp_path) as run:
        run.append([{"step": 1}])
        before = run.sizes()
        for sizes in ({"metrics.jsonl": 10**6}, {"metrics.jsonl": -1}, {"../manifest.jsonl": 0}, {"manifest.json": 0}, {"gone.jsonl": 3}):
            with pytest.raises(RunError) as caught:
                run.truncate(sizes)
            assert_one_line(caught.value)
        assert run.sizes() == before
        run.truncate({})
        assert run.sizes() == {}


def test_writing_without_the_lock_is_a_mistake_of_the_program(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    for write in (lambda: run.append([]), lambda: run.truncate({}), lambda: run.save_checkpoint(0, STATE, {})):
        with pytest.raises(RuntimeError, match="with run"):
            write()


# Checkpoints.


def test_the_last_checkpoints_are_kept(tmp_path: Path) -> None:
    with new_run(tmp_path) as run:
        for step in (0, 10, 20, 30):
            run.save_checkpoint(step, state(step), {"best": math.inf})
        assert run.steps() == [20, 30]
        restored = run.latest_checkpoint(STATE)
        assert (restored.step, restored.meta, restored.warnings) == (30, {"best": math.inf}, [])
        assert np.array_equal(restored.tree["x"], state(30)["x"])
        run.save_checkpoint(40, state(40), {}, keep=3)
        assert run.steps() == [20, 30, 40]


@pytest.mark.parametrize("name", [checkpoint.ARRAYS, checkpoint.DESCRIPTION])
def test_a_bad_checkpoint_is_reported_and_the_previous_good_one_used(tmp_path: Path, name: str) -> None:
    with new_run(tmp_path) as run:
        for step in (10, 20):
            run.save_checkpoint(step, state(step), {})
        spoil(run.path / "checkpoints" / f"{20:012d}" / name)
        restored = run.latest_checkpoint(STATE)
        assert restored.step == 10
        assert np.array_equal(restored.tree["x"], state(10)["x"])
        [warning] = restored.warnings
        assert "\n" not in warning
        assert "000000000020" in warning
        run.save_checkpoint(15, state(15), {})  # the run goes on from the good one; the bad future must not outlive it
        assert run.steps() == [10, 15]


def test_no_usable_checkpoint_is_one_line(tmp_path: Path) -> None:
    with new_run(tmp_path) as run:
        with pytest.raises(RunError, match="no checkpoint yet"):
            run.latest_checkpoint(STATE)
        run.save_checkpoint(10, state(10), {})
        spoil(run.path / "checkpoints" / f"{10:012d}" / checkpoint.ARRAYS)
        with pytest.raises(RunError, match="no checkpoint can be used") as caught:
            run.latest_checkpoint(STATE)
        assert_one_line(caught.value)


def test_a_checkpoint_that_no_run_wrote_is_refused(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    for step, meta in enumerate(({}, {"meta": 3, "sizes": {}}, {"meta": {}, "sizes": []}, {"meta": {}, "sizes": {"metrics.jsonl": "x"}})):
        checkpoint.save(run.path / "checkpoints" / f"{step:012d}", STATE, meta)
    with pytest.raises(RunError, match="was not written by a run"):
        run.latest_checkpoint(STATE)


def test_leftovers_of_a_killed_writer_are_removed_by_the_next(tmp_path: Path) -> None:
    with new_run(tmp_path) as run:
        run.save_checkpoint(10, state(10), {})
    (run.path / "checkpoints" / f"{20:012d}.tmp-12345").mkdir()
    (run.path / "checkpoints" / f"{10:012d}").rename(run.path / "checkpoints" / f"{10:012d}.tmp-old")
    with RunDirectory.open(run.path) as again:
        assert again.steps() == [10]
        assert [path.name for path in (run.path / "checkpoints").iterdir()] == [f"{10:012d}"]


TRAINER = """
import sys
import threading
import numpy as np
from emc.runs import RunDirectory

with RunDirectory.open(sys.argv[1]) as run:
    start = 0
    if run.steps():
        restored = run.latest_checkpoint({"x": np.zeros(20_000, np.int64)})
        assert not restored.warnings, restored.warnings
        assert (restored.tree["x"] == restored.step).all()
        run.truncate(restored.sizes)
        start = restored.step + 1
    else:
        run.truncate({})
    print("ready", flush=True)
    for step in range(start, 10**6):
        run.append([{"step": step}])
        run.save_checkpoint(step, {"x": np.full(20_000, step)}, {})
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_run_killed_at_any_moment_goes_on_from_a_good_checkpoint(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    rng = np.random.default_rng(1)
    for trial in range(4):
        trainer = subprocess.Popen([sys.executable, "-c", TRAINER, str(run.path)], stdout=subprocess.PIPE)
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == b"ready\n"
        while trial == 0 and not run.steps():  # however long that takes
            time.sleep(0.01)
        time.sleep(rng.uniform(0.05, 0.15))
        trainer.send_signal(signal.SIGKILL)
        trainer.communicate()
    with run:
        restored = run.latest_checkpoint({"x": np.zeros(20_000, np.int64)})
        assert restored.warnings == []
        run.truncate(restored.sizes)
    assert [line["step"] for line in read_metrics(run.path / "metrics.jsonl")] == list(range(restored.step + 1))


# Rivals.

HOLDER = """
import sys, time
from emc.runs import RunDirectory
with RunDirectory.open(sys.argv[1]):
    print("ready", flush=True)
    time.sleep(7200)
"""


def test_a_second_process_is_turned_away_with_the_number_of_the_first(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(run.path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"ready\n"
    try:
        with pytest.raises(RunError, match=f"process {holder.pid} on .* is training here") as caught, run:
            pass
        assert_one_line(caught.value)
        assert RunDirectory.open(run.path).steps() == []  # reading needs no lock
    finally:
        holder.kill()
        holder.communicate()
    with run:  # a dead holder holds nothing
        run.append([{"step": 1}])


def test_whoever_has_patience_gets_in_when_the_holder_dies(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    run.patience = 7200.0
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(run.path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"ready\n"
    timer = threading.Timer(0.5, holder.kill)
    timer.start()
    with run:
        assert holder.wait() == -signal.SIGKILL
    timer.join()
    holder.stdout.close()


def test_a_run_may_be_entered_again_after_it_was_left(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    for step in range(2):
        with run:
            run.append([{"step": step}])
    assert len(read_metrics(run.path / "metrics.jsonl")) == 2


# Disks.


REFUSALS = [(errno.ENOSPC, "Free some space"), (errno.EROFS, "may write to"), (errno.EACCES, "may write to")]


@pytest.mark.parametrize(("number", "advice"), REFUSALS)
def test_a_disk_that_refuses_leaves_no_half_made_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, advice: str) -> None:
    def refuse(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(RunError, match=advice) as caught:
        new_run(tmp_path / "deep" / "runs")
    assert_one_line(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    with pytest.raises(RunError, match="A file stands where a directory should") as caught:
        new_run(tmp_path / "runs")
    assert_one_line(caught.value)
    assert (tmp_path / "runs").read_text() == ""


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="permissions do not bind this user")
def test_a_directory_without_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(RunError, match="may write to"):
            new_run(tmp_path / "runs")
    finally:
        tmp_path.chmod(0o700)


def test_a_run_whose_directory_turns_read_only_cannot_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = new_run(tmp_path)

    def refuse(*_: Any) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("emc.runs.lock.os.open", refuse)
    with pytest.raises(RunError, match="Read-only"), run:
        pass


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB."""
    mount = shutil.which("mount")
    if sys.platform != "linux" or mount is None or os.geteuid() != 0:
        pytest.skip("making a small file system needs root on Linux")
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run([mount, "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no mounts")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def write_until_full(run: RunDirectory) -> None:
    for _ in range(100):
        run.append([{"text": "x" * 9000}, {"text": "y"}])


def test_a_full_disk_ends_in_one_line_and_keeps_all_that_was_whole(small_disk: Path) -> None:
    with new_run(small_disk) as run:
        run.append([{"step": 1}])
        run.save_checkpoint(1, {"x": np.zeros(10_000, np.uint8)}, {})
        with pytest.raises(RunError, match="No space left") as caught:
            run.save_checkpoint(2, {"x": np.ones(10**6, np.uint8)}, {})
        assert_one_line(caught.value)
        assert [path.name for path in (run.path / "checkpoints").iterdir()] == [f"{1:012d}"]
        with pytest.raises(RunError, match="No space left"):
            write_until_full(run)
        lines = read_metrics(run.path / "metrics.jsonl")
        assert (run.path / "metrics.jsonl").read_bytes().endswith(b"\n")
        assert len(lines) % 2 == 1  # each append is whole or absent
        assert run.latest_checkpoint({"x": np.zeros(10_000, np.uint8)}).step == 1
    entries = sorted(path.relative_to(small_disk) for path in small_disk.rglob("*"))
    with pytest.raises(RunError, match="No space left"):
        RunDirectory.create(small_disk, "other", "method", {"text": "z" * 300_000})
    assert sorted(path.relative_to(small_disk) for path in small_disk.rglob("*")) == entries


# The machine.


def test_the_machine_is_described_without_naming_anyone() -> None:
    description = describe_machine()
    assert set(description) == {"python", "packages", "platform", "cpus", "device", "commit"}
    assert description["packages"]["jax"] is not None
    assert description["device"]["count"] >= 1
    text = json.dumps(description)
    for secret in (str(Path.home()), str(Path.cwd()), os.uname().nodename if sys.platform != "win32" else "\\"):
        assert len(secret) < 4 or secret not in text


def test_a_file_reaches_the_disk_before_it_takes_the_place_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, seen = tmp_path / "new" / "page.html", list[tuple[str, str]]()
    sync = files.sync
    monkeypatch.setattr(files, "sync", lambda file: (seen.append((file.read().decode(), path.read_text())), sync(file)))
    path.parent.mkdir()
    path.write_text("old")
    with written_whole(path) as beside:
        beside.write_text("new")
    assert seen == [("new", "old")]
    assert path.read_text() == "new"
    with pytest.raises(UnicodeEncodeError), written_whole(path) as beside:
        beside.write_text("half \ud800", encoding="utf-8")
    assert path.read_text() == "new"
    assert [*path.parent.iterdir()] == [path]
