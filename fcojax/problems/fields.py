"""Checks of the parts of a population: examples, sizes, weights p_m and ids."""

import unicodedata
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fcojax.arguments import checked_array, shown
from fcojax.tree import by_field
from fcojax.types import PyTree


def num_rows(examples: PyTree, owner: str) -> int:
    """Return the number of rows that all fields have; raise ``ValueError`` if they differ."""
    for name, leaf in by_field([examples]):
        # A frame has no dtype: its columns would be read in their order, whatever their names.
        dtype = getattr(leaf, "dtype", None)
        odd = getattr(dtype, "kind", "O") in "USOMm" or getattr(dtype, "type", None) is np.void
        if isinstance(leaf, np.ma.MaskedArray | Tracer) or (odd and np.ndim(leaf)):
            raise ValueError(
                f"the field {name} of {owner} is {shown(leaf)}; pass numbers, such as "
                "np.unique(labels, return_inverse=True)[1], and frames by datasets.tables(...)."
            )
    shapes = {name: np.shape(leaf) for name, leaf in by_field([examples])}
    counts = {shape[:1] for shape in shapes.values()}
    if len(counts) != 1 or counts & {(), (0,)}:
        raise ValueError(
            f"the fields of {owner} have shapes {shown(shapes)}; pass arrays with the same number "
            "of rows, at least one."
        )
    return counts.pop()[0]


def require_same(clients: Sequence[PyTree], names: np.ndarray) -> None:
    """Raise ``ValueError`` unless all clients have the fields of the first."""
    first, *_ = known = [{name for name, _ in by_field([client])} for client in clients]
    for name, found in zip(names, known, strict=True):
        if found != first:
            raise ValueError(
                f"client {name} has the fields {', '.join(sorted(found))}, but client {names[0]} "
                f"has {', '.join(sorted(first))}; pass the same for all."
            )


def check_numbers(examples: PyTree, offsets: np.ndarray, ids: np.ndarray) -> None:
    """Raise ``ValueError`` if an entry is not finite, or out of the range of the precision in use.

    Without ``jax_enable_x64`` numbers have 32 bits. Arrays that are not numeric pass: JAX refuses
    them when it stores them.
    """
    for name, leaf in by_field([examples]):
        leaf = np.asarray(leaf)
        if leaf.size == 0 or not jnp.issubdtype(leaf.dtype, jnp.number):
            continue
        # NaN and infinity survive max and min, which need no copy of the array.
        low, high = leaf.min(), leaf.max()
        if not (np.isfinite(low) and np.isfinite(high)):
            finite = np.isfinite(leaf).reshape(leaf.shape[0], -1).all(axis=1)
            client, row = locate(int(np.argmin(finite)), offsets, ids)
            raise ValueError(
                f"field {name} of client {client} is not finite in its row {row}; clean the data "
                "before building the population."
            )
        used = jax.dtypes.canonicalize_dtype(leaf.dtype)
        if used != leaf.dtype and leaf.dtype.kind in "iuf":
            index = np.argmax(leaf) if float(high) >= -float(low) else np.argmin(leaf)
            largest = leaf.reshape(-1)[index]
            limits = jnp.finfo(used) if leaf.dtype.kind == "f" else jnp.iinfo(used)
            vanishes = leaf.dtype.kind == "f" and 0 < abs(largest) < jnp.finfo(used).tiny
            if vanishes or not (limits.min <= low and high <= limits.max):
                client, row = locate(int(index) // (leaf.size // leaf.shape[0]), offsets, ids)
                raise ValueError(
                    f"field {name} of client {client} is {largest} in its row {row}, out of the "
                    f"range of {used}; scale the data, drop the row, or set jax_enable_x64."
                )


def locate(row: int, offsets: np.ndarray, ids: np.ndarray) -> tuple[Any, int]:
    """Return the id of the client that owns a row of the population, and the row's index there."""
    client = int(np.searchsorted(offsets, row, side="right")) - 1
    return ids[client], row - int(offsets[client])


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
    # With a margin of 2^24 at both ends, products with sizes and sums over clients stay finite.
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
            f"largest, too little for {limits.dtype}; pass 0 for a client that should not count."
        )
    return weights


def checked_sizes(sizes: Any) -> np.ndarray:
    """Return the number of rows of each client."""
    counts = checked_array("sizes", sizes)
    if _is_whole(counts, "f"):
        counts = counts.astype(np.int64)
    if counts.ndim != 1 or counts.size == 0 or counts.dtype.kind not in "iu":
        raise ValueError(f"sizes are {shown(sizes)}; pass one whole number per client.")
    return counts.astype(np.int64)


def checked_ids(ids: Any, num_clients: int) -> np.ndarray:
    """Return the names of the clients, integers or strings, 0 to M - 1 by default."""
    if ids is None:
        return np.arange(num_clients)
    names = checked_array("ids", ids)
    if names.dtype.kind == "O" and all(isinstance(name, str) for name in names.flat):
        names = names.astype(str)  # strings of a pandas column
    if _is_whole(names, "bf"):
        names = names.astype(np.int64)  # from a file whose columns are all floating point
    if names.shape != (num_clients,) or names.dtype.kind not in "iuU":
        raise ValueError(
            f"ids are {shown(ids)}; pass whole numbers or strings, one for each of the "
            f"{num_clients} clients."
        )
    same = list(map(visible, names.tolist())) if names.dtype.kind == "U" else names
    unique, counts = np.unique(same, return_counts=True)
    if unique.size < names.size:
        raise ValueError(f"id {unique[counts > 1][0]} occurs twice; every client needs its own.")
    return names


def visible(name: str) -> str:
    """Return a name as it is seen: in one Unicode form, without the letters that have no width."""
    if name.isascii():
        return name.strip()
    seen = (letter for letter in name if unicodedata.category(letter) != "Cf")
    return unicodedata.normalize("NFC", "".join(seen)).strip()


def _is_whole(values: np.ndarray, kinds: str) -> bool:
    """Whether values of these dtype kinds are integers that int64 and float64 hold exactly."""
    if values.dtype.kind not in kinds:
        return False
    return bool(((values == np.floor(values)) & (np.abs(values) < np.float64(2**53))).all())
