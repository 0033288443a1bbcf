"""Host arrays, on disk or in memory, aligned so that XLA on a CPU uses them without a copy.

An array that is mapped from a file is read from the file by system calls: its pages do not stay in
memory, and a file that has become shorter raises ``ValueError`` where access to the mapping would
kill the process.
"""

import concurrent.futures
import contextlib
import errno
import itertools
import math
import mmap
import os
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from fcojax.xla.rules import backend

_ALIGNMENT = 64  # bytes
_BLOCK_BYTES = 1 << 24
_LARGE_BYTES = 1 << 26  # copying so much takes longer than starting threads


def file_of(array: Any) -> tuple[str, int] | None:
    """Return the file that an array is mapped from and its offset; ``None`` if it is in memory."""
    base = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and base.filename is not None:
            shift = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
            return os.fspath(base.filename), base.offset + shift
        base = base.base
    return None


@contextlib.contextmanager
def opened(path: str) -> Iterator[int]:
    """Open a file of a population for ``fill``; yield its descriptor."""
    require_file(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def fill(parts: list[memoryview], positions: list[int], descriptor: int, path: str) -> None:
    """Fill each part from an open file, starting at its position in bytes."""
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


def bytes_of(array: np.ndarray) -> memoryview:
    """Return the memory of a contiguous array."""
    return memoryview(array.reshape(-1).view(np.uint8))  # pyright: ignore[reportArgumentType]


def require_file(path: str | os.PathLike) -> None:
    """Raise ``FileNotFoundError`` unless this file of a population exists."""
    if not os.path.isfile(path):
        what = "this file of a population is missing; pass a folder that save_clients made"
        raise FileNotFoundError(errno.ENOENT, what, os.fspath(path))


def in_memory(array: Any) -> Any:
    """Return an array that JAX stores without another copy on the host.

    An array on disk is read from its file, because XLA on a CPU would use the mapping. One whose
    dtype JAX does not store, or whose rows are not contiguous, is converted.
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
    """
    rows = aligned((num_rows, *array.shape[1:]), _dtype_in_jax(array))
    if array.dtype == rows.dtype or file_of(array) is None:
        block = max(1, end - start)
    else:  # read in the file's dtype and converted, a few rows at a time
        block = max(1, _BLOCK_BYTES // max(1, array[:1].nbytes))
    for first in range(start, end, block):
        last = min(first + block, end)
        target = rows[first - start : last - start]
        read = target if block == end - start else np.empty(target.shape, array.dtype)
        _read_run(array, first, read)
        target[...] = read
    rows[end - start :] = rows[end - start - 1 : end - start]
    return rows


def _read_run(array: np.ndarray, first: int, out: np.ndarray) -> None:
    """Read the rows from ``first``, as many as ``out`` has."""
    place = file_of(array)
    if place is None:
        out[...] = array[first : first + len(out)]
        return
    path, shift = place
    with opened(path) as descriptor:
        row_bytes = out.nbytes // max(1, len(out))
        fill([bytes_of(out)], [shift + first * row_bytes], descriptor, path)


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
    buffer = np.empty(num_bytes + _ALIGNMENT, np.uint8)
    start = -buffer.ctypes.data % _ALIGNMENT
    return buffer[start : start + num_bytes].view(dtype).reshape(shape)


def copied(array: Any) -> Any:
    """Return an aligned copy of a large array, made by several threads; XLA copies with one.

    Other arrays, and those that XLA need not copy, are returned unchanged.
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
