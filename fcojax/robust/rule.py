"""Robust means of weighted points, and the uplink that takes one in place of the mean.

A rule knows neither clients nor rounds. ``averaged`` makes an uplink of it, for ``fcojax.Plan``.
"""

import itertools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import Uplink, tree
from fcojax.extend import (
    NO_UPLINK,
    WHOLE_COHORT,
    Cohort,
    forgetful,
    no_memory,
    plain_mean,
    unchanged,
)
from fcojax.types import Array, Key, OneArray, PyTree
from fcojax.uploads.compressor import factory


class Rule(NamedTuple):
    """A mean of weighted points that a few bad ones cannot move far.

    Attributes:
      name: how it is made, for error messages.
      needs: ``"sum"`` if one sum over the clients is enough; ``"passes"`` if it is a few sums, each
        of which needs the one before; ``"cohort"`` if it compares the points. For the last the
        uploads of a round are kept until its end.
      mean: ``(hparams, points, weights) -> point``, for points of shape [n, d] and weights that sum
        to 1; a point of weight 0 has no effect.
      term: ``(hparams, offset) -> term`` of a rule that is a sum: how far an upload that lies at
        this offset from the centre, a list of arrays, moves it. For passes
        ``(hparams, offset, index) -> (term, weight)``, with the index of the pass: the centre moves
        by the sum of the terms over that of the weights, and starts at zero.
      num_passes: number of sums.
      keeps_centre: whether the result is the centre of the next round; otherwise it is zero.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax import robust
      >>> points, weights = jnp.array([[1.0], [2.0], [9.0]]), jnp.array([0.4, 0.4, 0.2])
      >>> robust.median().mean(None, points, weights).tolist()
      [2.0]
    """

    name: str
    needs: Literal["sum", "passes", "cohort"]
    mean: Callable[[Any, OneArray, OneArray], Array]
    term: Callable[..., Any] | None = None
    num_passes: int = 1
    keeps_centre: bool = False

    example = "robust.median()"


class Mixing(NamedTuple):
    """A step before a rule, which makes other points of the points.

    Attributes:
      name: how it is made.
      mix: ``(hparams, points, weights, key) -> (points, weights)``.
      each: ``(hparams, upload) -> upload`` of a step that changes each upload by itself, a list of
        arrays. No upload is kept for it.

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
    each: Callable[[Any, list], list] | None = None

    example = "robust.bucketing(2)"


@factory
def averaged(
    rule: Rule,
    *,
    before: Mixing | tuple = (),
    uplink: Uplink | None = None,
    keep_uploads: bool = False,
) -> Uplink:
    """Return the uplink that takes a robust mean of the uploads.

    Clients weigh what they weigh in the mean. The rule sees the parts of an upload together, as one
    vector; ``Public`` parts pass by. A round without uploads changes nothing.

    Args:
      rule: the robust mean.
      before: what is done with the uploads before: a ``Mixing``, or a tuple of several.
      uplink: how uploads are encoded, such as ``uploads.compressed(...)``; it may have residuals on
        the clients, and no memory and no mean of its own.
      keep_uploads: whether the uploads of a round are kept also for a rule of a few passes.
        Otherwise clients compute and send them once more for each pass, which takes that many times
        as long, and no memory.

    Example:
      >>> import fcojax, numpy as np
      >>> from fcojax import robust
      >>> data = fcojax.from_clients([{"a": np.array([a])} for a in (1.0, 2.0, 3.0, 1e6)])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> plan = fcojax.Plan(fcojax.local_steps(1), uplink=averaged(robust.median()))
      >>> model, _ = fcojax.run(
      ...     fed_avg, fed_avg.hparams_type(client_lr=0.5), jnp.array(0.0), data,
      ...     jax.random.key(0), plan, num_rounds=60)
      >>> round(float(model), 3)  # and 250001.5 with the mean
      2.5
    """
    base, mixing = uplink or NO_UPLINK, (before,) if isinstance(before, Mixing) else before
    own = base.finish is not plain_mean or base.receive is not unchanged
    if own or base.memory is not no_memory or base.recall is not forgetful:
        raise ValueError(
            "the uplink has a mean or a memory of its own, which a robust mean would make wrong; "
            "pass one that only encodes, such as uploads.compressed(...)."
        )
    alone = tuple(itertools.takewhile(lambda step: step.each is not None, mixing))
    mixing = mixing[len(alone) :]

    def seen(hparams, payload):
        payload = _wide(payload)
        for step in alone:
            assert step.each is not None
            payload = step.each(hparams, payload)
        return payload

    several = rule.needs == "passes"
    if rule.term is None or mixing or (several and keep_uploads):
        return base._replace(**_of_cohort(rule, mixing, seen))
    if several:
        return base._replace(**_of_passes(rule, seen))
    if rule.keeps_centre:
        return base._replace(
            memory=_wide,
            receive=lambda hparams, payload, centre: (
                _term(rule, hparams, tree.sub(seen(hparams, payload), centre)),
                {},
            ),
            recall=lambda hparams, mean, centre, fraction: (tree.add(centre, mean),) * 2,
        )
    return base._replace(
        receive=lambda hparams, payload, memory: (_term(rule, hparams, seen(hparams, payload)), {})
    )


def _of_passes(rule: Rule, seen: Callable) -> dict[str, Any]:
    """Return the fields of an uplink that keeps a centre and the pass, and no upload."""

    def receive(hparams, payload, memory):
        centre, index = memory
        assert rule.term is not None
        return rule.term(hparams, tree.sub(seen(hparams, payload), centre), index), {}

    def moved(total):
        terms, mass = total
        return tree.scale(1 / jnp.where(mass > 0, mass, 1), terms)

    return {
        "memory": lambda zeros: (_wide(zeros), jnp.zeros((), jnp.int32)),
        "receive": receive,
        "num_passes": rule.num_passes,
        "between": lambda hparams, total, memory: (
            tree.add(memory[0], moved(total)),
            memory[1] + 1,
        ),
        "finish": lambda hparams, total, weights, key: moved(total),
        "recall": lambda hparams, mean, memory, fraction: (
            tree.add(memory[0], mean),
            tree.zeros_like(memory),
        ),
    }


def _wide(payload: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf.astype(tree.mean_dtype(leaf.dtype)), payload)


def _term(rule: Rule, hparams: Any, offset: list) -> list:
    assert rule.term is not None
    return rule.term(hparams, offset)


def _of_cohort(rule: Rule, mixing: tuple[Mixing, ...], seen: Callable) -> dict[str, Any]:
    """Return the fields of an uplink that collects whole cohorts."""

    def mixed(hparams, cohort: Cohort, weights, key):
        points = _as_points(cohort.uploads)
        shares = cohort.shares / jnp.where(weights.share > 0, weights.share, 1)
        shares = shares.astype(points.dtype)
        for index, step in enumerate(mixing):
            points, shares = step.mix(hparams, points, shares, jax.random.fold_in(key, index))
        return points, shares

    def finish(hparams, cohort: Cohort, weights, key):
        if not cohort.uploads:
            return cohort.uploads
        found = rule.mean(hparams, *mixed(hparams, cohort, weights, key))
        return _as_upload(found, [leaf[0] for leaf in cohort.uploads])

    fields = {
        "collector": WHOLE_COHORT,
        "receive": lambda hparams, payload, memory: (seen(hparams, payload), {}),
        "finish": finish,
    }
    if not rule.keeps_centre:
        return fields

    def recall(hparams, kept, centre, fraction):
        points, shares = kept
        origin = _as_points([leaf[None] for leaf in centre])
        found = _as_upload(origin[0] + rule.mean(hparams, points - origin, shares), centre)
        return found, found

    return fields | {"memory": _wide, "finish": mixed, "recall": recall}


def _as_points(leaves: list) -> Array:
    """Return lists of arrays with a leading axis as one matrix."""
    dtype = jnp.result_type(*leaves)
    flat = [leaf.reshape(leaf.shape[0], -1).astype(dtype) for leaf in leaves]
    return jnp.concatenate(flat, axis=1)


def _as_upload(point: Array, like: list) -> list:
    """Return a vector as a list of arrays."""
    ends = list(itertools.accumulate((leaf.size for leaf in like), initial=0))
    return [
        point[first:end].reshape(leaf.shape).astype(leaf.dtype)
        for leaf, first, end in zip(like, ends[:-1], ends[1:], strict=True)
    ]
