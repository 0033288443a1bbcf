"""Losses: one number per example, from the parameters and a batch of examples."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

from fcojax import tree
from fcojax.arguments import shown
from fcojax.types import Array, Key, Params, PyTree
from fcojax.xla.jaxprs import fast_inside_loops

Loss = Callable[[Params, PyTree], Array]  # (params, examples) -> one loss per example


@dataclasses.dataclass(frozen=True)
class RandomLoss:
    """A loss that draws random numbers in training, as dropout does.

    In a local step it is called with the batch's key, a different one for each client, step and
    round. Where a point is evaluated, the key is ``None`` and the loss must not draw.

    Attributes:
      function: ``(params, examples, key) -> one loss per example``.

    Example:
      >>> def noisy(w, rows, key):
      ...     return rows * w if key is None else rows * (w + jax.random.normal(key))
      >>> RandomLoss(noisy)(2.0, jnp.array([1.0, 3.0])).tolist()
      [2.0, 6.0]
    """

    function: Callable[[Params, PyTree, Key | None], Array]

    def __call__(self, params: Params, examples: PyTree, key: Key | None = None) -> Array:
        return self.function(params, examples, key)


@dataclasses.dataclass(frozen=True)
class WholeBatchLoss:
    """A loss that couples the examples of a client, such as a partial likelihood.

    It needs all examples of a client at once, so minibatches are refused. The loss of an example
    may depend on all examples of its client with a weight above 0.

    Attributes:
      function: ``(params, examples, weights) -> one loss per example``; the weight of an example
        that is padding, or excluded, is 0.

    Example:
      >>> def off_mean(w, rows, weights):
      ...     return (rows - w - jnp.sum(weights * rows) / jnp.sum(weights)) ** 2
      >>> WholeBatchLoss(off_mean)(0.0, jnp.array([1.0, 3.0])).tolist()
      [1.0, 1.0]
    """

    function: Callable[[Params, PyTree, Array], Array]

    def __call__(self, params: Params, examples: PyTree, weights: Array | None = None) -> Array:
        if weights is None:
            weights = jnp.ones(jax.tree.leaves(examples)[0].shape[0])
        return self.function(params, examples, weights)


@dataclasses.dataclass(frozen=True)
class LinearLoss:
    """A loss of a linear model: it reads the features only through their product with the kernel.

    So its gradient in the kernel is a combination of the rows ``x``, and local steps may be taken
    in coordinates of the rows; see ``fcojax.algorithms.linear_steps``.

    Attributes:
      function: ``(params, examples) -> one loss per example``, which uses ``examples["x"]`` and the
        kernel, which is ``params["kernel"]`` or ``params`` itself, in ``x @ kernel`` alone. With a
        ridge it has another argument ``ridge``.
      ridge: rho, for a term ``rho / 2 |params|^2`` of each loss; only if ``params`` is the kernel.

    Example:
      >>> squares = LinearLoss(lambda w, rows: (rows["x"] @ w - rows["y"]) ** 2)
      >>> squares(jnp.ones(2), {"x": jnp.eye(2), "y": jnp.zeros(2)}).tolist()
      [1.0, 1.0]
    """

    function: Callable[..., Array]
    ridge: float = 0.0

    def __call__(self, params: Params, examples: PyTree) -> Array:
        further = {"ridge": self.ridge} if self.ridge else {}
        return self.function(params, examples, **further)


def losses_of(
    loss: Loss,
    params: Params,
    examples: PyTree,
    key: Key | None = None,
    weights: Array | None = None,
) -> Array:
    """Evaluate a loss; raise ``ValueError`` at trace time unless it is one float per example.

    ``key`` is for a ``RandomLoss`` in training, and ``weights`` for a ``WholeBatchLoss``.
    """
    num_examples = jax.tree.leaves(examples)[0].shape[0]
    further = tuple(extra for extra in (key, weights) if extra is not None)
    try:
        losses = fast_inside_loops(loss)(params, examples, *further)
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
