"""Rows and tables: exact fits, methods at FLamby's budget and beyond it, noise and an attacker."""

import itertools
import math
import pathlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import fcojax
import fcojax_sites
from fcojax import algorithms, attacks, privacy, robust, uploads
from fcojax.experiments import Config, Row, Summary, observe_model, select
from fcojax.problems import Problem, population_loss
from fcojax.transforms import Penalty, euclidean
from fcojax_sites.selection import by_example
from fcojax_sites.studies.flamby import published
from fcojax_sites.studies.flamby.data import DATASETS, Silos, penalties
from fcojax_sites.studies.flamby.scores import Measure, Scores, accuracy, c_index, scores

MEASURES: dict[str, Measure] = {"fed_tcga_brca": c_index, "fed_heart_disease": accuracy}
PENALISED = "lasso"  # the penalty of the federated methods that take one
ALL = "all silos"


class Method(NamedTuple):
    """A federated method of the study.

    Attributes:
      text: its name.
      build: ``(loss, penalty) -> Algorithm``.
      server_lr: the step sizes of its server.
      penalised: whether it minimises F + psi; otherwise it minimises F, as FLamby's strategies do.
    """

    text: str
    build: Any
    server_lr: Sequence[float] = (1.0,)
    penalised: bool = True


def _adam(loss: Any, penalty: Penalty) -> fcojax.algorithms.Algorithm:
    return algorithms.fed_opt(loss, server=lambda h: optax.adam(h.server_lr))


METHODS = {
    "fed_avg": Method("FedAvg", lambda loss, psi: algorithms.fed_avg(loss), penalised=False),
    "fed_adam": Method("FedAdam", _adam, (0.01, 0.03, 0.1), penalised=False),
    "fed_dual_avg": Method(
        "FedDualAvg", lambda loss, psi: algorithms.fed_dual_avg(loss, euclidean(psi))
    ),
    "scaffold": Method(
        "SCAFFOLD with feedback", lambda loss, psi: algorithms.scaffold(loss, psi, prox="feedback")
    ),
}
RULES = {
    "mean": lambda share: fcojax.Aggregator(),
    "trimmed mean": lambda share: robust.trimmed_mean(share),
    "median": lambda share: robust.median(),
    "Krum": lambda share: robust.krum(share),
}


class Task(NamedTuple):
    """One benchmark, with the settings that all parts of the study share.

    Attributes:
      name: the benchmark's name.
      silos: the rows of its silos.
      rounds: the number of exchanges that FLamby's strategies may use.
      work: the local work of FLamby's strategies in a round.
      strength: the strength of the penalty, which the folds chose for the lasso.
      client_lr: FedDualAvg's step size, chosen for this number of exchanges.
    """

    name: str
    silos: Silos
    rounds: int
    work: fcojax.algorithms.Work
    strength: float = math.nan
    client_lr: float = math.nan

    @property
    def penalty(self) -> Penalty:
        """The penalty of the federated methods."""
        return penalties(self.silos)[PENALISED]

    def scored(self, model: Any, num_draws: int = 0) -> Scores:
        """Return the scores of a model on the test rows."""
        test = self.silos.test
        predicted = [_linear(model, rows["x"]) for rows in test]
        return scores(MEASURES[self.name], test, predicted, num_draws)


def study(config: Config) -> Iterator[Row]:
    """Yield the rows of all parts of every benchmark."""
    if not config.data_dir:
        raise ValueError("data_dir is empty; pass a checkout of github.com/owkin/FLamby.")
    for name in config.datasets:
        silos = DATASETS[name](pathlib.Path(config.data_dir))
        # Cox regression has no minibatches: the risk set of an example spans its whole region.
        batch = None if name == "fed_tcga_brca" else config.batch_size
        task = Task(name, silos, config.rounds[name], fcojax.local_steps(config.num_steps, batch))
        for row in _exact(config, task):
            if row["penalty"] == PENALISED and row["design"] == ALL:
                task = task._replace(strength=row["strength"])
            yield row
        for method in config.methods:
            for row in _federated(config, task, method):
                if (method, row["rounds"]) == ("fed_dual_avg", task.rounds):
                    task = task._replace(client_lr=row["client_lr"])
                yield row
        yield from _private(config, task)
        yield from _attacked(config, task)


def _exact(config: Config, task: Task) -> Iterator[Row]:
    """Yield the exact fits, at the strengths that folds of the train rows choose."""
    silos = task.silos
    for name, penalty in penalties(silos).items():
        if name in config.penalties:
            yield _fitted(config, task, name, penalty, ALL, silos.problem())
    if not config.baselines:
        return
    yield _fitted(config, task, PENALISED, task.penalty, "pooled rows", silos.pooled())
    for i, rows in enumerate(silos.train):
        # One hospital has a single class, to which no logistic model can be fitted.
        if "y" not in rows or len(np.unique(rows["y"])) == 2:
            alone = silos.problem(i)
            yield _fitted(config, task, PENALISED, task.penalty, f"silo {i} alone", alone)


def _fitted(
    config: Config, task: Task, name: str, penalty: Penalty, design: str, problem: Problem
) -> Row:
    found = fcojax_sites.select(
        problem,
        penalty,
        by=by_example(config.num_folds),
        num_draws=config.num_draws,
        one_standard_error=False,
        strengths=config.num_strengths,
        least=config.least,
        refit=False,
        key=jax.random.key(config.seed),
        tolerance=config.tolerance,
        max_rounds=config.max_rounds,
    )
    model = jax.tree.map(np.asarray, found.model)
    strength = float(found.path.strengths[found.chosen])
    return {
        "part": f"{task.name}: exact",
        "dataset": task.name,
        "penalty": name,
        "design": design,
        "strength": strength,
        "solved": bool(np.all(found.path.outcome.solved)),
        "nonzeros": int(np.count_nonzero(_kernel(model))),
        "kkt": float(fcojax.kkt_violation(problem.loss, penalty, strength, model, problem.train)),
        "objective": float(found.path.objective[found.chosen]),
        "bytes": float(found.ledger.bytes_up + found.ledger.bytes_down),
        "coefficients": _kernel(model).tolist(),
    } | _measured(config, task, model)


def _measured(config: Config, task: Task, model: Any) -> Row:
    """Return the scores of a model with 95 % intervals over the patients."""
    drawn = task.scored(model, config.num_bootstraps)
    low, high = (
        {
            "clients": float(np.nanquantile(drawn.mean, q)),
            "pooled": float(np.nanquantile(drawn.pooled, q)),
            "silos": np.nanquantile(drawn.silos, q, axis=0).tolist(),
        }
        for q in (0.025, 0.975)
    )
    return (
        _scores(task, model)
        | {f"low_{k}": v for k, v in low.items()}
        | {f"high_{k}": v for k, v in high.items()}
    )


def _scores(task: Task, model: Any) -> Row:
    at = task.scored(model)
    return {"clients": float(at.mean), "pooled": float(at.pooled), "silos": at.silos.tolist()}


def _federated(config: Config, task: Task, method: str) -> Iterator[Row]:
    """Yield a method at each budget, with the rates of the least loss on held-out train rows."""
    chosen, budgets = METHODS[method], [task.rounds * times for times in config.times]
    grid = {"client_lr": list(config.client_lr), "server_lr": list(chosen.server_lr)}
    if chosen.penalised:
        grid["penalty_scale"] = [task.strength]
    fit, held_out = _halves(config, task)
    rates = list(itertools.product(*grid.values()))
    models = _swept(config, task, chosen, grid, fit, budgets[-1])
    losses = np.array(
        [
            [_loss(held_out, _at(models, point, 0, times)) for times in config.times]
            for point in range(len(rates))
        ]
    )
    best = np.where(np.isfinite(losses), losses, np.inf).argmin(axis=0)
    problem = task.silos.problem()
    ends = _swept(config, task, chosen, grid, problem, budgets[-1])
    for times, budget, point in zip(config.times, budgets, best, strict=True):
        for seed in range(_num_seeds(config, task)):
            model = _at(ends, point, seed, times)
            row = {
                "part": f"{task.name}: {chosen.text}",
                "dataset": task.name,
                "method": method,
                "rounds": budget,
                "seed": seed,
                "client_lr": rates[point][0],
                "server_lr": rates[point][1],
                "nonzeros": int(np.count_nonzero(_kernel(model))),
                "bytes": 2 * budget * len(task.silos.train) * _num_bytes(model),
            }
            if chosen.penalised:
                psi = task.penalty.value(jax.tree.map(jnp.asarray, model), task.strength)
                row["objective"] = _loss(problem, model) + float(psi)
            yield row | _measured(config, task, model)


def _halves(config: Config, task: Task) -> tuple[Problem, Problem]:
    """Return two problems: with four fifths of each silo's train rows, and with the other fifth."""
    kept, held_out = [], []
    for i, rows in enumerate(task.silos.train):
        order = np.random.default_rng([config.seed, i]).permutation(len(rows["x"]))
        cut = len(order) // 5
        kept.append({name: values[order[cut:]] for name, values in rows.items()})
        held_out.append({name: values[order[:cut]] for name, values in rows.items()})
    fit, judge = (task.silos._replace(train=half).problem() for half in (kept, held_out))
    return fit, judge


def _swept(
    config: Config, task: Task, method: Method, grid: dict, problem: Problem, num_rounds: int
) -> Any:
    """Return models with leading axes of points, seeds and multiples of FLamby's rounds."""
    algorithm = method.build(problem.loss, task.penalty)
    _, history = fcojax.sweep(
        algorithm,
        fcojax.grid.product(algorithm.hparams_type, **grid),
        problem.init(jax.random.key(0)),
        problem.train,
        jax.random.split(jax.random.key(config.seed), _num_seeds(config, task)),
        task.work,
        num_rounds=num_rounds,
        eval_every=task.rounds,
        observe=observe_model,
    )
    return jax.tree.map(np.asarray, history["model"])


def _num_seeds(config: Config, task: Task) -> int:
    """Return the number of seeds: one with full batches, which leave nothing to chance."""
    return 1 if task.work.batch_size is None else config.num_seeds


def _private(config: Config, task: Task) -> Iterator[Row]:
    """Yield FedDualAvg at FLamby's budget, with noise that protects whole silos, by epsilon."""
    num_silos, problem = len(task.silos.train), task.silos.problem()
    algorithm = METHODS["fed_dual_avg"].build(problem.loss, task.penalty)
    for epsilon in config.epsilons:
        noise = privacy.noise_for(epsilon, config.delta, fcojax.everyone(), num_silos, task.rounds)
        # Clip at the length of ``num_steps`` steps along a gradient of norm ``clip``.
        clip = config.clip * config.num_steps * task.client_lr
        plan = fcojax.Plan(task.work, uploads=privacy.gaussian(clip, noise))
        hparams = algorithm.hparams_type(client_lr=task.client_lr, penalty_scale=task.strength)
        for seed in range(config.num_noises):
            model, _ = _run(algorithm, hparams, problem, seed, plan, task.rounds)
            yield {
                "part": f"{task.name}: private",
                "dataset": task.name,
                "epsilon": epsilon,
                "noise": noise,
                "seed": seed,
            } | _scores(task, model)


def _attacked(config: Config, task: Task) -> Iterator[Row]:
    """Yield FedDualAvg with each silo in turn sending its upload times -1,000."""
    problem = task.silos.problem()
    honest = METHODS["fed_dual_avg"].build(problem.loss, task.penalty)
    weights = np.asarray([len(rows["x"]) for rows in task.silos.train], float)
    share = float((weights / weights.sum()).max())
    hparams = honest.hparams_type(client_lr=task.client_lr, penalty_scale=task.strength)
    for rule in config.rules:
        plan = fcojax.Plan(task.work, aggregator=RULES[rule](min(share + 1e-6, 0.499)))
        for bad in (None, *range(len(task.silos.train))):
            sent = attacks.scaled(-1000.0)
            attack = () if bad is None else (attacks.attacked([bad], sent),)
            attacked = plan._replace(uploads=uploads.chain(*attack))
            model, _ = _run(honest, hparams, problem, 0, attacked, task.rounds)
            yield {
                "part": f"{task.name}: attacked",
                "dataset": task.name,
                "rule": rule,
                "bad": bad,
            } | _scores(task, model)


def _run(algorithm: Any, hparams: Any, problem: Problem, seed: int, plan: Any, rounds: int) -> Any:
    with warnings.catch_warnings():  # a run that diverges under attack is a result, so no warning
        warnings.simplefilter("ignore")
        return fcojax.run(
            algorithm,
            hparams,
            problem.init(jax.random.key(0)),
            problem.train,
            jax.random.key(seed),
            plan,
            num_rounds=rounds,
            eval_every=rounds,
        )


def _at(models: Any, point: int, seed: int, times: int) -> Any:
    """Return the model of one point and seed after ``times`` times FLamby's budget."""
    return jax.tree.map(lambda leaf: leaf[point, seed, times - 1], models)


def _loss(problem: Problem, model: Any) -> float:
    return float(population_loss(problem.loss, model, problem.train))


def _kernel(model: Any) -> np.ndarray:
    return np.asarray(model["kernel"] if isinstance(model, dict) else model)


def _linear(model: Any, x: np.ndarray) -> np.ndarray:
    return x @ _kernel(model) + (np.asarray(model["bias"]) if isinstance(model, dict) else 0.0)


def _num_bytes(model: Any) -> int:
    """Return the bytes of a model that is sent in single precision."""
    return 4 * sum(np.size(leaf) for leaf in jax.tree.leaves(model))


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return a table of our scores and the published ones per benchmark, and scores by silo."""
    found: Summary = {}
    for name in config.datasets:
        own = select(rows, dataset=name)
        table = [_entry(row, _text(row)) for row in own if "low_clients" in row and _first(row)]
        table += [
            {"fit": f"{text}, as FLamby has it", "silos": clients, "all test rows": pooled}
            for text, clients, pooled in published.TABLES[name]
        ]
        found[name] = sorted(table, key=lambda entry: -entry["silos"])
        found[f"{name}, by silo"] = [
            {"fit": _text(row)}
            | {
                f"silo {i}": f"{at:.3f} ({low:.3f} to {high:.3f})"
                for i, (at, low, high) in enumerate(
                    zip(row["silos"], row["low_silos"], row["high_silos"], strict=True)
                )
            }
            for row in own
            if "low_silos" in row and _first(row)
        ]
        found[f"{name}, private"] = [
            {
                "epsilon": epsilon,
                "noise": noisy[0]["noise"],
                "silos": float(np.mean([row["clients"] for row in noisy])),
                "all test rows": float(np.mean([row["pooled"] for row in noisy])),
            }
            for epsilon in config.epsilons
            for noisy in [select(own, epsilon=epsilon)]
        ]
        found[f"{name}, one malicious silo"] = [
            {
                "rule": rule,
                "none": select(own, rule=rule, bad=None)[0]["clients"],
                "mean over which": float(np.mean(bad)),
                "worst": float(min(bad)),
            }
            for rule in config.rules
            for bad in [[r["clients"] for r in select(own, rule=rule) if r["bad"] is not None]]
        ]
    return found


def _first(row: Row) -> bool:
    return row.get("seed", 0) == 0


def _text(row: Row) -> str:
    if "method" in row:
        return f"{METHODS[row['method']].text}, {row['rounds']} exchanges"
    return f"exact {row['penalty']}, {row['design']}"


def _entry(row: Row, text: str) -> Row:
    """Return a line of the table; ``silos`` is the plain mean over the silos, as in FLamby."""
    return {
        "fit": text,
        "silos": row["clients"],
        "from": row["low_clients"],
        "to": row["high_clients"],
        "all test rows": row["pooled"],
        "nonzero": row["nonzeros"],
        "kB": row["bytes"] / 1000,
    }
