"""The federated LASSO of Yuan, Zaheer and Reddi (ICML 2021)."""

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

import fcojax
from experiments.codecs import optimised
from experiments.report.claims import Claim, judged
from experiments.report.plots import Panel
from experiments.report.rows import Row, Summary
from experiments.report.summary import Criterion, at_best, best_scores, first_rounds, grid_scores
from experiments.studies.shared import mirror_descent, one_client, with_support
from experiments.study import Config, Sweep, from_config
from fcojax import algorithms
from fcojax.algorithms import Work
from fcojax.problems import ClientData, Problem, lasso, population_loss
from fcojax.reference import optimum
from fcojax.transforms import Penalty, l1, monotone, named, on_subtree, precomposed
from fcojax.types import NonNegative, Positive

STATEMENTS = """
Yuan, Zaheer and Reddi (ICML 2021), section 5.1, Figure 3
f1 behind fed_mid fed_mid_osp
    | FedDualAvg recovers most of the pattern, more than FedMiD and FedMiD-OSP
    | difference in F1 | > 0
f1 behind fed_dual_avg_osp | FedDualAvg-OSP is very competitive | F1 behind FedDualAvg's | < 0.05
rounds beyond fed_dual_avg_osp fed_mid fed_mid_osp
    | FedDualAvg is the fastest | further rounds to an F1 of 0.95 | > 0
density | FedMiD is the least sparse | density beyond the next | > 0
rate | FedDualAvg benefits from larger rates | its best client rate over the others' largest | >= 2
Yuan, Zaheer and Reddi (ICML 2021), section 5
f1 behind fed_avg_subgradient
    | FedAvg with subgradients is consistently ineffective | F1 behind FedDualAvg's | > 0.05
objective over fed_avg_subgradient
    | FedAvg with subgradients is consistently ineffective | objective over FedDualAvg's | > 1
Expected by us
step | FedDualAvg takes larger steps a round
    | its best product of both rates over the others' largest | >= 2
good first fed_dual_avg | more rates are good for FedDualAvg
    | lead in the share of the grid within 0.01 of a method's best F1 | > 0
excess | proximal gradient descent on all data reaches the optimum
    | excess of the objective over the optimum, as a share of it | <= 0.0001
centralised
    | on all data dual averaging recovers more of the pattern than mirror descent
    | difference in F1 | > 0.0005
"""


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return the claims at the best rates, paired over the seeds."""
    known = summary["algorithms"]
    order = ("fed_dual_avg", "fed_dual_avg_osp", "fed_mid", "fed_mid_osp")
    entries = {name: known[name] for name in order if name in known}
    if config.get("penalty", "l1") != "l1":
        return []
    judge = Criterion("f1", "max", config.criterion_rounds)
    if order[0] not in entries or len(entries) < 2:
        return judged(STATEMENTS, _references(rows, known, judge))
    end = Criterion("density", "max", config.eval_every)
    rates: dict[str, Any] = {}
    numbers: dict[str, Any] = {name: {} for name in ("f1", "rounds", "good")}
    density: dict[str, Any] = {}
    for name, entry in entries.items():
        rates[name] = entry["best"]["client_lr"], entry["best"]["server_lr"]
        best, table = at_best(rows, name, entry["best"]), grid_scores(rows, name, entry, judge)
        numbers["f1"][name] = best_scores(rows, name, entry, judge)
        density[name] = best_scores(rows, name, entry, end)
        numbers["rounds"][name] = first_rounds(best, "f1", 0.95, "max", config.num_rounds)
        numbers["good"][name] = np.mean(table >= table.max(axis=0) - 0.01, axis=0)
    if "fed_mid" in density:
        lead = density.pop("fed_mid") - np.max([*density.values()], axis=0)
        at_edge = any(entry["edges"] for entry in entries.values())
        numbers["density"] = lead, {"at_edge": at_edge}
    tried = {(row["client_lr"], row["server_lr"]) for row in rows if row["algorithm"] in entries}
    (ours, *others), (own, *products) = rates.values(), (np.prod(pair) for pair in rates.values())
    numbers["rate"] = ours[0] / max(rate for rate, _ in others), {"rates": len(dict(tried))}
    numbers["step"] = own / max(products), {"rates": len(tried)}
    return judged(STATEMENTS, numbers)


def _references(rows: list[Row], known: dict[str, Any], judge: Criterion) -> dict[str, Any]:
    """Return the numbers of the centralised methods, and of FedAvg beside FedDualAvg."""

    def scored(measure: str, *names: str) -> dict[str, Any]:
        own = judge._replace(measure=measure)
        return {n: best_scores(rows, n, known[n], own) for n in names if n in known}

    numbers: dict[str, Any] = {}
    if "prox_gd" in known:
        least = scored("objective", "prox_gd")["prox_gd"]
        excess = scored("suboptimality", "prox_gd")["prox_gd"]
        numbers["excess"] = excess / (least - excess)
    if {"dual_averaging", "mirror_descent"} <= known.keys():
        averaged, stepped = scored("f1", "dual_averaging", "mirror_descent").values()
        at_edge = bool(known["mirror_descent"]["edges"])
        numbers["centralised"] = averaged - stepped, {"at_edge": at_edge}
    if {"fed_dual_avg", "fed_avg_subgradient"} <= known.keys():
        for measure in ("f1", "objective"):
            numbers[measure] = scored(measure, "fed_dual_avg", "fed_avg_subgradient")
    return numbers


def penalty(config: Config) -> Penalty:
    """Return the l1 norm of the weights, or the cone of weights that decrease along the features.

    The true weights are one on the first features and zero on the others, so they decrease.
    """
    if config.get("penalty", "l1") == "l1":
        return on_subtree(l1(), named("kernel"))

    def reverse(leaves):
        return jax.tree.map(lambda leaf: leaf[::-1], leaves)

    return on_subtree(precomposed(monotone(axis=0), reverse, reverse), named("kernel"))


def problem(config: Config) -> Problem:
    """Return the planted regression of the config."""
    drawn = from_config(lasso, config, seed=config.data_seed)
    if config.get("penalty", "l1") != "l1":
        # Outside of the cone the objective is infinite, and a run that starts there has diverged.
        cone, init = penalty(config), drawn.init
        drawn = drawn._replace(init=lambda key: cone.prox(init(key), 1.0, 1.0))
    return with_support(drawn, config.cuts[0])


def strengths(config: Config) -> tuple[float, ...]:
    """Return the given strengths, or the candidate that the pooled solver chooses.

    With ``validation`` it is the candidate whose pooled minimiser has the lowest loss on the
    validation examples; with ``pattern`` it is the one whose minimiser has the best F1, and this
    loss decides ties.
    """
    if config.get("strength", "typed") == "typed":
        return config.penalty_scale
    data, psi = problem(config), penalty(config)
    validation = data.validation
    assert validation is not None  # num_validation is at least one

    def rank(strength: float) -> tuple[float, float]:
        solved = optimum(data, psi, strength, tolerance=1e-7).params
        params = jax.tree.map(jnp.asarray, solved)
        loss = float(population_loss(data.loss, params, validation))
        pattern = config.strength == "pattern"
        return (-float(data.measures(params)["f1"]) if pattern else 0.0), loss

    return (min(config.candidates, key=rank),)


def _pooled(config: Config, problem: Problem) -> tuple[ClientData, Work]:
    """Return the pooled data as one client: the same number of steps, batches of a whole cohort."""
    batch_size = config.batch_size and config.batch_size * config.cohort_size
    return one_client(problem), fcojax.local_steps(config.num_steps, batch_size)


def _full_batch(config: Config, problem: Problem) -> tuple[ClientData, Work]:
    """Return one client that takes one step on all examples."""
    return one_client(problem), fcojax.local_steps(1)


PLANS = {"prox_gd": _full_batch, "mirror_descent": _pooled, "dual_averaging": _pooled}
METHODS = {
    "prox_gd": algorithms.fed_mid_osp,
    "mirror_descent": mirror_descent,
    "dual_averaging": algorithms.fed_dual_avg,
}
# Optax's defaults: the source's code can have these two, and does not give their values.
METHODS |= {
    f"{name}_{text}": optimised(name, getattr(algorithms, name), server_optimiser=text)
    for name in ("fed_mid", "fed_dual_avg")
    for text in ("adam", "lamb")
}


EXPERIMENT = Sweep(
    title="Federated LASSO: recovery of the true support",
    problem=problem,
    penalty=penalty,
    strengths=strengths,
    panels=(
        Panel("f1", "F1 score of the support", early=True),
        Panel("precision", "precision of the support", early=True),
        Panel("recall", "recall of the support", early=True),
        Panel("density", "share of nonzero weights", early=True),
        Panel("objective", r"objective $F + \psi$", log=True, early=True),
    ),
    algorithms=METHODS,
    plans=PLANS,
    keys={
        NonNegative: "cuts",
        Positive: "candidates",
        Literal["typed", "validation", "pattern"]: "strength",
        Literal["l1", "decreasing"]: "penalty",
    },
    claims=claims,
)
