"""Layers shared by the networks: initialisation, and the form of convolutions.

Parameters are float32. ``dtype`` is the dtype of a layer's computation, by default that of its
parameters; with bfloat16 the parameters and their gradients stay in float32.
"""

from typing import Any

from flax import nnx
from jax.typing import DTypeLike

from fcojax.xla.convolution import conv_general_dilated

GLOROT = nnx.initializers.glorot_uniform()


def dense(num_in: int, num_out: int, rngs: nnx.Rngs, dtype: DTypeLike | None = None) -> nnx.Linear:
    """A dense layer with Glorot uniform initialisation."""
    return nnx.Linear(num_in, num_out, kernel_init=GLOROT, dtype=dtype, rngs=rngs)


def conv(
    num_in: int,
    num_out: int,
    width: int,
    rngs: nnx.Rngs,
    *,
    dtype: DTypeLike | None,
    **options: Any,
) -> nnx.Conv:
    """A square convolution, Glorot uniform by default, in the form that is fast inside loops."""
    options = {"kernel_init": GLOROT, "conv_general_dilated": conv_general_dilated} | options
    return nnx.Conv(num_in, num_out, (width, width), dtype=dtype, rngs=rngs, **options)
