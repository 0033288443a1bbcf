"""Losses: one number per example, from the parameters and a batch of examples."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import shown
from fcojax.types import Array, Params, PyTree
from fcojax.xla.loops import rewritten

Loss = Callable[[Params, PyTree], Array]  # (params, examples) -> one loss per example


def losses_of(loss: Loss, params: Params, examples: PyTree, *further: Array) -> Array:
    """Evaluate a loss; raise ``ValueError`` at trace time unless it is one float per example.

    Losses of some kinds take further arguments; see ``fcojax.problems.loss_kinds``.
    """
    num_examples = jax.tree.leaves(examples)[0].shape[0]
    try:
        losses = rewritten(loss)(params, examples, *further)
    except Exception as error:
        error.add_note(
            f"The loss was called with params {_shapes(params)} and examples {_shapes(examples)}; "
            "the start point must have the structure that the loss takes."
        )
        raise
    shape = getattr(losses, "shape", None)
    if shape != (num_examples,):
        found = f"a {type(losses).__name__}" if shape is None else f"shape {shape}"
        raise ValueError(
            f"the loss returned {found} for {num_examples} examples; return one number per "
            f"example, shape ({num_examples},). The library takes the weighted mean: "
            "remove a mean or sum over the examples, and check for labels or parameters of shape "
            "(n, 1), which broadcast."
        )
    if not jnp.issubdtype(losses.dtype, jnp.floating):
        raise ValueError(
            f"the loss returned dtype {losses.dtype}; return floating-point numbers, which can be "
            "averaged and differentiated."
        )
    return losses


def _shapes(arrays: PyTree) -> str:
    """Describe a pytree by the dtypes and shapes of its arrays."""
    shapes = jax.tree.map(lambda leaf: f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}", arrays)
    return shown(shapes).replace("'", "")


def require_floats(params: PyTree) -> None:
    """Raise ``ValueError`` unless all parameters are floating-point numbers."""
    for name, leaf in tree.by_field([params]):
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.inexact):
            field = "params" if name == "examples" else f"params.{name}"
            raise ValueError(
                f"{field} has dtype {jnp.result_type(leaf)}; pass floats, which a gradient step "
                "can move."
            )
