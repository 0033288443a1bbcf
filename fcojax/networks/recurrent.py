r"""Recurrent networks that predict the next character.

Hochreiter and Schmidhuber, "Long short-term memory", 1997; Cho et al., "Learning phrase
representations using RNN encoder-decoder", EMNLP 2014.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from fcojax.extend import recurrence, validated
from fcojax.networks.modules import Build
from fcojax.types import Count

GLOROT = nnx.initializers.glorot_uniform()


class LSTM(nnx.Module):
    r"""One layer over sequences [batch, time, features], from a state of zeros.

    .. math:: (i, f, g, o) = x_t W + h_{t-1} U + b, \quad
              c_t = \sigma(f) c_{t-1} + \sigma(i) \tanh(g), \quad h_t = \sigma(o) \tanh(c_t)

    The forget gate's bias starts at one.
    """

    num_gates = 4

    def __init__(self, num_in, num_units, dtype, rngs):
        self.num_units = num_units
        self.input = _gates(self.num_gates, num_in, num_units, dtype, rngs)
        self.recurrent = _recurrent(self.num_gates, num_units, dtype, rngs, use_bias=False)
        forget = jnp.zeros((4, num_units), jnp.float32).at[1].set(1).reshape(-1)
        self.input.bias = nnx.Param(forget)

    def __call__(self, x):
        def cell(states, drive, product):
            i, f, g, o = jnp.split(drive + product, 4, axis=-1)
            c = nnx.sigmoid(f) * states[1] + nnx.sigmoid(i) * jnp.tanh(g)
            return nnx.sigmoid(o) * jnp.tanh(c), c

        return _over_time(cell, self.recurrent, self.input(x), 2)


class GRU(nnx.Module):
    r"""One layer over sequences [batch, time, features], from a state of zeros.

    .. math:: r = \sigma(x_t W_r + h_{t-1} U_r + b_r), \quad
              z = \sigma(x_t W_z + h_{t-1} U_z + b_z), \\
              n = \tanh(x_t W_n + b_n + r (h_{t-1} U_n + u_n)), \quad
              h_t = (1 - z) n + z h_{t-1}

    The recurrent product has a bias for every gate; for r and z it is included in b.
    """

    num_gates = 3

    def __init__(self, num_in, num_units, dtype, rngs):
        self.num_units = num_units
        self.input = _gates(self.num_gates, num_in, num_units, dtype, rngs)
        self.recurrent = _recurrent(self.num_gates, num_units, dtype, rngs, use_bias=True)

    def __call__(self, x):
        def cell(states, drive, product):
            r, z, n = jnp.split(drive, 3, axis=-1)
            of_r, of_z, of_n = jnp.split(product, 3, axis=-1)
            z = nnx.sigmoid(z + of_z)
            n = jnp.tanh(n + nnx.sigmoid(r + of_r) * of_n)
            return ((1 - z) * n + z * states[0],)

        return _over_time(cell, self.recurrent, self.input(x), 1)


class NextCharacter(nnx.Module):
    """An embedding, recurrent layers, and a dense layer with one output per character."""

    def __init__(self, layer, num_tokens, num_embedding, num_units, num_layers, *, dtype, rngs):
        self.embedding = nnx.Embed(num_tokens, num_embedding, dtype=dtype, rngs=rngs)
        self.num_layers = num_layers
        for place in range(num_layers):
            num_in = num_units if place else num_embedding
            setattr(self, f"layer_{place + 1}", layer(num_in, num_units, dtype, rngs))
        self.dense = nnx.Linear(num_units, num_tokens, kernel_init=GLOROT, dtype=dtype, rngs=rngs)

    def __call__(self, tokens):
        x = self.embedding(tokens)
        for place in range(self.num_layers):
            x = getattr(self, f"layer_{place + 1}")(x)
        return self.dense(x)


@validated
def char_lstm(
    num_tokens: Count = 90,
    num_embedding: Count = 8,
    num_units: Count = 256,
    num_layers: Count = 2,
    *,
    dtype: DTypeLike | None = None,
) -> Build:
    """Build the LSTM of TensorFlow Federated and FedJAX for Shakespeare, 820,522 parameters.

    Args:
      num_tokens: number of different characters, including padding.
      num_embedding: dimension of the embedding.
      num_units: units of each recurrent layer.
      num_layers: number of recurrent layers.
      dtype: dtype of the computation; by default that of the parameters, float32.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from fcojax import networks
      >>> tokens = jax.ShapeDtypeStruct((1, 80), jnp.int32)
      >>> init = networks.functions_of(networks.char_lstm(), tokens, (1, 80, 90)).init
      >>> sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(init, jax.random.key(0))))
      820522

    References:
      McMahan et al., AISTATS 2017; Reddi et al., "Adaptive federated optimization", ICLR 2021.
    """
    return lambda rngs: NextCharacter(
        LSTM, num_tokens, num_embedding, num_units, num_layers, dtype=dtype, rngs=rngs
    )


@validated
def char_gru(
    num_tokens: Count = 90,
    num_embedding: Count = 8,
    num_units: Count = 256,
    num_layers: Count = 1,
    *,
    dtype: DTypeLike | None = None,
) -> Build:
    """Build the network of ``char_lstm`` with gated recurrent units, by default in one layer.

    Args:
      num_tokens: number of different characters, including padding.
      num_embedding: dimension of the embedding.
      num_units: units of each recurrent layer.
      num_layers: number of recurrent layers.
      dtype: dtype of the computation; by default that of the parameters, float32.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from fcojax import networks
      >>> tokens = jax.ShapeDtypeStruct((1, 6), jnp.int32)
      >>> model = networks.char_gru(num_tokens=5, num_units=4, num_layers=2)
      >>> init = networks.functions_of(model, tokens, (1, 6, 5)).init
      >>> sorted(jax.eval_shape(init, jax.random.key(0)))
      ['dense', 'embedding', 'layer_1', 'layer_2']
    """
    return lambda rngs: NextCharacter(
        GRU, num_tokens, num_embedding, num_units, num_layers, dtype=dtype, rngs=rngs
    )


def _gates(num_gates, num_in, num_units, dtype, rngs):
    return nnx.Linear(num_in, num_gates * num_units, kernel_init=GLOROT, dtype=dtype, rngs=rngs)


def _recurrent(num_gates, num_units, dtype, rngs, *, use_bias):
    """One orthogonal matrix per gate, side by side."""

    def init(key, shape, dtype):
        keys = jax.random.split(key, num_gates)
        square = nnx.initializers.orthogonal()
        return jnp.concatenate([square(key, (shape[0],) * 2, dtype) for key in keys], axis=1)

    return nnx.Linear(
        num_units,
        num_gates * num_units,
        use_bias=use_bias,
        kernel_init=init,
        dtype=dtype,
        rngs=rngs,
    )


def _over_time(cell, weights, drives, num_states):
    """Run a cell over time; ``drives`` are the products of the inputs of all times."""
    kernel = weights.kernel[...].astype(drives.dtype)
    bias = None if weights.bias is None else weights.bias[...].astype(drives.dtype)
    states = (jnp.zeros((drives.shape[0], kernel.shape[0]), drives.dtype),) * num_states
    outputs = recurrence(cell, kernel, jnp.moveaxis(drives, 1, 0), states, bias=bias)
    return jnp.moveaxis(outputs, 0, 1)
