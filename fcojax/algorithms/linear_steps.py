r"""Local steps of linear models in coordinates of a client's rows.

The gradient in w of a mean of losses :math:`\phi_i(x_i^T w)` is a combination of the n rows
:math:`x_i` of X. So from :math:`v_1` full-batch steps that are linear in the point, gradients and
further constants :math:`v_j`, such as a correction, stay among

.. math:: w = \sum_j s_j v_j + X^T a, \qquad X w = \sum_j s_j X v_j + X X^T a.

A step in the coordinates (s, a) has the size of n and not of w. The products :math:`X v_j` are
computed once a round and :math:`X X^T` once, with the population, so K steps with a correction pass
the features three times instead of 2 K times.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.algorithms.local import Local, padded
from fcojax.problems.loss_kinds import LinearLoss
from fcojax.problems.losses import Loss
from fcojax.types import Array, Params


class Coordinates(NamedTuple):
    r"""The kernel :math:`\sum_j s_j v_j + X^T a`; a has a further axis for several outputs."""

    vectors: Array
    rows: Array


class Features(NamedTuple):
    """The features of a client, by X v_j along the second axis, and X X^T."""

    scores: Array
    products: Array

    def __matmul__(self, kernel: Coordinates) -> Array:
        """Return the scores of a kernel; the gradient in the kernel is in coordinates too."""
        return _scores(self, kernel)


def _value(features: Features, kernel: Coordinates) -> Array:
    return jnp.tensordot(features.scores, kernel.vectors, (1, 0)) + features.products @ kernel.rows


def _slope(vectors: Array, slope: Array) -> tuple[None, Coordinates]:
    # The gradient X^T g has the coordinates (0, g), for g the gradient in the scores; the
    # derivative in the coordinates would be X X^T g. A derivative of a whole run is the true one:
    # it goes through `_value`, and through this as through any function.
    return None, Coordinates(jnp.zeros_like(vectors), slope)


_scores = jax.custom_vjp(_value)
_scores.defvjp(lambda features, kernel: (_value(features, kernel), kernel.vectors), _slope)


def linear_steps(
    loss: Loss,
    local: Local,
    step: Callable[..., Params],
    start: Params,
    *constants: Params,
    num_steps: Array | int | None = None,
) -> Params:
    """Take the local steps ``point <- step(point, batch, *constants)``; return end minus start.

    The step must be linear: it may add and scale its point, the constants, and gradients of the
    loss from ``mean_gradient``, by ``fcojax.tree``. Without this promise, use ``local.scan``.

    If the loss is a ``LinearLoss``, steps are full-batch and more than one, and the population has
    ``products`` of its rows, then steps are taken in coordinates of the rows. The result is the
    same up to rounding, and a step costs almost nothing. Otherwise ``local.scan`` takes them, with
    its ``num_steps``.

    Example:
      >>> from fcojax.algorithms import linear_steps
      >>> def moved(loss, gradient, local, start, rate):
      ...     step = lambda w, batch: tree.add_scaled(w, -rate, gradient(w, batch))
      ...     return linear_steps(loss, local, step, start)
    """
    vectors = [start, *(vector for vector in constants if vector is not start)]

    def moved_by(local: Local, start: Params, constants: tuple[Params, ...]) -> Params:
        end = local.scan(
            lambda point, batch: step(point, batch, *constants), start, num_steps=num_steps
        )
        return tree.sub(end, start)

    if not _has_coordinates(loss, local, start):
        return moved_by(local, start, constants)
    x, first, real = local.sliced(local.rows["x"])
    scores = jnp.stack([x @ _kernel(vector) for vector in vectors], axis=1)
    scores = scores if real is None else padded(scores, first, real)
    batch = dataclasses.replace(local, rows={**local.rows, "x": local.products}).full()
    # Rows are counted from the first one of the slice, but columns from the client's first.
    products = jnp.roll(batch.examples["x"][:, : local.max_size], first, axis=1)
    examples = {**batch.examples, "x": Features(scores, products)}
    local = dataclasses.replace(local, whole=batch._replace(examples=examples))

    def unit(number: int) -> Params:
        """Return a vector in coordinates."""
        ones = jnp.zeros(len(vectors), scores.dtype).at[number].set(1)
        return _with_kernel(vectors[number], Coordinates(ones, jnp.zeros_like(scores[:, 0])))

    known = {id(vector): unit(number) for number, vector in enumerate(vectors)}
    moved = moved_by(local, known[id(start)], tuple(known[id(vector)] for vector in constants))
    coordinates = _kernel(moved)
    kernel = jnp.tensordot(x, coordinates.rows, (0, 0))
    for factor, vector in zip(coordinates.vectors, vectors, strict=True):
        kernel = kernel + factor * _kernel(vector)
    return _with_kernel(moved, kernel)


def problem_moves(loss: Loss, local: Local, step: Callable, problem: Any, first: Params) -> Params:
    """Return how far the steps of a client's problem lead from ``first``; see ``stepping``."""
    return linear_steps(loss, local, step, first, *problem.constants, num_steps=problem.num_steps)


def _has_coordinates(loss: Loss, local: Local, start: Params) -> bool:
    """Return whether steps may be taken in coordinates of the rows, and gain by it."""
    # Another handle may look at the points between the steps.
    if type(local) is not Local or local.products is None or not isinstance(loss, LinearLoss):
        return False
    several = local.work.batch_size is None and local.work.max_steps(local.max_size) > 1
    # In mixed precision a gradient step rounds to the kernel's dtype.
    return several and _kernel(start).dtype == local.products.dtype


def _kernel(params: Params) -> Any:
    return params["kernel"] if isinstance(params, dict) else params


def _with_kernel(params: Params, kernel: Any) -> Params:
    return {**params, "kernel": kernel} if isinstance(params, dict) else kernel
