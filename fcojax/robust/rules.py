"""Robust means, weighted: integer weights are treated as that many copies of an upload.

``share`` is the part of the weight that may be bad. Any number except ``steps`` may be a function
of the hyperparameters, as in ``lambda h: h.share``, so that it can be swept. A round without
uploads changes nothing.
"""

from collections.abc import Callable
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import checked_value, factory
from fcojax.robust.mass import between, column, lengths, nearest, ordered, rounding, weighted_median
from fcojax.types import Array, Count, Numbers, OneArray, Positive, Real
from fcojax.uploads.coding import from_vector
from fcojax.uploads.contract import Aggregator, mean_of
from fcojax.uploads.stack import STACK, Stacked, combined
from fcojax.uploads.transform import number

_BELOW_HALF = "a number of at least 0 and below 0.5, as a majority has to be honest"
Minority = Annotated[Any, Numbers(_BELOW_HALF, lambda x: (x >= 0) & (x < 0.5))] | Callable


@factory
def averaged(mean: Callable[[Any, OneArray, OneArray], Array]) -> Aggregator:
    """Return the aggregator of a robust mean of points, such as one of your own.

    Args:
      mean: ``(hparams, points, weights) -> point``, for points of shape [n, d], each an upload as
        one vector, and weights that sum to 1; a point of weight 0 has no effect.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> largest = averaged(lambda hparams, points, weights: jnp.max(points, axis=0))
      >>> plan = fcojax.Plan(fcojax.local_steps(1), aggregator=largest)
    """

    def finish(hparams, stacked: Stacked, weights, memory, key):
        like = [leaf[0] for leaf in stacked.terms]
        if not like:
            return like, memory
        points = as_points(stacked.terms)
        shares = stacked.shares / jnp.where(weights.share > 0, weights.share, 1)
        return from_vector(mean(hparams, points, shares.astype(points.dtype)), like), memory

    return Aggregator(
        term=lambda hparams, payload, memory: tree.floats(payload), collect=STACK, finish=finish
    )


def as_points(leaves: list) -> Array:
    """Return lists of arrays with a leading axis as one matrix."""
    dtype = jnp.result_type(*leaves)
    flat = [leaf.reshape(leaf.shape[0], -1).astype(dtype) for leaf in leaves]
    return jnp.concatenate(flat, axis=1)


@factory
def median() -> Aggregator:
    """Return the median of each coordinate.

    It is the midpoint where half of the weight lies on each side, and breaks down when bad clients
    have half of the weight.

    Example:
      >>> of_each_entry = median()

    References:
      Yin, Chen, Ramchandran and Bartlett, "Byzantine-robust distributed learning: towards optimal
      statistical rates", ICML 2018.
    """
    return averaged(lambda hparams, points, weights: weighted_median(points, weights))


@factory
def trimmed_mean(share: Minority) -> Aggregator:
    """Return the mean of each coordinate without its smallest and its largest values.

    Args:
      share: part of the weight that is cut off on each side; below 1/2.

    Example:
      >>> swept = trimmed_mean(lambda h: h.share)

    References:
      Yin, Chen, Ramchandran and Bartlett, "Byzantine-robust distributed learning: towards optimal
      statistical rates", ICML 2018.
    """

    def mean(hparams, points, weights):
        cut = number(hparams, share)
        points, weights = ordered(points, weights)
        return _total(between(weights, cut, 1 - cut), points)

    return averaged(mean)


@factory
def geometric_median(steps: Count = 3, smoothing: Positive = 1e-6) -> Aggregator:
    r"""Return the point with the smallest weighted sum of distances, by Weiszfeld's iteration.

    .. math:: z \leftarrow \sum_i b_i x_i / \sum_i b_i, \quad b_i = w_i / \max(\nu, |x_i - z|)

    starting at the median of each coordinate, so that no step is moved far by bad clients with less
    than half of the weight.

    Args:
      steps: passes over the uploads, after the median.
      smoothing: :math:`\nu`, well below the distances between uploads: if all lie within
        :math:`\nu` of z, the next z is their mean.

    Example:
      >>> more_exact = geometric_median(steps=30)

    References:
      Pillutla, Kakade and Harchaoui, "Robust aggregation for federated learning", IEEE Trans.
      Signal Process. 2022, algorithm 2, which starts at any point.
    """

    def mean(hparams, points, weights):
        def step(_, centre):
            apart = jax.vmap(tree.euclidean_norm)(points - centre[None])
            return _total(weights / jnp.maximum(apart, smoothing), points)

        return jax.lax.fori_loop(0, steps, step, weighted_median(points, weights))

    return averaged(mean)


@factory
def krum(share: Minority) -> Aggregator:
    """Return the point with the smallest sum of squared distances to its nearest neighbours.

    If several points have the same sum, it is their mean.

    Args:
      share: share of the weight that does not count as neighbours; below 1/2.

    Example:
      >>> one_of_four = krum(0.25)

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

    return averaged(mean)


@factory
def centred_clipping(radius: Any) -> Aggregator:
    r"""Return the aggregator that moves a centre by the mean of offsets, clipped to a norm.

    .. math:: v \leftarrow v + \sum_i w_i (x_i - v) \min(1, \tau / |x_i - v|)

    The centre v is the result of the previous round, and a round is one sum.

    Args:
      radius: :math:`\tau`; infinity for the mean.

    Example:
      >>> swept = centred_clipping(lambda h: h.radius)

    References:
      Karimireddy, He and Jaggi, "Learning from history for Byzantine robust optimization", ICML
      2021, equation (CC).
    """
    if not callable(radius) and not (isinstance(radius, float) and radius == float("inf")):
        checked_value("radius", radius, Positive)

    def term(hparams, payload, centre):
        return clip(tree.sub(tree.floats(payload), centre), number(hparams, radius))[0]

    def finish(hparams, total, weights, centre, key):
        moved = tree.add(centre, mean_of(total, weights))
        return moved, moved

    return Aggregator(tree.floats, term, finish=finish)


@factory
def bucketing(size: Count, aggregator: Aggregator) -> Aggregator:
    """Return the aggregator of the means of random groups of uploads.

    Honest clients with unlike data are hard to tell from bad ones; means of groups are more alike.

    Args:
      size: uploads in a group; the last group may be smaller.
      aggregator: what combines the means.

    Example:
      >>> of_pairs = bucketing(2, median())

    References:
      Karimireddy, He and Jaggi, "Byzantine-robust learning on heterogeneous datasets via
      bucketing", ICLR 2022.
    """

    def finish(hparams, stacked: Stacked, weights, memory, key):
        shares = stacked.shares
        n, num_groups = shares.shape[0], -(-shares.shape[0] // size)
        order = jax.random.permutation(jax.random.fold_in(key, 0), n)
        order = order[jnp.argsort(shares[order] <= 0)]  # present uploads come first
        group = jnp.zeros(n, jnp.int32).at[order].set(jnp.arange(n, dtype=jnp.int32) // size)
        mass = jnp.zeros(num_groups, shares.dtype).at[group].add(shares)

        def mean(leaf):
            weight = (shares / jnp.where(mass > 0, mass, 1)[group]).astype(leaf.dtype)
            weighted = column(weight, leaf) * leaf
            return jnp.zeros((num_groups, *leaf.shape[1:]), leaf.dtype).at[group].add(weighted)

        means = jax.tree.map(mean, stacked.terms)
        return combined(aggregator, hparams, means, mass, weights, memory, key)

    return aggregator._replace(
        term=lambda hparams, payload, memory: tree.floats(payload), collect=STACK, finish=finish
    )


def clip(vector: Any, radius: Any) -> tuple[Any, Array]:
    """Return finite arrays, scaled down to a norm if they are longer, and whether they were."""
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
    weights = jnp.broadcast_to(column(weights, points), points.shape)
    mass = jnp.sum(weights, axis=0)
    return jnp.sum(weights * points, axis=0) / jnp.where(mass > 0, mass, 1)
