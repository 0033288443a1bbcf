"""Smooth manifolds in a Euclidean space: the type, what follows from it, and products.

The algorithms need ``project`` and ``to_tangent``; their baselines a retraction and its inverse.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.memo import memoised
from fcojax.transforms.lengths import length, root, unit_of
from fcojax.transforms.penalty import largest
from fcojax.types import Array, Key, Params, PyTree


class Manifold(NamedTuple):
    """A manifold M inside the space of its points' arrays.

    All functions are pure; batches come through ``vmap``. Points are trusted: that x lies on M and
    that a tangent is one is not checked.

    Attributes:
      project: ``(y) -> the nearest point of M``, defined and smooth for y nearer than ``reach``.
      to_tangent: ``(x, v) -> the orthogonal projection of v on the tangent space at x``. It is
        the differential of ``project`` at x (where M is a quotient: followed by the projection on
        the horizontal vectors).
      retract: ``(x, tangent) -> a point of M``, equal to ``x + tangent`` to first order.
      random_point: ``(like, key) -> a point of M`` of the shape and dtype of ``like``, which may
        be a ``jax.ShapeDtypeStruct``; uniform where M is compact.
      reach: the largest r such that every y with distance to M below r has one nearest point. On
        the tube of half that radius ``project`` is 2-Lipschitz.
      inverse_retract: ``(x, y) -> the tangent u with retract(x, u) == y``, or ``None``. Where
        there is no such u the answer is finite; the factories say how far from x there is one.
      exp: ``(x, tangent) -> the end of the geodesic of that initial velocity``, or ``None``.
      log: ``(x, y) -> the initial velocity of the shortest geodesic from x to y``, or ``None``.
      riesz: ``(gradient) -> vector``, the ambient vector that a Euclidean gradient stands for if
        the ambient inner product is not the Euclidean one; ``None`` if it is.
      metric: ``(vector) -> gradient``, the inverse of ``riesz``: the ambient inner product of u
        and v is the Euclidean one of u and ``metric(v)``.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> sphere = fcojax.transforms.sphere()
      >>> x = sphere.project(jnp.array([0.0, 4.0]))
      >>> x.tolist(), sphere.to_tangent(x, jnp.array([2.0, 3.0])).tolist(), sphere.reach
      ([0.0, 1.0], [2.0, 0.0], 1.0)
    """

    project: Callable[[Params], Params]
    to_tangent: Callable[[Params, Params], Params]
    retract: Callable[[Params, Params], Params]
    random_point: Callable[[PyTree, Key], Params]
    reach: float
    inverse_retract: Callable[[Params, Params], Params] | None = None
    exp: Callable[[Params, Params], Params] | None = None
    log: Callable[[Params, Params], Params] | None = None
    riesz: Callable[[Params], Params] | None = None
    metric: Callable[[Params], Params] | None = None


def riemannian_gradient(manifold: Manifold, x: Params, gradient: Params) -> Params:
    """The Riemannian gradient at x of a function whose Euclidean gradient there is ``gradient``.

    Example:
      >>> from fcojax.transforms.manifolds.sphere import sphere
      >>> x = jnp.array([1.0, 0.0])
      >>> riemannian_gradient(sphere(), x, jnp.array([5.0, 2.0])).tolist()
      [0.0, 2.0]
    """
    vector = gradient if manifold.riesz is None else manifold.riesz(gradient)
    return manifold.to_tangent(x, vector)


def transport(manifold: Manifold, x: Params, y: Params, tangent: Params) -> Params:
    """The tangent vector at x carried to y by orthogonal projection on the tangent space there.

    Example:
      >>> import fcojax, jax.numpy as jnp
      >>> x, y = jnp.array([1.0, 0.0, 0.0]), jnp.array([0.0, 1.0, 0.0])
      >>> tangent = jnp.array([0.0, 2.0, 3.0])
      >>> fcojax.transforms.transport(fcojax.transforms.sphere(), x, y, tangent).tolist()
      [0.0, 0.0, 3.0]
    """
    del x  # a projection asks only where the vector goes
    return manifold.to_tangent(y, tangent)


def ambient_norm(manifold: Manifold, v: Params) -> Array:
    """The norm of v in the inner product of the space around M; its gradient at 0 is taken as 0.

    Example:
      >>> from fcojax.transforms.manifolds.stiefel import generalised_stiefel
      >>> float(ambient_norm(generalised_stiefel(9 * jnp.eye(2)), jnp.array([[0.0], [2.0]])))
      6.0
    """
    if manifold.metric is None:
        return length(v)
    unit = unit_of(largest(jax.tree.map(jnp.abs, v)))
    ratios = tree.scale(1 / unit, v)
    return unit * root(tree.vdot(ratios, manifold.metric(ratios)))


def distance(manifold: Manifold, y: Params) -> Array:
    """``|y - project(y)|``, the distance of y to the manifold; its gradient on M is taken as 0.

    Example:
      >>> from fcojax.transforms.manifolds.sphere import sphere
      >>> float(distance(sphere(), jnp.array([3.0, 4.0])))
      4.0
    """
    return ambient_norm(manifold, tree.sub(y, manifold.project(y)))


@memoised
def flat() -> Manifold:
    """The whole Euclidean space, of any pytree: nothing is constrained.

    Every retraction, exponential and logarithm is addition and subtraction. ``random_point`` is
    standard normal.

    Example:
      >>> flat().retract(jnp.array([1.0]), jnp.array([2.0])).tolist()
      [3.0]
    """

    def random_point(like, key):
        leaves, structure = jax.tree.flatten(like)
        keys = jax.random.split(key, len(leaves))
        drawn = [
            jax.random.normal(k, leaf.shape, leaf.dtype)
            for k, leaf in zip(keys, leaves, strict=True)
        ]
        return jax.tree.unflatten(structure, drawn)

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


@memoised
def product_manifold(manifolds: PyTree) -> Manifold:
    """The product of a pytree of manifolds: points are pytrees, and every map acts leaf by leaf.

    A manifold may stand for a whole subtree if it acts on pytrees, as ``flat()`` and products do.
    The reach is the least of the reaches. ``inverse_retract``, ``exp`` and ``log`` are there if
    every factor has them.

    Example:
      >>> from fcojax.transforms.manifolds.sphere import sphere
      >>> model = product_manifold({"bias": flat(), "kernel": sphere()})
      >>> model.project({"bias": jnp.array([2.0]), "kernel": jnp.array([0.0, 2.0])})
      {'bias': Array([2.], ...), 'kernel': Array([0., 1.], ...)}
    """
    factors, structure = jax.tree.flatten(manifolds, is_leaf=lambda m: isinstance(m, Manifold))
    for factor in factors:
        if not isinstance(factor, Manifold):
            raise ValueError(
                f"a product needs a pytree of manifolds, but one leaf is {factor!r}; "
                "use flat() where nothing is constrained."
            )

    def split(point):
        try:
            return structure.flatten_up_to(point)
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"the point has the structure {jax.tree.structure(point)} and the product of "
                f"manifolds {structure}; give every leaf of the point a manifold."
            ) from error

    def leafwise(maps):
        def apply(*points):
            parts = [split(point) for point in points]
            return structure.unflatten([f(*p) for f, *p in zip(maps, *parts, strict=True)])

        return apply

    def random_point(like, key):
        keys = jax.random.split(key, len(factors)) if len(factors) > 1 else [key]
        parts = zip(factors, split(like), keys, strict=True)
        return structure.unflatten([factor.random_point(part, k) for factor, part, k in parts])

    def if_all_have(name):
        maps = [getattr(factor, name) for factor in factors]
        return None if any(one is None for one in maps) else leafwise(maps)

    def if_any_has(name):
        maps = [getattr(factor, name) for factor in factors]
        return leafwise([one or (lambda v: v) for one in maps]) if any(maps) else None

    return Manifold(
        project=leafwise([factor.project for factor in factors]),
        to_tangent=leafwise([factor.to_tangent for factor in factors]),
        retract=leafwise([factor.retract for factor in factors]),
        random_point=random_point,
        reach=min((factor.reach for factor in factors), default=float("inf")),
        inverse_retract=if_all_have("inverse_retract"),
        exp=if_all_have("exp"),
        log=if_all_have("log"),
        riesz=if_any_has("riesz"),
        metric=if_any_has("metric"),
    )
