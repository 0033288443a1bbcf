"""Kinds of losses: random ones, those that couple examples, and those of linear models.

A loss with a method ``further`` is called with what that returns for the batch of a local step.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fcojax.types import Array, Key, Params, PyTree


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

    def further(self, batch: Any) -> tuple[Key]:
        """Return what it takes of a batch of a local step."""
        return (batch.key,)


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

    def further(self, batch: Any) -> tuple[Array]:
        """Return what it takes of a batch; raise ``ValueError`` for a minibatch."""
        if batch.is_part:
            raise ValueError(
                f"the loss is a WholeBatchLoss but the batch has {batch.weights.shape[0]} of the "
                "client's examples; pass batch_size=None."
            )
        return (batch.weights,)


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
