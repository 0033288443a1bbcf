"""A small transformer that predicts the next token.

Vaswani et al., "Attention is all you need", NeurIPS 2017, in the form of Radford et al., "Language
models are unsupervised multitask learners", 2019, with normalisation before each layer.
"""

import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from fcojax.extend import validated
from fcojax.networks.modules import Build
from fcojax.types import Count, Probability

GLOROT = nnx.initializers.glorot_uniform()


class Layer(nnx.Module):
    """Causal attention, then two dense layers, each with a residual connection."""

    def __init__(self, num_units, num_heads, dropout_rate, dtype, rngs):
        options = {"kernel_init": GLOROT, "dtype": dtype, "rngs": rngs}
        self.norm_1 = nnx.LayerNorm(num_units, dtype=dtype, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(
            num_heads, num_units, decode=False, dropout_rate=dropout_rate, **options
        )
        self.norm_2 = nnx.LayerNorm(num_units, dtype=dtype, rngs=rngs)
        self.dense_1 = nnx.Linear(num_units, 4 * num_units, **options)
        self.dense_2 = nnx.Linear(4 * num_units, num_units, **options)
        self.dropout = nnx.Dropout(dropout_rate, rngs=rngs)

    def __call__(self, x, mask):
        x = x + self.dropout(self.attention(self.norm_1(x), mask=mask))
        inner = self.dense_2(nnx.gelu(self.dense_1(self.norm_2(x))))
        return x + self.dropout(inner)


class Transformer(nnx.Module):
    """Embeddings of tokens and positions, layers, a normalisation, and a dense output."""

    def __init__(
        self, num_tokens, length, num_units, num_layers, *, num_heads, dropout_rate, dtype, rngs
    ):
        small = nnx.initializers.normal(0.02)
        options = {"embedding_init": small, "dtype": dtype, "rngs": rngs}
        self.tokens = nnx.Embed(num_tokens, num_units, **options)
        self.places = nnx.Embed(length, num_units, **options)
        self.dropout = nnx.Dropout(dropout_rate, rngs=rngs)
        self.num_layers = num_layers
        for place in range(num_layers):
            layer = Layer(num_units, num_heads, dropout_rate, dtype, rngs)
            setattr(self, f"layer_{place + 1}", layer)
        self.norm = nnx.LayerNorm(num_units, dtype=dtype, rngs=rngs)
        self.dense = nnx.Linear(num_units, num_tokens, kernel_init=GLOROT, dtype=dtype, rngs=rngs)

    def __call__(self, tokens):
        length = tokens.shape[1]
        x = self.tokens(tokens) + self.places(jnp.arange(length))[None]
        x = self.dropout(x)
        mask = jnp.tril(jnp.ones((1, 1, length, length), bool))
        for place in range(self.num_layers):
            x = getattr(self, f"layer_{place + 1}")(x, mask)
        return self.dense(self.norm(x))


@validated
def transformer(
    num_tokens: Count = 90,
    length: Count = 80,
    num_units: Count = 128,
    num_layers: Count = 2,
    *,
    num_heads: Count = 4,
    dropout_rate: Probability = 0.1,
    dtype: DTypeLike | None = None,
) -> Build:
    """Build a causal transformer for sequences of at most ``length`` tokens.

    A token attends to itself and to those before it. Padding must come at the end of a sequence,
    so that no other token attends to it.

    Args:
      num_tokens: number of different tokens, including padding.
      length: largest number of tokens of a sequence.
      num_units: dimension of the embeddings, a multiple of ``num_heads``.
      num_layers: number of layers.
      num_heads: attention heads per layer.
      dropout_rate: rate of the dropout after embeddings, attention and dense layers.
      dtype: dtype of the computation; by default that of the parameters, float32.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from fcojax import networks
      >>> tokens = jax.ShapeDtypeStruct((1, 6), jnp.int32)
      >>> model = networks.transformer(
      ...     num_tokens=5, length=6, num_units=8, num_layers=1, num_heads=2)
      >>> functions = networks.functions_of(model, tokens, (1, 6, 5))
      >>> functions.draws  # it has dropout
      True
    """
    return lambda rngs: Transformer(
        num_tokens,
        length,
        num_units,
        num_layers,
        num_heads=num_heads,
        dropout_rate=dropout_rate,
        dtype=dtype,
        rngs=rngs,
    )
