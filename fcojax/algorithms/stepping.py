"""Steps of clients or of the server with an optimiser, and the prox in its metric.

Steps, hyperparameters and the optimiser's state have the widest dtype of the model, at least
float32; only the model is rounded to its own dtypes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fcojax import tree
from fcojax.algorithms.optimisers import Optimiser, from_optax
from fcojax.arguments import shown
from fcojax.transforms.calculus.per_entry import prox_per_entry
from fcojax.transforms.penalty import Penalty, steps_like
from fcojax.types import Params, PyTree, Scalar

Chosen = Optimiser | optax.GradientTransformation


class Side(NamedTuple):
    """The optimiser and the penalty of the clients or of the server.

    Attributes:
      name: ``"client"`` or ``"server"``.
      choose: an optimiser of ``fcojax.algorithms.optimisers`` or optax, or ``(hparams) ->`` one.
      penalty: psi, or ``None``; its strength is ``penalty_scale``.
    """

    name: str
    choose: Chosen | Callable[[Any], Chosen]
    penalty: Penalty | None

    def init(self, hparams: Any, params: Params) -> PyTree:
        """The state of the optimiser before its first step."""
        dtype = widest_dtype(params)
        optimiser = self._optimiser(hparams, dtype)
        self._prox(optimiser)
        return optimiser.init(cast(params, dtype))

    def step(
        self, hparams: Any, w: Params, gradient: Params, weight: Scalar, state: PyTree
    ) -> tuple[Params, PyTree]:
        """Return the point after one step from w, and the optimiser's next state.

        Args:
          hparams: the hyperparameters.
          w: the point.
          gradient: the gradient at w.
          weight: the weight of psi against the gradient.
          state: the optimiser's state.
        """
        dtype = widest_dtype(w)
        optimiser = self._optimiser(hparams, dtype)
        wide, gradient, weight = cast((w, gradient, weight), dtype)
        step, state = optimiser.update(gradient, weight, state, wide)
        rates = steps_like(wide, step.rates)
        moved = jax.tree.map(lambda x, s, m: x - s * m, wide, rates, step.direction)
        if prox := self._prox(optimiser):
            steps = jax.tree.map(lambda s: s * step.weight, step.rates)
            moved = prox(moved, steps, hparams.penalty_scale)
        return jax.tree.map(lambda new, old: new.astype(old.dtype), moved, w), state

    def _optimiser(self, hparams: Any, dtype: Any) -> Optimiser:
        chosen = self.choose
        if callable(chosen):
            chosen = chosen(cast_floats(hparams, dtype))
        if isinstance(chosen, optax.GradientTransformation):
            return from_optax(chosen)
        if not isinstance(chosen, Optimiser):
            raise ValueError(
                f"the optimiser of the {self.name} is {shown(chosen)}; pass one of optax, as in "
                f"{self.name}=optax.adam(0.01), or a function of hparams that returns one, as in "
                f"{self.name}=lambda h: optax.adam(h.{self.name}_lr)."
            )
        return chosen

    def _prox(self, optimiser: Optimiser) -> Callable[..., Params] | None:
        """The penalty's prox in the metric of the optimiser."""
        if self.penalty is None:
            return None
        if optimiser.metric == "unknown":
            raise ValueError(
                f"the optimiser of the {self.name} is one of optax, whose metric is unknown, so "
                "its prox would have a wrong limit; pass one of fcojax.algorithms.optimisers, or "
                f"{self.name}_prox=False."
            )
        if optimiser.metric == "scalar":
            return self.penalty.prox
        return prox_per_entry(self.penalty, f"the optimiser of the {self.name}")


def widest_dtype(params: Params) -> Any:
    """The widest dtype of a model's leaves, at least float32."""
    dtypes = [tree.mean_dtype(jnp.result_type(leaf)) for leaf in jax.tree.leaves(params)]
    return max(dtypes, key=lambda dtype: jnp.finfo(dtype).bits)


def cast(numbers: PyTree, dtype: Any) -> PyTree:
    """Return the numbers in a dtype."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(dtype), numbers)


def cast_floats(numbers: PyTree, dtype: Any) -> PyTree:
    """The numbers, with floating-point ones in the given dtype."""

    def cast(number):
        number = jnp.asarray(number)
        return number.astype(dtype) if jnp.issubdtype(number.dtype, jnp.floating) else number

    return jax.tree.map(cast, numbers)
