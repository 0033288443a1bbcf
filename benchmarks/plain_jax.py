"""The same algorithms in hand-written JAX: one jitted scan over rounds, clients side by side.

The program runs one algorithm on clients of equal size. Cohorts and minibatches are arguments, so
the times do not include drawing them.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

Params = dict  # of arrays, or of the parameters of layers


@functools.partial(jax.jit, static_argnames=("algorithm", "loss", "num_steps"))
def run(
    algorithm: str,
    loss: Callable,
    num_steps: int,
    rates: dict[str, jax.Array],
    params: Params,
    data: Params,
    members: jax.Array,
    indices: jax.Array | None,
) -> Params:
    """Run all rounds from ``params``; return the last model.

    Args:
      algorithm: ``fed_avg`` or ``fed_dual_avg`` with an l1 penalty on every ``kernel``.
      loss: ``(params, rows) -> one loss per example``, or their mean.
      num_steps: local steps, if ``indices`` is ``None``.
      rates: ``client_lr``, ``server_lr`` and ``penalty_scale``.
      params: the start.
      data: arrays with axes [clients, examples] in front.
      members: [rounds, cohort] clients of each round.
      indices: [rounds, cohort, steps, batch] examples within each client, ``None`` for all.
    """
    gradient = jax.grad(lambda params, rows: loss(params, rows).mean())
    lr, server_lr = rates["client_lr"], rates["server_lr"]

    def point(z, elapsed):
        return z if algorithm == "fed_avg" else read(z, elapsed * rates["penalty_scale"])

    def client(z, elapsed, member, picks):
        def step(carry, pick):
            z, elapsed = carry
            where = member if pick is None else (member, pick)
            rows = jax.tree.map(lambda leaf: leaf[where], data)
            slope = gradient(point(z, elapsed), rows)
            return (jax.tree.map(lambda a, g: a - lr * g, z, slope), elapsed + lr), None

        length = num_steps if picks is None else None
        return jax.lax.scan(step, (z, elapsed), picks, length=length)[0]

    def one_round(server, drawn):
        z, elapsed = server
        ends, times = jax.vmap(client, in_axes=(None, None, 0, 0))(z, elapsed, *drawn)
        mean = jax.tree.map(lambda leaf: leaf.mean(axis=0), ends)
        z = jax.tree.map(lambda a, b: a + server_lr * (b - a), z, mean)
        return (z, elapsed + server_lr * (times.mean() - elapsed)), None

    start = params, jnp.zeros((), jnp.float32)
    return point(*jax.lax.scan(one_round, start, (members, indices))[0])


def read(z: Params, threshold) -> Params:
    """Return the model of a dual state: its kernels, soft-thresholded."""

    def one(path, leaf):
        if path[-1].key != "kernel":
            return leaf
        return jnp.sign(leaf) * jnp.maximum(jnp.abs(leaf) - threshold, 0)

    return jax.tree_util.tree_map_with_path(one, z)
