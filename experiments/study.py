"""The two kinds of experiment: a sweep of algorithms over grids, or a study with its own rows.

A config file holds the numbers of an experiment and assigns the experiment to ``EXPERIMENT``;
everything else is a field of that object. All functions are called with the config, so
``--config.KEY=VALUE`` reaches them.
"""

import contextlib
import fnmatch
import inspect
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_origin

from ml_collections import ConfigDict

from experiments.report.claims import Claim
from experiments.report.plots import Panel
from experiments.report.rows import Row
from fcojax import Plan
from fcojax.algorithms import Work
from fcojax.algorithms.base import Factory
from fcojax.extend import checked_value
from fcojax.problems import ClientData, Problem
from fcojax.transforms import Manifold, Mirror, Penalty, euclidean, flat, named, on_subtree
from fcojax.types import Params

Config = Any  # a ConfigDict, whose values have no static types

# A type of values, as in an annotation, and the keys that take such values.
Keys = Mapping[Any, str]
# Further conditions on the values, by their description in words.
Requires = Mapping[str, Callable[[ConfigDict], Any]]
_NAME = re.compile(r"([\w.*]+)(?:\[(\d+)(\+?)\])?")

# (config, rows, summary) -> claims, and (config, rows, summary, directory) -> figures drawn there.
Claims = Callable[[ConfigDict, list[Row], dict[str, Any]], Sequence[Claim]]
Figures = Callable[[ConfigDict, list[Row], dict[str, Any], pathlib.Path], Sequence[pathlib.Path]]

# (config, problem) -> the clients on which an algorithm trains, and its plan.
OwnPlan = Callable[[ConfigDict, Problem], tuple[ClientData, Plan | Work]]


def from_config(function: Callable, config: ConfigDict, **given: Any) -> Any:
    """Call a function with the config's values for its parameters, and lists as tuples.

    Example:
      >>> from fcojax.problems import lasso
      >>> config = ConfigDict({"num_clients": 3, "num_examples": 4, "dim": 5, "num_rounds": 7})
      >>> from_config(lasso, config, num_true=2).train.num_clients
      3
    """
    keys = [name for name in inspect.signature(function).parameters if name in config]
    values = {name: config[name] for name in keys} | given
    return function(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})


def keyed(config: ConfigDict, names: str) -> Iterator[tuple[str, Any, int, int | None]]:
    """Yield each key, its value, and the smallest and largest number of entries that it may have.

    In ``names`` a star stands for any section; ``[2]`` after a key means that it has two entries,
    and ``[3+]`` at least three. A list has at least one entry.

    Example:
      >>> config = ConfigDict({"ends": (0, 1), "own": {"dim": 3}})
      >>> [name for name, *_ in keyed(config, "ends[2] *.dim")]
      ['ends', 'own.dim']
    """
    flat = dict(flattened(config))
    for pattern, number, more in _NAME.findall(names):
        least = int(number or 1)
        for name in fnmatch.filter(flat, pattern):
            yield name, flat[name], least, least if number and not more else None


def split_names(experiment: "Experiment", config: ConfigDict) -> None:
    """Split names in the config that a command line passes as one text: ``a,b``.

    Example:
      >>> study = Study("Networks", lambda config: iter(()), keys={Literal["cnn", "mlp"]: "models"})
      >>> config = ConfigDict({"models": ("cnn,mlp",)})
      >>> split_names(study, config)
      >>> config.models
      ('cnn', 'mlp')
    """
    named = (names for kind, names in experiment.keys.items() if get_origin(kind) is Literal)
    for name, value, *_ in (found for names in named for found in keyed(config, names)):
        if isinstance(value, tuple) and all(isinstance(entry, str) for entry in value):
            entries = [part.strip() for entry in value for part in entry.split(",")]
            config.update_from_flattened_dict({name: tuple(filter(None, entries))})


def check(experiment: "Experiment", config: ConfigDict) -> None:
    """Raise ``ValueError`` unless the values satisfy the experiment's keys and requirements.

    Example:
      >>> from fcojax.types import Count
      >>> study = Study("Sizes", rows=lambda config: iter(()), keys={Count: "sizes"})
      >>> check(study, ConfigDict({"sizes": (3, 0)}))
      Traceback (most recent call last):
      ValueError: an entry of sizes is 0; pass a whole number of at least 1.
    """
    for annotation, names in experiment.keys.items():
        for name, value, least, most in keyed(config, names):
            check_values(name, value, annotation)
            if isinstance(value, tuple | list) and not least <= len(value) <= (most or len(value)):
                what = f"{least} values" if most else f"at least {least} values"
                raise ValueError(f"{name} is {value}; pass {what}.")
    for needed, holds in experiment.requires.items():
        if not holds(config):
            flat, words = dict(flattened(config)), needed.replace(",", "").split()
            found = [f"{word} is {flat[word]}" for word in dict.fromkeys(words) if word in flat]
            raise ValueError(f"{' and '.join(found)}; pass {needed}.")


def check_values(name: str, value: Any, annotation: Any, single: bool = False) -> None:
    """Raise ``ValueError`` unless a key's value, or every entry of a list, is as annotated."""
    is_list = isinstance(value, tuple | list) and not single
    numeric = annotation is not bool and get_origin(annotation) is not Literal
    if numeric and any(entry is True for entry in (value if is_list else (value,))):
        raise ValueError(f"{name} is {value}; pass numbers.")  # Python takes True for 1
    for entry in value if is_list else (value,):
        checked_value(f"an entry of {name}" if is_list else name, entry, annotation)


@contextlib.contextmanager
def naming(key: str, value: Any) -> Iterator[None]:
    """Name the key in an error about a number in its text."""
    try:
        yield
    except ValueError as error:
        if key in str(error):
            raise
        raise ValueError(f"{key} is {value!r}: {error}") from error


def flattened(config: Any, section: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the keys and values; keys of a section have its prefix, as ``own.scale``."""
    for key, value in config.items():
        if isinstance(value, ConfigDict | dict):
            yield from flattened(value, f"{section}{key}.")
        else:
            yield f"{section}{key}", value


def on_kernel(penalty: Penalty) -> Callable[[ConfigDict], Penalty]:
    """Return ``config -> Penalty``, the penalty on the kernel; the bias is free."""
    return lambda config: on_subtree(penalty, named("kernel"))


def observe_model(hparams: Any, model: Params, context: Any) -> dict[str, Params]:
    """Return the model itself as a measure, for ``fcojax.sweep`` and ``fcojax.advance``."""
    return {"model": model}


def _nothing(*_: Any) -> tuple[()]:
    return ()


class Sweep(NamedTuple):
    """Algorithms over grids of hyperparameters, each shown at its best point.

    Attributes:
      title: the heading of figures and page.
      problem: ``config -> Problem``, the clients, the loss and the measures.
      penalty: ``config -> Penalty``, psi.
      panels: the curves over the rounds, left to right.
      mirror: ``(config, penalty) -> Mirror``, for algorithms that take one; it carries the penalty.
      manifold: ``config -> Manifold``, for algorithms that take one.
      plan: ``(config, plan) -> plan``: any plan, from the one that the config's keys describe.
      algorithms: further algorithms that ``config.algorithms`` may name: factories by label, or a
        list of factories, whose labels are their names.
      plans: ``(config, problem) -> (clients, plan)`` by label, for algorithms that train on other
        clients or with another plan, such as a centralised baseline.
      claims: what the sources say about the results, each with the number that decides.
      figures: draws further figures; returns the files.
      captions: the captions of figures, by the stem of their file.
      notes: remarks that apply to every run, for the page.
      strengths: ``config -> strengths`` of the penalty; by default the config's ``penalty_scale``.
      solve_optimum: whether to solve for the optimum of each strength, so that rows have a
        suboptimality; done if problem and penalty are convex, and it is ranked or drawn.
      x64: whether to compute in double precision.
      keys: the allowed values of keys that no factory checks.
      requires: conditions on several values, as in ``{"size of at most dim": holds}``.
      remarks: ``config -> sentences`` on the data, for the terminal and the page.
      printed: measures of the best points that the terminal and the page show beside the criterion.
    """

    title: str
    problem: Callable[[ConfigDict], Problem]
    penalty: Callable[[ConfigDict], Penalty]
    panels: Sequence[Panel]
    mirror: Callable[[ConfigDict, Penalty], Mirror] = lambda config, penalty: euclidean(penalty)
    manifold: Callable[[ConfigDict], Manifold] = lambda config: flat()
    plan: Callable[[ConfigDict, Plan], Plan] = lambda config, plan: plan
    algorithms: Mapping[str, Factory] | Sequence[Factory] = ()
    plans: Mapping[str, OwnPlan] = {}
    claims: Claims = _nothing
    figures: Figures = _nothing
    captions: Mapping[str, str] = {}
    notes: str = ""
    strengths: Callable[[ConfigDict], Any] = lambda config: config.penalty_scale
    solve_optimum: bool = True
    x64: bool = False
    keys: Keys = {}
    requires: Requires = {}
    remarks: Callable[[ConfigDict], str] = lambda config: ""
    printed: Sequence[str] = ()


class Study(NamedTuple):
    """An experiment that computes its own rows: closed forms, bounds, tables.

    Other attributes are those of a ``Sweep``.

    Attributes:
      rows: ``config -> rows``, one at a time. Each has a ``part``, which the progress shows.
      summarise: ``(config, rows) -> summary``; entries that are lists of rows become tables.
      printed: the entries of the summary that the terminal shows at the end.
    """

    title: str
    rows: Callable[[ConfigDict], Iterator[Row]]
    summarise: Callable[[ConfigDict, list[Row]], dict[str, Any]] = lambda config, rows: {}
    claims: Claims = _nothing
    figures: Figures = _nothing
    captions: Mapping[str, str] = {}
    notes: str = ""
    x64: bool = False
    keys: Keys = {}
    requires: Requires = {}
    printed: Sequence[str] = ()


Experiment = Sweep | Study
