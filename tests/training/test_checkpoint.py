"""Checkpoints come back bit for bit, or are refused with one line."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import equinox as eqx
import hypothesis
import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from emc.errors import UserError
from emc.training import checkpoint
from emc.training.checkpoint import CheckpointError, load, save

DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "complex64"]
arrays = st.sampled_from(DTYPES).flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)))
names = st.text(max_size=4)
trees = st.recursive(
    arrays,
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


class Learner(eqx.Module):
    """Something like a learner's state."""

    weight: jax.Array
    step: jax.Array
    replay: dict[str, jax.Array]
    key: jax.Array
    name: str = eqx.field(static=True, default="")


def learner(seed: int = 0, size: int = 5) -> Learner:
    key = jax.random.key(seed)
    replay = {"obs": jax.random.bernoulli(key, 0.5, (7, size, 3)), "reward": jnp.arange(7, dtype=jnp.bfloat16)}
    return Learner(jax.random.normal(key, (3, size)), jnp.int32(seed), replay, jax.random.split(key, 2))


def bits(leaf: Any) -> tuple[str, tuple[int, ...], bytes]:
    data = jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
    return str(leaf.dtype), leaf.shape, np.asarray(data).tobytes()


def assert_same_bits(left: Any, right: Any) -> None:
    assert jax.tree.structure(left) == jax.tree.structure(right)
    assert [bits(leaf) for leaf in jax.tree.leaves(left)] == [bits(leaf) for leaf in jax.tree.leaves(right)]


def refusal(directory: Path, like: Any) -> str:
    with pytest.raises(CheckpointError) as caught:
        load(directory, like)
    message = str(caught.value)
    assert isinstance(caught.value, UserError)
    assert "\n" not in message
    assert str(directory) in message
    return message


@hypothesis.settings(max_examples=60, deadline=None)
@hypothesis.given(tree=trees, meta=st.dictionaries(st.text(max_size=5), st.integers() | st.floats(allow_nan=False, allow_infinity=False)))
def test_any_tree_of_arrays_comes_back_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, tree: Any, meta: dict[str, Any]) -> None:
    directory = tmp_path_factory.mktemp("any") / "0"
    save(directory, tree, meta)
    loaded, loaded_meta = load(directory, tree)
    assert_same_bits(loaded, tree)
    assert loaded_meta == meta
    assert {leaf.name for leaf in directory.parent.iterdir()} == {"0"}


def test_odd_bits_survive(tmp_path: Path) -> None:
    quiet_nans = np.array([0x7FC00001, 0xFFC12345, 0x80000000, 0x00000001], np.uint32).view(np.float32)  # payloads, -0.0, a subnormal
    all_bf16 = np.arange(65536, dtype=np.uint16).view(jnp.bfloat16)
    tree = {"f32": quiet_nans, "bf16": jnp.asarray(all_bf16), "f8": jnp.ones(3, jnp.float8_e4m3fn)}
    save(tmp_path / "0", tree, {})
    assert_same_bits(load(tmp_path / "0", tree)[0], tree)


@pytest.mark.parametrize("filled", [[], [0], [1], [70_000], [299_999], [0, 131_071, 131_072, 299_999]])
def test_zeros_are_holes_that_read_as_zeros(tmp_path: Path, filled: list[int]) -> None:
    """Wherever they are: nothing is filled, at the beginning, in the middle, at the end."""
    tree = {"before": np.ones(3, np.uint8), "mostly zeros": np.zeros(300_000, np.uint8), "one": np.zeros((), np.float32)}
    tree["mostly zeros"][filled] = 255
    save(tmp_path / "0", tree, {})
    assert_same_bits(load(tmp_path / "0", tree)[0], tree)
    path = tmp_path / "0" / checkpoint.ARRAYS
    plain = path.with_name("copied")
    plain.write_bytes(path.read_bytes())
    assert all(np.array_equal(safetensors.numpy.load_file(plain)[f"[{name!r}]"], leaf) for name, leaf in tree.items())


def test_what_is_empty_takes_no_room_on_the_disk(tmp_path: Path) -> None:
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(10**7)
    if not 0 <= getattr((tmp_path / "hole").stat(), "st_blocks", -1) < 1000:
        pytest.skip("files have no holes here")
    ring = np.zeros((100, 100_000), np.uint8)
    ring[:5, :1000] = 1
    save(tmp_path / "0", {"ring": ring}, {})
    known = (tmp_path / "0" / checkpoint.ARRAYS).stat()
    assert known.st_size > 10**7
    assert known.st_blocks * 512 < 10**6


def test_views_and_foreign_byte_order_are_written_as_they_read(tmp_path: Path) -> None:
    tree = {"strided": np.arange(24).reshape(4, 6)[::2, ::-3], "big": np.arange(3, dtype=">i4")}
    tree["fortran"] = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    save(tmp_path / "0", tree, {})
    loaded, _ = load(tmp_path / "0", tree)
    assert all(np.array_equal(loaded[name], tree[name]) for name in tree)


def test_a_learner_comes_back_as_jax_arrays_and_its_keys_draw_the_same_numbers(tmp_path: Path) -> None:
    state = learner()
    save(tmp_path / "0", state, {"step": 3})
    loaded, meta = load(tmp_path / "0", state)
    assert_same_bits(loaded, state)
    assert meta == {"step": 3}
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(loaded))
    assert np.array_equal(jax.random.normal(loaded.key[1], 4), jax.random.normal(state.key[1], 4))


def test_shapes_alone_are_enough_to_load(tmp_path: Path) -> None:
    save(tmp_path / "0", learner(), {})
    assert_same_bits(load(tmp_path / "0", jax.eval_shape(learner))[0], learner())


def test_a_loaded_state_may_be_donated(tmp_path: Path) -> None:
    state = {"x": jnp.arange(1000.0)}
    save(tmp_path / "0", state, {})
    loaded, _ = load(tmp_path / "0", state)
    step = jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf + 1, tree), donate_argnums=0)
    for _ in range(3):
        loaded = step(loaded)
    assert np.array_equal(loaded["x"], state["x"] + 3)


def test_the_arrays_file_is_an_ordinary_safetensors_file_with_packed_booleans(tmp_path: Path) -> None:
    tree = {"flags": np.ones((3, 7), bool), "weight": np.arange(4, dtype=np.float32)}
    save(tmp_path / "0", tree, {})
    content = safetensors.numpy.load_file(tmp_path / "0" / checkpoint.ARRAYS)
    assert np.array_equal(content["['weight']"], tree["weight"])
    assert content["['flags']"].tolist() == [255, 255, 0b11111000]


def test_saving_again_replaces_the_checkpoint(tmp_path: Path) -> None:
    for seed in range(3):
        save(tmp_path / "0", learner(seed), {"seed": seed})
    loaded, meta = load(tmp_path / "0", learner())
    assert_same_bits(loaded, learner(2))
    assert meta == {"seed": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["0"]


@pytest.mark.parametrize("name", [checkpoint.ARRAYS, checkpoint.DESCRIPTION])
def test_one_flipped_bit_anywhere_is_noticed(tmp_path: Path, name: str) -> None:
    state = learner()
    save(tmp_path / "0", state, {"step": 1000})
    path = tmp_path / "0" / name
    whole = path.read_bytes()
    for position in range(0, len(whole), max(1, len(whole) // 60)):
        damaged = bytearray(whole)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        try:
            loaded, meta = load(tmp_path / "0", state)
        except CheckpointError:
            continue
        assert name == checkpoint.DESCRIPTION  # where white space may change and mean nothing
        assert meta == {"step": 1000}
        assert_same_bits(loaded, state)


@pytest.mark.parametrize("name", [checkpoint.ARRAYS, checkpoint.DESCRIPTION])
@pytest.mark.parametrize("length", [0, 7, 100, -2])
def test_a_truncated_file_is_refused(tmp_path: Path, name: str, length: int) -> None:
    save(tmp_path / "0", learner(), {})
    path = tmp_path / "0" / name
    path.write_bytes(path.read_bytes()[:length])
    refusal(tmp_path / "0", learner())


@pytest.mark.parametrize("name", [checkpoint.ARRAYS, checkpoint.DESCRIPTION])
def test_a_missing_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    save(tmp_path / "0", learner(), {})
    (tmp_path / "0" / name).unlink()
    assert f"{name} is missing" in refusal(tmp_path / "0", learner())


OTHER_FORMAT = b'{"format": "other", "version": 1, "crc32": 0, "content": {}}'


@pytest.mark.parametrize("content", [b"", b"[]", b"7", b'"x"', b"null", b"{}", b"\xff\xfe", b"[" * 100_000, OTHER_FORMAT])
def test_a_foreign_description_is_refused(tmp_path: Path, content: bytes) -> None:
    save(tmp_path / "0", learner(), {})
    (tmp_path / "0" / checkpoint.DESCRIPTION).write_bytes(content)
    refusal(tmp_path / "0", learner())


def test_files_of_two_checkpoints_do_not_mix(tmp_path: Path) -> None:
    for seed in (0, 1):
        save(tmp_path / str(seed), learner(seed), {})
    (tmp_path / "0" / checkpoint.ARRAYS).replace(tmp_path / "1" / checkpoint.ARRAYS)
    assert "damaged" in refusal(tmp_path / "1", learner())


def rewrite(directory: Path, **changes: Any) -> None:
    """What a stranger can do: change the description and make its checksum fit."""
    path = directory / checkpoint.DESCRIPTION
    document = json.loads(path.read_bytes())
    document["content"] |= changes
    document["crc32"] = checkpoint.crc_of_json(document["content"])
    path.write_text(json.dumps(document))


ODD_ARRAYS = [[], {"['x']": None}, {"['x']": {"dtype": 1, "shape": [10**30]}}]


@pytest.mark.parametrize("changes", [*({"arrays": odd} for odd in ODD_ARRAYS), {"meta": 3}, {"size": "big"}, {"more": 1}])
def test_a_stranger_who_lies_in_the_description_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    tree = {"x": np.zeros(3)}
    save(tmp_path / "0", tree, {})
    rewrite(tmp_path / "0", **changes)
    refusal(tmp_path / "0", tree)


def test_a_stranger_who_lies_in_the_arrays_file_is_refused(tmp_path: Path) -> None:
    tree = {"x": np.zeros(3)}
    for lie in ({"['x']": np.zeros(4)}, {"['x']": np.zeros(3, np.float32)}, {"['y']": np.zeros(3)}):
        save(tmp_path / "0", tree, {})
        data = safetensors.numpy.save(lie)
        (tmp_path / "0" / checkpoint.ARRAYS).write_bytes(data)
        rewrite(tmp_path / "0", size=len(data), crc32=checkpoint.zlib.crc32(data))
        refusal(tmp_path / "0", tree)


def test_another_format_version_is_refused_and_both_versions_are_named(tmp_path: Path) -> None:
    save(tmp_path / "0", learner(), {})
    path = tmp_path / "0" / checkpoint.DESCRIPTION
    path.write_text(path.read_text().replace(f'"version": {checkpoint.VERSION}', '"version": 7'))
    assert f"version 7, this emc reads {checkpoint.VERSION}" in refusal(tmp_path / "0", learner())


def test_the_first_array_that_differs_is_named(tmp_path: Path) -> None:
    tree = {"a": np.zeros(3), "b": np.zeros((2, 3), np.float32), "c": np.zeros(1)}
    save(tmp_path / "0", tree, {})
    assert "['b']\" is float32[2, 3] there, float32[2, 4] here" in refusal(tmp_path / "0", tree | {"b": np.zeros((2, 4), np.float32)})
    assert "['a']\" is float64[3] there, int32[3] here" in refusal(tmp_path / "0", tree | {"a": np.zeros(3, np.int32)})
    assert "no array \"['d']\"" in refusal(tmp_path / "0", tree | {"d": np.zeros(1)})
    assert "['c'] that is unknown here" in refusal(tmp_path / "0", {name: tree[name] for name in "ab"})


def test_keys_of_another_generator_are_refused(tmp_path: Path) -> None:
    save(tmp_path / "0", jax.random.key(0, impl="rbg"), {})
    assert "key<rbg>[] there, key<fry>[] here" in refusal(tmp_path / "0", jax.random.key(0))
    assert_same_bits(load(tmp_path / "0", jax.random.key(1, impl="rbg"))[0], jax.random.key(0, impl="rbg"))


@pytest.mark.parametrize("leaf", [3, 1.5, "text", len, np.array([None]), np.array(["a"])])
def test_what_is_not_an_array_of_numbers_is_refused_before_anything_is_written(tmp_path: Path, leaf: Any) -> None:
    with pytest.raises(TypeError):
        save(tmp_path / "0", {"x": leaf}, {})
    assert list(tmp_path.iterdir()) == []


def test_meta_that_is_not_json_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    for meta in ({"x": float("nan")}, {"x": object()}):
        with pytest.raises((TypeError, ValueError)):
            save(tmp_path / "0", {}, meta)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("moment", range(4))
def test_a_full_disk_leaves_the_old_checkpoint_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int) -> None:
    save(tmp_path / "0", learner(1), {"seed": 1})
    calls = iter(range(100))

    def failing_fsync(descriptor: int) -> None:
        if next(calls) == moment:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", failing_fsync)
    with pytest.raises(OSError, match="No space"):
        save(tmp_path / "0", learner(2), {"seed": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["0"]
    loaded, meta = load(tmp_path / "0", learner())
    assert_same_bits(loaded, learner(meta["seed"]))
    assert meta["seed"] == (2 if moment == 3 else 1)  # the fourth sync comes after the rename


def test_a_checkpoint_that_was_moved_aside_by_a_killed_writer_is_put_back(tmp_path: Path) -> None:
    save(tmp_path / "0", learner(1), {})
    (tmp_path / "0").rename(tmp_path / "0.tmp-old")
    (tmp_path / "0.tmp-123").mkdir()
    checkpoint.tidy(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["0"]
    assert_same_bits(load(tmp_path / "0", learner())[0], learner(1))


def test_tidying_one_name_leaves_its_neighbours_alone(tmp_path: Path) -> None:
    for name in ("1.tmp-5", "other.tmp-5", "10.tmp-old", "1[2]"):
        (tmp_path / name).mkdir()
    save(tmp_path / "1", {}, {})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "10.tmp-old", "1[2]", "other.tmp-5"]


WRITER = """
import sys, pathlib, numpy as np
from emc.training.checkpoint import save
print("ready", flush=True)
for step in range(10**6):
    save(pathlib.Path(sys.argv[1]) / "0", {"x": np.full(50_000, step), "flags": np.arange(9999) % (step + 2) == 0}, {"step": step})
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_a_kill_at_any_moment_leaves_a_good_checkpoint(tmp_path: Path) -> None:
    like = {"x": np.zeros(50_000, np.int64), "flags": np.zeros(9999, bool)}
    rng = np.random.default_rng(0)
    for trial in range(5):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
        while trial == 0 and not (tmp_path / "0").exists():
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, 0.1))
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        checkpoint.tidy(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["0"]
        tree, meta = load(tmp_path / "0", like)
        assert (tree["x"] == meta["step"]).all()
        assert np.array_equal(tree["flags"], np.arange(9999) % (meta["step"] + 2) == 0)


MEASURED = """
import sys, pathlib, resource, numpy as np, jax
from emc.training.checkpoint import load, save
state = {"flags": np.zeros((200, 2**20), bool), "x": np.zeros(2**20, np.float32)}
state["flags"][:] = True  # 200 MB that are really there
save(pathlib.Path(sys.argv[1]) / "warm", {"x": state["x"]}, {})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
save(pathlib.Path(sys.argv[1]) / "0", state, {})
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="resident size is in other units elsewhere")
def test_saving_needs_little_memory_beyond_the_state(tmp_path: Path) -> None:
    result = subprocess.run([sys.executable, "-c", MEASURED, str(tmp_path)], capture_output=True, text=True, check=True)
    assert float(result.stdout) < 60  # MB: the packed flags are 25
    assert (tmp_path / "0" / checkpoint.ARRAYS).stat().st_size < 31e6
