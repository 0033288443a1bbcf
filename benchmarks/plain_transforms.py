"""Transforms beside plain JAX, on the current device."""

import statistics
import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.alternating import alternate
from benchmarks.cases import attempt
from fcojax import transforms


def soft(v, threshold=0.7):
    return jnp.sign(v) * jnp.maximum(jnp.abs(v) - threshold, 0)


def simplex_by_sorting(v):
    falling = jnp.sort(v)[::-1]
    excess = jnp.cumsum(falling) - 1
    last = jnp.sum(falling * jnp.arange(1, v.size + 1) > excess) - 1
    return jnp.maximum(v - excess[last] / (last + 1), 0)


def svd_shrunk(v):
    left, values, right = jnp.linalg.svd(v, full_matrices=False)
    return (left * jnp.maximum(values - 1, 0)) @ right


def nearest_frame(v):
    left, _, right = jnp.linalg.svd(v, full_matrices=False)
    return left @ right


VECTORS, MATRICES = ((1_000_000,), (64, 1_000)), ((256, 256), (64, 32, 32))
# Our transform, a plain version or None, the rank of one point, and the shapes of batches.
TRANSFORMS = {
    "l1": (lambda v: transforms.l1().prox(v, 1.0, 0.7), soft, 1, VECTORS),
    "simplex": (lambda v: transforms.simplex().prox(v, 1.0, 1.0), simplex_by_sorting, 1, VECTORS),
    "l0_ball": (lambda v: transforms.l0_ball(100).prox(v, 1.0, 1.0), None, 1, VECTORS),
    "monotone": (lambda v: transforms.monotone().prox(v, 1.0, 1.0), None, 1, VECTORS[1:]),
    "nuclear": (lambda v: transforms.nuclear().prox(v, 1.0, 1.0), svd_shrunk, 2, MATRICES),
    "stiefel": (transforms.stiefel().project, nearest_frame, 2, ((64, 784, 16), (256, 256))),
}


def of_transforms(quick: bool) -> Iterator[dict]:
    """Yield the time of each transform, beside plain JAX if there is such a version."""
    for name, (ours, plain, rank, shapes) in TRANSFORMS.items():
        for shape in ((4,) * rank,) if quick else shapes:
            at = jax.random.normal(jax.random.key(0), shape, jnp.float32)

            def measure(at=at, ours=ours, plain=plain, rank=rank):
                ways = {"ours": ours} if plain is None else {"ours": ours, "plain": plain}
                batched = {
                    way: jax.jit(f if at.ndim == rank else jax.vmap(f)) for way, f in ways.items()
                }
                began = time.perf_counter()
                ends = {way: np.asarray(f(at)) for way, f in batched.items()}
                first = time.perf_counter() - began
                calls = {way: lambda f=f: f(at) for way, f in batched.items()}
                times = {
                    way: 1e3 * statistics.median(taken)
                    for way, taken in alternate(calls, 5).items()
                }
                row = {"ms": times["ours"], "first_run_s": first, "bytes": 2 * at.nbytes}
                if plain is not None:
                    row["by_hand_ms"] = times["plain"]
                    row["difference"] = float(np.abs(ends["ours"] - ends["plain"]).max())
                return row

            yield attempt(f"{name} {'x'.join(map(str, shape))}", measure)
