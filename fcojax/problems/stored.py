"""A population in a folder: one .npy file per array, and a manifest that lists them.

The folder gets its name only when it is complete. Arrays that are read back are memory-mapped:
rows are read from disk when they are accessed.
"""

import concurrent.futures
import errno
import hashlib
import itertools
import json
import math
import mmap
import os
import pathlib
import shutil
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from fcojax.problems.sparse import SparseRows, unchecked
from fcojax.types import PyTree
from fcojax.xla.rules import backend

_MANIFEST = "clients.json"
_FORMAT = "clients of fcojax, version 1"
# Runs of rows shorter than the first and closer than the second are read with the rows between
# them, which is faster than one system call each.
_SHORT_BYTES, _NEAR_BYTES = 1 << 10, 1 << 13
_ALIGNMENT = 64  # bytes
_BLOCK_BYTES = 1 << 24
_LARGE_BYTES = 1 << 26  # of an array that takes longer to copy than threads take to start


def write(folder: str | os.PathLike, examples: PyTree, small: dict[str, np.ndarray]) -> None:
    """Write the examples, and the small arrays by name, to a folder that must not exist yet."""
    folder = pathlib.Path(folder)
    if folder.exists():
        raise ValueError(f"{folder} exists already; remove it or pass another folder.")
    leaves: list[np.ndarray] = []
    arrays = dict(small)
    structure = _flatten(examples, leaves)
    arrays |= {f"examples.{index}": leaf for index, leaf in enumerate(leaves)}
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = folder.parent / f".{folder.name}.unfinished-{os.getpid()}"
    unfinished.mkdir()
    try:
        files = {name: _write_array(unfinished, name, array) for name, array in arrays.items()}
        manifest = {"format": _FORMAT, "examples": structure, "files": files}
        text = json.dumps(manifest | {"sha256": _digest_of(manifest)}, indent=1)
        (unfinished / _MANIFEST).write_text(text, "utf-8")
        unfinished.rename(folder)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def read(folder: str | os.PathLike, verify: bool) -> tuple[PyTree, dict[str, np.ndarray]]:
    """Return the mapped examples and the small arrays; raise if a file is not as it was saved."""
    folder = pathlib.Path(folder)
    manifest = _read_manifest(folder)
    files = manifest["files"]
    leaves = {
        int(name.split(".")[1]): _read_array(folder, name, files[name], verify)
        for name in files
        if name.startswith("examples.")
    }
    small = {
        name: np.array(_read_array(folder, name, files[name], verify=True))
        for name in files
        if not name.startswith("examples.")
    }
    return _unflatten(manifest["examples"], leaves), small


def file_of(array: Any) -> tuple[str, int] | None:
    """Return the file that an array is mapped from and its offset; ``None`` if it is in memory."""
    base = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and base.filename is not None:
            shift = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
            return os.fspath(base.filename), base.offset + shift
        base = base.base
    return None


def read_rows(array: np.ndarray, starts: np.ndarray, sizes: np.ndarray, out: np.ndarray) -> None:
    """Read runs of rows into the first rows of ``out``.

    A mapped array is read from its file by system calls: its pages do not stay in memory, and a
    file that has become shorter raises ``ValueError`` where access to the mapping would kill the
    process.

    Args:
      array: rows on disk or in memory.
      starts: first row of each run.
      sizes: number of rows of each run.
      out: array to write to, contiguous.
    """
    place = file_of(array)
    ends = np.cumsum(sizes)
    if place is None:
        for start, size, end in zip(starts.tolist(), sizes.tolist(), ends.tolist(), strict=True):
            out[end - size : end] = array[start : start + size]
        return
    if not starts.size:
        return
    path, shift = place
    row_bytes = array.dtype.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
    target = _bytes_of(out)
    gaps, runs = (starts[1:] - (starts[:-1] + sizes[:-1])) * row_bytes, sizes * row_bytes
    near = (gaps >= 0) & (gaps <= _NEAR_BYTES) & (runs[1:] <= _SHORT_BYTES)
    heads = np.concatenate([[0], np.flatnonzero(~near) + 1])
    tails = np.concatenate([heads[1:], [starts.size]]) - 1
    spans = np.stack(
        [starts[heads], starts[tails] + sizes[tails], (ends - sizes)[heads], ends[tails]]
    )
    alone = heads == tails
    _require_file(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        first, _, begins, stops = spans[:, alone] * row_bytes
        parts = [target[a:b] for a, b in zip(begins.tolist(), stops.tolist(), strict=True)]
        _fill(parts, (shift + first).tolist(), descriptor, path)
        for index in np.flatnonzero(~alone):
            start, stop, begin, end = spans[:, index].tolist()
            span = np.empty((stop - start, *array.shape[1:]), array.dtype)
            _fill([_bytes_of(span)], [shift + start * row_bytes], descriptor, path)
            runs = slice(heads[index], tails[index] + 1)
            shifts = starts[runs] - start - ((ends - sizes)[runs] - begin)
            rows = np.arange(end - begin) + np.repeat(shifts, sizes[runs])
            np.take(span, rows, 0, out=out[begin:end], mode="clip")
    finally:
        os.close(descriptor)


def in_memory(array: Any) -> Any:
    """Return an array that JAX stores without one more copy on the host.

    An array on disk is read from its file, because XLA on a CPU would use the mapping. One of
    another dtype than JAX stores, or whose rows are not contiguous, is converted.
    """
    if not isinstance(array, np.ndarray):
        return array
    stored_as_is = array.flags.c_contiguous and array.dtype == _dtype_in_jax(array)
    if stored_as_is and file_of(array) is None:
        return array
    return padded_rows(array, 0, len(array), len(array))


def padded_rows(array: np.ndarray, start: int, end: int, num_rows: int) -> np.ndarray:
    """Return a copy of the rows from ``start`` to ``end``, the last one repeated.

    It is aligned and of the dtype that JAX stores, so XLA on a CPU uses it without another copy.

    Args:
      array: rows on disk or in memory.
      start: the first row.
      end: the row after the last.
      num_rows: number of rows to return.
    """
    rows = aligned((num_rows, *array.shape[1:]), _dtype_in_jax(array))
    if array.dtype == rows.dtype or file_of(array) is None:
        block = max(1, end - start)
    else:  # read as they are, then converted: a few at a time
        block = max(1, _BLOCK_BYTES // max(1, array[:1].nbytes))
    for first in range(start, end, block):
        last = min(first + block, end)
        target = rows[first - start : last - start]
        read = target if block == end - start else np.empty(target.shape, array.dtype)
        read_rows(array, np.array([first]), np.array([last - first]), read)
        target[...] = read
    rows[end - start :] = rows[end - start - 1 : end - start]
    return rows


def _dtype_in_jax(array: np.ndarray) -> np.dtype:
    return jax.dtypes.canonicalize_dtype(array.dtype)


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Allocate an array with the alignment that XLA needs to use it without a copy."""
    num_bytes = dtype.itemsize * math.prod(shape)
    if num_bytes >= _LARGE_BYTES:
        # NumPy's own memory has huge pages, whose first access takes longer on virtual machines.
        try:
            pages = mmap.mmap(-1, num_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise MemoryError(f"no {num_bytes / 2**30:.1f} GiB of memory are left") from error
        return np.frombuffer(pages, np.uint8).view(dtype).reshape(shape)
    room = np.empty(num_bytes + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    return room[start : start + num_bytes].view(dtype).reshape(shape)


def copied(array: Any) -> Any:
    """Return a large array as a copy that XLA on a CPU uses as it is; it would use one thread.

    Others, also those that XLA needs not copy, are returned as they are.
    """
    large = type(array) is np.ndarray and array.nbytes >= _LARGE_BYTES
    if not large or array.ctypes.data % _ALIGNMENT == 0 or backend() != "cpu":
        return array
    out = aligned(array.shape, array.dtype)
    num_rows = max(1, _BLOCK_BYTES * len(array) // array.nbytes)
    blocks = [slice(first, first + num_rows) for first in range(0, len(array), num_rows)]
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        list(threads.map(lambda rows: np.copyto(out[rows], array[rows]), blocks))
    return out


def joined(arrays: Sequence[Any]) -> np.ndarray:
    """Return the rows of all arrays, one array after the other, in memory that XLA can use."""
    parts = [np.asarray(array) for array in arrays]
    dtype = np.result_type(*parts)
    if dtype.hasobject:
        return np.concatenate(parts)
    shape = (sum(map(len, parts)), *parts[0].shape[1:])
    return np.concatenate(parts, out=aligned(shape, dtype))


def taken(array: Any, rows: np.ndarray) -> np.ndarray:
    """Return ``array[rows]`` for row numbers, in memory that XLA can use."""
    array = np.asarray(array)
    in_bounds = not rows.size or (rows.min() >= 0 and rows.max() < len(array))
    if array.dtype.hasobject or not in_bounds:
        return array[rows]
    out = aligned((len(rows), *array.shape[1:]), array.dtype)
    return np.take(array, rows, 0, out=out, mode="clip")  # the mode that needs no buffer


def _bytes_of(array: np.ndarray) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8))  # pyright: ignore[reportArgumentType]


def _fill(parts: list[memoryview], positions: list[int], descriptor: int, path: str) -> None:
    """Read each part from its position in the file."""
    buffers = ([part] for part in parts)
    counts = map(os.preadv, itertools.repeat(descriptor), buffers, positions)
    for part, position, count in zip(parts, positions, counts, strict=True):
        got = count
        while got < len(part):
            if not count:
                raise ValueError(
                    f"{path} has become shorter since it was opened; make the folder again from "
                    "its source."
                )
            count = os.preadv(descriptor, [part[got:]], position + got)
            got += count


def _flatten(examples: PyTree, leaves: list[np.ndarray]) -> Any:
    """Return the structure as JSON with numbers for leaves, which are appended in their order."""
    if type(examples) is dict and all(isinstance(name, str) for name in examples):
        return {name: _flatten(part, leaves) for name, part in sorted(examples.items())}
    if type(examples) in (list, tuple):
        parts = [_flatten(part, leaves) for part in examples]
        return [type(examples).__name__, *parts]
    if isinstance(examples, SparseRows):
        parts = [_flatten(part, leaves) for part in (examples.index, examples.value)]
        return ["sparse rows", *parts, examples.num_features]
    if not hasattr(examples, "dtype"):
        raise ValueError(
            f"the examples hold a {type(examples).__name__}; pass dicts with string keys, lists "
            "and tuples of arrays and SparseRows."
        )
    leaves.append(np.ascontiguousarray(examples))
    return len(leaves) - 1


def _unflatten(structure: Any, leaves: dict[int, np.ndarray]) -> PyTree:
    if isinstance(structure, dict):
        return {name: _unflatten(part, leaves) for name, part in structure.items()}
    if isinstance(structure, list) and structure[0] == "sparse rows":
        index, value, num_features = structure[1:]
        return unchecked(leaves[index], leaves[value], num_features)  # they stay on disk
    if isinstance(structure, list):
        parts = [_unflatten(part, leaves) for part in structure[1:]]
        return tuple(parts) if structure[0] == "tuple" else parts
    return leaves[structure]


def _write_array(folder: pathlib.Path, name: str, array: np.ndarray) -> dict:
    path = folder / f"{name}.npy"
    extended = array.dtype.kind == "V"  # bfloat16 and the like, which the format does not have
    np.save(path, array.view(f"u{array.dtype.itemsize}") if extended else array, allow_pickle=False)
    return {
        "dtype": array.dtype.name if extended else array.dtype.str,
        "shape": list(array.shape),
        "bytes": path.stat().st_size,
        "sha256": _digest(array),
    }


def _read_array(folder: pathlib.Path, name: str, saved: dict, verify: bool) -> np.ndarray:
    path = folder / f"{name}.npy"
    found = path.stat().st_size if path.is_file() else 0
    intact = found == saved["bytes"]
    array = np.empty(0)
    try:
        if intact:
            # A plain array: the subclass is slow to index, and not every library accepts it.
            array = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
            dtype = np.dtype(saved["dtype"])
            array = array.view(dtype) if dtype.kind == "V" else array
            intact = array.dtype == dtype and list(array.shape) == saved["shape"]
    except Exception:  # numpy reads the header of an array as Python, which may raise anything
        intact = False
    if not intact or (verify and _digest(array) != saved["sha256"]):
        raise ValueError(
            f"{path} has {found} bytes and does not hold the {saved['bytes']} bytes that were "
            "saved; copy the folder again."
        )
    return array


def _read_manifest(folder: pathlib.Path) -> dict:
    path = folder / _MANIFEST
    _require_file(path)
    try:
        manifest = json.loads(path.read_text("utf-8"))
        digest = manifest.pop("sha256")
        known = manifest["format"] == _FORMAT and digest == _digest_of(manifest)
    except (ValueError, KeyError, TypeError, AttributeError):
        known = False
        manifest = {}
    if not known:
        raise ValueError(
            f"{path} is not a manifest that this version wrote, or has changed since; make the "
            "folder again with ClientData.save."
        )
    return manifest


def _require_file(path: str | os.PathLike) -> None:
    """Raise ``FileNotFoundError`` in a sentence."""
    if not os.path.isfile(path):
        what = "this file of a population is missing; pass a folder that ClientData.save made"
        raise FileNotFoundError(errno.ENOENT, what, os.fspath(path))


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(array.reshape(-1).view(np.uint8).data).hexdigest()


def _digest_of(manifest: dict) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
