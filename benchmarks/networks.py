"""W7 and W8: a round of a network, beside hand-written JAX.

    python -m benchmarks.rounds --workload=W7 [--algorithm=fed_avg] [--repeats=3]

The hand-written side is a jitted gradient step in loops over rounds, clients and steps
(``plain_loop.py``), on the same cohorts and minibatches; in ``benchmarks.accelerator`` W8's is one
program, with clients side by side (``plain_jax.py``). The sides run alternately in fresh
processes; the results are medians and minima of both, and the loss of each side on the first
thousand examples.
"""

import functools
import os
import resource
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fcojax
from benchmarks import plain_jax, plain_loop, processes
from benchmarks.cases import attempt, timed
from benchmarks.cifar10_settings import Setting
from benchmarks.settings import drawn, plan
from benchmarks.workloads import WORKLOADS, Workload, draw
from fcojax import networks
from fcojax.problems import Problem
from fcojax.transforms import euclidean, l1, named, on_subtree

_TIMED = 3  # timings inside a process; their median counts
_JUDGED = 1000
Sizes = TypeVar("Sizes", Workload, Setting)


def problem(workload: Workload, data: fcojax.ClientData, dropout_rates=(0.0, 0.0)) -> Problem:
    """Return the library's own problem, with its network."""
    classes = workload.num_classes or 0
    if workload.model == "char_gru":
        return _next_character(data, classes)
    model = networks.emnist_net(num_classes=classes, dropout_rates=dropout_rates)
    return networks.network(model, data, num_classes=classes)


def _next_character(data: fcojax.ClientData, num_tokens: int) -> Problem:
    """Return the mean cross-entropy of the next character, over the tokens that are not padding."""
    example = jax.eval_shape(lambda x: x[:1], data.examples["x"])
    shape = (*example.shape, num_tokens)
    functions = networks.functions_of(networks.char_gru(), example, shape)

    def cross_entropy(logits, rows):
        each = optax.softmax_cross_entropy_with_integer_labels(logits, rows["y"])
        return jnp.mean(each, axis=1, where=rows["y"] != 0)

    return Problem(networks.loss_of(functions, cross_entropy), data, None, functions.init)


def measure_ours(workload: Workload, algorithm: str) -> dict:
    """Measure the library in this process, with default settings and a CPU device for each core."""
    jax.config.update("jax_num_cpu_devices", os.cpu_count())
    x, y = draw(workload)
    data = fcojax.from_rows({"x": x, "y": y}, [workload.num_examples] * workload.num_clients)
    began = time.perf_counter()
    run = ours(workload, algorithm, data)
    jax.block_until_ready(run(1))
    first_run = time.perf_counter() - began
    milliseconds, params = processes.timed(
        lambda: jax.block_until_ready(run(workload.num_rounds)), workload.num_rounds, _TIMED
    )
    return {
        "ms_per_round": milliseconds,
        "objective": judged_loss(workload, params, x, y),
        "first_run_s": first_run,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def setting(workload: Workload, algorithm: str, data: fcojax.ClientData):
    """Build the algorithm, its hyperparameters and the first model, as a user would."""
    task = problem(workload, data)
    factory = getattr(fcojax.algorithms, algorithm)
    hparams = factory.Hparams(client_lr=workload.client_lr)
    geometry = ()
    if "penalty_scale" in hparams._fields:
        hparams = hparams._replace(penalty_scale=workload.penalty_scale)
        geometry = (euclidean(on_subtree(l1(), named("kernel"))),)
    return factory(task.loss, *geometry), hparams, task.init(jax.random.key(0))


def ours(workload: Workload, algorithm: str, data: fcojax.ClientData):
    """Return ``num_rounds -> model`` by the library, with the data on its devices."""
    chosen, hparams, params = setting(workload, algorithm, data)
    how = fcojax.Plan(*plan(workload))
    placed = fcojax.devices.spread(chosen, hparams, params, data, plan=how)
    placed = placed.to_device() if placed.mesh is None else placed

    def run(num_rounds):
        given = chosen, hparams, params, placed, jax.random.key(0), how
        return fcojax.run(*given, num_rounds=num_rounds, eval_every=num_rounds)[0]

    return run


def measure_by_hand(workload: Workload, algorithm: str, draws: str) -> dict:
    """Measure the other side in this process, on JAX's default of one device."""
    x, y = draw(workload)
    stored = np.load(draws)

    members, indices = (stored[name][: workload.num_rounds] for name in ("members", "indices"))
    run = by_hand(workload, algorithm, x, y, members, indices)
    milliseconds, end = processes.timed(
        lambda: jax.block_until_ready(run()), workload.num_rounds, _TIMED
    )
    return {"ms_per_round": milliseconds, "objective": judged_loss(workload, end, x, y)}


def by_hand(
    workload: Workload, algorithm: str, x, y, members, indices, scanned: bool = False
) -> Callable[[], dict]:
    """Return a function that runs plain JAX from the library's start.

    Args:
      workload: the sizes and rates.
      algorithm: ``fed_avg`` or ``fed_dual_avg``.
      x: features of all clients.
      y: labels.
      members: the cohort of each round.
      indices: its minibatches.
      scanned: whether rounds and steps are one program over all clients, see ``plain_jax``; if not,
        they are Python loops, see ``plain_loop``.
    """
    clients = {
        name: leaf.reshape(workload.num_clients, workload.num_examples, *leaf.shape[1:])
        for name, leaf in (("x", x), ("y", y))
    }
    few = fcojax.from_rows({"x": x[:2], "y": y[:2]}, [1, 1])
    params = problem(workload, few).init(jax.random.key(0))
    rates = {"client_lr": workload.client_lr, "penalty_scale": workload.penalty_scale}
    if scanned:
        given = rates | {"server_lr": 1.0}, params, clients, members, indices
        loss = plain_loop.cross_entropy(plain_loop.MODELS[workload.model])
        run, given = plain_jax.run, (loss, workload.num_steps, *jax.device_put(given))
    else:
        run, given = plain_loop.run, (workload.model, rates, params, clients, members, indices)
    return functools.partial(run, algorithm, *given)


def judged_loss(workload: Workload, params, x: np.ndarray, y: np.ndarray) -> float:
    """Return the loss on a few examples in plain JAX, the same for both sides."""
    loss = jax.jit(plain_loop.cross_entropy(plain_loop.MODELS[workload.model]))
    params = jax.tree.map(np.asarray, params)  # of any devices
    return float(loss(params, {"x": jnp.asarray(x[:_JUDGED]), "y": jnp.asarray(y[:_JUDGED])}))


def few(workload: Sizes, quick: bool) -> Sizes:
    """Return the workload with two rounds on a CPU, or a tiny version of it."""
    if jax.default_backend() == "cpu":
        workload = workload._replace(num_rounds=2)
    tiny = {"num_clients": 4, "num_examples": 8, "num_rows": 8, "batch_size": 4, "num_steps": 2}
    tiny = {name: tiny[name] for name in tiny if name in workload._fields}
    return workload._replace(**tiny, cohort_size=2, num_rounds=1) if quick else workload


def on_device(name: str) -> Callable[[bool], Iterator[dict]]:
    """Return ``benchmarks.accelerator``'s section for one workload: both sides in one process."""

    def both(workload: Workload, algorithm: str) -> dict:
        x, y = draw(workload)
        data = fcojax.from_rows({"x": x, "y": y}, [workload.num_examples] * workload.num_clients)
        run = ours(workload, algorithm, data)
        ms, first, model = timed(lambda: run(workload.num_rounds))
        members, indices = drawn(workload, 0)
        # Mapped over clients, W7's convolutions would be grouped ones, which are slow everywhere.
        scanned = workload.model != "emnist_net"
        theirs, _, other = timed(by_hand(workload, algorithm, x, y, members, indices, scanned))
        return {
            "ms": ms / workload.num_rounds,
            "first_run_s": first,
            "by_hand_ms": theirs / workload.num_rounds,
            "objective": judged_loss(workload, model, x, y),
            "by_hand_objective": judged_loss(workload, other, x, y),
        }

    def section(quick):
        workload = few(WORKLOADS[name], quick)
        for algorithm in ("fed_avg", "fed_dual_avg"):
            yield attempt(
                f"{name}, {algorithm}", lambda algorithm=algorithm: both(workload, algorithm)
            )

    return section
