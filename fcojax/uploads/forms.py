"""The forms of uploads and of states: which parts are public, and what must not change."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from fcojax.algorithms.base import Public
from fcojax.arguments import shown
from fcojax.types import Array, PyTree


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=[], meta_fields=["structure", "leaves"]
)
@dataclasses.dataclass(frozen=True)
class Form:
    """The structure of an upload, and the shapes of its arrays."""

    structure: Any
    leaves: tuple[jax.ShapeDtypeStruct, ...]

    def join(self, private: list, public: list) -> PyTree:
        """Return the upload of these private and public parts."""
        parts, structure = jax.tree.flatten(self.shapes(), is_leaf=_is_public)
        sources = {False: iter(private), True: iter(public)}
        return jax.tree.unflatten(structure, [next(sources[_is_public(part)]) for part in parts])

    def shapes(self) -> PyTree:
        """Return the shapes of the upload."""
        return jax.tree.unflatten(self.structure, self.leaves)


def split(upload: PyTree) -> tuple[list, list, Form]:
    """Return the private and the public parts of an upload, and its form."""
    # A public part may hold a whole subtree, which then bypasses the chain as one.
    parts = jax.tree.leaves(upload, is_leaf=_is_public)
    shapes, structure = jax.tree.flatten(jax.eval_shape(lambda upload: upload, upload))
    return (
        [part for part in parts if not _is_public(part)],
        [part for part in parts if _is_public(part)],
        Form(structure, tuple(shapes)),
    )


def _is_public(part: Any) -> bool:
    return isinstance(part, Public)


def require_same_form(function: str, before: PyTree, after: PyTree, noun: str = "state") -> None:
    """Raise ``ValueError`` unless a result has the structure, shapes and dtypes of an argument."""
    # As text: one comparison then covers structure, shapes and dtypes, and the message can print
    # both.
    expected, found = (
        jax.tree.map(lambda leaf: f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}", state)
        for state in (before, after)
    )
    if jax.tree.flatten(expected) != jax.tree.flatten(found):
        raise ValueError(
            f"{function} was given a {noun} of form {shown(expected)} and returned one of form "
            f"{shown(found)}; return the same structure, shapes and dtypes."
        )


def merged(theirs: dict[str, Array], ours: dict[str, Array], function: str) -> dict[str, Array]:
    """Merge the user's measures with the engine's; raise ``ValueError`` for a name in both."""
    taken = sorted(set(theirs) & set(ours))
    if taken:
        raise ValueError(
            f"{function} returns a measure called {taken[0]}, which the engine counts itself; "
            "choose another name."
        )
    return theirs | ours
