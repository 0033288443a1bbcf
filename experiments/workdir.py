"""The folder of a run: whose it is, whether this command may go on in it, and its one writer."""

import contextlib
import datetime
import json
import pathlib
import shutil
from collections.abc import Callable, Iterator
from typing import Any

from experiments import lock
from experiments.endings import Refused
from experiments.ledger import Ledger
from experiments.provenance import change_of_code, difference, remarks
from experiments.report import rows as tidy

# All that a run writes; nothing else is ever removed.
_FILES = ("config.json", "rows.jsonl", "summary.json", "chunks.json", "index.html")
_FOLDERS = ("checkpoints", "models", "figures", "tensorboard", "profile")
RESUME = ("yes", "no", "anyway")


class Workdir:
    """Where a run goes.

    Attributes:
      path: the folder.
      overwrite: whether a run that is there already is removed first.
      resume: whether one is gone on with: ``yes``, ``no``, or ``anyway``, also if code changed.
    """

    def __init__(self, path: str, overwrite: bool, resume: str, say: Callable[[str], None]):
        """Refuses what can never be a folder; ``say`` is told what the user may want to know."""
        self.path = pathlib.Path(path).expanduser()
        self.overwrite, self.resume, self._say = overwrite, resume, say
        try:
            path.encode()
        except UnicodeEncodeError:
            raise Refused(
                f"--workdir={ascii(path)} has letters that the locale has not; set LC_ALL=C.UTF-8."
            ) from None
        if self.path.is_symlink() and not self.path.exists():
            raise Refused(f"{path} is a link to nowhere; pass another --workdir.")
        if self.path.exists() and not self.path.is_dir():
            raise Refused(f"{path} is a file; pass a folder as --workdir.")

    def look(self, ours: dict[str, Any]) -> dict[str, Any]:
        """The summary so far of this very run, empty if there is none.

        Raises ``Refused`` if the folder holds something else.
        """
        theirs = self._known()
        if theirs is None:
            found = list(self.path.iterdir()) if self.path.is_dir() else []
            if any(path.name != "lock" for path in found):
                raise Refused(
                    f"{self.path} is not an empty folder and no run of ours; pass another "
                    "--workdir."
                )
            return {}
        if self.overwrite:
            return {}
        if self.resume == "no":
            raise Refused(
                f"{self.path} holds a run already and --resume=no was passed; pass --overwrite "
                "or another --workdir."
            )
        other = difference(theirs, ours)
        if other:
            raise Refused(
                f"{self.path} holds a run {other}; pass another --workdir, or --overwrite to "
                "remove that run first."
            )
        changed = change_of_code(theirs, ours)
        if changed and self.resume != "anyway":
            raise Refused(
                f"{self.path} holds a run {changed}; pass another --workdir, --overwrite to start "
                "anew, or --resume=anyway to go on with what may give other numbers."
            )
        found = remarks(theirs, ours) if ours["options"].get("deterministic") else []
        if found:
            raise Refused(
                f"{self.path} holds a run that is --deterministic, but {'; '.join(found)}; go on "
                "where it was begun, or pass another --workdir."
            )
        return self._summary()

    @contextlib.contextmanager
    def claimed(self, ours: dict[str, Any], resumes: bool) -> Iterator[dict[str, Any]]:
        """Holds the folder while the block runs; gives the summary so far.

        A command that fails before it has a row, or whose rows nobody would go on with, leaves the
        folder as it was, or none.
        """
        made = [path for path in (self.path, *self.path.parents) if not path.exists()]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Refused(
                f"{self.path} cannot be made: {error.strerror}; pass another --workdir."
            ) from error
        try:
            with lock.held(self.path / "lock", self._say):
                summary = self.look(ours)
                fresh = self.overwrite or self._known() is None
                try:
                    if fresh:
                        self._clear()
                        tidy.write_json(self.path / "config.json", ours)
                    else:
                        self._note_resumption(ours)
                    yield summary
                finally:
                    if fresh and not self._is_worth_keeping(resumes):
                        with contextlib.suppress(OSError):
                            self._clear()
        finally:
            for folder in made:
                with contextlib.suppress(OSError):
                    folder.rmdir()  # only if it is empty

    def ledger(self) -> Ledger:
        """The rows so far."""
        return Ledger(self.path / "rows.jsonl")

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Writes the summary so far."""
        tidy.write_json(self.path / "summary.json", summary)

    def _known(self) -> dict[str, Any] | None:
        """What the folder says about its run; ``None`` if there is none."""
        file = self.path / "config.json"
        if not file.exists():
            return None
        try:
            known = json.loads(file.read_text("utf-8"))
            known["config"].items()
        except (ValueError, KeyError, TypeError, AttributeError):
            if self.overwrite:
                return {}
            raise Refused(
                f"{file} was damaged, so nobody knows what the rows beside it are; pass "
                "--overwrite to start anew, or another --workdir."
            ) from None
        return known

    def _summary(self) -> dict[str, Any]:
        file = self.path / "summary.json"
        if not file.exists():
            return {}
        try:
            summary = json.loads(file.read_text("utf-8"))
            return {} | summary
        except (ValueError, TypeError):
            self._say(f"{file} was damaged and is made anew from the rows.")
            return {}

    def _note_resumption(self, ours: dict[str, Any]) -> None:
        """Notes who goes on with the run, and says what is different from the last time."""
        known = self._known() or {}
        last = known | (known.get("resumed") or [{}])[-1]
        found = remarks(last, ours)
        changed = change_of_code(known, ours)
        found += [f"it was begun {changed}"] if changed else []
        if not found:
            return
        self._say(f"going on with the run in {self.path}, but {'; '.join(found)}.")
        when = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        names = ("command", "versions", "devices", "device_kind", "xla_flags", "git_commit")
        entry = {name: ours[name] for name in names} | {"when": when, "differs": found}
        known.setdefault("resumed", []).append(entry)
        tidy.write_json(self.path / "config.json", known)

    def _is_worth_keeping(self, resumes: bool) -> bool:
        """Whether the run is finished, or has rows that the same command goes on from."""
        with contextlib.suppress(OSError, Refused):
            if resumes:
                return (self.path / "rows.jsonl").stat().st_size > 0
            return bool(self._summary().get("finished"))
        return False

    def _clear(self) -> None:
        """Removes what a run writes, the config last, so that it is known for one until then."""
        for name in _FOLDERS:
            if (self.path / name).is_dir():
                shutil.rmtree(self.path / name)
        for name in (*_FILES[1:], *(f"{pathlib.Path(file).stem}.partial" for file in _FILES)):
            (self.path / name).unlink(missing_ok=True)
        (self.path / _FILES[0]).unlink(missing_ok=True)
