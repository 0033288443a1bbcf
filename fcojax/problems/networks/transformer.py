"""A small transformer that predicts the next token.

Vaswani et al., "Attention is all you need", NeurIPS 2017, in the form of Radford et al., "Language
models are unsupervised multitask learners", 2019: layers are normalised before, not after.
"""

import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from fcojax.problems.networks.layers import GLOROT, dense
from fcojax.problems.networks.modules import Build


class Layer(nnx.Module):
    """Attention to what came before, then two dense layers; both add to their input."""

    def __init__(self, num_units, num_heads, dropout_rate, dtype, rngs):
        self.norm_1 = nnx.LayerNorm(num_units, dtype=dtype, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(
            num_heads, num_units, dtype=dtype, kernel_init=GLOROT, decode=False, rngs=rngs,
            dropout_rate=dropout_rate,
        )  # fmt: skip
        self.norm_2 = nnx.LayerNorm(num_units, dtype=dtype, rngs=rngs)
        self.dense_1 = dense(num_units, 4 * num_units, rngs, dtype)
        self.dense_2 = dense(4 * num_units, num_units, rngs, dtype)
        self.dropout = nnx.Dropout(dropout_rate, rngs=rngs)

    def __call__(self, x, mask):
        x = x + self.dropout(self.attention(self.norm_1(x), mask=mask))
        inner = self.dense_2(nnx.gelu(self.dense_1(self.norm_2(x))))
        return x + self.dropout(inner)


class Transformer(nnx.Module):
    """Tokens and their places embedded, layers, a norm, and one output per token."""

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
        self.dense = dense(num_units, num_tokens, rngs, dtype)

    def __call__(self, tokens):
        length = tokens.shape[1]
        x = self.tokens(tokens) + self.places(jnp.arange(length))[None]
        x = self.dropout(x)
        mask = jnp.tril(jnp.ones((1, 1, length, length), bool))
        for place in range(self.num_layers):
            x = getattr(self, f"layer_{place + 1}")(x, mask)
        return self.dense(self.norm(x))


def transformer(
    num_tokens: int = 90,
    length: int = 80,
    num_units: int = 128,
    num_layers: int = 2,
    *,
    num_heads: int = 4,
    dropout_rate: float = 0.1,
    dtype: DTypeLike | None = None,
) -> Build:
    """A causal transformer for sequences of at most ``length`` tokens.

    A token attends to itself and to those before it. Padding may only follow a sequence, so that
    no real token sees it.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from fcojax.problems import networks
      >>> tokens = jax.ShapeDtypeStruct((1, 6), jnp.int32)
      >>> model = networks.transformer(
      ...     num_tokens=5, length=6, num_units=8, num_layers=1, num_heads=2)
      >>> functions = networks.functions_of(model, tokens, (1, 6, 5))
      >>> functions.draws  # it has dropout
      True
    """
    if num_units % num_heads:
        raise ValueError(
            f"num_units is {num_units}; pass a multiple of num_heads, which is {num_heads}."
        )
    return lambda rngs: Transformer(
        num_tokens, length, num_units, num_layers, num_heads=num_heads,
        dropout_rate=dropout_rate, dtype=dtype, rngs=rngs,
    )  # fmt: skip
