"""Checks on the host, before tracing, of arguments that would run and give wrong numbers."""

from typing import Any

import jax
import numpy as np
from jax import numpy as jnp
from jax.core import Tracer

from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.work import Work
from fcojax.arguments import checked_value, shown
from fcojax.engine.hparams import as_arrays, is_schedule
from fcojax.engine.nonfinite import warn_of_nonfinite
from fcojax.engine.plan import Plan, Program, as_plan
from fcojax.engine.state import Observe, is_sweep
from fcojax.problems.clients import Clients
from fcojax.tree import by_field
from fcojax.types import Array, Count, Key, PyTree
from fcojax.uploads.contract import MEAN


def as_program(
    algorithm: Algorithm,
    hparams: PyTree,
    data: Clients,
    key: Key | None,
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
    warn_of_nonfinite()
    plan, num_evaluations, last = as_plan(plan), 1, None
    checked_value("algorithm", algorithm, Algorithm)  # a factory may not have been called
    if not isinstance(data, Clients):
        example = "fcojax.from_rows(rows, sizes)"
        raise ValueError(f"data is {shown(data)}; pass a ClientData, as in {example}.")
    _require_cohort(algorithm, plan, data)
    _require_uploads(algorithm, plan, data.num_clients)
    _require_work(plan, data)
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
        scheduled = isinstance(hparams, tuple) and any(map(is_schedule, hparams))
        last = int(after) + rounds if scheduled and not isinstance(after, Tracer) else None
    sweeping = key is not None and is_sweep(key)
    hparams = as_arrays(hparams, sweeping, last, algorithm.hparams_type)
    return Program(algorithm, plan, observe, num_evaluations, eval_every), hparams


def require_run(
    algorithm: Algorithm, plan: Plan, hparams: PyTree, data: Clients, key: Key | None = None
) -> None:
    """Raise ``ValueError`` if these cannot make a run, or a sweep where ``key`` is a vector."""
    as_program(algorithm, hparams, data, key, plan)


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

    def one(leaf):
        # A weakly typed state needs another program than the state that rounds return, so the first
        # block would be compiled separately.
        weak = isinstance(leaf, int | float) or getattr(leaf, "weak_type", False)
        return jnp.asarray(leaf, jnp.result_type(leaf)) if weak else leaf

    return jax.tree.map(one, params)


def as_first_states(states: Any) -> tuple[PyTree, PyTree]:
    """Return the result of an algorithm's ``init``; raise ``ValueError`` unless it is a pair."""
    if not isinstance(states, tuple) or len(states) != 2:
        raise ValueError(
            f"init returned {shown(states)}; return the first states (server, client)."
        )
    return states


def _require_cohort(algorithm: Algorithm, plan: Plan, data: Clients) -> None:
    # `size` refuses a cohort that is larger than the population.
    places, needs = plan.cohort.size(data.num_clients), algorithm.facts.needs_everyone
    losing = [one.name for one in plan.uploads.transforms if one.facts.leaves_out is not None]
    if places < data.num_clients or plan.cohort.can_be_absent:
        reason = f"the cohort is {plan.cohort}"
    else:
        reason = losing and f"the plan has {', '.join(losing)}"
    # Two exchanges with the same clients are the method on that cohort.
    held = needs == "or held" and plan.cohort.rounds % 2 == 0 and not losing
    if needs and reason and not held:
        advice = ", or held(sampler)" if needs == "or held" else ""
        raise ValueError(
            f"{reason}, which can leave some of the {data.num_clients} clients out, but this "
            "algorithm averages the states of all clients and needs each of them in every round; "
            f"pass everyone() without losses{advice}."
        )


def _require_uploads(algorithm: Algorithm, plan: Plan, num_clients: int) -> None:
    """Raise ``ValueError`` unless transforms, algorithm and number of clients fit together."""
    # These algorithms compress by themselves, or are exact only with the plain mean. Losses and
    # weights 1/q leave uploads as they are.
    facts = [one.facts for one in plan.uploads.transforms]
    changing = [
        one for one in facts if not one.arrives and (one.feeds_back or not one.estimates_all)
    ]
    if algorithm.facts.codecs == "none" and (changing or plan.aggregator != MEAN):
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


def _require_work(plan: Plan, data: Clients) -> None:
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
