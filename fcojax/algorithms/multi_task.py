r"""A model for each client under any penalty on all models: graphs of sites, low rank, own zeros.

The models :math:`w_i` are the rows of W, and psi is a function of A W, where A mixes clients:
differences along the edges of a graph, or the identity. Douglas-Rachford splitting of

.. math:: \min_{W, U} \sum_i p_i f_i(w_i) + \psi(U) \quad \text{with } U = A W

needs one prox of each :math:`f_i`, one of psi, and the nearest point of :math:`U = A W`, which is
one linear system with a column for each client. So no prox of :math:`\psi \circ A` is solved by an
inner loop, and the weights :math:`p_i` do not enter the prox of psi.

Smith, Chiang, Sanjabi and Talwalkar, "Federated multi-task learning", NeurIPS 2017, and Hallac,
Leskovec and Boyd, "Network lasso: clustering and optimization in large graphs", KDD 2015, for the
problem. Combettes and Pesquet, "Stochastic quasi-Fejer block-coordinate fixed point iterations with
random sweeping", SIAM J. Optim. 2015, for convergence if each round updates U and some clients.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.algorithms.base import Algorithm, Facts, Public
from fcojax.algorithms.local_solvers import gd
from fcojax.algorithms.parts import (
    Correction,
    Geometry,
    LocalProblem,
    ServerStep,
    augmented_slope,
    method,
)
from fcojax.arguments import factory
from fcojax.problems.losses import Loss
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, Matrix, NonNegative, Params, Positive, PyTree
from fcojax.xla.linalg import symmetric_eigh


class CoupledHparams(NamedTuple):
    """``client_lr`` is the local solver's step, ``prox_step`` is eta.

    ``penalty_scale`` is the strength lambda.
    """

    client_lr: Positive = 0.01
    prox_step: Positive = 1.0
    penalty_scale: NonNegative = 0.1


class Rows(NamedTuple):
    """A row for each client: p_i times the change of z_i since the start, and p_i.

    In an upload only the client's own row is not zero, and p_i is not in it: the mean over the
    cohort multiplies by it.
    """

    changes: Params
    weights: Public


class MultiTaskServer(NamedTuple):
    """The start of all clients, the sum of their uploads, and V, the point z of psi, less A W_0."""

    start: Params
    rows: Rows
    dual: Params


class MultiTaskMessage(NamedTuple):
    """The rows x_i of the nearest point of U = A W, and the personal models if these differ."""

    center: Params
    models: PyTree


class CoupledClient(NamedTuple):
    """The client's point z_i, its last solution y_i, and the memory of its solver."""

    point: Params
    model: Params
    memory: PyTree


class MultiTaskClient(NamedTuple):
    """The client's part of the splitting, and its index, -1 before its first round."""

    own: CoupledClient
    index: Array


@factory
def multi_task(
    loss: Loss, penalty: Penalty, matrix: Matrix, *, solver: Geometry | None = None
) -> Algorithm[CoupledHparams]:
    r"""A model for each client under any penalty on their stack, or on differences of clients.

    .. math:: \min_{w_1, \dots, w_M} \sum_i p_i f_i(w_i) + \psi(A W)

    psi is a penalty on a pytree like the model in which every leaf has a further first axis, the
    rows of A. For instance, with a row :math:`\mu (e_i - e_k)` of A for each edge of a graph,
    ``l1()`` is :math:`\sum \mu |w_i - w_k|_1` and ``group_l2(axis=1)`` the network lasso; with
    ``np.eye(M)``, ``sparse_group(0.5, axis=0)`` is shared zeros beside own ones, and ``nuclear()``
    models of a low common rank. Rows of both sum two penalties.

    The server keeps a row for each client. With :math:`\sigma = 1 / (M |A|^2)` and P the weights,
    a round is

    .. math:: X = (P + \sigma A^T A)^{-1} (P Z + \sigma A^T V), \qquad
              V \leftarrow V + \mathrm{prox}_{\eta \psi / \sigma}(2 A X - V) - A X,

    and at the clients of the cohort, with :math:`x_i` the rows of X,

    .. math:: y_i \approx \mathrm{prox}_{\eta f_i}(2 x_i - z_i), \qquad
              z_i \leftarrow z_i + y_i - x_i.

    It is exact with any cohort and with lost uploads. A client sends its change in its row of a
    table of zeros, so that the mean of a cohort is the table of what has changed, with the weight
    that the server thus learns. Messages are M times the model, or 2 M where the next paragraph
    applies, and all clients receive all models. A client that was never counted has no loss yet,
    and stays at the start. As the table is a sum of changes, in float32 a start of 1,000 moves the
    limit by about 0.001.

    If the first M rows of A are a diagonal matrix, a personal model is the client's row of the prox
    divided by its entry, with the zeros or the rank that psi gives. Otherwise it is the row of X,
    in which models along an edge agree as far as the method has converged.

    Args:
      loss: one loss per example.
      penalty: psi.
      matrix: A, with a column for each client in the order of the data.
      solver: the solver of the local problems; ``gd()`` by default.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_clients([{"a": np.array([a])} for a in (0.0, 1.0, 8.0)])
      >>> loss = lambda x, rows: (x - rows["a"]) ** 2 / 2
      >>> path = np.array([[1, -1, 0], [0, 1, -1]])  # the edges of sites 0 - 1 - 2
      >>> algorithm = fcojax.algorithms.multi_task(loss, fcojax.transforms.l1(), path)
      >>> hparams = algorithm.hparams_type(client_lr=0.5, penalty_scale=1.0)
      >>> plan = fcojax.local_steps(5)
      >>> state = fcojax.start(algorithm, hparams, jnp.array(0.0), data, jax.random.key(0), plan)
      >>> state, _ = fcojax.advance(algorithm, hparams, state, data, plan, num_rounds=200)
      >>> print(fcojax.personal.read_models(algorithm, hparams, state).round(2))
      [2. 2. 5.]
    """
    mixing = np.asarray(matrix, float)
    num_clients = mixing.shape[1]
    sigma = 1 / (num_clients * (np.linalg.norm(mixing, 2) ** 2 or 1.0))
    head = mixing[:num_clients]
    scales = np.diagonal(head)
    is_diagonal = np.array_equal(head, np.diag(scales)) and scales.all()

    def solved(hparams, server):
        """Return X, psi's prox at 2 A X - V, and the new V."""
        rows, start = tree.floats(server.rows.changes), tree.floats(server.start)
        # Hyperparameters do not affect it, and equal eigenvalues would have no derivative.
        weights = jax.lax.stop_gradient(server.rows.weights.value)
        values, basis = symmetric_eigh(jnp.diag(weights) + sigma * mixing.T @ mixing)
        # Singular as long as some clients, which the others do not fix, have not taken part.
        least = num_clients * jnp.finfo(values.dtype).eps * values[-1]
        inverses = jnp.where(values > least, 1 / jnp.maximum(values, least), 0)
        inverse = (basis * inverses[None]) @ basis.T

        dual = tree.floats(server.dual)
        right = tree.add_scaled(rows, sigma, _product(mixing.T, dual))
        moved = _product(inverse, right)
        first = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_clients, *leaf.shape)), start)
        image, offset = _product(mixing, moved), _product(mixing, first)
        reflected = tree.sub(tree.add(offset, tree.scale(2.0, image)), dual)
        prox = penalty.prox(reflected, hparams.prox_step / sigma, hparams.penalty_scale)
        dual = tree.add(dual, tree.sub(prox, tree.add(offset, image)))
        return tree.add(first, moved), prox, dual

    def nothing(num_rows, params):
        return jax.tree.map(lambda leaf: jnp.zeros((num_rows, *leaf.shape), leaf.dtype), params)

    def init(hparams, params):
        rows = Rows(nothing(num_clients, params), Public(jnp.zeros(num_clients)))
        return MultiTaskServer(params, rows, nothing(len(mixing), params))

    def own(params, memory):
        return MultiTaskClient(CoupledClient(params, params, memory), jnp.array(-1, jnp.int32))

    def broadcast(hparams, server):
        center, prox, _ = solved(hparams, server)
        models = ()
        if is_diagonal:
            heads = jax.tree.map(lambda leaf: leaf[:num_clients], prox)
            models = tree.cast_like(_product(np.diag(1 / scales), heads), server.rows.changes)
        return MultiTaskMessage(tree.cast_like(center, server.rows.changes), models)

    def begin(hparams, message, client, local):
        x, own = _row(message.center, local.client.astype(jnp.int32)), client.own
        anchor = tree.sub(tree.scale(2.0, x), own.point)
        constants = anchor, tree.zeros_like(x)
        return LocalProblem(anchor, augmented_slope, constants, own.model, own.memory)

    def keep(hparams, message, client, local, steps):
        index, before = local.client.astype(jnp.int32), client.own.point
        x = _row(message.center, index)
        own = CoupledClient(tree.add(before, tree.sub(steps.end, x)), steps.end, steps.memory)
        chosen = jnp.arange(num_clients, dtype=jnp.int32) == index

        def placed(leaf):
            mask = chosen.reshape(-1, *(1,) * leaf.ndim).astype(leaf.dtype)
            return mask * leaf[None]

        changes = jax.tree.map(placed, tree.sub(own.point, before))
        weights = placed(jnp.where(client.index < 0, 1.0, 0.0))
        return MultiTaskClient(own, index), Rows(changes, Public(weights))

    def step(hparams, server, mean, fraction, key):
        dual = tree.cast_like(solved(hparams, server)[2], server.dual)
        rows = tree.add_scaled(server.rows, fraction, mean)
        return MultiTaskServer(server.start, rows, dual)

    def models_of(message):
        return message.models if is_diagonal else message.center

    def model(hparams, server):
        weights = server.rows.weights.value
        total = jnp.sum(weights)
        shares = weights / jnp.where(total > 0, total, 1)
        mean = _product(shares, models_of(broadcast(hparams, server)))
        # All clients are at the start before the first round.
        return tree.where(total > 0, mean, server.start)

    def client_model(hparams, message, client):
        row = _row(models_of(message), client.index)
        return tree.where(client.index < 0, client.own.point, row)

    facts = Facts(num_clients=num_clients, exact=True)
    coupled = Correction("row of a table", begin, keep, own, facts, client_model)
    server = ServerStep("prox of the table", step, init, broadcast, model)
    algorithm = method(loss, solver or gd(), coupled, server, facts=facts)
    return algorithm._replace(hparams_type=CoupledHparams)


def _product(matrix: np.ndarray | Array, x: PyTree) -> PyTree:
    """Return a matrix or a vector times each leaf, along its first axis."""

    def one(leaf):
        factor = jnp.asarray(matrix, leaf.dtype)
        return jnp.tensordot(factor, leaf, 1, precision=jax.lax.Precision.HIGHEST)

    return jax.tree.map(one, x)


def _row(x: PyTree, index: Array) -> PyTree:
    """Return a row of each leaf."""
    return jax.tree.map(lambda leaf: leaf[index], x)
