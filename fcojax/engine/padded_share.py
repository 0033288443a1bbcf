"""How much of the clients' work is padding, for a choice of chunk size and of batches."""

import jax.numpy as jnp

from fcojax.algorithms.work import Work
from fcojax.arguments import validated
from fcojax.engine.padding import bounds_for
from fcojax.problems.clients import ClientData
from fcojax.types import Count


@validated
def padded_share(data: ClientData, work: Work, client_chunk_size: Count = 1) -> float:
    """Return the share of rows in all clients' steps that are padding, computed with weight zero.

    Args:
      data: the clients.
      work: the work of each client.
      client_chunk_size: clients that run together, as in ``Plan``; each of them takes as many
        steps, and as many rows, as the largest.

    Example:
      >>> import fcojax, numpy as np
      >>> data = fcojax.from_rows({"x": np.ones((2010, 600))}, [10, 1000, 1000])
      >>> one_by_one, all_at_once = (padded_share(data, fcojax.local_steps(1), c) for c in (1, 3))
      >>> one_by_one, round(all_at_once, 2)
      (0.0, 0.33)
    """
    num_chunks = -(-data.num_clients // client_chunk_size)
    per_chunk = -(-data.num_clients // num_chunks)
    # Chunks as `run_clients` makes them: sorted by size, of equal length.
    sizes = jnp.sort(data.sizes)[::-1]
    largest = sizes[::per_chunk]
    if work.batch_size is None:
        bounds = jnp.asarray(bounds_for(work, data), sizes.dtype)
        padded = bounds[jnp.searchsorted(bounds, largest)]
        return 1 - sum(sizes.tolist()) / (per_chunk * sum(padded.tolist()))
    slots = per_chunk * work.batch_size * sum(map(work.max_steps, largest.tolist()))
    if work.num_epochs is not None:
        return 1 - float(work.num_epochs) * sum(sizes.tolist()) / slots
    in_a_step = sizes if not work.replace else jnp.full_like(sizes, work.batch_size)
    # With replacement even a client with few examples fills a batch; without it, the rest is
    # padding.
    drawn = jnp.minimum(in_a_step, work.batch_size).tolist()
    return 1 - work.max_steps(1) * sum(drawn) / slots
