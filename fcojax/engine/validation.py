"""Checks on the host, before tracing, of arguments that would run and give wrong numbers."""

from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.core import Tracer

from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work
from fcojax.arguments import checked_value, field_annotations, numbers_of, shown
from fcojax.engine.hparams import as_arrays, is_schedule
from fcojax.engine.plan import Plan, Program, as_plan
from fcojax.engine.state import Observe, is_sweep
from fcojax.problems.clients import ClientData
from fcojax.problems.fields import by_field
from fcojax.types import Array, Count, Key, PyTree, Real
from fcojax.uploads.aggregator import MEAN


def as_program(
    algorithm: Algorithm,
    hparams: PyTree,
    data: ClientData,
    key: Key,
    plan: Plan | Work,
    num_rounds: int | None = None,
    eval_every: int = 1,
    observe: Observe | None = None,
    after: Array | int = 0,
) -> tuple[Program, PyTree]:
    """Return what a run compiles, and its hyperparameters as arrays.

    This is the check of arguments of every function that runs rounds; it raises ``ValueError`` in a
    sentence. The arguments are those of ``run`` or ``sweep``, with ``after`` rounds behind them;
    without ``num_rounds`` those of ``start``.
    """
    plan, num_evaluations, last = as_plan(plan), 1, None
    if num_rounds is not None:
        rounds: int = checked_value("num_rounds", num_rounds, Count, single=True)
        eval_every = checked_value("eval_every", eval_every, Count, single=True)
        num_evaluations, rest = divmod(rounds, eval_every)
        if rest:
            raise ValueError(
                f"eval_every is {eval_every}, which does not divide num_rounds = {rounds}; "
                "pass a divisor, so that all blocks have the same length."
            )
        # Read only if there are schedules: of a state that is being computed it would wait for it.
        scheduled = any(map(is_schedule, jax.tree.leaves(hparams, is_leaf=is_schedule)))
        last = int(after) + rounds if scheduled and not isinstance(after, Tracer) else None
    require_run(algorithm, plan, hparams, data, key, last)
    return Program(algorithm, plan, observe, num_evaluations, eval_every), as_arrays(hparams)


def require_run(
    algorithm: Algorithm,
    plan: Plan,
    hparams: PyTree,
    data: ClientData,
    key: Key | None = None,
    last: int | None = None,
) -> None:
    """Raise ``ValueError`` if these cannot make a run, or a sweep where ``key`` is a vector.

    ``last`` is the number of rounds that schedules have to reach, if that is known.
    """
    sweeping = key is not None and is_sweep(key)
    require_algorithm(algorithm)
    checked_value("data", data, ClientData)
    _require_cohort(algorithm, plan, data)
    _require_uploads(algorithm, plan, data.num_clients)
    _require_work(plan, data)
    require_type(algorithm, hparams)
    require_hparams(hparams, sweeping, last)


def require_algorithm(algorithm: Any) -> None:
    """Raise ``ValueError`` unless this is an ``Algorithm``; a factory may not have been called."""
    checked_value("algorithm", algorithm, Algorithm)


def as_params(params: Any) -> PyTree:
    """Return a start point as arrays; raise ``ValueError`` unless it holds finite numbers."""
    if not jax.tree.leaves(params):
        raise ValueError(f"params has no arrays, it is {shown(params)}; pass the start point.")
    for field, leaf in by_field([params]):
        name = "params" if field == "examples" else f"params.{field}"
        if isinstance(leaf, np.ma.MaskedArray) or jnp.iscomplexobj(leaf):
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


def as_first_states(states: Any) -> tuple[PyTree, PyTree]:
    """Return the result of an algorithm's ``init``; raise ``ValueError`` unless it is a pair."""
    if not isinstance(states, tuple) or len(states) != 2:
        raise ValueError(
            f"init returned {shown(states)}; return the first states (server, client)."
        )
    return states


def _require_cohort(algorithm: Algorithm, plan: Plan, data: ClientData) -> None:
    places = plan.cohort.size(data.num_clients)
    # `size` above has refused a cohort that is larger than the population.
    if not algorithm.facts.needs_everyone:
        return
    # Two exchanges with the same clients are the method on that cohort.
    held = plan.cohort.rounds % 2 == 0
    losing = [one.name for one in plan.uploads.transforms if one.facts.leaves_out is not None]
    if algorithm.facts.needs_everyone == "or held" and held and not losing:
        return
    advice = ", or held(sampler)" if algorithm.facts.needs_everyone == "or held" else ""
    out = f"which can leave some of the {data.num_clients} clients out"
    absent = places < data.num_clients or plan.cohort.can_be_absent
    reasons = {
        f"the cohort is {plan.cohort}, {out}": absent,
        f"the plan has {', '.join(losing)}, {out}": bool(losing),
    }
    for reason, holds in reasons.items():
        if holds:
            raise ValueError(
                f"{reason}, but this algorithm averages the states of all clients and needs each "
                f"of them in every round; pass everyone() without losses{advice}."
            )


def _require_uploads(algorithm: Algorithm, plan: Plan, num_clients: int) -> None:
    """Raise ``ValueError`` unless transforms, algorithm and number of clients fit together."""
    plain = not plan.uploads.transforms and plan.aggregator == MEAN
    # These algorithms compress by themselves, or are exact only with the plain mean. Losses and
    # weights 1/q leave uploads as they are.
    facts = [one.facts for one in plan.uploads.transforms]
    changing = [
        fact for fact in facts if not fact.arrives and (fact.feeds_back or not fact.estimates_all)
    ]
    if algorithm.facts.codecs == "none" and not plain and (changing or plan.aggregator != MEAN):
        raise ValueError(
            "the plan transforms or aggregates uploads, but this algorithm needs their plain mean; "
            "pass neither, or another algorithm, such as fed_avg."
        )
    made = [(one.name, one.facts.num_clients) for one in plan.uploads.transforms]
    for name, number in [("the algorithm", algorithm.facts.num_clients), *made]:
        if number not in (None, num_clients):
            raise ValueError(
                f"{name} is made for {number} clients but the problem has {num_clients}; pass "
                "numbers for each of them."
            )
    for one in plan.uploads.transforms:
        if one.facts.leaves_out in ("participants", "dropped", "refused"):
            raise ValueError(
                f"{one.name} has leaves_out={one.facts.leaves_out!r}, which the engine counts "
                "itself; choose another name."
            )
        if one.facts.feeds_back and algorithm.facts.codecs != "any":
            raise ValueError(
                f"{one.name} adds its error to later uploads, which have another meaning in this "
                "algorithm; pass a transform without feedback, such as uploads.compressed(...)."
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
        raise ValueError(f"hparams is {shown(hparams)}; pass a named tuple of numbers.")
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


def require_hparams(hparams: PyTree, sweeping: bool = False, last: int | None = None) -> None:
    """Raise ``ValueError`` unless values fit their annotations and have the right shapes.

    Args:
      hparams: hyperparameters, or a grid.
      sweeping: whether they are a grid.
      last: number of rounds for which schedules need values, or ``None``.
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
        # JAX clamps an index beyond the end: further rounds would silently repeat the last value.
        if scheduled and last is not None and shape[0] < last:
            raise ValueError(
                f"the schedule of {name} has {shape[0]} values; pass one for each of the "
                f"{last} rounds."
            )
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
    given = np.asarray(values)
    if given.dtype.kind in "iu" and given.size:
        limits = np.iinfo(jnp.result_type(int))
        if not limits.min <= given.min() <= given.max() <= limits.max:
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


def as_hparams_of(algorithm: Any, hparams: Any, state: Any) -> PyTree:
    """Return hyperparameters as arrays; raise ``ValueError`` unless a model can be read by them."""
    require_type(algorithm, hparams)
    require_hparams(hparams, is_sweep(state.key))
    return as_arrays(hparams)
