"""Models as safetensors: named arrays in a file without code, which other frameworks read.

A file is the length of a header, the header as JSON, and the numbers. The name of an array is the
path to it in its pytree, as in ``layers.0.kernel``.
"""

import json
import math
import os
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.extend import shown, validated
from fcojax.types import PyTree

_CODES = {
    "bool": "BOOL",
    "bfloat16": "BF16",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    **{f"float{bits}": f"F{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
}
_DTYPES = {code: jnp.dtype(name) for name, code in _CODES.items()}
_METADATA = "__metadata__"
_MOST_AXES = 64  # the limit of numpy
# JSON that is nested too deeply to be read is a RecursionError.
_UNREADABLE = AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError


@validated
def dumps(params: PyTree, metadata: dict[str, str] | None = None) -> bytes:
    """Return the arrays of a pytree as the bytes of a safetensors file.

    Args:
      params: a pytree of arrays. Sparse matrices and typed keys are refused.
      metadata: strings by name, kept in the header.

    Example:
      >>> import fcojax, fcojax_sites, jax.numpy as jnp
      >>> model, facts = {"w": jnp.zeros(3, "float32")}, {"algorithm": "fed_avg"}
      >>> data = fcojax_sites.safetensors.dumps(model, facts)
      >>> arrays, metadata = fcojax_sites.safetensors.loads(data)
      >>> arrays["w"].shape, metadata["algorithm"]
      ((3,), 'fed_avg')
    """
    arrays = {name: np.asarray(leaf) for name, leaf in _named(params).items()}
    header: dict[str, Any] = {} if metadata is None else {_METADATA: metadata}
    # Arrays of the widest numbers come first, so that every array is aligned.
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    end = 0
    for name, array in ordered:
        if array.dtype.name not in _CODES:
            raise ValueError(
                f"{name} has dtype {array.dtype}, which safetensors does not support; "
                f"pass {_listed()}."
            )
        begin, end = end, end + array.nbytes
        header[name] = {
            "dtype": _CODES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    numbers = (np.ascontiguousarray(array).tobytes() for _, array in ordered)
    return b"".join([len(text).to_bytes(8, "little"), text, *numbers])


@validated
def loads(data: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Return the arrays by name, and the metadata, of the bytes of a safetensors file.

    Args:
      data: the bytes. They may come from anywhere: nothing in them is run, and other formats are
        refused.

    Example:
      >>> import fcojax, fcojax_sites
      >>> fcojax_sites.safetensors.loads(b"PK")
      Traceback (most recent call last):
      ValueError: these 2 bytes are not safetensors: the header is cut off.
    """
    size = int.from_bytes(data[:8], "little")
    try:
        if len(data) < 8 or size > len(data) - 8:
            raise ValueError("the header is cut off")
        header = json.loads(data[8 : 8 + size].decode())
        metadata = header.pop(_METADATA, {})
        body = memoryview(data)[8 + size :]
        arrays = {name: _array(body, **entry) for name, entry in header.items()}
    except _UNREADABLE as error:
        raise ValueError(f"these {len(data)} bytes are not safetensors: {error}.") from error
    return arrays, metadata


@validated
def filled(like: PyTree, arrays: dict[str, np.ndarray]) -> PyTree:
    """Return a pytree with the structure of another one and these arrays.

    Args:
      like: a pytree of arrays, or of their shapes.
      arrays: arrays by name, as from ``loads``.

    Example:
      >>> import fcojax, fcojax_sites, numpy as np
      >>> fcojax_sites.safetensors.filled({"a": [np.zeros(2)]}, {"a.0": np.array([1.0, 2.0])})
      {'a': [array([1., 2.])]}
    """
    wanted = _named(like)
    expected, found = (
        {name: f"{jnp.result_type(a)}{list(np.shape(a))}" for name, a in given.items()}
        for given in (wanted, arrays)
    )
    for name in sorted(expected | found):
        if expected.get(name) != found.get(name):
            raise ValueError(
                f"the arrays belong to another model: {name} is {found.get(name, 'missing')} and "
                f"not {expected.get(name, 'among those expected')}."
            )
    return jax.tree.unflatten(jax.tree.structure(like), [arrays[name] for name in wanted])


@validated
def save(path: str | os.PathLike, params: PyTree, metadata: dict[str, str] | None = None) -> None:
    """Write a model to a safetensors file, which appears when it is complete.

    Args:
      path: the file, replaced if it exists.
      params: a pytree of arrays.
      metadata: strings by name, kept in the header.

    Example:
      >>> import fcojax, fcojax_sites, jax.numpy as jnp, tempfile
      >>> path = tempfile.mkdtemp() + "/model.safetensors"
      >>> fcojax_sites.safetensors.save(path, {"w": jnp.arange(3, dtype="float32")})
      >>> fcojax_sites.safetensors.load(path)
      {'w': array([0., 1., 2.], dtype=float32)}
    """
    path = pathlib.Path(path)
    unfinished = path.with_name(f".{path.name}.unfinished-{os.getpid()}")
    try:
        unfinished.write_bytes(dumps(params, metadata))
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@validated
def load(path: str | os.PathLike, like: PyTree = None) -> PyTree:
    """Read a model from a safetensors file.

    Args:
      path: the file.
      like: a model of the same form, or its shapes; ``None`` for a dict of arrays by name.

    Example:
      >>> import fcojax, fcojax_sites, jax.numpy as jnp, tempfile
      >>> path, model = tempfile.mkdtemp() + "/model.safetensors", [jnp.ones(2), jnp.zeros(())]
      >>> fcojax_sites.safetensors.save(path, model)
      >>> [leaf.tolist() for leaf in fcojax_sites.safetensors.load(path, like=model)]
      [[1.0, 1.0], 0.0]
    """
    try:
        arrays, _ = loads(pathlib.Path(path).read_bytes())
        return arrays if like is None else filled(like, arrays)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _array(body: memoryview, dtype: str, shape: list[int], data_offsets: list[int]) -> np.ndarray:
    if dtype not in _DTYPES:
        raise ValueError(f"the dtype {shown(dtype)} is not among {_listed()}")
    if len(shape) > _MOST_AXES:  # before the product of a million lengths
        raise ValueError(f"an array has {len(shape)} axes")
    begin, end = data_offsets
    size = math.prod(shape) * _DTYPES[dtype].itemsize
    if not 0 <= begin <= end <= len(body) or end - begin != size or min([0, *shape]) < 0:
        raise ValueError(f"an array of shape {shape} has its numbers at {begin} to {end}")
    return np.frombuffer(body[begin:end], _DTYPES[dtype]).reshape(shape)


def _named(params: PyTree) -> dict[str, Any]:
    """Return the leaves by the names of their paths, in the order of the pytree."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    names = [
        jax.tree_util.keystr(path, simple=True, separator=".") or "params" for path, _ in leaves
    ]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two arrays have the name {twice}; rename one of the fields.")
    named = dict(zip(names, (leaf for _, leaf in leaves), strict=True))
    for name, leaf in named.items():
        kind = getattr(leaf, "dtype", type(leaf))
        number = kind in (bool, np.dtype(bool)) or jnp.issubdtype(kind, jnp.number)
        if isinstance(leaf, np.ma.MaskedArray) or not number:
            raise ValueError(f"{name} is {shown(leaf)}; pass arrays of numbers.")
    return named


def _listed() -> str:
    return ", ".join(_CODES)
