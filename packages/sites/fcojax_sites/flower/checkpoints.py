"""Checkpoints of the server: its progress after every round, by Orbax.

There is a checkpoint for every round, because a site keeps only its states before and after its
last upload, and so cannot go back further.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np

from fcojax_sites.flower.federation import difference

_FACTS = "run.json"


@contextlib.contextmanager
def private() -> Iterator[None]:
    """Make files that the block creates readable by their owner alone."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


@contextlib.contextmanager
def held(folder: str | os.PathLike | None) -> Iterator[None]:
    """Keep other runs from a folder while the block runs.

    Args:
      folder: the folder of the checkpoints; made if it does not exist. ``None`` for none.
    """
    if folder is None:
        yield
        return
    path = pathlib.Path(folder) / "lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # let go when the process ends
        except BlockingIOError:
            raise ValueError(
                f"another run is writing to {folder}; end it, or pass another folder."
            ) from None
        yield


def run_of(folder: str | os.PathLike, facts: dict[str, str], run: str) -> str:
    """Return the name of the run in a folder, after writing it there if the folder is new.

    Args:
      folder: the folder of the checkpoints.
      facts: facts that must not change during a run; raise ``ValueError`` if one has.
      run: the name if the run is new.
    """
    path = pathlib.Path(folder) / _FACTS
    if not path.exists():
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps({"run": run, "facts": facts}), "utf-8")
        unfinished.replace(path)
    begun = json.loads(path.read_text("utf-8"))
    changed = difference(facts, begun["facts"], "now")
    if changed is not None:
        raise ValueError(
            f"{folder} has another run: {changed}; continue that one, or pass another folder."
        )
    return begun["run"]


def save(folder: str | os.PathLike, progress: Any) -> None:
    """Write a checkpoint and remove the earlier ones.

    Args:
      folder: the folder of the checkpoints.
      progress: the server's progress.
    """
    from orbax.checkpoint import v1 as ocp

    folder = pathlib.Path(folder).resolve()
    before = _saved(folder)
    place = os.fspath(folder / f"round_{progress.round}")
    state = progress._replace(round=np.array(progress.round))
    with private():  # the progress has the key of the run
        try:
            ocp.save(place, state)
        except TimeoutError:  # Orbax waits by the wall clock, which has jumped
            ocp.save(place, state, overwrite=True)
    for old in before:
        shutil.rmtree(old)


def restored(folder: str | os.PathLike, fresh: Any) -> Any:
    """Return the last progress that was saved, or the fresh one.

    Args:
      folder: the folder of the checkpoints.
      fresh: the progress before the first round.
    """
    from orbax.checkpoint import v1 as ocp

    saved = _saved(pathlib.Path(folder).resolve())
    if not saved:
        return fresh
    found = ocp.load(os.fspath(saved[-1]), fresh._replace(round=np.array(0)))
    return found._replace(round=int(found.round), counted=np.asarray(found.counted))


def _saved(folder: pathlib.Path) -> list[pathlib.Path]:
    """Return complete checkpoints, the newest last."""
    found = [path for path in folder.glob("round_*") if path.name[6:].isdigit()]
    return sorted(found, key=lambda path: int(path.name[6:]))
