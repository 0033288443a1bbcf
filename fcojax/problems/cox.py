r"""Cox regression of survival times, stratified by client: risk sets never leave a site.

Cox, "Regression models and life-tables", JRSS B 1972; ties as in Breslow, "Covariance analysis of
censored survival data", Biometrics 1974.
"""

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.problems.clients import ClientData
from fcojax.problems.fields import check_features
from fcojax.problems.problem import Problem, WholeBatchLoss
from fcojax.types import Array


def cox(train: ClientData, validation: ClientData | None = None) -> Problem:
    r"""Proportional hazards on features ``x``, with a ``time`` and an ``event`` (1) or not (0).

    .. math:: F_m(w) = \frac{1}{n_m} \sum_{i: e_i = 1} \Big(
                  \log \sum_{j: t_j \ge t_i} \exp(x_j^T w) - x_i^T w \Big)

    with i and j in the same client, which therefore has a baseline hazard of its own: minus the
    partial likelihood stratified by client, if clients are weighted by their number of examples.
    A site needs all its examples at once: work in full batches.

    The parameters are the kernel alone, since a bias cancels.

    Example:
      >>> import fcojax, jax, numpy as np
      >>> rows = {"x": np.zeros((2, 3)), "time": np.array([1.0, 2.0]), "event": np.array([1, 0])}
      >>> problem = fcojax.problems.cox(fcojax.from_rows(rows, [2]))
      >>> problem.init(jax.random.key(0)).shape, type(problem.loss).__name__  # full batches only
      ((3,), 'WholeBatchLoss')
    """
    check_features(train, validation, beside=("time", "event"))
    for data in (train, validation):
        if data is not None and not np.isin(np.asarray(data.examples["event"]), (0, 1)).all():
            raise ValueError("cox was given an event that is neither 0 nor 1; pass 1 for an event.")
    x = train.examples["x"]
    return Problem(cox_loss, train, validation, lambda key: jnp.zeros(x.shape[1], x.dtype))


def _partial_likelihood(kernel: Array, rows, weights: Array) -> Array:
    risk = rows["x"] @ kernel
    present = weights > 0
    # Far below any risk, and finite, so that derivatives are.
    absent = jnp.finfo(risk.dtype).min / 4
    order = jnp.argsort(-rows["time"])
    late_first = -rows["time"][order]
    logs = jax.lax.cumlogsumexp(jnp.where(present, risk, absent)[order])
    # Those who share a time are at risk together: the sum reaches to the last of them.
    last = jnp.searchsorted(late_first, -rows["time"], side="right") - 1
    event = present & (rows["event"] > 0)
    return jnp.where(event, logs[last] - risk, 0)


cox_loss = WholeBatchLoss(_partial_likelihood)
