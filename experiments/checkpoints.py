"""Checkpoints of one part of a grid: the last three, each with a seal that tells if it is whole.

They are written beside the run, and appear under their names when they are complete. One that does
not hold what was saved is removed, and the one before it takes its place.
"""

import contextlib
import errno
import hashlib
import json
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from orbax.checkpoint import v1 as ocp

from experiments import of_the_first
from fcojax.engine.state import State

_KEPT = 3


class Checkpoints:
    """The saved states of the points ``first`` to ``last`` of a grid, by round."""

    def __init__(self, folder: pathlib.Path, say: Callable[[str], None]):
        """Opens the folder, which need not exist; ``say`` is told what had to be removed."""
        self.folder, self._say = folder, say
        self._writer: Any = None
        self._saving: Any = None

    def rounds(self) -> list[int]:
        """The rounds of which there is a checkpoint, the newest first."""
        if not self.folder.is_dir():
            return []
        names = [path.name for path in self.folder.iterdir() if path.is_dir()]
        return sorted((int(name) for name in names if name.isdecimal()), reverse=True)

    def newest(self, accept: Callable[[int, dict[str, Any]], str | None]) -> int | None:
        """The newest round whose notes are whole and accepted; those after it are removed.

        ``accept`` gets the round and its notes, and says what is wrong with them, or ``None``.
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
        """What was noted beside a state; ``None`` if that has changed since or is not there."""
        try:
            with self._reader() as reader:
                notes = dict(reader.metadata(step).custom_metadata)
            return notes if notes.pop("seal") == _seal(notes) else None
        except Exception:  # whatever a damaged file makes of the libraries that read it
            return None

    def load(self, step: int) -> list[np.ndarray] | None:
        """The leaves of a round's state; ``None``, and removed, if it is damaged."""
        notes = self.notes(step)
        try:
            with self._reader() as reader:
                found = reader.load(step)
            leaves = [np.asarray(found[_name(place)]) for place in range(len(found))]
        except Exception:  # as above
            leaves = []
        if notes is None or not leaves or _digest(leaves) != notes["state"]:
            self.remove(step, "it does not hold what was saved")
            return None
        return leaves

    def save(self, step: int, states: State, notes: dict[str, Any]) -> None:
        """Writes a state while the run goes on; one at a time."""
        self.wait()
        if step in self.rounds():
            return
        # Copies, for the next block overwrites the states while they are being written.
        leaves = [np.array(_without_key(leaf)) for leaf in jax.tree.leaves(states)]
        notes = notes | {"state": _digest(leaves)}
        named = {_name(place): leaf for place, leaf in enumerate(leaves)}

        def begin() -> Any:
            if self._writer is None:
                self._writer = self._open()
            return self._writer.save_async(
                step, named, custom_metadata=notes | {"seal": _seal(notes)}
            )

        self._saving = begin(), begin

    def wait(self) -> None:
        """Returns when everything is on disk; raises if it could not be written."""
        saving, self._saving = self._saving, None
        if saving is None:
            return
        saved, begin = saving
        try:
            try:
                saved.result()
            except TimeoutError:  # orbax goes by the wall clock, which has jumped
                self._again(begin)
        except Exception as error:
            if self.folder.is_dir():
                raise
            gone = os.strerror(errno.ENOENT)
            raise FileNotFoundError(errno.ENOENT, gone, os.fspath(self.folder)) from error

    def _again(self, begin: Callable[[], Any]) -> None:
        """Writes once more; what the given up attempt still writes may be in the way at first."""
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
        """Waits and lets go of the folder."""
        try:
            self.wait()
        finally:
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.close()

    def remove(self, step: int, why: str) -> None:
        """Removes a checkpoint and says why."""
        self._say(f"the checkpoint {self.folder / str(step)} is not used, because {why}.")
        shutil.rmtree(self.folder / str(step))

    def _remove_remains(self, newest: int) -> None:
        """Removes older checkpoints that were being removed when the process was killed."""
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
            return of_the_first.Checkpointer(self.folder, _KEPT)
        return ocp.training.Checkpointer(
            os.fspath(self.folder.absolute()),
            preservation_policy=ocp.training.preservation_policies.LatestN(_KEPT),  # pyright: ignore
            cleanup_tmp_directories=True,
        )


def state_of(leaves: list[np.ndarray], like: State) -> State:
    """The state that was saved, of the form of ``like``.

    It is on the host and belongs to no device, so these may be others than before.
    """
    wanted = jax.tree.leaves(like)
    found = [_as_key(leaf, shape) for leaf, shape in zip(leaves, wanted, strict=True)]
    return jax.tree.unflatten(jax.tree.structure(like), found)


def parts_of(folder: pathlib.Path, num_points: int, size: int) -> list[np.ndarray]:
    """The points of a grid in parts of at most ``size``, along the parts that are stored already.

    A run that goes on with other devices or other memory may have other parts than before; a part
    that is stored is cut if it is too large now, and never joined with another.
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
    """Where the checkpoints of a part go."""
    return folder / f"{points[0]}-{points[-1]}"


def holding(folder: pathlib.Path, points: np.ndarray) -> list[pathlib.Path]:
    """The folders that may hold checkpoints of these points, the narrowest first."""
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
    """A leaf as numbers, which a key keeps inside."""
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def _as_key(leaf: np.ndarray, like: Any) -> Any:
    """The other way round."""
    is_key = jnp.issubdtype(like.dtype, jax.dtypes.prng_key)
    return jax.random.wrap_key_data(jnp.asarray(leaf)) if is_key else leaf


def _digest(leaves: list[np.ndarray]) -> str:
    """A hash of every number of a state, and of its form."""
    found = hashlib.sha256()
    for leaf in leaves:
        found.update(f"{leaf.dtype} {leaf.shape};".encode())
        found.update(np.ascontiguousarray(leaf).reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def _seal(notes: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(notes, sort_keys=True).encode()).hexdigest()
