"""What an experiment is: a sweep of algorithms over grids, or a study that computes its own rows.

A config file holds the numbers of an experiment and names it as ``EXPERIMENT``; all the rest is a
field here. All functions are called with the config, so ``--config.KEY=VALUE`` reaches them.
"""

import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from experiments.report.claims import Claim
from experiments.report.plots import Panel
from experiments.report.rows import Row
from fcojax.algorithms import Work
from fcojax.algorithms.base import Factory
from fcojax.engine.cohort import Sampler
from fcojax.engine.uplink import Uplink
from fcojax.problems import ClientData, Problem, from_clients
from fcojax.transforms import Manifold, Mirror, Penalty, euclidean, flat

# (config, rows, summary) -> claims, and (config, rows, summary, directory) -> figures drawn there.
Claims = Callable[[ConfigDict, list[Row], dict[str, Any]], Sequence[Claim]]
Figures = Callable[[ConfigDict, list[Row], dict[str, Any], pathlib.Path], Sequence[pathlib.Path]]


class Setting(NamedTuple):
    """The clients and the work of a variant that does not share the sweep's.

    Attributes:
      train: the clients it trains on.
      cohort: who takes part in a round.
      work: what a client does in a round.
      uplink: what happens to uploads on their way.
    """

    train: ClientData
    cohort: Sampler
    work: Work
    uplink: Uplink | None = None


def one_client(problem: Problem, first: int = 0, end: int | None = None) -> ClientData:
    """The clients from ``first`` to just before ``end``, or all after it, as one."""
    offsets = np.asarray(problem.train.offsets)
    rows = slice(offsets[first], offsets[-1 if end is None else end])
    examples = {name: np.asarray(values)[rows] for name, values in problem.train.examples.items()}
    return from_clients([examples])


class Variant(NamedTuple):
    """An algorithm that a sweep runs in a setting of its own, such as a centralised baseline.

    Attributes:
      factory: builds the algorithm.
      setting: ``(config, problem) -> Setting``; ``None`` for the one that all others have.
    """

    factory: Factory
    setting: Callable[[ConfigDict, Problem], Setting] | None = None


def _nothing(*_: Any) -> tuple[()]:
    return ()


class Sweep(NamedTuple):
    """Algorithms over grids of hyperparameters, each judged at its best point.

    Attributes:
      title: the heading of figures and page.
      problem: ``config -> Problem``, the clients, the loss and the measures.
      penalty: ``config -> Penalty``, psi.
      panels: what is drawn over the rounds, left to right.
      mirror: ``(config, penalty) -> Mirror``, for algorithms that take one; it carries the penalty.
      manifold: ``config -> Manifold``, for algorithms that take one.
      uplink: ``config -> Uplink``, what happens to uploads on their way; ``None`` for nothing.
      algorithms: further algorithms that ``config.algorithms`` may name beside the library's: a
        factory or a ``Variant`` by label, or a list of factories, whose labels are their names.
      claims: what the sources say about the results, each with the number that decides.
      figures: draws further figures; returns the files.
      captions: what figures show, by the stem of their file.
      remarks: what one should know about the outcome, such as why a claim fails; for the page.
      solve_optimum: whether to compute the optimal objective, so that rows have a suboptimality.
      x64: whether to compute in double precision.
    """

    title: str
    problem: Callable[[ConfigDict], Problem]
    penalty: Callable[[ConfigDict], Penalty]
    panels: Sequence[Panel]
    mirror: Callable[[ConfigDict, Penalty], Mirror] = lambda config, penalty: euclidean(penalty)
    manifold: Callable[[ConfigDict], Manifold] = lambda config: flat()
    uplink: Callable[[ConfigDict], Uplink | None] = lambda config: None
    algorithms: Mapping[str, Factory | Variant] | Sequence[Factory] = ()
    claims: Claims = _nothing
    figures: Figures = _nothing
    captions: Mapping[str, str] = {}
    remarks: str = ""
    solve_optimum: bool = True
    x64: bool = False


class Study(NamedTuple):
    """An experiment that computes its own rows: closed forms, bounds, tables.

    Attributes:
      title: the heading of figures and page.
      rows: ``config -> rows``, one at a time. Each has a ``part``, which the progress bar shows.
      summarise: ``(config, rows) -> summary``; entries that are lists of rows become tables.
      claims: what the sources say about the results, each with the number that decides.
      figures: draws the figures; returns the files.
      captions: what figures show, by the stem of their file.
      remarks: what one should know about the outcome, such as why a claim fails; for the page.
      x64: whether to compute in double precision.
    """

    title: str
    rows: Callable[[ConfigDict], Iterator[Row]]
    summarise: Callable[[ConfigDict, list[Row]], dict[str, Any]] = lambda config, rows: {}
    claims: Claims = _nothing
    figures: Figures = _nothing
    captions: Mapping[str, str] = {}
    remarks: str = ""
    x64: bool = False


Experiment = Sweep | Study
