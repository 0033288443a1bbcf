"""The reference workloads, whose arrays both sides use.

W1: least squares + l1, 64 clients of 128 x 1024, ten per round, ten steps of batch 10.
W2: binary logistic + l1, 59 clients of 18 x 39,912, all of them, five full-batch steps.
W3: softmax regression of 62 classes + l1, 3,400 clients of 100 x 784, ten per round, one epoch.
W4: W1 over a grid of rates; see ``benchmarks.sweep``.
W5: W1 with 8 examples of 64 features per client, and a thousand to a million clients.
W6: W1 with 10,000 clients of 16 examples, and ten to all of them per round.
W7: the EMNIST network without dropout, 3,400 clients of 100 x 28 x 28, ten per round, one epoch.
W8: a character GRU, 700 clients of 40 sequences of 80, ten per round, one epoch of batch 4.
"""

from typing import NamedTuple

import numpy as np


class Workload(NamedTuple):
    """Sizes and numbers of a workload; ``None`` if not applicable.

    Attributes:
      model: ``least_squares``, ``logistic`` or ``softmax``; ``emnist_net`` or ``char_gru``.
      num_clients, num_examples, dim, num_classes: the shapes.
      cohort_size: members per round, or ``None`` for full participation.
      num_steps: local steps.
      batch_size: examples per step, or ``None`` for all.
      epoch: whether the batches are one reshuffled pass over the examples.
      num_rounds: rounds that are timed together.
      client_lr, penalty_scale: numbers at which the workload converges.
      server_lr: one, except in sweeps.
    """

    model: str
    num_clients: int
    num_examples: int
    dim: int
    num_classes: int | None
    cohort_size: int | None
    num_steps: int
    batch_size: int | None
    epoch: bool
    num_rounds: int
    client_lr: float
    penalty_scale: float
    server_lr: float = 1.0


WORKLOADS = {
    "W1": Workload("least_squares", 64, 128, 1024, None, 10, 10, 10, False, 500, 0.01, 0.05),
    "W2": Workload("logistic", 59, 18, 39_912, None, None, 5, None, False, 50, 1e-4, 1e-3),
    "W3": Workload("softmax", 3400, 100, 784, 62, 10, 5, 20, True, 100, 0.01, 1e-4),
    "W5": Workload("least_squares", 1000, 8, 64, None, 10, 5, 4, False, 200, 0.01, 0.05),
    "W6": Workload("least_squares", 10_000, 16, 1024, None, 10, 2, 8, False, 5, 0.01, 0.05),
    "W7": Workload("emnist_net", 3400, 100, 784, 62, 10, 5, 20, True, 5, 0.05, 1e-5),
    "W8": Workload("char_gru", 700, 40, 80, 90, 10, 10, 4, True, 5, 0.5, 1e-5),
    # Small enough for a test of the command itself.
    "toy": Workload("least_squares", 6, 12, 8, None, 3, 2, 4, False, 8, 0.01, 0.05),
}

NETWORKS = ("emnist_net", "char_gru")
# The fields that W5 and W6 vary, and their values.
SCALES = {
    "W5": ("num_clients", (1_000, 10_000, 100_000, 1_000_000)),
    "W6": ("cohort_size", (10, 100, 1_000, 10_000)),
    "toy": ("cohort_size", (2, 6)),
}


def draw(workload: Workload) -> tuple[np.ndarray, np.ndarray]:
    """Return features and labels of all clients, client after client, in float32."""
    rng = np.random.default_rng(0)
    clients, dim = workload.num_clients, workload.dim
    if workload.model in NETWORKS:
        return _draw_for_network(rng, workload)
    x = rng.standard_normal((clients, workload.num_examples, dim), dtype=np.float32)
    x += np.float32(0.1) * rng.standard_normal((clients, 1, dim), dtype=np.float32)
    x = x.reshape(-1, dim)
    if workload.model == "softmax":
        return x, rng.integers(0, workload.num_classes, len(x), dtype=np.int32)
    truth = (np.arange(dim) < dim // 2).astype(np.float32)
    score = x @ truth + rng.standard_normal(len(x), dtype=np.float32)
    if workload.model == "logistic":
        return x, (score > 0).astype(np.float32)
    return x, score


def _draw_for_network(rng, workload: Workload) -> tuple[np.ndarray, np.ndarray]:
    """Return images in [0, 1] and labels, or characters and the characters that follow them."""
    num_rows = workload.num_clients * workload.num_examples
    if workload.model == "emnist_net":
        x = rng.random((num_rows, workload.dim), dtype=np.float32)
        return x, rng.integers(0, workload.num_classes, num_rows, dtype=np.int32)
    # No 0, which is padding. Each character largely determines the next one.
    steps = rng.integers(1, 5, (num_rows, workload.dim + 1), dtype=np.int32)
    characters = (workload.num_classes or 0) - 1
    text = 1 + np.cumsum(steps, axis=1, dtype=np.int32) % characters
    return text[:, :-1], text[:, 1:]


def start(workload: Workload) -> dict[str, np.ndarray]:
    """Return the zero model."""
    outputs = () if workload.num_classes is None else (workload.num_classes,)
    kernel = np.zeros((workload.dim, *outputs), np.float32)
    return {"kernel": kernel, "bias": np.zeros(outputs, np.float32)}


def needs(workload: Workload) -> tuple[float, float]:
    """Return operations of a round's forward and gradient products, and bytes of its steps' rows.

    Rows that remain in cache between steps are read once.
    """
    members = workload.cohort_size or workload.num_clients
    rows = workload.batch_size or workload.num_examples
    outputs = workload.num_classes or 1
    operations = 4.0 * members * workload.num_steps * rows * workload.dim * outputs
    fresh = workload.num_steps * rows if workload.batch_size else rows
    return operations, 4.0 * members * fresh * workload.dim
