"""The lines of an experiment: per label an algorithm, the clients it runs on and its grid."""

import inspect
from types import ModuleType
from typing import Any, NamedTuple

import jax
from ml_collections import ConfigDict

import fcojax
from experiments.settings import Settings, factory_of
from fcojax.algorithms import Algorithm
from fcojax.engine.check import check_run
from fcojax.engine.grid import take
from fcojax.engine.round import Plan
from fcojax.problems import ClientData, Problem
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
            factory_of(label, module), problem, geometry(module, config, penalty)
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
    """What factories may ask for by the name of an argument, and this config's answer."""
    mirror, manifold = getattr(module, "mirror", None), getattr(module, "manifold", None)
    return {
        "penalty": penalty,
        "mirror": mirror(config, penalty) if mirror else euclidean(penalty),
        "manifold": manifold(config) if manifold else flat(),
    }


def build_algorithm(name: str, problem: Problem, known: dict[str, Any]) -> Algorithm:
    """The named algorithm on the problem; what geometry it takes is read off its signature."""
    factory = getattr(fcojax.algorithms, name)
    takes = [argument for argument in inspect.signature(factory).parameters if argument in known]
    return factory(problem.loss, *(known[argument] for argument in takes))


def columns(problem: Problem, settings: Settings) -> list[str]:
    """The measures by which points can be ranked."""
    measures = jax.eval_shape(lambda key: problem.measures(problem.init(key)), jax.random.key(0))
    found = ["objective", "loss", *measures]
    if settings.solve_optimum:
        found.append("suboptimality")
    if problem.validation is not None:
        found.append("validation_loss")
    return found
