"""Penalties made from other penalties.

Proofs are in Beck, First-Order Methods in Optimization, 2017, chapter 6. The Moreau envelope is in
``moreau``.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fcojax import tree
from fcojax.arguments import factory
from fcojax.transforms.calculus.predicates import PathPredicate, split_leaves
from fcojax.transforms.indicators import indicator, largest
from fcojax.transforms.penalty import Penalty, steps_like
from fcojax.transforms.shapes import filled, require_ordered, require_same_shapes
from fcojax.transforms.stable_norms import relative_rounding
from fcojax.transforms.thresholds import clipped
from fcojax.types import Array, FiniteTree, NumberTree, Positive, PyTree


@factory
def on_subtree(penalty: Penalty, touches: PathPredicate) -> Penalty:
    """Apply a penalty to some of the leaves; the others are not penalised.

    Args:
      penalty: psi, a function of the list of the selected leaves, in tree order.
      touches: ``(path, leaf) -> bool``, with the key path of ``jax.tree_util.tree_map_with_path``;
        ``named("kernel")`` makes one. It is called while tracing and must not depend on values.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.transforms import l1, named
      >>> kernels = on_subtree(l1(), named("kernel"))
      >>> kernels.prox({"bias": jnp.array(0.5), "kernel": jnp.array([3.0, 0.5])}, 1.0, 1.0)
      {'bias': Array(0.5, ...), 'kernel': Array([2., 0.], ...)}
    """

    def value(x, scale):
        return penalty.value(split_leaves(x, touches)[0], scale)

    def prox(v, step, scale):
        chosen, rest, join = split_leaves(v, touches)
        if not jax.tree_util.all_leaves([step]):  # a step for each entry
            paths, form = jax.tree_util.tree_flatten_with_path(v)
            step = [
                steps
                for (path, leaf), steps in zip(paths, form.flatten_up_to(step), strict=True)
                if touches(path, leaf)
            ]
        return join(penalty.prox(chosen, step, scale), rest)

    inner = penalty.scale_max
    scale_max = None if inner is None else lambda g: inner(split_leaves(g, touches)[0])

    def distance(inner_distance, x, v, scale):
        slopes, rest, _ = split_leaves(v, touches)
        return tree.euclidean_norm(
            [inner_distance(split_leaves(x, touches)[0], slopes, scale), *rest]
        )

    return _changed(penalty, value, prox, scale_max, distance)


@factory
def per_leaf(penalty: Penalty) -> Penalty:
    r"""Apply a penalty to every leaf separately, :math:`\sum_l \psi(x_l; \lambda)`.

    Most penalties are functions of all leaves jointly: ``l1_ball`` is one ball for the whole model.
    With ``per_leaf`` each layer has its own ball, with the same ``scale``. A separable penalty is
    unchanged. ``scale_max`` is the largest over the leaves.

    Args:
      penalty: psi.

    Example:
      >>> from fcojax.transforms.penalties.l1 import l1
      >>> model = {"first": jnp.array([3.0, -1.0]), "second": jnp.array(2.0)}
      >>> float(per_leaf(l1()).value(model, 2.0))
      12.0
    """

    def value(x, scale):
        return tree.total(jax.tree.map(lambda leaf: penalty.value(leaf, scale), x))

    def prox(v, step, scale):
        def of_leaf(leaf, step):
            return penalty.prox(leaf, step, scale)

        return jax.tree.map(of_leaf, v, steps_like(v, step))

    inner = penalty.scale_max
    scale_max = None if inner is None else lambda gradient: largest(jax.tree.map(inner, gradient))

    def distance(inner_distance, x, v, scale):
        return tree.euclidean_norm(
            jax.tree.map(lambda leaf, slope: inner_distance(leaf, slope, scale), x, v)
        )

    return _changed(penalty, value, prox, scale_max, distance)


@factory
def scaled(penalty: Penalty, factor: Positive) -> Penalty:
    r"""Multiply a penalty by a constant, :math:`c\, \psi(x; \lambda)`.

    .. math:: \mathrm{prox}_{t c \psi}(v) = \mathrm{prox}_{(tc) \psi}(v)

    This sets the relative strength of penalties on parts of a model that share one swept ``scale``.
    An indicator is unchanged. ``scale_max`` is the one of psi, for the gradient divided by c.

    Args:
      penalty: psi.
      factor: c, above 0.

    Example:
      >>> from fcojax.transforms.penalties.l1 import l1
      >>> scaled(l1(), 2.0).prox(jnp.array([3.0, 0.5]), 1.0, 1.0).tolist()
      [1.0, 0.0]
    """

    def value(x, scale):
        unscaled = penalty.value(x, scale)
        return jnp.asarray(factor, unscaled.dtype) * unscaled

    def prox(v, step, scale):
        return penalty.prox(v, jax.tree.map(lambda each: each * factor, step), scale)

    inner = penalty.scale_max
    scale_max = None if inner is None else lambda g: inner(tree.scale(1 / factor, tree.floats(g)))

    def distance(inner_distance, x, v, scale):
        unscaled = inner_distance(x, tree.scale(1 / factor, tree.floats(v)), scale)
        return jnp.asarray(factor, unscaled.dtype) * unscaled

    return _changed(penalty, value, prox, scale_max, distance)


@factory
def translated(penalty: Penalty, shift: FiniteTree) -> Penalty:
    r"""Translate a penalty, :math:`\psi(x - b; \lambda)`, so that it shrinks towards b.

    .. math:: \mathrm{prox}(v) = b + \mathrm{prox}_{t\psi}(v - b)

    ``scale_max`` is ``None``, as a large scale makes b optimal, not zero.

    Args:
      penalty: psi.
      shift: b, a pytree of arrays like x.

    Example:
      >>> from fcojax.transforms.penalties.l1 import l1
      >>> translated(l1(), jnp.array([1.0, 1.0])).prox(jnp.array([4.0, 1.5]), 1.0, 1.0).tolist()
      [3.0, 1.0]
    """

    def value(x, scale):
        require_same_shapes(x, shift, "shift")
        return penalty.value(tree.add_scaled(tree.floats(x), -1.0, shift), scale)

    def prox(v, step, scale):
        require_same_shapes(v, shift, "shift")
        x = penalty.prox(tree.add_scaled(tree.floats(v), -1.0, shift), step, scale)
        return tree.cast_like(tree.add_scaled(x, 1.0, shift), v)

    return penalty._replace(value=value, prox=prox, scale_max=None, subdiff_distance=None)


@factory
def precomposed(
    penalty: Penalty, forward: Callable[[PyTree], PyTree], adjoint: Callable[[PyTree], PyTree]
) -> Penalty:
    r"""Compose a penalty with a linear map, :math:`\psi(Ax; \lambda)` with :math:`AA^T = I`.

    .. math:: \mathrm{prox}(v) = A^T \mathrm{prox}_{t\psi}(Av) + v - A^T A v

    Examples are orthonormal transforms (Fourier, wavelets, permutations) and selections of
    coordinates. The formula is wrong for other maps, and the condition is not checked.
    ``scale_max`` is ``None``, as it need not exist for a map with a null space, and so is
    ``subdiff_distance``, as zeros of ``Ax`` are rounding errors.

    Args:
      penalty: psi.
      forward: ``x -> A x``, linear.
      adjoint: ``y -> A^T y``.

    Example:
      >>> from fcojax.transforms.penalties.l1 import l1
      >>> def rows_first(x): return x.T
      >>> precomposed(l1(), rows_first, rows_first).prox(jnp.array([[3.0, 0.5]]), 1.0, 1.0).tolist()
      [[2.0, 0.0]]

    References:
      Beck, "First-Order Methods in Optimization", 2017, theorem 6.15.
    """

    def value(x, scale):
        return penalty.value(forward(x), scale)

    def outside(v):
        return tree.sub(v, adjoint(forward(v)))

    def prox(v, step, scale):
        wide = tree.floats(v)
        inside = adjoint(penalty.prox(forward(wide), step, scale))
        rest = outside(outside(wide))  # the second removes rounding errors of the first
        # Rounding errors of v alone would hide the zeros of the result; derivatives are kept.
        is_zero = tree.euclidean_norm(rest) <= relative_rounding(wide) * tree.euclidean_norm(wide)
        rest = tree.where(is_zero, tree.sub(rest, jax.lax.stop_gradient(rest)), rest)
        return tree.cast_like(tree.add(inside, rest), v)

    return Penalty(value, prox, convex=penalty.convex)


@factory
def with_box(penalty: Penalty, lower: NumberTree, upper: NumberTree) -> Penalty:
    r"""Add a box constraint to a penalty, :math:`\psi(x; \lambda) + \chi\{a \le x \le b\}`.

    .. math:: \mathrm{prox}(v)_i = \min(\max(\mathrm{prox}_{t\psi}(v)_i, a_i), b_i)

    This holds for a convex psi that is a sum over entries (l1, elastic net, Huber, a power): the
    minimiser of a convex function of one variable over an interval is the point nearest to its
    unconstrained minimiser. It is wrong for a psi that couples entries, such as a group norm, so
    that is refused; for bounds on singular values see ``on_singular_values``. ``scale_max`` and
    ``subdiff_distance`` are ``None``.

    Args:
      penalty: psi, convex and separable.
      lower: a, one number for all entries or a pytree of arrays like x; minus infinity is allowed.
      upper: b, in the same form; infinity is allowed.

    Example:
      >>> from fcojax.transforms.penalties.l1 import l1
      >>> with_box(l1(), 0.0, 1.0).prox(jnp.array([3.0, 1.5, -3.0]), 1.0, 1.0).tolist()
      [1.0, 0.5, 0.0]

    References:
      Yu, "On decomposing the proximal map", 2013, on when the prox of a sum is a composition.
    """
    if not penalty.convex:
        raise ValueError(
            "the penalty is not convex, so that clipping its prox does not solve the problem with "
            "a box; pass a convex one."
        )
    if not penalty.separable:
        raise ValueError(
            "the penalty is not a sum over entries, so that clipping its prox does not solve the "
            "problem with a box; pass a separable one, such as l1(), and for "
            "bounds on singular values on_singular_values(with_box(...))."
        )
    if is_concrete((lower, upper)):
        require_ordered(lower, upper)

    def bounds(x):
        return filled(lower, x, "lower"), filled(upper, x, "upper")

    def value(x, scale):
        x = tree.floats(x)  # bounds of integers would be rounded
        outside = jax.tree.map(lambda leaf, a, b: jnp.maximum(a - leaf, leaf - b), x, *bounds(x))
        inner = penalty.value(x, scale)
        return inner + indicator(largest(outside)).astype(inner.dtype)

    def prox(v, step, scale):
        moved = penalty.prox(v, step, scale)
        return jax.tree.map(clipped, moved, *bounds(moved))

    return penalty._replace(value=value, prox=prox, scale_max=None, subdiff_distance=None)


def _changed(penalty: Penalty, value, prox, scale_max, distance: Callable[..., Array]) -> Penalty:
    """The penalty with other functions; ``distance`` is called with its ``subdiff_distance``."""
    inner_distance = penalty.subdiff_distance
    changed = None if inner_distance is None else functools.partial(distance, inner_distance)
    return penalty._replace(value=value, prox=prox, scale_max=scale_max, subdiff_distance=changed)


def is_concrete(numbers: PyTree) -> bool:
    """Return whether no leaf is traced, as under jit, vmap or grad."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(numbers))


def agree(results: Callable[[Array], Sequence[Array]]) -> bool:
    """Return whether all results at two probes are equal, or cannot be known while tracing."""
    with jax.ensure_compile_time_eval():
        for size in (1.0, 1e6):  # a box or a ball does not change points inside
            try:
                first, *others = found = results(size * jnp.array([2.0, -1.5, 0.25]))
            except ValueError:  # a penalty of matrices, or one with a number for each entry
                return False
            if is_concrete(found) and not all(np.allclose(first, other) for other in others):
                return False
    return True
