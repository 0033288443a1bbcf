r"""Local steps with control variates: the round that SCAFFOLD and its composite variants share.

Each client stores the mean gradient of its last local steps, its control :math:`c_i`, and the
server stores the mean c of the controls of all clients. A client that adds :math:`c - c_i` to its
gradients follows, on average, the gradient of the mean loss. Karimireddy, Kale, Mohri, Reddi, Stich
and Suresh, "SCAFFOLD: stochastic controlled averaging for federated learning", ICML 2020, option
II, in a form that uploads one vector.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Public
from fcojax.algorithms.local import Local
from fcojax.types import Params, PyTree, Scalar


class Corrected(NamedTuple):
    """The server's state.

    Attributes:
      point: x.
      control: c, the mean of the controls of all clients.
      residue: the rounding error accumulated in c.
      subgradient: a subgradient of psi at x if it is fed back, else ``()``.
    """

    point: Params
    control: Params
    residue: Params
    subgradient: PyTree


class Message(NamedTuple):
    """The start of the local steps, and the mean gradient that corrected steps follow."""

    point: Params
    direction: Params


class ControlUpdate(NamedTuple):
    """What a client sends.

    Attributes:
      change: the change of its control.
      offset: its mean local gradient minus its new control; ``()`` if the two are the same.
      num_steps: how many steps it took.
    """

    change: Params
    offset: PyTree
    num_steps: Public


def corrected(
    local_steps: Callable[[Any, Params, Params, Local], Params],
    server_prox: Callable[[Any, Params, Scalar], Params],
    *,
    stored_gradient: Callable[[Params, Local], Params] | None = None,
    feedback: bool = False,
) -> Algorithm:
    r"""Build an algorithm with control variates from a client's steps and the server's prox.

    With server step :math:`t_e = \eta_s \eta_c K`, stored gradients :math:`c_i` and their mean c, a
    client of the cohort S takes K steps from x with correction :math:`d - c_i`. Its mean gradient
    is :math:`s_i = (x - x_i) / (\eta_c K) - (d - c_i)`, and

    .. math:: v = x - t_e \Big(c + \sum_{i \in S} p_i (s_i - c_i)\Big), \quad
              x \leftarrow \mathrm{server\_prox}_{t_e}(v), \quad c_i \leftarrow s_i,

    and c changes with the c_i. So :math:`c = \sum_i p_i c_i` over **all** clients, for any cohort
    and any numbers of steps. The direction d is c, or, with feedback, c plus the subgradient
    :math:`(v - x) / t_e` of the last prox. For equal K the server's step equals averaging the
    clients' last points, but terms that have converged cancel before they are rounded. As c is
    a compensated sum, 80,000 rounds in float32 end as near the solution as 5,000.

    Args:
      local_steps: ``(hparams, start, correction, local) -> end - start``, steps of ``client_lr``
        times a gradient plus the correction.
      server_prox: ``(hparams, v, t_e) -> x``.
      stored_gradient: ``(x, local) -> c_i``; by default clients store s_i.
      feedback: whether local steps also follow the subgradient.
    """

    def init(hparams, params):
        zeros = tree.zeros_like(params)
        return Corrected(params, zeros, zeros, zeros if feedback else ()), zeros

    def broadcast(hparams, server):
        direction = tree.add(server.control, server.subgradient) if feedback else server.control
        return Message(server.point, direction)

    def client_update(hparams, message, client, local, key):
        correction = tree.sub(message.direction, client)
        moved = local_steps(hparams, message.point, correction, local)
        num_steps = local.num_steps.astype(jnp.asarray(hparams.client_lr).dtype)
        # The mean of the K corrected steps; minus the correction it is the mean local gradient.
        mean = tree.scale(-1 / (hparams.client_lr * num_steps), moved)
        control, offset = tree.sub(mean, correction), ()
        if stored_gradient is not None:
            local_gradient, control = control, stored_gradient(message.point, local)
            offset = tree.sub(local_gradient, control)
        upload = ControlUpdate(tree.sub(control, client), offset, Public(num_steps))
        return ClientResult(control, upload, {})

    def server_update(hparams, server, mean_upload, fraction, key):
        step = hparams.server_lr * hparams.client_lr * mean_upload.num_steps.value
        direction = tree.add(server.control, mean_upload.change)
        if stored_gradient is not None:
            direction = tree.add(direction, mean_upload.offset)
        target = tree.add_scaled(server.point, -step, direction)
        point = server_prox(hparams, target, step)
        subgradient = tree.scale(1 / step, tree.sub(target, point)) if feedback else ()
        # A sum over all rounds of small changes: compensated, so rounding errors do not add up.
        control, residue = tree.add_compensated(
            server.control, server.residue, fraction, mean_upload.change
        )
        return Corrected(point, control, residue, subgradient)

    def model(hparams, server):
        return server.point

    return Algorithm(init, broadcast, client_update, server_update, model)
