"""The folder of a run: checks whether a command may resume it, and allows one writer."""

import contextlib
import datetime
import hashlib
import itertools
import json
import pathlib
import shutil
import socket
from collections.abc import Callable, Iterator
from typing import Any

import filelock

from experiments.process.errors import UserError
from experiments.report import rows as tidy
from experiments.storage.provenance import change_of_code, difference, remarks
from experiments.storage.row_store import RowStore, fingerprint

# All files that a run writes; no others are ever removed.
_FILES = ("config.json", "rows.jsonl", "summary.json", "index.html")
_FOLDERS = ("checkpoints", "models", "figures")
# Seconds between two refreshes, and seconds without a refresh after which a lease expires.
_BEAT, _SILENT = 5.0, 20.0


def sealed(summary: dict[str, Any]) -> dict[str, Any]:
    """Return a summary with a fingerprint of all its other entries.

    Example:
      >>> summary = sealed({"algorithms": {"fed_avg": {"score": 0.5}}})
      >>> is_sealed(summary), is_sealed(summary | {"algorithms": {}})
      (True, False)
    """
    content = {name: value for name, value in summary.items() if name != "fingerprint"}
    return content | {"fingerprint": fingerprint([tidy.plain(content)])}


def is_sealed(summary: dict[str, Any]) -> bool:
    """Return whether a summary has not changed since ``sealed`` returned it."""
    return summary.get("fingerprint") == sealed(summary)["fingerprint"]


def changed(folder: pathlib.Path, summary: dict[str, Any]) -> list[str]:
    """Return the files of a finished run that have changed since it ended."""
    found = [] if is_sealed(summary) else ["summary.json"]
    rows = RowStore(folder / "rows.jsonl").fingerprints()
    known = {} | summary.get("rows", {})
    return found + ["rows.jsonl"] * any(rows.get(label) != known[label] for label in known)


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
        self._is_told = False  # whether the summary was changed

    def look(self, ours: dict[str, Any]) -> dict[str, Any]:
        """Return the summary of this run so far; it is empty for a new run.

        It has the entry ``finished`` only if its rows and models are unchanged.

        Raises:
          UserError: if the folder holds something else.
        """
        refuse_links(self.path)
        theirs = self._known()
        if theirs is None:
            found = list(self.path.iterdir()) if self.path.is_dir() else []
            if any(not path.name.startswith("lock") for path in found):
                raise UserError(
                    f"{self.path} is neither an empty folder nor a run of fcojax; pass another "
                    f"--workdir."
                )
            return {}
        if self.overwrite:
            return {}
        other = difference(theirs, ours)
        if other:
            raise UserError(
                f"{self.path} holds a run {other}; pass another --workdir, or --overwrite to "
                "remove that run first."
            )
        changed = change_of_code(theirs, ours)
        if changed and self.resume != "anyway":
            raise UserError(
                f"{self.path} holds a run {changed}; pass another --workdir, --overwrite to start "
                "anew, or --resume=anyway to go on with what may give other numbers."
            )
        summary = self._summary()
        if summary.get("finished"):
            made = {"rows": self.rows().fingerprints(), "models": self.models(summary)}
            changed = [name for name, found in made.items() if summary.get(name, {}) != found]
            if changed:
                del summary["finished"]
                what = f"its {' and '.join(changed)} have changed since and are made again"
                self._tell(f"{self.path} was finished, but {what}.")
        return summary

    def refuse_other_data(self, fingerprint: str) -> None:
        """Store a hash of a private run's clients; refuse to continue with others.

        Both would add the same noise, so the difference of two releases would have none.
        """
        known = self._known() or {}
        if known.setdefault("data", fingerprint) != fingerprint:
            raise UserError(
                f"{self.path} holds a private run on other data, whose noise this one would "
                "repeat; pass another --workdir and other seeds."
            )
        tidy.write_json(self.path / "config.json", known)

    @contextlib.contextmanager
    def claimed(self, ours: dict[str, Any], resumes: bool) -> Iterator[None]:
        """Hold the folder within the ``with`` block.

        A command that fails before its first row, or whose rows cannot be resumed, neither changes
        the folder nor leaves a new one.
        """
        made = [path for path in (self.path, *self.path.parents) if not path.exists()]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"{self.path} cannot be made: {error.strerror}; pass another --workdir."
            ) from error
        try:
            with held(self.path / "lock", self._say):
                self.look(ours)
                fresh = self.overwrite or self._known() is None
                try:
                    if fresh:
                        self._clear()
                        tidy.write_json(self.path / "config.json", ours)
                    else:
                        self._note_resumption(ours)
                    yield
                finally:
                    if fresh and not self._is_worth_keeping(resumes):
                        with contextlib.suppress(OSError):
                            self._clear()
        finally:
            for folder in made:
                with contextlib.suppress(OSError):
                    folder.rmdir()  # only if it is empty

    def rows(self) -> RowStore:
        """Read the rows so far."""
        return RowStore(self.path / "rows.jsonl")

    def models(self, summary: dict[str, Any]) -> dict[str, str]:
        """Return a hash of the model of each algorithm of a summary."""
        files = {
            label: self.path / "models" / f"{label}.npz" for label in summary.get("algorithms", {})
        }
        return {
            label: hashlib.sha256(file.read_bytes()).hexdigest()
            for label, file in files.items()
            if file.is_file()
        }

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Write the summary so far."""
        tidy.write_json(self.path / "summary.json", sealed(summary))

    def _known(self) -> dict[str, Any] | None:
        """Return the provenance of the folder's run; ``None`` if there is none."""
        file = self.path / "config.json"
        if not file.exists():
            return None
        try:
            known = json.loads(file.read_text("utf-8"))
            known["config"].items()
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            if self.overwrite:
                return {}
            raise UserError(
                f"{file} is damaged, so the origin of the rows beside it is unknown; pass "
                "--overwrite to start anew, or another --workdir."
            ) from None
        return known

    def _summary(self) -> dict[str, Any]:
        file = self.path / "summary.json"
        if not file.exists():
            return {}
        try:
            summary = {} | json.loads(file.read_text("utf-8"))
            if is_sealed(summary):
                return summary
        except (ValueError, TypeError, RecursionError):
            pass
        self._tell(f"{file} has changed since the run; it is written again from the rows.")
        return {}

    def _tell(self, what: str) -> None:
        """Report a change once."""
        if not self._is_told:
            self._say(what)
        self._is_told = True

    def _note_resumption(self, ours: dict[str, Any]) -> None:
        """Record that the run is resumed, and report what differs from the last time."""
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
        """Return whether the run is finished, or has rows from which it can be resumed."""
        with contextlib.suppress(OSError, UserError):
            if resumes:
                return (self.path / "rows.jsonl").stat().st_size > 0
            return bool(self._summary().get("finished"))
        return False

    def _clear(self) -> None:
        """Remove the files of a run, the config last, because it identifies the run."""
        for name in _FOLDERS:
            if (self.path / name).is_dir():
                shutil.rmtree(self.path / name)
        for name in (*_FILES[1:], *(f"{pathlib.Path(file).stem}.partial" for file in _FILES)):
            (self.path / name).unlink(missing_ok=True)
        (self.path / _FILES[0]).unlink(missing_ok=True)


@contextlib.contextmanager
def held(path: pathlib.Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock within the ``with`` block; raise ``UserError`` if another process holds it.

    The lock is a lease in a file that names its process and machine. The lease of a process on this
    machine that has ended is taken over at once. The lease of a process on another machine is taken
    over if it was not refreshed for some time, by the clock of the waiting process.

    Args:
      path: the lock's file, which is removed afterwards.
      say: called with a message if the lock is taken over or has to be waited for.
    """
    if path.is_dir():
        raise UserError(f"{path} is a folder, where a file has to be; remove it.")
    lease = filelock.SoftFileLease(path, lease_duration=_SILENT, heartbeat_interval=_BEAT)
    holder, end = lease.owner, "which has ended"
    patience = 1.0 if holder else 3.0  # a file that names no process is replaced after 2 s
    host = holder.hostname.partition("?")[0] if holder else ""
    whose = f"process {holder.pid} on {host}" if holder else "another process"
    if holder and host != socket.gethostname():
        say(f"{path.parent} was last held by {whose}; waiting to see whether it is alive.")
        patience, end = 1.5 * _SILENT, "which has been silent"
    try:
        lease.acquire(timeout=patience, poll_interval=_BEAT / 50)
    except filelock.Timeout:
        raise UserError(
            f"{whose} is writing to {path.parent}; wait for it, end it, or pass another --workdir."
        ) from None
    try:
        if holder:
            say(f"took over {path.parent} from {whose}, {end}.")
        yield
    finally:
        lease.release()
