"""Rows and summary: FedDualAvg with its bounds, and averages of models and of duals."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, column, select
from experiments.report.summary import final_from
from experiments.studies.shared import quantiles, swept
from experiments.study import Config, observe_model
from fcojax import algorithms
from fcojax.algorithms import Algorithm
from fcojax.algorithms.dual_averages import FedDualAvgHparams
from fcojax.theory import averages, fco
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


# The theorem whose terms are measured one by one.
TERMS = {"l1": "4.3", "ball": "4.2"}


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


def study(config: Config) -> Iterator[Row]:
    """Yield the rows of all figures."""
    known = tasks(config)
    for setting, task in known.items():
        for num_steps in config[f"{setting}_num_steps"]:
            yield from bounds(config, setting, task, num_steps)
    yield from curse(config, known["ball"])
    for setting in SMALL_STEPS:
        yield from small_steps(config, setting, known[setting])
    for setting in TERMS:
        yield from terms(config, setting, known[setting])
    yield from sparsity(config)


def bounds(config: Config, setting: str, task: Task, num_steps: int) -> Iterator[Row]:
    """Yield the gap of the averaged shadow iterate, and its bounds."""
    constants, zeta, cohort = task.constants, task.heterogeneity, fcojax.everyone()
    few = constants.num_clients
    if setting == "sampled":
        few = config.sampled_cohort_size
        cohort = fcojax.uniform_cohort(cohort_size=few)
    rates = [share * fco.largest_client_lr(constants) for share in config.rate_shares]
    chosen = averages.shadow_average(loss, task.mirror, task.squared_dual_norm)
    history = _observed(
        task,
        chosen._replace(model=lambda hparams, server: server),
        {"client_lr": [task.convexity * rate for rate in rates]},
        jax.random.split(jax.random.key(0), config.seeds),
        fcojax.Plan(fcojax.local_steps(num_steps, 1, replace=True), cohort),
        num_rounds=config.num_rounds,
        eval_every=config.eval_every,
        observe=lambda hparams, server, context: {
            "mean": server.mean,
            "discrepancy": server.discrepancy,
        },
    )
    place = {"part": "bound", "setting": setting, "num_steps": num_steps}
    gaps, discrepancies = task.gap(history["mean"]), history["discrepancy"].mean(axis=1)
    for (i, k), discrepancy in np.ndenumerate(discrepancies):
        num_rounds, found = (k + 1) * config.eval_every, float(discrepancy)
        steps, distant = (rates[i], num_steps), None
        lemma = fco.gap_from_sampling(constants, *steps, zeta, few)
        lemma += fco.gap_from_discrepancy(
            constants._replace(num_clients=few), *steps, num_rounds, found
        )
        if setting in ONE_HESSIAN:
            distant = fco.discrepancy_bound(constants, *steps, zeta)
            bound = fco.gap_from_heterogeneity(constants, *steps, num_rounds, zeta, few)
        else:
            bound = fco.gap_from_gradients(constants, *steps, num_rounds, zeta)
        at = {"rate_share": config.rate_shares[i], "round": num_rounds} | quantiles(gaps[i, :, k])
        duals = {"discrepancy": found, "discrepancy_bound": distant}
        yield place | at | duals | {"lemma": lemma, "theorem": bound}


def curse(config: Config, task: Task) -> Iterator[Row]:
    """Yield the gap and the norm of FedMiD's and FedDualAvg's models on the ball."""
    largest = fco.largest_client_lr(task.constants)
    for name in ("fed_mid", "fed_dual_avg"):
        models = _observed(
            task,
            getattr(algorithms, name)(loss, task.mirror),
            {"client_lr": [share * largest for share in config.curse_shares]},
            config.curse_seeds,
            fcojax.local_steps(config.curse_steps, 1, replace=True),
            num_rounds=config.curse_rounds,
            eval_every=config.curse_eval_every,
            observe=observe_model,
        )["model"]
        for (i, j, k), gap in np.ndenumerate(task.gap(models)):
            point = {"rate_share": config.curse_shares[i], "seed": config.curse_seeds[j]}
            point["round"] = (k + 1) * config.curse_eval_every
            ends = {"gap": float(gap), "norm": float(np.linalg.norm(models[i, j, k]))}
            yield {"part": "curse", "algorithm": name} | point | ends


def small_steps(config: Config, setting: str, task: Task) -> Iterator[Row]:
    """Yield the gap of the mean model at a small client rate, and its bound by Theorem 4.1."""
    constants, num_steps, client_lr = task.constants, config.small_num_steps, config.small_client_lr
    round_lr = fco.best_round_lr(constants, num_steps, config.small_rounds)
    for name in SMALL_STEPS[setting]:
        local = name != "minibatch"  # which is one step of FedMiD-OSP with the batches together
        factory = getattr(algorithms, name if local else "fed_mid_osp")
        rates = {"client_lr": [client_lr if local else round_lr]}
        rates["server_lr"] = [round_lr / (client_lr * num_steps) if local else 1.0]
        models = _observed(
            task,
            averages.average_of_rounds(factory(loss, task.mirror)),
            rates,
            jax.random.split(jax.random.key(1), config.seeds),
            fcojax.local_steps(*((num_steps, 1) if local else (1, num_steps)), replace=True),
            num_rounds=config.small_rounds,
            eval_every=config.small_eval_every,
            observe=observe_model,
        )["model"]
        for k, values in enumerate(task.gap(models[0]).T):
            num_rounds = (k + 1) * config.small_eval_every
            bound = fco.gap_of_small_steps(constants, round_lr, num_steps, num_rounds)
            place = {"part": "small steps", "setting": setting, "algorithm": name}
            yield place | {"round": num_rounds} | quantiles(values) | {"theorem": bound}


def terms(config: Config, setting: str, task: Task) -> Iterator[Row]:
    """Yield the gap where a bound has one term alone, over the clients, the steps or the rounds.

    That is the first term for a client without noise, the noise for equal clients with one step
    that start at the optimum, and the drift for clients without noise that start there; K R is then
    the same for all K.
    """
    counts, most, dim = config.term_counts, config.num_rounds, len(task.start)
    examples = {name: np.asarray(leaf) for name, leaf in task.data.examples.items()}
    split = {
        name: leaf.reshape(task.data.num_clients, -1, *leaf.shape[1:])
        for name, leaf in examples.items()
    }
    own = {name: leaf.mean(axis=1) for name, leaf in split.items()}
    one = {name: leaf.mean(axis=0, keepdims=True) for name, leaf in own.items()}
    noise = split["linear"] - own["linear"][:, None]

    def equal(number: int) -> fcojax.ClientData:
        drawn = noise[np.arange(number) % len(noise)].reshape(-1, dim)
        rows = {name: np.repeat(leaf, len(drawn), axis=0) for name, leaf in one.items()}
        rows["linear"] = rows["linear"] + drawn
        return fcojax.from_rows(rows, [noise.shape[1]] * number)

    quiet, apart = fcojax.from_clients([one]), fcojax.from_rows(own, [1] * len(noise))
    still, ended = task.constants._replace(variance=0.0), task._replace(start=task.optimum)
    bound = fco.gap_from_heterogeneity if setting in ONE_HESSIAN else fco.gap_from_gradients
    cells = [
        *(("start", "rounds", n, task, quiet, still, 1.0, 4, n * most // 10) for n in counts),
        *(("start", "steps", n, task, quiet, still, 1.0, n, most) for n in counts),
        *(("noise", "clients", n, ended, equal(n), task.constants, 0.1, 1, most) for n in counts),
        *(
            ("drift", "steps", n, ended, apart, still, 0.01, n, most * counts[-1] // n)
            for n in counts
        ),
    ]
    for term, over, count, begun, data, constants, share, num_steps, num_rounds in cells:
        rate = share * fco.largest_client_lr(constants)
        constants = constants._replace(num_clients=data.num_clients)
        if term != "start":
            constants = constants._replace(distance=0.0)
        means = _observed(
            begun._replace(data=data),
            averages.shadow_average(loss, task.mirror, task.squared_dual_norm)._replace(
                model=lambda hparams, server: server
            ),
            {"client_lr": [rate]},
            jax.random.split(jax.random.key(2), config.seeds if term == "noise" else 1),
            fcojax.local_steps(num_steps, 1, replace=True),
            num_rounds=num_rounds,
            eval_every=num_rounds,
            observe=lambda hparams, server, context: {"mean": server.mean},
        )["mean"]
        zeta = task.heterogeneity if term == "drift" else 0.0
        place = {"part": "terms", "setting": setting, "term": term, "over": over, "count": count}
        found = quantiles(task.gap(means[0, :, -1]))
        yield place | found | {"theorem": bound(constants, rate, num_steps, num_rounds, zeta)}


def _observed(
    task: Task, algorithm: Algorithm, rates: Any, seeds: Any, plan: Any, **options: Any
) -> dict[str, np.ndarray]:
    """Return the measures of a sweep with noisy steps, axes [points, seeds, evaluations, ...]."""
    numbers = {"server_lr": [1.0], "penalty_scale": [task.scale]} | rates
    grid = fcojax.grid.product(algorithm.hparams_type, **numbers)
    return swept(algorithm, grid, jnp.asarray(task.start), task.data, seeds, plan, **options)


def sparsity(config: Config) -> Iterator[Row]:
    """Yield the density of the clients' models and of the server's model, for l1.

    A sixteenth of the features matters to all clients, and the others are divided among them. A
    client's model is the result of a round in which only this client takes part.
    """
    number, dim = config.sparsity_clients, config.sparsity_dim
    rng, common = np.random.default_rng(config.data_seed), dim // 16
    truths = np.zeros((number, dim))
    for truth, own in zip(truths, np.array_split(np.arange(common, dim), number), strict=True):
        truth[[*range(common), *own]] = 1
    x = rng.standard_normal((number, dim, dim))
    y = np.einsum("mnd,md->mn", x, truths) + 0.1 * rng.standard_normal((number, dim))
    train = fcojax.from_clients([{"x": x[m], "y": y[m]} for m in range(number)])
    work, every = fcojax.local_steps(config.sparsity_steps), config.sparsity_eval_every

    def squared_error(w, row):
        return (row["x"] @ w - row["y"]) ** 2

    hparams = FedDualAvgHparams(client_lr=config.sparsity_client_lr, penalty_scale=1.0)
    alone = [train.select(np.array([m])) for m in range(number)]
    for name, options in (("fed_mid", {"server_prox": False}), ("fed_dual_avg", {})):
        algorithm = getattr(algorithms, name)(squared_error, euclidean(l1()), **options)

        def after(state, data, num_rounds, algorithm=algorithm):
            return fcojax.advance(algorithm, hparams, state, data, work, num_rounds=num_rounds)[0]

        key, supports = jax.random.key(0), []
        state = fcojax.start(algorithm, hparams, jnp.zeros(dim), train, key, work)
        for _ in range(config.sparsity_rounds // every):
            state = after(state, train, every - 1)
            ends = [after(state, data, 1) for data in alone]
            state = after(state, train, 1)
            models = [fcojax.read_model(algorithm, hparams, one) for one in (state, *ends)]
            found = [np.asarray(model) != 0 for model in models]
            supports.append(found)
            densities = {"clients": float(np.mean(found[1:])), "server": float(np.mean(found[0]))}
            yield {"part": "sparsity", "algorithm": name, "round": int(state.round)} | densities
        rounds = every * (1 + np.arange(len(supports)))
        server, *clients = final_from(supports, rounds).max(axis=-1).tolist()
        yield {"part": "final", "algorithm": name, "server": server, "clients": clients}


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return the gap and its bounds at the end, and the end points of the two averages."""
    finals, methods, ball = select(rows, part="final"), [], {}
    for final in finals:
        name, settled = final["algorithm"], [at for at in final["clients"] if at is not None]
        row = select(rows, part="sparsity", algorithm=name, round=config.sparsity_rounds)[0]
        methods.append(
            {
                "with l1": style(name)[0],
                "density of clients' models": row["clients"],
                "of the mean's": row["server"],
                "the mean's support final from round": final["server"],
                "clients whose support becomes final": len(settled),
                "the last from round": max(settled, default=None),
            }
        )
    last = select(rows, part="curse", round=config.curse_rounds)
    for name, share in itertools.product(("fed_mid", "fed_dual_avg"), config.curse_shares):
        own = select(last, algorithm=name, rate_share=share)
        means = {measure: float(column(own, measure).mean()) for measure in ("gap", "norm")}
        ball[f"{style(name)[0]}, {share:g} of the largest rate"] = means
    return {
        "bounds at the end": select(rows, part="bound", round=config.num_rounds),
        "methods": methods,
        "evaluations from which clients' supports with l1 are final": [
            {"client": m} | {style(row["algorithm"])[0]: row["clients"][m] for row in finals}
            for m in range(config.sparsity_clients)
        ],
        "on the ball at the end": ball,
    }
