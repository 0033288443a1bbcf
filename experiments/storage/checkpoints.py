"""Checkpoints of one part of a grid: the last three, each with a hash of its state and notes.

They are written while the run continues, and renamed when they are complete. A checkpoint with a
wrong hash is removed, and the one before it is used.
"""

import contextlib
import errno
import hashlib
import json
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from orbax.checkpoint import v1 as ocp

from experiments.storage import orbax_single
from fcojax import State

_KEPT = 3


class Checkpoints:
    """The checkpoints of one part of a grid, in one folder, by round."""

    def __init__(self, folder: pathlib.Path, say: Callable[[str], None]):
        """Open the folder, which need not exist; ``say`` reports removed checkpoints."""
        self.folder, self._say = folder, say
        self._writer: Any = None
        self._saving: Any = None

    def rounds(self) -> list[int]:
        """Return the rounds that have a checkpoint, the newest first."""
        if not self.folder.is_dir():
            return []
        names = [path.name for path in self.folder.iterdir() if path.is_dir()]
        return sorted((int(name) for name in names if name.isdecimal()), reverse=True)

    def newest(self, accept: Callable[[int, dict[str, Any]], str | None]) -> int | None:
        """Return the newest round whose notes are accepted; remove the checkpoints after it.

        ``accept`` gets the round and its notes, and returns the reason to refuse them, or ``None``.
        """
        for step in self.rounds():
            notes = self.notes(step)
            wrong = "its notes cannot be read" if notes is None else accept(step, notes)
            if wrong is None:
                self._remove_remains(step)
                return step
            self.remove(step, wrong)
        return None

    def notes(self, step: int) -> dict[str, Any] | None:
        """Return the notes beside a state; ``None`` if they are unreadable. See ``load``."""
        try:
            with self._reader() as reader:
                return dict(reader.metadata(step).custom_metadata)
        except Exception:  # anything, if a file is damaged
            return None

    def load(self, step: int) -> list[np.ndarray] | None:
        """Return the leaves of a round's state; remove it if the hash is wrong."""
        notes = self.notes(step) or {}
        try:
            with self._reader() as reader:
                found = reader.load(step)
            leaves = [np.asarray(found[_name(place)]) for place in range(len(found))]
        except Exception:  # as above
            leaves = []
        if not leaves or notes.pop("hash", None) != _hash(leaves, notes):
            self.remove(step, "its content differs from what was saved")
            return None
        return leaves

    def save(self, step: int, states: State, notes: dict[str, Any]) -> None:
        """Write a state while the run continues, one at a time.

        Args:
          step: its round.
          states: the state. Arrays on a device are copied, as the next block overwrites them.
          notes: the notes written beside it.
        """
        self.wait()
        if step in self.rounds():
            return
        leaves = [_without_key(leaf) for leaf in jax.tree.leaves(states)]
        leaves = [
            (np.array(leaf) if isinstance(leaf, jax.Array) else leaf).view(_Owned)
            for leaf in leaves
        ]
        notes = notes | {"hash": _hash(leaves, notes)}
        named = {_name(place): leaf for place, leaf in enumerate(leaves)}

        def begin() -> Any:
            if self._writer is None:
                self._writer = self._open()
            return self._writer.save_async(step, named, custom_metadata=notes)

        self._saving = begin(), begin

    def wait(self) -> None:
        """Wait until everything is on disk; raise an error if it could not be written."""
        saving, self._saving = self._saving, None
        if saving is None:
            return
        saved, begin = saving
        try:
            try:
                saved.result()
            except TimeoutError:  # orbax waits by the wall clock, which can jump
                self._again(begin)
        except Exception as error:
            if self.folder.is_dir():
                raise
            gone = os.strerror(errno.ENOENT)
            raise FileNotFoundError(errno.ENOENT, gone, os.fspath(self.folder)) from error

    def _again(self, begin: Callable[[], Any]) -> None:
        """Write again; files of the first attempt may exist for a moment."""
        for pause in (0.0, 0.2, 0.5, 1.0, None):
            self._writer = None
            try:
                begin().result()
                return
            except (TimeoutError, OSError):
                if pause is None:
                    raise
                time.sleep(pause)

    def close(self) -> None:
        """Wait, and close the folder."""
        try:
            self.wait()
        finally:
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.close()

    def remove(self, step: int, why: str) -> None:
        """Remove a checkpoint and report why."""
        self._say(f"the checkpoint {self.folder / str(step)} is not used, because {why}.")
        shutil.rmtree(self.folder / str(step))

    def _remove_remains(self, newest: int) -> None:
        """Remove older checkpoints whose removal was interrupted."""
        for step in self.rounds():
            folder = self.folder / str(step)
            if step < newest and not (folder / "_CHECKPOINT_METADATA").exists():
                shutil.rmtree(folder)

    @contextlib.contextmanager
    def _reader(self) -> Iterator[Any]:
        reader = self._open()
        try:
            yield reader
        finally:
            reader.close()

    def _open(self) -> Any:
        if jax.process_count() > 1:
            return orbax_single.Checkpointer(self.folder, _KEPT)
        return ocp.training.Checkpointer(
            os.fspath(self.folder.absolute()),
            preservation_policy=ocp.training.preservation_policies.LatestN(_KEPT),  # pyright: ignore
            cleanup_tmp_directories=True,
        )


class _Owned(np.ndarray):
    """An array that does not change, so orbax need not copy it before it saves it."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Owned":
        """Return the array itself."""
        return self


def state_of(leaves: list[np.ndarray], like: State) -> State:
    """Return the state that was saved, with the structure of ``like``.

    It is on the host, so that it can be moved to any devices.
    """
    shapes = jax.tree.leaves(like)
    found = [_as_key(leaf, shape) for leaf, shape in zip(leaves, shapes, strict=True)]
    return jax.tree.unflatten(jax.tree.structure(like), found)


def parts_of(folder: pathlib.Path, num_points: int, size: int) -> list[np.ndarray]:
    """Split the points of a grid into parts of at most ``size``, along the stored parts.

    A run that resumes with different devices or memory may need different parts; a stored part is
    split if it is too large now, but never joined with another.
    """
    stored = [_range(path) for path in folder.iterdir()] if folder.is_dir() else []
    narrow = sorted((found for found in stored if found), key=lambda part: part[1] - part[0])
    owner = [
        next((part for part in narrow if part[0] <= point <= part[1]), None)
        for point in range(num_points)
    ]
    parts: list[list[int]] = []
    for point in range(num_points):
        alike = point and owner[point] == owner[point - 1] and len(parts[-1]) < size
        if alike:
            parts[-1].append(point)
        else:
            parts.append([point])
    return [np.array(part) for part in parts]


def folder_of(folder: pathlib.Path, points: np.ndarray) -> pathlib.Path:
    """Return the folder for the checkpoints of a part."""
    return folder / f"{points[0]}-{points[-1]}"


def holding(folder: pathlib.Path, points: np.ndarray) -> list[pathlib.Path]:
    """Return the folders that may hold checkpoints of these points, the narrowest first."""
    found = [(_range(path), path) for path in folder.iterdir()] if folder.is_dir() else []
    around = [
        (part[1] - part[0], path)
        for part, path in found
        if part and part[0] <= points[0] and points[-1] <= part[1]
    ]
    return [path for _, path in sorted(around)]


def _range(path: pathlib.Path) -> tuple[int, int] | None:
    first, _, last = path.name.partition("-")
    return (int(first), int(last)) if first.isdecimal() and last.isdecimal() else None


def _name(place: int) -> str:
    return f"leaf_{place:04}"


def _without_key(leaf: Any) -> Any:
    """Return a leaf as numbers; the data of a key."""
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def _as_key(leaf: np.ndarray, like: Any) -> Any:
    """Return a leaf as a key again, if it was one."""
    is_key = jnp.issubdtype(like.dtype, jax.dtypes.prng_key)
    return jax.random.wrap_key_data(jnp.asarray(leaf)) if is_key else leaf


def _hash(leaves: Sequence[np.ndarray], notes: dict[str, Any]) -> str:
    """Hash every number of a state, its structure and the notes beside it."""
    found = hashlib.sha256(json.dumps(notes, sort_keys=True).encode())
    for leaf in leaves:
        found.update(f"{leaf.dtype} {leaf.shape};".encode())
        found.update(np.ascontiguousarray(leaf).reshape(-1).view(np.uint8).data)
    return found.hexdigest()
