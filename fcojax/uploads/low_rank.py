"""Compressors that send a matrix as a product of two thin ones.

Vogels, Karimireddy and Jaggi, "PowerSGD: practical low-rank gradient compression for distributed
optimization", NeurIPS 2019.
"""

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.types import Count
from fcojax.uploads.compressor import Compressor, factory


@factory
def power(rank: Count, num_iterations: Count = 1) -> Compressor:
    r"""Return the projection of each matrix onto r directions, found by power iteration.

    From a random matrix Q, P is an orthonormal basis of :math:`M Q` and :math:`Q = M^T P`; P and Q
    are sent, and :math:`P Q^T = P P^T M` is decoded. It is contractive with a = r / min(m, n),
    attained where all singular values are equal, and exact where the rank of M is at most r.

    It works leaf by leaf: arrays of more than two axes are matrices of their last axis and of all
    others. Vectors, and matrices that have fewer entries than P and Q, are sent uncompressed.
    PowerSGD averages first P and then Q over the workers, in two exchanges, and starts from the Q
    of the last round. Here each client compresses its own matrix, in one exchange, from a random
    start; more iterations compensate for this.

    Args:
      rank: r.
      num_iterations: power iterations; each computes P, then Q.

    Example:
      >>> from fcojax import uploads
      >>> x, key = jnp.outer(jnp.arange(1.0, 5.0), jnp.ones(3)).astype("float32"), jax.random.key(0)
      >>> one = power(1)
      >>> bool(jnp.allclose(one.decode(None, one.encode(None, x, key), key, x), x, atol=1e-5))
      True
      >>> uploads.facts(one, {"kernel": x, "bias": x[0]}).num_bytes  # 4 + 3 and 3 numbers
      40
    """

    def is_whole(like):
        rows, columns = _form(like)
        return rank * (rows + columns) >= rows * columns

    def encode(hparams, x, key):
        if is_whole(x):
            return x
        matrix = x.reshape(_form(x)).astype(tree.mean_dtype(x.dtype))
        right = jax.random.normal(key, (matrix.shape[1], rank), matrix.dtype)
        for _ in range(num_iterations):
            left = jnp.linalg.qr(matrix @ right)[0]
            right = matrix.T @ left
        return left, right

    def decode(hparams, encoded, key, like):
        if is_whole(like):
            return encoded
        left, right = encoded
        return (left @ right.T).reshape(like.shape).astype(like.dtype)

    def contraction(hparams, like):
        return 1.0 if is_whole(like) else rank / min(_form(like))

    return Compressor(f"power({rank})", encode, decode, contraction=contraction, leafwise=True)


def _form(like) -> tuple[int, int]:
    """Return the shape of a leaf as a matrix; a vector is one row."""
    columns = like.shape[-1] if like.ndim > 1 else like.size
    return like.size // max(columns, 1), columns
