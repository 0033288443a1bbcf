"""How many clients and grid points run together: one decision, from bytes to a number.

The decision uses only shapes and the backend's rules in ``fcojax.xla.rules``. It is made on the
host before tracing, and compiles nothing. ``sized`` returns it. Hyperparameters and states are
those of one run, or their shapes; ``num_points`` points of a sweep run together.
"""

import functools
import os
from typing import TYPE_CHECKING

import jax
import numpy as np

from fcojax import tree
from fcojax.algorithms.base import Algorithm, uncounted
from fcojax.algorithms.work import Work
from fcojax.arguments import validated
from fcojax.engine.hparams import at_round, num_points, take
from fcojax.engine.members import sizes_matter
from fcojax.engine.plan import Plan
from fcojax.engine.run import SIZES
from fcojax.engine.tally import first_uploads, one_update
from fcojax.engine.validation import as_program
from fcojax.problems.clients import Clients
from fcojax.types import Count, Key, Params, PyTree
from fcojax.uploads.contract import SUM
from fcojax.xla.jaxprs import bytes_of_results
from fcojax.xla.rules import pretended_memory, rules

if TYPE_CHECKING:
    from fcojax.problems.client_data import ClientData

# The share of memory that one program may use; the rest is for the caller and for fragmentation.
_SHARE = 0.5
# Estimated memory of a program, as multiples of the model's states, for intermediate results of a
# step and an evaluation, and of the clients' rows, for copies.
_STATES_FACTOR, _ROWS_FACTOR = 256, 4


@validated
def sized(
    algorithm: Algorithm,
    hparams: PyTree,
    params: Params,
    data: "ClientData",
    plan: Plan | Work,
    *,
    num_points: Count = 1,
    num_seeds: Count = 1,
) -> Plan:
    """Return the plan with its chunk sizes filled in as ``run`` and ``sweep`` choose them.

    Args:
      algorithm: its states and messages decide how much memory is needed.
      hparams: the hyperparameters of one run.
      params: the start point, or its shapes.
      data: the clients.
      plan: how rounds are run; sizes that it sets are kept.
      num_points: number of points of a sweep.
      num_seeds: number of seeds of a sweep.

    Example:
      >>> import fcojax, jax.numpy as jnp, numpy as np
      >>> data = fcojax.from_rows({"a": np.arange(6.0)}, [1, 2, 3])
      >>> fed_avg = fcojax.algorithms.fed_avg(lambda w, rows: 0.5 * (w - rows["a"]) ** 2)
      >>> plan = fcojax.local_steps(1)
      >>> plan = fcojax.devices.sized(fed_avg, fed_avg.hparams_type(), jnp.array(0.0), data, plan)
      >>> plan.client_chunk_size, plan.point_chunk_size
      (3, 1)
    """
    program, hparams = as_program(algorithm, hparams, data, None, plan)
    plan, now = program.plan, at_round(hparams, 0)
    server, client = jax.eval_shape(algorithm.init, now, params)
    points = plan.point_chunk_size
    if points is None:
        first = functools.partial(first_uploads, algorithm, plan, data=data)
        residuals, memory = jax.eval_shape(first, now, (server, client))
        rows = data.num_clients * tree.num_bytes((client, residuals))
        if plan.aggregator.collect is not SUM:
            # `STACK` keeps the uploads, about as large as models, of a cohort for each point.
            model = jax.eval_shape(algorithm.model, now, server)
            rows += plan.cohort.size(data.num_clients) * tree.num_bytes(model)
        shards = data.num_sweep_shards
        # One device computes its part of the points with all seeds, or all points with its part of
        # the seeds.
        all_points, all_seeds = with_repeats(data, num_points, num_seeds)
        parts = shards if all_points % shards == 0 else 1  # otherwise the seeds are divided
        seeds = all_seeds * parts // shards
        # Rows are copied where they are gathered and written, and the intermediate results of a
        # step are many times the model.
        each = _STATES_FACTOR * tree.num_bytes((server, memory)) + _ROWS_FACTOR * rows
        fit = min(all_points // parts, int(usable_memory() / max(seeds * each, 1)))
        points = min(num_points, max(1, fit) * parts)
    chunk = choose_chunk_size(plan, algorithm, now, server, data, points)
    return plan._replace(client_chunk_size=chunk, point_chunk_size=points)


def runs_at_once(
    algorithm: Algorithm, grid: PyTree, params: Params, data: "ClientData", plan: Plan, keys: Key
) -> tuple[int, Key]:
    """Return how many points run together, and the keys, the last one repeated if need be.

    One of both numbers is a multiple of the devices, so that all compute equally many runs.
    """
    numbers = {"num_points": num_points(grid), "num_seeds": keys.size}
    chosen = sized(algorithm, take(grid, 0), params, data, plan, **numbers).point_chunk_size
    assert chosen is not None
    at_once, num_seeds = with_repeats(data, min(chosen, num_points(grid)), keys.size)
    if num_seeds > keys.size:  # otherwise nothing is run or compiled
        keys = keys[np.minimum(np.arange(num_seeds, dtype=np.int32), keys.size - 1)]
    return at_once, keys


def with_repeats(data: Clients, num_points: int, num_seeds: int) -> tuple[int, int]:
    """Return the numbers of points and seeds, padded so that all devices run equally many.

    Devices share the points; with fewer points than devices they share the seeds, if each device
    then runs fewer.
    """
    num_devices = data.num_sweep_shards
    # For example, three seeds of one point on two devices: sharing seeds gives each device two (the
    # last is repeated), sharing points gives each all three.
    seeds_each = -(-num_seeds // num_devices)
    if num_points < num_devices and num_points * seeds_each < num_seeds:
        return num_points, seeds_each * num_devices
    return -(-num_points // num_devices) * num_devices, num_seeds


def choose_chunk_size(
    plan: Plan, algorithm: Algorithm, hparams, server, data: Clients, num_points: int = 1
) -> int:
    """Return the plan's number of clients that run together, or choose it by the rules."""
    if plan.client_chunk_size is not None:
        return plan.client_chunk_size
    places, given = plan.cohort.size(data.num_clients), (plan.work, data)
    message = jax.eval_shape(algorithm.broadcast, hparams, server)
    each = client_bytes(*given, message, num_points)
    chosen = chunk_size(*given, each, places, num_points)
    # Nothing to refine: the whole cohort fits by the estimate, or the limit is cache, not memory.
    if chosen == chunk_size(*given, 1, places, num_points) or rules().chunk_bytes is not None:
        return chosen

    def update(hparams, server, data):
        _, client = algorithm.init(hparams, algorithm.model(hparams, server))
        return client, one_update(algorithm, plan, hparams, server, client, data)

    # The factor is too large for models with few activations, so the update is traced here. By the
    # estimate alone the cohort of W4 was split at 10,000 points, which took five times the launches
    # of 400 points on an accelerator. The bytes of all results are an upper bound, as if none were
    # ever freed; a loop body counts once.
    traced = max(1, num_points * sum(bytes_of_results(update, hparams, server, data)))
    client, _ = jax.eval_shape(update, hparams, server, data)
    states = tree.num_bytes(server) + data.clients_per_shard * tree.num_bytes(client)
    kept = tree.num_bytes(data.examples) / data.num_shards + _ROWS_FACTOR * num_points * states
    left = int(usable_memory() - kept)
    return max(chosen, chunk_size(*given, traced, places, num_points, left))


def client_bytes(work: Work, data: Clients, message: PyTree, num_points: int = 1) -> int:
    """Return the bytes of one client's step, without intermediate results.

    These are its examples, which the points of a sweep share, and for each point its iterate, the
    model read from it, and the gradient, each as large as the message.
    """
    leaves = jax.tree.leaves(data.examples)
    row_bytes = sum(leaf.dtype.itemsize * leaf.size // leaf.shape[0] for leaf in leaves)
    # A batch with replacement may be larger than the largest client.
    examples_a_step = min(work.batch_size or data.max_size, data.max_size)
    return max(1, examples_a_step * row_bytes + 3 * num_points * tree.num_bytes(uncounted(message)))


def chunk_size(
    work: Work,
    data: Clients,
    each: int,
    num_places: int,
    num_points: int = 1,
    budget: int | None = None,
) -> int:
    """Return the number of clients to run together by the rules for the backend.

    One client's step takes ``each`` bytes, as ``client_bytes`` counts them. ``budget`` are the
    bytes for all of these clients, by default the limit of the backend's rules.
    """
    rule = rules()
    if budget is None:
        budget = rule.chunk_bytes if num_points == 1 else rule.sweep_chunk_bytes
    if budget is None:  # memory is the only limit
        budget = int(usable_memory() / _STATES_FACTOR)
    chunk = min(num_places, budget // each)
    if sizes_matter(work, data):
        # Each chunk pads to its own largest client, so more chunks have less padding.
        chunk = min(chunk, max(2, num_places // rule.ragged_chunks))
    return max(1, chunk)


def device_memory() -> int:
    """Return the bytes of one device; on a CPU its share of the machine's memory."""
    pretended = pretended_memory()
    if pretended is not None:
        return pretended
    # `None` on a CPU, whose devices share the machine's memory.
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"]
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // len(jax.local_devices())


def usable_memory() -> float:
    """Return the bytes of a device that one program may use."""
    return _SHARE * device_memory()


SIZES.update(clients=choose_chunk_size, runs=runs_at_once)
