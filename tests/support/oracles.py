"""The six algorithms in slow and simple numpy, on one vector, client by client.

The vector is (kernel, bias); psi is lambda times the l1 norm of the kernel, the bias is free.
"""

import numpy as np


def soft(v, threshold):
    shrunk = np.sign(v) * np.maximum(np.abs(v) - threshold, 0.0)
    return np.append(shrunk[:-1], v[-1])


def squared_gradient(w, x, y, weights):
    """Return the gradient of the weighted mean of (x w + b - y)^2."""
    residual = x @ w[:-1] + w[-1] - y
    scaled = 2 * weights * residual / weights.sum()
    return np.append(scaled @ x, scaled.sum())


def sign_of_kernel(w):
    return np.append(np.sign(w[:-1]), 0.0)


def simulate(name, w, clients, rounds, client_lr, server_lr, scale, client_weights=None):
    """Return the models after each round.

    ``rounds`` lists, for each round, the members of the cohort with their weights, and for each of
    them its minibatches: one (indices, weights) per step; steps of total weight zero are not taken.
    """
    dual, elapsed = w.copy(), 0.0
    models = []
    for cohort in rounds:
        deltas, times, weights = [], [], []
        for member, weight, batches in cohort:
            x, y = clients[member]["x"], clients[member]["y"]
            point, time = (dual if name.startswith("fed_dual_avg") else w).copy(), 0.0
            start = point.copy()
            for indices, batch_weights in batches:
                if batch_weights.sum() == 0:
                    continue
                read = soft(point, (elapsed + time) * scale) if name == "fed_dual_avg" else point
                slope = squared_gradient(read, x[indices], y[indices], batch_weights)
                point = point - client_lr * slope
                time += client_lr
                if name == "fed_mid":
                    point = soft(point, client_lr * scale)
                if name == "fed_avg_subgradient":
                    point = point - client_lr * scale * sign_of_kernel(point)
            if weight > 0 and np.isfinite(point).all():
                deltas.append(point - start)
                times.append(time)
                weights.append(weight)
        if weights:
            mean = np.average(deltas, axis=0, weights=weights)
            mean_time = np.average(times, weights=weights)
            if name.startswith("fed_dual_avg"):
                dual = dual + server_lr * mean
                elapsed += server_lr * mean_time
                w = soft(dual, elapsed * scale)
            elif name.startswith("fed_mid"):
                w = soft(w + server_lr * mean, server_lr * mean_time * scale)
            else:
                w = w + server_lr * mean
        elif name.startswith("fed_dual_avg"):
            w = soft(dual, elapsed * scale)
        models.append(w)
    return np.array(models)
