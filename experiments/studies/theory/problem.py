"""Noisy quadratics with an l1 norm, on the ball or on the simplex, and their constants."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.study import Config
from fcojax.theory import fco
from fcojax.transforms import Mirror, entropic_simplex, euclidean, l1, l2_ball, p_norm, simplex
from fcojax.types import Array, PyTree

SETTINGS = {
    "l1": ("l1, Euclidean", "Theorem 4.3"),
    "sampled": ("l1, sampled clients", "Theorem 4.3 with sampling"),
    "p_norm": ("l1, p-norm", "Theorem 4.3"),
    "ball": ("unit ball, own Hessians", "Theorem 4.2"),
    "simplex": ("simplex, Euclidean", "Theorem 4.2"),
    "entropy": ("simplex, entropy", "Theorem 4.2"),
}

ONE_HESSIAN = ("l1", "sampled", "p_norm")  # shared by all clients, as Theorem 4.3 assumes

# The methods of Theorem 4.1, FedMiD-OSP, for which it also holds with a finite penalty, and the
# method of its remark: R steps of mirror descent with a batch of all M K gradients.
SMALL_STEPS = {
    "l1": ("fed_dual_avg", "fed_mid_osp", "fed_mid", "minibatch"),
    "ball": ("fed_dual_avg", "fed_mid", "minibatch"),
}


class Task(NamedTuple):
    """Clients with noisy quadratics w'Qw/2 + (c + noise)'w, their optimum and constants.

    Attributes:
      data: one row per client and draw of the noise.
      mirror: the geometry, with its penalty.
      scale: the strength of the penalty.
      start: the first point.
      optimum: the minimiser of the mean quadratic plus the penalty.
      gap: returns the suboptimality of points, with coordinates along the last axis.
      constants: the constants of the bounds.
      heterogeneity: zeta for l1; for the ball the largest gradient, G.
      squared_dual_norm: returns the squared dual norm over the last axis.
      convexity: the strong convexity constant of h. The theorems assume 1, so h is divided by it:
      their rates and duals are those of the run divided by it.
    """

    data: fcojax.ClientData
    mirror: Mirror
    scale: float
    start: np.ndarray
    optimum: np.ndarray
    gap: Callable[[np.ndarray], np.ndarray]
    constants: fco.Constants
    heterogeneity: float
    squared_dual_norm: Callable[[jax.Array], jax.Array]
    convexity: float = 1.0


def tasks(config: Config) -> dict[str, Task]:
    """Return the task of every setting.

    The entropy is 1-strongly convex in the l1 norm, hence also in the Euclidean norm, in which its
    constants are those of the Euclidean mirror except for the divergence, the relative entropy.
    The same holds for the squared p-norm over p - 1, whose Hessian has a smaller norm.
    """
    p, plain = config.p_norm_exponent, _task(config, "simplex", euclidean(simplex()))
    w, start = plain.optimum, plain.start
    entropy = np.sum(w * np.log(np.where(w > 0, w, 1) / start))  # 0 log 0 is 0
    constants = plain.constants._replace(distance=float(entropy))
    return {
        "l1": (same := _task(config, "l1", euclidean(l1()))),
        "sampled": same,
        "p_norm": _task(config, "l1", p_norm(p), p - 1),
        "ball": _task(config, "ball", euclidean(l2_ball())),
        "simplex": plain,
        "entropy": plain._replace(mirror=entropic_simplex(), constants=constants),
    }


def _task(config: Config, kind: str, mirror: Mirror, convexity: float = 1.0) -> Task:
    """Return clients with a row for each draw of the noise: a batch of one is a noisy gradient.

    With ``l1`` they share a Hessian with eigenvalues from 0.1 to 2, and the noise is Gaussian. With
    ``ball`` and ``simplex`` their Hessians share only the axes, and the noise is bounded, hence
    also the gradients; on the simplex the optimum is sparse.
    """
    num_clients, dim = shape = config[f"{kind}_clients"], config[f"{kind}_dim"]
    draws = num_clients, config.num_draws, dim
    rng = np.random.default_rng(config.data_seed + ("l1", "ball", "simplex").index(kind))
    q = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    if kind == "l1":
        start, mean = np.ones(dim), np.linspace(0.1, 2, dim)
        linear, noise = 0.5 * rng.standard_normal(shape), 0.2 * rng.standard_normal(draws)
        own = np.broadcast_to(mean, shape)
    else:
        start = np.zeros(dim) if kind == "ball" else np.full(dim, 1 / dim)
        own, linear = rng.uniform(0.1, 2, shape), rng.standard_normal(shape)
        mean, noise = own.mean(axis=0), rng.uniform(-0.5, 0.5, draws)
    noise = np.concatenate([noise, -noise], axis=1)
    hessian, scale = (q * mean) @ q.T, config.l1_scale if kind == "l1" else 0.0
    gap, optimum = _solved(kind, hessian, linear.mean(axis=0), scale)
    if kind == "l1":
        constants, distant = fco.quadratic_constants(hessian, linear, noise, start, optimum)
        ends, centre = mirror.potential(optimum) - mirror.potential(start), mirror.to_dual(start)
        bregman = float(ends - jnp.vdot(centre, optimum - start)) / convexity
        constants, norm = constants._replace(distance=bregman), fco.squared_dual_norm(hessian)
    else:
        curvatures, norm = own.max(axis=1), lambda dual: jnp.sum(dual * dual, axis=-1)
        steepest = (curvatures + np.linalg.norm(linear, axis=1)).max() + 0.5 * dim**0.5
        distant, scale = float(steepest), 1.0  # of an indicator
        constants = fco.Constants(
            distance=float(0.5 * np.sum((optimum - start) ** 2)),
            smoothness=float(curvatures.max()),
            variance=float((noise**2).sum(axis=-1).mean(axis=1).max()),
            num_clients=num_clients,
        )
    rows = (linear[:, None] + noise).reshape(-1, dim)
    examples = {
        "axes": np.broadcast_to(q.T, (len(rows), dim, dim)),
        "curvature": np.repeat(own, noise.shape[1], axis=0),
        "linear": rows,
    }
    data = fcojax.from_rows(examples, [noise.shape[1]] * num_clients)
    given = data, mirror, scale, start, optimum, gap, constants, distant
    return Task(*given, lambda dual: norm(dual / convexity), convexity)


def _solved(
    kind: str, hessian: np.ndarray, slope: np.ndarray, scale: float
) -> tuple[Callable[[np.ndarray], np.ndarray], np.ndarray]:
    """Return the gap of points and the minimiser, by more proximal gradient steps than needed."""

    def prox(v, step):
        if kind == "l1":
            return np.sign(v) * np.maximum(np.abs(v) - step * scale, 0)
        if kind == "ball":
            return v / max(np.linalg.norm(v), 1)
        largest = -np.sort(-v)
        beyond = (np.cumsum(largest) - 1) / np.arange(1, v.size + 1)
        return np.maximum(v - beyond[np.sum(largest > beyond) - 1], 0)

    def objective(w):
        quadratic = 0.5 * np.einsum("...i,ij,...j->...", w, hessian, w) + w @ slope
        return quadratic + scale * np.abs(w).sum(axis=-1)

    step, w = 1 / np.linalg.eigvalsh(hessian)[-1], np.zeros(len(hessian))
    for _ in range(20_000):
        w = prox(w - step * (hessian @ w + slope), step)
    least = objective(w)
    return lambda points: objective(points) - least, w


def loss(w: Array, rows: PyTree) -> Array:
    """Return the quadratic of each row: eigenvectors, eigenvalues and linear term."""
    rotated = jnp.einsum("nij,j->ni", rows["axes"], w)
    return 0.5 * jnp.sum(rows["curvature"] * rotated**2, axis=1) + rows["linear"] @ w
