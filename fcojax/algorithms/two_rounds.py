"""Methods in two exchanges a round: gradients at the server's point, then steps that use them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.averages import primal
from fcojax.algorithms.base import Algorithm, ClientResult, Facts, takes
from fcojax.algorithms.frame import Geometry, LocalProblem
from fcojax.algorithms.local import Batch, mean_gradient
from fcojax.algorithms.manifolds import MapNames, RFedAvgHparams, curved, gradient_on, maps_of
from fcojax.problems.losses import Loss
from fcojax.transforms.manifolds.manifold import Manifold, transport
from fcojax.transforms.penalties.separable import zero
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, NonNegative, Params, Positive, Probability
from fcojax.xla.conditionals import cond_unbatched


class Anchored(NamedTuple):
    """The model x, what was collected at x, and whether clients take steps or send gradients."""

    point: Params
    slope: Params
    stepping: Array


class PhaseMessage(NamedTuple):
    """x in rounds that collect gradients, what was collected in rounds of local steps."""

    content: Params
    stepping: Array


class Anchor(NamedTuple):
    """A client's state between the two rounds: x and its own gradient at x."""

    point: Params
    slope: Params


def in_two_rounds(
    loss: Loss,
    geometry: Geometry,
    gradient: Callable[[Params, Batch], Params],
    *,
    slope: Callable[[Any, Params, Params, Params, Params, Params], Params],
    collected: Callable[[Any, Params, Params], Params],
    moved: Callable[[Any, Params, Params], Params],
    step_name: str,
) -> Algorithm:
    """Return a method whose even rounds collect gradients at x, and whose odd ones take steps.

    In its ``geometry``, ``(x, batch) -> gradient``; ``(hparams, x, z, at_z, at_x, G) -> slope`` of
    a step at z, with the gradients of its batch at z and at x; ``collected(hparams, G, mean) -> G``
    from the mean gradient; and ``moved(hparams, x, mean) -> x`` from the mean displacement.
    """

    def init(hparams, params):
        x = geometry.start(hparams, params)
        zeros = tree.zeros_like(x)
        return Anchored(x, zeros, jnp.zeros((), bool)), Anchor(x, zeros)

    def broadcast(hparams, server):
        content = tree.where(server.stepping, server.slope, server.point)
        return PhaseMessage(content, server.stepping)

    def client_update(hparams, message, own, local, key):
        def steps():
            def slope_at(hparams, at_z, z, batch):
                at_x = own.slope
                if local.work.batch_size is not None:
                    at_x = gradient(own.point, batch)
                return slope(hparams, own.point, z, at_z, at_x, message.content)

            problem = LocalProblem(own.point, slope_at)
            return own, geometry.steps(loss, hparams, problem, local).moved

        def slopes():
            found = gradient(message.content, local.full())
            return Anchor(message.content, found), found

        state, upload = cond_unbatched(message.stepping, steps, slopes)
        return ClientResult(state, upload, {})

    def server_update(hparams, server, mean, fraction, key):
        return Anchored(
            tree.where(server.stepping, moved(hparams, server.point, mean), server.point),
            tree.where(server.stepping, server.slope, collected(hparams, server.slope, mean)),
            ~server.stepping,
        )

    def model(hparams, server):
        return server.point

    parts = geometry.name, "gradient at x", step_name
    facts = Facts("or held", "without feedback", exact=True, parts=parts)
    return Algorithm(init, broadcast, client_update, server_update, model, facts=facts)


class MimeHparams(NamedTuple):
    r"""``client_lr`` is eta_c, ``server_lr`` eta_s, ``momentum`` beta, in [0, 1).

    ``penalty_scale`` is the strength of psi.
    """

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    momentum: Probability = 0.0
    penalty_scale: NonNegative = 0.1


@takes(MimeHparams, "penalty")
def mime(loss: Loss, penalty: Penalty | None = None) -> Algorithm:
    r"""Corrected local steps with the momentum of the server: one round is **two** of the engine.

    In even rounds, counted from zero, clients send :math:`\nabla f_i(w)` with all of their examples
    and the server updates the momentum, :math:`s \leftarrow (1 - \beta) \sum_i p_i \nabla f_i(w) +
    \beta s`. In odd ones they take K steps from w, with s held fixed,

    .. math:: x_i \leftarrow \mathrm{prox}_{\eta_c \psi}\Big(x_i - \eta_c \big((1 - \beta)
              (\nabla f_i(x_i; \xi) - \nabla f_i(w; \xi)) + s\big)\Big),

    and :math:`w \leftarrow w + \eta_s \sum_i p_i (x_i - w)`. Without momentum, the default, this is
    MimeSVRG, whose correction is FedLin's: exact with full batches, and if clients' Hessians are
    similar a round replaces many steps of gradient descent. Both exchanges send one vector each
    way. With the same cohort for both, ``held(sampler, rounds=2)``, it is exact if the clients
    share a minimiser; otherwise the noise of the cohorts' gradients stops convergence.

    Example:
      >>> import fcojax
      >>> fcojax.algorithms.mime(None).facts.needs_everyone
      'or held'

    References:
      Karimireddy, Jaggi, Kale, Mohri, Reddi, Stich and Suresh, "Breaking the centralized barrier
      for cross-device federated learning", NeurIPS 2021 (arXiv 2008.03606), written from memory.
    """

    def slope(hparams, x, z, at_z, at_x, momentum):
        return tree.add_scaled(momentum, 1 - hparams.momentum, tree.sub(at_z, at_x))

    def collected(hparams, momentum, mean):
        return tree.add_scaled(tree.scale(hparams.momentum, momentum), 1 - hparams.momentum, mean)

    def moved(hparams, x, mean):
        return tree.add_scaled(x, hparams.server_lr, mean)

    return in_two_rounds(
        loss,
        primal(penalty or zero()),
        mean_gradient(loss),
        slope=slope,
        collected=collected,
        moved=moved,
        step_name="average",
    )


@takes(RFedAvgHparams, "manifold")
def r_fed_svrg(loss: Loss, manifold: Manifold, *, maps: MapNames = "retraction") -> Algorithm:
    r"""RFedAvg with variance reduced gradients: one round of it is **two** rounds of the engine.

    In even rounds, counted from zero, clients send :math:`\mathrm{grad} f_m(x)` with all of their
    examples and the server takes the mean G; in odd ones they step,

    .. math:: z^m_{k+1} = R_{z^m_k}\Bigl(-\eta\,\bigl(\mathrm{grad} f(z^m_k; \xi^m_k)
                          - P_{z^m_k}(\mathrm{grad} f(x; \xi^m_k) - G)\bigr)\Bigr),

    and the server averages as in RFedAvg, with the ``maps`` of ``r_fed_avg``. Each round sends one
    array up and one down, so the traffic is twice that of RFedAvg. Clients need the x of the round
    before, so everyone takes part, or a cohort of ``held(sampler, rounds=2)``. With everyone and
    full batches there is no drift floor.

    Example:
      >>> import fcojax
      >>> fcojax.algorithms.r_fed_svrg(None, fcojax.transforms.sphere()).facts.parts
      ('manifold', 'gradient at x', 'average, tangent')

    References:
      Li and Ma, "Federated learning on Riemannian manifolds", Applied Set-Valued Analysis and
      Optimization 2023 (arXiv 2206.05668).
    """
    maps_used = maps_of(manifold, maps)

    def slope(hparams, x, z, at_z, at_x, mean):
        return tree.sub(at_z, transport(manifold, x, z, tree.sub(at_x, mean)))

    def moved(hparams, x, mean):
        return maps_used.move(x, tree.scale(hparams.server_lr, mean))

    return in_two_rounds(
        loss,
        curved(manifold, maps_used),
        gradient_on(manifold, loss),
        slope=slope,
        collected=lambda hparams, before, mean: mean,
        moved=moved,
        step_name="average, tangent",
    )
