"""Personal models: to read them, to measure what each client gets, and to start new clients."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike

from fcojax import State, StateObserver, local_steps, look
from fcojax.algorithms import Algorithm, mean_loss
from fcojax.arguments import validated
from fcojax.engine.members import local_handle
from fcojax.memo import memoised
from fcojax.problems import ClientData, WholeBatchLoss, client_means
from fcojax.problems.losses import Loss
from fcojax.types import Array, Count, Params, PyTree


def _model_of(algorithm: Algorithm, hparams: Any, state: State) -> Callable[[PyTree], Params]:
    """Return ``(client) -> params``, the model of a client by its state."""
    own = algorithm.client_model
    if own is None or not jax.tree.leaves(state.clients):
        raise ValueError(
            "the clients of this algorithm have no models of their own; use fcojax.read_model."
        )
    # With a compressed broadcast clients hold an estimate of the message.
    estimate = state.memory.broadcast
    message = estimate.message if estimate else algorithm.broadcast(hparams, state.server)
    return lambda client: own(hparams, message, client)


@validated
def read_models(algorithm: Algorithm, hparams: Any, state: State) -> Params:
    """Return the personal model of each client, from the current broadcast and the client's state.

    A client that has not taken part yet uses its first state. The parameters have a leading axis of
    clients, after the axes [points, seeds] of a sweep.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_clients([{"a": np.zeros(1)}, {"a": 4 * np.ones(1)}])
      >>> ditto = fcojax.algorithms.ditto(lambda w, rows: (w - rows["a"]) ** 2 / 2)
      >>> hparams, plan = ditto.hparams_type(client_lr=0.5), fcojax.local_steps(5)
      >>> state = fcojax.start(ditto, hparams, jnp.array(0.0), data, jax.random.key(0), plan)
      >>> state, _ = fcojax.advance(ditto, hparams, state, data, plan, num_rounds=50)
      >>> print(read_models(ditto, hparams, state).round(2))  # the common model is 2
      [1. 3.]
    """
    return look(algorithm, hparams, state, _observer(algorithm))["models"]


@memoised
def _observer(algorithm: Algorithm) -> StateObserver:
    return StateObserver(
        lambda hparams, state, context: {
            "models": jax.vmap(_model_of(algorithm, hparams, state))(state.clients)
        }
    )


@validated
def spread(name: str, values: ArrayLike, *, larger_is_better: bool = False) -> dict[str, Array]:
    """Return how a number per client is distributed over the clients; all clients count equally.

    ``NAME_p10``, ``NAME_p50`` and ``NAME_p90`` are the quantiles, and ``NAME_worst`` is the mean
    over the worst tenth of the clients, at least one.

    Example:
      >>> import numpy as np
      >>> found = spread("loss", np.arange(20.0))
      >>> {name: round(float(value), 2) for name, value in found.items()}
      {'loss_p10': 1.9, 'loss_p50': 9.5, 'loss_p90': 17.1, 'loss_worst': 18.5}
    """
    values = jnp.ravel(jnp.asarray(values))
    ordered = jnp.sort(values, descending=not larger_is_better)
    found = {f"{name}_p{share}": jnp.quantile(values, share / 100) for share in (10, 50, 90)}
    return found | {f"{name}_worst": jnp.mean(ordered[: -(-values.size // 10)])}


@validated
def by_client(
    algorithm: Algorithm,
    data: ClientData,
    function: Loss,
    *,
    name: str = "loss",
    larger_is_better: bool = False,
    alone: ArrayLike | None = None,
    vectors: bool = False,
    block: Count = 64,
) -> StateObserver:
    """Return an observer of what each client gets, for any algorithm.

    A client is measured at its personal model, or at the common model if there are no others. Each
    kind takes one pass over the data; personal models are evaluated in blocks of clients whose
    sizes differ by less than a factor of two, padded to the largest of them.

    Args:
      algorithm: the algorithm of the run.
      data: the rows on which clients are measured, such as validation rows, on one device; the
        clients are those of training, in the same order.
      function: one float per example, such as the loss; a client's value is its mean.
      name: the name of the value.
      larger_is_better: whether a larger value is better.
      alone: the values of the clients with models that they learn without the others.
      vectors: whether the history also has ``NAME_by_client``, all values.
      block: how many personal models are evaluated at once.

    Returns:
      An observer for ``fcojax.run``, ``sweep`` and ``look`` of the entries of ``spread``,
      ``NAME_mean``, and the shares of clients that gain more than rounding: ``NAME_gain`` over the
      common model, if the algorithm has personal models, and ``NAME_gain_alone``, with ``alone``.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_rows({"a": np.array([0.0, 0.0, 4.0])}, [1, 1, 1])
      >>> loss = lambda w, rows: 0.5 * (w - rows["a"]) ** 2
      >>> observe = by_client(fcojax.algorithms.ditto(loss), data, loss)
    """
    # Clients whose sizes have as many bits are padded to one size, which needs to know the sizes:
    # as an argument of a program, as in the launcher, they are traced.
    traced = isinstance(data.sizes, Tracer)
    sizes = np.full(data.num_clients, data.max_size) if traced else np.asarray(data.sizes)
    bits = np.frexp(sizes)[1]

    def at_common(hparams, state):
        common = algorithm.model(hparams, state.server)
        if isinstance(function, WholeBatchLoss):  # one client at a time
            return in_blocks(lambda place: common)
        return client_means(function(common, data.examples), data)

    def at_own(hparams, state):
        held = min((len(leaf) for leaf in jax.tree.leaves(state.clients)), default=data.num_clients)
        if held < data.num_clients:  # an index beyond the last would read the last
            raise ValueError(
                f"data has {data.num_clients} clients but the state {held}; pass the population of "
                "the run, and for fcojax.Stream call fcojax.look with the state that it returns."
            )
        own = _model_of(algorithm, hparams, state)
        return in_blocks(lambda place: own(jax.tree.map(lambda leaf: leaf[place], state.clients)))

    def in_blocks(model_of):
        values, order = [], []
        for kind in np.unique(bits):
            members = np.flatnonzero(bits == kind).astype(np.int32)
            largest = int(sizes[members].max())

            def one(place, largest=largest):
                key = jax.random.key(0)  # no row is drawn
                local = local_handle(data, local_steps(1), key, place, place, place, largest)
                return mean_loss(function)(model_of(place), local.full())

            values.append(jax.lax.map(one, jnp.asarray(members), batch_size=block))
            order.append(members)
        return jnp.concatenate(values)[np.argsort(np.concatenate(order))]

    def better(values, others):
        gains = values - others if larger_is_better else others - values
        # At equal models the two passes differ by rounding, which is no gain.
        rounding = 100 * jnp.finfo(gains.dtype).eps * jnp.abs(others)
        return jnp.mean(gains > rounding, dtype=jnp.result_type(float))

    def observe(hparams, state, context):
        has_own = algorithm.client_model is not None
        values = (at_own if has_own else at_common)(hparams, state)
        found = {f"{name}_mean": jnp.mean(values)}
        found |= spread(name, values, larger_is_better=larger_is_better)
        if has_own:
            found[f"{name}_gain"] = better(values, at_common(hparams, state))
        if alone is not None:
            found[f"{name}_gain_alone"] = better(values, jnp.asarray(alone, values.dtype))
        return found | ({f"{name}_by_client": values} if vectors else {})

    return StateObserver(observe)
