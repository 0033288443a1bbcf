"""A whole run in one compiled program."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work
from fcojax.engine.blocks import blocks, join_histories
from fcojax.engine.plan import Plan, Program
from fcojax.engine.state import Observe, is_sweep
from fcojax.engine.stepper import (
    advance_donating,
    advance_traced,
    read_model_compiled,
    read_model_traced,
    start_compiled,
    start_traced,
)
from fcojax.engine.validation import as_params, as_program
from fcojax.memo import jit_per
from fcojax.problems.clients import ClientData
from fcojax.types import Array, Key, Params, PyTree

Report = Callable[[int, dict[str, Array]], Any]


def run(
    algorithm: Algorithm,
    hparams: PyTree,
    params: Params,
    data: ClientData,
    key: Key,
    plan: Plan | Work,
    *,
    num_rounds: int,
    eval_every: int = 1,
    observe: Observe | None = None,
    context: PyTree = None,
    progress: Report | None = None,
) -> tuple[Params, dict[str, Array]]:
    """Run an algorithm; a pure function, so it can be vmapped, jitted and differentiated.

    Args:
      algorithm: an ``Algorithm``, which a factory such as ``fed_avg(loss)`` returns.
      hparams: its hyperparameters: a named tuple of numbers, or of schedules made by
        ``fcojax.schedule``.
      params: the start point.
      data: the clients.
      key: PRNG key, the only source of randomness. Two runs with the same key use the same cohorts
        and minibatches.
      plan: how rounds are run: a ``Plan``, or only how much clients work, ``local_steps(...)``
        or ``local_epochs(...)``, if everyone takes part.
      num_rounds: number of rounds.
      eval_every: rounds between two evaluations; must divide ``num_rounds``.
      observe: ``(hparams, model, context) -> dict`` of arrays, evaluated after every
        ``eval_every`` rounds.
      context: arrays that ``observe`` needs, such as a validation set.
      progress: ``(rounds, history)``, called on the host after every ``eval_every`` rounds with the
        number of rounds so far and the new entry of the history, while the next rounds are
        computed. The run then calls one program per evaluation instead of one program for all
        rounds, with the same result. It cannot be used inside ``jit`` or ``vmap``.

    Returns:
      The model after the last round, and the history as ``fcojax.advance`` returns it.

    Example:
      >>> import jax, jax.numpy as jnp, numpy as np, fcojax
      >>> data = fcojax.from_clients([{"a": np.array([1.0])}, {"a": np.array([3.0])}])
      >>> loss = lambda w, rows: 0.5 * (w - rows["a"]) ** 2
      >>> model, history = fcojax.run(
      ...     fcojax.algorithms.fed_avg(loss), fcojax.algorithms.fed_avg.Hparams(client_lr=0.5),
      ...     jnp.array(0.0), data, jax.random.key(0), fcojax.local_steps(1), num_rounds=60)
      >>> round(float(model), 6)
      2.0
    """
    if is_sweep(key):
        raise ValueError(
            f"key is a vector of {key.size} keys; pass one key to run, or use fcojax.sweep."
        )
    rounds = num_rounds, eval_every
    program, hparams = as_program(algorithm, hparams, data, key, plan, *rounds, observe)
    params = as_params(params)
    model, history = run_program(program, hparams, params, data, key, context, progress)
    warn_if_nonfinite(history)
    return model, history


@jit_per(num_static=1)
def run_compiled(
    program: Program, hparams: PyTree, params: Params, data: ClientData, key: Key, context: PyTree
) -> tuple[Params, PyTree]:
    """Start, advance and read the model; for a vector of keys with axes [points, seeds]."""
    state = start_traced(program.algorithm, program.plan, None, hparams, params, data, key)
    state, history = advance_traced(program, hparams, data, state, context)
    return read_model_traced(program.algorithm, hparams, state), history


def run_program(
    program: Program,
    hparams: PyTree,
    params: Params,
    data: ClientData,
    key: Key,
    context: PyTree,
    progress: Report | None,
) -> tuple[Params, PyTree]:
    """Run as one program, or with ``progress`` one for each evaluation and a report after it."""
    if progress is None:
        return run_compiled(program, hparams, params, data, key, context)
    leaves = jax.tree.leaves((hparams, params, data, key, context))
    if any(isinstance(leaf, Tracer) for leaf in leaves):
        raise ValueError("progress is called on the host; pass None inside jit and vmap.")
    one, every = program._replace(num_evaluations=1), program.rounds_per_evaluation

    def advance(points, state, first, last):
        return advance_donating(one, hparams, data, state, context)

    state = start_compiled(program.algorithm, program.plan, None, hparams, params, data, key)
    ends, histories = range(every, every * program.num_evaluations + 1, every), []
    for block in blocks(advance, state, ends):
        # Only finished rounds are reported.
        progress(block.rounds, jax.block_until_ready(block.history))
        histories.append(block.history)
        state = block.state
    joined = join_histories(histories, axis=2 * key.ndim)
    return read_model_compiled(program.algorithm, hparams, state), joined


def warn_if_nonfinite(history: dict[str, Array], grid: PyTree = None) -> None:
    """Warn once if between two evaluations no upload, or no server step, was finite.

    It waits for the run. It does nothing while tracing, or if a part of the history is in other
    processes.
    """
    counts = [history[name] for name in ("participants", "dropped", "refused")]
    if any(isinstance(count, Tracer) or not count.is_fully_addressable for count in counts):
        return
    participants, dropped, refused = map(np.asarray, counts)
    # An empty cohort is not a failure: coin flips may leave everybody out.
    failed = ((participants > 0) & (dropped >= participants)) | (refused > 0)
    if failed.any():
        first = int(np.asarray(history["round"])[failed].min())
        of_runs = failed.any(axis=-1)
        which = "the run" if of_runs.ndim == 0 else f"{of_runs.sum()} of {of_runs.size} runs"
        where = "" if grid is None else _points(grid, np.flatnonzero(of_runs.any(axis=-1)))
        warnings.warn(
            f"{which} became non-finite{where}: by round {first} no upload, or no server step, was "
            "finite any more, and such rounds change nothing; pass smaller rates.",
            stacklevel=3,  # the caller of run or sweep
        )


def _points(grid: PyTree, indices: np.ndarray) -> str:
    """Name the first three of these points by the fields in which the grid's points differ.

    Example:
      >>> import collections
      >>> grid = collections.namedtuple("Grid", "lr decay")(np.array([0.1, 0.2]), np.ones(2))
      >>> _points(grid, np.array([1]))
      ' (lr=0.2)'
    """
    plain = {name: column for name, column in grid._asdict().items() if _is_plain(column)}
    columns = {name: np.asarray(column) for name, column in plain.items()}
    # Name only the fields that differ between points; the others would not tell which point failed.
    varied = {name: column for name, column in columns.items() if (column != column[0]).any()}
    if not varied:
        return ""
    names = [
        ", ".join(f"{name}={column[index]:g}" for name, column in varied.items())
        for index in indices[:3]
    ]
    return f" ({'; '.join(names)}{'; ...' if len(indices) > 3 else ''})"


def _is_plain(column: PyTree) -> bool:
    """Return whether a field has one number per point, which this process can read."""
    readable = getattr(column, "is_fully_addressable", True)
    return readable and np.ndim(column) == 1
