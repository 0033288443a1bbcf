"""The programs of ``benchmarks.compiled_for``: shapes in place of data, so nothing is drawn.

A program is a function, the shapes of its arguments, and its number of rounds. Workloads have the
sizes of ``benchmarks.workloads``; models are plain arrays, as a user's loss would have them.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from benchmarks import networks
from benchmarks.settings import plan
from benchmarks.workloads import WORKLOADS, Workload
from fcojax import transforms
from fcojax.transforms import euclidean, l1, nuclear

_ROUNDS = 100


class Compilable(NamedTuple):
    """A program, and what it is compiled for.

    Attributes:
      function: what is compiled.
      arguments: their shapes.
      rounds: the number of rounds that it runs.
      num_devices: devices among which the clients are shared.
      x64: whether it is traced in double precision.
    """

    function: Callable
    arguments: tuple
    rounds: int = _ROUNDS
    num_devices: int = 1
    x64: bool = False


def _shape(*sides: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sides, dtype)


def population(num_clients: int, num_examples: int, **fields) -> fcojax.ClientData:
    """Return clients of equal sizes whose examples are shapes: ``x=(dim,)``, or with a dtype."""
    rows = num_clients * num_examples
    data = fcojax.from_rows(np.zeros((rows, 1), np.int8), [num_examples] * num_clients)
    examples = {}
    for name, field in fields.items():
        sides, dtype = field if isinstance(field, list) else (field, jnp.float32)
        examples[name] = _shape(rows, *sides, dtype=dtype)
    return dataclasses.replace(data, examples=examples)


def least_squares(w, rows):
    """One loss per example of a vector ``w``."""
    return 0.5 * (rows["x"] @ w - rows["y"]) ** 2


def logistic(w, rows):
    """The same for labels of zero and one."""
    score = rows["x"] @ w
    return jnp.logaddexp(0.0, score) - rows["y"] * score


def softmax(params, rows):
    """The same for labels of many classes."""
    score = rows["x"] @ params["w"] + params["b"]
    picked = jnp.take_along_axis(score, rows["y"][:, None], 1)[:, 0]
    return jax.nn.logsumexp(score, -1) - picked


def inner_products(w, rows):
    """Least squares of inner products with a matrix ``w``."""
    return 0.5 * (jnp.einsum("bij,ij->b", rows["x"], w) - rows["y"]) ** 2


def rounds_of(algorithm, start, data, plan, hparams=None, rounds: int = _ROUNDS) -> Compilable:
    """Return ``run`` with this algorithm, looked at once, after the last round."""
    hparams = jax.tree.map(jnp.float32, hparams or algorithm.hparams_type())

    def run(data, key, hparams, start):
        return fcojax.run(
            algorithm, hparams, start, data, key, plan, num_rounds=rounds, eval_every=rounds
        )

    return Compilable(run, (data, jax.random.key(0), hparams, start), rounds)


def made(name: str, loss: Callable, penalty=None):
    """Return an algorithm by name, with its geometry from a penalty."""
    factory = getattr(fcojax.algorithms, name)
    penalty = penalty or l1()
    known = {"penalty": penalty, "mirror": euclidean(penalty), "manifold": transforms.sphere()}
    return factory(loss, *(known[kind] for kind in factory.geometry))


def of_workload(name: str, algorithm: str, num_steps: int | None = None) -> Compilable:
    """Return the rounds of a linear workload."""
    workload = WORKLOADS[name]
    if num_steps is not None:
        workload = workload._replace(num_steps=num_steps)
    start, loss, data = linear(workload)
    return rounds_of(made(algorithm, loss), start, data, fcojax.Plan(*plan(workload)))


def linear(workload: Workload):
    """Return the start point, the loss and the population of a linear workload."""
    counts, dim, classes = (
        (workload.num_clients, workload.num_examples),
        workload.dim,
        workload.num_classes,
    )
    if workload.model == "softmax":
        start = {"w": _shape(dim, classes or 0), "b": _shape(classes or 0)}
        return start, softmax, population(*counts, x=(dim,), y=[(), jnp.int32])
    loss = {"least_squares": least_squares, "logistic": logistic}[workload.model]
    return _shape(dim), loss, population(*counts, x=(dim,), y=())


def grid_of(num_points: int, num_steps: int = 10) -> Compilable:
    """Return W4: the rounds of W1 for a grid of rates."""
    workload = WORKLOADS["W1"]._replace(num_steps=num_steps)
    start, loss, data = linear(workload)
    algorithm, how = made("fed_dual_avg", loss), fcojax.Plan(*plan(workload))
    grid = jax.tree.map(lambda _: _shape(num_points), algorithm.hparams_type())

    def sweep(data, keys, grid, start):
        return fcojax.sweep(
            algorithm, grid, start, data, keys, how, num_rounds=_ROUNDS, eval_every=_ROUNDS
        )

    return Compilable(sweep, (data, jax.random.split(jax.random.key(0), 1), grid, start))


def of_length(name: str, num_steps: int) -> Compilable:
    """Return a program of W1, W2, W4 or with a matrix, of another number of local steps."""
    kind, what, *rest = name.split(" ")
    if kind == "W4":
        return grid_of(int(what.replace(",", "")), num_steps)
    return low_rank(rest[0], num_steps) if rest else of_workload(kind, what, num_steps)


def of_network(name: str, **options) -> Compilable:
    """Return W7 or W8, with FedAvg; options are those of ``networks.problem``."""
    workload = WORKLOADS[name]
    few = workload._replace(num_clients=2, num_examples=2)
    rows = dict(zip(("x", "y"), networks.draw(few), strict=True))
    small = fcojax.from_rows(rows, [2, 2])
    task = networks.problem(workload, small, **options)
    start = jax.eval_shape(task.init, jax.random.key(0))
    fields = {name: [leaf.shape[1:], leaf.dtype] for name, leaf in small.examples.items()}
    data = population(workload.num_clients, workload.num_examples, **fields)
    algorithm = fcojax.algorithms.fed_avg(task.loss)
    return rounds_of(algorithm, start, data, fcojax.Plan(*plan(workload)), rounds=10)


def low_rank(algorithm: str, num_steps: int = 10) -> Compilable:
    """Return W1 with a matrix of 32 x 32 and the nuclear norm."""
    workload = WORKLOADS["W1"]._replace(num_steps=num_steps)
    data = population(workload.num_clients, workload.num_examples, x=(32, 32), y=())
    chosen = made(algorithm, inner_products, nuclear())
    return rounds_of(chosen, _shape(32, 32), data, fcojax.Plan(*plan(workload)))


def at_w1s_shape(name: str) -> Compilable:
    """Return the rounds of any algorithm; of everyone, and of one step, where it asks for that."""
    start, loss, data = linear(WORKLOADS["W1"])
    chosen = made(name, loss)
    if name in ("fed_gd", "prox_skip"):
        work = fcojax.local_steps(1)
    else:
        work = fcojax.local_steps(10, 10)
    cohort = fcojax.uniform_cohort(cohort_size=10)
    everyone = chosen.needs_everyone
    return rounds_of(
        chosen, start, data, fcojax.Plan(work, fcojax.everyone() if everyone else cohort)
    )


def shared(name: str, algorithm: str, num_devices: int) -> Compilable:
    """Return the rounds of a linear workload whose clients are shared among devices."""
    program = of_workload(name, algorithm)
    data = program.arguments[0]
    each = -(-data.num_clients // num_devices)
    rows = num_devices * each * data.max_size
    examples = {
        name: _shape(rows, *leaf.shape[1:], dtype=leaf.dtype)
        for name, leaf in data.examples.items()
    }
    # On a mesh every device counts from its own first row.
    offsets = _shape(num_devices * (each + 1), dtype=jnp.int32)
    weights = _shape(num_devices * each)
    data = dataclasses.replace(data, examples=examples, offsets=offsets, weights=weights)
    return program._replace(arguments=(data, *program.arguments[1:]), num_devices=num_devices)


def many_clients(cohort_size: int) -> Compilable:
    """Return W6 with a cohort of half of the clients, or of all 10,000."""
    most = WORKLOADS["W6"].num_clients
    workload = WORKLOADS["W6"]._replace(
        num_clients=min(2 * cohort_size, most), cohort_size=cohort_size
    )
    start, loss, data = linear(workload)
    return rounds_of(made("fed_dual_avg", loss), start, data, fcojax.Plan(*plan(workload)))


def workloads() -> dict[str, Callable[[], Compilable]]:
    """Return the reference workloads by name."""
    each = {
        f"{w} {a}": functools.partial(of_workload, w, a)
        for w in ("W1", "W2", "W3", "W5")
        for a in ("fed_avg", "fed_dual_avg")
    }
    grids = {f"W4 {n:,} points": functools.partial(grid_of, n) for n in (25, 100, 400, 10_000)}
    others = {f"{name} fed_avg": functools.partial(of_network, name) for name in ("W7", "W8")}
    cohorts = {
        f"W6 {n:,} clients a round": functools.partial(many_clients, n)
        for n in (10, 100, 1000, 10_000)
    }
    dropout = functools.partial(of_network, "W7", dropout_rates=(0.25, 0.5))
    matrices = {
        f"low rank {a}": functools.partial(low_rank, a) for a in ("fed_dual_avg", "fed_mid")
    }
    others["W7 with dropout"] = dropout
    return {**each, **grids, **cohorts, **others, **matrices}


def meshes() -> dict[str, Callable[[], Compilable]]:
    """Return W1 to W3 on eight devices that share the clients."""
    names = ("W1", "W2", "W3")
    return {f"8 devices, {w}": functools.partial(shared, w, "fed_dual_avg", 8) for w in names}


def algorithms() -> dict[str, Callable[[], Compilable]]:
    """Return every algorithm at the shape of W1."""
    public = vars(fcojax.algorithms)
    names = [name for name in public if hasattr(public[name], "Hparams")]
    return {f"at W1's shape: {n}": functools.partial(at_w1s_shape, n) for n in names}
