r"""Asynchronous servers: a step for every B uploads, which may have begun at older models.

A server step is an ordinary round whose cohort is the next B clients to arrive. When they arrive
depends on their speeds alone, so the order is computed before the run, and an asynchronous run is
an ordinary one: one compiled program that sweeps, shards and resumes.

Nguyen, Malik, Zhan, Yousefpour, Rabbat, Malek and Huba, "Federated learning with buffered
asynchronous aggregation", AISTATS 2022 (FedBuff); for dual averaging "Federated dual averaging with
delayed gradients for composite optimization", Information Sciences 689, 2025.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import Sampler, from_trace, tree
from fcojax.algorithms import Algorithm, Known, NewRow
from fcojax.arguments import at_most, factory, validated
from fcojax.types import Count, CountOrZero, NonNegative, NumberTree, PyTree


class Arrivals(NamedTuple):
    """The order in which clients arrive at an asynchronous server.

    Attributes:
      sampler: for each round the clients whose uploads arrive.
      seconds: when each server step is taken.
      members: the clients of ``sampler``, [rounds, buffer].
      ages: for each of them the number of server steps between its start and its arrival.
      left_out: for each round the number of uploads that came too late to count.

    Example:
      >>> import numpy as np
      >>> found = arrivals(np.array([1.0, 3.0]), buffer=1, num_rounds=4)
      >>> found.seconds.tolist(), found.staleness  # the second client arrives after three seconds
      ([1.0, 2.0, 3.0, 3.0], 3)
    """

    sampler: Sampler
    seconds: np.ndarray
    members: np.ndarray
    ages: np.ndarray
    left_out: np.ndarray

    example = "clock.arrivals(seconds, buffer=2, num_rounds=40)"

    @property
    def staleness(self) -> int:
        """The largest number of server steps between the start of a client and its arrival."""
        return int(self.ages.max())


@validated
def arrivals(
    client_seconds: NumberTree,
    *,
    buffer: Count,
    num_rounds: Count,
    max_staleness: CountOrZero | None = None,
) -> Arrivals:
    """Return the order of events if every client always works.

    The server takes a step when ``buffer`` uploads have arrived; their clients then start again
    from the new model. Clients that arrive at the same time come in the order of their indices. An
    upload that is too late is left out and does not fill the buffer, and its client starts again at
    once.

    Args:
      client_seconds: the seconds of each client's work, from ``Clock.client_seconds``; of a trace
        row n has those of its n-th work.
      buffer: B, the number of uploads for a step.
      num_rounds: number of server steps.
      max_staleness: the largest number of server steps since the start of a client after which its
        upload counts; ``None`` for any.

    Example:
      >>> import numpy as np
      >>> arrivals(np.array([1.0, 3.0, 1.0]), buffer=2, num_rounds=2).seconds.tolist()
      [1.0, 2.0]
      >>> arrivals(np.array([1.0, 3.0]), buffer=1, num_rounds=4, max_staleness=2).left_out.tolist()
      [0, 0, 0, 1]
    """
    table = np.atleast_2d(np.asarray(client_seconds, float))
    num_clients = table.shape[1]
    at_most("buffer", buffer, num_clients, f" but there are {num_clients} clients")
    most = num_rounds if max_staleness is None else max_staleness
    finish, works, started = table[0].copy(), *np.zeros((2, num_clients), int)
    now, ends, members, ages, left_out = 0.0, [], [], [], np.zeros(num_rounds, int)
    for version in range(num_rounds):
        while True:
            # Stable, so that ties come in the order of the indices.
            first = np.sort(np.argsort(finish, kind="stable")[:buffer])
            late = first[version - started[first] > most]
            if not late.size:
                break
            works[late] += 1
            started[late] = version
            finish[late] += table[works[late] % len(table), late]
            left_out[version] += late.size
        now = max(now, finish[first].max())
        ages.append(version - started[first])
        works[first] += 1
        started[first] = version + 1
        finish[first] = now + table[works[first] % len(table), first]
        ends.append(now)
        members.append(first)
    drawn = np.array(members, np.int32), np.array(ages, np.int32)
    return Arrivals(from_trace(members), np.array(ends), *drawn, left_out)


class Versions(NamedTuple):
    """The server's state: the algorithm's, its earlier messages, and the number of its rounds."""

    server: PyTree
    past: PyTree
    round: Any  # an array of one number, or the new one


@factory
def asynchronous(algorithm: Algorithm, order: Arrivals, power: NonNegative = 0.5) -> Algorithm:
    r"""Return the algorithm with clients that work from the message of their last arrival.

    A client that takes part in a round uploads what it has computed from the message that the
    server sent after its last arrival, :math:`\tau` rounds ago, with the weight
    :math:`(1 + \tau)^{-a}`; then it gets the new message. Rounds in which the server's step is
    refused count too: the server then sends its old model again. Run it with ``order.sampler``; a
    client that is not in the order works from the newest message. ``fed_avg`` becomes FedBuff; in
    ``fed_dual_avg`` late duals add up, and the elapsed time grows with what has arrived. The
    history has the mean ``staleness``.

    The server keeps its last ``order.staleness`` messages. Fast clients arrive more often, as with
    every unequal participation: ``uploads.inverse_probability("known")`` corrects for it. With
    ``power`` above zero they still count more, because the uploads of slow clients are older.

    Args:
      algorithm: any that does not need everyone. If its clients keep states, ``power`` has to be
        zero: their sum on the server would not be that of weighted uploads.
      order: the order of arrivals, from ``arrivals``.
      power: a; 0 for equal weights, without which the limit favours fast clients.

    Example:
      >>> import fcojax, jax, jax.numpy as jnp, numpy as np
      >>> from fcojax import clock
      >>> data = fcojax.from_rows({"a": np.array([1.0, 3.0])}, [1, 1])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> order = clock.arrivals(np.array([1.0, 3.0]), buffer=1, num_rounds=4)
      >>> late = clock.asynchronous(fed_avg, order)
      >>> w, history = fcojax.run(
      ...     late, fed_avg.hparams_type(client_lr=0.5), jnp.array(0.0), data, jax.random.key(0),
      ...     fcojax.Plan(fcojax.local_steps(1), order.sampler), num_rounds=4, eval_every=1)
      >>> history["staleness"].tolist(), float(w)
      ([0.0, 0.0, 0.0, 3.0], 1.625)
    """
    if algorithm.facts.needs_everyone:
        raise ValueError(
            "the algorithm needs all clients in every round, which an asynchronous server does not "
            "wait for; pass another, such as fed_dual_avg."
        )
    size, (num_rounds, buffer) = max(order.staleness, 1), order.members.shape

    def init(hparams, params):
        server, client = algorithm.init(hparams, params)
        if power and jax.tree.leaves(client):
            raise ValueError(
                "clients of this algorithm keep states, whose sum the server would weigh; pass "
                "power=0."
            )
        message = algorithm.broadcast(hparams, server)
        past = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (size, *jnp.shape(leaf))), message)
        # One row, so that it is written in every round.
        return Versions(server, past, jnp.zeros(1, jnp.int32)), client

    def broadcast(hparams, state):
        # The message of this round is not among the past ones: all of them would be copied to
        # insert it.
        message = algorithm.broadcast(hparams, state.server)
        return message, Known((state.past, state.round[0]))

    def client_update(hparams, message, client, local, key):
        newest, known = message
        past, index = known.value
        row = index % num_rounds  # the trace of the sampler repeats too
        members, ages = jnp.asarray(order.members)[row], jnp.asarray(order.ages)[row]
        place = jnp.minimum(jnp.searchsorted(members, local.client), buffer - 1)
        age = jnp.where(members[place] == local.client, ages[place], 0)

        def started_from(new, ring):
            earlier = jax.lax.dynamic_index_in_dim(ring, (index - age) % size, 0, False)
            return jnp.where(age == 0, new, earlier)

        own = jax.tree.map(started_from, newest, past)
        result = algorithm.client_update(hparams, own, client, local, key)
        number = age.astype(float)
        upload = tree.scale((1 + number) ** -power, result.upload)
        return result._replace(upload=upload, metrics=result.metrics | {"staleness": number})

    def server_update(hparams, state, mean, fraction, key):
        server = algorithm.server_update(hparams, state.server, mean, fraction, key)
        index, message = state.round[0], algorithm.broadcast(hparams, state.server)
        past = jax.tree.map(lambda new: NewRow(index % size, jnp.asarray(new)), message)
        return Versions(server, past, NewRow(jnp.zeros((), jnp.int32), index + 1))

    def sent(hparams, before, after):
        return algorithm.sent(hparams, before.server, after.server)

    own_model = algorithm.client_model

    def client_model(hparams, message, client):
        assert own_model is not None
        return own_model(hparams, message[0], client)

    return algorithm._replace(
        init=init,
        broadcast=broadcast,
        client_update=client_update,
        server_update=server_update,
        model=lambda hparams, state: algorithm.model(hparams, state.server),
        sent=sent,
        client_model=None if own_model is None else client_model,
    )
