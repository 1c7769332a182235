"""A pytree of arrays on disk: one safetensors file and one JSON file in a directory that appears whole or not at all.

`arrays.safetensors` holds every array under its key path. Booleans are packed eight to a byte (a replay is mostly booleans), random keys
are stored as their key data, and types that numpy lacks (bfloat16) as unsigned integers of the same width, so every bit survives.
`checkpoint.json` holds the caller's `meta`, the type and shape of every array, and checksums of both files.

Reading runs no code from the file and allocates only what the caller's own `like` asks for, so a stranger's checkpoint is safe to open.
One process at a time may write below a directory; `emc.runs.RunDirectory` sees to that.
"""

from __future__ import annotations

import contextlib
import glob
import json
import math
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree, Shaped, UInt8
from safetensors import SafetensorError, safe_open

from emc import files
from emc.errors import CheckpointError, FileError
from emc.training.plan import available_bytes, readable
from emc.types import bytes_of

__all__ = ["CheckpointError", "load", "save", "tidy"]

FORMAT, VERSION = "emc-checkpoint", 2  # 2: other cells of the episodic memory, short floats of a replay as bits
ARRAYS, DESCRIPTION = "arrays.safetensors", "checkpoint.json"
HOLE = 2**16  # bytes that are looked at together, whether all of them are zero
CODES = {  # names of the safetensors format; everything else is stored as bits
    "float16": "F16", "float32": "F32", "float64": "F64", "int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64",
    "uint8": "U8", "uint16": "U16", "uint32": "U32", "uint64": "U64",
}  # fmt: skip


def save(directory: Path, tree: PyTree, meta: dict[str, Any]) -> None:
    """Write arrays and JSON-like `meta`; an existing checkpoint of that name is replaced only once the new one is complete."""
    leaves = dict(named_leaves(tree))
    json.dumps(meta, allow_nan=False)  # refuse before anything is written
    beside, aside = directory.with_name(f"{directory.name}.tmp-{os.getpid()}"), directory.with_name(f"{directory.name}.tmp-old")
    tidy(directory.parent, glob.escape(directory.name))  # a full disk may need what a killed writer left
    try:
        _make_folder(beside)
        size, checksum = write_arrays(beside / ARRAYS, leaves)
        arrays = {name: describe(leaf) for name, leaf in leaves.items()}
        content = {"meta": meta, "arrays": arrays, "size": size, "crc32": checksum}
        files.write_json(beside / DESCRIPTION, {"format": FORMAT, "version": VERSION, "crc32": crc_of_json(content), "content": content})
        files.sync_directory(beside)
        if files.is_there(directory):
            directory.rename(aside)  # a kill right here is mended by `tidy`
        beside.rename(directory)
        files.sync_directory(directory.parent)
    finally:
        with contextlib.suppress(OSError):
            tidy(directory.parent, glob.escape(directory.name))


def _make_folder(path: Path) -> None:
    """A new folder inside one that is there, or is made, and is no link to another place."""
    if not files.is_there(path.parent):
        path.parent.mkdir(parents=True)
        files.sync_directory(path.parent.parent)
    files.must_be_folder(path.parent)
    path.mkdir()


def load(directory: Path, like: PyTree) -> tuple[PyTree, dict[str, Any]]:
    """Arrays in the structure of `like` (arrays or their shapes), and the meta; numpy where `like` has numpy, JAX elsewhere."""
    try:
        content = described(directory)
        wanted = dict(named_leaves(like))
        compare(directory, wanted, content["arrays"])
        must_fit(directory, wanted)
        with files.opened(directory / ARRAYS) as file:
            check_arrays_file(directory, file, content["size"], content["crc32"])
            with safe_open(directory / ARRAYS, framework="numpy") as known:
                if {*known.keys()} != {*wanted}:
                    raise CheckpointError(f"{directory}: {ARRAYS} holds other arrays than {DESCRIPTION} says. Use another checkpoint.")
                for name, leaf in wanted.items():
                    must_be_stored_as(directory, name, leaf, known.get_slice(name))
            begins = beginnings(file)
            loaded = [unpack(leaf, read_array(directory, leaf, file, begins[name])) for name, leaf in wanted.items()]
    except SafetensorError as error:
        raise CheckpointError(f"{directory}: {ARRAYS} is not a safetensors file ({one_line(error)}). Use another checkpoint.") from error
    except FileNotFoundError as error:
        raise CheckpointError(f"{directory}: {ARRAYS} is missing. Use another checkpoint.") from error
    except FileError as error:
        raise CheckpointError(str(error)) from error
    except OSError as error:
        raise CheckpointError(f"{directory}: cannot be read ({error.strerror or one_line(error)}).") from error
    except MemoryError as error:
        raise CheckpointError(f"{directory}: does not fit into memory. Free some, or use a larger machine.") from error
    return jax.tree.unflatten(jax.tree.structure(like), loaded), content["meta"]


def tidy(parent: Path, name: str = "*") -> None:
    """Remove what killed writers of checkpoints so called left behind in `parent`, and put back one that they had moved aside."""
    for aside in sorted(parent.glob(f"{name}.tmp-old")):
        if files.is_there(aside.with_suffix("")) or not (aside / DESCRIPTION).is_file() or aside.is_symlink():
            files.remove(aside)
        else:
            aside.rename(aside.with_suffix(""))
    for beside in sorted(parent.glob(f"{name}.tmp-[0-9]*")):
        files.remove(beside)


# What a leaf looks like on disk.


def named_leaves(tree: PyTree) -> Iterator[tuple[str, Any]]:
    """Leaves under their key paths, which must be distinct and lead to arrays."""
    seen: set[str] = set()
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        name = jax.tree_util.keystr(path) or "array"
        if name in seen:
            raise TypeError(f"two arrays of a checkpoint share the name {name}")
        if not isinstance(leaf, jax.Array | jax.ShapeDtypeStruct | np.ndarray | np.generic):
            raise TypeError(f"a checkpoint holds arrays only, but {name} is a {type(leaf).__name__}")
        seen.add(name)
        yield name, leaf


def is_key(leaf: Any) -> bool:
    """Whether a leaf is a typed random key."""
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def describe(leaf: Any) -> dict[str, Any]:
    """Type and shape as the program sees them."""
    return {"dtype": str(leaf.dtype) if is_key(leaf) else np.dtype(leaf.dtype).name, "shape": list(leaf.shape)}


def stored_form(leaf: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Type and shape on disk."""
    if is_key(leaf):
        data = jax.eval_shape(jax.random.key_data, leaf)
        return np.dtype(data.dtype), data.shape
    dtype = np.dtype(leaf.dtype)
    if dtype == np.bool_:
        return np.dtype(np.uint8), (-(-math.prod(leaf.shape) // 8),)
    if dtype.name in CODES:
        return dtype.newbyteorder("<"), leaf.shape
    if dtype.hasobject or dtype.fields or dtype.kind not in "fciuV" or dtype.itemsize not in (1, 2, 4, 8):
        raise TypeError(f"a checkpoint cannot hold arrays of type {dtype}")
    return np.dtype(f"<u{dtype.itemsize}"), leaf.shape


def pack(leaf: Any) -> UInt8[np.ndarray, " bytes"]:
    """The bytes of a leaf, without a copy where possible."""
    dtype, _ = stored_form(leaf)
    array = np.ascontiguousarray(jax.random.key_data(leaf) if is_key(leaf) else leaf).reshape(-1)
    if array.dtype == np.bool_:
        return np.packbits(array)
    if array.dtype.name in CODES:
        array = array.astype(dtype, copy=False)
    return array.view(np.uint8)


def unpack(like: Any, array: Shaped[np.ndarray, "..."]) -> Any:
    """What was stored, in the type and shape of `like`."""
    if is_key(like):
        return jax.random.wrap_key_data(jax.device_put(array, may_alias=False), impl=key_impl(like))
    if np.dtype(like.dtype) == np.bool_:
        array = np.unpackbits(array, count=math.prod(like.shape)).view(np.bool_).reshape(like.shape)
    elif array.dtype != like.dtype:
        array = array.view(like.dtype) if np.dtype(like.dtype).name not in CODES else array.astype(like.dtype)
    # Not jnp.asarray, which compiles a program for every shape; a copy where JAX makes one, since memory of NumPy's cannot be donated.
    return array if isinstance(like, np.ndarray | np.generic) else jax.device_put(array, may_alias=False)


def key_impl(like: Any) -> Any:
    """The generator that a random key, or its shape alone, belongs to."""
    found: list[Any] = []
    jax.eval_shape(lambda key: (found.append(jax.random.key_impl(key)), key)[1], like)
    return found[0]


# Writing.


def write_arrays(path: Path, leaves: dict[str, Any]) -> tuple[int, int]:
    """Stream the arrays into a safetensors file, one at a time; return its size and checksum."""
    header: dict[str, Any] = {}
    end = 0
    for name, leaf in leaves.items():
        dtype, shape = stored_form(leaf)
        start, end = end, end + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": CODES[dtype.name], "shape": list(shape), "data_offsets": [start, end]}
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with files.new_file(path) as file:
        checksum = write_counted(file, struct.pack("<Q", len(encoded)) + encoded, 0)
        for leaf in leaves.values():
            checksum = write_counted(file, pack(leaf), checksum)
        file.truncate()  # the file ends here, also where the last bytes are a hole
        files.sync(file)
    return 8 + len(encoded) + end, checksum


def write_counted(file: BinaryIO, data: Any, checksum: int) -> int:
    """Write and return the running checksum. Zeros become a hole in the file, which reads as zeros and takes no room on the disk: of a
    replay, which has room for episodes of full length, and of a memory most is empty."""
    for start in range(0, len(data), HOLE):
        block = data[start : start + HOLE]
        if np.any(np.frombuffer(block, np.uint8)):
            file.write(block)
        else:
            file.seek(len(block), os.SEEK_CUR)
        checksum = zlib.crc32(block, checksum)
    return checksum


def crc_of_json(content: dict[str, Any]) -> int:
    """Checksum of a JSON document whatever its layout."""
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


# Reading and refusing.


def described(directory: Path) -> dict[str, Any]:
    """The content of `checkpoint.json`, checked for format, version and damage; nothing is read of the arrays."""
    try:
        files.must_be_folder(directory)
        document = files.parsed(files.content_of(directory / DESCRIPTION, "description"))
        found, version, checksum, content = (document[name] for name in ("format", "version", "crc32", "content"))
        whole = checksum == crc_of_json(content) and set(content) == {"meta", "arrays", "size", "crc32"}
        whole = whole and isinstance(content["arrays"], dict) and isinstance(content["meta"], dict)
    except FileNotFoundError as error:
        raise CheckpointError(f"{directory}: not a checkpoint, {DESCRIPTION} is missing. Name a directory that holds one.") from error
    except OSError as error:
        raise CheckpointError(f"{directory}: cannot be read ({error.strerror or one_line(error)}).") from error
    except FileError as error:
        raise CheckpointError(str(error)) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{directory}: {DESCRIPTION} is damaged or not ours. Use another checkpoint.") from error
    if found != FORMAT:
        raise CheckpointError(f"{directory}: {DESCRIPTION} is not of the format {FORMAT}. Use another checkpoint.")
    if version != VERSION:
        raise CheckpointError(f"{directory}: has format version {one_line(version)}, this emc reads {VERSION}. Use the emc that wrote it.")
    if not whole:
        raise CheckpointError(f"{directory}: {DESCRIPTION} is damaged, its checksum differs. Use another checkpoint.")
    return content


def compare(directory: Path, wanted: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Refuse a checkpoint of other arrays, naming the first that differs."""
    advice = "It was written for another method, environment or size."
    for name, leaf in wanted.items():
        if name not in arrays:
            raise CheckpointError(f"{directory}: has no array {name!a}. {advice}")
        if arrays[name] != describe(leaf):
            raise CheckpointError(f"{directory}: array {name!a} is {spelled(arrays[name])} there, {spelled(describe(leaf))} here. {advice}")
    for name in arrays:
        if name not in wanted:
            raise CheckpointError(f"{directory}: has an array {one_line(name)} that is unknown here. {advice}")


def check_arrays_file(directory: Path, file: BinaryIO, size: Any, checksum: Any) -> None:
    """Refuse a file that is not the one the description was written for."""
    found = 0
    if (length := os.fstat(file.fileno()).st_size) != size:
        raise CheckpointError(f"{directory}: {ARRAYS} has {length} bytes, not {one_line(size)}: truncated. Use another checkpoint.")
    while block := file.read(files.BLOCK):
        found = zlib.crc32(block, found)
    if found != checksum:
        raise CheckpointError(f"{directory}: {ARRAYS} is damaged, its checksum differs. Use another checkpoint.")


def must_be_stored_as(directory: Path, name: str, like: Any, header: Any) -> None:
    """Refuse an array of another type or shape than `like` has on disk."""
    dtype, shape = stored_form(like)
    if header.get_dtype() != CODES[dtype.name] or tuple(header.get_shape()) != tuple(shape):
        raise CheckpointError(f"{directory}: array {name!a} is stored in another form than {DESCRIPTION} says. Use another checkpoint.")


def beginnings(file: BinaryIO) -> dict[str, int]:
    """Where each array begins in a file that its library has found good."""
    file.seek(0)
    (length,) = struct.unpack("<Q", file.read(8))
    header: dict[str, Any] = json.loads(file.read(length))
    return {name: 8 + length + entry["data_offsets"][0] for name, entry in header.items() if name != "__metadata__"}


def read_array(directory: Path, like: Any, file: BinaryIO, begin: int) -> Shaped[np.ndarray, "..."]:
    """One array as it is stored.

    Read, and not mapped into memory as the library does: to touch a hole, or what is cut off just then, of a mapped file may be deadly.
    """
    dtype, shape = stored_form(like)
    array = np.empty(shape, dtype)
    file.seek(begin)
    if cast(Any, file).readinto(array.reshape(-1).view(np.uint8)) != array.nbytes:
        raise CheckpointError(f"{directory}: {ARRAYS} ends before its arrays do. Use another checkpoint.")
    return array


def must_fit(directory: Path, wanted: dict[str, Any]) -> None:
    """Refuse arrays that memory has no room for, before a byte of them is read: a file may claim sizes that no disk holds."""
    needed, free = 2 * sum(map(bytes_of, wanted.values())), available_bytes()  # while an array is unpacked, or copied, it is there twice
    if free is not None and needed > free:
        raise CheckpointError(f"{directory}: needs {readable(needed)} of memory, {readable(free)} are free. Use a larger machine.")


def spelled(entry: Any) -> str:
    """`float32[3, 4]`."""
    try:
        return one_line(f"{entry['dtype']}{entry['shape']}")
    except (TypeError, KeyError):
        return "unreadable"


def one_line(value: Any) -> str:
    """A stranger's value as short printable text."""
    return ascii(str(value))[1:-1][:120]
