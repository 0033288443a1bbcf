"""A virtual clock: how long rounds would take, from each client's speed and link.

Time is a function of what the history knows: who took part, steps and encoded bytes. So it can be
computed after a run, for any number of laws, on any machine.
"""

import functools
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fcojax import Plan
from fcojax.algorithms.work import Work
from fcojax.arguments import factory, validated
from fcojax.engine.members import draw_cohort, local_handle
from fcojax.engine.plan import as_plan
from fcojax.problems import ClientData
from fcojax.problems.clients import require_one_device
from fcojax.types import (
    Array,
    Count,
    CountOrZero,
    Key,
    NonNegative,
    NumberTree,
    Positive,
    PyTree,
    Real,
    Seed,
)
from fcojax.uploads.transform import Facts, Sent, UploadTransform

# A step that ends at a deadline up to rounding is in time.
_ROUNDING = 1 + 1e-12


class Clock(NamedTuple):
    """The speed and the link of each client: numbers for all, or arrays with one for each.

    Attributes:
      step: seconds of a local step; or a trace, [rounds, clients], that starts again at its end.
      down: seconds a byte from the server.
      up: seconds a byte to the server.

    Example:
      >>> import numpy as np
      >>> clock = Clock(step=np.array([0.1, 0.5]), up=1e-3)
      >>> clock.client_seconds(num_clients=2, num_steps=10, bytes_up=100).tolist()
      [[1.1, 5.1]]
    """

    step: Any
    down: Any = 0.0
    up: Any = 0.0

    def tables(self, num_clients: int) -> list[np.ndarray]:
        """Return seconds of a step, of a byte down and up, each [rounds of its trace, clients]."""
        parts = [np.atleast_2d(np.asarray(part, float)) for part in self]
        return [np.broadcast_to(part, (len(part), num_clients)) for part in parts]

    def client_seconds(
        self, num_clients: int, num_steps: Any, bytes_down: Any = 0, bytes_up: Any = 0
    ) -> np.ndarray:
        """Return how long clients take for a round, [rounds of the trace, clients].

        Args:
          num_clients: number of clients.
          num_steps: local steps, a number or one for each client.
          bytes_down: bytes of a message.
          bytes_up: bytes of an encoded upload.
        """
        step, down, up = self.tables(num_clients)
        return step * np.asarray(num_steps) + down * bytes_down + up * bytes_up


@validated
def log_normal(num_clients: Count, *, median: Positive, spread: NonNegative, seed: Seed = 0) -> Any:
    """Return one log-normal number for each client, such as its seconds of a step.

    Args:
      num_clients: number of clients.
      median: the median.
      spread: standard deviation of the logarithm; 0 for equal numbers.
      seed: seed of the draw, the same on every machine.

    Example:
      >>> log_normal(3, median=2.0, spread=0.0).tolist()
      [2.0, 2.0, 2.0]
    """
    draws = np.random.default_rng(seed).standard_normal(num_clients)
    return median * np.exp(spread * draws)


@validated
def by_size(data: ClientData, seconds: Positive, *, power: Real = 1.0) -> Any:
    """Return seconds that grow with a client's number of examples, as steps on all of them do.

    Args:
      data: the clients.
      seconds: the seconds of a client of mean size.
      power: the exponent of the size.

    Example:
      >>> import fcojax, numpy as np
      >>> by_size(fcojax.from_rows({"a": np.zeros(4)}, [1, 3]), 2.0).tolist()
      [1.0, 3.0]
    """
    sizes = np.asarray(data.sizes, float)
    return seconds * (sizes / sizes.mean()) ** power


@functools.partial(jax.jit, static_argnums=0)
def _members(plan: Plan, data: ClientData, key: Key, rounds: Array) -> tuple[Array, ...]:
    """Return the members of these rounds, whether they are present, and their numbers of steps."""

    def one(index):
        draw = draw_cohort(plan, data, key, index)

        def num_steps(client):
            return local_handle(data, plan.work, key, index, client, client).num_steps

        return draw.indices, draw.present, jax.vmap(num_steps)(draw.indices)

    return jax.vmap(one)(rounds)


@validated
def seconds(
    clock: Clock,
    plan: Plan | Work,
    data: ClientData,
    key: Key,
    history: PyTree,
    first: CountOrZero = 0,
) -> Any:
    """Return the seconds from the start of a run to each of its evaluations.

    A round takes as long as the slowest of its clients, or until its ``deadline``; between rounds
    no time passes.

    Args:
      clock: speeds and links.
      plan: the plan of the run.
      data: the clients, on one device.
      key: the key of the run.
      history: the history of a run, or of all points of a sweep for one seed.
      first: the number of rounds before this history.

    Example:
      >>> import fcojax, jax, numpy as np
      >>> data, plan = fcojax.from_rows({"a": np.arange(4.0)}, [2, 2]), fcojax.local_steps(5)
      >>> history = {"round": [2, 4], "participants": [4, 4], "bytes_down": 0.0, "bytes_up": 0.0}
      >>> seconds(Clock(np.array([0.1, 0.3])), plan, data, jax.random.key(0), history).tolist()
      [3.0, 6.0]
    """
    plan = as_plan(plan)
    require_one_device(data)
    ends = np.asarray(history["round"])
    rounds = np.arange(first, ends[-1])
    limit = min((one.facts.limit for one in plan.uploads.transforms), default=np.inf)
    # Without uploads, so that draws are compiled once for all deadlines.
    drawn = _members(Plan(plan.work, plan.cohort), data, key, jnp.asarray(rounds, jnp.int32))
    members, present, num_steps = map(np.asarray, drawn)
    step, down, up = clock.tables(data.num_clients)
    times = step[rounds[:, None] % len(step), members] * num_steps
    # The clients of an evaluation's rounds are charged their mean bytes. A compressed broadcast
    # reaches all clients, absent ones too.
    taking_part = np.maximum(history["participants"], 1)
    blocks = np.diff(np.concatenate([[first], ends]))
    receivers = taking_part if plan.broadcast is None else data.num_clients * blocks
    for link, name, number in ((down, "bytes_down", receivers), (up, "bytes_up", taking_part)):
        each = np.asarray(history[name]) / number
        times = times + link[0, members] * each[..., np.searchsorted(ends, rounds, "right"), None]
    slowest = np.max(np.where(present, times, 0), axis=-1)
    return np.cumsum(np.minimum(slowest, limit), axis=-1)[..., ends - first - 1]


@factory
def deadline(client_seconds: NumberTree, limit: Positive) -> UploadTransform:
    """Return the transform that leaves out uploads that come after a deadline.

    They are counted in ``history["late"]``, and the late client keeps its state. Clients that are
    always late never count, which no ``uploads.inverse_probability`` can mend; ``truncated`` lets
    them do less. ``inverse_probability("known")`` is refused where who is drawn and who is late
    both depend on the round, as with ``cyclic`` or ``from_trace`` and a trace of seconds.

    Args:
      client_seconds: how long each client takes, from ``client_seconds``.
      limit: seconds that the server waits.

    Example:
      >>> import fcojax, numpy as np
      >>> late = deadline(np.array([[1.0, 9.0]]), limit=5.0)
      >>> plan = fcojax.Plan(fcojax.local_steps(1), uploads=late)
      >>> np.asarray(late.facts.arrives(np.arange(2))).tolist()
      [1.0, 0.0]
    """
    on_time = np.atleast_2d(client_seconds) <= limit * _ROUNDING
    if not on_time.any():
        fastest = np.min(client_seconds)
        raise ValueError(f"limit is {limit} but the fastest client takes {fastest:g} seconds.")
    share = on_time.mean(axis=0)

    def send(at, payload, state):
        table = jnp.asarray(on_time)
        return Sent(payload, state, table[at.round % table.shape[0], at.client])

    facts = Facts(
        leaves_out="late",
        arrives=lambda client: jnp.asarray(share)[client],
        by_round=bool((on_time != on_time[0]).any()),
        limit=float(limit),
        num_clients=share.size,
    )
    name = f"deadline({limit})"
    if on_time.all():  # nobody is late, and so the plan suits more algorithms
        return UploadTransform(name, facts=facts._replace(leaves_out=None))
    return UploadTransform(name, send=send, facts=facts)


@validated
def num_steps(work: Work, data: ClientData) -> np.ndarray:
    """Return the number of local steps of each client, for ``Clock.client_seconds``.

    Args:
      work: how much clients do, the same in every round.
      data: the clients.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_rows({"a": np.arange(12.0)}, [4, 8])
      >>> num_steps(fcojax.local_epochs(1, batch_size=2), data).tolist()
      [2, 4]
    """
    if work.fewest is not None and work.counts is None:
        raise ValueError("the number of steps differs between rounds; pass work that does not.")
    each = zip(work.counts or [work.most] * data.num_clients, data.sizes.tolist(), strict=True)
    return np.array([work.steps(count, size) for count, size in each])


@validated
def truncated(
    work: Work, data: ClientData, step: NumberTree, limit: Positive, link: NumberTree = 0.0
) -> Work:
    """Return the work in which each client takes only the steps that it can take in time.

    These are the first steps of the whole work, also of its epochs. A client for which one step is
    too much takes one, and is late: use ``deadline`` as well.

    Args:
      work: the work without a deadline, equal for all.
      data: the clients.
      step: seconds of a step of each client.
      limit: seconds that the server waits.
      link: seconds of each client's link in a round.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_rows({"a": np.arange(12.0)}, [4, 4, 4])
      >>> truncated(fcojax.local_steps(20), data, [0.1, 1.0, 9.0], 5.0).counts
      (20, 5, 1)
      >>> truncated(fcojax.local_epochs(2, batch_size=1), data, [0.1, 1.0, 9.0], 5.0).counts
      (2, Fraction(5, 4), Fraction(1, 4))
    """
    if work.fewest is not None:
        raise ValueError("the work differs between clients or rounds; pass one equal for all.")
    sizes, most = np.asarray(data.sizes), num_steps(work, data)
    counts = np.floor((limit - np.asarray(link)) / np.asarray(step) * _ROUNDING)
    counts = np.clip(counts, 1, most).astype(int)
    if (counts == most).all():
        return work
    if work.num_epochs is None:
        found = counts.tolist()
        return work._replace(num_steps=max(found), fewest=min(found), counts=tuple(found))
    batches = sizes if work.batch_size is None else np.full_like(sizes, work.batch_size)
    found = [
        work.num_epochs if count == all_steps else Fraction(int(count * batch), int(size))
        for count, all_steps, batch, size in zip(counts, most, batches, sizes, strict=True)
    ]
    return work._replace(num_epochs=max(found), fewest=min(found), counts=tuple(found))
