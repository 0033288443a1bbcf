"""A population as a folder: one .npy file an array, and a manifest that knows them all.

The folder appears under its name only when it is complete. What is read back stays on disk, mapped
into memory, until somebody looks at its rows.
"""

import hashlib
import itertools
import json
import math
import os
import pathlib
import shutil
from typing import Any

import numpy as np

from fcojax.problems.sparse import SparseRows
from fcojax.types import PyTree

_MANIFEST = "clients.json"
_FORMAT = "clients of fcojax, version 1"
# Runs of rows that are so short, and so near to each other, that it is faster to read what lies
# between them than to ask once more.
_SHORT_BYTES, _NEAR_BYTES = 1 << 10, 1 << 13
_ALIGNMENT = 64  # bytes


def write(folder: str | os.PathLike, examples: PyTree, small: dict[str, np.ndarray]) -> None:
    """Writes the examples, and the small arrays by name, to a folder that must not exist yet."""
    folder = pathlib.Path(folder)
    if folder.exists():
        raise ValueError(f"{folder} exists already; remove it or choose another folder.")
    leaves: list[np.ndarray] = []
    arrays = dict(small)
    structure = _take_apart(examples, leaves)
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
    """The examples, mapped, and the small arrays, in memory; raises if any file is not as saved."""
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
    return _put_together(manifest["examples"], leaves), small


def file_of(array: Any) -> tuple[str, int] | None:
    """The file that an array is mapped from and where in it; ``None`` if it is in memory."""
    base = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and base.filename is not None:
            shift = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
            return os.fspath(base.filename), base.offset + shift
        base = base.base
    return None


def read_rows(array: np.ndarray, starts: np.ndarray, sizes: np.ndarray, out: np.ndarray) -> None:
    """Reads runs of rows into the first rows of ``out``.

    An array on disk is read, not mapped: what was read before does not stay in memory, and a file
    that has become shorter raises ``ValueError`` where a mapped one would end the process.
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
            wanted = np.arange(end - begin) + np.repeat(shifts, sizes[runs])
            np.take(span, wanted, 0, out=out[begin:end], mode="clip")
    finally:
        os.close(descriptor)


def in_memory(array: Any) -> Any:
    """The array, or what it is mapped from, read: XLA on a CPU would compute on the mapping."""
    if not isinstance(array, np.ndarray) or file_of(array) is None:
        return array
    rows = aligned(array.shape, array.dtype)
    read_rows(array, np.zeros(1, np.int64), np.array([len(array)]), rows)
    return rows


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An empty array that XLA takes as it lies, where it copies one that starts elsewhere."""
    num_bytes = dtype.itemsize * math.prod(shape)
    room = np.empty(num_bytes + _ALIGNMENT, np.uint8)
    start = -room.ctypes.data % _ALIGNMENT
    return room[start : start + num_bytes].view(dtype).reshape(shape)


def _bytes_of(array: np.ndarray) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8))  # pyright: ignore[reportArgumentType]


def _fill(parts: list[memoryview], positions: list[int], descriptor: int, path: str) -> None:
    """Reads into each part what the file holds from its position on."""
    buffers = ([part] for part in parts)
    counts = map(os.preadv, itertools.repeat(descriptor), buffers, positions)
    for part, position, count in zip(parts, positions, counts, strict=True):
        got = count
        while got < len(part):
            if not count:
                raise ValueError(
                    f"{path} ended while clients were being read from it; it has become shorter "
                    "since it was opened, so copy the folder again."
                )
            count = os.preadv(descriptor, [part[got:]], position + got)
            got += count


def _take_apart(examples: PyTree, leaves: list[np.ndarray]) -> Any:
    """The structure as JSON with numbers for leaves, which are appended in their order."""
    if type(examples) is dict and all(isinstance(name, str) for name in examples):
        return {name: _take_apart(part, leaves) for name, part in sorted(examples.items())}
    if type(examples) in (list, tuple):
        parts = [_take_apart(part, leaves) for part in examples]
        return [type(examples).__name__, *parts]
    if isinstance(examples, SparseRows):
        parts = [_take_apart(part, leaves) for part in (examples.index, examples.value)]
        return ["sparse rows", *parts, examples.num_features]
    if not hasattr(examples, "dtype"):
        raise ValueError(
            f"the examples hold a {type(examples).__name__}; dicts with strings for keys, lists "
            "and tuples of arrays and SparseRows can be saved."
        )
    leaves.append(np.ascontiguousarray(examples))
    return len(leaves) - 1


def _put_together(structure: Any, leaves: dict[int, np.ndarray]) -> PyTree:
    if isinstance(structure, dict):
        return {name: _put_together(part, leaves) for name, part in structure.items()}
    if isinstance(structure, list) and structure[0] == "sparse rows":
        index, value, num_features = structure[1:]
        return SparseRows(leaves[index], leaves[value], num_features)
    if isinstance(structure, list):
        parts = [_put_together(part, leaves) for part in structure[1:]]
        return tuple(parts) if structure[0] == "tuple" else parts
    return leaves[structure]


def _write_array(folder: pathlib.Path, name: str, array: np.ndarray) -> dict:
    path = folder / f"{name}.npy"
    extended = array.dtype.kind == "V"  # bfloat16 and its kin, of which the format knows nothing
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
    if found != saved["bytes"]:
        raise ValueError(
            f"{path} has {found} bytes where {saved['bytes']} were saved; the file is truncated or "
            "another one, so copy the folder again."
        )
    try:
        # Without the subclass, which is slow to index and unknown to some.
        array = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        dtype = np.dtype(saved["dtype"])
        array = array.view(dtype) if dtype.kind == "V" else array
        as_saved = array.dtype == dtype and list(array.shape) == saved["shape"]
    except (ValueError, TypeError, EOFError):
        as_saved = False
        array = np.empty(0)
    if not as_saved or (verify and _digest(array) != saved["sha256"]):
        raise ValueError(f"{path} does not hold what was saved; copy the folder again.")
    return array


def _read_manifest(folder: pathlib.Path) -> dict:
    path = folder / _MANIFEST
    if not path.is_file():
        raise ValueError(f"{folder} holds no saved clients, for there is no {_MANIFEST} in it.")
    try:
        manifest = json.loads(path.read_text("utf-8"))
        digest = manifest.pop("sha256")
        known = manifest["format"] == _FORMAT and digest == _digest_of(manifest)
    except (ValueError, KeyError, TypeError, AttributeError):
        known = False
        manifest = {}
    if not known:
        raise ValueError(
            f"{path} is not a manifest that this version wrote, or has changed since; save the "
            "clients again."
        )
    return manifest


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(array.reshape(-1).view(np.uint8).data).hexdigest()


def _digest_of(manifest: dict) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
