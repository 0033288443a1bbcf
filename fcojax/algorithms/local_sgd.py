r"""FedGD and Local SGD: local gradient steps, averaged; the step size may follow the global step.

Li, Huang, Yang, Wang and Zhang, "On the convergence of FedAvg on non-IID data", ICLR 2020, with
full participation. ``fcojax.theory`` computes their bound, and the limits of these methods.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Displacement, Public, takes
from fcojax.algorithms.fed_avg import fed_avg
from fcojax.algorithms.local import mean_gradient
from fcojax.problems.losses import Loss
from fcojax.types import Array, NonNegative, Params, Positive, Scalar


class FedGDHparams(NamedTuple):
    """``client_lr`` is s, the size of every local step."""

    client_lr: Positive = 0.01


class LocalSGDHparams(NamedTuple):
    r"""``client_lr`` is :math:`s_0`, the first step size; a ``decay`` of 0 keeps it constant."""

    client_lr: Positive = 0.01
    decay: NonNegative = 0.0


class CountedPoint(NamedTuple):
    """A point, and the number of local steps so far."""

    params: Params
    step: Array


@takes(FedGDHparams)
def fed_gd(loss: Loss) -> Algorithm:
    r"""Federated gradient descent: E full local gradient steps, then the weighted average.

    .. math:: x_{r+1} = \sum_k p_k G_k^E(x_r), \qquad G_k(x) = x - s \nabla f_k(x)

    This is FedAvg with full gradients and a server rate of one. E is the ``num_steps`` of
    ``local_steps(num_steps)``; work with minibatches is refused, and so is compression. For E > 1
    the limit depends on s and E and is in general not the minimiser of :math:`\sum_k p_k f_k`; for
    quadratic clients ``fcojax.theory.least_squares`` computes it, and every iterate, in closed
    form.

    Args:
      loss: one loss per example.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_clients([{"h": np.ones(1)}, {"h": 3 * np.ones(1)}])
      >>> loss = lambda x, rows: rows["h"] / 2 * (x - rows["h"]) ** 2  # pooled minimiser 10 / 4
      >>> for num_steps in (1, 2):
      ...     x, _ = fcojax.run(
      ...         fed_gd(loss), fed_gd.Hparams(0.5), jnp.array(0.0), data, jax.random.key(0),
      ...         fcojax.local_steps(num_steps), num_rounds=100)
      ...     print(round(float(x), 5))
      2.5
      2.0
    """
    averaging = fed_avg(loss)

    def client_update(hparams, message, client, local, key):
        if local.work.batch_size is not None:
            raise ValueError(
                f"batch_size is {local.work.batch_size} but fed_gd takes full gradients; pass "
                "local_steps(num_steps) alone, or use local_sgd."
            )
        return averaging.client_update(hparams, message, client, local, key)

    def server_update(hparams, server, mean_upload, fraction, key):
        return tree.add(server, mean_upload)

    return averaging._replace(
        client_update=client_update, server_update=server_update, codecs="none"
    )


def inverse_time(hparams: LocalSGDHparams, step: Array) -> Scalar:
    r"""The step size :math:`s_t = s_0 / (1 + d t)`, with s_0 the ``client_lr`` and d the ``decay``.

    The schedule :math:`2 / (\alpha (\gamma + t))` of the theorem has :math:`s_0 = 2 / (\alpha
    \gamma)` and :math:`d = 1 / \gamma`.
    """
    return hparams.client_lr / (1 + hparams.decay * step)


@takes(LocalSGDHparams)
def local_sgd(loss: Loss, *, step_size: Callable[[Any, Array], Scalar] = inverse_time) -> Algorithm:
    r"""Local SGD: local steps whose size depends on the global step t, then the weighted average.

    .. math:: x^k_{t+1} = x^k_t - s_t \nabla f_k(x^k_t; \xi^k_t), \qquad
              x^k_{t+1} \leftarrow \sum_j p_j x^j_{t+1} \ \text{ if } E \text{ divides } t + 1

    The step size also changes inside a round, so the message carries t beside the model. The
    theorem draws examples with replacement, as ``local_steps(E, batch_size, replace=True)`` does;
    with ``local_steps(E)`` gradients are full, and with a decay of zero this is ``fed_gd``. Where
    clients take different numbers of steps, t grows by their weighted mean, to the nearest integer.

    Args:
      loss: one loss per example.
      step_size: ``(hparams, t) -> s_t`` with t a float. A schedule with other numbers reads them
        from ``hparams``, which may then be any named tuple.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> from fcojax.algorithms.local_sgd import inverse_time
      >>> hparams = fcojax.algorithms.local_sgd.Hparams(client_lr=1.0, decay=0.5)
      >>> [float(inverse_time(hparams, jnp.array(t))) for t in (0.0, 2.0, 6.0)]  # the default
      [1.0, 0.5, 0.25]
      >>> loss = lambda w, rows: 0.5 * (w - rows["a"]) ** 2
      >>> by_root = fcojax.algorithms.local_sgd(
      ...     loss, step_size=lambda hparams, t: hparams.client_lr / jnp.sqrt(1 + t))

    References:
      Li et al., 2020, section 2 and Theorem 1, with t counted from zero.
    """
    gradient = mean_gradient(loss)

    def init(hparams, params):
        return CountedPoint(params, jnp.zeros((), jnp.int32)), ()

    def broadcast(hparams, server):
        return server

    def client_update(hparams, message, client, local, key):
        def descend(at, batch):
            slope = gradient(at.params, batch)
            size = step_size(hparams, at.step.astype(jnp.result_type(float)))
            return CountedPoint(tree.add_scaled(at.params, -size, slope), at.step + 1)

        end = local.scan(descend, message)
        moved = Displacement(tree.sub(end.params, message.params), Public(local.num_steps))
        return ClientResult(client, moved, {})

    def server_update(hparams, server, mean_upload, fraction, key):
        num_steps = jnp.round(mean_upload.elapsed.value).astype(server.step.dtype)
        return CountedPoint(tree.add(server.params, mean_upload.params), server.step + num_steps)

    def model(hparams, server):
        return server.params

    algorithm = Algorithm(init, broadcast, client_update, server_update, model)
    return algorithm if step_size is inverse_time else algorithm._replace(hparams_type=tuple)
