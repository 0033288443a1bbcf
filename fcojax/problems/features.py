"""Transformed features: random maps of each client, random Fourier and quadratic features."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.arguments import shown, validated
from fcojax.problems.client_data import ClientData
from fcojax.problems.partition import Partition
from fcojax.types import Count, NonNegative, Positive, Seed


@validated
@np.errstate(over="ignore", invalid="ignore")
def feature_skew(
    features: np.ndarray,
    partition: Partition,
    *,
    shift: NonNegative = 0.0,
    scale: NonNegative = 0.0,
    rotation: NonNegative = 0.0,
    seed: Seed = 0,
) -> np.ndarray:
    r"""Scale, rotate and shift the features of each client by random maps of its own.

    The features x of client m become :math:`R_m D_m x + s\, u_m`: with :math:`u_m` standard normal
    and s the ``shift``; :math:`D_m` diagonal with entries :math:`e^{c g}` for standard normal g and
    c the ``scale``; and :math:`R_m` a rotation of randomly paired features, each pair by a normal
    angle of standard deviation ``rotation``, in radians. The draws do not depend on the strengths,
    so runs with one seed and several strengths can be compared; with all three at zero nothing
    changes.

    Args:
      features: floating-point array, one row per example, in the order that was partitioned.
      partition: assignment of the examples to clients.
      shift: standard deviation of the clients' offsets, in the units of the features.
      scale: standard deviation of the logarithms of the clients' scales.
      rotation: standard deviation of the angles.
      seed: seed of the clients' maps.

    Returns:
      The new features, in the order and the dtype of the old ones.

    Example:
      >>> import fcojax, numpy as np
      >>> from fcojax.problems.partition import by_column
      >>> halves = by_column(np.array([0, 0, 1, 1]))
      >>> skewed = fcojax.problems.feature_skew(np.zeros((4, 3)), halves, shift=1.0)
      >>> bool((skewed[0] == skewed[1]).all()), bool((skewed[0] == skewed[2]).any())
      (True, False)
    """
    features = np.asarray(features)
    if not np.issubdtype(features.dtype, np.floating) or not features.ndim:
        raise ValueError(f"features is {shown(features)}; pass rows of floating-point numbers.")
    if features.shape[0] != partition.order.size:
        raise ValueError(
            f"features have {features.shape[0]} rows but the partition has {partition.order.size} "
            f"examples; pass the examples that were partitioned."
        )
    rng = np.random.Generator(np.random.PCG64(seed))
    rows = features.reshape(features.shape[0], -1)
    num_pairs = rows.shape[1] // 2
    skewed = np.empty_like(rows)
    for mine in partition.indices():
        offset, log_scale = rng.standard_normal((2, rows.shape[1]))
        first, second = rng.permutation(rows.shape[1])[: 2 * num_pairs].reshape(2, num_pairs)
        angle = rotation * rng.standard_normal(num_pairs)
        scaled = rows[mine] * np.exp(scale * log_scale)
        rotated = scaled.copy()
        rotated[:, first] = np.cos(angle) * scaled[:, first] - np.sin(angle) * scaled[:, second]
        rotated[:, second] = np.sin(angle) * scaled[:, first] + np.cos(angle) * scaled[:, second]
        skewed[mine] = rotated + shift * offset
    if np.isfinite(rows).all() and not np.isfinite(skewed).all():
        raise ValueError(
            f"shift is {shift:g}, scale {scale:g} and rotation {rotation:g}, with which features "
            f"are not finite in {rows.dtype}; pass smaller ones."
        )
    return skewed.reshape(features.shape)


@validated
def random_features(
    data: ClientData, *, num_features: Count = 4096, bandwidth: Positive = 10.0, seed: Seed = 0
) -> ClientData:
    r"""Replace the field ``x`` of a population by random cosine features.

    .. math:: x \mapsto \cos(x \Omega / s + u), \qquad
              \Omega_{ij} \sim N(0, 1), \; u_j \sim U(0, 2 \pi)

    A linear model on them approximates one with the Gaussian kernel of bandwidth s. Omega and u
    depend on ``seed`` alone: transform training and validation data with the same one. The features
    are computed once and stored, four bytes each.

    Args:
      data: clients whose field ``x`` holds one vector per example; other fields are kept.
      num_features: number of columns of Omega.
      bandwidth: s.
      seed: seed of Omega and u.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_rows({"x": np.ones((3, 2)), "y": np.arange(3)}, [2, 1])
      >>> features = fcojax.problems.random_features(data, num_features=8, bandwidth=1.0)
      >>> features.examples["x"].shape, features.sizes.tolist()
      ((3, 8), [2, 1])

    References:
      Rahimi and Recht, "Random features for large-scale kernel machines", NeurIPS 2007.
    """
    x = _vectors(data)
    rng = np.random.default_rng(seed)
    omega = rng.standard_normal((x.shape[1], num_features)) / bandwidth
    phase = rng.uniform(0, 2 * np.pi, num_features)
    features = _features(x, jnp.asarray(omega, x.dtype), jnp.asarray(phase, x.dtype))
    return dataclasses.replace(data, examples={**data.examples, "x": features})


@validated
def quadratic_features(data: ClientData) -> ClientData:
    r"""Replace the field ``x`` of a population by the products of every two of its d entries.

    .. math:: x \mapsto (x_i^2)_i, (\sqrt 2\, x_i x_j)_{i < j}

    The inner product of the features of x and y is :math:`\langle x, y \rangle^2`. They are
    computed once and stored: d (d + 1) / 2 columns, row by row of the upper triangle.

    Args:
      data: clients whose field ``x`` holds one vector per example; other fields are kept.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_rows({"x": np.array([[3.0, 1.0], [1.0, 2.0]])}, [2])
      >>> features = np.asarray(fcojax.problems.quadratic_features(data).examples["x"])
      >>> np.rint(features @ features.T).tolist()  # the squares of 10, 5 and 5
      [[100.0, 25.0], [25.0, 25.0]]
    """
    x = _vectors(data)
    first, second = np.triu_indices(x.shape[1])
    factors = jnp.asarray(np.where(first == second, 1, np.sqrt(2))[None], x.dtype)
    features = x[:, first] * x[:, second] * factors
    return dataclasses.replace(data, examples={**data.examples, "x": features})


def _vectors(data: ClientData) -> np.ndarray | jax.Array:
    """Return the field ``x``; raise ``ValueError`` unless it is a matrix of floats."""
    x = data.examples["x"]
    if not isinstance(x, np.ndarray | jax.Array) or x.ndim != 2:
        raise ValueError(
            f"the field x is {shown(x)}; pass a dense array with one vector for each example."
        )
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise ValueError(f"the field x has dtype {x.dtype}; pass floating-point numbers.")
    return x


@jax.jit
def _features(x, omega, phase):
    return jnp.cos(x @ omega + phase[None, :])
