"""The lines of a sweep: under each label an algorithm, its grid and the clients it trains on."""

from typing import NamedTuple

import jax
from ml_collections import ConfigDict

from experiments import factories
from experiments.settings import Settings
from experiments.study import Setting, Sweep
from fcojax.algorithms import Algorithm
from fcojax.engine.check import check_run
from fcojax.engine.grid import take
from fcojax.engine.plan import Plan
from fcojax.problems import ClientData, Problem
from fcojax.transforms import Penalty
from fcojax.types import PyTree


class Entry(NamedTuple):
    """One line of an experiment.

    Attributes:
      label: its name in rows and figures.
      algorithm: the algorithm.
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
    sweep: Sweep, config: ConfigDict, settings: Settings, problem: Problem, penalty: Penalty
) -> list[Entry]:
    """Builds and checks all lines of a sweep; raises ``ValueError`` with one sentence."""
    known = {
        "penalty": penalty,
        "mirror": sweep.mirror(config, penalty),
        "manifold": sweep.manifold(config),
    }
    usual = Setting(problem.train, settings.cohort, settings.work, sweep.uplink(config))
    entries = []
    for label, (factory, setting_of) in settings.algorithms.items():
        algorithm = factories.build(label, factory, problem.loss, known)
        grid = settings.grids[label]
        setting = setting_of(config, problem) if setting_of else usual
        plan = Plan(
            setting.work,
            setting.cohort,
            setting.uplink,
            client_chunk_size=settings.client_chunk_size,
            point_chunk_size=settings.point_chunk_size,
            guard=settings.guard,
        )
        check_run(algorithm, plan, take(grid, 0), setting.train, jax.random.key(0))
        entries.append(Entry(label, algorithm, grid, setting.train, plan))
    return entries


def described(problem: Problem, config: ConfigDict, seeds: tuple[int, ...]) -> str:
    """One sentence about the data, for captions."""
    train = problem.train
    drawn = (
        f"read from {config.data_dir}"
        if config.get("data_dir")
        else (f"drawn from seed {config.get('data_seed', 0)}")
    )
    sizes = f"{train.num_clients:,} clients with {int(train.offsets[-1]):,} examples, {drawn}"
    return f"Data: {sizes}; runs with seeds {', '.join(map(str, seeds))}."


def columns(problem: Problem, sweep: Sweep) -> list[str]:
    """The measures by which points can be ranked."""
    measures = jax.eval_shape(lambda key: problem.measures(problem.init(key)), jax.random.key(0))
    found = ["objective", "loss", *measures]
    if sweep.solve_optimum:
        found.append("suboptimality")
    if problem.validation is not None:
        found.append("validation_loss")
    return found
