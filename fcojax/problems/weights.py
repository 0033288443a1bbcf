"""The weights p_m of a population, as users give them and as they are kept."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from fcojax.problems import fields


def as_array(values: Any, sentence: str) -> np.ndarray:
    """The values as numpy has them; the sentence, with them filled in, if they are ragged."""
    try:
        return np.asarray(values)
    except ValueError:
        raise ValueError(sentence.format(fields.shown(values))) from None


def checked_weights(weights: Any, sizes: np.ndarray) -> np.ndarray:
    """One weight for each client of these sizes, from any of the forms that a user may give."""
    if weights is None:
        return np.ones(sizes.size)
    if isinstance(weights, str):
        if weights != "examples":
            raise ValueError(
                f'weights is "{weights}"; pass None, "examples", a power of the size or an array.'
            )
        return sizes.astype(float)
    wrong = 'weights is {}; pass None, "examples", a power of the size or an array.'
    numbers = as_array(weights, wrong)
    if numbers.dtype.kind not in "biufO" or (numbers.dtype.kind == "O" and numbers.ndim == 0):
        raise ValueError(wrong.format(fields.shown(weights)))
    try:
        weights = numbers.astype(float)
    except (TypeError, ValueError):
        raise ValueError(wrong.format(fields.shown(weights))) from None
    if weights.ndim == 0:
        if not np.isfinite(weights):
            raise ValueError(wrong.format(weights))
        with np.errstate(over="ignore"):
            weights = sizes.astype(float) ** weights
    if weights.shape != sizes.shape:
        raise ValueError(
            f"weights has shape {weights.shape} but there are {sizes.size} clients; pass one each."
        )
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise ValueError(
            "weights must be finite, not negative, and not all zero; pass one such number a client."
        )
    return weights


def in_range(weights: np.ndarray, names: np.ndarray) -> np.ndarray:
    """The weights, scaled by a power of two if sums of them would leave the range of the floats.

    Only their ratios matter. One that is zero beside the others could not be told from an absence.
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
