"""Choice of the row counts that clients are padded to, so that little of the work is padding."""

import numpy as np

# A step on less than a page of rows takes as long as one on a page: overhead dominates.
_NEGLIGIBLE_BYTES = 4096
# Every bound is one more branch to compile. For sizes log-uniform from 1 to 5,000, twelve bounds
# give 1.16 padded rows per real row, eight give 1.27, and one, the largest size, gives eight.
_MAX_BOUNDS = 12
_ENOUGH = 1.15  # padded rows per real row
_MAX_CANDIDATES = 256


def size_bounds(sizes: np.ndarray, row_bytes: int) -> tuple[int, ...]:
    """Choose ascending row counts to pad clients to, the last of them the largest client's.

    A client is padded to the smallest bound that is at least its size. The bounds are the sizes
    that minimise the rows of the population after padding; their number is the smallest with at
    most 1.15 padded rows per real row, but at most twelve.

    Args:
      sizes: number of rows of each client.
      row_bytes: bytes of one row; all sizes below one page of rows count as one page.

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
    held = np.concatenate([[0], np.searchsorted(np.sort(rows), candidates, side="right")])
    # slots[i, j]: padded rows of the clients larger than candidate i - 1, padded to candidate j.
    slots = np.triu((held[None, 1:] - held[:-1, None]) * candidates[None, :].astype(float))
    slots[np.tril_indices_from(slots, -1)] = np.inf
    # Dynamic programming over the largest bound: with one more bound, the clients up to candidate j
    # cost the least over i of those up to i, with the bounds so far, plus slots[i + 1, j].
    least_slots = slots[0]  # for the clients up to each candidate, with the bounds so far
    previous: list[np.ndarray] = []
    enough = _ENOUGH * rows.sum()
    while least_slots[-1] > enough and len(previous) + 1 < min(_MAX_BOUNDS, candidates.size):
        totals = least_slots[:-1, None] + slots[1:]
        previous.append(np.argmin(totals, axis=0))
        least_slots = np.min(totals, axis=0)
    chosen = [candidates.size - 1]
    for choice in reversed(previous):
        chosen.append(int(choice[chosen[-1]]))
    return tuple(int(candidates[index]) for index in reversed(chosen))
