"""A config file and its overrides to settings that have been checked."""

import difflib
import importlib.util
import inspect
import math
import pathlib
from types import ModuleType
from typing import Any, NamedTuple

from ml_collections import ConfigDict

import fcojax
from fcojax.algorithms import Algorithm, Work
from fcojax.engine.cohort import Sampler
from fcojax.engine.grid import product
from fcojax.problems import Problem
from fcojax.report.summary import Criterion
from fcojax.transforms import Penalty, euclidean, flat
from fcojax.types import PyTree

_NEEDED = ("get_config", "quick", "problem", "penalty", "PANELS", "TITLE")


class Settings(NamedTuple):
    """What a config asks for, in the library's own terms.

    Attributes:
      grids: per algorithm its hyperparameters with a leading axis of points.
      num_rounds: R.
      eval_every: rounds between two looks.
      seeds: one run per seed and point.
      work: what a client does in a round.
      cohort: who takes part.
      client_chunk_size: clients side by side, or ``None``.
      criterion: how points are ranked.
      penalty_scales: all strengths that occur, for each of which the optimum is solved.
    """

    grids: dict[str, PyTree]
    num_rounds: int
    eval_every: int
    seeds: tuple[int, ...]
    work: Work
    cohort: Sampler
    client_chunk_size: int | None
    criterion: Criterion
    penalty_scales: tuple[float, ...]


def load_module(path: str) -> ModuleType:
    """The config file as a module, checked for what an experiment needs."""
    if not pathlib.Path(path).is_file():
        raise ValueError(f"there is no config file {path}; the ones we ship are in configs/.")
    spec = importlib.util.spec_from_file_location("experiment_config", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    missing = [name for name in _NEEDED if not hasattr(module, name)]
    if missing:
        raise ValueError(f"{path} does not define {missing[0]}; a config needs {list(_NEEDED)}.")
    return module


def suggest(name: str, known: list[str]) -> str:
    """``; did you mean X`` where a known name is close, else the list of known names."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(known))}."


def algorithm_names() -> list[str]:
    """Names of the factories in ``fcojax.algorithms``."""
    return [name for name, value in vars(fcojax.algorithms).items() if hasattr(value, "Hparams")]


def build_algorithm(name: str, problem: Problem, penalty: Penalty) -> Algorithm:
    """The named algorithm on the problem; what geometry it takes is read off its signature.

    The problems of configs have no other constraint than their penalty: a manifold is flat.
    """
    factory = getattr(fcojax.algorithms, name)
    geometry = {"mirror": lambda: euclidean(penalty), "penalty": lambda: penalty, "manifold": flat}
    takes = [name for name in inspect.signature(factory).parameters if name in geometry]
    return factory(problem.loss, *(geometry[name]() for name in takes))


def resolve(config: ConfigDict) -> Settings:
    """Checks every shared key of a config; raises ``ValueError`` in a sentence."""
    names = _split(config.algorithms)
    if not names:
        raise ValueError("algorithms is empty; name at least one.")
    for name in names:
        if name not in algorithm_names():
            raise ValueError(f"there is no algorithm {name}; {suggest(name, algorithm_names())}")
    num_rounds, eval_every = _whole(config, "num_rounds"), _whole(config, "eval_every")
    if num_rounds % eval_every:
        raise ValueError(
            f"eval_every is {eval_every}, which does not divide num_rounds = {num_rounds}; "
            "pass a divisor."
        )
    if config.criterion_goal not in ("max", "min"):
        raise ValueError(f"criterion_goal is {config.criterion_goal!r}; pass max or min.")
    seeds = _numbers("seeds", config.seeds)
    if any(seed != int(seed) for seed in seeds) or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds is {seeds}; pass distinct whole numbers.")
    return Settings(
        grids={name: _grid(name, config) for name in names},
        num_rounds=num_rounds,
        eval_every=eval_every,
        seeds=tuple(int(seed) for seed in seeds),
        work=_work(config),
        cohort=_cohort(config),
        client_chunk_size=_whole_or_none(config, "client_chunk_size"),
        criterion=Criterion(
            str(config.criterion), config.criterion_goal, _whole(config, "criterion_rounds")
        ),
        penalty_scales=_numbers("penalty_scale", config.penalty_scale),
    )


def _grid(name: str, config: ConfigDict) -> PyTree:
    hparams = getattr(fcojax.algorithms, name).Hparams
    own = (config.to_dict().get("own_grids") or {}).get(name, {})
    values = {
        field: _numbers(field, own.get(field, config.get(field)))
        for field in hparams._fields
        if field in own or field in config
    }
    return product(hparams, **values)


def _work(config: ConfigDict) -> Work:
    steps = _whole_or_none(config, "num_steps")
    epochs = _whole_or_none(config, "num_epochs")
    batch_size = _whole_or_none(config, "batch_size")
    # num_steps has a default in most configs, so naming epochs is what decides.
    if epochs is not None:
        return fcojax.local_epochs(epochs, batch_size)
    if steps is None:
        raise ValueError("neither num_steps nor num_epochs is set; set one of them.")
    return fcojax.local_steps(steps, batch_size)


def _cohort(config: ConfigDict) -> Sampler:
    size = _whole_or_none(config, "cohort_size")
    return fcojax.everyone() if size is None else fcojax.uniform_cohort(size)


def _split(value: Any) -> list[str]:
    entries = [value] if isinstance(value, str) else list(value)
    return [name.strip() for entry in entries for name in str(entry).split(",") if name.strip()]


def _numbers(key: str, value: Any) -> tuple[float, ...]:
    values = tuple(value) if isinstance(value, tuple | list) else (value,)
    if not values:
        raise ValueError(f"{key} is empty; pass at least one number.")
    for entry in values:
        if isinstance(entry, bool) or not isinstance(entry, int | float):
            raise ValueError(f"{key} contains {entry!r}; pass numbers, as in --config.{key}=0.1,1.")
        if not math.isfinite(entry):
            raise ValueError(f"{key} contains {entry}; pass finite numbers.")
    return values


def _whole_or_none(config: ConfigDict, key: str) -> int | None:
    return None if config.get(key) is None else _whole(config, key)


def _whole(config: ConfigDict, key: str) -> int:
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{key} is {value!r}; pass a whole number of at least 1.")
    return value
