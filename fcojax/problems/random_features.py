"""Random Fourier features: a kernel machine as a linear model on transformed data."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from fcojax.problems.clients import ClientData


def random_features(
    data: ClientData, *, num_features: int = 4096, bandwidth: float = 10.0, seed: int = 0
) -> ClientData:
    r"""The same population with the field ``x`` replaced by random cosine features.

    .. math:: x \mapsto \cos(x \Omega / s + u), \qquad
              \Omega_{ij} \sim N(0, 1), \; u_j \sim U(0, 2 \pi)

    A linear model on them approximates one with the Gaussian kernel of bandwidth s. Omega and u
    are drawn from ``seed`` alone: transform train and validation with the same one. The features
    are computed once and kept: four bytes for each of ``num_features`` times all examples.

    Args:
      data: clients whose field ``x`` holds one vector an example; other fields stay.
      num_features: columns of Omega.
      bandwidth: s.
      seed: what Omega and u are drawn from.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_rows({"x": np.ones((3, 2)), "y": np.arange(3)}, [2, 1])
      >>> features = fcojax.problems.random_features(data, num_features=8, bandwidth=1.0)
      >>> features.examples["x"].shape, features.sizes.tolist()
      ((3, 8), [2, 1])

    References:
      Rahimi and Recht, "Random features for large-scale kernel machines", NeurIPS 2007.
    """
    if num_features < 1 or bandwidth <= 0:
        raise ValueError(
            f"num_features is {num_features} and bandwidth {bandwidth}; both must be positive."
        )
    x = data.examples["x"]
    rng = np.random.default_rng(seed)
    omega = rng.standard_normal((x.shape[1], num_features)) / bandwidth
    phase = rng.uniform(0, 2 * np.pi, num_features)
    features = _features(x, jnp.asarray(omega, x.dtype), jnp.asarray(phase, x.dtype))
    return dataclasses.replace(data, examples={**data.examples, "x": features})


@jax.jit
def _features(x, omega, phase):
    return jnp.cos(x @ omega + phase[None, :])
