r"""Cox regression of survival times, stratified by client: a risk set lies within one client.

Cox, "Regression models and life-tables", JRSS B 1972; ties as in Breslow, "Covariance analysis of
censored survival data", Biometrics 1974.
"""

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.extend import validated
from fcojax.problems import ClientData, Problem, WholeBatchLoss
from fcojax.problems.labels import check_features
from fcojax.types import Array


@validated
def cox(train: ClientData, validation: ClientData | None = None) -> Problem:
    r"""Proportional hazards on features ``x``, with a ``time`` and an ``event`` indicator.

    .. math:: F_m(w) = \frac{1}{n_m} \sum_{i: e_i = 1} \Big(
                  \log \sum_{j: t_j \ge t_i} \exp(x_j^T w) - x_i^T w \Big)

    with i and j in the same client, so each client has its own baseline hazard. It is minus the log
    partial likelihood stratified by client, if clients are weighted by their number of examples. A
    loss needs all examples of a client at once, so minibatches are refused.

    The parameters are the kernel alone, since a bias cancels.

    Args:
      train: training data, with fields ``x``, ``time`` and ``event``.
      validation: validation data, or ``None``.

    Example:
      >>> import fcojax, jax, numpy as np
      >>> rows = {"x": np.zeros((2, 3)), "time": np.array([1.0, 2.0]), "event": np.array([1, 0])}
      >>> problem = cox(fcojax.from_rows(rows, [2]))
      >>> problem.init(jax.random.key(0)).shape, type(problem.loss).__name__  # full batches only
      ((3,), 'WholeBatchLoss')
    """
    check_features(train, validation, beside=("time", "event"))
    for data in (train, validation):
        if data is not None and not np.isin(np.asarray(data.examples["event"]), (0, 1)).all():
            raise ValueError("field event has values other than 0 and 1; pass 1 for an event.")
    x = train.examples["x"]
    return Problem(cox_loss, train, validation, lambda key: jnp.zeros(x.shape[1], x.dtype))


def _partial_likelihood(kernel: Array, rows, weights: Array) -> Array:
    risk = rows["x"] @ kernel
    present = weights > 0
    # Far below any risk, and finite, so that derivatives are finite.
    absent = jnp.finfo(risk.dtype).min / 4
    order = jnp.argsort(-rows["time"])
    late_first = -rows["time"][order]
    logs = jax.lax.cumlogsumexp(jnp.where(present, risk, absent)[order])
    # Examples with equal times share a risk set: take the sum up to the last of them.
    last = jnp.searchsorted(late_first, -rows["time"], side="right") - 1
    event = present & (rows["event"] > 0)
    return jnp.where(event, logs[last] - risk, 0)


cox_loss = WholeBatchLoss(_partial_likelihood)
