"""Where the clients of a run have been, step by step: what lemmas about local steps speak of."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

from fcojax.algorithms.base import Algorithm
from fcojax.algorithms.local import Local
from fcojax.algorithms.work import Work
from fcojax.engine.state import OfState
from fcojax.engine.stepper import advance, start
from fcojax.memo import memoised
from fcojax.problems.clients import ClientData
from fcojax.types import Key, Params, PyTree


def local_points(
    algorithm: Algorithm,
    hparams: PyTree,
    params: Params,
    data: ClientData,
    key: Key,
    plan: Work,
    *,
    num_rounds: int,
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
      plan: ``local_steps(...)``, the same number for all clients.
      num_rounds: R.
      read: the point in what the algorithm carries from one local step to the next.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_clients([{"a": np.zeros(1)}, {"a": np.ones(1)}])
      >>> fed_gd = fcojax.algorithms.fed_gd(lambda x, rows: (x - rows["a"]) ** 2 / 2)
      >>> hparams, work = fcojax.algorithms.fed_gd.Hparams(0.5), fcojax.local_steps(2)
      >>> start, key = jnp.array(0.0), jax.random.key(0)
      >>> local_points(fed_gd, hparams, start, data, key, work, num_rounds=2).tolist()
      [[[0.0, 0.0], [0.0, 0.5]], [[0.375, 0.375], [0.1875, 0.6875]]]
    """
    if plan.num_steps is None:
        raise ValueError("the work is in epochs; pass local_steps, so that all clients keep step.")
    watched = _watched(algorithm, plan.num_steps, read)
    state = start(watched, hparams, params, data, key, plan)
    _, history = advance(watched, hparams, data, state, plan, num_rounds, observe=_SEEN)
    return jax.tree.map(lambda leaf: leaf[:, : data.num_clients].swapaxes(1, 2), history["points"])


def _points_of(hparams, state, context):
    _, points = state.clients
    return {"points": points}


_SEEN = OfState(_points_of)


@dataclasses.dataclass(frozen=True)
class _Watched(Local):
    """A client's handle that also writes down the point before each of its steps."""

    read: Callable | None = None
    trail: list = dataclasses.field(default_factory=list)

    def scan(self, step, carry, **options):
        assert self.read is not None
        read = self.read
        carry, points = super().scan(step, carry, emit=lambda at, batch: read(at), **options)
        self.trail.append(points)
        return carry


@memoised
def _watched(algorithm: Algorithm, num_steps: int, read) -> Algorithm:
    """The same algorithm, whose clients keep the points of their last round as a state."""

    def init(hparams, params):
        server, client = algorithm.init(hparams, params)
        points = jax.tree.map(lambda leaf: jnp.zeros((num_steps, *leaf.shape), leaf.dtype), params)
        return server, (client, points)

    def client_update(hparams, message, client, local, key):
        fields = {field.name: getattr(local, field.name) for field in dataclasses.fields(local)}
        watched = _Watched(**fields, read=read)
        own, _ = client
        result = algorithm.client_update(hparams, message, own, watched, key)
        (points,) = watched.trail
        return result._replace(state=(result.state, points))

    return algorithm._replace(init=init, client_update=client_update)
