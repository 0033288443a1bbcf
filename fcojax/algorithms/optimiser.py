r"""Optimisers of optax inside of algorithms: states, steps, and steps beside a penalty.

A composite method moves a dual point z, with :math:`z - \nabla h(w) = T s` and s a subgradient of
psi at its model w. A gradient step is :math:`-\eta g = \eta s - \eta (g + s)`. The first part is a
move along the ray on which the model stays. The optimiser takes the place of the second alone: it
gets :math:`g + s`, a subgradient of F + psi, which vanishes at the minimiser. So the fixed points
are those of gradient steps, for every optimiser, penalty and mirror. An optimiser of g would need a
prox in its own metric, which optax does not tell, and which has a closed form per entry only.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from fcojax import tree
from fcojax.algorithms.base import Algorithm, Displacement, Public
from fcojax.arguments import shown
from fcojax.types import Array, Params, PyTree

# An optimiser, whose numbers are fixed, or a function of the hyperparameters that returns one.
Choose = optax.GradientTransformation | Callable[[Any], optax.GradientTransformation]


class Optimised(NamedTuple):
    """The server's state, a subgradient of psi at its model, and the state of its optimiser."""

    inner: PyTree
    subgradient: Params
    state: PyTree


class Corrected(NamedTuple):
    """A step of an optimiser, as a slope whose gradient step it is.

    Attributes:
      slope: minus the optimiser's step, minus ``pace`` times the subgradient of psi.
      pace: the weight of psi in this step, in units of its weight in a gradient step.
      state: the optimiser's next state.
    """

    slope: Params
    pace: Array
    state: PyTree


def corrected(
    side: str,
    chosen: Choose,
    hparams: Any,
    slope: Params,
    subgradient: Params,
    w: Params,
    state: PyTree,
) -> Corrected:
    """Return the step of an optimiser beside a penalty.

    Args:
      side: client or server, for error messages.
      chosen: the optimiser, with rate 1.
      hparams: the hyperparameters.
      slope: the gradient of F, or minus a displacement.
      subgradient: of psi at w, in the units of the slope.
      w: the model, whose norms some optimisers read.
      state: the optimiser's state.
    """
    ahead = as_dtype(tree.add(slope, subgradient), widest_dtype(w))
    updates, state = optimiser_updates(side, chosen, hparams, w, ahead, state)
    # The ray is followed as fast as the optimiser steps. If Adam took steps of 1,000 gradients
    # beside a weight of one, entries would jump over the interval in which they are zero.
    norms = tree.euclidean_norm(updates), tree.euclidean_norm(ahead)
    moves = (norms[0] > 0) & (norms[1] > 0)
    pace = jnp.where(moves, norms[0] / jnp.where(moves, norms[1], 1), 1)
    # For gradient steps `updates` is minus `ahead` and the pace 1: the slope keeps its bits.
    rest = tree.add(tree.add(updates, ahead), tree.scale(pace - 1, subgradient))
    return Corrected(jax.tree.map(lambda g, r: g - r.astype(g.dtype), slope, rest), pace, state)


def server_optimised(
    algorithm: Algorithm,
    chosen: Choose,
    subgradient: Callable[[Any, PyTree, PyTree, PyTree], Params],
    *,
    sends_subgradient: bool = False,
) -> Algorithm:
    """Return an algorithm that uploads a ``Displacement``, with an optimiser in the server's step.

    Args:
      algorithm: the algorithm.
      chosen: the optimiser, with rate 1.
      subgradient: ``(hparams, before, mean_upload, after) -> s``, a subgradient of psi at the model
        of the server's state ``after``.
      sends_subgradient: whether clients get ``(message, s)`` in place of the message.
    """

    def init(hparams, params):
        inner, client = algorithm.init(hparams, params)
        w = algorithm.model(hparams, inner)
        state = optimiser_state("server", chosen, hparams, w)
        return Optimised(inner, tree.zeros_like(w), state), client

    def broadcast(hparams, server):
        message = algorithm.broadcast(hparams, server.inner)
        return (message, server.subgradient) if sends_subgradient else message

    def server_update(hparams, server, mean_upload, fraction, key):
        w = algorithm.model(hparams, server.inner)
        share = tree.scale(mean_upload.elapsed.value, server.subgradient)
        slope = tree.scale(-1.0, mean_upload.params)
        step = corrected("server", chosen, hparams, slope, share, w, server.state)
        spent = step.pace.astype(mean_upload.elapsed.value.dtype) * mean_upload.elapsed.value
        upload = Displacement(tree.scale(-1.0, step.slope), Public(spent))
        inner = algorithm.server_update(hparams, server.inner, upload, fraction, key)
        return Optimised(inner, subgradient(hparams, server.inner, upload, inner), step.state)

    def model(hparams, server):
        return algorithm.model(hparams, server.inner)

    return algorithm._replace(
        init=init, broadcast=broadcast, server_update=server_update, model=model
    )


def optimiser_state(side: str, chosen: Choose, hparams: Any, params: Params) -> PyTree:
    """Return the state of an optimiser before its first step."""
    dtype = widest_dtype(params)
    with jax.numpy_dtype_promotion("standard"):
        optimiser = _optimiser(side, chosen, hparams, dtype)
        state = optimiser.init(as_dtype(params, dtype))
    if side == "client" and any(map(_is_key, jax.tree_util.tree_leaves_with_path(state))):
        raise ValueError(
            "the optimiser of the client draws random numbers from a seed, which would be the same "
            "for all clients; pass one without noise, and add noise with the plan's aggregator."
        )
    return state


def optimiser_updates(
    side: str, chosen: Choose, hparams: Any, w: Params, gradient: Params, state: PyTree
) -> tuple[Params, PyTree]:
    """Return what an optimiser adds to w, and its next state; both in the widest dtype of w."""
    dtype = widest_dtype(w)
    wide, gradient = as_dtype((w, gradient), dtype)
    # Optax raises traced decays to integer powers, which strict promotion refuses.
    with jax.numpy_dtype_promotion("standard"):
        optimiser = _optimiser(side, chosen, hparams, dtype)
        return optimiser.update(gradient, state, wide)


def _is_key(entry: tuple[tuple, Any]) -> bool:
    """Return whether a leaf of an optimiser's state is a PRNG key, typed or of plain integers."""
    path, leaf = entry
    is_typed = jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)
    return is_typed or getattr(path[-1] if path else None, "name", "") == "rng_key"


def _optimiser(side: str, chosen: Choose, hparams: Any, dtype: Any) -> optax.GradientTransformation:
    if callable(chosen):
        chosen = chosen(floats_as_dtype(hparams, dtype))
    if not isinstance(chosen, optax.GradientTransformation):
        raise ValueError(
            f"the optimiser of the {side} is {shown(chosen)}; pass one from optax, as in "
            f"{side}=optax.adam(0.01), or a function of hparams that returns one, as in "
            f"{side}=lambda h: optax.adam(h.{side}_lr)."
        )
    return chosen


def widest_dtype(params: Params) -> Any:
    """Return the widest dtype of a model's leaves, at least float32."""
    dtypes = [tree.mean_dtype(jnp.result_type(leaf)) for leaf in jax.tree.leaves(params)]
    return max(dtypes, key=lambda dtype: jnp.finfo(dtype).bits)


def as_dtype(numbers: PyTree, dtype: Any) -> PyTree:
    """Return the numbers as arrays of the given dtype."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(dtype), numbers)


def floats_as_dtype(numbers: PyTree, dtype: Any) -> PyTree:
    """Return the numbers, with floating-point ones in the given dtype."""

    def in_dtype(number):
        number = jnp.asarray(number)
        return number.astype(dtype) if jnp.issubdtype(number.dtype, jnp.floating) else number

    return jax.tree.map(in_dtype, numbers)
