"""The same algorithms in plain numpy, vectorised over clients; this file does not import JAX.

Products are batched over the clients of a round, buffers are reused, and all is float32.
"""

import numpy as np

from benchmarks.workloads import Workload, start

ALGORITHMS = ("fed_avg", "fed_mid", "fed_dual_avg")


def residual(model: str, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Compute the derivative of the loss with respect to the scores, in place."""
    if model == "least_squares":
        scores -= labels
        scores *= 2
    elif model == "logistic":
        np.negative(scores, out=scores)
        np.exp(scores, out=scores)
        scores += 1
        np.reciprocal(scores, out=scores)
        scores -= labels
    else:
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        clients, rows = np.ogrid[: labels.shape[0], : labels.shape[1]]
        scores[clients, rows, labels] -= 1
    return scores


def loss(model: str, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return one loss per example."""
    if model == "least_squares":
        return (scores - labels) ** 2
    if model == "logistic":
        return np.logaddexp(0, scores) - labels * scores
    top = scores.max(axis=-1, keepdims=True)
    normaliser = np.log(np.exp(scores - top).sum(axis=-1)) + top[:, 0]
    return normaliser - scores[np.arange(len(labels)), labels]


def objective(
    workload: Workload, params: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray, penalised: bool
) -> float:
    """Return F + psi of a model on all data, computed in numpy in blocks, for both sides alike."""
    total = 0.0
    for first in range(0, len(x), 8192):
        rows = slice(first, first + 8192)
        scores = x[rows] @ params["kernel"] + params["bias"]
        total += float(loss(workload.model, scores, y[rows]).sum())
    penalty = workload.penalty_scale * float(np.abs(params["kernel"]).sum())
    return total / len(x) + (penalty if penalised else 0.0)


def soft(v: np.ndarray, threshold: float | np.floating, out: np.ndarray) -> np.ndarray:
    """Write the soft thresholding of ``v`` into a buffer."""
    bound = np.float32(threshold)
    np.clip(v, -bound, bound, out=out)
    return np.subtract(v, out, out=out)


def run(
    algorithm: str,
    workload: Workload,
    x: np.ndarray,
    y: np.ndarray,
    members: np.ndarray | None,
    indices: np.ndarray | None,
    num_rounds: int,
) -> dict[str, np.ndarray]:
    """Run ``num_rounds`` rounds from the zero model; return the last model.

    Args:
      algorithm: one of ``ALGORITHMS``.
      workload: sizes and hyperparameters.
      x: features of all clients, client after client.
      y: labels.
      members: [rounds, cohort] clients of each round, ``None`` for everyone.
      indices: [rounds, cohort, steps, batch] examples within each client, ``None`` for all.
      num_rounds: number of rounds.
    """
    size, lr, scale = workload.num_examples, np.float32(workload.client_lr), workload.penalty_scale
    server_lr = np.float32(workload.server_lr)
    cohort = workload.cohort_size or workload.num_clients
    dual = algorithm == "fed_dual_avg"
    server = start(workload)
    kernel, bias = server["kernel"], server["bias"]
    vector = kernel.ndim == 1
    z = np.empty((cohort, *kernel.shape), np.float32)
    model = np.empty_like(z) if algorithm != "fed_avg" else z
    elapsed = 0.0
    whole_x, whole_y = x.reshape(-1, size, workload.dim), y.reshape(-1, size)
    batch = workload.batch_size or size
    xb = whole_x if indices is None else np.empty((cohort, batch, workload.dim), np.float32)
    yb = whole_y if indices is None else np.empty((cohort, batch), y.dtype)
    for index in range(num_rounds):
        z[:] = kernel
        b = np.repeat(bias[None], cohort, axis=0)
        offsets = None if members is None else members[index][:, None] * size
        for step in range(workload.num_steps):
            if indices is not None:
                rows = offsets + indices[index, :, step]
                np.take(x, rows, axis=0, out=xb)
                np.take(y, rows, axis=0, out=yb)
            read = soft(z, (elapsed + step * lr) * scale, model) if dual else z
            scores = np.matmul(xb, read[:, :, None])[:, :, 0] if vector else np.matmul(xb, read)
            scores += b[:, None]
            slope = residual(workload.model, scores, yb)
            slope *= lr / batch
            if vector:
                z -= np.matmul(slope[:, None, :], xb)[:, 0]
            else:
                z -= np.matmul(xb.transpose(0, 2, 1), slope)
            b -= slope.sum(axis=1)
            if algorithm == "fed_mid":
                z[:] = soft(z, lr * scale, model)
        kernel = kernel + server_lr * (z.mean(axis=0) - kernel)
        bias = bias + server_lr * (b.mean(axis=0) - bias)
        round_lr = workload.num_steps * workload.server_lr * float(lr)
        elapsed += round_lr
        if algorithm == "fed_mid":
            kernel = soft(kernel, round_lr * scale, np.empty_like(kernel))
    if dual:
        kernel = soft(kernel, elapsed * scale, np.empty_like(kernel))
    return {"kernel": kernel, "bias": bias}
