"""A whole run in one compiled program."""

import functools
import warnings

import jax
import numpy as np
from jax.core import Tracer

from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work
from fcojax.engine.axes import is_sweep
from fcojax.engine.check import (
    check_observe,
    check_rounds,
    check_run,
    check_schedules,
    checked_params,
)
from fcojax.engine.hparams import as_arrays
from fcojax.engine.plan import Plan, as_plan
from fcojax.engine.state import Observe
from fcojax.engine.stepper import advanced, model_of, started
from fcojax.problems.clients import ClientData
from fcojax.types import Array, Key, Params, PyTree


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
) -> tuple[Params, dict[str, Array]]:
    """Runs ``num_rounds`` rounds; pure, so it can be mapped, nested and differentiated.

    Args:
      algorithm: what to run.
      hparams: its hyperparameters, numbers by name, or ``fcojax.schedule`` of them.
      params: the start point.
      data: the clients.
      key: all the luck of the run. Cohorts and minibatches depend on it and on nothing else, so
        runs with one key can be compared pair by pair.
      plan: how rounds are driven: a ``Plan``, or only how much clients work, ``local_steps(...)``
        or ``local_epochs(...)``, if everyone takes part.
      num_rounds: R.
      eval_every: rounds between two looks; must divide ``num_rounds``.
      observe: ``(hparams, model, context) -> dict``, asked after every ``eval_every`` rounds.
      context: arrays that ``observe`` needs, say a validation set.

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
    plan = as_plan(plan)
    num_rounds, eval_every = check_rounds(num_rounds, eval_every)
    if is_sweep(key):
        raise ValueError(
            f"keys is a vector of {key.size}: pass one key to run, or use fcojax.sweep."
        )
    check_run(algorithm, plan, hparams, data, key)
    params = checked_params(params)
    check_schedules(hparams, num_rounds)
    check_observe(observe, context, optional=True)
    static = (algorithm, plan, observe, num_rounds // eval_every, eval_every)
    model, history = whole(*static, as_arrays(hparams), params, data, key, context)
    warn_of_losses(history)
    return model, history


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def whole(
    algorithm, plan, observe, num_looks, eval_every, hparams, params, data, key, context
) -> tuple[Params, PyTree]:
    """Start, advance and read the model; for a vector of keys with axes [seeds, points]."""
    state = started(algorithm, plan, None, hparams, params, data, key)
    state, history = advanced(
        algorithm, plan, observe, num_looks, eval_every, hparams, data, state, context
    )
    return model_of(algorithm, hparams, state), history


def warn_of_losses(history: dict[str, Array], grid: PyTree = None) -> None:
    """Warns, once, if in some look of a finished run nobody's upload or no server step was finite.

    Names points of the grid, if it is a sweep. Says nothing while tracing, nor where a part is in
    other processes. Waits for the run.
    """
    counts = [history[name] for name in ("participants", "dropped", "refused")]
    if any(isinstance(count, Tracer) or not count.is_fully_addressable for count in counts):
        return
    participants, dropped, refused = map(np.asarray, counts)
    failed = ((participants > 0) & (dropped >= participants)) | (refused > 0)
    if failed.any():
        first = int(np.asarray(history["round"])[failed].min())
        of_runs = failed.any(axis=-1)
        which = "the run" if of_runs.ndim == 0 else f"{of_runs.sum()} of {of_runs.size} runs"
        where = "" if grid is None else _points(grid, np.flatnonzero(of_runs.any(axis=-1)))
        warnings.warn(
            f"{which} became non-finite{where}: by round {first} no upload, or no server step, was "
            "finite any more, and such rounds change nothing; take smaller rates.",
            stacklevel=3,
        )


def _points(grid: PyTree, places: np.ndarray) -> str:
    """The first three of these points of a grid, by the numbers in which the grid's points differ.

    Example:
      >>> import collections
      >>> grid = collections.namedtuple("Grid", "lr decay")(np.array([0.1, 0.2]), np.ones(2))
      >>> _points(grid, np.array([1]))
      ' (lr=0.2)'
    """
    plain = {name: column for name, column in grid._asdict().items() if _is_plain(column)}
    columns = {name: np.asarray(column) for name, column in plain.items()}
    varied = {name: column for name, column in columns.items() if (column != column[0]).any()}
    if not varied:
        return ""
    shown = [
        ", ".join(f"{name}={column[place]:g}" for name, column in varied.items())
        for place in places[:3]
    ]
    return f" ({'; '.join(shown)}{'; ...' if len(places) > 3 else ''})"


def _is_plain(column: PyTree) -> bool:
    """Whether it has one number for each point, which this process can read."""
    readable = getattr(column, "is_fully_addressable", True)
    return readable and np.ndim(column) == 1
