r"""SCAFFOLD: local steps with control variates, and where a penalty may enter.

Karimireddy, Kale, Mohri, Reddi, Stich and Suresh, "SCAFFOLD: stochastic controlled averaging for
federated learning", ICML 2020.
"""

from typing import Literal, NamedTuple

from fcojax import tree
from fcojax.algorithms.base import Algorithm, takes
from fcojax.algorithms.correction import corrected
from fcojax.algorithms.linear_steps import linear_steps
from fcojax.algorithms.local import mean_gradient
from fcojax.problems.losses import Loss
from fcojax.transforms.penalties.l1 import zero
from fcojax.transforms.penalty import Penalty
from fcojax.types import NonNegative, Positive


class ScaffoldHparams(NamedTuple):
    """``client_lr`` is eta_c, ``server_lr`` is eta_s, ``penalty_scale`` is the strength of psi."""

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    penalty_scale: NonNegative = 0.1


@takes(ScaffoldHparams, "penalty")
def scaffold(
    loss: Loss,
    penalty: Penalty | None = None,
    *,
    prox: Literal["client", "server", "feedback"] = "client",
    control: Literal["steps", "gradient"] = "steps",
) -> Algorithm:
    r"""Stochastic controlled averaging of the mean loss plus psi, with any cohort.

    A client starts at the server's x and takes K steps with its control :math:`c_i` and the mean c
    of all controls,

    .. math:: x_i \leftarrow x_i - \eta_c (\nabla f_i(x_i) - c_i + c + s), \qquad
              v = x + \eta_s \sum_i p_i (x_i - x + \eta_c K s),

    where s is zero except for ``prox="feedback"``. The penalty may enter in three ways:

    - ``"client"``: a prox of step :math:`\eta_c` after each local step, and :math:`x = v`. Exact; K
      proxes per client, and a model that is an average, not sparse.
    - ``"server"``: only :math:`x = \mathrm{prox}_{t_e \psi}(v)` with :math:`t_e = \eta_s \eta_c K`.
      Local steps leave the solution along :math:`\nabla F \ne 0`, so the limit is off in proportion
      to :math:`\eta_c (K - 1)`.
    - ``"feedback"``: the same, and local steps follow the subgradient :math:`s = (v - x) / t_e` of
      the last prox. At the solution :math:`\nabla F + s = 0`, so the local steps vanish: exact,
      with one prox per round and a sparse model.

    With one local step the latter two are proximal gradient descent.

    Args:
      loss: one loss per example.
      penalty: psi; none by default.
      prox: where psi enters.
      control: a client's new control: the mean gradient of its ``"steps"`` (option II of the paper,
        one vector up), or its full ``"gradient"`` at x (option I, two vectors up and a pass over
        all examples).

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_clients([{"h": np.ones(1)}, {"h": 3 * np.ones(1)}])
      >>> loss = lambda x, rows: rows["h"] / 2 * (x - rows["h"]) ** 2  # pooled minimiser 10 / 4
      >>> algorithm = fcojax.algorithms.scaffold(loss)
      >>> x, _ = fcojax.run(
      ...     algorithm, algorithm.hparams_type(client_lr=0.2), jnp.array(0.0), data,
      ...     jax.random.key(0), fcojax.local_steps(2), num_rounds=100)
      >>> round(float(x), 3)
      2.5

    References:
      Karimireddy et al., 2020, Algorithm 1. The feedback of a subgradient is ours.
    """
    gradient, penalty = mean_gradient(loss), penalty or zero()

    def local_steps(hparams, start, correction, local):
        def descend(x, batch, correction):
            slope = tree.add(gradient(x, batch), correction)
            return tree.add_scaled(x, -hparams.client_lr, slope)

        if prox != "client":
            return linear_steps(loss, local, descend, start, correction)

        def step(x, batch):
            x = descend(x, batch, correction)
            return penalty.prox(x, hparams.client_lr, hparams.penalty_scale)

        return tree.sub(local.scan(step, start), start)

    def server_prox(hparams, target, step):
        if prox == "client":
            return target
        return penalty.prox(target, step, hparams.penalty_scale)

    def full_gradient(x, local):
        return gradient(x, local.full())

    return corrected(
        local_steps,
        server_prox,
        stored_gradient=full_gradient if control == "gradient" else None,
        feedback=prox == "feedback",
    )
