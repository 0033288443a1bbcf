"""Problems for the bounds: noisy quadratics, and regressions on data of the library."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.study import Config
from fcojax.problems.losses import Loss
from fcojax.theory import fco
from fcojax.transforms import Mirror, euclidean, l1, l1_ball, l2_ball, p_norm, simplex
from fcojax.types import Array, PyTree

SETTINGS = {
    "l1": ("l1, Euclidean", "Theorem 4.3"),
    "sampled": ("l1, sampled clients", "Theorem 4.3 with sampling"),
    "p_norm": ("l1, p-norm", "Theorem 4.3"),
    "ball": ("unit ball, own Hessians", "Theorem 4.2"),
    "simplex": ("simplex, Euclidean", "Theorem 4.2"),
    "entropy": ("simplex, entropy", "Theorem 4.2"),
    "ball_sampled": ("unit ball, sampled clients", "Theorem 4.2 with sampling"),
    "ball_weighted": ("unit ball, unequal weights", "Theorem 4.2 with weights"),
    "logistic": ("l1, logistic regression", "Theorem 4.2"),
    "lasso": ("l1 ball, least squares", "Theorem 4.2"),
}

REGRESSIONS = ("logistic", "lasso")  # on data of the library, unlike the noisy quadratics

ONE_HESSIAN = ("l1", "sampled", "p_norm")  # shared by all clients, as Theorem 4.3 assumes


class Quadratics(NamedTuple):
    """Clients with noisy quadratics w'Qw/2 + (c + noise)'w whose Hessians share their axes.

    Attributes:
      axes: the eigenvectors, one a row.
      curvatures: the eigenvalues of each client.
      linear: the c of each client.
      noise: its draws, each equally likely, [clients, draws, dim].
    """

    axes: np.ndarray
    curvatures: np.ndarray
    linear: np.ndarray
    noise: np.ndarray

    def population(self, weights: Any = None) -> fcojax.ClientData:
        """Return clients with a row for each draw: a batch of one is a noisy gradient."""
        (number, draws, dim), rows = self.noise.shape, (self.linear[:, None] + self.noise)
        examples = {
            "axes": np.broadcast_to(self.axes, (number * draws, dim, dim)),
            "curvature": np.repeat(self.curvatures, draws, axis=0),
            "linear": rows.reshape(-1, dim),
        }
        return fcojax.from_rows(examples, [draws] * number, weights)

    def quiet(self) -> "Quadratics":
        """Return the clients without noise."""
        return self._replace(noise=np.zeros_like(self.noise[:, :1]))

    def equal(self, number: int) -> "Quadratics":
        """Return so many clients whose quadratic is the mean; their noise is of each in turn."""
        curvatures, linear = (np.tile(x.mean(axis=0), (number, 1)) for x in self[1:3])
        noise = self.noise[np.arange(number) % len(self.noise)]
        return Quadratics(self.axes, curvatures, linear, noise)


def quadratic(w: Array, rows: PyTree) -> Array:
    """Return the quadratic of each row: eigenvectors, eigenvalues and linear term."""
    rotated = jnp.einsum("nij,j->ni", rows["axes"], w)
    return 0.5 * jnp.sum(rows["curvature"] * rotated**2, axis=1) + rows["linear"] @ w


def effective(weights: np.ndarray) -> float:
    """Return 1 / sum_m p_m^2, the number of clients of equal weight whose mean is as noisy."""
    return float(weights.sum() ** 2 / np.sum(weights**2))


def _squares(dual: Any) -> Any:
    return jnp.sum(dual * dual, axis=-1)


class Task(NamedTuple):
    """Clients with their optimum and constants.

    Attributes:
      data: the clients; one row is a stochastic gradient.
      mirror: the geometry, with its penalty.
      scale: the strength of the penalty.
      start: the first point.
      optimum: the minimiser of the mean loss plus the penalty.
      gap: returns the suboptimality of points, with coordinates along the last axis.
      constants: the constants of the bounds.
      heterogeneity: zeta with one Hessian; otherwise the largest stochastic gradient, G.
      squared_dual_norm: returns the squared dual norm over the last axis.
      loss: one loss per row.
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
    squared_dual_norm: Callable[[jax.Array], jax.Array] = _squares
    loss: Loss = quadratic
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
        "ball": (ball := _task(config, "ball", euclidean(l2_ball()))),
        "simplex": plain,
        "entropy": plain._replace(mirror=fcojax.transforms.entropic_simplex(), constants=constants),
        "ball_sampled": ball,
        "ball_weighted": _task(config, "ball", euclidean(l2_ball()), ratio=config.weighted_ratio),
        **{name: _regression(config, name) for name in REGRESSIONS},
    }


def quadratics(config: Config, kind: str) -> Quadratics:
    """Return the clients of a setting.

    With ``l1`` they share a Hessian with eigenvalues from 0.1 to 2, and the noise is Gaussian. With
    ``ball`` and ``simplex`` their Hessians share only the axes, and the noise is bounded, hence
    also the gradients; on the simplex the optimum is sparse.
    """
    num_clients, dim = shape = config[f"{kind}_clients"], config[f"{kind}_dim"]
    draws = num_clients, config.num_draws, dim
    rng = np.random.default_rng(config.data_seed + ("l1", "ball", "simplex").index(kind))
    axes = np.linalg.qr(rng.standard_normal((dim, dim)))[0].T
    if kind == "l1":
        curvatures = np.broadcast_to(np.linspace(0.1, 2, dim), shape)
        linear, noise = 0.5 * rng.standard_normal(shape), 0.2 * rng.standard_normal(draws)
    else:
        curvatures, linear = rng.uniform(0.1, 2, shape), rng.standard_normal(shape)
        noise = rng.uniform(-0.5, 0.5, draws)
    return Quadratics(axes, curvatures, linear, np.concatenate([noise, -noise], axis=1))


def _task(
    config: Config, kind: str, mirror: Mirror, convexity: float = 1.0, ratio: float = 1.0
) -> Task:
    """Return quadratics with their optimum; ``ratio`` is that of the weights of two neighbours."""
    axes, own, linear, noise = clients = quadratics(config, kind)
    num_clients, dim = linear.shape
    weights = ratio ** np.arange(num_clients)
    shares = weights / weights.sum()
    start = {"l1": np.ones, "ball": np.zeros, "simplex": lambda dim: np.full(dim, 1 / dim)}[kind]
    start, scale = start(dim), config.l1_scale if kind == "l1" else 0.0
    hessian = (axes.T * (shares @ own)) @ axes
    gap, optimum = _solved(kind, hessian, shares @ linear, scale)
    if kind == "l1":
        constants, distant = fco.quadratic_constants(hessian, linear, noise, start, optimum)
        ends, centre = mirror.potential(optimum) - mirror.potential(start), mirror.to_dual(start)
        bregman = float(ends - jnp.vdot(centre, optimum - start)) / convexity
        constants, squared = constants._replace(distance=bregman), fco.squared_dual_norm(hessian)
        norm = lambda dual: squared(dual / convexity)  # noqa: E731
    else:
        curvatures, norm = own.max(axis=1), _squares
        steepest = (curvatures + np.linalg.norm(linear, axis=1)).max() + 0.5 * dim**0.5
        distant, scale = float(steepest), 1.0  # of an indicator
        constants = fco.Constants(
            distance=float(0.5 * np.sum((optimum - start) ** 2)),
            smoothness=float(curvatures.max()),
            variance=float((noise**2).sum(axis=-1).mean(axis=1).max()),
            num_clients=effective(weights),
        )
    given = clients.population(weights), mirror, scale, start, optimum, gap, constants, distant
    return Task(*given, norm, convexity=convexity)


def _regression(config: Config, kind: str) -> Task:
    """Return sparse logistic regression, or least squares in the l1 ball of LASSO's minimiser.

    Neither has a bias. A gradient of the logistic loss is shorter than its row of features, at any
    point. That of the squared error is unbounded, but in the ball it is longest at a vertex, since
    its length is a convex function of the point. Its mean square bounds the variance.
    """
    dim, scale = config[f"{kind}_dim"], config[f"{kind}_scale"]
    sizes = {"num_clients": config[f"{kind}_clients"], "dim": dim, "seed": config.data_seed}
    if kind == "logistic":
        drawn = fcojax.problems.synthetic_softmax(num_classes=2, **sizes)
        problem = fcojax.problems.logistic(drawn.train)
    else:
        problem = fcojax.problems.lasso(num_true=dim // 2, bias_scale=0.0, **sizes)

    def loss(w, rows):
        return problem.loss({"kernel": w, "bias": 0.0}, rows)

    start, examples = np.zeros(dim), jax.tree.map(np.float64, problem.train.examples)
    data = fcojax.from_rows(examples, np.asarray(problem.train.sizes))
    pooled = problem._replace(train=data, loss=loss, init=lambda key: jnp.asarray(start))
    optimum = np.asarray(fcojax.reference.optimum(pooled, l1(), scale, tolerance=1e-12).params)
    penalty, strength, most, radius = l1(), scale, 0.25, float(np.abs(optimum).sum())
    if kind == "lasso":
        penalty, strength, most, scale = l1_ball(), 0.0, 2.0, radius
    vertices = radius * np.concatenate([np.eye(dim), -np.eye(dim)])
    squares, curvatures = [], []
    for client in range(data.num_clients):
        x, y = (np.asarray(data.rows_of([client])[0][name]) for name in "xy")
        slopes = 2 * (x @ vertices.T - y[:, None]) if kind == "lasso" else np.ones((len(x), 1))
        squares.append(slopes**2 * np.sum(x**2, axis=1, keepdims=True))
        curvatures.append(most * np.linalg.norm(x, 2) ** 2 / len(x))
    variance = float(max(square.mean(axis=0).max() for square in squares))
    distance, smoothness = float(0.5 * np.sum(optimum**2)), float(max(curvatures))
    constants = fco.Constants(distance, smoothness, variance, data.num_clients)

    def objective(w):
        losses = fcojax.problems.population_loss(loss, w, data)
        return losses + strength * jnp.sum(jnp.abs(w))

    objective = jax.jit(jnp.vectorize(objective, signature="(d)->()"))
    least, steepest = objective(optimum), float(max(square.max() for square in squares)) ** 0.5
    gap = lambda points: np.asarray(objective(points) - least)  # noqa: E731
    given = data, euclidean(penalty), scale, start, optimum, gap, constants, steepest
    return Task(*given, loss=loss)


def alone(config: Config, setting: str, task: Task) -> Iterator[tuple[Any, ...]]:
    """Yield a term and over what, the count, task, rate times 4L, K, R and the cohort's size.

    The first term is that of one client without noise. All others start at the optimum: the noise
    of equal clients with one step, the drift of clients without noise, with the same K R, and the
    sampling of these clients with one step.
    """
    counts, rounds, clients = config.term_counts, config.num_rounds, quadratics(config, setting)
    most, number, still = counts[-1], len(clients.linear), {"distance": 0.0}

    def task_of(clients: Quadratics, weights: np.ndarray, **own: float) -> Task:
        constants = task.constants._replace(num_clients=effective(weights), **own)
        return task._replace(data=clients.population(weights), constants=constants)

    one = task_of(clients.quiet().equal(1), np.ones(1), variance=0.0)._replace(heterogeneity=0.0)
    apart = task_of(clients.quiet(), np.ones(number), variance=0.0, **still)
    apart = apart._replace(start=task.optimum)
    for n in counts:
        yield "start", "rounds", n, one, 1.0, 4, n * rounds // 10, None
        yield "start", "steps", n, one, 1.0, n, rounds, None
        falling = np.exp(-2 * np.arange(most) / n)
        for over, weights in (("clients", np.ones(n)), ("weights", falling)):
            noisy = task_of(clients.equal(len(weights)), weights, **still)
            noisy = noisy._replace(start=task.optimum, heterogeneity=0.0)
            yield "noise", over, effective(weights), noisy, 0.1, 1, rounds, None
        yield "drift", "steps", n, apart, 0.01, n, rounds * most // n, None
    for m in (1, *(n for n in counts if n < number)):
        inverse = m * (number - 1) / (number - m)
        yield "sampling", "cohort", inverse, apart, 0.1, 1, rounds, m


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
