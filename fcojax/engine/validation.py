"""Checks on the host, before tracing, of arguments that would run and give wrong numbers."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.core import Tracer
from jax.errors import ConcretizationTypeError, TracerArrayConversionError

from fcojax.algorithms.base import Algorithm
from fcojax.arguments import (
    Arguments,
    Result,
    bound,
    checked_value,
    field_annotations,
    numbers_of,
    shown,
    validated,
)
from fcojax.engine.aggregator import MEAN, weighted_mean
from fcojax.engine.hparams import is_schedule
from fcojax.engine.plan import Plan
from fcojax.engine.state import State, is_sweep
from fcojax.problems.clients import ClientData
from fcojax.problems.fields import by_field
from fcojax.types import Array, Count, Key, PyTree, Real


def explained(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Decorate a function so that a call that forgets an argument names all of them."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def called(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        bound(function.__name__, signature, args, kwargs)
        return function(*args, **kwargs)

    return called


@validated
def as_round_counts(num_rounds: Count, eval_every: Count) -> tuple[int, int]:
    """Return both as Python integers; raise ``ValueError`` unless the second divides the first."""
    if num_rounds % eval_every:
        raise ValueError(
            f"eval_every is {eval_every}, which does not divide num_rounds = {num_rounds}; "
            "pass a divisor, so that all blocks have the same length."
        )
    return num_rounds, eval_every


def require_run(
    algorithm: Algorithm, plan: Plan, hparams: PyTree, data: ClientData, key: Key
) -> None:
    """Raise ``ValueError`` if these cannot make a run, or a sweep where ``key`` is a vector."""
    require_parts(algorithm, plan, hparams, data, sweeping=is_sweep(key))


def require_parts(
    algorithm: Algorithm, plan: Plan, hparams: PyTree, data: ClientData, sweeping: bool = False
) -> None:
    """Raise ``ValueError`` as ``require_run`` does; callers without a key use this."""
    require_algorithm(algorithm)
    checked_value("data", data, ClientData)
    _require_cohort(algorithm, plan, data)
    # These algorithms compress by themselves, or are exact only with the plain mean.
    if algorithm.codecs == "none" and (plan.codec is not None or plan.aggregator is not MEAN):
        raise ValueError(
            "the plan has a codec or an aggregator, but this algorithm needs the plain mean of "
            "the uploads; pass neither, or another algorithm, such as fed_avg."
        )
    if plan.correct is not None and plan.aggregator.finish is not weighted_mean:
        raise ValueError(
            f"correct is {plan.correct!r} but the aggregator does not return the weighted mean of "
            "the uploads; pass one that does, or correct=None."
        )
    _require_work(plan, data)
    require_type(algorithm, hparams)
    require_hparams(hparams, sweeping)


def require_algorithm(algorithm: Any) -> None:
    """Raise ``ValueError`` unless this is an ``Algorithm``; a factory may not have been called."""
    checked_value("algorithm", algorithm, Algorithm)


def is_function(params: Any) -> bool:
    """Return whether this is a function, and not a callable pytree such as an Equinox module."""
    return callable(params) and jax.tree_util.all_leaves([params])


def as_params(params: Any) -> PyTree:
    """Return a start point as arrays; raise ``ValueError`` unless it holds finite numbers."""
    if is_function(params):
        raise ValueError(
            f"params is {shown(params)}, a function; call it with a key, or let fcojax.start make "
            "a start point for each seed."
        )
    # A list of numbers is a pytree of scalars, on which `rows @ params` would fail far from here.
    numbers = isinstance(params, list) and params
    if numbers and all(isinstance(entry, int | float) for entry in params):
        raise ValueError(
            f"params is {shown(params)}, a list of numbers; pass an array, as jnp.array makes it."
        )
    named = [
        ("params" if name == "examples" else f"params.{name}", leaf)
        for name, leaf in by_field([params])
    ]
    if not named:
        raise ValueError(f"params has no arrays, it is {shown(params)}; pass the start point.")
    for name, leaf in named:
        kinds = (jax.dtypes.prng_key, jnp.complexfloating)
        if not _is_number(leaf) or any(jnp.issubdtype(jnp.result_type(leaf), k) for k in kinds):
            raise ValueError(f"{name} is {shown(leaf)}; pass arrays of real numbers to start from.")
        traced = isinstance(leaf, Tracer | jax.ShapeDtypeStruct)
        inexact = jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)
        # From a NaN every upload is NaN: all clients would be dropped in every round, and nothing
        # moves.
        if inexact and not traced and not np.isfinite(np.asarray(leaf)).all():
            raise ValueError(f"{name} is not finite; pass a start point of finite numbers.")
    return jax.tree.map(_with_own_dtype, params)


def _with_own_dtype(leaf: Any) -> Any:
    """Return an array that is not weakly typed, so that a scan can carry it."""
    # A weakly typed state needs another program than the state that rounds return, so the first
    # block would be compiled separately.
    weak = isinstance(leaf, int | float) or getattr(leaf, "weak_type", False)
    return jnp.asarray(leaf, jnp.result_type(leaf)) if weak else leaf


def _is_number(leaf: Any) -> bool:
    """Return whether JAX accepts this as an array or a number; keys are arrays."""
    dtype = getattr(leaf, "dtype", None)
    if dtype is None:
        return isinstance(leaf, bool | int | float | complex)
    # JAX also refuses masked arrays, but later and without naming the argument.
    if isinstance(leaf, np.ma.MaskedArray):
        return False
    # numpy has arrays of objects, strings, bytes and dates; JAX has none.
    return not isinstance(leaf, np.ndarray | np.generic) or dtype.kind not in "OSUMm"


def require_init(init: Callable) -> Callable:
    """Return ``init``; raise ``ValueError`` unless it takes one argument, a key."""
    if not _accepts(init, 1):
        raise ValueError(
            f"params is {shown(init)}; pass a start point, or a function (key) -> params."
        )
    return init


def as_first_states(states: Any) -> tuple[PyTree, PyTree]:
    """Return the result of an algorithm's ``init``; raise ``ValueError`` unless it is a pair."""
    if not isinstance(states, tuple) or len(states) != 2:
        raise ValueError(
            f"init returned {shown(states)}; return the first states (server, client)."
        )
    return states


def require_observer(
    observe: Any, context: PyTree = None, optional: bool = False, name: str = "observe"
) -> None:
    """Raise ``ValueError`` unless ``observe`` takes three arguments and ``context`` is arrays."""
    function = getattr(observe, "function", observe)
    if not (optional and observe is None) and not (callable(function) and _accepts(function, 3)):
        raise ValueError(
            f"{name} is {shown(function)}; pass a function (hparams, model, context) -> dict."
        )
    for _, leaf in by_field([context]):
        if not _is_number(leaf):
            raise ValueError(f"context is {shown(leaf)}; pass arrays that observe needs, or None.")


def evaluated(observe: Callable, *args: Any, name: str = "observe") -> dict:
    """Call an observer; raise ``ValueError`` unless it returns a dictionary of numbers."""
    try:
        measures = observe(*args)
    except (ConcretizationTypeError, TracerArrayConversionError) as error:
        raise ValueError(
            f"{name} is traced, so its numbers are not known yet; use jnp in place of float, int, "
            "bool, if and numpy."
        ) from error
    except (AttributeError, TypeError) as error:
        if args[-1] is None and "NoneType" in str(error):
            raise ValueError(
                f"{name} was given no context and needs one ({error}); pass context=..., the "
                "arrays that it uses."
            ) from error
        raise
    if not isinstance(measures, dict):
        raise ValueError(f"{name} returned {shown(measures)}; return a dictionary of numbers.")
    for field, leaf in by_field([measures]):
        if not _is_number(leaf):
            raise ValueError(f"{name} returned {shown(leaf)} for {field}; return numbers.")
    return measures


def _accepts(function: Callable, number: int) -> bool:
    """Return whether a function takes this number of positional arguments; true if unknown."""
    try:
        inspect.signature(function).bind(*(None,) * number)
    except TypeError:
        return False
    # Some builtins have no signature.
    except ValueError:
        return True
    return True


def _require_cohort(algorithm: Algorithm, plan: Plan, data: ClientData) -> None:
    places = plan.cohort.size(data.num_clients)
    # `size` above has refused a cohort that is larger than the population.
    if not algorithm.needs_everyone:
        return
    # Two exchanges with the same clients are the method on that cohort.
    held = plan.cohort.rounds % 2 == 0
    if algorithm.needs_everyone == "or held" and held and not plan.cohort.loses_uploads:
        return
    advice = ", or held(sampler)" if algorithm.needs_everyone == "or held" else ""
    reasons = {
        f"leave some of the {data.num_clients} clients out": places < data.num_clients
        or plan.cohort.can_be_absent,
        f"lose uploads of the {data.num_clients} clients": plan.cohort.loses_uploads,
    }
    for reason, holds in reasons.items():
        if holds:
            raise ValueError(
                f"the cohort is {plan.cohort}, which can {reason}, but this algorithm averages the "
                "states of all clients and needs each of them in every round; pass everyone()"
                f"{advice}."
            )


def _require_work(plan: Plan, data: ClientData) -> None:
    counts, batch_size = plan.work.counts, plan.work.batch_size
    if counts is not None and len(counts) != data.num_clients:
        raise ValueError(
            f"the work has counts for {len(counts)} clients but the problem has "
            f"{data.num_clients}; pass one for each, or one number for all."
        )
    # Otherwise every batch of every client would have padding.
    if batch_size is not None and batch_size > data.max_size and not plan.work.replace:
        raise ValueError(
            f"batch_size is {batch_size} but the largest client has {data.max_size} examples; "
            f"pass at most {data.max_size}, or None for all of them."
        )


def require_type(algorithm: Algorithm, hparams: Any) -> None:
    """Raise ``ValueError`` unless these are hyperparameters of this algorithm."""
    expected, given = algorithm.hparams_type, type(hparams)
    if not hasattr(given, "_fields"):
        hint = "" if expected in (None, tuple) else f", {expected.__name__}{signature(expected)}"
        raise ValueError(f"hparams is {shown(hparams)}; pass a named tuple of numbers{hint}.")
    # A wrapper may extend the type; the algorithm inside reads its own fields by name.
    if expected in (None, tuple, given, *getattr(given, "extends", ())):
        return
    if expected._fields != given._fields:  # pyright: ignore[reportAttributeAccessIssue]
        raise ValueError(
            f"hparams is a {given.__name__}{signature(given)}, but this algorithm takes "
            f"{expected.__name__}{signature(expected)}; pass its own factory's Hparams."
        )


def signature(hparams_type: type) -> str:
    """Return the fields of hyperparameters as in a call."""
    return f"({', '.join(hparams_type._fields)})"  # pyright: ignore[reportAttributeAccessIssue]


def require_hparams(hparams: PyTree, sweeping: bool = False) -> None:
    """Raise ``ValueError`` unless values fit their annotations and have the right shapes.

    Args:
      hparams: hyperparameters, or a grid.
      sweeping: whether they are a grid.
    """
    annotations = field_annotations(type(hparams))
    lengths = {}
    for name, value in zip(hparams._fields, hparams, strict=True):
        kind = annotations.get(name, Real)
        scheduled = is_schedule(value)
        # All values of a schedule or grid are checked, not only the first.
        values = value.values if scheduled else value
        _require_numbers(name, values, kind if numbers_of(kind) is not None else Real)
        shape = np.shape(values)
        if sweeping:
            if len(shape) < 1 + scheduled:
                raise ValueError(
                    f"{name} has shape {shape}, but a sweep takes a grid with one value for each "
                    "point, or schedules of shape [points, rounds]; make it with fcojax.grid."
                )
            lengths[name], shape = shape[0], shape[1:]
        default = type(hparams)._field_defaults.get(name)
        _require_shape(name, shape[1:] if scheduled else shape, default, sweeping)
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        raise ValueError(
            f"the fields of the grid have {lengths} points; give all the same number, at least one."
        )


def _require_numbers(name: str, values: Any, kind: Any) -> None:
    checked_value(name, values, kind)
    if isinstance(values, Tracer | jax.ShapeDtypeStruct):
        return
    # numpy's int64 beyond int32 would wrap silently.
    given, limits = np.asarray(values), np.iinfo(jnp.result_type(int))
    whole = given.dtype.kind in "iu" and given.size
    if whole and not limits.min <= given.min() <= given.max() <= limits.max:
        raise ValueError(f"{name} is {shown(values)}; pass numbers of {limits.dtype}.")


def _require_shape(name: str, shape: tuple, default: Any, sweeping: bool) -> None:
    # A rate of shape [3] would broadcast against a model of three entries, and run.
    expected = shape if default is None else np.shape(default)
    if shape != expected:
        grid = "" if sweeping else ", a grid goes to fcojax.sweep"
        raise ValueError(
            f"{name} has shape {shape} where {expected} is needed; pass one value{grid}, and one "
            "value for each round as fcojax.schedule(values)."
        )


def require_schedules(
    hparams: PyTree, num_rounds: int, sweeping: bool = False, after: Array | int = 0
) -> None:
    """Raise ``ValueError`` if a schedule has fewer values than there are rounds."""
    for name, value in zip(hparams._fields, hparams, strict=True):
        if not is_schedule(value) or isinstance(after, Tracer):
            continue
        # JAX clamps an index beyond the end: further rounds would silently repeat the last value.
        length, last = value.values.shape[1 if sweeping else 0], int(after) + num_rounds
        if length < last:
            raise ValueError(
                f"the schedule of {name} has {length} values; pass one for each of the "
                f"{last} rounds."
            )


def require_state(state: Any) -> None:
    """Raise ``ValueError`` unless this is the state of a run, with no array deleted."""
    checked_value("state", state, State)
    # JAX's own error says that an array was deleted, but not which argument it belongs to.
    arrays = [leaf for leaf in jax.tree.leaves(state) if isinstance(leaf, jax.Array)]
    if any(not isinstance(leaf, Tracer) and leaf.is_deleted() for leaf in arrays):
        raise ValueError(
            "the state was donated, so the next state has its memory; pass that one, or advance "
            "with donate=False."
        )


def require_state_of(algorithm: Any, hparams: Any, state: Any) -> None:
    """Raise ``ValueError`` unless a model can be read from these."""
    require_algorithm(algorithm)
    require_state(state)
    require_type(algorithm, hparams)
    require_hparams(hparams, is_sweep(state.key))
