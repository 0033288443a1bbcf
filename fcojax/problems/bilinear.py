r"""Bilinear saddle points, on which descent-ascent circles and an extra step does not.

Bai and Bullins, "Local composite saddle point optimization", ICLR 2024, section 6; Jiang and
Mokhtari, "Generalized optimistic methods for convex-concave saddle point problems", 2022.
"""

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.factorisations import singular_values
from fcojax.problems.clients import from_rows
from fcojax.problems.problem import Problem
from fcojax.problems.saddle import saddle
from fcojax.types import Array


def bilinear(
    *,
    num_clients: int = 100,
    num_examples: int = 1000,
    shape: tuple[int, int] = (300, 600),
    num_columns: int = 0,
    bound: float = 0.05,
    strength: float = 0.1,
    noise_scale: float = 0.1,
    seed: int = 0,
) -> Problem:
    r"""Clients that share one saddle point problem and differ in the noise of their gradients.

    .. math:: \min_{\|x\| \le D} \max_{\|y\| \le D} \langle A x - b, y \rangle
              + \lambda |x| - \lambda |y|

    with the l1 norm and the box, or for matrices with p columns the nuclear norm and the ball of
    the spectral norm. All entries of A and b are uniform on [-1, 1]; half of the columns of a
    matrix b are combinations of the others. An example is a seed, from which its noise is drawn: a
    Gaussian linear term in x and in y, so that a batch of n examples has gradients with noise of
    standard deviation ``noise_scale / sqrt(n)`` in each entry.

    The penalty and the constraint are not part of the loss, which is one for descent in x and
    ascent in y. The measures are the duality ``gap`` of the problem without noise, in closed form,
    the share of entries that are nonzero, ``density``, and for matrices ``rank_x`` and ``rank_y``.

    Args:
      num_clients: M.
      num_examples: seeds of each client.
      shape: rows and columns of A: the dimensions of y and of x.
      num_columns: p, or 0 for vectors.
      bound: D.
      strength: lambda, which the gap needs.
      noise_scale: standard deviation of the noise of one example.
      seed: what the data are drawn from.

    Example:
      >>> import fcojax, jax
      >>> problem = fcojax.problems.bilinear(num_clients=3, num_examples=2, shape=(4, 6))
      >>> jax.tree.map(lambda leaf: leaf.shape, problem.init(jax.random.key(0)))
      {'x': (6,), 'y': (4,)}
    """
    rng = np.random.default_rng(seed)
    tail = (num_columns,) if num_columns else ()
    matrix = rng.uniform(-1, 1, shape).astype(np.float32)
    target = rng.uniform(-1, 1, (shape[0], *tail)).astype(np.float32)
    if num_columns:
        half = num_columns // 2
        target[:, half:] = target[:, :half] @ rng.uniform(-1, 1, (half, num_columns - half))
    shapes = {"x": (shape[1], *tail), "y": (shape[0], *tail)}
    radius = 1.0 if num_columns else bound

    def noise_free(z):
        residual = jnp.asarray(matrix, z["x"].dtype) @ z["x"] - jnp.asarray(target, z["x"].dtype)
        return jnp.sum(residual * z["y"])

    def loss(z, rows):
        def noise(example):
            keys = jax.random.split(jax.random.key(example))
            terms = [jnp.sum(z[name] * jax.random.normal(key, z[name].shape, z[name].dtype))
                     for name, key in zip("xy", keys, strict=True)]  # fmt: skip
            return noise_scale * (terms[0] + terms[1])

        return noise_free(z) + jax.vmap(noise)(rows["seed"])

    def init(key):
        keys = jax.random.split(key)
        return {
            name: jax.random.uniform(one, shapes[name], jnp.float32, -radius, radius)
            for name, one in zip("xy", keys, strict=True)
        }

    def measures(z):
        sizes = singular_values if num_columns else jnp.abs
        return _measures(z, matrix, target, (bound, strength), sizes)

    seeds = np.arange(num_clients * num_examples, dtype=np.int32)
    train = from_rows({"seed": seeds}, [num_examples] * num_clients)
    return Problem(saddle(loss), train, None, init, measures)


def _measures(z, matrix, target, numbers, sizes) -> dict[str, Array]:
    """The gap: each player's best answer is D in every entry, or singular value, beyond lambda."""
    bound, strength = numbers
    matrix, target = (jnp.asarray(part, z["x"].dtype) for part in (matrix, target))

    def won(slope):
        return bound * jnp.sum(jax.nn.relu(sizes(slope) - strength))

    cost = strength * (jnp.sum(sizes(z["x"])) + jnp.sum(sizes(z["y"])))
    gap = won(matrix @ z["x"] - target) + won(matrix.T @ z["y"]) + cost + jnp.sum(target * z["y"])
    large = [jnp.abs(z[name]).reshape(-1) > _ZERO for name in "xy"]
    found = {"gap": gap, "density": jnp.mean(jnp.concatenate(large), dtype=gap.dtype)}
    if sizes is singular_values:
        found |= {f"rank_{name}": jnp.sum(sizes(z[name]) > _ZERO) for name in "xy"}
    return found


_ZERO = 1e-5  # magnitudes below which the source counts an entry as zero
