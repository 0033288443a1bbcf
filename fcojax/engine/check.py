"""What can be known to be wrong before anything is traced, said in a sentence."""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.core import Tracer
from jax.errors import ConcretizationTypeError, TracerArrayConversionError

from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import checked_count
from fcojax.engine import axes
from fcojax.engine.hparams import is_schedule
from fcojax.engine.plan import Plan
from fcojax.engine.state import State
from fcojax.problems.clients import ClientData
from fcojax.problems.fields import by_field, shown
from fcojax.types import Key, PyTree

# What the end of a field's name says about its values.
_POSITIVE = ("_lr", "_step")
_NOT_NEGATIVE = ("_scale", "_probability", "decay")


def check_rounds(num_rounds: int, eval_every: int) -> tuple[int, int]:
    """Both as Python integers; raises ``ValueError`` unless the second divides the first."""
    num_rounds = checked_count("num_rounds", num_rounds)
    eval_every = checked_count("eval_every", eval_every)
    if num_rounds % eval_every:
        raise ValueError(
            f"eval_every is {eval_every}, which does not divide num_rounds = {num_rounds}; "
            "pass a divisor, so that all blocks are alike."
        )
    return num_rounds, eval_every


def check_run(
    algorithm: Algorithm, plan: Plan, hparams: PyTree, data: ClientData, key: Key
) -> None:
    """Raises ``ValueError`` if these cannot make a run, or a sweep where ``key`` is a vector."""
    check_algorithm(algorithm)
    if not isinstance(data, ClientData):
        raise ValueError(
            f"data is a {type(data).__name__}; pass a population made by fcojax.from_clients, "
            "from_rows or open_clients."
        )
    sweeping = axes.is_sweep(key)
    _check_cohort(algorithm, plan, data)
    _check_work(plan, data)
    check_type(algorithm, hparams)
    check_hparams(hparams, sweeping)


def check_algorithm(algorithm: Any) -> None:
    """Raises unless it is one, and not the factory of one."""
    if not isinstance(algorithm, Algorithm):
        name = getattr(algorithm, "__name__", None)
        advice = f"call it: {name}(loss, ...)" if name else "pass what a factory returns"
        raise ValueError(
            f"algorithm is {shown(algorithm)}, which is no fcojax Algorithm; {advice}."
        )


def checked_params(params: Any) -> PyTree:
    """The start point as arrays; raises if it holds anything but finite numbers."""
    if callable(params):
        raise ValueError(
            f"params is {shown(params)}, a function; call it with a key, or let fcojax.start make "
            "a start point for each seed."
        )
    plain = isinstance(params, list) and params
    if plain and all(isinstance(entry, int | float) for entry in params):
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
        if not _is_number(leaf):
            raise ValueError(f"{name} is {shown(leaf)}; pass arrays to start from.")
        if jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key):
            raise ValueError(f"{name} is a PRNG key; pass a start point, as problem.init(key).")
        traced = isinstance(leaf, Tracer | jax.ShapeDtypeStruct)
        inexact = jnp.issubdtype(jnp.result_type(leaf), jnp.inexact)
        if inexact and not traced and not np.isfinite(np.asarray(leaf)).all():
            raise ValueError(f"{name} is not finite; pass a start point of finite numbers.")
    return jax.tree.map(_as_array, params)


def _as_array(leaf: Any) -> Any:
    """Numbers with a dtype of their own, which a loop over rounds can keep."""
    weak = isinstance(leaf, int | float) or getattr(leaf, "weak_type", False)
    return jnp.asarray(leaf, jnp.result_type(leaf)) if weak else leaf


def _is_number(leaf: Any) -> bool:
    """Whether jax takes it for an array or a number; keys are arrays."""
    dtype = getattr(leaf, "dtype", None)
    if dtype is None:
        return isinstance(leaf, bool | int | float | complex)
    return not isinstance(leaf, np.ndarray | np.generic) or dtype.kind not in "OSUMm"


def checked_init(init: Callable) -> Callable:
    """What makes a start point, if it can be called with a key alone."""
    if not _takes(init, 1):
        raise ValueError(
            f"params is {shown(init)}; pass a start point, or a function (key) -> params."
        )
    return init


def checked_pair(first: Any) -> tuple[PyTree, PyTree]:
    """What an algorithm's ``init`` returned, if that is two states."""
    if not isinstance(first, tuple) or len(first) != 2:
        raise ValueError(f"init returned {shown(first)}; return the first states (server, client).")
    return first


def check_observe(observe: Any, context: PyTree = None, optional: bool = False) -> None:
    """Raises unless one can observe with it, as far as can be seen before it is asked."""
    function = getattr(observe, "function", observe)
    if not (optional and observe is None) and not (callable(function) and _takes(function, 3)):
        raise ValueError(
            f"observe is {shown(function)}; pass a function (hparams, model, context) -> dict."
        )
    for _, leaf in by_field([context]):
        if not _is_number(leaf):
            raise ValueError(f"context is {shown(leaf)}; pass arrays that observe needs, or None.")


def checked_sight(observe: Callable, *given: Any) -> dict:
    """What is observed, if it is a dictionary of numbers."""
    try:
        seen = observe(*given)
    except (ConcretizationTypeError, TracerArrayConversionError) as error:
        raise ValueError(
            "observe is traced, so its numbers are not known yet; use jnp in place of float, int, "
            "bool, if and numpy."
        ) from error
    except (AttributeError, TypeError) as error:
        if given[-1] is None and "NoneType" in str(error):
            raise ValueError(
                f"observe was given no context and needs one ({error}); pass context=..., the "
                "arrays that it looks at."
            ) from error
        raise
    if not isinstance(seen, dict):
        raise ValueError(f"observe returned {shown(seen)}; return a dictionary of numbers.")
    for name, leaf in by_field([seen]):
        if not _is_number(leaf):
            raise ValueError(f"observe says that {name} is {shown(leaf)}; return numbers.")
    return seen


def _takes(function: Callable, number: int) -> bool:
    """Whether it can be called with so many positional arguments; true if nobody can tell."""
    try:
        inspect.signature(function).bind(*(None,) * number)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _check_cohort(algorithm: Algorithm, plan: Plan, data: ClientData) -> None:
    places = plan.cohort.size(data.num_clients)
    loses = getattr(plan.cohort, "loses_uploads", False)
    partial = places < data.num_clients or plan.cohort.can_be_absent
    if algorithm.needs_everyone and plan.guard is not None:
        raise ValueError(
            "the plan has a guard, which can drop clients, but this algorithm averages what all "
            "clients hold and needs every one of them in every round; pass guard=None."
        )
    if algorithm.needs_everyone and (partial or loses):
        can = "leave some of the {} clients out" if partial else "lose uploads of the {} clients"
        raise ValueError(
            f"the cohort is {plan.cohort}, which can {can.format(data.num_clients)}, but this "
            "algorithm averages what all clients hold and needs every one of them in every round; "
            "pass everyone()."
        )


def _check_work(plan: Plan, data: ClientData) -> None:
    counts, batch_size = plan.work.counts, plan.work.batch_size
    if counts is not None and len(counts) != data.num_clients:
        raise ValueError(
            f"the work names counts for {len(counts)} clients but the problem has "
            f"{data.num_clients}; pass one for each, or one number for all."
        )
    if batch_size is not None and batch_size > data.max_size and not plan.work.replace:
        raise ValueError(
            f"batch_size is {batch_size} but the largest client has {data.max_size} examples; "
            f"pass at most {data.max_size}, or None for all of them."
        )


def check_type(algorithm: Algorithm, hparams: Any) -> None:
    """Raises unless these are hyperparameters of this algorithm."""
    wanted, given = algorithm.hparams_type, type(hparams)
    if not hasattr(given, "_fields"):
        raise ValueError(
            f"hparams is {shown(hparams)}; pass a named tuple of numbers"
            + (f", {wanted.__name__}{signature(wanted)}." if wanted not in (None, tuple) else ".")
        )
    if wanted in (None, tuple, given, *getattr(given, "extends", ())):
        return
    if wanted._fields != given._fields:  # pyright: ignore[reportAttributeAccessIssue]
        raise ValueError(
            f"hparams is a {given.__name__}{signature(given)}, but this algorithm takes "
            f"{wanted.__name__}{signature(wanted)}; pass its own factory's Hparams."
        )


def signature(hparams_type: type) -> str:
    """The fields of hyperparameters as one would call them."""
    return f"({', '.join(hparams_type._fields)})"  # pyright: ignore[reportAttributeAccessIssue]


def check_hparams(hparams: PyTree, sweeping: bool = False) -> None:
    """Raises unless values are in the range that their names tell, and have fitting shapes.

    Rates (``_lr``) and prox steps (``_step``) are positive, strengths (``_scale``) and chances
    (``_probability``) are not negative, and the latter below one. Others may be any finite number.
    """
    defaults = type(hparams)._field_defaults
    lengths = {}
    for name, value in zip(hparams._fields, hparams, strict=True):
        value = value.values if is_schedule(value) else value
        if not isinstance(value, Tracer):
            value = _checked_value(name, value)
        shape = np.shape(value)
        if sweeping:
            if is_schedule(getattr(hparams, name)) and len(shape) < 2:
                raise ValueError(
                    f"{name} is one schedule, but a sweep takes one for each point; pass values of "
                    "shape [points, rounds]."
                )
            if not shape:
                raise ValueError(
                    f"{name} is one number, but a sweep takes a grid, with one value for each "
                    "point; make it with fcojax.product, zipped or random_draws."
                )
            lengths[name], shape = shape[0], shape[1:]
        _check_shape(name, shape, is_schedule(getattr(hparams, name)), defaults, sweeping)
    if len(set(lengths.values())) > 1:
        raise ValueError(f"the fields of the grid have {lengths} points; give all the same number.")
    if 0 in lengths.values():
        raise ValueError("the grid has no points; pass at least one value for each field.")


def _check_shape(name: str, shape: tuple, scheduled: bool, defaults: dict, sweeping: bool) -> None:
    if scheduled:
        shape = shape[1:]
    wanted = np.shape(defaults[name]) if name in defaults else shape
    if shape != wanted:
        several = "" if sweeping else ", a grid goes to fcojax.sweep"
        raise ValueError(
            f"{name} has shape {shape} where {wanted} is needed; pass one value{several}, and one "
            "value for each round as fcojax.schedule(values)."
        )


def _checked_value(name: str, value: Any) -> np.ndarray:
    try:
        given = np.asarray(value)
        real = jnp.issubdtype(given.dtype, jnp.number) and given.dtype.kind != "c"
        exact = given.astype(np.float64) if real or given.dtype == bool else None
    except (TypeError, ValueError):
        exact = None
    if exact is None:
        raise ValueError(f"{name} is {shown(value)}; pass a number.")
    if given.dtype.kind in "iu":
        _refuse_beyond(name, given, np.iinfo(jnp.result_type(int)))
    # As it will be used: 1e-50 is zero in float32 and 1e50 infinite.
    with np.errstate(over="ignore", under="ignore"):
        used = exact.astype(jnp.result_type(float))
    positive, not_negative = name.endswith(_POSITIVE), name.endswith(_NOT_NEGATIVE)
    bad = ~np.isfinite(used).all() or ((used == 0) & (exact != 0)).any()
    bad = bad or (positive and (used <= 0).any()) or (not_negative and (used < 0).any())
    if bad:
        needed = "positive" if positive else "zero or more" if not_negative else "a number"
        raise ValueError(
            f"{name} is {exact.tolist()}; it must be finite and {needed}, within the range of "
            f"{used.dtype}."
        )
    if name.endswith("_probability") and (used >= 1).any():
        raise ValueError(f"{name} is {exact.tolist()}; it must be at least 0 and below 1.")
    return exact


def _refuse_beyond(name: str, whole: np.ndarray, limits: np.iinfo) -> None:
    """Raises if a whole number is none that the device has."""
    if whole.size and not limits.min <= whole.min() <= whole.max() <= limits.max:
        raise ValueError(
            f"{name} is {whole.tolist()}; it must be within the range of {limits.dtype}."
        )


def check_schedules(hparams: PyTree, num_rounds: int, sweeping: bool = False) -> None:
    """Raises if a schedule has fewer values than there are rounds."""
    for name, value in zip(hparams._fields, hparams, strict=True):
        # In a grid the points come first.
        length = value.values.shape[1 if sweeping else 0] if is_schedule(value) else num_rounds
        if length < num_rounds:
            raise ValueError(
                f"the schedule of {name} has {length} values; pass one for each of the "
                f"{num_rounds} rounds."
            )


def refuse_no_state(state: Any) -> None:
    """Raises unless it is the state of a run."""
    if not isinstance(state, State):
        raise ValueError(f"the state is {shown(state)}; pass one that fcojax.start made.")


def check_reading(algorithm: Any, hparams: Any, state: Any) -> None:
    """Checks what the model of a state is read with."""
    check_algorithm(algorithm)
    refuse_no_state(state)
    check_type(algorithm, hparams)
