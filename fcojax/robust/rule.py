"""Robust means of weighted points, and the aggregator that uses one in place of the mean.

A rule does not depend on clients or rounds. ``averaged`` makes an aggregator from it, for
``fcojax.Plan``.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import Aggregator, tree
from fcojax.arguments import factory
from fcojax.types import Array, Key, OneArray
from fcojax.uploads.aggregator import STACK, Stacked
from fcojax.uploads.coding import from_vector
from fcojax.uploads.transform import mean_of


class Rule(NamedTuple):
    """A mean of weighted points that a few bad ones cannot move far.

    Attributes:
      name: the call that makes it, for error messages.
      mean: ``(hparams, points, weights) -> point``, for points of shape [n, d] and weights that sum
        to 1; a point of weight 0 has no effect.
      term: ``(hparams, offset) -> term`` for a rule that is one sum over the clients, so that
        uploads need not be stored: the term of an upload at this offset from the centre, as a list
        of arrays. ``None`` for a rule that compares the points.
      keeps_centre: whether the result is the centre of the next round; otherwise the centre is
        zero.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax import robust
      >>> points, weights = jnp.array([[1.0], [2.0], [9.0]]), jnp.array([0.4, 0.4, 0.2])
      >>> robust.median().mean(None, points, weights).tolist()
      [2.0]
    """

    name: str
    mean: Callable[[Any, OneArray, OneArray], Array]
    term: Callable[[Any, list], list] | None = None
    keeps_centre: bool = False

    example = "robust.median()"


class Mixing(NamedTuple):
    """A preprocessing step that replaces the uploads before aggregation.

    Attributes:
      name: the call that makes it.
      mix: ``(hparams, points, weights, key) -> (points, weights)``.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax import robust
      >>> points, weights = jnp.array([[0.0], [1.0], [9.0]]), jnp.ones(3) / 3
      >>> mixed, _ = robust.nearest_neighbour_mixing(1 / 3).mix(None, points, weights, None)
      >>> mixed.round(3).tolist()  # each is the mean of the two points that are nearest
      [[0.5], [0.5], [5.0]]
    """

    name: str
    mix: Callable[[Any, OneArray, OneArray, Key], tuple[Array, Array]]

    example = "robust.bucketing(2)"


@factory
def averaged(rule: Rule, *, before: Mixing | tuple = ()) -> Aggregator:
    """Return the aggregator that takes a robust mean of the uploads.

    Clients keep their weights p_m. The rule gets the parts of an upload as one vector; ``Public``
    parts bypass it. A round without uploads changes nothing.

    Args:
      rule: the robust mean.
      before: preprocessing steps: a ``Mixing``, or a tuple of several.

    Example:
      >>> import fcojax, numpy as np
      >>> from fcojax import robust
      >>> data = fcojax.from_clients([{"a": np.array([a])} for a in (1.0, 2.0, 3.0, 1e6)])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> plan = fcojax.Plan(fcojax.local_steps(1), aggregator=averaged(robust.median()))
      >>> model, _ = fcojax.run(
      ...     fed_avg, fed_avg.hparams_type(client_lr=0.5), jnp.array(0.0), data,
      ...     jax.random.key(0), plan, num_rounds=60)
      >>> round(float(model), 3)  # and 250001.5 with the mean
      2.5
    """
    mixing = (before,) if isinstance(before, Mixing) else before
    made = _of_cohort(rule, mixing) if rule.term is None or mixing else _of_sum(rule)
    return made._replace(init=tree.floats) if rule.keeps_centre else made


def _of_sum(rule: Rule) -> Aggregator:
    """Return the aggregator of a rule that is one sum of offsets from a centre."""
    move = rule.term
    assert move is not None

    def term(hparams, payload, centre):
        payload = tree.floats(payload)
        return move(hparams, tree.sub(payload, centre) if rule.keeps_centre else payload)

    def finish(hparams, total, weights, centre, key):
        mean = mean_of(total, weights)
        moved = tree.add(centre, mean) if rule.keeps_centre else mean
        return moved, moved if rule.keeps_centre else centre

    return Aggregator(term=term, finish=finish)


def _of_cohort(rule: Rule, mixing: tuple[Mixing, ...]) -> Aggregator:
    """Return the aggregator of a rule that compares the uploads of a round."""

    def term(hparams, payload, centre):
        return tree.floats(payload)

    def finish(hparams, stacked: Stacked, weights, centre, key):
        like = [leaf[0] for leaf in stacked.terms]
        found = like
        if like:
            points = as_points(stacked.terms)
            shares = stacked.shares / jnp.where(weights.share > 0, weights.share, 1)
            shares = shares.astype(points.dtype)
            for index, step in enumerate(mixing):
                points, shares = step.mix(hparams, points, shares, jax.random.fold_in(key, index))
            origin = jnp.zeros_like(points[:1])
            if rule.keeps_centre:
                origin = as_points([leaf[None] for leaf in centre])
            mean = rule.mean(hparams, points - origin, shares)
            found = from_vector(origin[0] + mean, like)
        return found, found if rule.keeps_centre else centre

    return Aggregator(term=term, collect=STACK, finish=finish)


def as_points(leaves: list) -> Array:
    """Return lists of arrays with a leading axis as one matrix."""
    dtype = jnp.result_type(*leaves)
    flat = [leaf.reshape(leaf.shape[0], -1).astype(dtype) for leaf in leaves]
    return jnp.concatenate(flat, axis=1)
