"""Rows and summary: closed form and rounds of FedGD, and Local SGD with its bound."""

import bisect
import functools
import itertools
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.linalg import norm
from scipy.sparse import csr_array

import fcojax
from experiments.report.rows import Row, Summary, column, select
from experiments.studies.shared import quantiles, swept
from experiments.study import Config, observe_model
from fcojax import datasets
from fcojax.algorithms import fed_gd, local_sgd
from fcojax.problems import ClientData, partition
from fcojax.problems.least_squares import half_squared_error
from fcojax.theory import least_squares, linear_models, local_points
from fcojax.theory import local_sgd as theorem
from fcojax.types import Array, PyTree

Arrays = Sequence[np.ndarray]
LINKS = {"fast": 1, "slow": 100}  # what an exchange takes, in local steps


def clients_of(config: Config) -> tuple[Arrays, Arrays, Any]:
    """Return features, targets and factored quadratics; drawn clients differ in true weights."""
    if config.data_dir:
        features, targets = _credit(config)
    else:
        rng, dim = np.random.default_rng(config.data_seed), config.dim
        sizes, draw = enumerate(config.sizes), rng.standard_normal
        features = [draw((m, dim)) * (1 + 0.5 * k) for k, m in sizes]
        targets = [a @ draw(dim) + 0.1 * draw(len(a)) for a in features]
    return features, targets, least_squares.least_squares_clients(features, targets, reading="sum")


def _credit(config: Config) -> tuple[Arrays, Arrays]:
    """Return German credit, divided among clients in Dirichlet shares of the labels 1 and -1."""
    packed = pathlib.Path(config.data_dir) / "german_numer_scale.npz"
    if packed.exists():
        names = ("data", "indices", "indptr", "shape", "labels")
        stored = datasets.npz(packed, {name: f"train_{name}" for name in names}).examples
        *parts, shape, labels = (stored[name] for name in names)
        x = csr_array(tuple(parts), shape=tuple(shape)).toarray()
    else:
        read = datasets.libsvm(packed.with_name("german.numer_scale"), regression=True).examples
        x, labels = read["x"], read["y"]
    x, y = np.column_stack([x, np.ones(len(x))]).astype(float), labels.astype(float)
    number, seed = len(config.sizes), config.data_seed
    shares = partition.dirichlet(y, number, config.concentration, seed=seed).indices()
    return [x[mine] for mine in shares], [y[mine] for mine in shares]


def regression(config: Config, name: str) -> tuple[Any, Any, Any]:
    """Return ridge or logistic regression, its constants, and Local SGD with start and clients."""
    features, targets = _credit(config) if config.data_dir else _drawn(config, name)
    if name == "ridge":
        model = linear_models.ridge_regression(features, targets, ridge=0.5)
    else:
        signs = [np.where(b > 0, 1.0, -1.0) for b in targets]
        model = linear_models.logistic_regression(features, signs, ridge=0.1)
    plain = half_squared_error if name == "ridge" else _logistic
    sgd = local_sgd(functools.partial(plain, ridge=model.ridge))
    return model, model.constants(), (sgd, jnp.zeros(model.dim), population(*model[1:4]))


def _drawn(config: Config, name: str) -> tuple[Arrays, Arrays]:
    rng = np.random.default_rng(config.data_seed)
    sizes, dim = ((12, 20, 9, 15), 5) if name == "ridge" else ((10, 14, 8, 12, 20), 4)
    features = [rng.standard_normal((m, dim)) for m in sizes]
    if name == "logistic":
        longest = max(norm(a, axis=1).max() for a in features)
        features = [a / longest for a in features]
    truths = [rng.standard_normal(dim) for _ in sizes]
    pairs = zip(features, truths, strict=True)
    return features, [a @ x + 0.1 * rng.standard_normal(len(a)) for a, x in pairs]


def population(features: Arrays, targets: Arrays, weights: Any = None) -> ClientData:
    """Return clients whose rows are pairs of features and a target."""
    pairs = zip(features, targets, strict=True)
    return fcojax.from_clients([{"x": a, "y": b} for a, b in pairs], weights)


def _logistic(x: Array, rows: PyTree, ridge: float) -> Array:
    return jax.nn.softplus(-rows["y"] * (rows["x"] @ x)) + ridge / 2 * jnp.sum(x**2)


def study(config: Config) -> Iterator[Row]:
    """Yield the rows of all figures."""
    yield from limits(config)
    if not config.data_dir:
        yield from heterogeneity(config)
        yield from iid(config)
    yield from simulated(config)
    yield from times(config, config.sgd_problems[0])
    for name, num_steps in itertools.product(config.sgd_problems, config.sgd_num_steps):
        yield from below_the_bound(config, name, num_steps)


def limits(config: Config) -> Iterator[Row]:
    """Yield the distance of FedGD's limit from the least-squares solution, by step size and E."""
    *_, clients = clients_of(config)
    pooled = least_squares.minimiser(clients)
    far = least_squares.many_steps_limit(clients)
    for share, num_steps in itertools.product(config.step_shares, config.many_steps):
        exact = least_squares.round_map(clients, share / clients.smoothness, num_steps)
        limit, rounds = exact.fixed_point, _rounds_to_limit(exact, config.near_limit)
        away = {"distance": norm(limit - pooled), "from_many_steps": norm(limit - far)}
        place = {"part": "limit", "step_share": share, "num_steps": num_steps}
        yield place | away | {"many_steps_distance": norm(far - pooled), "rounds": rounds}


def _rounds_to_limit(exact: least_squares.RoundMap, precision: float) -> int:
    """Return the first round with at most this share of the distance from zero to the limit."""

    def reached(num_rounds):
        away = exact.after(np.zeros_like(exact.fixed_point), num_rounds) - exact.fixed_point
        return norm(away) <= precision * norm(exact.fixed_point)

    high = 1
    while not reached(high):
        high *= 2
    return bisect.bisect_left(range(high), True, key=reached)  # the distances decrease


def iid(config: Config) -> Iterator[Row]:
    """Yield Gamma of K clients that share m rows of one model; its mean is d (K - 1) / (2 m)."""
    for instance in config.instances:
        rng = np.random.default_rng([config.data_seed, instance])
        x = rng.standard_normal((2**14, config.dim))
        y = x @ rng.standard_normal(config.dim) + rng.standard_normal(len(x))
        for number in (32, 64, 128, 256, 512, 1024):
            given = np.split(x, number), np.split(y, number)
            clients = least_squares.least_squares_clients(*given, reading="mean")
            at, parts = least_squares.minimiser(clients), zip(*clients, strict=True)
            found = sum(p * c @ (axes @ at - own) ** 2 / 2 for p, axes, c, own in parts)
            means = {"gamma": found, "law": config.dim * (number - 1) / (2 * len(x))}
            yield {"part": "iid", "clients": number, "seed": instance} | means


def heterogeneity(config: Config) -> Iterator[Row]:
    """Yield the distance of FedGD's limit by the spread of the minimisers, and of the Hessians."""
    knobs = [("minimisers", distance, distance, 1.0) for distance in config.distances]
    knobs += [("hessians", spread, 1.0, spread) for spread in config.spreads]
    for instance in config.instances:
        rng = np.random.default_rng([config.data_seed, instance])
        shape = num_clients, dim = len(config.sizes), config.dim
        q = np.linalg.qr(rng.standard_normal((num_clients, dim, dim)))[0]
        own = np.einsum("kij,kj,klj->kil", q, rng.uniform(0.2, 2, shape), q)
        common, offsets = rng.standard_normal(dim), rng.standard_normal(shape)
        for knob, value, distance, spread in knobs:
            hessians = own.mean(axis=0) + spread * (own - own.mean(axis=0))
            slopes = np.einsum("kij,kj->ki", hessians, common + distance * offsets)
            clients = least_squares.quadratic_clients(hessians, slopes)
            step_size = config.step_shares[0] / clients.smoothness
            exact = least_squares.round_map(clients, step_size, config.heterogeneity_steps)
            away = norm(exact.fixed_point - least_squares.minimiser(clients))
            place = {"part": "heterogeneity", "knob": knob, "value": value, "seed": instance}
            yield place | {"distance": away}


def simulated(config: Config) -> Iterator[Row]:
    """Yield simulated rounds and their difference from the closed form."""
    features, targets, clients = clients_of(config)
    pooled, origin = least_squares.minimiser(clients), np.zeros(features[0].shape[1])
    # The engine averages over a client's examples; the loss here is their sum.
    features, targets = ([len(x) ** 0.5 * x for x in xs] for xs in (features, targets))
    rates = [share / clients.smoothness for share in config.step_shares]
    grid = fcojax.grid.product(fed_gd.Hparams, client_lr=rates)
    given = fed_gd(half_squared_error), grid, jnp.asarray(origin), population(features, targets)
    rounds = {"num_rounds": config.num_rounds, "observe": observe_model}
    for num_steps in config.simulated_steps:
        found = swept(*given, seeds=[0], plan=fcojax.local_steps(num_steps), **rounds)
        runs = zip(config.step_shares, rates, found["model"][:, 0], strict=True)
        for share, rate, models in runs:
            exact = least_squares.round_map(clients, rate, num_steps)
            place = {"part": "rounds", "step_share": share, "num_steps": num_steps}
            for r, model in enumerate(models, start=1):
                difference = np.abs(model - exact.after(origin, r)).max()
                seen = {"difference": difference, "distance": norm(model - pooled)}
                yield place | {"round": r} | seen


def times(config: Config, name: str) -> Iterator[Row]:
    """Yield rounds times (E steps and a link) until the mean gap is the noise of half the steps."""
    model, constants, (algorithm, start, data) = regression(config, name)
    total, seeds = config.sgd_total_steps, range(config.sgd_seeds)
    gap = theorem.noise_limit(model, constants) / (theorem.offset(constants, 1) + total / 2)
    for num_steps in (1, 3, 10, 30, 100, 300, 1000):
        grid = jax.tree.map(lambda rate: [rate], theorem.schedule(constants, num_steps))
        work = fcojax.local_steps(num_steps, 1, replace=True)
        rounds = {"num_rounds": total // num_steps + total // 50, "observe": observe_model}
        [models] = swept(algorithm, grid, start, data, seeds, work, **rounds)["model"]
        gaps = (model.objective(models) - constants.minimum).mean(axis=0)
        for first in np.flatnonzero(gaps <= gap)[:1].tolist():
            costs = {link: (first + 1) * (num_steps + cost) for link, cost in LINKS.items()}
            yield {"part": "time", "num_steps": num_steps, "gap": gap} | costs


def below_the_bound(config: Config, name: str, num_steps: int) -> Iterator[Row]:
    """Yield the gap of Local SGD over its local steps, and the bound of the theorem."""
    model, constants, (algorithm, start, data) = regression(config, name)
    given = algorithm, theorem.schedule(constants, num_steps), start, data
    work = fcojax.local_steps(num_steps, 1, replace=True)
    rounds = {"num_rounds": config.sgd_total_steps // num_steps, "read": lambda carry: carry.params}
    keys = jax.vmap(jax.random.key)(jnp.arange(config.sgd_seeds))
    run = jax.jit(jax.vmap(lambda key: local_points(*given, key, work, **rounds)))
    points = np.asarray(run(keys))
    points = points.reshape(len(keys), -1, *points.shape[-2:])
    bound = theorem.a_posteriori(model, constants, points, num_steps)
    means = np.einsum("k,...ki->...i", model.weights, points)
    gaps = model.objective(means) - constants.minimum
    gamma, limit = theorem.offset(constants, num_steps), theorem.noise_limit(model, constants)
    place, last = {"part": "bound", "problem": name, "num_steps": num_steps}, points.shape[1] - 1
    for t in np.unique(np.geomspace(1, last, config.sgd_evaluations).astype(int)).tolist():
        own = gaps[:, t]
        seen = quantiles(own) | {"standard_error": own.std(ddof=1) / len(keys) ** 0.5}
        yield place | {"step": t} | seen | {"bound": bound.gap(t), "limit": limit / (gamma + t)}


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return the distances by E, the largest differences, and the gaps and bounds at the end."""
    rounds, limit, bound = (select(rows, part=part) for part in ("rounds", "limit", "bound"))
    distances = {
        f"s L = {share:g}": {row["num_steps"]: row["distance"] for row in own}
        for share in config.step_shares
        for own in [select(limit, step_share=share)]
    }
    return {
        "distance of the limit": distances,
        "largest difference of closed form and simulation": {
            steps: column(select(rounds, num_steps=steps), "difference").max()
            for steps in config.simulated_steps
        },
        "Local SGD at the last evaluation": select(bound, step=max(column(bound, "step"))),
    }
