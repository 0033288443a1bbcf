"""Second moments of a population, in float64 on the host: what closed forms are made of."""

from collections.abc import Iterator

import numpy as np

from fcojax.problems.clients import ClientData


def second_moment(data: ClientData, left: str = "x", right: str | None = None) -> np.ndarray:
    r"""The population mean of the outer products of two fields, which may be the same.

    .. math:: \sum_m p_m \tfrac{1}{n_m} \sum_i a_{m,i} b_{m,i}^T \Big/ \sum_m p_m

    A field of numbers counts as one of vectors of length one.

    Example:
      >>> from fcojax.problems.clients import from_clients
      >>> data = from_clients([{"x": np.eye(2)}, {"x": np.ones((1, 2))}])
      >>> second_moment(data).tolist()
      [[0.75, 0.5], [0.5, 0.75]]
    """
    a = np.asarray(data.examples[left])
    b = np.asarray(data.examples[right or left])
    a, b = a.reshape(a.shape[0], -1), b.reshape(b.shape[0], -1)
    total = np.zeros((a.shape[1], b.shape[1]))
    for rows, share in _shares(data):
        mine = a[rows].astype(np.float64)
        total += share * mine.T @ (mine if right in (None, left) else b[rows].astype(np.float64))
    return total


def _shares(data: ClientData) -> Iterator[tuple[slice, float]]:
    """Each client's rows, and the weight of one of them in the mean over the population."""
    weights, offsets = np.asarray(data.weights, np.float64), np.asarray(data.offsets)
    weights = weights / weights.sum() / np.diff(offsets)
    for m, weight in enumerate(weights):
        yield slice(offsets[m], offsets[m + 1]), weight
