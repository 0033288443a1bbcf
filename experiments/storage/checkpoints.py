"""Checkpoints: one file for each part of a grid, with a state and notes.

A file gets its name once it is on disk, so that a crash leaves the one before.
"""

import json
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.report.rows import replacing
from fcojax import State


def save(path: pathlib.Path, state: State, notes: dict[str, Any]) -> None:
    """Write a state and wait until it is on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    leaves = jax.tree.leaves(state)
    arrays = [np.asarray(jax.random.key_data(x) if _is_key(x) else x) for x in leaves]
    with replacing(path) as file:
        np.savez(file, *arrays, notes=np.array(json.dumps(notes)))


def load(path: pathlib.Path) -> tuple[dict[str, Any], list[np.ndarray]] | None:
    """Return notes and arrays; ``None`` if there is no file or it is damaged."""
    if not path.exists():
        return None
    try:
        # Each array has a checksum, which is compared when its last byte is read.
        with np.load(path) as found:
            leaves = [found[f"arr_{place}"] for place in range(len(found.files) - 1)]
            return json.loads(str(found["notes"])), leaves
    except OSError:  # the file may be sound: no permission, too many open files
        raise
    except Exception:  # a damaged file may raise any
        return None


def state_of(leaves: list[np.ndarray], like: State) -> State:
    """Return the state of its arrays, with the structure of ``like``, on the host."""
    shapes, structure = jax.tree.flatten(like)
    found = [_typed(leaf, shape) for leaf, shape in zip(leaves, shapes, strict=True)]
    return jax.tree.unflatten(structure, found)


def parts_of(folder: pathlib.Path, num_points: int, size: int) -> list[np.ndarray]:
    """Split the points of a grid into parts of at most ``size`` points, each with its own file.

    A run that resumes with more or less memory keeps the stored parts, up to the first one that is
    now too large.
    """
    names = [path.stem.partition("-") for path in folder.glob("*.npz")]
    stored = sorted((int(a), int(b)) for a, _, b in names if a.isdecimal() and b.isdecimal())
    parts, first = [], 0
    for begin, end in stored:
        if begin == first and end - begin < size and end < num_points:
            parts.append(np.arange(begin, end + 1))
            first = end + 1
    while first < num_points:
        parts.append(np.arange(first, min(first + size, num_points)))
        first = int(parts[-1][-1]) + 1
    return parts


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _typed(leaf: np.ndarray, like: Any) -> Any:
    """Return a leaf as the key that it was, or with a type that numpy does not have."""
    if _is_key(like):
        return jax.random.wrap_key_data(jnp.asarray(leaf))
    return leaf if leaf.dtype == like.dtype else leaf.view(like.dtype)
