"""The same algorithms in hand-written JAX: one jitted scan over rounds, clients side by side.

The program runs one algorithm on clients of equal size. Cohorts and minibatches are arguments, so
the times do not include drawing them.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

Params = dict[str, jax.Array]


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
      algorithm: ``fed_avg`` or ``fed_dual_avg`` with an l1 penalty on ``kernel``.
      loss: ``(params, rows) -> one loss per example``.
      num_steps: local steps, if ``indices`` is ``None``.
      rates: ``client_lr``, ``server_lr`` and ``penalty_scale``.
      params: the start.
      data: arrays with axes [clients, examples] in front.
      members: [rounds, cohort] clients of each round.
      indices: [rounds, cohort, steps, batch] examples within each client, ``None`` for all.
    """
    gradient = jax.grad(lambda params, rows: loss(params, rows).mean())
    lr, server_lr = rates["client_lr"], rates["server_lr"]

    def read(z, elapsed):
        if algorithm == "fed_avg":
            return z
        threshold = elapsed * rates["penalty_scale"]
        kernel = z["kernel"]
        return z | {"kernel": jnp.sign(kernel) * jnp.maximum(jnp.abs(kernel) - threshold, 0)}

    def client(z, elapsed, member, picks):
        def step(carry, pick):
            z, elapsed = carry
            where = member if pick is None else (member, pick)
            rows = jax.tree.map(lambda leaf: leaf[where], data)
            slope = gradient(read(z, elapsed), rows)
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
    return read(*jax.lax.scan(one_round, start, (members, indices))[0])
