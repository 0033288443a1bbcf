"""Singular values and eigenvalues, which on a CPU are found matrix by matrix.

LAPACK's batched form shares a batch among the threads of XLA's pool from one of these threads,
which waits for the others. Where as many batches are factorised at once as there are threads, two
leaves of a model on two cores, all wait and none is left to work: the program never ends.
"""

import functools
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

from fcojax.device import rules
from fcojax.types import Array

Result = TypeVar("Result")


def one_by_one(factorise: Callable[[Array], Result]) -> Callable[[Array], Result]:
    """A function of a matrix that, mapped over a batch on a CPU, takes one after the other.

    Derivatives are those of the function itself.
    """

    @jax.custom_batching.custom_vmap
    def single(matrix):
        return factorise(matrix)

    @single.def_vmap
    def over_a_batch(size, mapped, matrices):
        del size, mapped  # there is one argument, so it is mapped
        if rules().factors_singly:
            found = jax.lax.map(single, matrices)
        else:
            found = jax.vmap(factorise)(matrices)
        return found, jax.tree.map(lambda leaf: True, found)

    @jax.custom_jvp
    def evaluated(matrix):
        return single(matrix)

    @evaluated.defjvp
    def along(primals, tangents):
        return jax.jvp(factorise, primals, tangents)

    return functools.wraps(factorise)(evaluated)


@one_by_one
def thin_svd(matrix: Array) -> tuple[Array, Array, Array]:
    """``U, sigma, W^T`` with as many columns and rows as there are singular values.

    Example:
      >>> left, values, right = thin_svd(jnp.array([[0.0, 2.0], [1.0, 0.0], [0.0, 0.0]]))
      >>> left.shape, values.tolist(), right.shape
      ((3, 2), [2.0, 1.0], (2, 2))
    """
    left, values, right = jnp.linalg.svd(matrix, full_matrices=False)
    return left, values, right


@one_by_one
def singular_values(matrix: Array) -> Array:
    """Singular values, the largest first.

    Example:
      >>> singular_values(jnp.array([[0.0, 2.0], [1.0, 0.0]])).tolist()
      [2.0, 1.0]
    """
    return jnp.linalg.svd(matrix, compute_uv=False)


@one_by_one
def symmetric_eigh(matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues, the smallest first, and eigenvectors of a symmetric matrix.

    Example:
      >>> symmetric_eigh(jnp.array([[0.0, 1.0], [1.0, 0.0]]))[0].tolist()
      [-1.0, 1.0]
    """
    values, vectors = jnp.linalg.eigh(matrix)
    return values, vectors
