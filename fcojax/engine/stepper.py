"""A run step by step, for a user's own loop: start, advance, look, read the model.

A ``State`` is all that a run needs to continue. The programs are those of ``run`` and ``sweep``.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work
from fcojax.engine.hparams import as_arrays
from fcojax.engine.plan import Plan, Program
from fcojax.engine.run import (
    advance_compiled,
    look_compiled,
    look_traced,
    start_compiled,
    start_traced,
)
from fcojax.engine.state import Observe, State, is_sweep
from fcojax.engine.validation import as_params, as_program
from fcojax.memo import jit_per
from fcojax.problems.client_data import ClientData
from fcojax.types import Array, Key, Params, PyTree


def start(
    algorithm: Algorithm,
    hparams: PyTree,
    params: Params | Callable[[Key], Params],
    data: ClientData,
    key: Key,
    plan: Plan | Work,
) -> State:
    """Return the state before the first round, from which ``advance`` continues.

    The arguments are those of ``run``, or with a grid and a vector of keys those of ``sweep``; then
    the parts of the state have leading axes [points, seeds]. ``params`` may also be a function
    ``(key) -> params`` that makes a start point for each seed.

    Example:
      >>> import jax, jax.numpy as jnp, numpy as np, fcojax
      >>> data = fcojax.from_clients([{"a": np.array([1.0])}, {"a": np.array([3.0])}])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> hparams, plan = fed_avg.hparams_type(client_lr=0.5), fcojax.local_steps(1)
      >>> state = start(fed_avg, hparams, jnp.array(0.0), data, jax.random.key(0), plan)
      >>> while look(fed_avg, hparams, state, lambda hparams, w, _: {"w": w})["w"] < 1.9:
      ...     state, history = advance(fed_avg, hparams, state, data, plan, num_rounds=2)
      >>> int(state.round), round(float(read_model(fed_avg, hparams, state)), 3)
      (6, 1.969)
    """
    program, hparams = as_program(algorithm, hparams, data, key, plan)
    # A fixed start point is an argument of the compiled program; a function is part of it. A pytree
    # may be callable too, such as an Equinox module.
    is_made = callable(params) and jax.tree_util.all_leaves([params])
    init, fixed = (params, None) if is_made else (None, as_params(params))
    return start_compiled(algorithm, program.plan, init, hparams, fixed, data, key)


def advance(
    algorithm: Algorithm,
    hparams: PyTree,
    state: State,
    data: ClientData,
    plan: Plan | Work,
    *,
    num_rounds: int,
    eval_every: int = 1,
    observe: Observe | None = None,
    context: PyTree = None,
) -> tuple[State, dict[str, Array]]:
    """Advance a state by a number of rounds, in one compiled program.

    The arguments are those of ``run`` or ``sweep``, with a state in place of the start point and
    the key. Ten rounds give the same state and history as five and five, to the last bit. The plan
    may change in between, for example to fewer local steps, except for its transforms of uploads
    and its aggregator, whose memory is in the state. Inside ``jax.jit`` with ``donate_argnums`` the
    new state takes the memory of the old one.

    Returns:
      The new state, and the history, with one entry per evaluation: what ``observe`` returned; the
      clients' metrics (means over the rounds in which any client counts, NaN if there is none); the
      counts since the last evaluation, which are ``participants``, uploads ``dropped`` because they
      were not finite, uploads ``lost``, server steps ``refused`` because they were not finite,
      ``bytes_down`` and ``bytes_up`` of all clients together, and those that a transform leaves
      out, under its name, such as ``late`` and ``left_out``; and ``round``. In a sweep all have
      leading axes [points, seeds].

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_rows({"a": np.array([1.0, 3.0])}, [1, 1])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> hparams, plan = fed_avg.hparams_type(client_lr=0.5), fcojax.local_steps(1)
      >>> state = fcojax.start(fed_avg, hparams, jnp.array(0.0), data, jax.random.key(0), plan)
      >>> state, history = fcojax.advance(
      ...     fed_avg, hparams, state, data, plan, num_rounds=4, eval_every=2,
      ...     observe=lambda hparams, w, context: {"w": w})
      >>> history["round"].tolist(), history["w"].tolist()
      ([2, 4], [1.5, 1.875])
    """
    rounds = num_rounds, eval_every
    program, hparams = continued(algorithm, hparams, state, data, plan, rounds, observe)
    return advance_compiled(program, hparams, data, state, context)


def look(
    algorithm: Algorithm, hparams: PyTree, state: State, observe: Observe, context: PyTree = None
) -> dict[str, Array]:
    """Return what ``observe`` returns for a state, in a sweep with leading axes [points, seeds].

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_rows({"a": np.array([1.0, 3.0])}, [1, 1])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> hparams, plan = fed_avg.hparams_type(), fcojax.local_steps(1)
      >>> state = fcojax.start(fed_avg, hparams, jnp.array(3.0), data, jax.random.key(0), plan)
      >>> found = fcojax.look(fed_avg, hparams, state, lambda hparams, w, context: {"square": w**2})
      >>> float(found["square"])
      9.0
    """
    hparams = as_arrays(hparams, is_sweep(state.key), expected=algorithm.hparams_type)
    return look_compiled(algorithm, observe, hparams, state, context)


def read_model(algorithm: Algorithm, hparams: PyTree, state: State) -> Params:
    """Return the current model, in a sweep with leading axes [points, seeds].

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_rows({"a": np.array([1.0, 3.0])}, [1, 1])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> hparams, plan = fed_avg.hparams_type(), fcojax.local_steps(1)
      >>> state = fcojax.start(fed_avg, hparams, jnp.array(3.0), data, jax.random.key(0), plan)
      >>> float(fcojax.read_model(fed_avg, hparams, state))
      3.0
    """
    hparams = as_arrays(hparams, is_sweep(state.key), expected=algorithm.hparams_type)
    return look_compiled(algorithm, None, hparams, state)


def continued(
    algorithm: Algorithm, hparams, state: State, data: ClientData, plan, rounds, observe
) -> tuple[Program, PyTree]:
    """Return ``as_program`` for further rounds of a state.

    It raises ``ValueError`` unless ``start`` returns states of this form for the other arguments.
    """
    given: Any = data, state.key, plan, *rounds, observe, state.round
    program, hparams = as_program(algorithm, hparams, *given)
    # Traced only, so no value of the state is read.
    fresh = _restarted.eval_shape(algorithm, program.plan, hparams, data, state)
    for name, expected, found in zip(State._fields, fresh, state, strict=True):
        if _forms(expected) != _forms(found):
            raise ValueError(
                f"state.{name} does not fit: it comes from another algorithm, start point, grid or "
                f"population than these {data.num_clients} clients, or from a plan with other "
                "uploads; pass a state that fcojax.start made with the same arguments."
            )
    return program, hparams


def _forms(arrays: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: (jnp.shape(leaf), jnp.result_type(leaf)), arrays)


@jit_per(num_static=2)
def _restarted(algorithm, plan, hparams, data, state) -> State:
    """Return a state of the form that ``start`` makes, from the model of a state."""
    params = look_traced(algorithm, None, hparams, state)
    if is_sweep(state.key):
        params = jax.tree.map(lambda leaf: leaf[0, 0], params)
    return start_traced(algorithm, plan, None, hparams, params, data, state.key)
