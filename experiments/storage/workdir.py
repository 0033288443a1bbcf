"""The folder of a run: checks whether a command may resume it, and allows one writer."""

import contextlib
import itertools
import json
import pathlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import filelock

from experiments.process.invocation import UserError
from experiments.report import rows as tidy
from experiments.storage.provenance import CODE, COMPILED, NUMBERS, difference

# All files that a run writes; no others are ever removed.
_FILES = ("config.json", "rows.jsonl", "summary.json", "index.html")
_FOLDERS = ("checkpoints", "models", "figures", COMPILED)
# Changes that a resumed run reports.
_TOLD = (*CODE, "versions", "device_kind", "xla_flags")


def refuse_links(folder: pathlib.Path) -> None:
    """Raise ``UserError`` if what a run reads and writes in its folder is a link or a device.

    Through a link in a folder of somebody else a run would write to files of yours, and for a named
    pipe it would wait.
    """
    for name in (*_FILES, *_FOLDERS, "lock"):
        for path in itertools.chain([folder / name], (folder / name).rglob("*")):
            is_odd = path.exists() and not (path.is_file() or path.is_dir())
            if is_odd or path.is_symlink():
                raise UserError(
                    f"{path} is a link or a device; remove it, or pass another --workdir."
                )


def read_json(file: pathlib.Path) -> dict[str, Any] | None:
    """Return the content of a file; nothing if there is no file, ``None`` if it is damaged."""
    try:
        return {} | json.loads(file.read_text("utf-8")) if file.exists() else {}
    except (ValueError, TypeError, RecursionError):
        return None


class Workdir:
    """The folder that a run writes to.

    Attributes:
      path: the folder.
      overwrite: whether to remove a run that the folder already holds.
      resume: ``anyway`` to resume such a run even if code has changed.
    """

    def __init__(self, path: str, overwrite: bool, resume: str, say: Callable[[str], None]):
        """Open the folder, which need not exist; ``say`` takes messages for the user."""
        self.path = pathlib.Path(path).expanduser()
        self.overwrite, self.resume, self._say = overwrite, resume, say

    def look(self, ours: dict[str, Any]) -> dict[str, Any]:
        """Return the summary of this run so far; it is empty for a new run.

        Raises:
          UserError: if the folder holds something else.
        """
        refuse_links(self.path)
        theirs = read_json(self.path / "config.json")
        found = self.path.iterdir() if theirs == {} and self.path.is_dir() else ()
        if any(path.name != "lock" for path in found):
            raise UserError(
                f"{self.path} is neither an empty folder nor a run of fcojax; pass another "
                "--workdir."
            )
        if self.overwrite or theirs == {}:
            return {}
        if theirs is None or "layout" not in theirs:
            raise UserError(
                f"{self.path / 'config.json'} is damaged or of another program; pass --overwrite "
                "to remove what runs write there, or another --workdir."
            )
        if not (self.path / "rows.jsonl").exists():
            return {}
        remedy = "pass another --workdir, or --overwrite to remove that run first"
        if other := difference(theirs, ours, NUMBERS):
            raise UserError(f"{self.path} holds a run {other}; {remedy}.")
        if (changed := difference(theirs, ours, CODE)) and self.resume != "anyway":
            raise UserError(
                f"{self.path} holds a run {changed}; {remedy}, or --resume=anyway to go on with "
                "what may give other numbers."
            )
        return read_json(self.path / "summary.json") or {}

    def refuse_other_data(self, fingerprint: str) -> None:
        """Store a hash of a private run's clients; refuse to continue with others.

        Both would add the same noise, so the difference of two releases would have none.
        """
        known = read_json(self.path / "config.json") or {}
        if known.setdefault("data", fingerprint) != fingerprint:
            raise UserError(
                f"{self.path} holds a private run on other data, whose noise this one would "
                "repeat; pass another --workdir and other seeds."
            )
        tidy.write_json(self.path / "config.json", known)

    @contextlib.contextmanager
    def claimed(self, ours: dict[str, Any]) -> Iterator[None]:
        """Hold the folder within the ``with`` block; without rows it is a new run."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"{self.path} cannot be made: {error.strerror}; pass another --workdir."
            ) from error
        # The system releases the lock of a process that has ended.
        lock = filelock.FileLock(self.path / "lock", blocking=False)
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(lock)
            except filelock.Timeout:
                raise UserError(
                    f"another process is writing to {self.path}; wait for it, end it, or pass "
                    "another --workdir."
                ) from None
            self.look(ours)
            if self.overwrite or not (self.path / "rows.jsonl").exists():
                self._clear()
                tidy.write_json(self.path / "config.json", ours)
            known = read_json(self.path / "config.json") or {}
            if changed := difference(known, ours, _TOLD):
                self._say(f"the run in {self.path} was begun {changed}.")
            yield

    def _clear(self) -> None:
        """Remove the files of a run, the config last, because it identifies the run."""
        for name in _FOLDERS:
            if (self.path / name).is_dir():
                shutil.rmtree(self.path / name)
        for name in (*_FILES[1:], *(f"{pathlib.Path(file).stem}.partial" for file in _FILES)):
            (self.path / name).unlink(missing_ok=True)
        (self.path / _FILES[0]).unlink(missing_ok=True)
