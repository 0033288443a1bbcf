"""Personal models: to read them, to measure what each client gets, and to start new clients."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from fcojax import State, StateObserver, local_steps, look
from fcojax.algorithms import Algorithm, mean_loss
from fcojax.extend import Loss, local_handle, memoised, validated
from fcojax.problems import ClientData, WholeBatchLoss, client_means
from fcojax.types import Array, Count, Params


def _models_of(algorithm: Algorithm, hparams: Any, state: State) -> Params:
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


@validated
def spread(name: str, values: ArrayLike, *, larger_is_better: bool = False) -> dict[str, Array]:
    """Return how a number per client is distributed over the clients; all clients count equally.

    Args:
      name: the beginning of the names.
      values: one number for each client.
      larger_is_better: whether the worst clients are those of the smallest values.

    Returns:
      ``NAME_p10``, ``NAME_p50`` and ``NAME_p90``, the quantiles, and ``NAME_worst``, the mean over
      the worst tenth of the clients, at least one.

    Example:
      >>> import numpy as np
      >>> found = spread("loss", np.arange(20.0))
      >>> {name: round(float(value), 2) for name, value in found.items()}
      {'loss_p10': 1.9, 'loss_p50': 9.5, 'loss_p90': 17.1, 'loss_worst': 18.5}
    """
    values = jnp.asarray(values)
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
    clients: Sequence[int] | np.ndarray | None = None,
    vectors: bool = False,
    block: Count = 64,
) -> StateObserver:
    """Return an observer of what each client gets, for any algorithm.

    A client is measured at its personal model, or at the common model if the algorithm has no
    personal ones. The common model is evaluated in one pass over the data, and personal models in
    a second one, in blocks of clients that are padded to the largest client.

    Args:
      algorithm: the algorithm of the run.
      data: the rows on which clients are measured, such as validation rows: the same clients in the
        same order as in training, on one device.
      function: ``(params, examples) -> one float per example``, such as the loss, or 1.0 where a
        prediction is right; a client's value is its mean.
      name: the name of the value.
      larger_is_better: whether a larger value is better.
      alone: the values of the clients with models that they learn without the others.
      clients: indices of the clients to measure, for large populations; all by default. Vectors
        have them in ascending order.
      vectors: whether the history also has ``NAME_by_client``, all values.
      block: how many personal models are evaluated at once.

    Returns:
      An observer for ``fcojax.run``, ``sweep`` and ``look`` of the entries of ``spread``,
      ``NAME_mean``, and the shares of clients that gain more than rounding: ``NAME_gain`` over the
      common model, if the algorithm has personal models, and ``NAME_gain_alone``, with ``alone``.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_rows({"a": np.array([0.0, 0.0, 4.0])}, [1, 1, 1])
      >>> loss = lambda w, rows: 0.5 * (w - rows["a"]) ** 2
      >>> ditto = fcojax.algorithms.ditto(loss)
      >>> _, history = fcojax.run(
      ...     ditto, ditto.hparams_type(client_lr=0.5), jnp.array(0.0), data, jax.random.key(0),
      ...     fcojax.local_steps(5), num_rounds=20, eval_every=20,
      ...     observe=by_client(ditto, data, loss))
      >>> {key: round(float(history[key][-1]), 2) for key in ("loss_worst", "loss_gain")}
      {'loss_worst': 0.89, 'loss_gain': 1.0}
    """
    rows = np.unique(np.arange(data.num_clients) if clients is None else clients)
    chosen = data if clients is None else data.select(rows)
    places = jnp.arange(rows.size, dtype=jnp.int32)

    def each(hparams, state):
        """Return the values at the personal models, and those at the common model."""
        common = algorithm.model(hparams, state.server)
        if isinstance(function, WholeBatchLoss):  # one client at a time
            shared = in_blocks(lambda model: common, places)
        else:
            shared = client_means(function(common, chosen.examples), chosen)
        if algorithm.client_model is None:
            return shared, None
        held = min((len(leaf) for leaf in jax.tree.leaves(state.clients)), default=data.num_clients)
        if held < data.num_clients:  # an index beyond the last would read the last
            raise ValueError(
                f"data has {data.num_clients} clients but the state {held}; pass the population of "
                "the run, and for fcojax.Stream call fcojax.look with the state that it returns."
            )
        clients = jax.tree.map(lambda leaf: leaf[rows], state.clients)
        models = _models_of(algorithm, hparams, state._replace(clients=clients))
        return in_blocks(lambda model: model, models), shared

    def in_blocks(model_of, models):
        def one(pair):
            place, model = pair
            key = jax.random.key(0)  # no row is drawn
            local = local_handle(chosen, local_steps(1), key, place, place, place)
            return mean_loss(function)(model_of(model), local.full())

        return jax.lax.map(one, (places, models), batch_size=block)

    def better(values, others):
        gains = values - others if larger_is_better else others - values
        # At equal models the two passes differ by rounding, which is no gain.
        rounding = 100 * jnp.finfo(gains.dtype).eps * jnp.abs(others)
        return jnp.mean(gains > rounding, dtype=jnp.result_type(float))

    def observe(hparams, state, context):
        values, shared = each(hparams, state)
        found = {f"{name}_mean": jnp.mean(values)}
        found |= spread(name, values, larger_is_better=larger_is_better)
        if shared is not None:
            found[f"{name}_gain"] = better(values, shared)
        if alone is not None:
            found[f"{name}_gain_alone"] = better(values, jnp.asarray(alone, values.dtype))
        return found | ({f"{name}_by_client": values} if vectors else {})

    return StateObserver(observe)
