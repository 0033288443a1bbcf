r"""Ways to solve the local problems of FedPD, FedDyn and the splitting methods.

With prox step :math:`\eta`, anchor :math:`x_0` and dual :math:`\lambda`, the local problem is

.. math:: \min_x \; L(x) = f_i(x) + \langle \lambda, x - x_0 \rangle + |x - x_0|^2 / (2 \eta),

which is the prox of :math:`\eta f_i` at :math:`x_0 - \eta \lambda`. Another start of a solver
gives another trajectory, with the same limit.

Zhang, Hong, Dhople, Yin and Liu, "FedPD: a federated learning framework with adaptivity to
non-IID data", IEEE Trans. Signal Process. 2021 (arXiv 2005.11418), Oracles I and II.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from fcojax import tree
from fcojax.algorithms.averages import primal
from fcojax.algorithms.frame import Geometry, Steps
from fcojax.algorithms.local import mean_gradient
from fcojax.arguments import validated
from fcojax.memo import memoised
from fcojax.problems.quadratic import Factored
from fcojax.transforms.penalties.separable import zero
from fcojax.transforms.penalty import Penalty
from fcojax.types import Array, Count, Params, Positive
from fcojax.xla.conditionals import cond_unbatched


@memoised
def exact() -> Geometry:
    """The exact minimiser, for quadratic losses of clients factored by ``problems.factored``.

    In the eigenbasis of the client's Hessian the solution is a division per coordinate, for any
    prox step; ``client_lr`` and the number of steps in the engine's ``work`` are unused.
    """

    def steps(loss, hparams, problem, local):
        rows = local.full().examples
        if not isinstance(rows, Factored) or local.max_size != 1:
            raise ValueError(
                f"a client has up to {local.max_size} examples of type {type(rows).__name__}, "
                "but exact() needs one factored quadratic; pass data=problems.factored(loss, "
                "data, params) with the loss problems.factored_loss, or use gd(tolerance=...)."
            )
        axes, curvatures, slopes, _ = jax.tree.map(lambda leaf: leaf[0], rows)
        anchor, dual = problem.constants
        target, unravel = ravel_pytree(tree.add_scaled(anchor, -hparams.prox_step, dual))
        step = jnp.asarray(hparams.prox_step, target.dtype)
        z = (target @ axes + step * slopes) / (1 + step * curvatures)
        end = unravel(axes @ z)
        return Steps(problem.start, end, tree.sub(end, problem.start), problem.memory)

    return Geometry("exact", steps)


@memoised
@validated
def gd(*, warm_start: bool = True, tolerance: Positive | None = None) -> Geometry:
    r"""Gradient steps :math:`x \leftarrow x - s \nabla L(x)` with s the ``client_lr``.

    The engine's ``work`` fixes their number and the size of minibatches (Oracle I of FedPD). With
    losses of smoothness L, :math:`s = 1 / (L + 1/\eta)` is safe.

    Args:
      warm_start: start at the client's last solution, as FedPD does; otherwise at the anchor, as
        the code of FedDyn does.
      tolerance: stop as soon as :math:`|\nabla L(x)|` is at most this, after at most the steps of
        the engine's ``work``, with full batches. For a convex loss x is then within :math:`\eta`
        times the tolerance of the exact solution. No reverse-mode derivative.
    """
    if tolerance is None:
        return primal(zero(), warm_start=warm_start)._replace(name="primal")

    def steps(loss, hparams, problem, local):
        gradient = mean_gradient(loss)
        if local.work.batch_size is not None:
            raise ValueError(
                f"batch_size is {local.work.batch_size} but gd has a tolerance; the slope of a "
                "minibatch does not tell how near the solution is, so pass no batch_size."
            )

        def slope_at(x, batch):
            return problem.slope(hparams, gradient(x, batch), x, batch, *problem.constants)

        def step(carry, batch):
            x = tree.add_scaled(carry[0], -hparams.client_lr, carry[1])
            return x, slope_at(x, batch)

        first = problem.last if warm_start else problem.start
        (end, _), _ = local.until(
            step,
            (first, slope_at(first, local.full())),
            lambda carry: tree.euclidean_norm(carry[1]) <= tolerance,
        )
        return Steps(problem.start, end, tree.sub(end, problem.start), problem.memory)

    return Geometry("primal, to a tolerance", steps)


@memoised
@validated
def proxgd(penalty: Penalty, *, warm_start: bool = True) -> Geometry:
    r"""Steps :math:`x \leftarrow \mathrm{prox}_{s \psi}(x - s \nabla L(x))`, for sparse models.

    The strength of psi is ``penalty_scale``. Leave the algorithm's penalty, which is applied on the
    server, at ``zero()``; otherwise psi is applied twice.
    """
    return primal(penalty, warm_start=warm_start)


class GradientMemory(NamedTuple):
    """The estimate of the gradient at the client's model, and the number of rounds so far."""

    estimate: Params
    rounds: Array


@memoised
@validated
def variance_reduced(*, refresh_every: Count) -> Geometry:
    r"""Oracle II of FedPD: minibatch steps with a recursive estimate of the gradient.

    .. math:: x^+ = x - s \big(g + \lambda + (x - x_0) / \eta\big), \qquad
              g^+ = g + \nabla f(x^+; \xi) - \nabla f(x; \xi)

    with one minibatch at both points, and g the full gradient at the start of each round whose
    number ``refresh_every``, I, divides. It starts at the client's own model, where g was computed.
    The paper writes the step with :math:`\gamma`, where :math:`s = \eta \gamma / (\eta + \gamma)`
    is the ``client_lr``. All clients of a chunk compute the full gradient if one of them needs it.
    """

    def memory(hparams, params):
        return GradientMemory(tree.zeros_like(params), jnp.zeros((), jnp.int32))

    def steps(loss, hparams, problem, local):
        gradient = mean_gradient(loss)

        def step(carry, batch):
            x, estimate = carry
            slope = problem.slope(hparams, estimate, x, batch, *problem.constants)
            moved = tree.add_scaled(x, -hparams.client_lr, slope)
            change = tree.sub(gradient(moved, batch), gradient(x, batch))
            return moved, tree.add(estimate, change)

        estimate = cond_unbatched(
            problem.memory.rounds % refresh_every == 0,
            lambda: gradient(problem.last, local.full()),
            lambda: problem.memory.estimate,
        )
        end, estimate = local.scan(step, (problem.last, estimate))
        kept = GradientMemory(estimate, problem.memory.rounds + 1)
        return Steps(problem.start, end, tree.sub(end, problem.start), kept)

    return Geometry("primal, variance reduced", steps, memory=memory)
