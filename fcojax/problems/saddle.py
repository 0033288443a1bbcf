r"""Saddle point problems, and a bilinear one on which gradient descent-ascent cycles.

Bai and Bullins, "Local composite saddle point optimization", ICLR 2024, section 6; Jiang and
Mokhtari, "Generalized optimistic methods for convex-concave saddle point problems", 2022.
"""

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.arguments import factory, validated
from fcojax.problems.building import from_stacked
from fcojax.problems.losses import Loss
from fcojax.problems.problem import Problem
from fcojax.types import Count, CountOrZero, NonNegative, Params, PyTree, Seed
from fcojax.xla.linalg import singular_values

_ZERO = 1e-5  # the paper counts an entry below this magnitude as zero


@factory
def saddle(loss: Loss, ascends: str = "y") -> Loss:
    r"""Return a loss whose gradient descent is gradient descent-ascent for ``loss``.

    .. math:: \tilde f(x, y) = f(x, \bar y) - f(\bar x, y), \qquad
              \nabla \tilde f = (\nabla_x f, -\nabla_y f),

    where a bar stops derivatives. Its value is zero everywhere.

    Args:
      loss: ``(params, examples) -> f`` for each example, with a dict of parameters.
      ascends: entry of the dict in which f is maximised; it is minimised in all others.

    Example:
      >>> import jax.numpy as jnp
      >>> product = saddle(lambda z, rows: rows["a"] * z["x"] * z["y"])
      >>> slope = jax.grad(lambda z: product(z, {"a": jnp.ones(1)})[0])
      >>> {name: float(leaf) for name, leaf in slope({"x": 2.0, "y": 5.0}).items()}
      {'x': 5.0, 'y': -2.0}
    """

    def difference(params: Params, examples: PyTree):
        stopped = jax.lax.stop_gradient(params)
        descent = params | {ascends: stopped[ascends]}
        ascent = stopped | {ascends: params[ascends]}
        return loss(descent, examples) - loss(ascent, examples)

    return difference


@validated
def bilinear(
    *,
    num_clients: Count = 100,
    num_examples: Count = 1000,
    shape: tuple[int, int] = (300, 600),
    num_columns: CountOrZero = 0,
    bound: NonNegative = 0.05,
    strength: NonNegative = 0.1,
    noise_scale: NonNegative = 0.1,
    seed: Seed = 0,
) -> Problem:
    r"""A bilinear saddle point problem; clients differ only in the noise of their gradients.

    .. math:: \min_{\|x\| \le D} \max_{\|y\| \le D} \langle A x - b, y \rangle
              + \lambda |x| - \lambda |y|

    with the l1 norm and the box, or for matrices with p columns the nuclear norm and the ball of
    the spectral norm. All entries of A and b are uniform on [-1, 1]; half of the columns of a
    matrix b are combinations of the others. An example is a seed, from which its noise is drawn: a
    Gaussian linear term in x and in y, so each gradient entry of a batch of n examples has noise
    of standard deviation ``noise_scale / sqrt(n)``.

    The penalty and the constraint are not part of the loss, which is for descent in x and ascent
    in y. The measures are the duality ``gap`` of the problem without noise, in closed form, the
    share of nonzero entries, ``density``, and for matrices ``rank_x`` and ``rank_y``.

    Args:
      num_clients: number of clients M.
      num_examples: number of seeds per client.
      shape: rows and columns of A: the dimensions of y and of x.
      num_columns: p, or 0 for vectors.
      bound: D.
      strength: lambda, used by the gap alone.
      noise_scale: standard deviation of the noise of one example.
      seed: seed of the data.

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

    def loss(z, rows):
        def noise(example):
            keys = jax.random.split(jax.random.key(example))
            x, y = (
                jnp.sum(z[name] * jax.random.normal(key, z[name].shape, z[name].dtype))
                for name, key in zip("xy", keys, strict=True)
            )
            return noise_scale * (x + y)

        residual = jnp.asarray(matrix, z["x"].dtype) @ z["x"] - jnp.asarray(target, z["x"].dtype)
        return jnp.sum(residual * z["y"]) + jax.vmap(noise)(rows["seed"])

    def init(key):
        keys = jax.random.split(key)
        return {
            name: jax.random.uniform(one, shapes[name], jnp.float32, -radius, radius)
            for name, one in zip("xy", keys, strict=True)
        }

    def measures(z):
        sizes = singular_values if num_columns else jnp.abs
        a, b = (jnp.asarray(part, z["x"].dtype) for part in (matrix, target))

        def gain(slope):  # a best response is D where an entry or singular value is above lambda
            return bound * jnp.sum(jax.nn.relu(sizes(slope) - strength))

        cost = strength * (jnp.sum(sizes(z["x"])) + jnp.sum(sizes(z["y"])))
        gap = gain(a @ z["x"] - b) + gain(a.T @ z["y"]) + cost + jnp.sum(b * z["y"])
        large = [jnp.abs(z[name]).reshape(-1) > _ZERO for name in "xy"]
        found = {"gap": gap, "density": jnp.mean(jnp.concatenate(large), dtype=gap.dtype)}
        if num_columns:
            found |= {f"rank_{name}": jnp.sum(sizes(z[name]) > _ZERO) for name in "xy"}
        return found

    seeds = np.arange(num_clients * num_examples).reshape(num_clients, num_examples)
    return Problem(saddle(loss), from_stacked(seed=seeds), None, init, measures, convex=False)
