r"""FedDyn: dynamic regularisation, a dual per client and their mean on the server.

Acar, Zhao, Matas Navarro, Mattina, Whatmough and Saligrama, "Federated learning based on dynamic
regularization", ICLR 2021.
"""

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, takes
from fcojax.algorithms.local import mean_gradient
from fcojax.algorithms.local_solvers import LocalProblem, Solver, gd
from fcojax.problems.losses import Loss
from fcojax.transforms.penalties.l1 import zero
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, NonNegative, Params, Positive, PyTree


class FedDynHparams(NamedTuple):
    """``client_lr`` is the local solver's step; ``prox_step`` is eta, 1/alpha in the paper.

    ``penalty_scale`` is the strength of psi.
    """

    client_lr: Positive = 0.01
    prox_step: Positive = 1.0
    penalty_scale: NonNegative = 0.1


class Drift(NamedTuple):
    """The model x_0, the drift h, and the mean of client models if ``report`` needs it."""

    center: Params
    drift: Params
    average: PyTree


class DualClient(NamedTuple):
    """x_i and lambda_i of the client's last round, and the memory of its solver."""

    model: Params
    dual: Params
    memory: PyTree


class Moves(NamedTuple):
    """The upload: x_i - x_0, and the change of x_i if the mean of all x_i is the model."""

    from_center: Params
    from_last: PyTree


@takes(FedDynHparams, "penalty")
def fed_dyn(
    loss: Loss,
    penalty: Penalty | None = None,
    *,
    solver: Solver | None = None,
    report: Literal["server", "sampled", "all"] = "server",
) -> Algorithm:
    r"""Federated dynamic regularisation of the mean loss plus psi, with any cohort.

    A client of the cohort P minimises its augmented Lagrangian, then updates its dual; the others
    keep their state:

    .. math:: x_i \approx \arg\min_x f_i(x) + \langle \lambda_i, x - x_0 \rangle
                         + \tfrac{1}{2 \eta} |x - x_0|^2, \qquad
              \lambda_i \leftarrow \lambda_i + (x_i - x_0) / \eta.

    The server computes, with weights p_i that sum to one over all clients,

    .. math:: h \leftarrow h + \tfrac{1}{\eta} \sum_{i \in P} p_i (x_i - x_0), \qquad
              x_0 \leftarrow \mathrm{prox}_{\eta \psi}\Big(
                  \frac{\sum_{i \in P} p_i x_i}{\sum_{i \in P} p_i} + \eta h\Big).

    The drift h equals the mean of the duals of all clients in every round, if it does so in the
    first: both receive the same increments. A difference b between them persists, and the method
    then converges to a point where the mean gradient is b. So duals and drift start at zero, and
    ``with_duals`` computes the drift for other duals. In the paper's symbols the client's gradient
    state is minus the dual, the server's is minus h, and alpha is 1 / eta.

    With full participation, the same solver and the same start this is FedPD without skipping. One
    vector goes up and one down; a client stores two, :math:`x_i` and :math:`\lambda_i`.

    Args:
      loss: one loss per example.
      penalty: psi, applied on the server; none by default.
      solver: the solver of the local problems; by default ``gd(warm_start=False)``, as in the
        authors' code.
      report: the model that is returned: ``"server"`` for x_0; ``"sampled"`` for the mean of the
        cohort's x_i; or ``"all"`` for the mean of the last x_i of all clients, which varies least
        and needs a second vector up. The iterates and the limit are the same.

    Example:
      >>> import fcojax, jax, numpy as np
      >>> data = fcojax.from_clients([{"h": np.ones(1)}, {"h": 3 * np.ones(1)}])
      >>> loss = lambda x, rows: rows["h"] / 2 * (x - rows["h"]) ** 2  # minimiser with |x|: 2
      >>> algorithm = fcojax.algorithms.fed_dyn(loss, fcojax.transforms.l1())
      >>> hparams = algorithm.hparams_type(client_lr=0.2, prox_step=0.5, penalty_scale=1.0)
      >>> plan, key = fcojax.local_steps(5), jax.random.key(0)
      >>> x, _ = fcojax.run(algorithm, hparams, jnp.array(0.0), data, key, plan, num_rounds=200)
      >>> round(float(x), 3)
      2.0
    """
    gradient, penalty = mean_gradient(loss), penalty or zero()
    solver = solver or gd(warm_start=False)

    def init(hparams, params):
        average = () if report == "server" else params
        client = DualClient(params, tree.zeros_like(params), solver.init(params))
        return Drift(params, tree.zeros_like(params), average), client

    def broadcast(hparams, server):
        return server.center

    def client_update(hparams, message, client, local, key):
        problem = LocalProblem(gradient, message, client.dual, hparams.prox_step)
        model, memory = solver.solve(hparams, problem, client.model, client.memory, local)
        from_center = tree.sub(model, message)
        dual = tree.add_scaled(client.dual, 1 / hparams.prox_step, from_center)
        from_last = tree.sub(model, client.model) if report == "all" else ()
        return ClientResult(DualClient(model, dual, memory), Moves(from_center, from_last), {})

    def server_update(hparams, server, mean_upload, fraction, key):
        increment = fraction / hparams.prox_step
        drift = tree.add_scaled(server.drift, increment, mean_upload.from_center)
        sampled = tree.add(server.center, mean_upload.from_center)
        target = tree.add_scaled(sampled, hparams.prox_step, drift)
        center = penalty.prox(target, hparams.prox_step, hparams.penalty_scale)
        if report == "all":
            average = tree.add_scaled(server.average, fraction, mean_upload.from_last)
        else:
            average = sampled if report == "sampled" else ()
        return Drift(center, drift, average)

    def model(hparams, server):
        return server.center if report == "server" else server.average

    return Algorithm(init, broadcast, client_update, server_update, model)


def with_duals(state: Any, duals: Params, weights: Array) -> Any:
    """Return the engine's ``State`` with new duals, and with their mean as the drift.

    Use it for warm starts, for example from the duals of an earlier run.

    Args:
      state: the state of a run of ``fed_dyn``.
      duals: the new lambda_i, one row per client.
      weights: the weights of the clients.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_clients([{"a": np.ones(1)}] * 2, weights=[1.0, 3.0])
      >>> algorithm = fcojax.algorithms.fed_dyn(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> state = fcojax.start(
      ...     algorithm, FedDynHparams(), jnp.zeros(()), data, jax.random.key(0),
      ...     fcojax.local_steps(1))
      >>> with_duals(state, jnp.array([2.0, -2.0]), data.weights).server.drift.tolist()
      -1.0
    """
    shares = weights / jnp.sum(weights)
    drift = jax.tree.map(lambda rows: jnp.tensordot(shares.astype(rows.dtype), rows, 1), duals)
    return state._replace(
        server=state.server._replace(drift=drift), clients=state.clients._replace(dual=duals)
    )
