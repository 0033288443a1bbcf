"""Checkpoints of one part of a grid: the last three, each one file with a state and notes.

A file gets its name once it is on disk. A file with a wrong checksum is removed, and the one before
it is used.
"""

import json
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.report.rows import replacing
from fcojax import State

_KEPT = 3


class Checkpoint(NamedTuple):
    """A state that was saved.

    Attributes:
      round: the number of rounds before it.
      notes: the notes that were saved with it.
      leaves: its arrays; ``state_of`` makes the state from them.
    """

    round: int
    notes: dict[str, Any]
    leaves: list[np.ndarray]


def save(folder: pathlib.Path, number: int, state: State, notes: dict[str, Any]) -> None:
    """Write the state of round ``number`` and wait until it is on disk."""
    folder.mkdir(parents=True, exist_ok=True)
    leaves = [np.asarray(_without_key(leaf)) for leaf in jax.tree.leaves(state)]
    with replacing(folder / f"{number}.npz", beside="partial") as file:
        np.savez(file, *leaves, notes=np.array(json.dumps(notes)))
    for path in _newest_first(folder)[_KEPT:]:
        path.unlink()


def newest(
    folder: pathlib.Path,
    refused: Callable[[int, dict[str, Any]], str | None],
    say: Callable[[str], None],
) -> Checkpoint | None:
    """Return the newest checkpoint that is sound and not refused; remove those after it.

    Args:
      folder: the folder, which need not exist.
      refused: ``(round, notes)`` -> the reason to refuse a checkpoint, or ``None``.
      say: called with a message about each checkpoint that is removed.
    """
    for path in _newest_first(folder):
        number, notes, leaves = int(path.stem), {}, []
        try:
            # Each array has a checksum, which is compared when its last byte is read.
            with np.load(path) as found:
                notes = json.loads(str(found["notes"]))
                leaves = [found[f"arr_{place}"] for place in range(len(found.files) - 1)]
            wrong = refused(number, notes)
        except OSError:  # the file may be sound: no permission, too many open files
            raise
        except Exception:  # a damaged file may raise any
            wrong = "its content differs from what was saved"
        if wrong is None:
            return Checkpoint(number, notes, leaves)
        say(f"the checkpoint {path} is not used, because {wrong}.")
        path.unlink()
    return None


def state_of(leaves: list[np.ndarray], like: State) -> State:
    """Return the state that was saved, with the structure of ``like``.

    It is on the host, so that it can be moved to any devices.
    """
    shapes = jax.tree.leaves(like)
    found = [_as_key(leaf, shape) for leaf, shape in zip(leaves, shapes, strict=True)]
    return jax.tree.unflatten(jax.tree.structure(like), found)


def parts_of(folder: pathlib.Path, num_points: int, size: int) -> list[np.ndarray]:
    """Split the points of a grid into parts of at most ``size`` points, each with its own folder.

    A run that resumes with more or less memory keeps the stored parts, up to the first one that is
    now too large.
    """
    names = [path.name.partition("-") for path in folder.iterdir()] if folder.is_dir() else []
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


def _newest_first(folder: pathlib.Path) -> list[pathlib.Path]:
    paths = [path for path in folder.glob("*.npz") if path.stem.isdecimal()]
    return sorted(paths, key=lambda path: int(path.stem), reverse=True)


def _without_key(leaf: Any) -> Any:
    """Return a leaf as numbers; a key is returned as its data."""
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def _as_key(leaf: np.ndarray, like: Any) -> Any:
    """Return a leaf as the key that it was, or with a type that numpy does not have."""
    if jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(leaf))
    return leaf if leaf.dtype == like.dtype else leaf.view(like.dtype)
