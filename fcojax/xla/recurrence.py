r"""Recurrent layers whose weight gradient is one matrix product after the loop over time.

The reverse pass of ``jax.lax.scan`` adds an outer product to the gradient of the recurrent weights
at every time step, which reads and writes an array of their size; with small batches that is most
of the work. Here the cotangents of all times are stacked and multiplied once.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fcojax.types import Array, PyTree

# (states, drive, product) -> states. Differentiated arrays must be arguments, not closed over.
Cell = Callable[[tuple[Array, ...], PyTree, Array], tuple[Array, ...]]


def recurrence(
    cell: Cell,
    kernel: Array,
    drives: PyTree,
    states: tuple[Array, ...],
    *,
    bias: Array | None = None,
) -> Array:
    r"""Return the outputs :math:`h_1, \dots, h_T` of a recurrent layer with weights U and bias u.

    .. math:: (h_t, c_t, \dots) = \mathrm{cell}((h_{t-1}, c_{t-1}, \dots), x_t, h_{t-1} U + u)

    Gradients of any order are those of ``jax.lax.scan``, with the derivative in U computed as
    :math:`\sum_t h_{t-1}^\top g_t` in one product, where :math:`g_t` are the cotangents of the
    products. Forward mode works on gradients only, as in ``jax.hessian``.

    Args:
      cell: ``(states, drive, product) -> states``, one time step. Arrays to differentiate must be
        arguments and not closed over.
      kernel: U, axes [units, gates].
      drives: inputs of the cell at each time, axes [time, batch, ...].
      states: initial states, the output first, axes [batch, units].
      bias: u, one number per gate, or ``None`` for zeros.

    Example:
      >>> doubling = recurrence(
      ...     lambda states, drive, product: (drive + product,),
      ...     jnp.array([[2.0]]), jnp.ones((4, 1, 1)), (jnp.zeros((1, 1)),))
      >>> doubling.ravel().tolist()
      [1.0, 3.0, 7.0, 15.0]
    """
    return _recurrence(cell, (kernel, bias), drives, states)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _recurrence(cell, weights, drives, states):
    def step(states, drive):
        states = cell(states, drive, _product(states[0], weights))
        return states, states[0]

    return jax.lax.scan(step, states, drives)[1]


def _product(h: Array, weights: tuple[Array, Array | None]) -> Array:
    kernel, bias = weights
    product = h @ kernel
    return product if bias is None else product + bias[None]


def _forward(cell, weights, drives, states):
    def step(states, drive):
        product = _product(states[0], weights)
        after = cell(states, drive, product)
        return after, (states, product, after[0])

    _, (before, products, outputs) = jax.lax.scan(step, states, drives)
    return outputs, (weights, drives, before, products)


def _backward(cell, kept, slopes) -> Any:
    (kernel, bias), drives, before, products = kept
    # Transposed once: a product with a matrix in the other memory order is several times slower.
    transposed = kernel.T

    def step(cotangents, at):
        states, drive, product, slope = at
        _, vjp = jax.vjp(cell, states, drive, product)
        last, *others = cotangents
        states, drive, product = vjp((last + slope, *others))
        return (states[0] + product @ transposed, *states[1:]), (drive, product)

    last = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), before)
    first, (of_drives, of_products) = jax.lax.scan(
        step, last, (before, drives, products, slopes), reverse=True
    )
    of_kernel = jnp.einsum("tbu,tbg->ug", before[0], of_products)
    of_bias = None if bias is None else jnp.sum(of_products, axis=(0, 1))
    return (of_kernel, of_bias), of_drives, first


_recurrence.defvjp(_forward, _backward)
