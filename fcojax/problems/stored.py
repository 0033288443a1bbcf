"""A population in a folder: one .npy file per array, and a manifest that lists them.

The folder gets its name only when it is complete. Arrays that are read back are memory-mapped:
rows are read from disk when they are accessed.
"""

import hashlib
import json
import os
import pathlib
import shutil
from typing import Any

import numpy as np

from fcojax.arguments import validated
from fcojax.problems import memory
from fcojax.problems.client_data import ClientData, ids_of, population
from fcojax.problems.clients import require_one_device
from fcojax.problems.sparse import SparseRows, unchecked
from fcojax.types import PyTree

_MANIFEST = "clients.json"
_FORMAT = "clients of fcojax, version 1"
# Runs of rows shorter than the first and closer than the second are read with the rows between
# them, which is faster than one system call each.
_SHORT_BYTES, _NEAR_BYTES = 1 << 10, 1 << 13


@validated
def save_clients(data: ClientData, folder: str | os.PathLike) -> None:
    """Write a population to a new folder, which ``open_clients`` reads.

    The folder appears when it is complete; if anything fails, nothing is left behind.

    Args:
      data: the population.
      folder: a path at which nothing exists yet.

    Example:
      >>> import fcojax, numpy as np, tempfile
      >>> folder = tempfile.mkdtemp() + "/population"
      >>> rows = {"a": np.arange(5, dtype=np.float32)}
      >>> fcojax.save_clients(fcojax.from_rows(rows, [2, 3]), folder)
      >>> fcojax.open_clients(folder)
      ClientData(2 clients of 2 to 3 examples, a: float32[5])
    """
    require_one_device(data)
    small = {"offsets": data.offsets, "weights": data.weights, "ids": ids_of(data)}
    write(folder, data.examples, {name: np.asarray(x) for name, x in small.items()})


@validated
def open_clients(folder: str | os.PathLike, *, verify: bool = False) -> ClientData:
    """Open a population that ``save_clients`` wrote; its examples stay on disk until used.

    ``run`` moves them to the device each time; call ``to_device`` first if there are several runs.
    ``rows_of`` and ``select`` read only the rows that they return.

    Args:
      folder: path given to ``save_clients``.
      verify: whether to read all examples and compare them with the hash of what was saved.
        Missing, truncated and foreign files are detected in any case.

    Example:
      >>> import fcojax, numpy as np, tempfile
      >>> folder = tempfile.mkdtemp() + "/population"
      >>> fcojax.save_clients(fcojax.from_rows({"a": np.arange(5.0)}, [2, 3]), folder)
      >>> rows, sizes = fcojax.open_clients(folder).rows_of([1])
      >>> rows["a"].tolist()
      [2.0, 3.0, 4.0]
    """
    examples, small = read(folder, verify)
    return population(examples, np.diff(small["offsets"]), small["weights"], small["ids"])


def write(folder: str | os.PathLike, examples: PyTree, small: dict[str, np.ndarray]) -> None:
    """Write the examples, and the small arrays by name, to a folder that must not exist yet."""
    folder = pathlib.Path(folder)
    if os.path.exists(folder):
        raise ValueError(f"{folder} exists already; remove it or pass another folder.")
    leaves: list[np.ndarray] = []
    structure = _flatten(examples, leaves)
    arrays = small | {f"examples.{index}": leaf for index, leaf in enumerate(leaves)}
    unfinished = folder.parent / f".{folder.name}.unfinished-{os.getpid()}"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        unfinished.mkdir()
    except (OSError, ValueError) as error:  # a file in the way, or a character that no path has
        raise ValueError(f"folder is {str(folder)!r}, which cannot be made ({error}).") from error
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
    """Return the mapped examples and the small arrays; raise if a file has changed."""
    folder = pathlib.Path(folder)
    manifest = _read_manifest(folder)
    leaves, small = {}, {}
    for name, saved in manifest["files"].items():
        if name.startswith("examples."):
            leaves[int(name.split(".")[1])] = _read_array(folder, name, saved, verify)
        else:
            small[name] = np.array(_read_array(folder, name, saved, verify=True))
    return _unflatten(manifest["examples"], leaves), small


def read_rows(array: np.ndarray, starts: np.ndarray, sizes: np.ndarray, out: np.ndarray) -> None:
    """Read runs of rows into the first rows of ``out``.

    Args:
      array: rows on disk or in memory.
      starts: first row of each run.
      sizes: number of rows of each run.
      out: array to write to, contiguous.
    """
    place = memory.file_of(array)
    ends = np.cumsum(sizes)
    if place is None:
        for start, size, end in zip(starts.tolist(), sizes.tolist(), ends.tolist(), strict=True):
            out[end - size : end] = array[start : start + size]
        return
    if not starts.size:
        return
    path, shift = place
    row_bytes = array.dtype.itemsize * int(np.prod(array.shape[1:], dtype=np.int64))
    target = memory.bytes_of(out)
    gaps, runs = (starts[1:] - (starts[:-1] + sizes[:-1])) * row_bytes, sizes * row_bytes
    near = (gaps >= 0) & (gaps <= _NEAR_BYTES) & (runs[1:] <= _SHORT_BYTES)
    heads = np.concatenate([[0], np.flatnonzero(~near) + 1])
    tails = np.concatenate([heads[1:], [starts.size]]) - 1
    spans = np.stack(
        [starts[heads], starts[tails] + sizes[tails], (ends - sizes)[heads], ends[tails]]
    )
    alone = heads == tails
    with memory.opened(path) as descriptor:
        first, _, begins, stops = spans[:, alone] * row_bytes
        parts = [target[a:b] for a, b in zip(begins.tolist(), stops.tolist(), strict=True)]
        memory.fill(parts, (shift + first).tolist(), descriptor, path)
        for index in np.flatnonzero(~alone):
            start, stop, begin, end = spans[:, index].tolist()
            span = np.empty((stop - start, *array.shape[1:]), array.dtype)
            position = shift + start * row_bytes
            memory.fill([memory.bytes_of(span)], [position], descriptor, path)
            runs = slice(heads[index], tails[index] + 1)
            shifts = starts[runs] - start - ((ends - sizes)[runs] - begin)
            rows = np.arange(end - begin) + np.repeat(shifts, sizes[runs])
            np.take(span, rows, 0, out=out[begin:end], mode="clip")


def _flatten(examples: PyTree, leaves: list[np.ndarray]) -> Any:
    """Return the structure as JSON with numbers for leaves, which are appended in their order."""
    if type(examples) is dict and all(isinstance(name, str) for name in examples):
        return {name: _flatten(part, leaves) for name, part in sorted(examples.items())}
    if type(examples) in (list, tuple):
        return [type(examples).__name__, *(_flatten(part, leaves) for part in examples)]
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
    memory.require_file(path)
    try:
        manifest = json.loads(path.read_text("utf-8"))
        digest = manifest.pop("sha256")
        known = manifest["format"] == _FORMAT and digest == _digest_of(manifest)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        known = False
        manifest = {}
    if not known:
        raise ValueError(
            f"{path} is not a manifest that this version wrote, or has changed since; make the "
            "folder again with save_clients."
        )
    return manifest


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(array.reshape(-1).view(np.uint8).data).hexdigest()


def _digest_of(manifest: dict) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
