"""The points that the clients of a run visit, step by step, for lemmas about local steps."""

from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp

from fcojax import ClientData, StateObserver, advance, start
from fcojax.algorithms import Algorithm, Local, Work
from fcojax.arguments import validated
from fcojax.memo import memoised
from fcojax.types import Count, Key, Params, PyTree


@validated
def local_points(
    algorithm: Algorithm,
    hparams: PyTree,
    params: Params,
    data: ClientData,
    key: Key,
    plan: Work,
    *,
    num_rounds: Count,
    read: Callable[[PyTree], Params] = lambda carry: carry,
) -> Params:
    """Return the points at which every client took its gradients, [rounds, steps, clients].

    The function runs on the device and is pure, so it can be mapped over keys. The run equals
    ``fcojax.run`` of the same arguments, with every client in every round.

    Args:
      algorithm: an algorithm whose clients call ``local.scan`` once in a round.
      hparams: its hyperparameters.
      params: the start point.
      data: the clients.
      key: PRNG key of the run.
      plan: ``local_steps(...)``, the same number for all clients.
      num_rounds: R.
      read: extracts the point from the carry of ``local.scan``; by default the carry is the point.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_clients([{"a": np.zeros(1)}, {"a": np.ones(1)}])
      >>> fed_gd = fcojax.algorithms.fed_gd(lambda x, rows: (x - rows["a"]) ** 2 / 2)
      >>> hparams, work = fcojax.algorithms.fed_gd.Hparams(0.5), fcojax.local_steps(2)
      >>> start, key = jnp.array(0.0), jax.random.key(0)
      >>> local_points(fed_gd, hparams, start, data, key, work, num_rounds=2).tolist()
      [[[0.0, 0.0], [0.0, 0.5]], [[0.375, 0.375], [0.1875, 0.6875]]]
    """
    recording = _recording(algorithm, cast(int, plan.num_steps), read)
    state = start(recording, hparams, params, data, key, plan)
    _, history = advance(
        recording, hparams, state, data, plan, num_rounds=num_rounds, observe=_POINTS
    )
    return jax.tree.map(lambda leaf: leaf[:, : data.num_clients].swapaxes(1, 2), history["points"])


_POINTS = StateObserver(lambda hparams, state, context: {"points": state.clients[1]})


class _Recorder:
    """A client's handle whose ``scan`` also records the point before each step."""

    def __init__(self, local: Local, read: Callable):
        self._local, self._read, self.points = local, read, None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._local, name)

    def scan(self, step, carry, **options):
        carry, self.points = self._local.scan(
            step, carry, emit=lambda carry, batch: self._read(carry), **options
        )
        return carry


@memoised
def _recording(algorithm: Algorithm, num_steps: int, read: Callable) -> Algorithm:
    """The same algorithm, whose clients keep the points of their last round in their state."""

    def init(hparams, params):
        server, client = algorithm.init(hparams, params)
        points = jax.tree.map(lambda leaf: jnp.zeros((num_steps, *leaf.shape), leaf.dtype), params)
        return server, (client, points)

    def client_update(hparams, message, client, local, key):
        recorder = _Recorder(local, read)
        result = algorithm.client_update(hparams, message, client[0], cast(Local, recorder), key)
        return result._replace(state=(result.state, recorder.points))

    return algorithm._replace(init=init, client_update=client_update)
