"""A sum of penalties, each on some of the entries."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.arguments import factory
from fcojax.transforms.indicators import largest
from fcojax.transforms.penalty import Penalty
from fcojax.transforms.shapes import flattened


@factory
def on_entries(*parts: tuple[Penalty, Sequence[int] | np.ndarray]) -> Penalty:
    r"""Add penalties, each on some entries of a point, :math:`\sum_p \psi_p(x_p; \lambda)`.

    An entry in no part is not penalised. ``scale_max`` is the largest of the parts.

    Args:
      *parts: pairs of a penalty and the entries that it gets as a vector, in that order: integers
        from 0, counted over all leaves jointly. No entry is in two parts.

    Example:
      >>> from fcojax.transforms import l1, total_variation
      >>> seasons = on_entries((total_variation(), [0, 1, 2]), (l1(), [3]))
      >>> seasons.prox(jnp.array([0.0, 0.0, 3.0, 5.0]), 1.0, 1.0).tolist()
      [0.5, 0.5, 2.0, 4.0]
    """
    penalties = [penalty for penalty, _ in parts]
    entries = [np.asarray(chosen) for _, chosen in parts]
    scales: list[Any] = [penalty.scale_max for penalty in penalties]
    distances: list[Any] = [penalty.subdiff_distance for penalty in penalties]
    times = np.bincount(np.concatenate(entries)) if parts else np.zeros(0, int)
    if (twice := np.flatnonzero(times > 1)).size:
        raise ValueError(f"entry {twice[0]} is in two parts; pass it in one.")

    def pieces(x):
        flat, unravel = flattened(x)
        if flat.size < times.size:
            raise ValueError(
                f"on_entries has entry {times.size - 1} but the point {flat.size} entries; pass "
                "entries below that."
            )
        return flat, [flat[chosen] for chosen in entries], unravel

    def value(x, scale):
        flat, each, _ = pieces(x)
        values = [
            penalty.value(piece, scale) for penalty, piece in zip(penalties, each, strict=True)
        ]
        return sum(values, jnp.zeros((), flat.dtype))

    def prox(v, step, scale):
        flat, each, unravel = pieces(v)
        for penalty, chosen, piece in zip(penalties, entries, each, strict=True):
            flat = flat.at[chosen].set(penalty.prox(piece, step, scale))
        return unravel(flat)

    def scale_max(gradient):
        each = zip(scales, pieces(gradient)[1], strict=True)
        return largest([least(piece) for least, piece in each])

    def subdiff_distance(x, v, scale):
        rest, slopes, _ = pieces(v)
        each = zip(distances, pieces(x)[1], slopes, strict=True)
        found = [distance(piece, slope, scale) for distance, piece, slope in each]
        return tree.euclidean_norm([*found, rest.at[np.concatenate(entries)].set(0)])

    return Penalty(
        value,
        prox,
        scale_max if parts and all(scales) else None,
        convex=all(p.convex for p in penalties),
        subdiff_distance=subdiff_distance if parts and all(distances) else None,
    )
