"""Convolution and max pooling that are fast inside loops, also on a CPU.

XLA on a CPU has fast convolutions for one layout only, and changes the layout of a convolution only
outside loops and conditionals; gradients of a convolution have another layout. Slices and one
matrix product are fast everywhere and need no derivative rule. Mapped over clients with different
kernels they become a batched product rather than a grouped convolution.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fcojax import tree
from fcojax.types import Array
from fcojax.xla.rules import rules

Padding = str | Sequence[tuple[int, int]]

# Held here, so that a program may put the function below in its place.
_lax_convolution = lax.conv_general_dilated


def conv_general_dilated(
    lhs: Array,
    rhs: Array,
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Array:
    r"""Compute ``jax.lax.conv_general_dilated`` in the form that is fast inside loops.

    With stride s, dilation a of the input x and b of the kernel k, padding p before the first
    entry, and x dilated and padded with zeros to X, the result is

    .. math:: y_{n, i, o} = \sum_{t, c} X_{n, s i + b t, c} \, k_{t, c, o}, \qquad
              X_{n, p + a j, c} = x_{n, j, c}.

    On a CPU the :math:`X_{n, s i + b t, c}` of all taps t are concatenated, which needs the memory
    of the input times the number of taps, and multiplied by the kernel. On other devices, and with
    ``batch_group_count`` or ``out_sharding``, this calls the function of ``jax.lax``.

    Flax uses it as ``nnx.Conv(..., conv_general_dilated=conv_general_dilated)``, also in Linen;
    libraries without such an argument use it after ``jax.lax.conv_general_dilated =
    fcojax.xla.convolution.conv_general_dilated``.

    Args:
      lhs: the input x.
      rhs: the kernel k.
      window_strides: s, one number per spatial axis.
      padding: ``SAME``, ``VALID`` or a pair (low, high) per spatial axis.
      lhs_dilation: a, one number per spatial axis; ``None`` for ones.
      rhs_dilation: b, likewise.
      dimension_numbers: the order of the axes, as for ``jax.lax.conv_general_dilated``.
      feature_group_count: number of groups of channels that are convolved separately.
      batch_group_count: number of groups of examples that are convolved separately.
      precision: precision of the product.
      preferred_element_type: dtype of the result; ``None`` for that of the inputs.
      out_sharding: sharding of the result.

    Example:
      >>> x, k = jnp.arange(5.0).reshape(1, 5, 1), jnp.array([1.0, 0.0, -1.0]).reshape(3, 1, 1)
      >>> y = conv_general_dilated(x, k, (1,), "VALID", dimension_numbers=("NWC", "WIO", "NWC"))
      >>> y.ravel().tolist()
      [-2.0, -2.0, -2.0]
    """

    def direct(lhs, rhs):
        return _lax_convolution(
            lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers,
            feature_group_count, batch_group_count, precision, preferred_element_type, out_sharding,
        )  # fmt: skip

    if not rules().slices or batch_group_count > 1 or out_sharding is not None:
        return direct(lhs, rhs)
    # Raises the errors of jax.lax for arguments that do not fit.
    result = jax.eval_shape(direct, lhs, rhs)
    if not (result.size and rhs.size):
        return direct(lhs, rhs)
    lhs_spec, rhs_spec, out_spec = lax.conv_dimension_numbers(
        lhs.shape, rhs.shape, dimension_numbers
    )
    x = jnp.transpose(lhs, (lhs_spec[0], *lhs_spec[2:], lhs_spec[1]))
    kernel = jnp.transpose(rhs, (*rhs_spec[2:], rhs_spec[1], rhs_spec[0]))
    ones = (1,) * len(window_strides)
    lhs_dilation, rhs_dilation = tuple(lhs_dilation or ones), tuple(rhs_dilation or ones)
    window = kernel.shape[:-2]
    if isinstance(padding, str):
        extent = [(taps - 1) * step + 1 for taps, step in zip(window, rhs_dilation, strict=True)]
        padding = lax.padtype_to_pads(x.shape[1:-1], extent, window_strides, padding)
    sizes = [result.shape[axis] for axis in out_spec[2:]]
    x = _padded(x, _inner(padding, (0, 0)), _inner(lhs_dilation), 0)
    views = _views(
        x, _inner(window), _inner(rhs_dilation), _inner(window_strides),
        (x.shape[0], *sizes, x.shape[-1]),
    )  # fmt: skip
    y = _contract(views, kernel, feature_group_count, precision, result.dtype)
    # From [batch, space, features] to the axis order of the result.
    order = (out_spec[0], *out_spec[2:], out_spec[1])
    return jnp.transpose(y, [order.index(axis) for axis in range(y.ndim)])


def max_pool(
    inputs: Array,
    window_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Padding = "VALID",
) -> Array:
    """Return the maximum of each window, as ``flax.linen.max_pool`` does.

    The gradient goes to the first of equal entries, and a NaN makes the result NaN.

    Args:
      inputs: axes [batch, space, features]; the batch may be missing or have several axes.
      window_shape: one size per spatial axis.
      strides: one number per spatial axis; 1 by default.
      padding: ``SAME``, ``VALID`` or a pair (low, high) per spatial axis.

    Example:
      >>> max_pool(jnp.array([1.0, 3.0, 2.0, 0.0]).reshape(1, 4, 1), (2,), (2,)).ravel().tolist()
      [3.0, 2.0]
    """
    strides = (1,) * len(window_shape) if strides is None else tuple(strides)
    space = inputs.shape[-len(window_shape) - 1 : -1]
    if isinstance(padding, str):
        padding = lax.padtype_to_pads(space, window_shape, strides, padding)
    x = inputs.reshape(-1, *space, inputs.shape[-1])
    ones = (1,) * x.ndim
    window = _inner(window_shape), _inner(strides), _inner(padding, (0, 0)), ones, ones
    if rules().slices:
        result = reduce_window_max(x, *window)
    else:
        result = lax.reduce_window(x, _least(x.dtype), lax.max, *window)
    return result.reshape(*inputs.shape[: -len(window_shape) - 1], *result.shape[1:])


def reduce_window_max(
    x: Array,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    base_dilation: Sequence[int],
    window_dilation: Sequence[int],
) -> Array:
    """Return the maximum of each window as ``jax.lax.reduce_window`` does, from slices.

    Args:
      x: the input.
      window_dimensions: sizes of the window, one per axis of x, as all that follows.
      window_strides: steps between windows.
      padding: pairs (low, high).
      base_dilation: dilation of x.
      window_dilation: dilation of the window.
    """

    def larger(a, b):
        return jnp.where((a >= b) | jnp.isnan(a), a, b)

    x = _padded(x, padding, base_dilation, _least(x.dtype))
    extents = [(n - 1) * d + 1 for n, d in zip(window_dimensions, window_dilation, strict=True)]
    sizes = [
        max(0, (n - extent) // stride + 1)
        for n, extent, stride in zip(x.shape, extents, window_strides, strict=True)
    ]
    views = _views(x, window_dimensions, window_dilation, window_strides, sizes)
    return functools.reduce(larger, views)


def _least(dtype: Any) -> Any:
    """The least number of a dtype."""
    if jnp.issubdtype(dtype, jnp.inexact):
        return -jnp.inf
    return jnp.iinfo(dtype).min if jnp.issubdtype(dtype, jnp.integer) else False


def _inner(numbers: Sequence, outer: Any = 1) -> tuple:
    """Numbers of the spatial axes, between those of the batch and of the features."""
    return outer, *numbers, outer


def _padded(x: Array, padding, dilation: Sequence[int], value) -> Array:
    """``x`` dilated and padded, or cropped where padding is negative."""
    config = [(low, high, step - 1) for (low, high), step in zip(padding, dilation, strict=True)]
    return lax.pad(x, jnp.asarray(value, x.dtype), config) if any(map(any, config)) else x


def _views(x: Array, window, dilation, strides, sizes) -> list[Array]:
    """For each tap of the window, in order, the slice of the entries that it multiplies."""
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
