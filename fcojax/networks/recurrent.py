r"""A recurrent network that predicts the next character.

Cho et al., "Learning phrase representations using RNN encoder-decoder", EMNLP 2014.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from fcojax.arguments import validated
from fcojax.networks.modules import Build
from fcojax.types import Count
from fcojax.xla.recurrence import recurrence

GLOROT = nnx.initializers.glorot_uniform()


class GRU(nnx.Module):
    r"""One layer over sequences [batch, time, features], from a state of zeros.

    .. math:: r = \sigma(x_t W_r + h_{t-1} U_r + b_r), \quad
              z = \sigma(x_t W_z + h_{t-1} U_z + b_z), \\
              n = \tanh(x_t W_n + b_n + r (h_{t-1} U_n + u_n)), \quad
              h_t = (1 - z) n + z h_{t-1}

    The recurrent product has a bias for every gate; for r and z it is included in b.
    """

    def __init__(self, num_in, num_units, dtype, rngs):
        options = {"dtype": dtype, "rngs": rngs}
        self.input = nnx.Linear(num_in, 3 * num_units, kernel_init=GLOROT, **options)
        self.recurrent = nnx.Linear(num_units, 3 * num_units, kernel_init=_orthogonal, **options)

    def __call__(self, x):
        def cell(states, drive, product):
            r, z, n = jnp.split(drive, 3, axis=-1)
            of_r, of_z, of_n = jnp.split(product, 3, axis=-1)
            z = nnx.sigmoid(z + of_z)
            n = jnp.tanh(n + nnx.sigmoid(r + of_r) * of_n)
            return ((1 - z) * n + z * states[0],)

        drives = self.input(x)  # of all times
        kernel = self.recurrent.kernel[...].astype(drives.dtype)
        bias = self.recurrent.bias[...].astype(drives.dtype)  # pyright: ignore[reportOptionalSubscript]
        states = (jnp.zeros((drives.shape[0], kernel.shape[0]), drives.dtype),)
        outputs = recurrence(cell, kernel, jnp.moveaxis(drives, 1, 0), states, bias=bias)
        return jnp.moveaxis(outputs, 0, 1)


class NextCharacter(nnx.Module):
    """An embedding, a recurrent layer, and a dense layer with one output per character."""

    def __init__(self, num_tokens, num_embedding, num_units, dtype, rngs):
        self.embedding = nnx.Embed(num_tokens, num_embedding, dtype=dtype, rngs=rngs)
        self.layer_1 = GRU(num_embedding, num_units, dtype, rngs)
        self.dense = nnx.Linear(num_units, num_tokens, kernel_init=GLOROT, dtype=dtype, rngs=rngs)

    def __call__(self, tokens):
        return self.dense(self.layer_1(self.embedding(tokens)))


@validated
def char_gru(
    num_tokens: Count = 90,
    num_embedding: Count = 8,
    num_units: Count = 256,
    *,
    dtype: DTypeLike | None = None,
) -> Build:
    """Build a network with a layer of gated recurrent units.

    Args:
      num_tokens: number of different characters, including padding.
      num_embedding: dimension of the embedding.
      num_units: units of the recurrent layer.
      dtype: dtype of the computation; by default that of the parameters, float32.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from fcojax import networks
      >>> tokens = jax.ShapeDtypeStruct((1, 6), jnp.int32)
      >>> model = networks.char_gru(num_tokens=5, num_units=4)
      >>> init = networks.functions_of(model, tokens, (1, 6, 5)).init
      >>> sorted(jax.eval_shape(init, jax.random.key(0)))
      ['dense', 'embedding', 'layer_1']
    """
    return lambda rngs: NextCharacter(num_tokens, num_embedding, num_units, dtype, rngs)


def _orthogonal(key, shape, dtype):
    """One orthogonal matrix per gate, side by side."""
    square = nnx.initializers.orthogonal()
    keys = jax.random.split(key, shape[1] // shape[0])
    return jnp.concatenate([square(key, (shape[0],) * 2, dtype) for key in keys], axis=1)
