"""One client instead of all of them, where nothing but the mean of their gradients is asked for."""

import jax
import jax.numpy as jnp

from fcojax.algorithms.work import local_steps
from fcojax.engine.cohort import Everyone
from fcojax.engine.plan import Plan
from fcojax.engine.solve import Outcome
from fcojax.problems.problem import Problem, Summary
from fcojax.types import Array


def usable_summary(problem: Problem, plan: Plan) -> Summary | None:
    """A problem's summary if it has one that gives the same models and is less to read.

    It gives the same models if everyone takes one full-batch step a round and everything arrives.
    """
    data, chunks = problem.train, (plan.client_chunk_size, plan.point_chunk_size)
    only_gradients = plan == Plan(local_steps(1), Everyone(), None, *chunks)
    if problem.summary is None or not only_gradients or data.mesh is not None or data.held:
        return None
    client = jax.eval_shape(problem.summary.client, data)
    pays = 2 * _numbers(client.examples) <= _numbers(data.examples)
    return problem.summary if pays else None


def sent_by_each(outcome: Outcome, counts: Array) -> Outcome:
    """The outcome with what one client sent, if it is one, as what each that counts sends."""

    def by_client(sent):
        each = jnp.broadcast_to(sent, (*sent.shape[:-1], counts.size))
        return each * jnp.broadcast_to(counts, each.shape).astype(sent.dtype)

    down, up = by_client(outcome.bytes_down), by_client(outcome.bytes_up)
    return outcome._replace(bytes_down=down, bytes_up=up)


def _numbers(examples) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(examples))
