"""Where the clients of a run have been, step by step: what lemmas about local steps speak of."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.local import Batch, Local, Work
from fcojax.engine.check import check_run
from fcojax.engine.cohort import everyone
from fcojax.engine.round import Plan
from fcojax.engine.run import as_arrays, block, start
from fcojax.problems.clients import ClientData
from fcojax.types import Key, Params, PyTree


def local_points(
    algorithm: Algorithm,
    hparams: PyTree,
    params: Params,
    data: ClientData,
    key: Key,
    *,
    num_rounds: int,
    work: Work,
    read: Callable[[PyTree], Params] = lambda carry: carry,
) -> Params:
    """The points at which every client took its gradients, with axes [rounds, steps, clients].

    Runs on the device and is pure, so it can be mapped over keys. The run is the one that
    ``fcojax.run`` makes of the same arguments with everyone in every round.

    Args:
      algorithm: any whose clients call ``local.scan`` once.
      hparams: its hyperparameters.
      params: the start point.
      data: the clients.
      key: all the luck of the run.
      num_rounds: R.
      work: ``local_steps(...)``, the same number for all clients.
      read: the point in what the algorithm carries from one local step to the next.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_clients([{"a": np.zeros(1)}, {"a": np.ones(1)}])
      >>> fed_gd = fcojax.algorithms.fed_gd(lambda x, rows: (x - rows["a"]) ** 2 / 2)
      >>> hparams, work = fcojax.algorithms.fed_gd.Hparams(0.5), fcojax.local_steps(2)
      >>> start, key = jnp.array(0.0), jax.random.key(0)
      >>> local_points(fed_gd, hparams, start, data, key, num_rounds=2, work=work).tolist()
      [[[0.0, 0.0], [0.0, 0.5]], [[0.375, 0.375], [0.1875, 0.6875]]]
    """
    if work.num_steps is None:
        raise ValueError("work is in epochs; pass local_steps, so that all clients keep step.")
    plan = Plan(work, everyone())
    check_run(algorithm, plan, hparams, data, num_rounds, 1)
    watched = _watched(algorithm, work.num_steps, read)
    return _points(watched, plan, num_rounds, as_arrays(hparams), params, data, key)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _points(watched, plan, num_rounds, hparams, params, data, key):
    def one_round(state, _):
        state, _ = block(watched, plan, 1, hparams, data, state, key)
        _, points = state.clients
        return state, jax.tree.map(lambda leaf: leaf[: data.num_clients].swapaxes(0, 1), points)

    return jax.lax.scan(one_round, start(watched, hparams, params, data), length=num_rounds)[1]


class _Watched:
    """A client's handle whose scan also writes down where it has been."""

    def __init__(self, local: Local, points: Params, read: Callable[[PyTree], Params]):
        self._local, self._read, self.points = local, read, points

    def __getattr__(self, name):
        return getattr(self._local, name)

    def scan(self, step: Callable[[PyTree, Batch], PyTree], carry: PyTree) -> PyTree:
        def write_and_step(written, batch):
            carry, index, points = written
            now = self._read(carry)
            points = jax.tree.map(lambda rows, leaf: rows.at[index].set(leaf), points, now)
            return step(carry, batch), index + 1, points

        begin = (carry, jnp.zeros((), jnp.int32), self.points)
        carry, _, self.points = self._local.scan(write_and_step, begin)
        return carry


@functools.cache
def _watched(algorithm: Algorithm, num_steps: int, read) -> Algorithm:
    """The same algorithm, whose clients keep the points of their last round as a state."""

    def init(hparams, params):
        server, client = algorithm.init(hparams, params)
        points = jax.tree.map(lambda leaf: jnp.zeros((num_steps, *leaf.shape), leaf.dtype), params)
        return server, (client, points)

    def client_update(hparams, message, client, local, key):
        own, points = client
        watched: Any = _Watched(local, points, read)  # a Local in all that algorithms use
        result = algorithm.client_update(hparams, message, own, watched, key)
        return result._replace(state=(result.state, watched.points))

    return algorithm._replace(init=init, client_update=client_update)
