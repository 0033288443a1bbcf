"""All algorithms of one experiment, block by block: rows, checkpoints, resume.

Between two blocks, and only there, the host looks: the next block is dispatched before the last
one's numbers are read, so the device does not wait for the disk.
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from orbax.checkpoint import v1 as ocp

from experiments.settings import Settings, build_algorithm
from fcojax.engine import sweep as sweeps
from fcojax.engine.grid import num_points
from fcojax.engine.reference import optimum
from fcojax.engine.round import Plan, message_bytes
from fcojax.engine.run import State, with_chunk_size
from fcojax.engine.status import WARNINGS, verdict
from fcojax.problems import ClientData, Problem, population_loss
from fcojax.report import rows as tidy
from fcojax.report.summary import summarise
from fcojax.transforms import Penalty
from fcojax.types import PyTree

# Long enough that saving is a small share of the time, short enough to lose little by a crash.
_SECONDS_BETWEEN_CHECKPOINTS = 15.0


@dataclasses.dataclass
class Campaign:
    """One experiment in one workdir.

    Attributes:
      settings: what to run.
      problem: on what.
      penalty: with which psi.
      workdir: where everything goes.
      optima: the least objective for each strength of the penalty.
      on_block: told the algorithm and the rounds behind it after every block.
      around_block: entered around each block, with its number; for profilers.
    """

    settings: Settings
    problem: Problem
    penalty: Penalty
    workdir: pathlib.Path
    optima: dict[float, float]
    on_block: Callable[[str, int], None]
    around_block: Callable[[int], contextlib.AbstractContextManager]

    def run(self, name: str) -> dict[str, Any]:
        """Runs or resumes one algorithm over its grid; returns its entry of the summary."""
        settings, rows_path = self.settings, self.workdir / "rows.jsonl"
        algorithm = build_algorithm(name, self.problem, self.penalty)
        grid = settings.grids[name]
        keys = jax.vmap(jax.random.key)(jnp.asarray(settings.seeds))
        data = self.problem.train
        first = jax.tree.map(lambda column: column[0], grid)
        params = jax.eval_shape(self.problem.init, keys[0])
        plan = Plan(settings.work, settings.cohort, settings.client_chunk_size)
        points = num_points(grid) * len(settings.seeds)
        plan = with_chunk_size(plan, algorithm, first, params, data, points)
        states = sweeps.start_all(algorithm, self.problem.init, grid, data, keys)
        directory = (self.workdir / "checkpoints" / name).absolute()
        with ocp.training.Checkpointer(
            os.fspath(directory),
            preservation_policy=ocp.training.preservation_policies.LatestN(1),  # pyright: ignore
        ) as checkpoints:
            states, seconds = _restore(checkpoints, states)
            behind = int(states.round.reshape(-1)[0])
            resumed = checkpoints.latest is not None
            tidy.keep(
                rows_path,
                lambda row: row["algorithm"] != name or (resumed and row["round"] <= behind),
            )
            recorder = Recorder(
                name, grid, settings.seeds, self.optima,
                message_bytes(algorithm, plan, first, params, data), rows_path,
            )  # fmt: skip
            observe, context = observer(self.problem, self.penalty, self.optima)
            if not resumed:
                look = sweeps.look_at_all(algorithm, observe, grid, data, states, keys, context)
                recorder.add(0, jax.device_get(look))
            advance = functools.partial(
                sweeps.advance, algorithm, plan, observe, settings.eval_every, grid, data
            )
            began = time.monotonic() - seconds
            saved = time.monotonic()
            pending: list[tuple[int, PyTree]] = []
            first_block = behind // settings.eval_every
            last_block = settings.num_rounds // settings.eval_every
            with deferred_interrupt() as interrupt:
                for block in range(first_block, last_block):
                    with self.around_block(block):
                        states, look = advance(states, keys, context)
                        pending.append(((block + 1) * settings.eval_every, look))
                        self._write_down(pending[:-1], recorder)
                        del pending[:-1]
                    if interrupt.asked:
                        break
                    if time.monotonic() - saved > _SECONDS_BETWEEN_CHECKPOINTS:
                        self._write_down(pending, recorder)
                        pending.clear()
                        _save(checkpoints, states, began)
                        saved = time.monotonic()
                self._write_down(pending, recorder)
                _save(checkpoints, states, began)
        summary = summarise(recorder.rows, grid._fields, settings.criterion)
        summary["seconds"] = round(time.monotonic() - began, 3)
        self._save_model(name, algorithm, grid, states, summary["best"])
        return summary

    def _write_down(self, looks: list[tuple[int, PyTree]], recorder: "Recorder") -> None:
        for rounds, look in looks:
            recorder.add(rounds, jax.device_get(look))
            self.on_block(recorder.algorithm, rounds)

    def _save_model(self, name, algorithm, grid, states: State, best: dict[str, float]) -> None:
        """The best point's model, of its first seed, as an npz file."""
        matches = np.all(
            [np.isclose(getattr(grid, field), best[field]) for field in grid._fields], axis=0
        )
        point = int(np.argmax(matches))
        hparams = jax.tree.map(lambda column: column[point], grid)
        server = jax.tree.map(lambda leaf: leaf[0, point], states.server)
        model = jax.device_get(sweeps.model_of(algorithm, hparams, server))
        paths = jax.tree_util.tree_flatten_with_path(model)[0]
        arrays = {
            jax.tree_util.keystr(path, simple=True, separator=".") or "params": leaf
            for path, leaf in paths
        }
        (self.workdir / "models").mkdir(exist_ok=True)
        np.savez(self.workdir / "models" / f"{name}.npz", **arrays)


class Interrupt:
    """Whether the user has asked to stop."""

    asked = False


@contextlib.contextmanager
def deferred_interrupt() -> Iterator[Interrupt]:
    """Holds Ctrl-C back to the end of a block, where there is a state to save; twice is at once.

    Donated buffers are gone while a block is being dispatched; stopped there, nothing is left.
    """
    interrupt = Interrupt()

    def take_note(number, frame):
        interrupt.asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, take_note)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupt.asked:
        raise KeyboardInterrupt


class Recorder:
    """Turns looks at a sweep into rows, and remembers the curves that verdicts need."""

    def __init__(self, algorithm, grid, seeds, optima, bytes_per_client, path):
        """Takes up the rows that the file has already."""
        self.algorithm = algorithm
        self.points = [
            {field: float(f"{value:.7g}") for field, value in zip(grid._fields, point, strict=True)}
            for point in zip(*(np.asarray(column).tolist() for column in grid), strict=True)
        ]
        self.seeds, self.optima, self.path = seeds, optima, path
        self.bytes_down, self.bytes_up = bytes_per_client
        self.rows = [row for row in tidy.load(path) if row["algorithm"] == algorithm]
        self.curves: dict[tuple[int, int], list[tidy.Row]] = {}
        for index, row in enumerate(self.rows):
            place = index % (len(self.points) * len(seeds))
            self.curves.setdefault(divmod(place, len(seeds)), []).append(row)

    def add(self, rounds: int, look: dict[str, np.ndarray]) -> None:
        """One row for each point and seed."""
        fresh = [
            self._row(
                rounds, (point, seed), {name: looks[seed, point] for name, looks in look.items()}
            )
            for point, seed in np.ndindex(len(self.points), len(self.seeds))
        ]
        tidy.append(self.path, fresh)
        self.rows += fresh

    def _row(self, rounds: int, place: tuple, measured: dict[str, Any]) -> tidy.Row:
        point, seed = place
        curve = self.curves.setdefault(place, [])
        row = {"algorithm": self.algorithm, **self.points[point], "seed": self.seeds[seed]}
        row |= {"round": rounds, "status": ""}
        row |= {name: value.item() for name, value in measured.items()}
        row.setdefault("participants", 0)
        row.setdefault("dropped", 0)
        sent = sum(earlier["participants"] for earlier in curve) + row["participants"]
        optimum = self.optima[_nearest(self.points[point].get("penalty_scale"), self.optima)]
        row["suboptimality"] = row["objective"] - optimum
        row["bytes_up"], row["bytes_down"] = sent * self.bytes_up, sent * self.bytes_down
        curve.append(row)
        judged = verdict(
            [entry["round"] for entry in curve],
            [_number(entry["objective"]) for entry in curve],
            optimum,
            [entry["dropped"] for entry in curve],
            [entry["participants"] for entry in curve],
            {name: [entry.get(name) or 0.0 for entry in curve] for name in WARNINGS},
        )
        plain = judged.status != "diverged" and not judged.warned
        row["status"] = judged.status if plain else judged.sentence
        return row


def observer(problem: Problem, penalty: Penalty, optima: dict[float, float]):
    """What is looked at after every block, and the arrays it needs.

    Algorithms without a penalty are judged with the first strength of the config.
    """
    default_scale = next(iter(optima))

    def observe(hparams, params, context: tuple[ClientData, ClientData | None]):
        train, validation = context
        scale = getattr(hparams, "penalty_scale", default_scale)
        loss = population_loss(problem.loss, params, train)
        seen = {"objective": loss + penalty.value(params, scale), "loss": loss}
        if validation is not None:
            seen["validation_loss"] = population_loss(problem.loss, params, validation)
        return seen | problem.measures(params)

    return observe, (problem.train, problem.validation)


def solve_optima(
    problem: Problem, penalty: Penalty, scales: tuple[float, ...]
) -> Iterator[tuple[float, float]]:
    """The least objective for each strength of the penalty."""
    for scale in scales:
        yield scale, float(optimum(problem, penalty, scale, tolerance=1e-7).objective)


def _restore(checkpoints, states: State) -> tuple[State, float]:
    """The last saved states and the seconds spent on them, or the given ones."""
    if checkpoints.latest is None:
        return states, 0.0
    step = checkpoints.latest.step
    seconds = checkpoints.metadata(step).custom_metadata["seconds"]
    return checkpoints.load(step, states), seconds


def _save(checkpoints, states: State, began: float) -> None:
    step = int(states.round.reshape(-1)[0])
    if checkpoints.latest is None or checkpoints.latest.step != step:
        checkpoints.save(step, states, custom_metadata={"seconds": time.monotonic() - began})


def _nearest(scale: float | None, optima: dict[float, float]) -> float:
    return (
        next(iter(optima)) if scale is None else min(optima, key=lambda known: abs(known - scale))
    )


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
