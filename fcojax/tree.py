"""Pytrees of arrays as a vector space.

Scalars are cast to the dtype of the leaf they meet, so a step size in float32 never promotes a
bfloat16 model nor demotes a float64 one.
"""

import functools
import operator
from typing import Any

import jax
import jax.numpy as jnp

from fcojax.types import Array, PyTree, Scalar


def scale(factor: Scalar, x: PyTree) -> PyTree:
    """Every leaf times ``factor``, in the leaf's dtype."""
    return jax.tree.map(lambda leaf: jnp.asarray(factor, leaf.dtype) * leaf, x)


def add_scaled(x: PyTree, factor: Scalar, y: PyTree) -> PyTree:
    """``x + factor * y``, leaf by leaf, in the dtypes of ``x``."""
    return jax.tree.map(lambda a, b: a + jnp.asarray(factor, a.dtype) * b.astype(a.dtype), x, y)


def add(x: PyTree, y: PyTree) -> PyTree:
    """``x + y``."""
    return jax.tree.map(operator.add, x, y)


def add_compensated(
    total: PyTree, residue: PyTree, factor: Scalar, increment: PyTree
) -> tuple[PyTree, PyTree]:
    """``total + factor * increment``, and what rounding has left out of all such sums so far.

    Kahan's summation: a sum of many small increments is as accurate as one of few large ones.
    """

    def one(whole, left_out, part):
        part = jnp.asarray(factor, whole.dtype) * part.astype(whole.dtype) + left_out
        grown = whole + part
        return grown, part - (grown - whole)

    pairs = jax.tree.map(one, total, residue, increment)
    return jax.tree.transpose(jax.tree.structure(total), jax.tree.structure((0, 0)), pairs)


def sub(x: PyTree, y: PyTree) -> PyTree:
    """``x - y``."""
    return jax.tree.map(operator.sub, x, y)


def mean_dtype(dtype: Any) -> Any:
    """The dtype in which a mean of such numbers is taken: at least float32, floats for integers."""
    if not jnp.issubdtype(dtype, jnp.inexact):
        return jnp.result_type(float)
    return dtype if jnp.finfo(dtype).bits >= 32 else jnp.float32


def cast_means(means: PyTree, like: PyTree) -> PyTree:
    """Means in the dtypes of what they are means of; those of integers stay floats."""

    def cast(mean, leaf):
        return mean.astype(leaf.dtype) if jnp.issubdtype(leaf.dtype, jnp.inexact) else mean

    return jax.tree.map(cast, means, like)


def zeros_like(x: PyTree) -> PyTree:
    """The zero vector of the space ``x`` lives in."""
    return jax.tree.map(jnp.zeros_like, x)


def total(per_leaf: PyTree) -> Array:
    """The sum of one scalar per leaf; zero for an empty tree."""
    leaves = jax.tree.leaves(per_leaf)
    return functools.reduce(operator.add, leaves) if leaves else jnp.zeros(())


def vdot(x: PyTree, y: PyTree) -> Array:
    """The Euclidean inner product over all leaves."""
    return total(jax.tree.map(lambda a, b: jnp.sum(a * b), x, y))


def norm(x: PyTree) -> Array:
    """The Euclidean norm over all leaves."""
    return jnp.sqrt(vdot(x, x))


def where(condition: Array, x: PyTree, y: PyTree) -> PyTree:
    """``x`` where the scalar ``condition`` holds, else ``y``; what is not taken cannot leak."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), x, y)


def all_finite(x: PyTree) -> Array:
    """Whether every entry of every floating leaf is finite.

    NaN and infinity survive a maximum, and one reduction of floats is several times faster than one
    of booleans: on a 784 x 62 model the latter cost a quarter of a client's round.
    """
    checks = [
        jnp.isfinite(jnp.max(jnp.abs(leaf)))
        for leaf in jax.tree.leaves(x)
        if jnp.issubdtype(jnp.result_type(leaf), jnp.inexact) and jnp.size(leaf)
    ]
    return functools.reduce(operator.and_, checks, jnp.asarray(True))


def num_bytes(x: PyTree) -> int:
    """Bytes of all leaves; works on arrays and on ``jax.ShapeDtypeStruct``."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(x))
