"""The weights p_m of a population: from any of the accepted forms to one float per client."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from fcojax.arguments import shown


def checked_weights(weights: Any, sizes: np.ndarray) -> np.ndarray:
    """Return one weight per client.

    Args:
      weights: ``None``, ``"examples"``, a power of the size, or one number per client.
      sizes: number of examples of each client.
    """
    named = {None: 0.0, "examples": 1.0}
    given = named.get(weights) if weights is None or isinstance(weights, str) else weights
    try:
        numbers = np.asarray(given)
        # Strings of digits would pass for numbers, and masked entries would count.
        known = numbers.dtype.kind in "biufO" and not isinstance(given, np.ma.MaskedArray)
        numbers = numbers.astype(float) if known else np.array(np.nan)
    except (TypeError, ValueError):
        numbers = np.array(np.nan)
    if numbers.ndim == 0 and not np.isfinite(numbers):
        raise ValueError(
            f'weights is {shown(weights)}; pass None, "examples", a power of the size or one '
            "number per client."
        )
    if numbers.ndim == 0:
        with np.errstate(over="ignore"):
            numbers = sizes.astype(float) ** numbers
    finite = np.isfinite(numbers).all() and (numbers >= 0).all() and numbers.any()
    if numbers.shape != sizes.shape or not finite:
        raise ValueError(
            f"weights is {shown(weights)}; pass a finite number, 0 or more, for each of the "
            f"{sizes.size} clients, and not all zero."
        )
    return numbers


def in_range(weights: np.ndarray, names: np.ndarray) -> np.ndarray:
    """Scale weights by a power of two if their sums would leave the range of the floats.

    Only their ratios matter. A weight that would become zero beside the others is refused, since
    its client would count as absent.
    """
    limits, largest = np.finfo(jnp.result_type(float)), float(weights.max())
    comfortable = 2.0**24 * float(limits.tiny) < largest
    comfortable &= largest < float(limits.max) / 2**24 / weights.size
    if not comfortable:
        weights = np.ldexp(weights, -np.frexp(largest)[1])
        largest = float(weights.max())
    vanishing = (weights > 0) & (weights < float(limits.tiny))
    if vanishing.any():
        which = int(np.argmax(vanishing))
        raise ValueError(
            f"the weight of client {names[which]} is {weights[which] / largest:.3g} times the "
            f"largest, too little for {limits.dtype}; pass 0 for a client that shall not count."
        )
    return weights
