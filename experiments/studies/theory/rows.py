"""Rows and summary: FedDualAvg with its bounds, and averages of models and of duals."""

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, column, select
from experiments.report.summary import final_from
from experiments.studies.shared import quantiles, swept
from experiments.studies.theory.tasks import ONE_HESSIAN, SETTINGS, Task, alone, quadratic, tasks
from experiments.study import Config, observe_model
from fcojax import algorithms
from fcojax.algorithms import Algorithm
from fcojax.algorithms.dual_averages import FedDualAvgHparams
from fcojax.theory import averages, fco
from fcojax.transforms import euclidean, l1
from fcojax.types import Array

# The methods of Theorem 4.1, FedMiD-OSP, for which it also holds with a finite penalty, and the
# method of its remark: R steps of mirror descent with a batch of all M K gradients.
SMALL_STEPS = {
    "l1": ("fed_dual_avg", "fed_mid_osp", "fed_mid", "minibatch"),
    "ball": ("fed_dual_avg", "fed_mid", "minibatch"),
}


# The theorem whose terms are measured one by one.
TERMS = {"l1": "4.3", "ball": "4.2"}


def study(config: Config) -> Iterator[Row]:
    """Yield the rows of all figures."""
    known = tasks(config)
    for setting, task in known.items():
        yield {"part": "constants", "setting": setting} | measured(setting, task)
        for num_steps in config[f"{setting}_num_steps"]:
            yield from bounds(config, setting, task, num_steps)
    yield from curse(config, known["ball"])
    for setting in SMALL_STEPS:
        yield from small_steps(config, setting, known[setting])
    for setting in TERMS:
        yield from terms(config, setting, known[setting])
    yield from sparsity(config)


def measured(setting: str, task: Task) -> Row:
    """Return the constants of a task, and how far its clients' Hessians are from their mean."""
    hessian = jax.jit(jax.hessian(lambda w, rows: jnp.mean(task.loss(w, rows))))
    each = (task.data.rows_of([client])[0] for client in range(task.data.num_clients))
    hessians = [np.asarray(hessian(jnp.asarray(task.optimum), rows)) for rows in each]
    mean = np.average(hessians, axis=0, weights=np.asarray(task.data.weights))
    spread = np.linalg.norm(np.stack(hessians) - mean, 2, axis=(1, 2)).max()
    distance, smoothness, variance, number = task.constants
    known = {"M": number, "L": smoothness, "B": distance, "sigma": variance**0.5}
    known["zeta" if setting in ONE_HESSIAN else "G"] = task.heterogeneity
    return known | {"Hessians differ by": float(spread / np.linalg.norm(mean, 2))}


def bounds(config: Config, setting: str, task: Task, num_steps: int) -> Iterator[Row]:
    """Yield the gap of the averaged shadow iterate, and its bounds."""
    constants, spread, one_hessian = task.constants, task.heterogeneity, setting in ONE_HESSIAN
    few = config.sampled_cohort_size if setting.endswith("sampled") else None
    rates = [share * fco.largest_client_lr(constants) for share in config.rate_shares]
    keys, rounds = jax.random.split(jax.random.key(0), config.seeds), config.num_rounds
    given = [task.convexity * rate for rate in rates], keys, num_steps, few
    history = _shadowed(task, *given, rounds, config.eval_every)
    place = {"part": "bound", "setting": setting, "num_steps": num_steps}
    gaps, discrepancies = task.gap(history["mean"]), history["discrepancy"].mean(axis=1)
    bound = fco.gap_from_heterogeneity if one_hessian else fco.gap_from_gradients
    for (i, k), discrepancy in np.ndenumerate(discrepancies):
        num_rounds, found = (k + 1) * config.eval_every, float(discrepancy)
        steps, taking_part = (rates[i], num_steps), few or constants.num_clients
        lemma = fco.gap_from_discrepancy(
            constants._replace(num_clients=taking_part), *steps, num_rounds, found
        )
        if few:
            lemma += fco.gap_from_sampling(constants, *steps, spread, few, one_hessian)
        at = {"rate_share": config.rate_shares[i], "round": num_rounds} | quantiles(gaps[i, :, k])
        distant = fco.discrepancy_bound(constants, *steps, spread) if one_hessian else None
        duals = {"discrepancy": found, "discrepancy_bound": distant, "lemma": lemma}
        yield place | at | duals | {"theorem": bound(constants, *steps, num_rounds, spread, few)}


def curse(config: Config, task: Task) -> Iterator[Row]:
    """Yield the gap and the norm of FedMiD's and FedDualAvg's models on the ball."""
    largest = fco.largest_client_lr(task.constants)
    for name in ("fed_mid", "fed_dual_avg"):
        models = _observed(
            task,
            getattr(algorithms, name)(quadratic, task.mirror),
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
            averages.average_of_rounds(factory(quadratic, task.mirror)),
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
    """Yield the gap where a bound has one term alone, and this term."""
    bound = fco.gap_from_heterogeneity if setting in ONE_HESSIAN else fco.gap_from_gradients
    for term, over, count, own, share, num_steps, num_rounds, few in alone(config, setting, task):
        rate = share * fco.largest_client_lr(own.constants)
        seeds = config.seeds if term in ("noise", "sampling") else 1
        keys = jax.random.split(jax.random.key(2), seeds)
        means = _shadowed(own, [rate], keys, num_steps, few, num_rounds, num_rounds)["mean"]
        given = own.constants, rate, num_steps, num_rounds, own.heterogeneity, few
        place = {"part": "terms", "setting": setting, "term": term, "over": over, "count": count}
        yield place | quantiles(own.gap(means[0, :, -1])) | {"theorem": bound(*given)}


def _shadowed(
    task: Task, rates: list[float], keys: jax.Array, num_steps: int, few: int | None, *rounds: int
) -> dict[str, np.ndarray]:
    """Return the averaged shadow iterates of FedDualAvg, and the discrepancy of its duals."""
    cohort = fcojax.uniform_cohort(cohort_size=few) if few else fcojax.everyone()
    plan = fcojax.Plan(fcojax.local_steps(num_steps, 1, replace=True), cohort)
    chosen = _shadow(task.loss, task.mirror, task.squared_dual_norm)
    given = dict(zip(("num_rounds", "eval_every"), rounds, strict=True), observe=_means)
    return _observed(task, chosen, {"client_lr": rates}, keys, plan, **given)


@functools.cache  # so that tasks that differ in numbers share a compiled program
def _shadow(*given: Any) -> Algorithm:
    return averages.shadow_average(*given)._replace(model=lambda hparams, server: server)


def _means(hparams: Any, server: averages.Shadowed, context: Any) -> dict[str, Array]:
    return {"mean": server.mean, "discrepancy": server.discrepancy}


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
    ends, constants = select(rows, part="bound", round=config.num_rounds), []
    for row in select(rows, part="constants"):
        end = min(select(ends, setting=row["setting"]), key=lambda end: end["theorem"])
        found = {"setting": SETTINGS[row["setting"]][0]}
        found |= {name: row.get(name) for name in ("M", "L", "B", "sigma", "zeta", "G")}
        found |= {"Hessians differ by": row["Hessians differ by"], "K": end["num_steps"]}
        found |= {"4 L eta": end["rate_share"], "gap": end["gap"], "bound": end["theorem"]}
        constants.append(found)
    for name, share in itertools.product(("fed_mid", "fed_dual_avg"), config.curse_shares):
        own = select(last, algorithm=name, rate_share=share)
        means = {measure: float(column(own, measure).mean()) for measure in ("gap", "norm")}
        ball[f"{style(name)[0]}, {share:g} of the largest rate"] = means
    return {
        "constants, and the least bound at the end": constants,
        "bounds at the end": ends,
        "methods": methods,
        "evaluations from which clients' supports with l1 are final": [
            {"client": m} | {style(row["algorithm"])[0]: row["clients"][m] for row in finals}
            for m in range(config.sparsity_clients)
        ],
        "on the ball at the end": ball,
    }
