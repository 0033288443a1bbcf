"""Loops that keep their scalars together.

On an accelerator each output of a loop takes a kernel in every iteration, however small it is, and
so does each scalar that is carried.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core

from fcojax.types import Array, PyTree
from fcojax.xla.rules import rules

# Entries of an array that takes less time to read than a kernel takes to launch.
_SMALL = 1 << 17


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["vectors", "others"],
    meta_fields=["places", "structure"],
)
@dataclasses.dataclass(frozen=True)
class _Packed:
    """A pytree with its scalars in one vector, and those of other than 32 bits in one per dtype.

    Attributes:
      vectors: the scalars by the dtype that stores their bits.
      others: the leaves that are arrays.
      places: for each leaf its dtype, that of its vector, and the index there; or ``None``, ``""``
        and the index in ``others``.
      structure: of the pytree.
    """

    vectors: dict[str, Array]
    others: list[Array]
    places: tuple[tuple[Any, str, int], ...]
    structure: Any


def scan(
    body: Callable, carry: PyTree, length: int, num: Array | None = None
) -> tuple[PyTree, PyTree]:
    """Run ``jax.lax.scan`` without inputs; where launches are slow, scalars are kept together.

    The outputs' are one vector, and those of the carry follow the array before them in its tree.

    Args:
      body: ``(carry, None) -> (carry, outputs)``.
      carry: the value before the first iteration.
      length: number of iterations.
      num: if given, how many of them are run; the outputs of the others are zero.

    Example:
      >>> body = lambda number, _: (number + 1, {"number": number, "square": number**2})
      >>> number, outputs = scan(body, jnp.int32(1), 3)
      >>> int(number), outputs["square"].tolist()
      (4, [1, 4, 9])
      >>> number, outputs = scan(body, jnp.int32(1), 3, num=jnp.int32(2))
      >>> int(number), outputs["square"].tolist()
      (3, [1, 4, 0])
    """
    run = jax.lax.scan if num is None else functools.partial(_scan_some, num)
    if not rules().few_kernels:
        return run(body, carry, length=length)

    def packed_body(tied, _):
        carry, outputs = body(_untied(tied, groups, like), None)
        return _tied(carry, groups), _packed(outputs)

    like, groups = jax.eval_shape(lambda: carry), _groups(carry)
    tied, packed = run(packed_body, _tied(carry, groups), length=length)
    return _untied(tied, groups, like), _unpacked(packed)


def entrywise(function: Callable, *trees: PyTree) -> PyTree:
    """Apply a function of pytrees to arrays as ``scan`` carries them where launches are slow.

    An update of an array and of the scalars that follow it is then one kernel, in place.

    Args:
      function: a function of pytrees of one structure, entry by entry; it returns a tuple of them.
      *trees: its arguments.

    Example:
      >>> square = lambda x: (jax.tree.map(jnp.square, x),)
      >>> (found,) = entrywise(square, {"a": jnp.arange(3), "b": jnp.int32(3)})
      >>> found["a"].tolist(), int(found["b"])
      ([0, 1, 4], 9)
    """
    forms = list(map(_groups, trees))
    if not rules().few_kernels or forms != forms[:1] * len(trees):
        return function(*trees)
    like = jax.eval_shape(lambda: trees[0])
    found = function(*map(_tied, trees, forms))
    return tuple(_untied(each, forms[0], like) for each in found)


def _groups(carry: PyTree) -> list[int]:
    """Return how many leaves are one array: a small one, and scalars of its dtype behind it."""
    groups, before = [], None
    for leaf in jax.tree.leaves(carry):
        dtype = jnp.result_type(leaf)
        if before is not None and dtype == before and jnp.ndim(leaf) == 0:
            groups[-1] += 1
            continue
        extended = jnp.issubdtype(dtype, jax.dtypes.extended)
        before = dtype if jnp.ndim(leaf) and leaf.size <= _SMALL and not extended else None
        groups.append(1)
    return groups


def _tied(carry: PyTree, groups: list[int]) -> list[Array]:
    leaves = iter(jax.tree.leaves(carry))
    parts = [[next(leaves) for _ in range(number)] for number in groups]
    return [
        part[0] if len(part) == 1 else jnp.concatenate(list(map(jnp.ravel, part))) for part in parts
    ]


def _untied(tied: list[Array], groups: list[int], like: PyTree) -> PyTree:
    leaves, (shapes, structure) = [], jax.tree.flatten(like)
    for array, number in zip(tied, groups, strict=True):
        if number == 1:
            leaves.append(array)
            continue
        first = shapes[len(leaves)]
        scalars = [array[first.size + index] for index in range(number - 1)]
        leaves += [array[: first.size].reshape(first.shape), *scalars]
    return jax.tree.unflatten(structure, leaves)


def _scan_some(num: Array, body: Callable, carry: PyTree, length: int) -> tuple[PyTree, PyTree]:
    program, shapes = jax.make_jaxpr(lambda carry: body(carry, None), return_shape=True)(carry)
    structure, step = jax.tree.structure(shapes), core.jaxpr_as_fun(program)  # traced once
    outputs = jax.tree.map(lambda leaf: jnp.zeros((length, *leaf.shape), leaf.dtype), shapes[1])

    def one(index, so_far):
        carry, outputs = so_far
        carry, found = jax.tree.unflatten(structure, step(*jax.tree.leaves(carry)))
        return carry, jax.tree.map(lambda all, leaf: all.at[index].set(leaf), outputs, found)

    return jax.lax.fori_loop(0, jnp.minimum(num, length), one, (carry, outputs))


def _packed(outputs: PyTree) -> _Packed:
    leaves, structure = jax.tree.flatten(outputs)
    scalars: dict[str, list[Array]] = {}
    others, places = [], []
    for leaf in map(jnp.asarray, leaves):
        if leaf.ndim == 0 and not jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
            bits = leaf
            if leaf.dtype.itemsize == 4:
                bits = jax.lax.bitcast_convert_type(leaf, jnp.uint32)
            kind = str(bits.dtype)
            places.append((leaf.dtype, kind, len(scalars.setdefault(kind, []))))
            scalars[kind].append(bits)
        else:
            places.append((None, "", len(others)))
            others.append(leaf)
    vectors = {kind: jnp.stack(each) for kind, each in scalars.items()}
    return _Packed(vectors, others, tuple(places), structure)


def _unpacked(packed: _Packed) -> PyTree:
    """Return the outputs of all iterations, with their leading axis."""
    leaves = [
        packed.others[index] if dtype is None else _as_dtype(packed.vectors[kind][:, index], dtype)
        for dtype, kind, index in packed.places
    ]
    return jax.tree.unflatten(packed.structure, leaves)


def _as_dtype(bits: Array, dtype: Any) -> Array:
    return bits if bits.dtype == dtype else jax.lax.bitcast_convert_type(bits, dtype)


def joined(leaves: list[Array]) -> list[Array]:
    """Return the leaves; where launches are slow, the small ones of a dtype in one vector.

    Args:
      leaves: arrays whose entries are reduced by one function, in any order.
    """
    small: dict[str, list[Array]] = {}
    others = []
    for leaf in leaves:
        if rules().few_kernels and leaf.size <= _SMALL:
            small.setdefault(str(leaf.dtype), []).append(leaf.reshape(-1))
        else:
            others.append(leaf)
    return [jnp.concatenate(each) for each in small.values()] + others
