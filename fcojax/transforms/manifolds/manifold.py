"""Smooth manifolds in a Euclidean space: the type, functions of any manifold, and products.

Federated manifold optimisation needs ``project`` and ``to_tangent``; its baselines need a
retraction and its inverse.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import checked_value, factory, validated
from fcojax.transforms.shapes import require_same_shapes
from fcojax.types import Array, Key, Params, PyTree


class Manifold(NamedTuple):
    """A manifold M embedded in the space of its points' arrays.

    All functions are pure; use ``vmap`` for batches. They do not check that x lies on M or that a
    vector is tangent.

    Attributes:
      project: ``(y) -> the nearest point of M``, smooth for y at a distance below ``reach``.
      to_tangent: ``(x, v) -> the orthogonal projection of v on the tangent space at x``. It is
        the differential of ``project`` at x (if M is a quotient: followed by the projection on the
        horizontal vectors).
      retract: ``(x, tangent) -> a point of M``, equal to ``x + tangent`` to first order.
      random_point: ``(like, key) -> a point of M`` with the shape and dtype of ``like``, which may
        be a ``jax.ShapeDtypeStruct``; uniform if M is compact.
      reach: the largest r such that every y with distance to M below r has a unique nearest point.
        Within half that distance ``project`` is 2-Lipschitz.
      inverse_retract: ``(x, y) -> the tangent u with retract(x, u) == y``, or ``None``. Where no
        such u exists the result is finite; the factories state where it exists.
      exp: ``(x, tangent) -> the end of the geodesic with that initial velocity``, or ``None``.
      log: ``(x, y) -> the initial velocity of the shortest geodesic from x to y``, or ``None``.
      riesz: ``(x, gradient) -> vector``, the representation of a Euclidean gradient in the inner
        product at x; ``None`` if that is the Euclidean one.
      metric: ``(x, vector) -> gradient``, the inverse of ``riesz``: the inner product of u and v at
        x is the Euclidean one of u and ``metric(x, v)``.
      transport: ``(x, y, tangent) -> the tangent at y`` that is parallel to one at x along the
        geodesic; ``None`` for the projection on the tangent space at y.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> sphere = fcojax.transforms.sphere()
      >>> x = sphere.project(jnp.array([0.0, 4.0]))
      >>> x.tolist(), sphere.to_tangent(x, jnp.array([2.0, 3.0])).tolist(), sphere.reach
      ([0.0, 1.0], [2.0, 0.0], 1.0)
    """

    example = "stiefel()"  # for error messages

    project: Callable[[Params], Params]
    to_tangent: Callable[[Params, Params], Params]
    retract: Callable[[Params, Params], Params]
    random_point: Callable[[PyTree, Key], Params]
    reach: float
    inverse_retract: Callable[[Params, Params], Params] | None = None
    exp: Callable[[Params, Params], Params] | None = None
    log: Callable[[Params, Params], Params] | None = None
    riesz: Callable[[Params, Params], Params] | None = None
    metric: Callable[[Params, Params], Params] | None = None
    transport: Callable[[Params, Params, Params], Params] | None = None


@validated
def riemannian_gradient(manifold: Manifold, x: Params, gradient: Params) -> Params:
    """Return the Riemannian gradient of a function from its Euclidean gradient.

    Args:
      manifold: the manifold on which the function is minimised.
      x: a point of it.
      gradient: the Euclidean gradient of the function at x.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.transforms.manifolds.sphere import sphere
      >>> x = jnp.array([1.0, 0.0])
      >>> riemannian_gradient(sphere(), x, jnp.array([5.0, 2.0])).tolist()
      [0.0, 2.0]
    """
    require_same_shapes(x, gradient, "gradient")
    vector = gradient if manifold.riesz is None else manifold.riesz(x, gradient)
    return manifold.to_tangent(x, vector)


@validated
def transport(manifold: Manifold, x: Params, y: Params, tangent: Params) -> Params:
    """Transport a tangent vector from x to y, by ``manifold.transport`` if there is one.

    Otherwise it is projected orthogonally on the tangent space at y.

    Args:
      manifold: the manifold of x and y.
      x: the point of the tangent vector.
      y: the point to transport it to.
      tangent: a tangent vector at x.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> x, y = jnp.array([1.0, 0.0, 0.0]), jnp.array([0.0, 1.0, 0.0])
      >>> tangent = jnp.array([0.0, 2.0, 3.0])
      >>> fcojax.transforms.transport(fcojax.transforms.sphere(), x, y, tangent).tolist()
      [0.0, 0.0, 3.0]
    """
    require_same_shapes(x, y, "y")
    require_same_shapes(y, tangent, "tangent")
    if manifold.transport is None:
        return manifold.to_tangent(y, tangent)
    return manifold.transport(x, y, tangent)


def ambient_norm(manifold: Manifold, x: Params, v: Params) -> Array:
    """Return the norm of v in the inner product at x, with gradient 0 at 0.

    Args:
      manifold: its ``metric`` is the inner product.
      x: a point of it.
      v: a vector of the ambient space.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.transforms.manifolds.stiefel import generalised_stiefel
      >>> x, v = jnp.array([[1 / 3], [0.0]]), jnp.array([[0.0], [2.0]])
      >>> float(ambient_norm(generalised_stiefel(9 * jnp.eye(2)), x, v))
      6.0
    """
    if manifold.metric is None:
        return tree.euclidean_norm(v)
    gradient = manifold.metric(x, v)
    # At x the inner product may be of any size: v and its gradient are scaled each on its own.
    units = [tree.safe_unit(tree.max_abs(side)) for side in (v, gradient)]
    ratios = [tree.scale(1 / unit, side) for unit, side in zip(units, (v, gradient), strict=True)]
    return jnp.sqrt(units[0]) * jnp.sqrt(units[1]) * tree.safe_sqrt(tree.vdot(*ratios))


@validated
def distance(manifold: Manifold, y: Params) -> Array:
    """Return the distance of y to the manifold, ``|y - project(y)|``, with gradient 0 on it.

    Args:
      manifold: a manifold, such as ``stiefel()``.
      y: a point of the ambient space.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.transforms.manifolds.sphere import sphere
      >>> float(distance(sphere(), jnp.array([3.0, 4.0])))
      4.0
    """
    nearest = manifold.project(y)
    return ambient_norm(manifold, nearest, tree.sub(y, nearest))


def projected_normal(project: Callable[[Array], Array]) -> Callable[[PyTree, Key], Array]:
    """Return ``random_point`` as the projection of a matrix of independent normal numbers."""
    return lambda like, key: project(jax.random.normal(key, like.shape, like.dtype))


@factory
def flat() -> Manifold:
    """Return the Euclidean space of any pytree, as a manifold without constraint.

    Retraction and exponential are addition, their inverses subtraction. ``random_point`` is
    standard normal.

    Example:
      >>> import jax.numpy as jnp
      >>> flat().retract(jnp.array([1.0]), jnp.array([2.0])).tolist()
      [3.0]
    """

    def random_point(like, key):
        structure = jax.tree.structure(like)
        keys = structure.unflatten(jax.random.split(key, structure.num_leaves))
        return jax.tree.map(
            lambda leaf, own: jax.random.normal(own, leaf.shape, leaf.dtype), like, keys
        )

    def difference(x, y):
        return tree.sub(y, x)

    return Manifold(
        project=lambda y: y,
        to_tangent=lambda x, v: v,
        retract=tree.add,
        random_point=random_point,
        reach=float("inf"),
        inverse_retract=difference,
        exp=tree.add,
        log=difference,
    )


@factory
def product_manifold(manifolds: PyTree) -> Manifold:
    """Return the product of a pytree of manifolds, whose points are pytrees.

    ``reach`` is the minimum over the factors. ``inverse_retract``, ``exp`` and ``log`` are ``None``
    unless every factor has them.

    Args:
      manifolds: a pytree with a manifold for each leaf of the points, or for a whole subtree if the
        manifold acts on pytrees, as ``flat()`` and products do.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax.transforms.manifolds.sphere import sphere
      >>> model = product_manifold({"bias": flat(), "kernel": sphere()})
      >>> model.project({"bias": jnp.array([2.0]), "kernel": jnp.array([0.0, 2.0])})
      {'bias': Array([2.], ...), 'kernel': Array([0., 1.], ...)}
    """
    factors, structure = jax.tree.flatten(manifolds, is_leaf=lambda m: isinstance(m, Manifold))
    for factor in factors:
        checked_value("manifolds", factor, Manifold)

    def leafwise(name: str, default: Callable[[Manifold], Callable] | None = None) -> Any:
        """Return a map for all factors, or None: some lack it, or all lack one with a default."""
        maps = [getattr(factor, name) for factor in factors]
        if default is not None and any(maps):
            maps = [own or default(factor) for own, factor in zip(maps, factors, strict=True)]

        def apply(*points):
            parts = [structure.flatten_up_to(point) for point in points]
            return structure.unflatten([f(*p) for f, *p in zip(maps, *parts, strict=True)])

        return apply if all(maps) else None

    def random_point(like, key):
        keys = jax.random.split(key, len(factors)) if len(factors) > 1 else [key]
        parts = zip(factors, structure.flatten_up_to(like), keys, strict=True)
        return structure.unflatten([factor.random_point(part, k) for factor, part, k in parts])

    def identity(factor):
        return lambda x, v: v

    return Manifold(
        project=leafwise("project"),
        to_tangent=leafwise("to_tangent"),
        retract=leafwise("retract"),
        random_point=random_point,
        reach=min((factor.reach for factor in factors), default=float("inf")),
        inverse_retract=leafwise("inverse_retract"),
        exp=leafwise("exp"),
        log=leafwise("log"),
        riesz=leafwise("riesz", identity),
        metric=leafwise("metric", identity),
        transport=leafwise("transport", lambda factor: lambda x, y, v: factor.to_tangent(y, v)),
    )
