"""Results as tables: of runs and sweeps in Python, and of the command ``fcojax run``."""

import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from fcojax.arguments import shown, validated
from fcojax.engine.hparams import as_arrays, is_schedule, num_points
from fcojax.engine.state import is_sweep
from fcojax.tree import by_field
from fcojax.types import Key, NumberTree, PyTree


@validated
def to_frame(grid: PyTree, keys: Key, history: NumberTree) -> Any:
    """Return the history of a run or a sweep as a pandas frame, one row per evaluation.

    The columns are the hyperparameters by name, ``seed`` (the index of the key) and the entries of
    the history, such as ``round``. An entry ``v`` that is a vector has the columns ``v.0``,
    ``v.1``, .... Hyperparameters in float32 are rounded to seven digits, so that
    ``frame[frame.client_lr == 0.1]`` finds its rows; a schedule has its value in the row's round.

    Needs pandas, the extra ``pandas``.

    Args:
      grid: the hyperparameters of ``fcojax.run``, or the grid of ``fcojax.sweep``.
      keys: the key of the run, or the keys of the sweep.
      history: the history that it returned, with axes [evaluations] or [points, seeds,
        evaluations].

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_rows({"a": np.array([1.0, 3.0])}, [1, 1])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> grid = fcojax.grid.product(fed_avg.hparams_type, client_lr=[0.5, 1.0])
      >>> keys = jax.random.split(jax.random.key(0), 1)
      >>> _, history = fcojax.sweep(
      ...     fed_avg, grid, jnp.array(0.0), data, keys, fcojax.local_steps(1), num_rounds=2,
      ...     observe=lambda hparams, w, context: {"w": w})
      >>> fcojax.to_frame(grid, keys, history)[["client_lr", "seed", "round", "w"]]
         client_lr  seed  round    w
      0        0.5     0      1  1.0
      1        0.5     0      2  1.5
      2        1.0     0      1  2.0
      3        1.0     0      2  2.0
    """
    as_arrays(grid, is_sweep(keys))
    runs = (num_points(grid), keys.size) if is_sweep(keys) else ()
    entries = {name: np.asarray(leaf) for name, leaf in by_field([history])}
    shapes = {name: entry.shape for name, entry in entries.items()}
    leading = {shape[: len(runs) + 1] for shape in shapes.values()}
    if len(leading) != 1 or any(shape[:-1] != runs or len(shape) <= len(runs) for shape in leading):
        raise ValueError(
            f"the history has shapes {shapes}; pass the history of this grid and these keys, "
            f"whose arrays begin with the axes {[*runs, 'evaluations']}."
        )
    axes = (*runs, *leading.pop()[len(runs) :])
    if not runs:
        axes = (1, 1, *axes)
        entries = {name: entry[None, None] for name, entry in entries.items()}
    columns: dict[str, np.ndarray] = {}
    for name, values in _hyperparameters(grid, bool(runs), entries.get("round")):
        columns |= _flat(name, values, axes)
    columns |= _flat("seed", np.arange(axes[1])[None, :, None], axes)
    for name, entry in entries.items():
        if name in columns:
            raise ValueError(f"{name} is in the history and a hyperparameter; rename the measure.")
        columns |= _flat(name, entry, axes)
    return _pandas().DataFrame(columns)


@validated
def read(path: str | os.PathLike) -> Any:
    """Return the rows that a run of the command ``fcojax run`` wrote, as a pandas frame.

    Needs pandas, the extra ``pandas``; ``load`` does not.

    Args:
      path: the workdir of the run, or its file ``rows.jsonl``.
    """
    return _pandas().DataFrame(load(path))


@validated
def load(path: str | os.PathLike) -> list[dict[str, Any]]:
    """Return the rows that a run wrote as a list of dicts, without an incomplete last line.

    Args:
      path: the workdir of the run, or its file ``rows.jsonl``.

    Example:
      >>> import fcojax, tempfile
      >>> workdir = pathlib.Path(tempfile.mkdtemp())
      >>> _ = (workdir / "rows.jsonl").write_text('{"round": 1, "loss": 0.5}')
      >>> fcojax.rows.load(workdir)  # a line is complete with its end
      []
    """
    path = pathlib.Path(path)
    file = path / "rows.jsonl" if os.path.isdir(path) else path
    if not os.path.isfile(file):  # false where a path cannot be
        raise ValueError(f"{file} is not a file; pass the workdir of a run, or its rows.jsonl.")
    rows = []
    for number, line in enumerate(file.read_bytes().split(b"\n")[:-1], 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"line {number} of {file} is not JSON; restore the file, or repeat the command of "
                "the run, which goes on from its last checkpoint."
            ) from error
        if not isinstance(row, dict):
            raise ValueError(f"line {number} of {file} is not a row but {shown(row)}.")
        rows.append(row)
    return rows


def _hyperparameters(
    grid: PyTree, sweeping: bool, rounds: np.ndarray | None
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield each field with its values, whose axes broadcast to [points, seeds, evaluations]."""
    for name, column in zip(grid._fields, grid, strict=True):
        values = np.asarray(column.values if is_schedule(column) else column)
        if values.dtype == np.float32:
            values = np.array([float(f"{v:.7g}") for v in values.ravel()]).reshape(values.shape)
        values = values if sweeping else values[None]
        if not is_schedule(column):
            yield name, values[:, None, None]
        elif rounds is None:
            raise ValueError(f"{name} is a schedule; pass a history with the entry round.")
        else:
            yield name, values[np.arange(len(values))[:, None, None], rounds - 1]


def _flat(name: str, values: np.ndarray, axes: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Return one column for each entry that a metric has per evaluation."""
    inner = values.shape[len(axes) :]
    columns = np.broadcast_to(values, axes + inner).reshape(-1, *inner)
    return {
        ".".join([name, *map(str, index)]): columns[(slice(None), *index)]
        for index in np.ndindex(inner)
    }


def _pandas() -> Any:
    try:
        import pandas  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError(
            "frames need pandas; in a checkout pip install -e '.[pandas]'."
        ) from error
    return pandas
