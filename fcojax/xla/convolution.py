"""The forms of convolution and max pooling that are fast inside loops, also on a CPU.

XLA on a CPU has fast convolutions for one layout only, and changes the layout of a convolution only
outside loops and conditionals; gradients of a convolution have another layout. Slices and one
matrix product are fast everywhere and need no derivative rule. Mapped over clients with different
kernels they become a batched product rather than a grouped convolution, for which a GPU's host
calls cuDNN once for each client and layer.

Arguments are the parameters of JAX's primitives, in whose place ``fcojax.xla.jaxprs`` puts these
functions.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.extend.core import primitives

from fcojax import tree
from fcojax.types import Array
from fcojax.xla.jaxprs import FORMS
from fcojax.xla.rules import rules

Pads = Sequence[tuple[int, int]]

# Slices take memory and compile time in proportion to the window: a 5 x 5 x 5 kernel has 125 taps.
_MOST_TAPS = 128


def conv_general_dilated(
    lhs: Array,
    rhs: Array,
    *,
    window_strides: Sequence[int],
    padding: Pads,
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    dimension_numbers: lax.ConvDimensionNumbers,
    feature_group_count: int,
    precision: Any,
    preferred_element_type: Any,
) -> Array:
    r"""Compute ``jax.lax.conv_general_dilated`` as one matrix product.

    With stride s, dilation a of the input x and b of the kernel k, padding p before the first
    entry, and x dilated and padded with zeros to X, the result is

    .. math:: y_{n, i, o} = \sum_{t, c} X_{n, s i + b t, c} \, k_{t, c, o}, \qquad
              X_{n, p + a j, c} = x_{n, j, c}.

    The :math:`X_{n, s i + b t, c}` of all taps t are concatenated, which needs the memory of the
    input times the number of taps, and multiplied by the kernel.

    Args:
      lhs: the input x, not empty.
      rhs: the kernel k, not empty.
      window_strides: s, one number per spatial axis.
      padding: pairs (low, high), one per spatial axis.
      lhs_dilation: a, one number per spatial axis.
      rhs_dilation: b, one number per spatial axis.
      dimension_numbers: the order of the axes.
      feature_group_count: number of groups of channels that are convolved separately.
      precision: precision of the product.
      preferred_element_type: dtype of the result; ``None`` for that of the inputs.

    Example:
      >>> import jax
      >>> x, k = jnp.arange(5.0).reshape(1, 5, 1), jnp.array([1.0, 0.0, -1.0]).reshape(3, 1, 1)
      >>> order = jax.lax.conv_dimension_numbers(x.shape, k.shape, ("NWC", "WIO", "NWC"))
      >>> y = conv_general_dilated(
      ...     x, k, window_strides=(1,), padding=[(0, 0)], lhs_dilation=(1,), rhs_dilation=(1,),
      ...     dimension_numbers=order, feature_group_count=1, precision=None,
      ...     preferred_element_type=None)
      >>> y.ravel().tolist()
      [-2.0, -2.0, -2.0]
    """
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    x = jnp.transpose(lhs, (lhs_spec[0], *lhs_spec[2:], lhs_spec[1]))
    kernel = jnp.transpose(rhs, (*rhs_spec[2:], rhs_spec[1], rhs_spec[0]))
    views = _views(
        _padded(x, _inner(padding, (0, 0)), _inner(lhs_dilation), 0),
        (1, *kernel.shape[:-2], 1),
        _inner(rhs_dilation),
        _inner(window_strides),
    )
    dtype = lhs.dtype if preferred_element_type is None else preferred_element_type
    y = _contract(views, kernel, feature_group_count, precision, dtype)
    # From [batch, space, features] to the axis order of the result.
    order = (out_spec[0], *out_spec[2:], out_spec[1])
    return jnp.transpose(y, [order.index(axis) for axis in range(y.ndim)])


def reduce_window_max(
    x: Array,
    *,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Pads,
    base_dilation: Sequence[int],
    window_dilation: Sequence[int],
) -> Array:
    """Return the maximum of each window as ``jax.lax.reduce_window`` does, from slices.

    Args:
      x: the input.
      window_dimensions: sizes of the window, one per axis of x, as in the arguments below.
      window_strides: steps between windows.
      padding: pairs (low, high).
      base_dilation: dilation of x.
      window_dilation: dilation of the window.
    """

    def larger(a, b):
        return jnp.where((a >= b) | jnp.isnan(a), a, b)

    x = _padded(x, padding, base_dilation, _least(x.dtype))
    return functools.reduce(larger, _views(x, window_dimensions, window_dilation, window_strides))


def _least(dtype: Any) -> Any:
    """Return the smallest number of a dtype."""
    if jnp.issubdtype(dtype, jnp.inexact):
        return -jnp.inf
    return jnp.iinfo(dtype).min if jnp.issubdtype(dtype, jnp.integer) else False


def _inner(numbers: Sequence, outer: Any = 1) -> tuple:
    """Numbers of the spatial axes, between those of the batch and of the features."""
    return outer, *numbers, outer


def _padded(x: Array, padding: Pads, dilation: Sequence[int], value) -> Array:
    """``x`` dilated and padded, or cropped where padding is negative."""
    config = [(low, high, step - 1) for (low, high), step in zip(padding, dilation, strict=True)]
    return lax.pad(x, jnp.asarray(value, x.dtype), config) if any(map(any, config)) else x


def _views(x: Array, window, dilation, strides) -> list[Array]:
    """For each tap of the window, in order, the slice of the entries that it covers."""
    extents = [(n - 1) * step + 1 for n, step in zip(window, dilation, strict=True)]
    sizes = [
        max(0, (n - extent) // stride + 1)
        for n, extent, stride in zip(x.shape, extents, strides, strict=True)
    ]
    views = []
    for tap in itertools.product(*map(range, window)):
        first = [entry * step for entry, step in zip(tap, dilation, strict=True)]
        last = [a + (n - 1) * s + 1 for a, n, s in zip(first, sizes, strides, strict=True)]
        views.append(lax.slice(x, first, last, strides))
    return views


def _contract(views: list[Array], kernel: Array, groups: int, precision, dtype) -> Array:
    """The sum over taps and channels of each group."""
    *_, depth, num_out = kernel.shape
    kernel = kernel.reshape(len(views), depth, num_out)
    space = views[0].shape[:-1]
    if depth == 1 and groups > 1:
        # Only taps are contracted; accumulate in the precision that a product would use.
        wide = tree.mean_dtype(dtype) if jnp.issubdtype(dtype, jnp.inexact) else dtype
        shape = (*(1,) * len(space), groups, num_out // groups)
        total = jnp.zeros((), wide)
        for view, tap in zip(views, kernel, strict=True):
            total = total + view[..., None].astype(wide) * tap.reshape(shape).astype(wide)
        return total.reshape(*space, num_out).astype(dtype)
    options = {"precision": precision, "preferred_element_type": dtype}
    if groups == 1:
        patches = views[0] if len(views) == 1 else jnp.concatenate(views, axis=-1)
        kernel = kernel.reshape(-1, num_out)
        return lax.dot_general(patches, kernel, (((views[0].ndim - 1,), (0,)), ((), ())), **options)
    grouped = jnp.concatenate([view.reshape(*space, groups, depth) for view in views], axis=-1)
    kernel = kernel.reshape(len(views) * depth, groups, num_out // groups)
    axes = (((grouped.ndim - 1,), (0,)), ((grouped.ndim - 2,), (1,)))
    return jnp.moveaxis(lax.dot_general(grouped, kernel, axes, **options), 0, -2).reshape(
        *space, num_out
    )


def _of_convolution(equation: Any) -> Callable | None:
    params = dict(equation.params)
    if not rules().slices or params.pop("batch_group_count") > 1:
        return None
    if params.pop("out_sharding", None) is not None:
        return None
    kernel = equation.invars[1].aval
    window = [kernel.shape[axis] for axis in params["dimension_numbers"].rhs_spec[2:]]
    return _within_limits(equation, window, functools.partial(conv_general_dilated, **params))


def _of_pooling(equation: Any) -> Callable | None:
    form = functools.partial(reduce_window_max, **equation.params)
    return _within_limits(equation, equation.params["window_dimensions"], form)


def _within_limits(equation: Any, window: Sequence[int], form: Callable) -> Callable | None:
    is_empty = not all(atom.aval.size for atom in (*equation.invars, *equation.outvars))
    return None if is_empty or math.prod(window) > _MOST_TAPS else form


FORMS[primitives.conv_general_dilated_p] = _of_convolution
FORMS[primitives.reduce_window_max_p] = _of_pooling
