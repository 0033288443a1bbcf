r"""FeDualEx and FedMiP: extragradient steps, in the dual and in the primal, for saddle points.

Bai and Bullins, "Local composite saddle point optimization", ICLR 2024, Algorithms 1 and 2. With
``fcojax.problems.saddle`` every algorithm of the library takes descent-ascent steps; these two
extrapolate, which bilinear problems need.
"""

from collections.abc import Callable

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Displacement, elapsed, takes
from fcojax.algorithms.fed_dual_avg import DualPoint, FedDualAvgHparams, fed_dual_avg
from fcojax.algorithms.fed_mid import FedMidHparams, fed_mid
from fcojax.algorithms.local import mean_gradient
from fcojax.problems.losses import Loss
from fcojax.transforms.mirrors.mirror import Mirror


def extrapolation(loss: Loss, mirror: Mirror) -> Callable:
    """Return ``(hparams, message) -> (extrapolate, step)``, both ``(moved, batch) -> moved``.

    The displacement ``moved`` from the message is a ``DualPoint``. ``extrapolate`` takes a dual
    averaging step; ``step`` starts at ``moved`` and uses the gradient at the point that
    ``extrapolate`` returns.

    Args:
      loss: one loss per example.
      mirror: the geometry, with its penalty.
    """
    gradient = mean_gradient(loss)

    def of_client(hparams, message):
        def along(moved, point, batch):
            at = tree.add(message, point)
            w = mirror.to_primal(at.dual, at.elapsed, hparams.penalty_scale)
            dual = tree.add_scaled(moved.dual, -hparams.client_lr, gradient(w, batch))
            return DualPoint(dual, moved.elapsed + hparams.client_lr)

        def extrapolate(moved, batch):
            return along(moved, moved, batch)

        return extrapolate, lambda moved, batch: along(moved, extrapolate(moved, batch), batch)

    return of_client


@takes(FedDualAvgHparams, "mirror")
def fe_dual_ex(loss: Loss, mirror: Mirror) -> Algorithm:
    r"""Federated dual extrapolation, with :math:`P_t` the mirror step of ``mirror``.

    This is FedDualAvg with the local gradient taken at an extrapolated point:

    .. math::
       w_k &= P_{T_r + \eta_c k}(z_k), \qquad
       w_{k + 1/2} = P_{T_r + \eta_c (k + 1)}\big(z_k - \eta_c g(w_k)\big), \qquad
       z_{k+1} = z_k - \eta_c g(w_{k + 1/2}) \\
       z_{r+1} &= z_r + \eta_s \sum_m p_m (z^m_K - z_r), \qquad
       T_{r+1} = T_r + \eta_s \sum_m p_m \eta_c K_m

    and the model is :math:`P_{T_r}(z_r)`. For saddle points
    :math:`\min_x \max_y f(x, y) + \psi_1(x) - \psi_2(y)` the loss is one that
    ``fcojax.problems.saddle`` made, with :math:`g = (\nabla_x f, -\nabla_y f)`, and the penalty of
    the mirror is :math:`\psi_1(x) + \psi_2(y)`. The theorem bounds the gap at an average of the
    extrapolated points, the model of ``fcojax.theory.saddle.extrapolated_average``.

    Both gradients of a step use the same batch; the paper draws one for each. A local step takes
    two proxes.

    Args:
      loss: one loss per example.
      mirror: the geometry, with its penalty.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> from fcojax.transforms import euclidean, zero
      >>> data = fcojax.from_rows({"a": np.array([2.0, 4.0])}, [1, 1])
      >>> bilinear = lambda params, rows: params["x"] * params["y"] - rows["a"] * params["x"]
      >>> algorithm = fcojax.algorithms.fe_dual_ex(
      ...     fcojax.problems.saddle(bilinear), euclidean(zero()))
      >>> start = {"x": jnp.array(1.0), "y": jnp.array(0.0)}
      >>> plan, key = fcojax.local_steps(2), jax.random.key(0)
      >>> point, _ = fcojax.run(
      ...     algorithm, algorithm.hparams_type(0.3), start, data, key, plan, num_rounds=200)
      >>> round(float(point["y"]), 3), abs(round(float(point["x"]), 3))
      (3.0, 0.0)
    """
    averaging, steps_of = fed_dual_avg(loss, mirror), extrapolation(loss, mirror)

    def client_update(hparams, message, client, local, key):
        _, step = steps_of(hparams, message)
        end = local.scan(step, tree.zeros_like(message))
        return ClientResult(client, Displacement(end.dual, elapsed(local, hparams.client_lr)), {})

    return averaging._replace(client_update=client_update)


@takes(FedMidHparams, "mirror")
def fed_mip(loss: Loss, mirror: Mirror, *, server_prox: bool = True) -> Algorithm:
    r"""Federated mirror prox, the primal form of FeDualEx: FedMiD with extragradient steps.

    .. math::
       w_{k + 1/2} &= P_{\eta_c}\big(\nabla h(w_k) - \eta_c g(w_k)\big), \qquad
       w_{k+1} = P_{\eta_c}\big(\nabla h(w_k) - \eta_c g(w_{k + 1/2})\big) \\
       w_{r+1} &= P_{\eta_s \bar e}\Big(\nabla h(w_r) + \eta_s \sum_m p_m (w^m_K - w_r)\Big),
       \qquad \bar e = \sum_m p_m \eta_c K_m

    As in the paper's FedMiD, the penalty is applied on the clients and again on the server, so the
    limit has twice the penalty unless ``server_prox`` is false. A local step takes two proxes, the
    server's step one.

    Args:
      loss: one loss per example.
      mirror: the geometry, with its penalty.
      server_prox: whether the server step applies the penalty.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> from fcojax.transforms import euclidean, l1
      >>> data = fcojax.from_rows({"a": np.array([2.0, 4.0])}, [1, 1])
      >>> algorithm = fcojax.algorithms.fed_mip(
      ...     lambda w, rows: (w - rows["a"]) ** 2 / 2, euclidean(l1()), server_prox=False)
      >>> hparams = algorithm.hparams_type(client_lr=0.1, penalty_scale=0.5)
      >>> plan, key = fcojax.local_steps(3), jax.random.key(0)
      >>> w, _ = fcojax.run(algorithm, hparams, jnp.array(0.0), data, key, plan, num_rounds=100)
      >>> round(float(w), 3)  # the mean of 2 and 4, soft thresholded at 0.5
      2.5
    """
    descending = fed_mid(loss, mirror, server_prox=server_prox)
    gradient = mean_gradient(loss)

    def client_update(hparams, message, client, local, key):
        def step(w, batch):
            def along(slope):
                z = tree.add_scaled(mirror.to_dual(w), -hparams.client_lr, slope)
                return mirror.to_primal(z, hparams.client_lr, hparams.penalty_scale)

            extrapolated = along(gradient(w, batch))
            return along(gradient(extrapolated, batch))

        moved = tree.sub(local.scan(step, message), message)
        return ClientResult(client, Displacement(moved, elapsed(local, hparams.client_lr)), {})

    return descending._replace(client_update=client_update)
