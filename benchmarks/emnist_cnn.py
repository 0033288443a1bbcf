"""Sizes, data and start points of two image models, in numpy, for sides without the library."""

import statistics
import time
from collections.abc import Callable

import numpy as np

NUM_CLIENTS, NUM_EXAMPLES, BATCH_SIZE, NUM_CLASSES, LR = 10, 100, 20, 62, 0.05
_SHAPES = {
    "conv_1": (3, 3, 1, 32),
    "conv_2": (3, 3, 32, 64),
    "dense_1": (12 * 12 * 64, 128),
    "dense_2": (128, NUM_CLASSES),
}
_TIMED = 3  # timings inside a process; their median counts


def draw(quick: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return images and labels, with axes [clients, examples] in front.

    Images are half noise and half an image of their class.
    """
    rng = np.random.default_rng(0)
    outer = (2, BATCH_SIZE) if quick else (NUM_CLIENTS, NUM_EXAMPLES)
    x = rng.random((*outer, 28, 28, 1), dtype=np.float32)
    y = rng.integers(0, NUM_CLASSES, outer, dtype=np.int32)
    return (x + rng.random((NUM_CLASSES, 28, 28, 1), dtype=np.float32)[y]) / 2, y


def start(linear: bool = False) -> dict[str, dict[str, np.ndarray]]:
    """Return Glorot uniform kernels and zero biases, 1,206,590 numbers.

    The linear model has 48,670 numbers, all zero.
    """
    if linear:
        kernel = np.zeros((28 * 28, NUM_CLASSES), np.float32)
        return {"dense": {"kernel": kernel, "bias": np.zeros(NUM_CLASSES, np.float32)}}
    rng, params = np.random.default_rng(1), {}
    for name, shape in _SHAPES.items():
        taps = int(np.prod(shape[:-2]))
        limit = np.sqrt(6 / (taps * (shape[-2] + shape[-1])))
        kernel = rng.uniform(-limit, limit, shape).astype(np.float32)
        params[name] = {"kernel": kernel, "bias": np.zeros(shape[-1], np.float32)}
    return params


def timings(run: Callable[[int], object], rounds: int) -> tuple[dict, object]:
    """Time ``run(rounds)``, which waits; return milliseconds per round and the result."""
    began = time.perf_counter()
    run(1)
    first = time.perf_counter() - began
    result, walls, cpus = run(rounds), [], []
    for _ in range(_TIMED):
        wall, cpu = time.perf_counter(), time.process_time()
        result = run(rounds)
        walls.append(1e3 * (time.perf_counter() - wall) / rounds)
        cpus.append(1e3 * (time.process_time() - cpu) / rounds)
    return {
        "ms": statistics.median(walls),
        "cpu_ms": statistics.median(cpus),
        "first_round_s": first,
    }, result
