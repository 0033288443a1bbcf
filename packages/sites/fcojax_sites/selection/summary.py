"""One client in place of all, for algorithms that use only the mean of the clients' gradients."""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

from fcojax import ClientData, Plan, local_steps
from fcojax.extend import Outcome
from fcojax.problems import Problem
from fcojax.types import Array
from fcojax_sites.selection.search import Tried
from fcojax_sites.selection.second_moments import summary_of

Traffic = TypeVar("Traffic", Outcome, Tried)


def usable_summary(problem: Problem, plan: Plan) -> Callable[[ClientData], ClientData] | None:
    """Return the problem's summary if it gives the same models and is at most half as large.

    It gives the same models if everyone takes one full-batch step a round and no upload is lost.
    """
    data = problem.train
    only_gradients = plan[:4] == Plan(local_steps(1))[:4]  # chunk sizes change no number
    found = summary_of(problem)
    if found is None or not only_gradients or data.mesh is not None or data.held:
        return None
    client = jax.eval_shape(found, data)
    is_smaller = 2 * _num_entries(client.examples) <= _num_entries(data.examples)
    return found if is_smaller else None


def traffic_of_all(outcome: Traffic, counts: Array) -> Traffic:
    """Assign the traffic of the one summary client to each client whose weight is not 0."""

    def by_client(sent):
        each = jnp.broadcast_to(sent, (*sent.shape[:-1], counts.size))
        return each * jnp.broadcast_to(counts, each.shape).astype(sent.dtype)

    down, up = by_client(outcome.bytes_down), by_client(outcome.bytes_up)
    return outcome._replace(bytes_down=down, bytes_up=up)


def _num_entries(examples) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(examples))
