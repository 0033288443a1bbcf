"""What can be known to be wrong before anything is traced, said in a sentence."""

import numpy as np
from jax.core import Tracer

from fcojax.algorithms.base import Algorithm
from fcojax.engine.round import Plan
from fcojax.problems.clients import ClientData
from fcojax.types import PyTree


def check_run(
    algorithm: Algorithm,
    plan: Plan,
    hparams: PyTree,
    data: ClientData,
    num_rounds: int,
    eval_every: int,
) -> None:
    """Raises ``ValueError`` if these cannot make a run."""
    for name, value in (("num_rounds", num_rounds), ("eval_every", eval_every)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} is {value!r}; pass a whole number of at least 1.")
    if num_rounds % eval_every:
        raise ValueError(
            f"eval_every is {eval_every}, which does not divide num_rounds = {num_rounds}; "
            "pass a divisor, so that all blocks are alike."
        )
    chunk = plan.client_chunk_size
    if chunk is not None and (isinstance(chunk, bool) or not isinstance(chunk, int) or chunk < 1):
        raise ValueError(f"client_chunk_size is {chunk!r}; pass at least 1, or None to pick it.")
    places = plan.cohort.size(data.num_clients)
    partial = places < data.num_clients or plan.cohort.can_be_absent
    counts = plan.work.counts
    if counts is not None and len(counts) != data.num_clients:
        raise ValueError(
            f"the work names counts for {len(counts)} clients but the problem has "
            f"{data.num_clients}; pass one for each, or one number for all."
        )
    if algorithm.needs_everyone and partial:
        raise ValueError(
            f"the cohort is {plan.cohort}, which can leave some of the {data.num_clients} clients "
            "out, but this algorithm averages what all clients hold, and one that misses a round "
            "holds an outdated point; pass everyone()."
        )
    batch_size = plan.work.batch_size
    if batch_size is not None and batch_size > data.max_size and not plan.work.replace:
        raise ValueError(
            f"batch_size is {batch_size} but the largest client has {data.max_size} examples; "
            f"pass at most {data.max_size}, or None for all of them."
        )
    check_hparams(hparams, num_rounds)


def check_hparams(hparams: PyTree, num_rounds: int | None = None) -> None:
    """Raises unless numbers are in the range that their name tells, and schedules long enough.

    Rates (``_lr``) and prox steps (``_step``) are positive, a ``_probability`` is below one, and
    nothing is negative.
    """
    for name, value in zip(hparams._fields, hparams, strict=True):
        if isinstance(value, Tracer):
            continue
        value = np.asarray(value)
        positive = name.endswith(("_lr", "_step"))
        if not np.isfinite(value).all() or (value < 0).any() or (positive and (value == 0).any()):
            needed = "positive" if positive else "zero or more"
            raise ValueError(f"{name} is {value.tolist()}; it must be finite and {needed}.")
        if name.endswith("_probability") and (value >= 1).any():
            raise ValueError(f"{name} is {value.tolist()}; it must be at least 0 and below 1.")
        if num_rounds is not None and value.ndim and value.shape != (num_rounds,):
            raise ValueError(
                f"{name} has shape {value.shape}; pass a number, or one for each of the "
                f"{num_rounds} rounds."
            )
