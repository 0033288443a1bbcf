r"""A model for each client under one penalty on all models together: shared supports, fusion.

The penalty couples the models :math:`w_i` of the clients in each entry j through their mean and
their mean square alone,

.. math:: m_j = \sum_i p_i w_{ij}, \qquad q_j = \sum_i p_i w_{ij}^2,

and so does its prox, which is the same affine map of an entry at all clients. The server therefore
keeps two vectors and no model of a client: the means over **all** clients, to which it adds the
mean changes of the cohort. A client that is absent keeps its point, and its part of the means.

Lions and Mercier, "Splitting algorithms for the sum of two nonlinear operators", SIAM J. Numer.
Anal. 1979, for Douglas-Rachford splitting; Combettes and Pesquet, "Stochastic quasi-Fejer
block-coordinate fixed point iterations with random sweeping", SIAM J. Optim. 2015, for its
convergence if each round updates only some of the blocks, which are the clients. The form in which
only means cross is ours.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, takes
from fcojax.algorithms.local import Local, mean_gradient
from fcojax.algorithms.local_solvers import LocalProblem, Solver, gd
from fcojax.problems.losses import Loss
from fcojax.transforms.calculus.predicates import PathPredicate
from fcojax.transforms.penalties.l1 import zero
from fcojax.transforms.penalty import Penalty
from fcojax.types import NonNegative, Params, Positive, PyTree


class CoupledHparams(NamedTuple):
    """``client_lr`` is the local solver's step, ``prox_step`` is eta.

    ``penalty_scale`` is the strength lambda.
    """

    client_lr: Positive = 0.01
    prox_step: Positive = 1.0
    penalty_scale: NonNegative = 0.1


class FusedHparams(NamedTuple):
    """``client_lr`` is the local solver's step, ``prox_step`` is eta.

    ``fusion_scale`` is the strength mu of the fusion, ``penalty_scale`` that of psi.
    """

    client_lr: Positive = 0.01
    prox_step: Positive = 1.0
    fusion_scale: NonNegative = 0.1
    penalty_scale: NonNegative = 0.1


class Moments(NamedTuple):
    """The mean and the mean square of the clients' points z_i; in an upload, the changes."""

    mean: Params
    square: Params


class Affine(NamedTuple):
    """The prox of the penalty at all clients: z_i to ``shift + factor * z_i``, by entry.

    A shift of ``()`` is zero, and is not sent.
    """

    factor: Params
    shift: PyTree


class CoupledClient(NamedTuple):
    """The client's point z_i, its last solution y_i, and the memory of its solver."""

    point: Params
    model: Params
    memory: PyTree


@takes(CoupledHparams)
def shared_support(
    loss: Loss, *, touches: PathPredicate | None = None, solver: Solver | None = None
) -> Algorithm:
    r"""A model for each client, all with the same zeros and each with its own values.

    .. math:: \min_{w_1, \dots, w_M} \sum_i p_i f_i(w_i)
              + \lambda \sum_j \Big(\sum_i p_i w_{ij}^2\Big)^{1/2}

    The penalty is the group lasso over clients, for each entry j. In the norm with the weights
    :math:`p_i` its prox multiplies an entry by :math:`(1 - \eta \lambda / q_j^{1/2})_+` at all
    clients, which is all that the server sends. If all clients have one model w, the penalty is
    :math:`\lambda |w|_1`, so strengths compare with those of a common lasso. See ``fused`` for the
    method and for what is sent. The server's :math:`q_j` is a sum of changes: in float32 it keeps
    an error of 1e-7 of its largest value, so a start of 1,000 moves the limit by about 0.1.

    Args:
      loss: one loss per example.
      touches: which leaves of the model have the penalty, as for ``fcojax.transforms.on_subtree``;
        all by default. The others are not shared at all.
      solver: the solver of the local problems; ``gd()`` by default.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_clients([{"a": np.array([row])} for row in ([3.0, 0.2], [1.0, 0.2])])
      >>> loss = lambda x, rows: ((x[None] - rows["a"]) ** 2 / 2).sum(axis=1)
      >>> algorithm = fcojax.algorithms.shared_support(loss)
      >>> hparams = algorithm.hparams_type(client_lr=0.5, penalty_scale=5**0.5 / 2)
      >>> plan = fcojax.local_steps(5)
      >>> state = fcojax.start(algorithm, hparams, jnp.zeros(2), data, jax.random.key(0), plan)
      >>> state, _ = fcojax.advance(algorithm, hparams, state, data, plan, num_rounds=100)
      >>> print(fcojax.personal.read_models(algorithm, hparams, state).round(2))  # half of a
      [[1.5 0. ]
       [0.5 0. ]]
    """

    def prox(hparams, moments):
        threshold = hparams.prox_step * hparams.penalty_scale
        factor = jax.tree_util.tree_map_with_path(
            lambda path, square: (
                _shrinkage(square, threshold)
                if touches is None or touches(path, square)
                else jnp.ones_like(square)
            ),
            moments.square,
        )
        return Affine(factor, ())

    return coupled(loss, prox, solver)


@takes(FusedHparams, "penalty")
def fused(loss: Loss, penalty: Penalty | None = None, *, solver: Solver | None = None) -> Algorithm:
    r"""A model for each client; most entries are the same at all clients, the others differ.

    .. math:: \min_{w_1, \dots, w_M} \sum_i p_i f_i(w_i) + \psi(\bar w)
              + \mu \sum_j \Big(\sum_i p_i (w_{ij} - \bar w_j)^2\Big)^{1/2}

    with :math:`\bar w` the mean model. For a large :math:`\mu` it is the common problem; with
    :math:`\mu = 0` and no psi clients learn alone. The mean and the deviations from it are
    orthogonal, so the prox is one of psi at the mean and a shrinkage of the deviations.

    A client keeps :math:`z_i`. In a round it computes :math:`x_i`, its part of the prox at z, and

    .. math:: y_i \approx \mathrm{prox}_{\eta f_i}(2 x_i - z_i), \qquad
              z_i \leftarrow z_i + y_i - x_i,

    and sends the changes of :math:`z_i` and of its squares, two vectors. This is Douglas-Rachford
    splitting, in which each :math:`z_i` is a block: exact with any cohort and with lost uploads.
    Personal models are the :math:`x_i`, read by ``fcojax.personal.read_models``; the algorithm's
    ``model`` is their mean. In float32 the deviations of an entry are known up to about 3e-4 of its
    mean, as they are found from the mean square.

    Args:
      loss: one loss per example.
      penalty: psi; none by default.
      solver: the solver of the local problems; ``gd()`` by default.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_clients([{"a": np.array([row])} for row in ([3.0, 2.2], [1.0, 1.8])])
      >>> loss = lambda x, rows: ((x[None] - rows["a"]) ** 2 / 2).sum(axis=1)
      >>> algorithm = fcojax.algorithms.fused(loss)
      >>> hparams = algorithm.hparams_type(client_lr=0.5, fusion_scale=0.5)
      >>> plan = fcojax.local_steps(5)
      >>> state = fcojax.start(algorithm, hparams, jnp.zeros(2), data, jax.random.key(0), plan)
      >>> state, _ = fcojax.advance(algorithm, hparams, state, data, plan, num_rounds=100)
      >>> print(fcojax.personal.read_models(algorithm, hparams, state).round(2))
      [[2.5 2. ]
       [1.5 2. ]]
    """
    psi = penalty or zero()

    def prox(hparams, moments):
        variance = jax.tree.map(lambda m, q: q - m * m, moments.mean, moments.square)
        threshold = hparams.prox_step * hparams.fusion_scale
        factor = jax.tree.map(lambda square: _shrinkage(square, threshold), variance)
        center = psi.prox(moments.mean, hparams.prox_step, hparams.penalty_scale)
        return Affine(factor, tree.sub(center, jax.tree.map(jnp.multiply, factor, moments.mean)))

    return coupled(loss, prox, solver)


def coupled(
    loss: Loss, prox: Callable[[Any, Moments], Affine], solver: Solver | None = None
) -> Algorithm:
    """Build the algorithm of a penalty whose prox depends on the clients' moments alone.

    Args:
      loss: one loss per example.
      prox: ``(hparams, moments) -> Affine``, of step ``prox_step``.
      solver: the solver of the local problems; ``gd()`` by default.
    """
    step = reflected_step(loss, solver)

    def at(affine, point):
        shrunk = jax.tree.map(jnp.multiply, affine.factor, point)
        return tree.add(affine.shift, shrunk) if jax.tree.leaves(affine.shift) else shrunk

    def squares(point):
        return jax.tree.map(jnp.square, point)

    def init(hparams, params):
        return Moments(params, squares(params)), step.init(params)

    def client_update(hparams, message, client, local, key):
        moved = step.solve(hparams, at(message, client.point), client, local)
        old, new = (Moments(c.point, squares(c.point)) for c in (client, moved))
        return ClientResult(moved, tree.sub(new, old), {})

    def server_update(hparams, server, mean_upload, fraction, key):
        return tree.add_scaled(server, fraction, mean_upload)

    def model(hparams, server):
        return at(prox(hparams, server), server.mean)

    def client_model(hparams, message, client):
        return at(message, client.point)

    return Algorithm(init, prox, client_update, server_update, model, client_model=client_model)


class ReflectedStep(NamedTuple):
    """A client's part of Douglas-Rachford splitting: its first state, and its round."""

    init: Callable[[Params], CoupledClient]
    solve: Callable[[Any, Params, CoupledClient, Local], CoupledClient]


def reflected_step(loss: Loss, solver: Solver | None) -> ReflectedStep:
    r"""Return the step :math:`z_i \leftarrow z_i + y_i - x_i` of ``fused`` from the prox x_i.

    Args:
      loss: one loss per example.
      solver: the solver of the local problems; ``gd()`` by default.
    """
    gradient, solver = mean_gradient(loss), solver or gd()

    def init(params):
        return CoupledClient(params, params, solver.init(params))

    def solve(hparams, x, client, local):
        anchor = tree.sub(tree.scale(2.0, x), client.point)
        problem = LocalProblem(gradient, anchor, tree.zeros_like(x), hparams.prox_step)
        y, memory = solver.solve(hparams, problem, client.model, client.memory, local)
        return CoupledClient(tree.add(client.point, tree.sub(y, x)), y, memory)

    return ReflectedStep(init, solve)


def _shrinkage(square, threshold):
    """Return ``(1 - threshold / norm)_+`` of a squared norm; 0 for both zero."""
    threshold = jnp.asarray(threshold, square.dtype)
    # A sum of changes may end a rounding error below 0.
    norm = jnp.sqrt(jnp.maximum(square, 0))
    shrunk = 1 - threshold / jnp.where(norm > threshold, norm, 1)
    return jnp.where(norm > threshold, shrunk, jnp.where(threshold > 0, 0, 1).astype(square.dtype))
