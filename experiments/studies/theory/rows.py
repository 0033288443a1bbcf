"""Rows and summary: FedDualAvg with its bounds, and averages of models and of duals."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, column, select
from experiments.report.summary import final_from
from experiments.studies.theory.problem import ONE_HESSIAN, SMALL_STEPS, Task, loss, tasks
from experiments.study import Config, observe_model
from fcojax import State, algorithms
from fcojax.algorithms import Algorithm
from fcojax.algorithms.dual_averages import FedDualAvgHparams
from fcojax.problems import lasso
from fcojax.theory import averages, fco
from fcojax.transforms import euclidean, l1, named, on_subtree
from fcojax.types import Array


def study(config: Config) -> Iterator[Row]:
    """Yield the rows of all figures."""
    known = tasks(config)
    for setting, task in known.items():
        for num_steps in config[f"{setting}_num_steps"]:
            yield from bounds(config, setting, task, num_steps)
    yield from curse(config, known["ball"])
    for setting in SMALL_STEPS:
        yield from small_steps(config, setting, known[setting])
    yield from sparsity(config)


def bounds(config: Config, setting: str, task: Task, num_steps: int) -> Iterator[Row]:
    """Yield the gap of the averaged shadow iterate, and its bounds."""
    constants, cohort_size = task.constants, config.sampled_cohort_size
    sampled = setting == "sampled"
    rates = [share * fco.largest_client_lr(constants) for share in config.rate_shares]
    chosen = averages.shadow_average(loss, task.mirror, task.squared_dual_norm)
    history = _observed(
        task,
        chosen._replace(model=_server_state),
        fcojax.grid.product(
            FedDualAvgHparams,
            client_lr=[task.convexity * rate for rate in rates],
            penalty_scale=[task.scale],
        ),
        jax.random.split(jax.random.key(0), config.seeds),
        num_steps,
        num_rounds=config.num_rounds,
        eval_every=config.eval_every,
        observe=_shadow,
        cohort=fcojax.uniform_cohort(cohort_size=cohort_size) if sampled else None,
    )
    gaps, discrepancies = task.gap(history["mean"]), history["discrepancy"].mean(axis=1)
    quadratic = setting in ONE_HESSIAN
    theorem = fco.gap_from_heterogeneity if quadratic else fco.gap_from_gradients
    for (i, k), discrepancy in np.ndenumerate(discrepancies):
        num_rounds = (k + 1) * config.eval_every
        shared = (constants, rates[i], num_steps, num_rounds)
        distant = fco.discrepancy_bound(constants, rates[i], num_steps, task.heterogeneity)
        lemma = fco.gap_from_discrepancy(*shared, float(discrepancy))
        bound = theorem(*shared, task.heterogeneity)
        if sampled:
            known = (constants, rates[i], num_steps, task.heterogeneity, cohort_size)
            few = constants._replace(num_clients=cohort_size), *shared[1:], float(discrepancy)
            lemma = fco.gap_from_discrepancy(*few) + fco.gap_from_sampling(*known)
            bound = fco.gap_from_heterogeneity(*shared, task.heterogeneity, cohort_size)
        yield {
            "part": "bound",
            "setting": setting,
            "num_steps": num_steps,
            "rate_share": config.rate_shares[i],
            "round": num_rounds,
            **_spread(gaps[i, :, k]),
            "discrepancy": float(discrepancy),
            "discrepancy_bound": distant if quadratic else None,
            "lemma": lemma,
            "theorem": bound,
        }


def curse(config: Config, task: Task) -> Iterator[Row]:
    """Yield the gap and the norm of FedMiD's and FedDualAvg's models on the ball."""
    rates = [share * fco.largest_client_lr(task.constants) for share in config.curse_shares]
    keys = jax.vmap(jax.random.key)(jnp.asarray(config.curse_seeds))
    for name in ("fed_mid", "fed_dual_avg"):
        factory = getattr(algorithms, name)
        models = _observed(
            task,
            factory(loss, task.mirror),
            fcojax.grid.product(factory.Hparams, client_lr=rates, penalty_scale=[task.scale]),
            keys,
            config.curse_steps,
            num_rounds=config.curse_rounds,
            eval_every=config.curse_eval_every,
            observe=observe_model,
        )["model"]
        for (i, j, k), gap in np.ndenumerate(task.gap(models)):
            yield {
                "part": "curse",
                "algorithm": name,
                "rate_share": config.curse_shares[i],
                "seed": config.curse_seeds[j],
                "round": (k + 1) * config.curse_eval_every,
                "gap": float(gap),
                "norm": float(np.linalg.norm(models[i, j, k])),
            }


def small_steps(config: Config, setting: str, task: Task) -> Iterator[Row]:
    """Yield the gap of the mean model at a small client rate, and its bound by Theorem 4.1."""
    constants, num_steps, client_lr = task.constants, config.small_num_steps, config.small_client_lr
    round_lr = fco.best_round_lr(constants, num_steps, config.small_rounds)
    keys = jax.random.split(jax.random.key(1), config.seeds)
    for name in SMALL_STEPS[setting]:
        local = name != "minibatch"  # which is one step of FedMiD-OSP with the batches together
        factory = getattr(algorithms, name if local else "fed_mid_osp")
        rate = client_lr if local else round_lr
        models = _observed(
            task,
            averages.average_of_rounds(factory(loss, task.mirror)),
            fcojax.grid.product(
                factory.Hparams,
                client_lr=[rate],
                penalty_scale=[task.scale],
                server_lr=[round_lr / (rate * num_steps) if local else 1.0],
            ),
            keys,
            num_steps if local else 1,
            batch_size=1 if local else num_steps,
            num_rounds=config.small_rounds,
            eval_every=config.small_eval_every,
            observe=observe_model,
        )["model"]
        for k, values in enumerate(task.gap(models[0]).T):
            num_rounds = (k + 1) * config.small_eval_every
            yield {
                "part": "small steps",
                "setting": setting,
                "algorithm": name,
                "round": num_rounds,
                **_spread(values),
                "theorem": fco.gap_of_small_steps(constants, round_lr, num_steps, num_rounds),
            }


def _observed(
    task: Task,
    algorithm: Algorithm,
    grid: Any,
    keys: Array,
    num_steps: int,
    batch_size: int = 1,
    cohort: fcojax.Sampler | None = None,
    **options: Any,
) -> dict[str, np.ndarray]:
    """Return the measures of a sweep with noisy steps, axes [points, seeds, evaluations, ...]."""
    work = fcojax.local_steps(num_steps, batch_size, replace=True)
    start = jnp.asarray(task.start)
    plan = fcojax.Plan(work, cohort or fcojax.everyone())
    _, history = fcojax.sweep(algorithm, grid, start, task.data, keys, plan, **options)
    return jax.tree.map(np.asarray, history)


def sparsity(config: Config) -> Iterator[Row]:
    """Yield the density of the clients' models and of the server's model, for l1.

    A client's model is the result of a round in which only this client takes part.
    """
    problem = lasso(
        num_clients=config.sparsity_clients,
        num_examples=64,
        dim=config.sparsity_dim,
        num_true=config.sparsity_dim // 8,
        mean_scale=0.3,
        seed=config.data_seed,
    )
    mirror = euclidean(on_subtree(l1(), named("kernel")))
    work = fcojax.local_steps(config.sparsity_steps, 10)
    hparams = FedDualAvgHparams(client_lr=config.sparsity_client_lr, penalty_scale=0.5)
    chosen = {
        "fed_mid": algorithms.fed_mid(problem.loss, mirror, server_prox=False),
        "fed_dual_avg": algorithms.fed_dual_avg(problem.loss, mirror),
    }
    alone = [problem.train.select(np.array([m])) for m in range(config.sparsity_clients)]
    for name, algorithm in chosen.items():

        def after(state, data, num_rounds, algorithm=algorithm):
            return fcojax.advance(algorithm, hparams, state, data, work, num_rounds=num_rounds)[0]

        key, supports = jax.random.key(0), []
        state = fcojax.start(algorithm, hparams, problem.init(key), problem.train, key, work)
        for _ in range(config.sparsity_rounds // config.sparsity_eval_every):
            state = after(state, problem.train, config.sparsity_eval_every - 1)
            ends = [after(state, data, 1) for data in alone]
            state = after(state, problem.train, 1)
            found = [_support(algorithm, hparams, one) for one in (state, *ends)]
            supports.append(found)
            yield {
                "part": "sparsity",
                "algorithm": name,
                "round": int(state.round),
                "clients": float(np.mean(found[1:])),
                "server": float(np.mean(found[0])),
            }
        rounds = config.sparsity_eval_every * (1 + np.arange(len(supports)))
        server, *clients = final_from(supports, rounds).max(axis=-1).tolist()
        yield {"part": "final", "algorithm": name, "server": server, "clients": clients}


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return the gap and its bounds at the end, and the end points of the two averages."""
    ends = select(rows, part="bound", round=config.num_rounds)
    last = select(rows, part="curse", round=config.curse_rounds)
    finals = {row["algorithm"]: row for row in select(rows, part="final")}
    return {
        "bounds at the end": ends,
        "methods": [_sparsity_line(config, rows, name) for name in finals],
        "evaluations from which clients' supports with l1 are final": [
            {"client": m} | {style(name)[0]: row["clients"][m] for name, row in finals.items()}
            for m in range(config.sparsity_clients)
        ],
        "on the ball at the end": {
            f"{style(name)[0]}, {share:g} of the largest rate": {
                measure: float(
                    column(select(last, algorithm=name, rate_share=share), measure).mean()
                )
                for measure in ("gap", "norm")
            }
            for name in ("fed_mid", "fed_dual_avg")
            for share in config.curse_shares
        },
    }


def _sparsity_line(config: Config, rows: list[Row], name: str) -> Row:
    [end] = select(rows, part="sparsity", algorithm=name, round=config.sparsity_rounds)
    [final] = select(rows, part="final", algorithm=name)
    settled = [at for at in final["clients"] if at is not None]
    return {
        "with l1": style(name)[0],
        "density of clients' models": end["clients"],
        "of the mean's": end["server"],
        "the mean's support final from round": final["server"],
        "clients whose support becomes final": len(settled),
        "the last from round": max(settled, default=None),
    }


def _spread(gaps: np.ndarray) -> Row:
    low, high = np.quantile(gaps, (0.1, 0.9))
    return {"gap": float(gaps.mean()), "low": float(low), "high": float(high)}


def _support(algorithm: Algorithm, hparams: Any, state: State) -> np.ndarray:
    return np.asarray(fcojax.read_model(algorithm, hparams, state)["kernel"]) != 0


def _server_state(hparams: Any, server: Any) -> Any:
    return server


def _shadow(hparams: Any, server: Any, context: Any) -> dict[str, Array]:
    return {"mean": server.mean, "discrepancy": server.discrepancy}
