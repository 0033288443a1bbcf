"""Time per method of the Stiefel projection, against a batched SVD in the same run.

    python -m benchmarks.stiefel [--methods gram,eigh] [--repeats 21] [--dtype float32] [--quick]

Prints one JSON line per method, shape and kind of input. All methods alternate with numpy's and
jax's SVD, so that every one sees the same machine; medians are compared, with the faster of the
two SVDs. ``infeasibility`` is the largest ``|X^T X - I|`` and ``difference`` that to the SVD's
answer in float64, so faster cannot mean less done.
"""

import argparse
import json
import statistics
from collections.abc import Iterator
from functools import partial
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.alternating import alternate
from fcojax.transforms.manifolds.polar import METHODS, Method, default_method, polar

SHAPES = ((64, 784, 5), (1, 784, 5), (64, 784, 16), (64, 32, 32), (1, 256, 256))
INPUTS = ("near", "gaussian")  # points of the manifold off by 0.05, and standard normal matrices


def draw(kind: str, shape: tuple, dtype: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    y = rng.standard_normal(shape)
    if kind == "near":
        noise = rng.standard_normal(shape)
        noise *= 0.05 / np.linalg.norm(noise, 2, axis=(-2, -1), keepdims=True)
        y = np.linalg.qr(y)[0] + noise
    return y.astype(dtype)


def numpy_svd(y):
    left, _, right = np.linalg.svd(y, full_matrices=False)
    return left @ right


@jax.jit
def jax_svd(y):
    left, _, right = jnp.linalg.svd(y, full_matrices=False)
    return left @ right


def rows(
    methods: tuple[Method, ...], shapes: tuple = SHAPES, dtype: str = "float32", repeats: int = 21
) -> Iterator[dict]:
    """Yield one row per shape, kind of input and method."""
    for shape in shapes:
        for kind in INPUTS:
            y = draw(kind, shape, dtype)
            placed = jnp.asarray(y)
            exact = numpy_svd(y.astype(np.float64))
            projections = {
                name: partial(jax.jit(jax.vmap(partial(polar, method=name))), placed)
                for name in methods
            }
            judges = {"numpy svd": partial(numpy_svd, y), "jax svd": partial(jax_svd, placed)}
            times = alternate(projections | judges, repeats)
            seconds = {name: statistics.median(taken) for name, taken in times.items()}
            judge = min(judges, key=lambda name: seconds[name])
            for name in methods:
                x = np.asarray(projections[name](), np.float64)
                gram = np.swapaxes(x, -1, -2) @ x - np.eye(shape[-1])
                yield {
                    "transform": f"stiefel, {name}, {kind}",
                    "shape": list(shape),
                    "dtype": dtype,
                    "device": jax.devices()[0].device_kind,
                    "seconds": seconds[name],
                    "against": judge,
                    "their_seconds": seconds[judge],
                    "times_faster": round(seconds[judge] / seconds[name], 2),
                    "difference": float(np.abs(x - exact).max()),
                    "infeasibility": float(np.linalg.norm(gram, axis=(-2, -1)).max()),
                }


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Time per method of the Stiefel projection.")
    parser.add_argument("--methods", default=default_method(), help="comma-separated, or all")
    parser.add_argument("--repeats", type=int, default=21)
    parser.add_argument("--dtype", default="float32", choices=["float32", "float64"])
    parser.add_argument("--quick", action="store_true", help="the first shape, once")
    options = parser.parse_args(arguments)
    if options.dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    chosen = METHODS if options.methods == "all" else options.methods.split(",")
    methods = cast(tuple[Method, ...], tuple(chosen))
    shapes, repeats = (SHAPES[:1], 1) if options.quick else (SHAPES, options.repeats)
    for row in rows(methods, shapes, options.dtype, repeats):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
