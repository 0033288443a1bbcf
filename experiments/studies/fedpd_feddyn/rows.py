"""Rows and summary: the gap between the methods, FedPD that skips, FedDyn with few clients."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.report.rows import Row, Summary, column, select
from experiments.studies.shared import swept
from experiments.study import Config, observe_model
from fcojax import Plan
from fcojax.algorithms import Algorithm, fed_dyn, fed_pd
from fcojax.algorithms.local_solvers import exact, gd
from fcojax.extend import take
from fcojax.problems import factored, factored_loss
from fcojax.types import Array, Params, PyTree

METHODS = {"fed_pd": fed_pd, "fed_dyn": fed_dyn}
_SOLVERS = {"exact": exact(), "gd": gd(), "gd from the center": gd(warm_start=False)}


def build(name: str, solver: str) -> Algorithm:
    """Return the algorithm of this name with this local solver."""
    return METHODS[name](factored_loss, solver=_SOLVERS[solver])


class Quadratics:
    """Clients with losses x'A x/2 - c'x, as arrays and as data for the engine."""

    def __init__(self, config: Config):
        rng = np.random.default_rng(config.data_seed)
        shape, (low, high) = (config.num_clients, config.dim), config.curvatures
        q = np.linalg.qr(rng.standard_normal((*shape, config.dim)))[0]
        self.hessians = np.einsum("mij,mj,mkj->mik", q, rng.uniform(low, high, shape), q)
        self.slopes = rng.standard_normal(shape)
        self.smoothness = float(np.linalg.eigvalsh(self.hessians)[:, -1].max())
        self.prox_step = config.prox_step
        self.first = rng.standard_normal(config.dim)
        self.arbitrary_duals = rng.standard_normal(shape)
        self.mean_hessian = self.hessians.mean(axis=0)
        self.optimum = np.linalg.solve(self.mean_hessian, self.slopes.mean(axis=0))
        rows = zip(self.hessians, self.slopes, strict=True)
        data = fcojax.from_clients([{"A": a[None], "c": c[None]} for a, c in rows])
        self.data = factored(_quadratic, data, jnp.zeros(config.dim))

    def zero_of(self, offset: np.ndarray) -> np.ndarray:
        """Return the point at which the mean gradient is ``offset``; the optimum for zero."""
        return self.optimum + np.linalg.solve(self.mean_hessian, offset)

    def error(self, points: np.ndarray, target: np.ndarray | None = None) -> np.ndarray:
        """Return distances to a target, by default the optimum, over the norm of the optimum."""
        target = self.optimum if target is None else target
        return np.linalg.norm(points - target, axis=-1) / np.linalg.norm(self.optimum)

    def hparams(self, name: str, prox_steps: Sequence[float]) -> Any:
        """Return a grid of prox steps; the rates keep gradient steps on the Lagrangian stable."""
        rates = [1 / (self.smoothness + 1 / eta) for eta in prox_steps]
        return fcojax.grid.zipped(METHODS[name].Hparams, client_lr=rates, prox_step=prox_steps)

    def errors(
        self, algorithm: Algorithm, grid: Any, seeds: Sequence[int], plan: Any, **rounds: int
    ) -> np.ndarray:
        """Return relative errors over the rounds, axes [points, seeds, evaluations]."""
        given = algorithm, grid, jnp.asarray(self.first), self.data, seeds, plan
        watched = {"observe": _relative_error, "context": jnp.asarray(self.optimum)}
        return swept(*given, **watched, **rounds)["error"]

    def models(
        self, name: str, solver: str, plan: Plan, duals: Any, drift: Any = None, **rounds: int
    ) -> np.ndarray:
        """Return the model at every evaluation; ``drift`` is the mean of the duals by default."""
        algorithm, rates = build(name, solver), take(self.hparams(name, [self.prox_step]), 0)
        key = jax.random.key(0)
        state = fcojax.start(algorithm, rates, jnp.asarray(self.first), self.data, key, plan)
        first, shares = jnp.asarray(duals), self.data.weights / jnp.sum(self.data.weights)
        state = state._replace(clients=state.clients._replace(dual=first))
        if name == "fed_dyn":
            mean = jnp.tensordot(shares.astype(first.dtype), first, 1) if drift is None else drift
            state = state._replace(server=state.server._replace(drift=jnp.asarray(mean)))
        given = algorithm, rates, state, self.data, plan
        return np.asarray(fcojax.advance(*given, observe=observe_model, **rounds)[1]["model"])


def _relative_error(hparams: Any, model: Params, optimum: Array) -> dict[str, Array]:
    return {"error": jnp.linalg.norm(model - optimum) / jnp.linalg.norm(optimum)}


def _quadratic(x: Array, rows: PyTree) -> Array:
    return 0.5 * jnp.einsum("i,nij,j->n", x, rows["A"], x) - rows["c"] @ x


MATCHING = ("zero duals", "duals minus gradients", "duals plus gradients", "arbitrary duals")

OFFSET, OTHER = "drift not the mean dual", "another start of the local steps"


def study(config: Config) -> Iterator[Row]:
    """Yield the rows of all figures."""
    task = Quadratics(config)
    for part in (gaps, biases, floors, participation, rates):
        yield from part(config, task)


def gaps(config: Config, task: Quadratics) -> Iterator[Row]:
    """Yield the largest difference between coordinates of the two models, by start and round."""
    plan = Plan(fcojax.local_steps(config.num_steps), fcojax.everyone())
    minus, zero = task.slopes - task.hessians @ task.first, np.zeros(config.dim)
    given = dict(zip(MATCHING, (0 * minus, minus, -minus, task.arbitrary_duals), strict=True))
    cases = [(OTHER, "gd", "gd from the center", minus, None)]
    for solver in config.solvers:
        cases += [(name, solver, solver, duals, None) for name, duals in given.items()]
        cases += [(OFFSET, solver, solver, task.arbitrary_duals, zero)]
    rounds = {"num_rounds": config.num_rounds, "eval_every": 1}
    for name, own, other, duals, drift in cases:
        pd = task.models("fed_pd", own, plan, duals, **rounds)
        dyn = task.models("fed_dyn", other, plan, duals, drift, **rounds)
        target = task.zero_of(zero if drift is None else drift - duals.mean(axis=0))
        seen = {"round": range(1, len(pd) + 1), "gap": np.abs(pd - dyn).max(axis=-1)}
        seen |= {"fed_pd": task.error(pd), "fed_dyn": task.error(dyn)}
        seen["from_predicted"] = task.error(dyn, target)
        place = {"part": "gap", "start": name, "solver": own, "matching": name in MATCHING}
        for values in zip(*seen.values(), strict=True):
            yield place | dict(zip(seen, values, strict=True))


def biases(config: Config, task: Quadratics) -> Iterator[Row]:
    """Yield FedDyn's limit with sampled clients and a drift that is not the mean of the duals."""
    duals = task.arbitrary_duals
    cohort = fcojax.uniform_cohort(cohort_size=config.cohort_size)
    plan = Plan(fcojax.local_steps(config.num_steps), cohort)
    once = {"num_rounds": config.cohort_rounds, "eval_every": config.cohort_rounds}
    [end] = task.models("fed_dyn", "gd", plan, duals, 0 * duals[0], **once)
    away = task.error(end, task.zero_of(-duals.mean(axis=0)))
    found = {"fed_dyn": task.error(end), "from_predicted": away}
    yield {"part": "bias", "clients": config.cohort_size} | found


def floors(config: Config, task: Quadratics) -> Iterator[Row]:
    """Yield FedPD's error over the second half of its rounds, by probability of skipping."""
    every_round = np.ones(config.skip_rounds)
    schedules = {p: p * every_round for p in config.skip_probabilities}
    schedules["falling"] = 1 - np.cumsum(every_round) / config.skip_rounds
    points = list(itertools.product(config.skip_prox_steps, schedules))
    rates = fed_pd.Hparams(
        client_lr=np.ones(len(points)),  # exact solves take no steps
        prox_step=np.array([eta for eta, _ in points]),
        skip_probability=fcojax.schedule([schedules[name] for _, name in points]),
        penalty_scale=np.zeros(len(points)),
    )
    rounds = {"num_rounds": config.skip_rounds, "eval_every": config.skip_rounds // 200}
    given = build("fed_pd", "exact"), rates, config.seeds, fcojax.local_steps(1)
    errors = task.errors(*given, **rounds)
    for (prox_step, name), curves in zip(points, errors, strict=True):
        place = {"part": "floor", "prox_step": prox_step, "skip_probability": name}
        for seed, curve in zip(config.seeds, curves, strict=True):
            error = curve[-1] if name == "falling" else curve[100:].mean()
            yield place | {"seed": seed, "error": error}


def participation(config: Config, task: Quadratics) -> Iterator[Row]:
    """Yield the first round at which FedDyn's model is within the tolerance, by cohort size."""
    algorithm, grid = build("fed_dyn", "gd"), task.hparams("fed_dyn", config.cohort_prox_steps)
    for size in config.cohort_sizes:
        plan = Plan(fcojax.local_steps(config.num_steps), fcojax.uniform_cohort(cohort_size=size))
        given = algorithm, grid, config.seeds, plan
        within = task.errors(*given, num_rounds=config.tolerance_rounds) <= config.tolerance
        points = itertools.product(config.cohort_prox_steps, config.seeds)
        for (eta, seed), own in zip(points, within.reshape(-1, within.shape[-1]), strict=True):
            found = {"prox_step": eta, "seed": seed, "rate": size / config.num_clients}
            rounds = own.argmax() + 1 if own.any() else None
            yield {"part": "participation"} | found | {"rounds": rounds}


def rates(config: Config, task: Quadratics) -> Iterator[Row]:
    """Yield FedPD's mean of |grad f|^2 over T rounds; the losses of A x - c are not convex."""
    clients = [{"a": a, "b": c} for a, c in zip(task.hessians, task.slopes, strict=True)]
    smoothness, skips = task.smoothness**2 / config.dim, list(config.skip_probabilities)
    eta = 0.99 * (5**0.5 - 1) / (4 * smoothness)  # the theorem allows all below the fraction
    fixed = {"client_lr": [1 / (smoothness + 1 / eta)], "prox_step": [eta]}
    grid = fcojax.grid.product(fed_pd.Hparams, **fixed, skip_probability=skips)
    given = fed_pd(_robust), grid, jnp.zeros(config.dim), fcojax.from_clients(clients), config.seeds
    plan, rounds = fcojax.local_steps(config.num_steps), config.tolerance_rounds
    pooled = {name: jnp.concatenate([own[name] for own in clients]) for name in ("a", "b")}
    slope = jax.grad(lambda x, rows: jnp.mean(_robust(x, rows)))
    watched = {"observe": lambda _, x, rows: {"square": jnp.sum(slope(x, rows) ** 2)}}
    squares = swept(*given, plan, num_rounds=rounds, context=pooled, **watched)["square"]
    means = np.cumsum(squares, axis=-1) / np.arange(1, rounds + 1)
    for t in np.unique(np.geomspace(1, rounds, 60).astype(int)).tolist():
        for at, (p, seed) in enumerate(itertools.product(skips, config.seeds)):
            found = {"square": means[..., t - 1].flat[at], "line": means[0, 0, -1] * rounds / t}
            yield {"part": "rate", "skip_probability": p, "seed": seed, "round": t} | found


def _robust(x: Array, rows: PyTree) -> Array:
    return 0.5 - 0.5 / (1 + (rows["a"] @ x - rows["b"]) ** 2)  # r^2 / (2 (1 + r^2))


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return the largest gaps by start, the bias, the floors, and the rounds by cohort size."""
    pairs, sizes = select(rows, part="gap"), select(rows, part="participation")
    largest: dict[str, float] = {}
    for row in pairs:
        name = f"{row['start']}, {row['solver']}"
        largest[name] = max(row["gap"], largest.get(name, 0.0))
    offset = select(pairs, start=OFFSET, round=config.num_rounds)
    probabilities = (*config.skip_probabilities, "falling")

    def rounds(eta: float, size: int) -> float:
        own = select(sizes, prox_step=eta, rate=size / config.num_clients)
        return float(column(own, "rounds").mean())

    return {
        "largest gap of a coordinate": largest,
        "a drift that does not match, at the end": [*offset, *select(rows, part="bias")],
        "floor of the error": {
            f"eta {eta:g}": {p: float(floor(rows, eta, p).mean()) for p in probabilities}
            for eta in config.skip_prox_steps
        },
        "rounds to the tolerance, by clients per round": {
            f"eta {eta:g}": {size: rounds(eta, size) for size in config.cohort_sizes}
            for eta in config.cohort_prox_steps
        },
    }


def floor(rows: list[Row], eta: float, probability: float | str) -> np.ndarray:
    """Return FedPD's floor for each seed."""
    own = select(rows, part="floor", prox_step=eta, skip_probability=probability)
    return column(own, "error")
