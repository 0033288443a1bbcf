"""Time per transform and size, against numpy, scipy or scikit-learn in the same run.

    python -m benchmarks.transforms [--only simplex] [--repeats 11] [--quick]

It prints one JSON line per case and size. The two versions alternate, so that both run under the
same conditions, and medians are compared. ``difference`` compares both results, to show that speed
is not bought with accuracy. For a new transform, add a row to ``CASES``.
"""

import argparse
import functools
import json
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.isotonic import isotonic_regression

from benchmarks.alternating import alternate
from fcojax import transforms

VECTORS = ((1_000,), (100_000,), (1_000_000,), (64, 1_000))
MATRICES = ((32, 32), (128, 128), (512, 512), (1024, 1024), (64, 32, 32))
FRAMES = ((64, 784, 5), (64, 784, 16), (64, 32, 32))


class Case(NamedTuple):
    """One transform in two versions.

    Attributes:
      ours: a jittable function of the arrays that ``draw`` returns.
      theirs: the plain version, on numpy arrays; with None only our time is reported.
      shapes: the arguments of ``draw``.
      draw: ``(numpy generator, shape) -> arrays``.
      label: a description of ``theirs``.
      applied: how often one call applies the transform; times are divided by it.
      agree: whether both results are the same.
    """

    ours: Callable
    theirs: Callable | None
    shapes: tuple = VECTORS
    draw: Callable = lambda generator, shape: (generator.normal(size=shape),)
    label: str = "numpy"
    applied: int = 1
    agree: bool = True


def per_row(function: Callable, rank: int = 1) -> Callable:
    """Return ``function``, mapped over the leading axis if there are more axes than ``rank``."""

    def apply(x):
        if jnp.ndim(x) == rank:
            return function(x)
        if isinstance(x, np.ndarray):
            return np.stack([function(row) for row in x])
        return jax.vmap(function)(x)

    return apply


def prox(penalty: transforms.Penalty, step: float, scale: float, rank: int = 1) -> Callable:
    """Return the prox as a function of the point, over a batch if there is one."""
    return per_row(lambda v: penalty.prox(v, step, scale), rank)


def prox_in_a_program(penalty: transforms.Penalty, step: float, applied: int) -> Callable:
    """Return the iterated prox in one compiled loop, as in the clients' steps."""
    return lambda v, _: jax.lax.fori_loop(0, applied, lambda _, at: penalty.prox(at, step, 1.0), v)


def copy_there_and_back(here, there, applied):
    """Copy between two existing arrays, ``applied`` times."""
    for _ in range(applied // 2):
        np.copyto(there, here)
        np.copyto(here, there)


def soft_threshold(v, threshold=0.7):
    return np.sign(v) * np.maximum(np.abs(v) - v.dtype.type(threshold), 0)


def simplex_by_sorting(v, total=1.0):
    falling = np.sort(v)[::-1]
    excess = np.cumsum(falling) - v.dtype.type(total)
    counts = np.arange(1, v.size + 1, dtype=v.dtype)
    last = np.flatnonzero(falling * counts > excess)[-1]
    return np.maximum(v - excess[last] / counts[last], 0)


def l1_ball_by_sorting(v, radius):
    size = np.abs(v)
    return v if size.sum() <= radius else np.sign(v) * simplex_by_sorting(size, radius)


def group_shrink(v, groups=10):
    blocks = v.reshape(groups, -1)
    norms = np.linalg.norm(blocks, axis=1, keepdims=True)
    return (np.maximum(1 - 3 / norms, 0) * blocks).reshape(v.shape)


def grouped(v, groups=10):
    shrunk = transforms.group_l2(axis=1).prox(v.reshape(groups, -1), 1.0, 3.0)
    return shrunk.reshape(v.shape)


def keep_largest(v, k=100):
    kept = np.argpartition(-np.abs(v), k - 1)[:k]
    sparse = np.zeros_like(v)
    sparse[kept] = v[kept]
    return sparse


def cube_root_shrink(v, strength=0.7):
    return np.sign(v) * 2 * np.abs(v) / (1 + np.sqrt(1 + 12 * strength * np.abs(v)))


def singular_value_threshold(v, threshold=1.0):
    left, values, right = np.linalg.svd(v, full_matrices=False)
    kept = np.maximum(values - v.dtype.type(threshold), 0)
    return (left * kept[..., None, :]) @ right


def nearest_frame(v):
    left, _, right = np.linalg.svd(v, full_matrices=False)
    return left @ right


def near_a_frame(generator, shape):
    """Draw points of the Stiefel manifold, perturbed by norm 0.05."""
    noise = generator.normal(size=shape)
    noise *= 0.05 / np.linalg.norm(noise, 2, axis=(-2, -1), keepdims=True)
    return (np.linalg.qr(generator.normal(size=shape))[0] + noise,)


def eigenvalue_clip(v):
    values, basis = np.linalg.eigh((v + np.swapaxes(v, -1, -2)) / 2)
    return (basis * np.maximum(values, 0)[..., None, :]) @ np.swapaxes(basis, -1, -2)


CASES = {
    "l1": Case(prox(transforms.l1(), 1.0, 0.7), soft_threshold),
    "l1 in a program against copies": Case(
        prox_in_a_program(transforms.l1(), 0.007, 100),
        functools.partial(copy_there_and_back, applied=100),
        draw=lambda generator, shape: (generator.normal(size=shape), np.zeros(shape)),
        label="numpy.copyto",
        applied=100,
        agree=False,
    ),
    "l2": Case(
        prox(transforms.l2(), 1.0, 3.0), per_row(lambda v: v * max(1 - 3 / np.linalg.norm(v), 0))
    ),
    "group_l2": Case(per_row(grouped), per_row(group_shrink)),
    "power 3": Case(prox(transforms.lp_power(3), 1.0, 0.7), cube_root_shrink),
    "power 2.5": Case(prox(transforms.lp_power(2.5), 1.0, 0.7), None),
    "l_inf": Case(
        prox(transforms.l_inf(), 1.0, 10.0), per_row(lambda v: v - l1_ball_by_sorting(v, 10.0))
    ),
    "simplex": Case(prox(transforms.simplex(), 1.0, 1.0), per_row(simplex_by_sorting)),
    "simplex of half the entries": Case(
        per_row(lambda v: transforms.simplex().prox(v, 1.0, 0.4 * v.size)),
        per_row(lambda v: simplex_by_sorting(v, 0.4 * v.size)),
    ),
    "l1_ball": Case(
        prox(transforms.l1_ball(), 1.0, 10.0), per_row(lambda v: l1_ball_by_sorting(v, 10.0))
    ),
    "l2_ball": Case(
        prox(transforms.l2_ball(), 1.0, 3.0), per_row(lambda v: v * min(3 / np.linalg.norm(v), 1))
    ),
    "box": Case(prox(transforms.box(-0.5, 0.5), 1.0, 1.0), lambda v: np.clip(v, -0.5, 0.5)),
    "l0_ball": Case(prox(transforms.l0_ball(100), 1.0, 1.0), per_row(keep_largest)),
    "monotone": Case(
        prox(transforms.monotone(), 1.0, 1.0), per_row(isotonic_regression), label="scikit-learn"
    ),
    "total_variation": Case(prox(transforms.total_variation(), 1.0, 1.0), None),
    "nuclear": Case(
        lambda v: transforms.nuclear().prox(v, 1.0, 1.0), singular_value_threshold, MATRICES
    ),
    "psd": Case(lambda v: transforms.psd().prox(v, 1.0, 1.0), eigenvalue_clip, MATRICES),
    "stiefel": Case(per_row(transforms.stiefel().project, 2), nearest_frame, FRAMES),
    "stiefel, near": Case(
        per_row(transforms.stiefel().project, 2), nearest_frame, FRAMES, near_a_frame, "numpy's SVD"
    ),
}


def measure(name: str, case: Case, shape: tuple, repeats: int) -> dict:
    """Return medians of alternating runs, and the largest difference of the two results."""
    drawn = [np.asarray(a, np.float32) for a in case.draw(np.random.default_rng(0), shape)]
    placed = [jnp.asarray(a) for a in drawn]
    ours = jax.jit(case.ours)
    began = time.perf_counter()
    answer = jax.block_until_ready(ours(*placed))
    compile_seconds = time.perf_counter() - began
    ways = {"ours": functools.partial(ours, *placed)}
    if case.theirs is not None:
        ways["theirs"] = functools.partial(case.theirs, *drawn)
    times = alternate(ways, repeats)
    medians = {way: statistics.median(taken) / case.applied for way, taken in times.items()}
    row = {"transform": name, "shape": list(shape)}
    row["device"] = jax.devices()[0].device_kind
    row["compile_seconds"] = round(compile_seconds, 4)
    row["seconds"] = medians["ours"]
    if "theirs" in ways:
        row["against"] = case.label
        row["their_seconds"] = medians["theirs"]
        row["times_faster"] = round(medians["theirs"] / medians["ours"], 2)
    if case.theirs is not None and case.agree:
        row["difference"] = float(np.max(np.abs(np.asarray(answer) - case.theirs(*drawn))))
    return row


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transforms")
    parser.add_argument("--only", help="cases whose name contains this")
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--quick", action="store_true", help="the smallest size of each, once")
    options = parser.parse_args(arguments)
    for name, case in CASES.items():
        if options.only and options.only not in name:
            continue
        for shape in case.shapes[:1] if options.quick else case.shapes:
            repeats = 1 if options.quick else options.repeats
            print(json.dumps(measure(name, case, shape, repeats)), flush=True)


if __name__ == "__main__":
    main()
