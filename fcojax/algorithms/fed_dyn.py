r"""FedDyn: dynamic regularisation, a dual per client and their mean on the server.

Acar, Zhao, Matas Navarro, Mattina, Whatmough and Saligrama, "Federated learning based on dynamic
regularization", ICLR 2021.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, takes
from fcojax.algorithms.local import mean_gradient
from fcojax.algorithms.local_solvers import LocalProblem, Solver, gd
from fcojax.problems.problem import Loss
from fcojax.transforms.penalties.l1 import zero
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, Params, PyTree, Scalar

_REPORTS = ("server", "sampled", "all")


class ProximalRates(NamedTuple):
    """``client_lr`` is the local solver's step; ``prox_step`` is eta, 1/alpha in the paper.

    ``penalty_scale`` is the strength of psi.
    """

    client_lr: Scalar = 0.01
    prox_step: Scalar = 1.0
    penalty_scale: Scalar = 0.1


class Drift(NamedTuple):
    """The model x_0, the drift h, and the mean of client models that is reported, if one is."""

    center: Params
    drift: Params
    average: PyTree


class DualClient(NamedTuple):
    """x_i and lambda_i of the client's last round, and what its solver remembers."""

    model: Params
    dual: Params
    memory: PyTree


class Moves(NamedTuple):
    """What a client sends: x_i - x_0, and how far x_i moved if all x_i are averaged."""

    from_center: Params
    from_last: PyTree


@takes(ProximalRates, "penalty")
def fed_dyn(
    loss: Loss,
    penalty: Penalty | None = None,
    *,
    solver: Solver | None = None,
    report: str = "server",
) -> Algorithm:
    r"""Federated dynamic regularisation of the mean loss plus psi, with any cohort.

    A client of the cohort P minimises its augmented Lagrangian, then moves its dual; the others
    keep what they have:

    .. math:: x_i \approx \arg\min_x f_i(x) + \langle \lambda_i, x - x_0 \rangle
                         + \tfrac{1}{2 \eta} |x - x_0|^2, \qquad
              \lambda_i \leftarrow \lambda_i + (x_i - x_0) / \eta.

    The server, with weights p_i that sum to one over all clients,

    .. math:: h \leftarrow h + \tfrac{1}{\eta} \sum_{i \in P} p_i (x_i - x_0), \qquad
              x_0 \leftarrow \mathrm{prox}_{\eta \psi}\Big(
                  \frac{\sum_{i \in P} p_i x_i}{\sum_{i \in P} p_i} + \eta h\Big).

    The drift h equals the mean of the duals of all clients in every round, if it does so in the
    first: both receive the same increments. An offset b between them is never forgotten, and the
    method then converges to where the mean gradient is b. So duals and drift start at zero, and
    ``with_duals`` computes the drift of any others. In the paper's symbols the client's gradient
    state is minus the dual, the server's is minus h, and alpha is 1 / eta.

    With everyone, the same solver and the same start this is FedPD without skipping.

    Args:
      loss: one loss per example.
      penalty: psi, applied on the server; none by default.
      solver: of the local problems; by default ``gd(warm_start=False)``, as in the authors' code.
      report: which model is returned: that of the ``"server"``, x_0; the mean of the ``"sampled"``
        clients' x_i; or the mean of the last x_i of ``"all"`` clients, which is the smoothest and
        for which alone clients send a second model's worth of numbers. The iterates and the
        limit are the same.

    Example:
      >>> import fcojax
      >>> cost = fcojax.check.facts(fcojax.check.subject_of(fcojax.algorithms.fed_dyn))
      >>> cost.up, cost.state, cost.needs_everyone  # a client keeps x_i and lambda_i
      ('1 d', '2 d', False)
    """
    gradient, penalty = mean_gradient(loss), penalty or zero()
    solver = solver or gd(warm_start=False)
    if report not in _REPORTS:
        raise ValueError(f"report is {report!r}; pass one of {', '.join(_REPORTS)}.")

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

    def server_update(hparams, server, mean_upload, cohort, key):
        increment = cohort.fraction / hparams.prox_step
        drift = tree.add_scaled(server.drift, increment, mean_upload.from_center)
        sampled = tree.add(server.center, mean_upload.from_center)
        target = tree.add_scaled(sampled, hparams.prox_step, drift)
        center = penalty.prox(target, hparams.prox_step, hparams.penalty_scale)
        if report == "all":
            average = tree.add_scaled(server.average, cohort.fraction, mean_upload.from_last)
        else:
            average = sampled if report == "sampled" else ()
        return Drift(center, drift, average)

    def model(hparams, server):
        return server.center if report == "server" else server.average

    return Algorithm(init, broadcast, client_update, server_update, model)


def with_duals(state: Any, duals: Params, weights: Array) -> Any:
    """The engine's ``State`` with other duals, one row a client, and the drift that goes with them.

    For warm starts, say from the duals of an earlier run. ``weights`` are those of the clients.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_clients([{"a": np.ones(1)}] * 2, weights=[1.0, 3.0])
      >>> algorithm = fcojax.algorithms.fed_dyn(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> state = fcojax.start(
      ...     algorithm, ProximalRates(), jnp.zeros(()), data, jax.random.key(0),
      ...     fcojax.local_steps(1))
      >>> with_duals(state, jnp.array([2.0, -2.0]), data.weights).server.drift.tolist()
      -1.0
    """
    shares = weights / jnp.sum(weights)
    drift = jax.tree.map(lambda rows: jnp.tensordot(shares.astype(rows.dtype), rows, 1), duals)
    return state._replace(
        server=state.server._replace(drift=drift), clients=state.clients._replace(dual=duals)
    )
