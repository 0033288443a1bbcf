"""Extragradient methods, for saddle points: two gradients a local step, of models or of duals."""

from fcojax.algorithms.averages import FedMidHparams, mirror_average, mirrored
from fcojax.algorithms.base import Algorithm, takes
from fcojax.algorithms.dual_averages import FedDualAvgHparams, dual, dual_sums
from fcojax.algorithms.frame import elapsed, method, none
from fcojax.problems.losses import Loss
from fcojax.transforms.mirrors.mirror import Mirror


@takes(FedMidHparams, "mirror")
def fed_mip(loss: Loss, mirror: Mirror, *, server_prox: bool = True) -> Algorithm:
    r"""Federated mirror prox, the primal form of FeDualEx: FedMiD with extragradient steps.

    .. math::
       w_{k + 1/2} &= P_{\eta_c}\big(\nabla h(w_k) - \eta_c g(w_k)\big), \qquad
       w_{k+1} = P_{\eta_c}\big(\nabla h(w_k) - \eta_c g(w_{k + 1/2})\big)

    and the server's step of ``fed_mid``. As there, the penalty is applied on the clients and again
    on the server, so the limit has twice the penalty unless ``server_prox`` is false. A local step
    takes two proxes, the server's step one.

    Example:
      >>> import fcojax
      >>> from fcojax.transforms import euclidean, l1
      >>> fcojax.algorithms.fed_mip(None, euclidean(l1())).facts.parts
      ('mirror, extra', 'none', 'mirror, prox')

    References:
      Bai and Bullins, "Local composite saddle point optimization", ICLR 2024, Algorithm 2.
    """
    geometry = mirrored(mirror, extragradient=True)
    return method(loss, geometry, none(elapsed), mirror_average(mirror, prox=server_prox))


@takes(FedDualAvgHparams, "mirror")
def fe_dual_ex(loss: Loss, mirror: Mirror) -> Algorithm:
    r"""Federated dual extrapolation, with :math:`P_t` the mirror step of ``mirror``.

    This is FedDualAvg with the local gradient taken at an extrapolated point:

    .. math::
       w_k = P_{T_r + \eta_c k}(z_k), \qquad
       w_{k + 1/2} = P_{T_r + \eta_c (k + 1)}\big(z_k - \eta_c g(w_k)\big), \qquad
       z_{k+1} = z_k - \eta_c g(w_{k + 1/2}).

    For saddle points :math:`\min_x \max_y f(x, y) + \psi_1(x) - \psi_2(y)` the loss is one that
    ``fcojax.problems.saddle`` made, with :math:`g = (\nabla_x f, -\nabla_y f)`, and the penalty of
    the mirror is :math:`\psi_1(x) + \psi_2(y)`. The theorem bounds the gap at an average of the
    extrapolated points, the model of ``fcojax.theory.saddle.extrapolated_average``.

    Both gradients of a step use the same batch; the paper draws one for each. A local step takes
    two proxes.

    Example:
      >>> import fcojax
      >>> from fcojax.transforms import euclidean, zero
      >>> fcojax.algorithms.fe_dual_ex(None, euclidean(zero())).facts.parts
      ('dual, extra', 'none', 'sums, prox')

    References:
      Bai and Bullins, "Local composite saddle point optimization", ICLR 2024, Algorithm 1.
    """
    return method(loss, dual(mirror, extragradient=True), none(elapsed), dual_sums(mirror))
