"""Checkpoints of the server: its progress after every round, by Orbax.

There is one for every round, because a site keeps its state before and after its last upload only:
it cannot go back further than the server's last round.
"""

import json
import os
import pathlib
import shutil
from typing import Any

import numpy as np

_FACTS = "run.json"


def run_of(folder: str | os.PathLike, sites: list[str], run: str) -> str:
    """Return the name of the run in a folder, after writing it there if the folder is new.

    Args:
      folder: the folder; made if it does not exist.
      sites: names of the sites; raise ``ValueError`` if the run has others.
      run: the name if the run is new.
    """
    path = pathlib.Path(folder) / _FACTS
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"run": run, "sites": sites}), "utf-8")
    facts = json.loads(path.read_text("utf-8"))
    if facts["sites"] != sites:
        raise ValueError(
            f"{folder} has a run of the sites {facts['sites']} and not {sites}; start those, or "
            "pass another folder."
        )
    return facts["run"]


def save(folder: str | os.PathLike, progress: Any) -> None:
    """Write a checkpoint and remove those before it.

    Args:
      folder: the folder.
      progress: the server's progress.
    """
    from orbax.checkpoint import v1 as ocp

    folder = pathlib.Path(folder).resolve()
    before = _saved(folder)
    place = os.fspath(folder / f"round_{progress.round}")
    ocp.save(place, progress._replace(round=np.array(progress.round)))
    for old in before:
        shutil.rmtree(old)


def restored(folder: str | os.PathLike, fresh: Any) -> Any:
    """Return the last progress that was saved, or the fresh one.

    Args:
      folder: the folder.
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
