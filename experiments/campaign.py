"""One line of an experiment over its grid, block by block: rows, checkpoints, resume.

A grid runs in parts that fit into memory, and a part up to the next rung of the search. Between two
blocks, and only there, the host looks: the next block is dispatched before the last one's numbers
are read, so the device does not wait for the disk.
"""

import contextlib
import dataclasses
import pathlib
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from experiments import processes
from experiments.checkpoints import Checkpoints, folder_of, holding, parts_of, state_of
from experiments.entries import Entry
from experiments.inspection import refuse_bad_numbers
from experiments.ledger import Ledger
from experiments.lines import Line, keys_of, observer, ready
from experiments.recorder import Recorder
from experiments.report.summary import hparams_of, summarise
from experiments.search import rungs, survivors
from experiments.settings import Settings
from experiments.signals import Watch
from fcojax.engine.grid import num_points, take
from fcojax.engine.state import State
from fcojax.engine.stepper import advance, look, read_model
from fcojax.problems import ClientData, Problem
from fcojax.transforms import Penalty
from fcojax.types import PyTree

_BLOCKS_WORTH_COMPILING = 10


@dataclasses.dataclass
class Campaign:
    """One experiment in one workdir.

    Attributes:
      settings: what to run.
      problem: on what.
      penalty: with which psi.
      workdir: where everything goes.
      optima: the least objective for each strength of the penalty, where it was solved for.
      ledger: the rows.
      on_block: told the label and the share of its rounds that is behind it after every block.
      around_block: entered around each block, with its number; for profilers.
      on_stage: told the label and what takes long where no round ends.
      say: told in a sentence what else the user should know.
      watch: whether a signal has asked to stop.
      debug_nans: whether to end at the first number that is not finite, with its culprit.
      checkpoint_every: seconds between two checkpoints: long enough that saving is a small share of
        the time, short enough to lose little by a crash.
    """

    settings: Settings
    problem: Problem
    penalty: Penalty
    workdir: pathlib.Path
    optima: dict[float, float]
    ledger: Ledger
    on_block: Callable[[str, float], None] = lambda label, share: None
    around_block: Callable[[int], contextlib.AbstractContextManager] = lambda block: (
        contextlib.nullcontext()
    )
    on_stage: Callable[[str, str], None] = lambda label, what: None
    say: Callable[[str], None] = print
    watch: Watch = dataclasses.field(default_factory=Watch)
    debug_nans: bool = False
    checkpoint_every: float = 15.0

    def __post_init__(self):
        """Sets up what all lines have in common."""
        self.keys = keys_of(self.settings.seeds)
        self.observe = observer(self.problem, self.penalty, self.settings.penalty_scales[0])
        self._began = time.monotonic()

    def run(self, entry: Entry) -> dict[str, Any]:
        """Runs or resumes one line over its grid; returns its entry of the summary."""
        self._began = time.monotonic()
        runs = num_points(entry.grid) * len(self.settings.seeds)
        self.on_stage(entry.label, f"compiling for {runs} points and seeds")
        line = self.ready(entry)
        recorder = Recorder(entry.label, entry.grid, self.settings.seeds, self.optima, self.ledger)
        place = self._folder(line), len(line.names), line.size
        parts = processes.told(lambda: parts_of(*place))
        for part in parts:
            self._found(line, recorder, part)  # removes what does not agree with the rows
        while True:
            with self.watch.deferred():
                self._climb(line, recorder, parts)
                fields = entry.grid._fields
                rows = [
                    row
                    for row in self.ledger.of(entry.label)
                    if hparams_of(row, fields) in line.names
                ]
                summary = summarise(rows, fields, self.settings.criterion)
                model = self._model(line, recorder, parts, tuple(summary["best"].values()))
            # A checkpoint that turns out to be damaged is gone now, and its rounds are run again.
            if model is not None:
                if processes.is_first():
                    _save_model(self.workdir / "models" / f"{entry.label}.npz", model)
                return summary | {"seconds": round(time.monotonic() - self._began, 3)}

    def ready(self, entry: Entry) -> Line:
        """The line on the devices there are, in parts that fit into their memory."""
        remember = self.workdir / "chunks.json"
        return ready(entry, self.problem, self.settings, self.keys, self.observe, remember)

    def _climb(self, line: Line, recorder: Recorder, parts: list[np.ndarray]) -> None:
        """Runs all parts from rung to rung."""
        settings, label = self.settings, line.entry.label
        goals = rungs(settings.search, len(line.names), settings.num_rounds, settings.eval_every)
        alive, before, behind = set(line.names), 0, 0
        for goal in goals:
            if behind:
                rows, fields = self.ledger.of(label), line.entry.grid._fields
                alive = survivors(rows, fields, settings.criterion, behind, before)
            left = [part[[line.names[point] in alive for point in part]] for part in parts]
            busy = [number for number, points in enumerate(left) if points.size]
            for place, number in enumerate(busy):
                done = _rounds_done(behind, goal, place / len(busy), 1 / len(busy))
                self._advance(line, recorder, parts[number], left[number], goal, done)
            before, behind = behind, goal

    def _advance(self, line, recorder, part, points, goal, done) -> None:
        """Runs or resumes these points of one part up to round ``goal``."""
        self.watch.stop_if_asked()
        checkpoints, step = self._found(line, recorder, part)
        if step is not None and step >= goal:
            if processes.is_first():
                self._take_over_seconds(checkpoints.notes(step))
            return
        restored = self._restore(checkpoints, step, line, recorder, points)
        if restored is None:
            recorder.forget(points, -1)
            padded = _padded(points, line.data)
            grid = take(line.entry.grid, padded)
            states = line.start(grid, self.problem, self.keys)
            seen = look(line.entry.algorithm, grid, states, self.observe, line.context)
            recorder.add(0, points, jax.device_get(processes.whole(seen)))
        else:
            states, points = restored
            recorder.forget(points, int(states.round))
        writer = Checkpoints(folder_of(self._folder(line), part), self.say)
        with contextlib.closing(writer):
            self._blocks(line, recorder, writer, (part, points), states, goal, done)
        processes.agreed(0)  # nobody goes on, or ends, before the first has saved
        self.watch.stop_if_asked()

    def _blocks(self, line, recorder, writer, which, states: State, goal, done) -> None:
        """Block after block from these states, with a checkpoint now and then and at the end."""
        part, points = which
        entry, every = line.entry, self.settings.eval_every
        saved = time.monotonic()
        pending: list[tuple[int, np.ndarray, PyTree]] = []

        def write_down(looks):
            for rounds, points, history in looks:
                seen = jax.device_get(processes.whole(history))
                seen = jax.tree.map(lambda leaf: leaf[..., 0], seen)
                recorder.add(rounds, points, seen)
                self.on_block(entry.label, done(rounds) / self.settings.num_rounds)

        def save():
            step, stored = int(states.round), _without_padding(states, line.data.num_clients)
            stored = processes.whole(stored)
            notes = {
                "seconds": time.monotonic() - self._began,
                "points": _padded(points, line.data).tolist(),
                "rows": recorder.fingerprint(part, step),
            }
            if processes.is_first():
                writer.save(step, stored, notes)

        for block in range(int(states.round) // every, goal // every):
            states, left = self._without_diverged(line, recorder, states, points, block, goal)
            if not left.size:
                break
            points = left
            before = states
            with self.around_block(block):
                states, history = self._block(line, points, states)
                if self.debug_nans:
                    refuse_bad_numbers(line, before, points, every, history)
                pending.append(((block + 1) * every, points, history))
                write_down(pending[:-1])
                del pending[:-1]
            due = int(time.monotonic() - saved > self.checkpoint_every)
            asked, due = processes.agreed(self.watch.asked or 0, due)
            if asked:
                self.watch.asked = asked
                break
            if due:
                write_down(pending)
                pending.clear()
                save()
                saved = time.monotonic()
        write_down(pending)
        save()

    def _block(self, line: Line, points: np.ndarray, states: State) -> tuple[State, PyTree]:
        """One block of rounds, and the look after it."""
        entry, every = line.entry, self.settings.eval_every
        grid = take(entry.grid, _padded(points, line.data))
        looking: dict[str, Any] = {
            "observe": self.observe, "context": line.context, "donate": not self.debug_nans,
        }  # fmt: skip
        if line.stream is not None:
            return line.stream.advance(entry.algorithm, grid, states, every, **looking)
        return advance(
            entry.algorithm, grid, line.data, states, line.plan, every, eval_every=every, **looking
        )

    def _without_diverged(
        self, line: Line, recorder: Recorder, states: State, points: np.ndarray, block: int, goal
    ) -> tuple[State, np.ndarray]:
        """The states without points that have diverged, once these are half of all.

        What is known of a round is used one block later, when every run of the same command knows
        it; and there must be time left to win back what compiling for fewer points costs.
        """
        every = self.settings.eval_every
        over = [recorder.is_over(point, (block - 1) * every) for point in points]
        alive = points[~np.array(over, bool)]
        if not alive.size:
            return states, alive
        if 2 * alive.size > points.size or goal // every - block < _BLOCKS_WORTH_COMPILING:
            return states, points
        places = np.searchsorted(points, _padded(alive, line.data))
        states = processes.whole(_without_padding(states, line.data.num_clients))
        states = jax.device_get(states)
        return _at_places(states, places, line.data), alive

    def _folder(self, line: Line) -> pathlib.Path:
        return self.workdir / "checkpoints" / line.entry.label

    def _found(
        self, line: Line, recorder: Recorder, part: np.ndarray
    ) -> tuple[Checkpoints, int | None]:
        """The newest checkpoint of a part that agrees with the rows, and where it is."""

        def newest(folder: pathlib.Path) -> int | None:
            first, _, last = folder.name.partition("-")
            whole = range(int(first), int(last) + 1)

            def accept(step, notes):
                agrees = notes["rows"] == recorder.fingerprint(whole, step)
                return None if agrees else "rows.jsonl does not hold the rows that belong to it"

            return Checkpoints(folder, self.say).newest(accept)

        def found() -> tuple[pathlib.Path, int | None]:
            for folder in holding(self._folder(line), part):
                step = newest(folder)
                if step is not None:
                    return folder, step
            return folder_of(self._folder(line), part), None

        folder, step = processes.told(found)
        return Checkpoints(folder, self.say), step

    def _restore(
        self, checkpoints: Checkpoints, newest: int | None, line: Line, recorder, points: np.ndarray
    ) -> tuple[State, np.ndarray] | None:
        """These points' states at a checkpoint, or if it is damaged at the one before; and which.

        Those that have diverged may be missing.
        """

        def found() -> tuple[dict[str, Any], list[np.ndarray]] | None:
            for step in [] if newest is None else [s for s in checkpoints.rounds() if s <= newest]:
                notes = checkpoints.notes(step) or {"points": []}
                missing = np.setdiff1d(points, notes["points"])
                if missing.size < points.size and all(
                    recorder.is_over(point, step) for point in missing
                ):
                    leaves = checkpoints.load(step)
                    if leaves is not None:
                        return notes, leaves
                else:
                    checkpoints.remove(step, "it does not hold these points")
            return None

        restored = processes.told(found)
        if restored is None:
            return None
        notes, leaves = restored
        stored = np.array(notes["points"])
        like = jax.eval_shape(
            lambda grid, data: line.start(grid, self.problem, self.keys, data),
            take(line.entry.grid, stored), line.entry.train,
        )  # fmt: skip
        states = state_of(leaves, like)
        self._take_over_seconds(notes)
        held = np.intersect1d(points, stored)
        padded = _padded(held, line.data)
        places = np.array([np.flatnonzero(stored == point)[0] for point in padded])
        return _at_places(states, places, line.data), held

    def _take_over_seconds(self, notes: dict[str, Any] | None) -> None:
        """Counts the seconds spent before as this line's."""
        if notes is not None:
            self._began = min(self._began, time.monotonic() - notes["seconds"])

    def _model(self, line: Line, recorder, parts, best: tuple[float, ...]) -> PyTree | None:
        """The best point's model, of its first seed; ``None`` if its checkpoint was damaged.

        A line all of whose points diverged has none, which is an empty tree.
        """
        point = line.names.index(best)
        if recorder.is_over(point, self.settings.num_rounds):
            return ()
        (part,) = (part for part in parts if point in part)
        found = self._found(line, recorder, part)
        restored = self._restore(*found, line, recorder, np.array([point]))
        if restored is None or int(restored[0].round) < self.settings.num_rounds:
            return None
        grid = take(line.entry.grid, _padded(np.array([point]), line.data))
        models = processes.whole(read_model(line.entry.algorithm, grid, restored[0]))
        return jax.tree.map(lambda leaf: leaf[0, 0], jax.device_get(models))


def _padded(points: np.ndarray, data: ClientData) -> np.ndarray:
    """The points, the last of them repeated, so that all devices have equally many."""
    return np.append(points, np.repeat(points[-1:], -points.size % data.num_sweep_shards))


def _without_padding(states: State, num_clients: int) -> State:
    """The states without the clients that make up the numbers on a mesh."""
    clients, residuals = jax.tree.map(
        lambda leaf: leaf[:, :, :num_clients], (states.clients, states.residuals)
    )
    return states._replace(clients=clients, residuals=residuals)


def _at_places(states: State, places: np.ndarray, data: ClientData) -> State:
    """The states of some of the stored points, with rows for the clients of this mesh."""
    padding = data.clients_per_shard * data.num_shards - data.num_clients

    def padded(leaf):
        return np.concatenate([leaf, np.repeat(leaf[:, :, -1:], padding, axis=2)], axis=2)

    server, clients, residuals, bound = jax.tree.map(
        lambda leaf: leaf[:, places],
        (states.server, states.clients, states.residuals, states.bound),
    )
    if padding:
        clients, residuals = jax.tree.map(padded, (clients, residuals))
    return states._replace(server=server, clients=clients, residuals=residuals, bound=bound)


def _save_model(path: pathlib.Path, model: PyTree) -> None:
    """Writes a model as an npz file, which appears when it is complete."""
    arrays = {
        jax.tree_util.keystr(place, simple=True, separator=".") or "params": leaf
        for place, leaf in jax.tree_util.tree_flatten_with_path(model)[0]
    }
    if not arrays:
        return
    path.parent.mkdir(exist_ok=True)
    beside = path.with_suffix(".partial")
    with open(beside, "wb") as file:
        np.savez(file, **arrays)
    beside.replace(path)


def _rounds_done(behind: int, goal: int, before: float, part: float):
    """``(rounds) -> rounds of the whole line that are done`` while one part of it runs."""

    def done(rounds: int) -> float:
        return behind + before * (goal - behind) + part * (rounds - behind)

    return done
