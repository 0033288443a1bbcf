"""Which operations a compiler makes slow inside loops and branches, and ours beside them.

    python -m benchmarks.in_loops [--only=convolution] [--repeats=5] [--quick]

One JSON line for each operation: milliseconds of one call compiled alone, as a step of a scan, in
a branch, and as a step of a scan mapped over four clients that have arguments of their own, per
client. What is timed ends in a sum, so that no result is written, and each step has other inputs.
All ways are timed in turn; medians.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.alternating import alternate
from benchmarks.cases import attempt
from fcojax.xla.rewriting import fast_inside_loops

_CLIENTS = 4


class Case(NamedTuple):
    """An operation, and the shapes of its arguments; those whose dtype is int are indices."""

    function: Callable
    shapes: tuple[tuple[int, ...], ...]
    below: int | None = None  # the last argument is whole numbers below this


def _layers(form: Callable[[Callable], Callable]) -> dict[str, Case]:
    """Convolution and pooling, each passed through ``form``."""

    @form
    def conv(x, k):
        order = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=order)

    @form
    def pooled(x):
        return nn.max_pool(x, (2, 2), (2, 2))

    image, kernel = (20, 26, 26, 32), (3, 3, 32, 64)
    return {
        "convolution": Case(conv, (image, kernel)),
        "convolution, both gradients": Case(_gradient(conv, (0, 1)), (image, kernel)),
        "maximum over 2 x 2": Case(pooled, (image,)),
        "maximum over 2 x 2, gradient": Case(_gradient(pooled), (image,)),
    }


def _gradient(function: Callable, which: int | tuple[int, ...] = 0) -> Callable:
    return jax.grad(lambda *args: jnp.sum(jnp.sin(function(*args))), which)


def _symmetric(a):
    return a @ a.T / a.shape[0] + jnp.eye(a.shape[0], dtype=a.dtype)


def _one_hot(table, rows):
    return jax.nn.one_hot(rows, table.shape[0], dtype=table.dtype) @ table


def cases(quick: bool) -> dict[str, Case]:
    """Return all operations by name; those of the library are called "ours"."""
    side, length, batch = (8, 100, 20) if quick else (128, 100_000, 320)
    square, tall = (side, side), (20 * side, side)
    table = (90, side)
    found = {f"{name}, jax.lax": case for name, case in _layers(lambda function: function).items()}
    found |= {f"{name}, ours": case for name, case in _layers(fast_inside_loops).items()}
    found |= {
        "mean over 3 x 3, reduce_window": Case(
            lambda x: nn.avg_pool(x, (3, 3), None, "SAME"), ((20, 26, 26, 32),)
        ),
        "product": Case(jnp.matmul, (tall, square)),
        "product, contracted over the first axis": Case(lambda a, b: a.T @ b, (tall, tall)),
        "product, batch in the middle": Case(
            lambda a, b: jnp.einsum("ibk,kbj->bij", a, b), ((side, 8, side), (side, 8, side))
        ),
        "sort": Case(jnp.sort, ((length,),)),
        "cumulative sum": Case(jnp.cumsum, ((length,),)),
        "cholesky": Case(lambda a: jnp.linalg.cholesky(_symmetric(a)), (square,)),
        "qr": Case(jnp.linalg.qr, (tall,)),
        "svd": Case(lambda a: jnp.linalg.svd(a, compute_uv=False), (square,)),
        "eigh": Case(lambda a: jnp.linalg.eigh(_symmetric(a))[0], (square,)),
        "solve": Case(lambda a, b: jnp.linalg.solve(_symmetric(a), b), (square, (side,))),
        "embedding": Case(lambda table, rows: table[rows], (table, (batch,)), 90),
        "embedding, gradient": Case(
            _gradient(lambda table, rows: table[rows]), (table, (batch,)), 90
        ),
        "embedding by a one-hot product, gradient": Case(
            _gradient(_one_hot), (table, (batch,)), 90
        ),
        "gather of rows": Case(
            lambda data, rows: data[rows], ((10 * length // side, side), (batch,)), length // side
        ),
        "scatter-add of numbers": Case(
            lambda x, rows: jnp.zeros(90).at[rows].add(x), ((length,), (length,)), 90
        ),
    }
    return found


def measure(case: Case, repeats: int, steps: int) -> dict:
    """Return one row: milliseconds of each way."""
    arguments = _arguments(case, _CLIENTS, steps)
    one = jax.tree.map(lambda leaf: leaf[0, 0], arguments)

    def total(given):
        return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(case.function(*given)))

    def scan(given):
        zero = jnp.zeros(())
        return lax.scan(lambda carry, one: (carry + total(one), None), zero, given)[0]

    def branch(flag, given):
        return lax.cond(flag, total, lambda given: jnp.zeros(()), given)

    alone, in_scan, in_branch = jax.jit(total), jax.jit(scan), jax.jit(branch)
    mapped = jax.jit(jax.vmap(scan))
    of_one = jax.tree.map(lambda leaf: leaf[0], arguments)
    ways: dict[str, tuple[Callable[[], object], int]] = {
        "alone": (lambda: alone(one), 1),
        "scan": (lambda: in_scan(of_one), steps),
        "branch": (lambda: in_branch(True, one), 1),
        "mapped": (lambda: mapped(arguments), steps * _CLIENTS),
    }
    seconds = alternate({name: way for name, (way, _) in ways.items()}, repeats)
    row = {
        f"{name}_ms": round(1e3 * statistics.median(seconds[name]) / each, 4)
        for name, (_, each) in ways.items()
    }
    return row | {
        f"{name}_ratio": round(row[f"{name}_ms"] / row["alone_ms"], 2)
        for name in ways
        if name != "alone"
    }


def _arguments(case: Case, *lead: int) -> tuple:
    keys = jax.random.split(jax.random.key(0), len(case.shapes))
    drawn = [
        jax.random.normal(key, (*lead, *shape))
        for key, shape in zip(keys, case.shapes, strict=True)
    ]
    if case.below is not None:
        drawn[-1] = jax.random.randint(keys[-1], drawn[-1].shape, 0, case.below)
    return tuple(drawn)


def main() -> None:
    """Print a line for each operation."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.in_loops")
    parser.add_argument("--only", default="", help="operations whose name holds this")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4, help="of the scan")
    parser.add_argument("--quick", action="store_true", help="toy sizes")
    options = parser.parse_args()
    jax.config.update("jax_default_matmul_precision", "highest")
    for name, case in cases(options.quick).items():
        if options.only in name:
            row = attempt(name, lambda case=case: measure(case, options.repeats, options.steps))
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
