"""The lines of an experiment: per label an algorithm, the clients it runs on and its grid."""

from types import ModuleType
from typing import Any, NamedTuple

import jax
from ml_collections import ConfigDict

import fcojax
from experiments.settings import Settings, factory_of
from fcojax.algorithms import Algorithm
from fcojax.algorithms.base import Factory
from fcojax.engine.check import check_run
from fcojax.engine.grid import take
from fcojax.engine.round import Plan
from fcojax.problems import ClientData, Problem
from fcojax.problems.problem import Loss
from fcojax.transforms import Penalty, euclidean, flat
from fcojax.types import PyTree


class Entry(NamedTuple):
    """One line of an experiment.

    Attributes:
      label: what rows and figures call it.
      algorithm: what runs.
      grid: its hyperparameters, with a leading axis of points.
      train: the clients that take part.
      plan: who takes part in a round, and how much each works.
    """

    label: str
    algorithm: Algorithm
    grid: PyTree
    train: ClientData
    plan: Plan


def build(
    module: ModuleType,
    config: ConfigDict,
    settings: Settings,
    problem: Problem,
    penalty: Penalty,
) -> list[Entry]:
    """All lines of an experiment, checked; raises ``ValueError`` in a sentence."""
    entries = []
    for label, grid in settings.grids.items():
        own: dict[str, Any] = {}
        if label in getattr(module, "VARIANTS", {}):
            own = module.variant(label, config, problem, penalty)
        algorithm = own.get("algorithm") or build_algorithm(
            getattr(fcojax.algorithms, factory_of(label, module)),
            problem.loss,
            geometry(module, config, penalty),
        )
        train = own.get("train", problem.train)
        plan = Plan(
            own.get("work", settings.work),
            own.get("cohort", settings.cohort),
            settings.client_chunk_size,
        )
        check_run(algorithm, plan, take(grid, 0), train, settings.num_rounds, settings.eval_every)
        entries.append(Entry(label, algorithm, grid, train, plan))
    return entries


def geometry(module: ModuleType, config: ConfigDict, penalty: Penalty) -> dict[str, Any]:
    """This config's answer to each name that a factory's ``geometry`` may list."""
    mirror, manifold = getattr(module, "mirror", None), getattr(module, "manifold", None)
    return {
        "penalty": penalty,
        "mirror": mirror(config, penalty) if mirror else euclidean(penalty),
        "manifold": manifold(config) if manifold else flat(),
    }


def build_algorithm(factory: Factory, loss: Loss, known: dict[str, Any]) -> Algorithm:
    """The algorithm for this loss, with the geometry that its factory says it takes."""
    return factory(loss, *(known[name] for name in factory.geometry))


def columns(problem: Problem, settings: Settings) -> list[str]:
    """The measures by which points can be ranked."""
    measures = jax.eval_shape(lambda key: problem.measures(problem.init(key)), jax.random.key(0))
    found = ["objective", "loss", *measures]
    if settings.solve_optimum:
        found.append("suboptimality")
    if problem.validation is not None:
        found.append("validation_loss")
    return found
