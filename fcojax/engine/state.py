"""All that a run needs to go on, and who may look at it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from fcojax.engine import axes
from fcojax.problems.clients import ClientData
from fcojax.types import Array, Params, PyTree


class OfState(NamedTuple):
    """An observer of the whole state, where the model alone does not tell enough.

    Attributes:
      function: ``(hparams, state, context) -> dict``.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> from fcojax.transforms import euclidean, l1
      >>> data = fcojax.from_rows({"a": np.arange(6.0)}, [1, 2, 3])
      >>> algorithm = fcojax.algorithms.fed_dual_avg(lambda w, rows: w * rows["a"], euclidean(l1()))
      >>> hparams, plan = algorithm.hparams_type(), fcojax.local_steps(1)
      >>> state = fcojax.start(algorithm, hparams, jnp.array(2.0), data, jax.random.key(0), plan)
      >>> dual = fcojax.OfState(lambda hparams, state, context: {"dual": state.server.dual})
      >>> float(fcojax.look(algorithm, hparams, state, dual)["dual"])
      2.0
    """

    function: Callable[[PyTree, Any, PyTree], dict[str, Array]]


Observe = Callable[[PyTree, Params, PyTree], dict[str, Array]] | OfState


class State(NamedTuple):
    """All that a run needs to go on.

    The state of a sweep has axes [seeds, points] in front of ``server``, ``clients``, ``residuals``
    and ``bound``, and [seeds] in front of ``key``. The round is one number for all of them, and a
    seed's key one for all points, so that points share their cohorts and minibatches.

    Attributes:
      server: the algorithm's server state.
      clients: one row of the algorithm's client state per client.
      residuals: one row of what the uplink keeps per client.
      round: how many rounds are behind it.
      key: all the luck of the run.
      bound: the norm that the plan's guard lets uploads have; nothing without a guard.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_rows({"a": np.arange(6.0)}, [1, 2, 3])
      >>> algorithm = fcojax.algorithms.scaffold(lambda w, rows: rows["a"] @ w)
      >>> state = fcojax.start(
      ...     algorithm, algorithm.hparams_type(), jnp.zeros(4), data, jax.random.key(0),
      ...     fcojax.local_steps(1))
      >>> int(state.round), state.clients.shape  # a control variate for each of three clients
      (0, (3, 4))
    """

    server: PyTree
    clients: PyTree
    residuals: PyTree
    round: Any  # an array; of the same type, a tree of axes or of placements has them instead
    key: Any
    bound: Any = ()


# Which parts of a sweep's state have which axes in front.
ALONG = State(axes.OWN, axes.OWN, axes.OWN, axes.SHARED, axes.PER_SEED, axes.OWN)


def laid_out(state: State, data: ClientData, leading: tuple) -> State:
    """The first state on its mesh as ``advance`` leaves those that follow.

    Else the second block of rounds would be another program than the first. ``leading`` says along
    which axis of the mesh those in front of a run's own are cut.
    """
    mesh = data.mesh
    if mesh is None:
        return state
    leading = tuple(axis if axis in mesh.shape else None for axis in leading)

    def put(part, *spec):
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
        return jax.tree.map(lambda leaf: jax.lax.with_sharding_constraint(leaf, sharding), part)

    rows = (*leading, *data.shard_spec)
    return state._replace(
        server=put(state.server, *leading),
        clients=put(state.clients, *rows),
        residuals=put(state.residuals, *rows),
        round=put(state.round),
        bound=put(state.bound, *leading),
    )
