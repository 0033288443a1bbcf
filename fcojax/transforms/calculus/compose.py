"""Penalties made from other penalties.

Beck, First-Order Methods in Optimization, 2017, chapter 6, has the proofs. What needs the
conjugate is next door, in ``moreau``; leaves are chosen in ``predicates``.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fcojax import tree
from fcojax.memo import memoised
from fcojax.transforms.calculus.predicates import PathPredicate, require_predicate, split_leaves
from fcojax.transforms.lengths import length
from fcojax.transforms.penalty import Penalty, entrywise, largest, require_penalty
from fcojax.transforms.thresholds import clipped
from fcojax.types import Array, PyTree, Scalar


@memoised
def on_subtree(penalty: Penalty, touches: PathPredicate) -> Penalty:
    """The penalty on those leaves for which ``touches(path, leaf)`` holds; the others stay free.

    Args:
      penalty: what to apply. It sees a list of the touched leaves, in tree order.
      touches: a predicate on the key path and the leaf, as ``jax.tree_util.tree_map_with_path``
        gives them; it is asked while tracing, so it must not look at values.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.transforms import l1, named
      >>> kernels = on_subtree(l1(), named("kernel"))
      >>> kernels.prox({"bias": jnp.array(0.5), "kernel": jnp.array([3.0, 0.5])}, 1.0, 1.0)
      {'bias': Array(0.5, ...), 'kernel': Array([2., 0.], ...)}
    """
    require_penalty(penalty, "on_subtree")
    require_predicate(touches, "on_subtree")

    def value(x, scale):
        return penalty.value(split_leaves(x, touches)[0], scale)

    def prox(v, step, scale):
        chosen, rest, join = split_leaves(v, touches)
        if not jax.tree_util.all_leaves([step]):  # a step for every entry
            paths = jax.tree_util.tree_leaves_with_path(v)
            step = [
                steps
                for (path, leaf), steps in zip(paths, jax.tree.leaves(step), strict=True)
                if touches(path, leaf)
            ]
        return join(penalty.prox(chosen, step, scale), rest)

    inner = penalty.scale_max
    scale_max = None if inner is None else lambda g: inner(split_leaves(g, touches)[0])

    def distance(gap, x, v, scale):
        slopes, rest, _ = split_leaves(v, touches)
        return length([gap(split_leaves(x, touches)[0], slopes, scale), *rest])

    return _changed(penalty, value, prox, scale_max, distance)


@memoised
def per_leaf(penalty: Penalty) -> Penalty:
    r"""The penalty on every leaf by itself, :math:`\sum_l \psi(x_l; \lambda)`.

    A penalty sees a pytree as one long vector unless it says otherwise: ``l1_ball`` is one ball for
    the whole model. Under ``per_leaf`` each leaf has its own problem with the same ``scale``, so
    each layer gets a ball of its own. For a penalty that is a sum over entries nothing changes.
    Zero is optimal when it is so in every leaf: ``scale_max`` is the largest of theirs.

    Example:
      >>> from fcojax.transforms.penalties.l1 import l1
      >>> model = {"first": jnp.array([3.0, -1.0]), "second": jnp.array(2.0)}
      >>> float(per_leaf(l1()).value(model, 2.0))
      12.0
    """
    require_penalty(penalty, "per_leaf")

    def value(x, scale):
        return tree.total(jax.tree.map(lambda leaf: penalty.value(leaf, scale), x))

    def prox(v, step, scale):
        return entrywise(lambda leaf, step: penalty.prox(leaf, step, scale), v, step)

    inner = penalty.scale_max
    scale_max = None if inner is None else lambda gradient: largest(jax.tree.map(inner, gradient))

    def distance(gap, x, v, scale):
        return length(jax.tree.map(lambda leaf, slope: gap(leaf, slope, scale), x, v))

    return _changed(penalty, value, prox, scale_max, distance)


@memoised
def scaled(penalty: Penalty, factor: Scalar) -> Penalty:
    r"""The multiple :math:`c\, \psi(x; \lambda)` by a factor c > 0.

    .. math:: \mathrm{prox}_{t c \psi}(v) = \mathrm{prox}_{(tc) \psi}(v)

    It serves to weigh parts of a model against each other under one swept ``scale``. An indicator
    stays what it is. ``scale_max`` is that of the gradient over c.

    Example:
      >>> from fcojax.transforms.penalties.l1 import l1
      >>> scaled(l1(), 2.0).prox(jnp.array([3.0, 0.5]), 1.0, 1.0).tolist()
      [1.0, 0.0]
    """
    require_penalty(penalty, "scaled")
    if is_concrete(factor) and not float(factor) > 0:
        raise ValueError(
            f"scaled was given the factor {factor}, which has to be positive; "
            "use zero() to switch a penalty off."
        )

    def value(x, scale):
        once = penalty.value(x, scale)
        return jnp.asarray(factor, once.dtype) * once

    def prox(v, step, scale):
        return penalty.prox(v, jax.tree.map(lambda each: each * factor, step), scale)

    inner = penalty.scale_max
    scale_max = None if inner is None else lambda g: inner(tree.scale(1 / factor, g))

    def distance(gap, x, v, scale):
        once = gap(x, tree.scale(1 / factor, v), scale)
        return jnp.asarray(factor, once.dtype) * once

    return _changed(penalty, value, prox, scale_max, distance)


@memoised
def translated(penalty: Penalty, shift: PyTree) -> Penalty:
    r"""The penalty around another point, :math:`\psi(x - b; \lambda)`.

    .. math:: \mathrm{prox}(v) = b + \mathrm{prox}_{t\psi}(v - b)

    Args:
      penalty: psi.
      shift: b, a pytree of arrays like x. What was pulled to zero is now pulled to b.

    ``scale_max`` is gone: it is b, not zero, that a large strength makes optimal.

    Example:
      >>> from fcojax.transforms.penalties.l1 import l1
      >>> translated(l1(), jnp.array([1.0, 1.0])).prox(jnp.array([4.0, 1.5]), 1.0, 1.0).tolist()
      [3.0, 1.0]
    """
    require_penalty(penalty, "translated")

    def value(x, scale):
        return penalty.value(tree.add_scaled(x, -1.0, shift), scale)

    def prox(v, step, scale):
        moved = penalty.prox(tree.add_scaled(v, -1.0, shift), step, scale)
        return tree.add_scaled(moved, 1.0, shift)

    def distance(gap, x, v, scale):
        return gap(tree.add_scaled(x, -1.0, shift), v, scale)

    return _changed(penalty, value, prox, None, distance)


@memoised
def precomposed(
    penalty: Penalty, forward: Callable[[PyTree], PyTree], adjoint: Callable[[PyTree], PyTree]
) -> Penalty:
    r"""The penalty seen through a linear map, :math:`\psi(Ax; \lambda)` where :math:`AA^T = I`.

    .. math:: \mathrm{prox}(v) = v + A^T(\mathrm{prox}_{t\psi}(Av) - Av)

    An orthonormal transform (Fourier, wavelet, a permutation) qualifies, and so does a choice of
    coordinates; the formula is wrong for any other map, and nobody can check a function.

    Args:
      penalty: psi.
      forward: ``x -> A x``, linear.
      adjoint: ``y -> A^T y``.

    ``scale_max`` is gone, since for a map with a null space it need not exist.

    Example:
      >>> from fcojax.transforms.penalties.l1 import l1
      >>> def rows_first(x): return x.T
      >>> precomposed(l1(), rows_first, rows_first).prox(jnp.array([[3.0, 0.5]]), 1.0, 1.0).tolist()
      [[2.0, 0.0]]

    References:
      Beck, First-Order Methods in Optimization, 2017, theorem 6.15.
    """
    require_penalty(penalty, "precomposed")

    def value(x, scale):
        return penalty.value(forward(x), scale)

    def prox(v, step, scale):
        image = forward(v)
        return tree.add(v, adjoint(tree.sub(penalty.prox(image, step, scale), image)))

    def distance(gap, x, v, scale):
        image = forward(v)
        return length([gap(forward(x), image, scale), tree.sub(v, adjoint(image))])

    return _changed(penalty._replace(separable=False), value, prox, None, distance)


@memoised
def rotated(penalty: Penalty, matrix: Array) -> Penalty:
    r"""The penalty in another orthonormal basis, :math:`\psi(Qx; \lambda)`.

    .. math:: \mathrm{prox}(v) = Q^T \mathrm{prox}_{t\psi}(Qv)

    Args:
      penalty: psi.
      matrix: Q, square with :math:`QQ^T = I`. It multiplies every leaf from the left, so each leaf
        is a vector of length d or a matrix of d rows.

    Example:
      >>> from fcojax.transforms.penalties.l1 import l1
      >>> swap = jnp.array([[0.0, 1.0], [1.0, 0.0]])
      >>> rotated(l1(), swap).prox(jnp.array([3.0, 0.5]), 1.0, 1.0).tolist()
      [2.0, 0.0]
    """
    require_penalty(penalty, "rotated")
    if jnp.ndim(matrix) != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(
            f"rotated was given a matrix of shape {jnp.shape(matrix)}; it has to be square."
        )
    if is_concrete(matrix):
        concrete = np.asarray(matrix, np.float64)
        defect = float(np.max(np.abs(concrete @ concrete.T - np.eye(len(concrete))), initial=0.0))
        allowed = 100 * float(jnp.finfo(matrix.dtype).eps) * len(concrete)
        if not defect <= allowed:
            raise ValueError(
                f"rotated was given a matrix with |Q Q^T - I| = {defect:.1e}, which has to be "
                f"orthogonal (at most {allowed:.1e}); take the Q of its QR decomposition."
            )

    def forward(x):
        return jax.tree.map(lambda leaf: matrix.astype(leaf.dtype) @ leaf, x)

    def adjoint(y):
        return jax.tree.map(lambda leaf: matrix.T.astype(leaf.dtype) @ leaf, y)

    def prox(v, step, scale):
        return adjoint(penalty.prox(forward(v), step, scale))

    def value(x, scale):
        return penalty.value(forward(x), scale)

    inner = penalty.scale_max
    scale_max = None if inner is None else lambda gradient: inner(forward(gradient))

    def distance(gap, x, v, scale):
        return gap(forward(x), forward(v), scale)

    return _changed(penalty._replace(separable=False), value, prox, scale_max, distance)


@memoised
def with_box(penalty: Penalty, lower: PyTree, upper: PyTree) -> Penalty:
    r"""The penalty plus a box, :math:`\psi(x; \lambda) + \chi\{a \le x \le b\}`.

    .. math:: \mathrm{prox}(v)_i = \min(\max(\mathrm{prox}_{t\psi}(v)_i, a_i), b_i)

    Right for a convex psi that is a sum over entries (l1, elastic net, Huber, a power), because a
    convex function of one variable is least over an interval at the point nearest to its free
    minimiser. Wrong for a psi that couples entries, such as a norm of a group.

    Args:
      penalty: psi, convex and separable over entries.
      lower: a, one number for all entries or a pytree of arrays like x; minus infinity is allowed.
      upper: b, likewise.

    ``scale_max`` is gone: on one side of the box zero may be optimal at a smaller scale. So is
    ``subdiff_distance``.

    Example:
      >>> from fcojax.transforms.penalties.l1 import l1
      >>> with_box(l1(), 0.0, 1.0).prox(jnp.array([3.0, 1.5, -3.0]), 1.0, 1.0).tolist()
      [1.0, 0.5, 0.0]

    References:
      Yu, On decomposing the proximal map, 2013, for when a prox of a sum is a composition.
    """
    require_penalty(penalty, "with_box")
    if not penalty.convex:
        raise ValueError(
            "with_box was given a penalty that is not convex, and clipping its prox would not "
            "solve the boxed problem; pass a convex one."
        )
    if is_concrete((lower, upper)):
        for low, high in _paired(jax.tree.leaves(lower), jax.tree.leaves(upper)):
            if not np.all(np.asarray(low) <= np.asarray(high)):
                raise ValueError(
                    f"with_box was given a lower bound {low} that exceeds the upper bound {high}; "
                    "the box is empty."
                )

    def bounds(x):
        return _spread(lower, x), _spread(upper, x)

    def value(x, scale):
        inner = penalty.value(x, scale)
        low, high = bounds(x)
        outside = tree.total(
            jax.tree.map(lambda leaf, a, b: jnp.sum((leaf < a) | (leaf > b)), x, low, high)
        )
        return jnp.where(outside > 0, jnp.asarray(jnp.inf, inner.dtype), inner)

    def prox(v, step, scale):
        return jax.tree.map(clipped, penalty.prox(v, step, scale), *bounds(v))

    return penalty._replace(value=value, prox=prox, scale_max=None, subdiff_distance=None)


def _changed(penalty: Penalty, value, prox, scale_max, distance: Callable[..., Array]) -> Penalty:
    """The penalty with other functions; ``distance`` is given its own one, if it has one."""
    gap = penalty.subdiff_distance
    changed = None if gap is None else functools.partial(distance, gap)
    return penalty._replace(value=value, prox=prox, scale_max=scale_max, subdiff_distance=changed)


def is_concrete(numbers: PyTree) -> bool:
    """Whether the numbers can be looked at, which those under jit, vmap or grad cannot."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(numbers))


def _paired(lows: list, highs: list) -> list[tuple]:
    """Leaf with leaf, or one number with every leaf."""
    count = max(len(lows), len(highs))
    widen = [leaves * count if len(leaves) == 1 else leaves for leaves in (lows, highs)]
    return list(zip(*widen, strict=True))


def _spread(numbers: PyTree, x: PyTree) -> PyTree:
    """A pytree like ``x`` from one number or from a pytree that already is like it."""
    if jax.tree.structure(numbers) != jax.tree.structure(x):
        if not jax.tree_util.all_leaves([numbers]) or jnp.ndim(numbers):
            raise ValueError(
                f"bounds of structure {jax.tree.structure(numbers)} do not fit parameters of "
                f"structure {jax.tree.structure(x)}; pass one number or a pytree like them."
            )
        numbers = jax.tree.map(lambda leaf: numbers, x)
    return jax.tree.map(
        lambda leaf, number: jnp.broadcast_to(jnp.asarray(number, leaf.dtype), leaf.shape),
        x,
        numbers,
    )
