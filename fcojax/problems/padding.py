"""A few row counts to pad clients to, chosen so that little of the work is padding."""

import numpy as np

# A step on less than a page of rows takes as long as one on a page: the step's overhead decides.
_NEGLIGIBLE_BYTES = 4096
# Every bound is one more branch to compile. Sizes that are log-uniform from 1 to 5,000 need twelve
# bounds for 1.16 rows a real one, eight for 1.27; the largest client's size for all makes it eight.
_MAX_BOUNDS = 12
_ENOUGH = 1.15  # rows, padding included, for each real one
_MAX_CANDIDATES = 256


def size_bounds(sizes: np.ndarray, row_bytes: int) -> tuple[int, ...]:
    """Ascending row counts, the last the largest client's, that clients of ``sizes`` are padded to.

    A client is padded to the least bound that holds it. The bounds are those, among the sizes that
    occur, that minimise the rows of the population after padding; there are as few as leave at most
    1.15 rows for each real one, and never more than twelve.

    Args:
      sizes: rows of each client.
      row_bytes: bytes of one row; differences below a page of them are not worth a branch.

    Example:
      >>> size_bounds(np.array([10, 11, 12, 900, 1000]), row_bytes=4096)
      (12, 1000)
      >>> size_bounds(np.array([10, 11, 12]), row_bytes=8)
      (12,)
    """
    least = min(max(_NEGLIGIBLE_BYTES // max(row_bytes, 1), 1), int(sizes.max()))
    rows = np.maximum(sizes, least)
    candidates = np.unique(rows)
    if candidates.size > _MAX_CANDIDATES:
        grid = np.geomspace(candidates[0], candidates[-1], _MAX_CANDIDATES)
        at = np.searchsorted(candidates, grid).clip(max=candidates.size - 1)
        candidates = candidates[np.unique(at)]
    held = np.searchsorted(np.sort(rows), candidates, side="right")
    held = np.concatenate([[0], held])
    # Row i, column j: the padded rows of the clients above candidate i - 1, up to candidate j - 1.
    slots = np.triu((held[None, 1:] - held[:-1, None]) * candidates[None, :].astype(float))
    slots[np.tril_indices_from(slots, -1)] = np.inf
    least_slots = slots[0]  # of the clients up to each candidate, with the bounds so far
    previous: list[np.ndarray] = []
    enough = _ENOUGH * rows.sum()
    while least_slots[-1] > enough and len(previous) + 1 < min(_MAX_BOUNDS, candidates.size):
        totals = least_slots[:-1, None] + slots[1:]
        choice = np.argmin(totals, axis=0)
        previous.append(choice)
        least_slots = np.min(totals, axis=0)
    last = candidates.size - 1
    chosen = [last]
    for choice in reversed(previous):
        last = int(choice[last])
        chosen.append(last)
    return tuple(int(candidates[index]) for index in reversed(chosen))
