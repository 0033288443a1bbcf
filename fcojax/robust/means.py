"""Robust means, weighted: integer weights are treated as that many copies of a point.

``share`` is the part of the weight that may be bad. Any number except ``steps`` may be a function
of the hyperparameters, as in ``lambda h: h.share``, so that it can be swept.
"""

from collections.abc import Callable
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import checked_value, factory
from fcojax.robust.mass import (
    between,
    lengths,
    medians,
    nearest,
    ordered,
    rounding,
    weighted_median,
)
from fcojax.robust.rule import Mixing, Rule
from fcojax.types import Array, Count, Numbers, Positive, Probability, Real
from fcojax.uploads.transform import number

_BELOW_HALF = "a number of at least 0 and below 0.5, as a majority has to be honest"
Minority = Annotated[Any, Numbers(_BELOW_HALF, lambda x: (x >= 0) & (x < 0.5))] | Callable


@factory
def median() -> Rule:
    """Return the median of each coordinate.

    It is the midpoint where half of the weight lies on each side, and breaks down when bad clients
    have half of the weight.

    Example:
      >>> median().mean(None, jnp.array([[0.0], [1.0], [9.0]]), jnp.array([0.2, 0.2, 0.6])).tolist()
      [9.0]

    References:
      Yin, Chen, Ramchandran and Bartlett, "Byzantine-robust distributed learning: towards optimal
      statistical rates", ICML 2018.
    """
    return Rule("median()", lambda hparams, points, weights: weighted_median(points, weights))


@factory
def trimmed_mean(share: Minority) -> Rule:
    """Return the mean of each coordinate without its smallest and its largest values.

    Args:
      share: part of the weight that is cut off on each side; below 1/2.

    Example:
      >>> points = jnp.array([[0.0], [1.0], [2.0], [90.0]])
      >>> trimmed_mean(0.25).mean(None, points, jnp.ones(4) / 4).tolist()
      [1.5]

    References:
      Yin, Chen, Ramchandran and Bartlett, "Byzantine-robust distributed learning: towards optimal
      statistical rates", ICML 2018.
    """

    def mean(hparams, points, weights):
        cut = number(hparams, share)
        points, weights = ordered(points, weights)
        return _total(between(weights, cut, 1 - cut), points)

    return Rule(f"trimmed_mean({share})", mean)


@factory
def mean_around_median(share: Minority) -> Rule:
    """Return the mean of each coordinate without the values farthest from its median.

    Args:
      share: part of the weight that is cut off; below 1/2.

    Example:
      >>> points = jnp.array([[0.0], [1.0], [2.0], [90.0]])
      >>> mean_around_median(0.25).mean(None, points, jnp.ones(4) / 4).tolist()
      [1.0]

    References:
      Xie, Koyejo and Gupta, "Generalized Byzantine-tolerant SGD", 2018.
    """

    def mean(hparams, points, weights):
        lower, upper = medians(points, weights)
        # This is twice the distance from the midpoint; in this form it is exactly equal for both
        # medians.
        far = jnp.abs((points - lower[None]) + (points - upper[None]))
        far = jnp.where(weights[:, None] > 0, far, jnp.inf)
        far, weights, points = ordered(far, weights, points)
        return _total(between(weights, 0, 1 - number(hparams, share), far), points)

    return Rule(f"mean_around_median({share})", mean)


@factory
def geometric_median(steps: Count = 3, smoothing: Positive = 1e-6) -> Rule:
    r"""Return the point with the smallest weighted sum of distances, by Weiszfeld's iteration.

    .. math:: z \leftarrow \sum_i b_i x_i / \sum_i b_i, \quad b_i = w_i / \max(\nu, |x_i - z|)

    starting at the median of each coordinate, so that no step is moved far by bad clients with less
    than half of the weight. If all points lie within :math:`\nu` of one z, the next z is the mean,
    so choose :math:`\nu` well below the distances between uploads. If the start is itself an
    upload, a step moves it by about :math:`\nu`.

    Args:
      steps: passes over the uploads, after the median.
      smoothing: :math:`\nu`.

    Example:
      >>> points = jnp.array([[1.0], [1.1], [0.9], [1.05], [1e4]])
      >>> print(geometric_median().mean(None, points, jnp.ones(5) / 5))
      [1.05]

    References:
      Pillutla, Kakade and Harchaoui, "Robust aggregation for federated learning", IEEE Trans.
      Signal Process. 2022, algorithm 2, which starts at any point.
    """

    def mean(hparams, points, weights):
        def step(_, centre):
            apart = jax.vmap(tree.euclidean_norm)(points - centre[None])
            return _total(weights / jnp.maximum(apart, smoothing), points)

        return jax.lax.fori_loop(0, steps, step, weighted_median(points, weights))

    return Rule(f"geometric_median({steps}, {smoothing})", mean)


@factory
def krum(share: Minority) -> Rule:
    """Return the point with the smallest sum of squared distances to its nearest neighbours.

    If several points have the same sum, it is their mean.

    Args:
      share: share of the weight that does not count as neighbours; below 1/2.

    Example:
      >>> points = jnp.array([[0.0], [1.0], [1.5], [90.0]])
      >>> krum(0.25).mean(None, points, jnp.ones(4) / 4).tolist()
      [1.0]

    References:
      Blanchard, El Mhamdi, Guerraoui and Stainer, "Machine learning with adversaries: Byzantine
      tolerant gradient descent", NeurIPS 2017. With n equal weights the paper sums over n - f - 2
      neighbours; here a share of the weight is cut off, which leaves n - f - 1.
    """

    def mean(hparams, points, weights):
        scores = _scores(points, weights, number(hparams, share))
        least = scores <= jnp.min(scores) * (1 + rounding(points.shape[0], scores.dtype))
        # Dividing by the largest weight first returns a single best point bit for bit.
        return _total(jnp.where(least, weights, 0) / jnp.max(jnp.where(least, weights, 0)), points)

    return Rule(f"krum({share})", mean)


@factory
def multi_krum(share: Minority) -> Rule:
    """Return the mean of the points with the best scores of ``krum``.

    Args:
      share: share of the weight that is left out, both of the neighbours and of the mean; below
        1/2.

    Example:
      >>> points = jnp.array([[0.0], [1.0], [2.0], [90.0]])
      >>> multi_krum(0.25).mean(None, points, jnp.ones(4) / 4).tolist()
      [1.0]

    References:
      Blanchard, El Mhamdi, Guerraoui and Stainer, "Machine learning with adversaries: Byzantine
      tolerant gradient descent", NeurIPS 2017.
    """

    def mean(hparams, points, weights):
        bad = number(hparams, share)
        index = jnp.arange(points.shape[0], dtype=jnp.int32)
        scores, kept, index = ordered(_scores(points, weights, bad), weights, index)
        return _total(between(kept, 0, 1 - bad, scores), points[index])

    return Rule(f"multi_krum({share})", mean)


@factory
def centred_clipping(radius: Any, steps: Count = 1) -> Rule:
    r"""Return the centre moved by the mean of offsets that are clipped to a norm.

    .. math:: v \leftarrow v + \sum_i w_i (x_i - v) \min(1, \tau / |x_i - v|)

    With one step the centre is the result of the previous round, and a round is one sum.

    Args:
      radius: :math:`\tau`; infinity for the mean.
      steps: passes over the uploads of a round. With more than one the centre starts at zero.

    Example:
      >>> points = jnp.array([[1.0], [3.0], [90.0]])
      >>> centred_clipping(1.0, steps=20).mean(None, points, jnp.ones(3) / 3).round(2).tolist()
      [3.0]

    References:
      Karimireddy, He and Jaggi, "Learning from history for Byzantine robust optimization", ICML
      2021, equation (CC).
    """
    if not callable(radius) and not (isinstance(radius, float) and radius == float("inf")):
        checked_value("radius", radius, Positive)

    def term(hparams, offset):
        return clip(offset, number(hparams, radius))[0]

    def one(hparams, points, weights):
        return weights @ jax.vmap(lambda point: term(hparams, point))(points)

    def mean(hparams, points, weights):
        def step(_, centre):
            return centre + one(hparams, points - centre[None], weights)

        return jax.lax.fori_loop(0, steps, step, jnp.zeros_like(points[0]))

    name = f"centred_clipping({radius}, {steps})"
    return Rule(name, one, term, keeps_centre=True) if steps == 1 else Rule(name, mean)


@factory
def bucketing(size: Count) -> Mixing:
    """Return the step that replaces random groups of points by their means.

    Args:
      size: points in a group; the last group may be smaller.

    Example:
      >>> mixed, _ = bucketing(2).mix(
      ...     None, jnp.array([[0.0], [2.0]]), jnp.array([0.75, 0.25]), jax.random.key(0))
      >>> mixed.tolist()
      [[0.5]]

    References:
      Karimireddy, He and Jaggi, "Byzantine-robust learning on heterogeneous datasets via
      bucketing", ICLR 2022.
    """

    def mix(hparams, points, weights, key):
        n = points.shape[0]
        order = jax.random.permutation(key, n)
        order = order[jnp.argsort(weights[order] <= 0)]  # present points come first
        group = jnp.zeros(n, jnp.int32).at[order].set(jnp.arange(n, dtype=jnp.int32) // size)
        num_groups = -(-n // size)
        mass = jnp.zeros(num_groups, weights.dtype).at[group].add(weights)
        sums = jnp.zeros((num_groups, points.shape[1]), points.dtype)
        sums = sums.at[group].add(weights[:, None] * points)
        return sums / jnp.where(mass > 0, mass, 1)[:, None], mass

    return Mixing(f"bucketing({size})", mix)


@factory
def nearest_neighbour_mixing(share: Probability | Callable) -> Mixing:
    """Return the step that replaces each point by the mean of its nearest neighbours.

    Args:
      share: share of the weight that does not count as nearest.

    Example:
      >>> points = jnp.array([[0.0], [1.0], [2.0], [9.0]])
      >>> mixed, _ = nearest_neighbour_mixing(0.25).mix(None, points, jnp.ones(4) / 4, None)
      >>> mixed.tolist()
      [[1.0], [1.0], [1.0], [4.0]]

    References:
      Allouah, Farhadkhani, Guerraoui, Gupta, Pinot and Stephan, "Fixing by
      mixing: a recipe for optimal Byzantine ML under heterogeneity", AISTATS 2023.
    """

    def mix(hparams, points, weights, key):
        _, near = nearest(points, weights, 1 - number(hparams, share))
        mass = jnp.sum(near, axis=1, keepdims=True)
        return near @ points / jnp.where(mass > 0, mass, 1), weights

    return Mixing(f"nearest_neighbour_mixing({share})", mix)


def clip(vector: Any, radius: Any) -> tuple[Any, Array]:
    """Return a vector or a list of arrays, scaled down to a norm if longer, and whether it was.

    Args:
      vector: finite arrays, whose norm may overflow.
      radius: the largest norm, 0 or more.

    Example:
      >>> clipped, longer = clip([jnp.array([3.0]), jnp.array([4.0])], 1.0)
      >>> [round(float(part[0]), 3) for part in clipped], bool(longer)
      ([0.6, 0.8], True)
    """
    unit = tree.safe_unit(tree.max_abs(vector))
    norm = tree.norm(tree.scale(1 / unit, vector))
    longer = norm * unit > radius
    factor = jnp.where(longer, radius / unit / jnp.where(norm > 0, norm, 1), 1)
    return tree.scale(factor, vector), longer


def _scores(points: Array, weights: Array, share: Real) -> Array:
    """Return the roots of the sums of squared distances, as the squares may overflow."""
    apart, near = nearest(points, weights, 1 - share)
    return jnp.where(weights > 0, lengths(jnp.sqrt(near) * apart), jnp.inf)


def _total(weights: Array, points: Array) -> Array:
    """Return the mean with weights of any sum; zero if they are all zero."""
    weights = jnp.broadcast_to(
        weights.reshape(*weights.shape, *(1,) * (points.ndim - weights.ndim)), points.shape
    )
    mass = jnp.sum(weights, axis=0)
    return jnp.sum(weights * points, axis=0) / jnp.where(mass > 0, mass, 1)
