"""Targets for the sparsity of a model: numbers of nonzero entries or groups, or ranks."""

import itertools
from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import tree
from fcojax.extend import memoised, singular_values, validated
from fcojax.transforms import Penalty
from fcojax.transforms.penalties.norms import grouped
from fcojax.types import Array, Count, Params, PyTree
from fcojax_sites.selection.solver import beyond_all

Number = Callable[[Params], Array]


class Nonzeros(NamedTuple):
    """A target for the sparsity of a model.

    Attributes:
      name: the target in words.
      count: the number to reach.
      number: ``(penalised parameters) -> the number of nonzeros, groups or ranks``.
      units: ``(penalised parameters) -> number of rows or columns``; 1 without ``per``.
      most: ``(penalised parameters) -> the largest possible number``.

    Example:
      >>> import jax.numpy as jnp
      >>> from fcojax_sites.selection import nonzeros
      >>> target = nonzeros(2, per="row")
      >>> target.name, int(target.number(jnp.array([[1.0, 0.0, 3.0], [0.0, 0.0, 2.0]])))
      ('2 nonzeros per row', 3)
    """

    example = 'nonzeros(50, per="row")'  # for error messages

    name: str
    count: int
    number: Number
    units: Callable[[Params], int]
    most: Callable[[Params], int]


@memoised
@validated
def nonzeros(
    count: Count,
    *,
    per: Literal["model", "row", "column"] = "model",
    of: Literal["entries", "groups", "rank"] = "entries",
    axis: int | tuple[int, ...] | None = None,
    labels: PyTree = None,
) -> Nonzeros:
    """Return a target: a number of nonzero entries or groups, or a rank.

    Unpenalised parameters, such as a bias, do not count. Per row or column the mean must be at most
    ``count`` and above ``count`` minus one half.

    Args:
      count: the number to reach.
      per: whether to count in the whole model, or take the mean over rows or columns of its
        matrices.
      of: what to count: entries, groups, or the rank, which is summed over matrices.
      axis: for groups; each is a slice along this axis (or these), as for ``group_l2``.
      labels: alternatively, the index of each penalised entry's group: a list with one array for
        each penalised leaf.

    Example:
      >>> import jax.numpy as jnp
      >>> kernel = jnp.array([[1.0, 0.0, 3.0], [0.0, 0.0, 0.0]])
      >>> [int(target.number([kernel])) for target in (nonzeros(1), nonzeros(1, of="rank"),
      ...                                               nonzeros(1, of="groups", axis=1))]
      [2, 1, 1]
    """
    if of != "groups" and (axis is not None or labels is not None):
        raise ValueError(f'of is {of!r} but there are groups; pass of="groups".')
    if of != "entries" and per != "model":
        raise ValueError(f"per is {per!r} but of is {of!r}; pass per only for entries.")
    number = _number_of(of, axis, labels)

    def units(model):
        if per == "model":
            return 1
        axis = 0 if per == "row" else -1
        return sum(np.shape(leaf)[axis] for leaf in _matrices(model))

    def most(model):
        if of == "rank":
            return sum(min(np.shape(leaf)) for leaf in _matrices(model))
        return int(number(model))

    things = {"entries": "nonzeros", "groups": "nonzero groups", "rank": "as the rank"}[of]
    name = f"{count} {things}" + ("" if per == "model" else f" per {per}")
    return Nonzeros(name, count, number, units, most)


@memoised
def _number_of(of: str, axis: int | tuple[int, ...] | None, labels: PyTree) -> Number:
    """Return the function that counts, cached because it is a static argument of programs."""
    if of == "entries":
        return _num_nonzero
    if of == "rank":
        return lambda model: tree.total([_rank(leaf) for leaf in _matrices(model)])
    groups = grouped(axis, labels)
    return lambda leaves: _num_nonzero(groups.norms(leaves))


class Range(NamedTuple):
    """The range of numbers that reach a target, and the largest possible number."""

    fewest: int
    highest: int
    most: int


def range_of(target: Nonzeros, penalty: Penalty, params: Params) -> tuple[Range, tuple[bool, ...]]:
    """Return the range that reaches a target, and which leaves of the parameters are penalised."""
    where = jax.tree.leaves(penalised(penalty, params))
    touched = [leaf.astype(float) for leaf in where if np.any(leaf)]
    units, most = target.units(touched), target.most(touched)
    highest = target.count * units
    if highest > most:
        raise ValueError(
            f"nonzeros is {target.name} but the penalty acts on {most} in all; pass at most "
            f"{most // max(units, 1)}."
        )
    leaves = tuple(bool(np.any(leaf)) for leaf in where)
    return Range(highest - (units - 1) // 2, highest, most), leaves


def penalised(penalty: Penalty, params: Params) -> PyTree:
    """Return which entries the penalty sets to zero if it is strong enough."""
    ones = jax.tree.map(jnp.ones_like, params)
    dtype = jax.tree.leaves(ones)[0].dtype
    return jax.tree.map(lambda leaf: leaf == 0, penalty.prox(ones, 1.0, beyond_all(dtype)))


class Counter(NamedTuple):
    """The function that counts, and the leaves in which it counts; static."""

    number: Number
    leaves: tuple[bool, ...]

    def __call__(self, penalty: Penalty, model: Params) -> Array:
        """Return the number in a model, over its penalised entries."""
        where = penalised(penalty, model)
        kept = jax.tree.map(lambda leaf, kept: jnp.where(kept, leaf, 0), model, where)
        return self.number(list(itertools.compress(jax.tree.leaves(kept), self.leaves)))


def _num_nonzero(model: Params) -> Array:
    return tree.total(jax.tree.map(lambda leaf: jnp.sum(leaf != 0, dtype=jnp.int32), model)).astype(
        jnp.int32
    )


def _matrices(model: Params) -> list:
    """Return the leaves as matrices; a vector is one row."""
    return [
        jnp.reshape(leaf, (1, -1)) if jnp.ndim(leaf) < 2 else leaf
        for leaf in jax.tree.leaves(model)
    ]


def _rank(leaf: Array) -> Array:
    """Return the number of singular values above the rounding error of the largest one."""
    values = singular_values(leaf)
    rounding = max(leaf.shape[-2:]) * jnp.finfo(leaf.dtype).eps * jnp.max(values, initial=0.0)
    return jnp.sum(values > rounding, dtype=jnp.int32)
