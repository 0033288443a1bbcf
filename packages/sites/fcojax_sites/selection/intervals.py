r"""Standard errors and confidence intervals after selection, from moments of the sites.

At a model w each site sends the gradient of its loss, the Hessian, and the sum of the outer
products of its rows' gradients, but no rows; then the same at the estimate. With their weighted
means g, H and J over all sites,

.. math:: \hat w = w - M g, \qquad \mathrm{Cov}(\hat w) = M J M^T,

with M the inverse of H. For least squares this is the debiased lasso; on the support of a refitted
model it is that model. For other losses one step is not enough where the lasso shrinks strongly, so
the second exchange allows a second step. The covariance is the sandwich formula, which holds where
the variance or the distribution of the noise differs between rows or sites.
"""

import statistics
from typing import Annotated, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from fcojax import tree
from fcojax.extend import in_full_precision, jit_per, symmetric_eigh, validated
from fcojax.problems import Problem, RandomLoss, WholeBatchLoss
from fcojax.problems.losses import Loss
from fcojax.transforms import l1
from fcojax.types import Array, NonNegative, Numbers, Params, PyTree
from fcojax_sites.selection.ledger import Entry, Ledger, client_names
from fcojax_sites.selection.second_moments import row_weights

_Level = Annotated[
    Any, Numbers("a number above 0 and below 1", lambda values: (values > 0) & (values < 1))
]
_NODEWISE_STEPS = 2000


class Moments(NamedTuple):
    """Weighted means over all rows, at one model.

    Attributes:
      gradient: [parameters], the gradient of the loss.
      hessian: [parameters, parameters], the Hessian of the loss.
      outer: [parameters, parameters], the sum of the squared weights times the outer products of
        the rows' gradients: an estimate of the covariance of ``gradient``.
      num_rows: one over the sum of the squared weights; the number of rows if all have equal
        weights.
    """

    gradient: Array
    hessian: Array
    outer: Array
    num_rows: Array


class Intervals(NamedTuple):
    """Estimates with their standard errors and intervals.

    Attributes:
      estimate: a pytree like the model; zero outside the support if only that is estimated.
      error: standard errors; zero outside the support, too.
      low: the lower ends of the intervals.
      high: the upper ends.
      covariance: the covariance of the estimates as one vector, in tree order.
      level: the share of intervals that contain their parameter.
      ledger: the traffic.

    Example:
      >>> import fcojax, fcojax_sites, numpy as np
      >>> rng = np.random.default_rng(0)
      >>> x = rng.normal(size=(200, 2))
      >>> rows = {"x": x, "y": x @ np.array([1.0, 0.0]) + rng.normal(size=200)}
      >>> problem = fcojax.problems.linear(fcojax.from_rows(rows, [80, 120], weights="examples"))
      >>> model = {"kernel": np.array([0.9, 0.0]), "bias": np.array(0.0)}  # such as select's
      >>> of = fcojax_sites.selection.intervals(problem, model)
      >>> bool(of.low["kernel"][0] < 1.0 < of.high["kernel"][0])
      True
    """

    estimate: Params
    error: Params
    low: Params
    high: Params
    covariance: Array
    level: float
    ledger: Ledger

    def __str__(self) -> str:
        lines = [f"{'parameter':16} {'estimate':>10} {'error':>9} {'low':>10} {'high':>10}"]
        columns = (self.estimate, self.error, self.low, self.high)
        named = [jax.tree_util.tree_leaves_with_path(column) for column in columns]
        for leaves in zip(*named, strict=True):
            name = jax.tree_util.keystr(leaves[0][0], simple=True, separator=".")
            values = [np.asarray(leaf) for _, leaf in leaves]
            for index in np.ndindex(values[0].shape):
                estimate, error, low, high = (value[index] for value in values)
                if error > 0:
                    label = name + "".join(f"[{i}]" for i in index)
                    lines.append(
                        f"{label:16} {estimate:10.4g} {error:9.3g} {low:10.4g} {high:10.4g}"
                    )
        return "\n".join(lines)


@validated
def intervals(
    problem: Problem,
    model: Params,
    *,
    on: Literal["all", "support"] = "all",
    level: _Level = 0.95,
    nodewise: NonNegative = 0.0,
) -> Intervals:
    """Return confidence intervals of a model's parameters, from moments of the sites.

    The loss has to be a sum over rows, and the negative log-likelihood of each row up to a factor,
    as for the linear models.

    Args:
      problem: the loss and the clients.
      model: a model of a path or a selection: ``found.model`` with ``on="all"``, which removes the
        bias of the penalty from all parameters, or ``found.refit`` with ``on="support"``, whose
        intervals do not account for the choice of the support.
      on: ``"all"`` to estimate all parameters, ``"support"`` to estimate only the nonzero ones.
      level: confidence level of the intervals.
      nodewise: strength of the lasso of each column on the others that replaces the inverse
        Hessian; 0 for the inverse, which has to exist.

    Returns:
      Estimates, standard errors, intervals, and the traffic.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> rows = {"x": np.ones((4, 1)), "y": np.array([0.0, 2.0, 1.0, 3.0])}
      >>> problem = fcojax.problems.least_squares(fcojax.from_rows(rows, [2, 2]))
      >>> of = intervals(problem, jnp.zeros(1))
      >>> float(of.estimate[0]), round(float(of.error[0]), 3)  # a mean, and that of 4 draws
      (1.5, 0.645)
    """
    if isinstance(problem.loss, WholeBatchLoss | RandomLoss):
        raise ValueError(
            f"the loss is a {type(problem.loss).__name__}, which is not a sum over rows; pass a "
            "problem with one loss for each row."
        )
    model = jax.tree.map(jnp.asarray, model)
    shapes = [
        jax.tree.map(jnp.shape, like)
        for like in (jax.eval_shape(problem.init, jax.random.key(0)), model)
    ]
    if shapes[0] != shapes[1]:
        raise ValueError(f"model has shape {shapes[1]}; pass one of the problem's {shapes[0]}.")
    flat, unravel = ravel_pytree(model)
    kept = flat != 0 if on == "support" else jnp.ones(flat.shape, bool)
    found = _compiled(problem.loss, nodewise > 0, model, problem.train, kept, nodewise)
    estimate, covariance, least_curvature = found
    # The inverse loses as many digits as this is small: up to two per cent of a standard error.
    if not nodewise and not float(least_curvature) > 100 * float(jnp.finfo(flat.dtype).eps):
        raise ValueError(
            f"the Hessian of {int(jnp.sum(kept))} parameters is singular in {flat.dtype}; centre "
            'the features, pass nodewise= above 0, or on="support" with fewer nonzeros.'
        )
    error = jnp.sqrt(jnp.diagonal(covariance))
    margin = statistics.NormalDist().inv_cdf(0.5 + level / 2) * error
    low, high = unravel(estimate - margin), unravel(estimate + margin)
    # Each exchange sends a model down, and a gradient and two symmetric matrices up.
    times = 1 if nodewise else 2
    down = times * np.asarray(problem.train.weights > 0, float) * tree.num_bytes(flat)
    entry = Entry("moments", down, down * (flat.size + 2))
    ledger = Ledger((entry,), client_names(problem.train))
    return Intervals(unravel(estimate), unravel(error), low, high, covariance, float(level), ledger)


@jit_per(num_static=2)
@in_full_precision
def _compiled(loss, is_nodewise, model, data, kept, nodewise):
    strength = nodewise if is_nodewise else None
    return debiased(loss, model, data.examples, row_weights(data), kept, strength)


def moments_of(loss: Loss, model: Params, examples: PyTree, weights: Array) -> Moments:
    """Return the moments of all rows, which are the sum of the sites' moments.

    Args:
      loss: one loss per row.
      model: the point.
      examples: the rows of all sites.
      weights: [rows], with sum 1.
    """
    flat, unravel = ravel_pytree(model)
    weights = weights.astype(flat.dtype)

    def losses(w):
        return loss(unravel(w), examples)

    slopes = jax.jacfwd(losses)(flat)
    hessian = jax.hessian(lambda w: jnp.sum(weights * losses(w)))(flat)
    weighted = weights[:, None] * slopes
    return Moments(
        jnp.sum(weighted, axis=0), hessian, weighted.T @ weighted, 1 / jnp.sum(weights**2)
    )


def debiased(
    loss: Loss, model: Params, examples: PyTree, weights: Array, kept: Array, nodewise=None
) -> tuple[Array, Array, Array]:
    """Return the estimates, their covariance, and the ratio of the Hessian's extreme eigenvalues.

    Args:
      loss: one loss per row.
      model: the point w.
      examples: the rows of all sites.
      weights: [rows], with sum 1.
      kept: [parameters], whether each is estimated; the others stay zero.
      nodewise: strength of the lasso of each column on the others, or ``None`` for the inverse.
        With it one step is taken, with the covariance at w, because an estimate of more parameters
        than rows overfits them. Without it there are two steps, with the covariance at the first
        estimate.
    """
    flat, unravel = ravel_pytree(model)
    both = kept[:, None] & kept[None, :]

    def inverse_of(moments):
        """Return the inverse Hessian, and its smallest eigenvalue over the largest."""
        largest = jnp.max(jnp.diagonal(moments.hessian))
        hessian = jnp.where(both, moments.hessian, largest * jnp.eye(flat.size, dtype=flat.dtype))
        if nodewise is not None:
            values, _ = symmetric_eigh(hessian)
            found = _nodewise(hessian, 1 / values[-1], nodewise)
            return jnp.where(both, found, 0), values[0] / values[-1]
        # With a diagonal of ones, so that units do not matter: in float32 an age of 50 +- 10 beside
        # a feature of 0 +- 1 would look singular.
        diagonal = jnp.diagonal(hessian)
        units = 1 / jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1))
        values, basis = symmetric_eigh(units[:, None] * hessian * units[None, :])
        basis = units[:, None] * basis
        # Not jnp.linalg.inv, which a TPU does not have in float64.
        return jnp.where(both, (basis / values[None, :]) @ basis.T, 0), values[0] / values[-1]

    moments = moments_of(loss, model, examples, weights)
    inverse, least_curvature = inverse_of(moments)
    estimate = jnp.where(kept, flat - inverse @ moments.gradient, 0)
    if nodewise is None:
        moments = moments_of(loss, unravel(estimate), examples, weights)
        inverse, _ = inverse_of(moments)
        estimate = estimate - inverse @ moments.gradient
    count = jnp.sum(kept).astype(flat.dtype)
    freedom = moments.num_rows / jnp.maximum(moments.num_rows - count, 1)
    return estimate, freedom * inverse @ moments.outer @ inverse.T, least_curvature


def _nodewise(hessian: Array, step: Array, strength: Array) -> Array:
    """Return an approximate inverse: a lasso of each column on the others, from the Hessian alone.

    The prox of l1 acts on all columns at once; the weight of a column on itself stays one.
    """
    identity = jnp.eye(hessian.shape[0], dtype=hessian.dtype)
    prox = l1().prox

    def improve(_, c):
        moved = prox(c - step * c @ hessian, step, strength)
        return jnp.where(identity > 0, 1, moved)

    c = jax.lax.fori_loop(0, _NODEWISE_STEPS, improve, identity)
    return c / jnp.diagonal(c @ hessian)[:, None]
