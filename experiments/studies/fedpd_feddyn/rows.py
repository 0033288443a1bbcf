"""Rows and summary: the gap between the methods, FedPD that skips, FedDyn with few clients."""

import itertools
from collections.abc import Iterator

import numpy as np

import fcojax
from experiments.report.rows import Row, Summary, column, select
from experiments.studies.fedpd_feddyn.problem import Quadratics, build
from experiments.study import Config
from fcojax import Plan
from fcojax.algorithms import fed_pd

MATCHING = ("zero duals", "duals minus gradients", "duals plus gradients", "arbitrary duals")

OFFSET, OTHER_START = "drift not the mean dual", "another start of the local steps"


def study(config: Config) -> Iterator[Row]:
    """Yield the rows of all figures."""
    task = Quadratics(config)
    for part in (gaps, biases, floors, participation):
        yield from part(config, task)


def gaps(config: Config, task: Quadratics) -> Iterator[Row]:
    """Yield the largest difference between coordinates of the two models, by start and round."""
    plan = Plan(fcojax.local_steps(config.num_steps), fcojax.everyone())
    minus, zero = task.slopes - task.hessians @ task.first, np.zeros(config.dim)
    given = dict(zip(MATCHING, (0 * minus, minus, -minus, task.arbitrary_duals), strict=True))
    cases = [(OTHER_START, "gd", "gd from the center", minus, None)]
    for solver in config.solvers:
        cases += [(name, solver, solver, duals, None) for name, duals in given.items()]
        cases += [(OFFSET, solver, solver, task.arbitrary_duals, zero)]
    for name, own, other, duals, drift in cases:
        pd = task.models("fed_pd", own, plan, config.num_rounds, duals)
        dyn = task.models("fed_dyn", other, plan, config.num_rounds, duals, drift)
        target = task.zero_of(zero if drift is None else drift - duals.mean(axis=0))
        for r in range(config.num_rounds):
            yield {
                "part": "gap",
                "start": name,
                "solver": own,
                "matching": name in MATCHING,
                "round": r + 1,
                "gap": float(np.abs(pd[r] - dyn[r]).max()),
                "fed_pd": float(task.error(pd[r])),
                "fed_dyn": float(task.error(dyn[r])),
                "from_predicted": float(task.error(dyn[r], target)),
            }


def biases(config: Config, task: Quadratics) -> Iterator[Row]:
    """Yield FedDyn's limit with sampled clients and a drift that is not the mean of the duals."""
    duals = task.arbitrary_duals
    cohort, rounds = fcojax.uniform_cohort(cohort_size=config.cohort_size), config.cohort_rounds
    plan = Plan(fcojax.local_steps(config.num_steps), cohort)
    [end] = task.models("fed_dyn", "gd", plan, rounds, duals, 0 * duals[0], eval_every=rounds)
    yield {
        "part": "bias",
        "clients": config.cohort_size,
        "fed_dyn": float(task.error(end)),
        "from_predicted": float(task.error(end, task.zero_of(-duals.mean(axis=0)))),
    }


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
        for seed, curve in zip(config.seeds, curves, strict=True):
            yield {
                "part": "floor",
                "prox_step": prox_step,
                "skip_probability": name,
                "seed": seed,
                "error": float(curve[-1] if name == "falling" else curve[100:].mean()),
            }


def participation(config: Config, task: Quadratics) -> Iterator[Row]:
    """Yield the first round at which FedDyn's model is within the tolerance, by cohort size."""
    algorithm, grid = build("fed_dyn", "gd"), task.hparams("fed_dyn", config.cohort_prox_steps)
    for size in config.cohort_sizes:
        plan = Plan(fcojax.local_steps(config.num_steps), fcojax.uniform_cohort(cohort_size=size))
        given = algorithm, grid, config.seeds, plan
        within = task.errors(*given, num_rounds=config.tolerance_rounds) <= config.tolerance
        for i, j in np.ndindex(within.shape[:2]):
            yield {
                "part": "participation",
                "prox_step": config.cohort_prox_steps[i],
                "seed": config.seeds[j],
                "rate": size / config.num_clients,
                "rounds": int(within[i, j].argmax()) + 1 if within[i, j].any() else None,
            }


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return the largest gaps by start, the bias, the floors, and the rounds by cohort size."""
    pairs = select(rows, part="gap")
    largest = {}
    for row in pairs:
        name = f"{row['start']}, {row['solver']}"
        largest[name] = max(row["gap"], largest.get(name, 0.0))
    probabilities = (*config.skip_probabilities, "falling")
    return {
        "largest gap of a coordinate": largest,
        "a drift that does not match, at the end": [
            *select(pairs, start=OFFSET, round=config.num_rounds),
            *select(rows, part="bias"),
        ],
        "floor of the error": {
            f"eta {eta:g}": {p: float(floor_of(rows, eta, p).mean()) for p in probabilities}
            for eta in config.skip_prox_steps
        },
        "rounds to the tolerance, by clients per round": {
            f"eta {eta:g}": {
                size: float(column(select(shares, rate=size / config.num_clients), "rounds").mean())
                for size in config.cohort_sizes
            }
            for eta in config.cohort_prox_steps
            for shares in [select(rows, part="participation", prox_step=eta)]
        },
    }


def floor_of(rows: list[Row], eta: float, probability: float | str) -> np.ndarray:
    """Return FedPD's floor for each seed."""
    own = select(rows, part="floor", prox_step=eta, skip_probability=probability)
    return column(own, "error")
