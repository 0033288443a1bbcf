"""Covariate shift: clients that see the same things through different instruments."""

import numpy as np

from fcojax.problems.partition import Partition


def feature_skew(
    features: np.ndarray,
    partition: Partition,
    *,
    shift: float = 0.0,
    scale: float = 0.0,
    rotation: float = 0.0,
    seed: int = 0,
) -> np.ndarray:
    r"""The features as each client sees them: scaled, rotated and shifted in a way of its own.

    Client m sees :math:`R_m D_m x + s\, u_m` of an example x: with :math:`u_m` standard normal and
    s the ``shift``; :math:`D_m` diagonal with entries :math:`e^{c g}` for standard normal g and c
    the ``scale``; and :math:`R_m` a rotation of randomly paired features, each pair by a normal
    angle whose deviation is ``rotation``, in radians. Strengths only scale what is drawn, so runs
    with one seed and several strengths can be compared; with all three at zero nothing changes.

    Args:
      features: one row an example, in the order in which they were partitioned; floating.
      partition: whose example is whose.
      shift: deviation of the clients' offsets, in the units of the features.
      scale: deviation of the logarithms of the clients' scales.
      rotation: deviation of the angles.
      seed: what the clients' maps are drawn from.

    Returns:
      The new features, in the order and the dtype of the old ones.

    Example:
      >>> import fcojax, numpy as np
      >>> from fcojax.problems.partition import by_column
      >>> halves = by_column(np.array([0, 0, 1, 1]))
      >>> seen = fcojax.problems.feature_skew(np.zeros((4, 3)), halves, shift=1.0)
      >>> bool((seen[0] == seen[1]).all()), bool((seen[0] == seen[2]).any())
      (True, False)
    """
    features = np.asarray(features)
    strengths = (shift, scale, rotation)
    if any(not (strength >= 0 and np.isfinite(strength)) for strength in strengths):
        raise ValueError(f"shift, scale and rotation are {strengths}; pass finite, at least 0.")
    if features.ndim < 2 or not np.issubdtype(features.dtype, np.floating):
        raise ValueError(
            f"features have shape {features.shape} and dtype {features.dtype}; pass floating rows."
        )
    if features.shape[0] != partition.order.size:
        raise ValueError(
            f"features have {features.shape[0]} rows but the partition is of "
            f"{partition.order.size} examples; pass the examples that were partitioned."
        )
    rng = np.random.Generator(np.random.PCG64(seed))
    rows = features.reshape(features.shape[0], -1)
    num_pairs = rows.shape[1] // 2
    seen = np.empty_like(rows)
    for mine in partition.indices():
        offset, log_scale = rng.standard_normal((2, rows.shape[1]))
        first, second = rng.permutation(rows.shape[1])[: 2 * num_pairs].reshape(2, num_pairs)
        angle = rotation * rng.standard_normal(num_pairs)
        scaled = rows[mine] * np.exp(scale * log_scale)
        turned = scaled.copy()
        turned[:, first] = np.cos(angle) * scaled[:, first] - np.sin(angle) * scaled[:, second]
        turned[:, second] = np.sin(angle) * scaled[:, first] + np.cos(angle) * scaled[:, second]
        seen[mine] = turned + shift * offset
    return seen.reshape(features.shape)
