r"""Asynchronous servers: a step for every B uploads, which may have begun at older models.

A server step is an ordinary round whose cohort is the next B clients to arrive. When they arrive
depends on their speeds alone, so the order is computed before the run, and an asynchronous run is
an ordinary one: one compiled program that sweeps, shards and resumes.

Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek and Huba, "Federated learning with buffered
asynchronous aggregation", AISTATS 2022 (FedBuff); for dual averaging "Federated dual averaging with
delayed gradients for composite optimization", Information Sciences 689, 2025.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import Sampler, from_trace, tree
from fcojax.algorithms import Algorithm, ClientResult, Known, NewRow
from fcojax.arguments import at_most, factory, validated
from fcojax.types import Array, Count, CountOrZero, NonNegative, NumberTree, PyTree


class Arrivals(NamedTuple):
    """The order in which clients arrive at an asynchronous server.

    Attributes:
      sampler: for each round the clients whose uploads arrive.
      seconds: when each server step is taken.
      staleness: the largest number of server steps between the start of a client and its arrival.

    Example:
      >>> import numpy as np
      >>> found = arrivals(np.array([1.0, 3.0]), buffer=1, num_rounds=4)
      >>> found.seconds.tolist(), found.staleness  # the second client arrives after three seconds
      ([1.0, 2.0, 3.0, 3.0], 3)
    """

    sampler: Sampler
    seconds: np.ndarray
    staleness: int


@validated
def arrivals(client_seconds: NumberTree, *, buffer: Count, num_rounds: Count) -> Arrivals:
    """Return the order of events if every client always works.

    The server takes a step when ``buffer`` uploads have arrived; their clients then start again
    from the new model. Clients that arrive at the same time come in the order of their indices.

    Args:
      client_seconds: the seconds of each client's work, from ``Clock.client_seconds``; of a trace
        row n has those of its n-th work.
      buffer: B, the number of uploads for a step.
      num_rounds: number of server steps.

    Example:
      >>> import numpy as np
      >>> arrivals(np.array([1.0, 3.0, 1.0]), buffer=2, num_rounds=2).seconds.tolist()
      [1.0, 2.0]
    """
    table = np.atleast_2d(np.asarray(client_seconds, float))
    num_clients = table.shape[1]
    at_most("buffer", buffer, num_clients, f" but there are {num_clients} clients")
    finish, works, started = table[0].copy(), *np.zeros((2, num_clients), int)
    now, ends, members, staleness = 0.0, [], [], 0
    for version in range(num_rounds):
        # Stable, so that ties come in the order of the indices.
        first = np.sort(np.argsort(finish, kind="stable")[:buffer])
        now = max(now, finish[first].max())
        staleness = max(staleness, version - int(started[first].min()))
        works[first] += 1
        started[first] = version + 1
        finish[first] = now + table[works[first] % len(table), first]
        ends.append(now)
        members.append(first)
    return Arrivals(from_trace(members), np.array(ends), staleness)


class Versions(NamedTuple):
    """The server's state: the algorithm's, its earlier messages, and the number of its steps."""

    server: PyTree
    past: PyTree
    version: Array


class Started(NamedTuple):
    """A client's state: the algorithm's, and the version from which it works."""

    client: PyTree
    version: Array


@factory
def asynchronous(
    algorithm: Algorithm, max_staleness: CountOrZero, power: NonNegative = 0.5
) -> Algorithm:
    r"""Return the algorithm with clients that work from the message of their last arrival.

    A client that takes part in a round uploads what it has computed from the message that the
    server sent after its last one, :math:`\tau` steps ago, with the weight
    :math:`(1 + \tau)^{-a}`; then it gets the new message. Run it with the sampler of ``arrivals``.
    ``fed_avg`` becomes FedBuff; in ``fed_dual_avg`` late duals add up, and the elapsed time grows
    with what has arrived. The history has the mean ``staleness``.

    The server keeps its last ``max_staleness`` messages. A later upload counts as zero, and its
    client keeps its state and starts again. Fast clients arrive more often, as with every unequal
    participation: ``Plan(correct="known")`` corrects for it. With ``power`` above zero they still
    count more, because the uploads of slow clients are older.

    Args:
      algorithm: any that does not need everyone. If its clients keep states, ``power`` has to be
        zero: their sum on the server would not be that of weighted uploads.
      max_staleness: the largest :math:`\tau` that counts, such as ``Arrivals.staleness``.
      power: a; 0 for equal weights, without which the limit favours fast clients.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> from fcojax import clock
      >>> data = fcojax.from_rows({"a": np.array([1.0, 3.0])}, [1, 1])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> order = clock.arrivals(np.array([1.0, 3.0]), buffer=1, num_rounds=4)
      >>> late = clock.asynchronous(fed_avg, order.staleness)
      >>> w, history = fcojax.run(
      ...     late, fed_avg.hparams_type(client_lr=0.5), jnp.array(0.0), data, jax.random.key(0),
      ...     fcojax.Plan(fcojax.local_steps(1), order.sampler), num_rounds=4, eval_every=1)
      >>> history["staleness"].tolist(), float(w)
      ([0.0, 0.0, 0.0, 3.0], 1.625)
    """
    if algorithm.needs_everyone:
        raise ValueError(
            "the algorithm needs all clients in every round, which an asynchronous server does not "
            "wait for; pass another, such as fed_dual_avg."
        )
    size = max(max_staleness, 1)

    def init(hparams, params):
        server, client = algorithm.init(hparams, params)
        if power and jax.tree.leaves(client):
            raise ValueError(
                "clients of this algorithm keep states, whose sum the server would weigh; pass "
                "power=0."
            )
        message = algorithm.broadcast(hparams, server)
        past = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (size, *jnp.shape(leaf))), message)
        zero = jnp.zeros((), jnp.int32)
        return Versions(server, past, zero), Started(client, zero)

    def broadcast(hparams, state):
        # The message of this version is not among the past ones: all of them would be copied to
        # insert it.
        message = algorithm.broadcast(hparams, state.server)
        return message, Known((state.past, state.version))

    def client_update(hparams, message, client, local, key):
        newest, known = message
        past, version = known.value
        # Below zero only after a step that was refused.
        late = jnp.maximum(version - client.version, 0)
        place = (version - late) % size

        def started_from(new, ring):
            return jnp.where(late == 0, new, jax.lax.dynamic_index_in_dim(ring, place, 0, False))

        own = jax.tree.map(started_from, newest, past)
        result = algorithm.client_update(hparams, own, client.client, local, key)
        counts, number = late <= max_staleness, late.astype(float)
        weight = jnp.where(counts, (1 + number) ** -power, 0)
        state = Started(tree.where(counts, result.state, client.client), version + 1)
        upload = tree.scale(weight, result.upload)
        return ClientResult(state, upload, result.metrics | {"staleness": number})

    def server_update(hparams, state, mean, fraction, key):
        server = algorithm.server_update(hparams, state.server, mean, fraction, key)
        place, message = state.version % size, algorithm.broadcast(hparams, state.server)
        past = jax.tree.map(lambda new: NewRow(place, jnp.asarray(new)), message)
        return Versions(server, past, state.version + 1)

    def sent(hparams, before, after):
        return algorithm.sent(hparams, before.server, after.server)

    own_model = algorithm.client_model

    def client_model(hparams, message, client):
        assert own_model is not None
        return own_model(hparams, message[0], client.client)

    return algorithm._replace(
        init=init,
        broadcast=broadcast,
        client_update=client_update,
        server_update=server_update,
        model=lambda hparams, state: algorithm.model(hparams, state.server),
        sent=sent,
        client_model=None if own_model is None else client_model,
    )
