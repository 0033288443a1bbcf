"""Personal models: to read them, and to measure what each client gets."""

from typing import Any

import jax

from fcojax import State, StateObserver, look
from fcojax.algorithms import Algorithm
from fcojax.extend import memoised, validated
from fcojax.types import Params


def _models_of(algorithm: Algorithm, hparams: Any, state: State) -> Params:
    """Return the personal models of all clients, for use inside a ``StateObserver``.

    Args:
      algorithm: a personalised method, such as ``ditto(loss)``.
      hparams: its hyperparameters.
      state: the state of one run.
    """
    own = algorithm.client_model
    if own is None or not jax.tree.leaves(state.clients):
        raise ValueError(
            "the clients of this algorithm have no models of their own; use fcojax.read_model."
        )
    message = algorithm.broadcast(hparams, state.server)
    return jax.vmap(lambda client: own(hparams, message, client))(state.clients)


@validated
def read_models(algorithm: Algorithm, hparams: Any, state: State) -> Params:
    """Return the personal model of each client, from the current broadcast and the client's state.

    A client that has not taken part yet uses its first state.

    Args:
      algorithm: a personalised method, such as ``fcojax.algorithms.ditto(loss)``.
      hparams: its hyperparameters, or a grid of them.
      state: the state to read.

    Returns:
      The parameters with a leading axis of clients, after the axes [points, seeds] of a sweep.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_rows({"a": np.array([1.0, 3.0])}, [1, 1])
      >>> ditto = fcojax.algorithms.ditto(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> hparams, plan = ditto.hparams_type(client_lr=0.5), fcojax.local_steps(1)
      >>> state = fcojax.start(ditto, hparams, jnp.array(2.0), data, jax.random.key(0), plan)
      >>> read_models(ditto, hparams, state).tolist()
      [2.0, 2.0]
    """
    return look(algorithm, hparams, state, _observer(algorithm))["models"]


@memoised
def _observer(algorithm: Algorithm) -> StateObserver:
    return StateObserver(
        lambda hparams, state, context: {"models": _models_of(algorithm, hparams, state)}
    )
