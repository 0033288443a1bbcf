"""FedDA: restarted dual averaging in a diagonal metric that clients share within a round.

Li, Huang and Huang, "FedDA: faster framework of local adaptive gradient methods via restarted dual
averaging", 2023 (arXiv 2302.06103). The metrics of the first round and of the server's step are
ours.
"""

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.base import Algorithm, ClientResult, Public, takes
from fcojax.algorithms.local import mean_gradient
from fcojax.algorithms.optimisers import as_dtype, widest_dtype
from fcojax.problems.losses import Loss
from fcojax.transforms.calculus.per_entry import sum_over_entries
from fcojax.transforms.penalties.separable import zero
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, NonNegative, Params, Positive, Probability, PyTree


class FedDaHparams(NamedTuple):
    """``client_lr`` is eta_c, ``server_lr`` is eta_s, ``b1`` and ``b2`` are beta_1 and beta_2.

    ``adaptivity`` is tau, ``penalty_scale`` is the strength of psi.
    """

    client_lr: Positive = 0.01
    server_lr: Positive = 1.0
    b1: Probability = 0.9
    b2: Probability = 0.99
    adaptivity: NonNegative = 1e-3
    penalty_scale: NonNegative = 0.1


class Estimate(NamedTuple):
    """An estimate of the gradient, and the weight of psi relative to it."""

    gradient: PyTree
    weight: Array | Public


class FedDaServer(NamedTuple):
    """The model, the second moments, the rates 1 / H of the next round, and the estimate."""

    params: Params
    second: Params
    rates: Params
    estimate: Estimate


class Sums(NamedTuple):
    """Sums over local steps: the dual point, the fresh gradients, the weight of psi, the steps."""

    dual: Params
    fresh: PyTree
    elapsed: Array | Public
    steps: Array | Public


class Upload(NamedTuple):
    """The client's sums, and the change of its estimate."""

    sums: Sums
    change: Estimate


@takes(FedDaHparams, "penalty")
def fed_da(
    loss: Loss,
    penalty: Penalty | None = None,
    *,
    metric: Literal["adagrad", "adam", "identity"] = "adam",
    estimate: Literal["plain", "momentum", "variance_reduced"] = "plain",
) -> Algorithm:
    r"""Federated dual averaging from the last model, in an adaptive diagonal metric H.

    A round starts at the model :math:`w_r`, with :math:`z^m_0 = 0`, :math:`w^m_0 = w_r`:

    .. math::
       n^m_{k+1} &= \text{an estimate of } \nabla F_m(w^m_k), \qquad
       z^m_{k+1} = z^m_k + \eta_c n^m_{k+1} \\
       w^m_{k+1} &= \arg\min_x \langle z^m_{k+1}, x \rangle + \eta_c (k+1) \psi(x)
                    + \tfrac12 |x - w_r|^2_{H_r} \\
       w_{r+1} &= \arg\min_x \eta_s \sum_m p_m \big(\langle z^m_K, x \rangle + \eta_c K_m \psi(x)
                    \big) + \tfrac12 |x - w_r|^2_{H_{r+1}}

    where :math:`H = \sqrt{v} + \tau` and v collects the squares of g, the mean over clients and
    steps of their gradients: v + g^2 for ``"adagrad"``, :math:`\beta_2 v + (1 - \beta_2) g^2` for
    ``"adam"``, starting at tau^2. With one local step the server's is Adagrad's or Adam's. In the
    first round, which has no metric yet, clients evaluate their gradients at :math:`w_0`. With
    ``"identity"`` H is one, and a round is one of FedDualAvg restarted at the last model.

    Estimates, with :math:`a = 1 - \beta_1` and n carried from round to round by the server's mean:

    - ``"plain"``: n is the gradient of the batch, and ``b1`` is not used.
    - ``"momentum"``: n = a g + (1 - a) n.
    - ``"variance_reduced"``: n = g + (1 - a) (n - the gradient of the same batch one step before),
      which costs a second gradient.

    The weight of psi gets the same momentum as the gradient, starting at 0. With full participation
    and one full-batch local step the minimiser of F + psi is the fixed point. The penalty psi is a
    sum over entries.

    Example:
      >>> import fcojax
      >>> algorithm = fcojax.algorithms.fed_da(None, fcojax.transforms.l1(), metric="adagrad")
      >>> hparams = algorithm.hparams_type(client_lr=0.1, adaptivity=0.01)
    """
    prox = sum_over_entries(zero() if penalty is None else penalty, "fed_da").prox
    gradient = mean_gradient(loss)
    is_carried, is_adaptive = estimate != "plain", metric != "identity"

    def numbers(hparams, params):
        """The hyperparameters in the dtype of sums and moments."""
        return as_dtype(hparams, widest_dtype(params))

    def init(hparams, params):
        hparams, wide = numbers(hparams, params), as_dtype(params, widest_dtype(params))
        second = jax.tree.map(lambda w: jnp.full_like(w, hparams.adaptivity**2), wide)
        # Without a metric yet, rates of zero keep all clients at w_0 in the first round.
        rates = jax.tree.map(jnp.zeros_like if is_adaptive else jnp.ones_like, wide)
        nothing = Estimate(tree.zeros_like(wide), jnp.zeros((), widest_dtype(params)))
        return FedDaServer(params, second, rates, nothing), ()

    def broadcast(hparams, server):
        return server._replace(second=())

    def nearest(hparams, center, rates, dual, elapsed):
        """The minimiser of <dual, x> + elapsed psi(x) + |x - center|^2 / 2 in the metric."""
        moved = jax.tree.map(lambda w, s, z: w.astype(z.dtype) - s * z, center, rates, dual)
        steps = jax.tree.map(lambda s: s * elapsed, rates)
        found = prox(moved, steps, hparams.penalty_scale)
        return jax.tree.map(lambda new, old: new.astype(old.dtype), found, center)

    def client_update(hparams, message, client, local, key):
        hparams, dtype = numbers(hparams, message.params), widest_dtype(message.params)

        def at(sums):
            return nearest(hparams, message.params, message.rates, sums.dual, sums.elapsed)

        def step(carry, batch):
            sums, old, last = carry
            w = at(sums)
            fresh = as_dtype(gradient(w, batch), dtype)
            new = Estimate(fresh, jnp.ones_like(old.weight))
            if estimate == "momentum":
                new = jax.tree.map(lambda g, n: (1 - hparams.b1) * g + hparams.b1 * n, new, old)
            if estimate == "variance_reduced":
                before = Estimate(as_dtype(gradient(last, batch), dtype), jnp.ones_like(old.weight))
                new = jax.tree.map(lambda g, n, b: g + hparams.b1 * (n - b), new, old, before)
            length = hparams.client_lr
            sums = Sums(
                tree.add_scaled(sums.dual, length, new.gradient),
                tree.add(sums.fresh, fresh) if is_carried else (),
                sums.elapsed + length * new.weight,
                sums.steps + 1,
            )
            return sums, new if is_carried else old, w if estimate == "variance_reduced" else ()

        nothing, zeros = message.estimate, tree.zeros_like(message.rates)
        none = jnp.zeros_like(nothing.weight)
        start = Sums(zeros, zeros if is_carried else (), none, none)
        last = message.params if estimate == "variance_reduced" else ()
        sums, end, _ = local.scan(step, (start, nothing, last))
        sums = sums._replace(elapsed=Public(sums.elapsed), steps=Public(sums.steps))
        changed = tree.sub(end.gradient, nothing.gradient) if is_carried else ()
        change = Estimate(changed, Public(end.weight - nothing.weight))
        return ClientResult(client, Upload(sums, change), {})

    def server_update(hparams, server, mean_upload, fraction, key):
        hparams = numbers(hparams, server.params)
        sums, change = mean_upload
        # The dual point is the sum of plain gradients. Estimates differ from fresh gradients, so
        # these are summed separately.
        total = sums.fresh if is_carried else tree.scale(1 / hparams.client_lr, sums.dual)
        second, rates = server.second, server.rates
        if is_adaptive:
            mean = tree.scale(1 / sums.steps.value, total)
            kept, new = (hparams.b2, 1 - hparams.b2) if metric == "adam" else (1.0, 1.0)
            second = jax.tree.map(lambda v, g: kept * v + new * g * g, second, mean)
            rates = jax.tree.map(lambda v: 1 / (jnp.sqrt(v) + hparams.adaptivity), second)
        dual = tree.scale(hparams.server_lr, sums.dual)
        elapsed = hparams.server_lr * sums.elapsed.value
        params = nearest(hparams, server.params, rates, dual, elapsed)
        kept = server.estimate
        if is_carried:
            gradient = tree.add(kept.gradient, change.gradient)
            kept = Estimate(gradient, kept.weight + change.weight.value)
        return FedDaServer(params, second, rates, kept)

    def model(hparams, server):
        return server.params

    return Algorithm(init, broadcast, client_update, server_update, model)
