"""Noisy quadratics with an l1 norm, on the ball or on the simplex, and their constants."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.study import Config
from fcojax.problems import ClientData
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
      objective: returns the value at points, with coordinates along the last axis.
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
    objective: Callable[[np.ndarray], np.ndarray]
    constants: fco.Constants
    heterogeneity: float
    squared_dual_norm: Callable[[jax.Array], jax.Array]
    convexity: float = 1.0

    def gap(self, points: np.ndarray) -> np.ndarray:
        """Return the suboptimality of points."""
        return self.objective(points) - self.objective(self.optimum)


def _half_square(w: np.ndarray, start: np.ndarray) -> float:
    return 0.5 * np.sum((w - start) ** 2)


def _relative_entropy(w: np.ndarray, start: np.ndarray) -> float:
    return np.sum(w * np.log(np.where(w > 0, w, 1) / start))  # 0 log 0 is 0


def l1_task(config: Config, mirror: Mirror, convexity: float = 1.0) -> Task:
    """Return clients that share a Hessian with eigenvalues from 0.1 to 2, with Gaussian noise."""
    rng, scale = np.random.default_rng(config.data_seed), config.l1_scale
    num_clients, dim = config.l1_clients, config.l1_dim
    q = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    linear = 0.5 * rng.standard_normal((num_clients, dim))
    noise = _both_signs(0.2 * rng.standard_normal((num_clients, config.num_draws, dim)))
    eigenvalues, start = np.linspace(0.1, 2, dim), np.ones(dim)

    def soft(v, step):
        return np.sign(v) * np.maximum(np.abs(v) - step * scale, 0)

    hessian, objective, optimum = _solved(q, eigenvalues, linear, scale, soft)
    constants, zeta = fco.quadratic_constants(hessian, linear, noise, start, optimum)
    ends, centre = mirror.potential(optimum) - mirror.potential(start), mirror.to_dual(start)
    bregman = float(ends - jnp.vdot(centre, optimum - start)) / convexity
    squared_norm = fco.squared_dual_norm(hessian)
    return Task(
        _population(q, np.tile(eigenvalues, (num_clients, 1)), linear, noise),
        mirror,
        scale,
        start,
        optimum,
        objective,
        constants._replace(distance=bregman),
        zeta,
        lambda dual: squared_norm(dual / convexity),
        convexity,
    )


def _to_ball(v: np.ndarray, step: float) -> np.ndarray:
    return v / max(np.linalg.norm(v), 1)


def _to_simplex(v: np.ndarray, step: float) -> np.ndarray:
    largest = -np.sort(-v)
    beyond = (np.cumsum(largest) - 1) / np.arange(1, v.size + 1)
    return np.maximum(v - beyond[np.sum(largest > beyond) - 1], 0)


def tasks(config: Config) -> dict[str, Task]:
    """Return the task of every setting.

    The entropy is 1-strongly convex in the l1 norm, hence also in the Euclidean norm, in which its
    constants are those of the Euclidean mirror except for the divergence, the relative entropy.
    The same holds for the squared p-norm over p - 1, whose Hessian has a smaller norm.
    """
    p = config.p_norm_exponent
    return {
        "l1": (same := l1_task(config, euclidean(l1()))),
        "sampled": same,
        "p_norm": l1_task(config, p_norm(p), p - 1),
        "ball": _bounded(config, "ball", euclidean(l2_ball()), _to_ball),
        "simplex": _bounded(config, "simplex", euclidean(simplex()), _to_simplex),
        "entropy": _bounded(config, "simplex", entropic_simplex(), _to_simplex, _relative_entropy),
    }


def _bounded(
    config: Config, kind: str, mirror: Mirror, project: Callable, distance: Callable = _half_square
) -> Task:
    """Return clients on the unit ball or the simplex whose Hessians share only their axes.

    The noise is bounded, hence also the gradients; on the simplex the optimum is sparse.
    """
    num_clients, dim = shape = config[f"{kind}_clients"], config[f"{kind}_dim"]
    is_ball = kind == "ball"
    rng = np.random.default_rng(config.data_seed + (1 if is_ball else 2))
    start = np.zeros(dim) if is_ball else np.full(dim, 1 / dim)
    q = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    eigenvalues = rng.uniform(0.1, 2, shape)
    linear = rng.standard_normal(shape)
    noise = _both_signs(rng.uniform(-0.5, 0.5, (num_clients, config.num_draws, dim)))
    _, objective, optimum = _solved(q, eigenvalues.mean(axis=0), linear, 0.0, project)
    curvatures = eigenvalues.max(axis=1)
    steepest = (curvatures + np.linalg.norm(linear, axis=1)).max() + 0.5 * dim**0.5
    constants = fco.Constants(
        distance=float(distance(optimum, start)),
        smoothness=float(curvatures.max()),
        variance=float((noise**2).sum(axis=-1).mean(axis=1).max()),
        num_clients=num_clients,
    )
    data = _population(q, eigenvalues, linear, noise)
    given = data, mirror, 1.0, start, optimum, objective, constants, float(steepest)
    return Task(*given, squared_dual_norm=lambda z: jnp.sum(z * z, axis=-1))


def _population(
    q: np.ndarray, eigenvalues: np.ndarray, linear: np.ndarray, noise: np.ndarray
) -> ClientData:
    """Return clients with a row for each draw of the noise: a batch of one is a noisy gradient."""
    clients = []
    for values, rows in zip(eigenvalues, linear[:, None] + noise, strict=True):
        curvature = np.broadcast_to(values, rows.shape)
        axes = np.broadcast_to(q.T, (len(rows), *q.shape))
        clients.append({"axes": axes, "curvature": curvature, "linear": rows})
    return fcojax.from_clients(clients)


def _solved(
    q: np.ndarray, eigenvalues: np.ndarray, linear: np.ndarray, scale: float, prox: Callable
) -> tuple[np.ndarray, Callable, np.ndarray]:
    """Return Hessian, objective and minimiser, by more proximal gradient steps than necessary."""
    hessian, slope = (q * eigenvalues) @ q.T, linear.mean(axis=0)

    def objective(w):
        quadratic = 0.5 * np.einsum("...i,ij,...j->...", w, hessian, w) + w @ slope
        return quadratic + scale * np.abs(w).sum(axis=-1)

    step, w = 1 / np.linalg.eigvalsh(hessian)[-1], np.zeros(len(hessian))
    for _ in range(20_000):
        w = prox(w - step * (hessian @ w + slope), step)
    return hessian, objective, w


def _both_signs(draws: np.ndarray) -> np.ndarray:
    return np.concatenate([draws, -draws], axis=1)


def loss(w: Array, rows: PyTree) -> Array:
    """Return the quadratic of each row: eigenvectors, eigenvalues and linear term."""
    rotated = jnp.einsum("nij,j->ni", rows["axes"], w)
    return 0.5 * jnp.sum(rows["curvature"] * rotated**2, axis=1) + rows["linear"] @ w
