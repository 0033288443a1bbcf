"""Checks a config and turns it into settings."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from ml_collections import ConfigDict

import fcojax
from experiments.factories import find
from experiments.recorder import points_of
from experiments.report.summary import Criterion
from experiments.search import SEARCHES
from experiments.study import Sweep, Variant
from experiments.suggestions import suggest
from fcojax.algorithms import Work
from fcojax.engine.cohort import Sampler
from fcojax.engine.grid import product
from fcojax.engine.outliers import Guard
from fcojax.types import PyTree

# Columns that every row has, whatever is run.
_COLUMNS = ("algorithm", "seed", "round", "status", "participants", "dropped")
# How each law of participation is written, the types of its numbers, and its sampler.
_LAWS: dict[str, tuple[str, tuple[type, ...], Callable[..., Sampler]]] = {
    "uniform": ("uniform", (), lambda n: fcojax.uniform_cohort(n) if n else fcojax.everyone()),
    "weighted": ("weighted:POWER", (float,), fcojax.weighted_cohort),
    "coin_flips": ("coin_flips:PROBABILITY", (float,), lambda n, p: fcojax.coin_flips(p)),
    "cyclic": ("cyclic:GROUPS", (int,), lambda n, groups: fcojax.cyclic(groups, n)),
    "markov": ("markov:LEAVE,JOIN", (float, float), lambda n, a, b: fcojax.markov(a, b, n)),
}


class Settings(NamedTuple):
    """A checked config, in the library's own terms.

    Attributes:
      algorithms: by label, what to run.
      grids: by label, its hyperparameters, with a leading axis of points.
      num_rounds: R.
      eval_every: rounds between two evaluations.
      seeds: one run per seed and point.
      work: what a client does in a round.
      cohort: who takes part.
      client_chunk_size: clients side by side, or ``None`` to pick it.
      time_chunks: whether to pick it by timing instead of by a rule.
      criterion: how points are ranked.
      penalty_scales: all strengths of the penalty.
      search: ``grid`` runs all points to the end, ``halving`` fewer and fewer.
      point_chunk_size: points that run side by side, or ``None`` for as many as memory holds.
      extend: whether a grid is widened while the best point lies at its edge.
    """

    algorithms: dict[str, Variant]
    grids: dict[str, PyTree]
    num_rounds: int
    eval_every: int
    seeds: tuple[int, ...]
    work: Work
    cohort: Sampler
    client_chunk_size: int | None
    time_chunks: bool
    criterion: Criterion
    penalty_scales: tuple[float, ...]
    search: str
    point_chunk_size: int | None
    extend: bool = False
    guard: Guard | None = None


def participation(law: str, cohort_size: int | None = None, lost: float = 0.0) -> Sampler:
    """The sampler for a law of participation and the probability that an upload is lost.

    Without ``cohort_size`` every client that is available takes part; coin flips have no size.
    """
    name, _, rest = law.partition(":")
    if name not in _LAWS:
        raise ValueError(f"there is no participation {name!r}; {suggest(name, list(_LAWS))}")
    form, kinds, build = _LAWS[name]
    texts = rest.split(",") if rest else []
    try:
        numbers = [kind(text) for kind, text in zip(kinds, texts, strict=True)]
    except ValueError:
        raise ValueError(f"participation is {law!r}; pass {form}.") from None
    sampler = build(cohort_size, *numbers)
    return fcojax.dropout(sampler, lost) if lost else sampler


def resolve(config: ConfigDict, sweep: Sweep) -> Settings:
    """Checks the keys that all sweeps share; raises ``ValueError`` with one sentence."""
    algorithms = _algorithms(config, sweep)
    num_rounds, eval_every = _whole(config, "num_rounds"), _whole(config, "eval_every")
    if num_rounds % eval_every:
        raise ValueError(
            f"eval_every is {eval_every}, which does not divide num_rounds = {num_rounds}; "
            "pass a divisor."
        )
    if config.criterion_goal not in ("max", "min"):
        raise ValueError(f"criterion_goal is {config.criterion_goal!r}; pass max or min.")
    seeds = _numbers("seeds", config.seeds)
    if any(seed != int(seed) for seed in seeds):
        raise ValueError(f"seeds is {seeds}; pass distinct whole numbers.")
    return Settings(
        algorithms=algorithms,
        grids={
            label: _grid(label, variant.factory.Hparams, config)
            for label, variant in algorithms.items()
        },
        num_rounds=num_rounds,
        eval_every=eval_every,
        seeds=tuple(int(seed) for seed in seeds),
        work=_work(config),
        cohort=_cohort(config),
        client_chunk_size=_whole_or_none(config, "client_chunk_size"),
        time_chunks=bool(config.time_chunks),
        criterion=_criterion(config),
        penalty_scales=_numbers("penalty_scale", config.penalty_scale),
        search=_choice(config, "search", SEARCHES),
        point_chunk_size=_whole_or_none(config, "point_chunk_size"),
        extend=_yes_or_no(config, "extend"),
        guard=_guard(config),
    )


def _criterion(config: ConfigDict) -> Criterion:
    (within,) = _numbers("criterion_within", config.get("criterion_within", 0.0))
    if within < 0:
        raise ValueError(f"criterion_within is {within}; pass a number of at least 0.")
    reach = config.get("criterion_reach")
    if reach is not None:
        (reach,) = _numbers("criterion_reach", reach)
    rounds = _whole(config, "criterion_rounds")
    return Criterion(str(config.criterion), str(config.criterion_goal), rounds, within, reach)


def set_precision(config: ConfigDict) -> None:
    """Sets the precision of products, for the whole process, if the config has one."""
    precision = config.get("precision")
    if precision is None:
        return
    try:
        jax.config.update("jax_default_matmul_precision", precision)
    except ValueError:
        raise ValueError(
            f"precision is {precision!r}; pass highest, high, default, or another value that "
            "jax_default_matmul_precision has."
        ) from None


def hyperparameters(config: ConfigDict, sweep: Sweep) -> set[str]:
    """The hyperparameters of all algorithms that a config names."""
    variants = _algorithms(config, sweep).values()
    return {field for variant in variants for field in variant.factory.Hparams._fields}


def _algorithms(config: ConfigDict, sweep: Sweep) -> dict[str, Variant]:
    names = _split(config.algorithms)
    if not names:
        raise ValueError("algorithms is empty; name at least one.")
    return find(names, sweep)


def _grid(label: str, hparams: Any, config: ConfigDict) -> PyTree:
    own = (config.to_dict().get("own_grids") or {}).get(label, {})
    taken = [field for field in hparams._fields if field in _COLUMNS]
    if taken:
        raise ValueError(
            f"{label} has a hyperparameter {taken[0]}, but rows have a column of that name; "
            "rename it."
        )
    values = {
        field: _numbers(field, own.get(field, config.get(field)))
        for field in hparams._fields
        if field in own or field in config
    }
    missing = [
        field
        for field in hparams._fields
        if field not in values and field not in hparams._field_defaults
    ]
    if missing:
        raise ValueError(
            f"{label} needs {missing[0]}, which has no default and is not in the config; pass "
            f"--config.{missing[0]}=VALUE."
        )
    grid = product(hparams, **values)
    names = [tuple(point.values()) for point in points_of(grid)]
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        point = dict(zip(grid._fields, twice, strict=True))
        raise ValueError(f"{label} has the point {point} twice, to seven digits; pass it once.")
    return grid


def refuse_numbers_beyond_range(config: ConfigDict) -> None:
    """Refuses counts below zero, and whole numbers that no device has."""
    most = 2**31 - 1
    for key, value in config.items():
        for entry in value if isinstance(value, tuple | list) else (value,):
            if isinstance(entry, bool) or not isinstance(entry, int):
                continue
            if not -most - 1 <= entry <= most:
                raise ValueError(f"{key} is {entry}; whole numbers may be at most {most}.")
            if entry < 0 and key.startswith("num_"):
                raise ValueError(f"{key} is {entry}; pass a number that is not negative.")


def _work(config: ConfigDict) -> Work:
    steps = _whole_or_none(config, "num_steps")
    epochs = _whole_or_none(config, "num_epochs")
    batch_size = _whole_or_none(config, "batch_size")
    # Most configs set num_steps, so num_epochs overrides it.
    if epochs is not None:
        return fcojax.local_epochs(epochs, batch_size)
    if steps is None:
        raise ValueError("neither num_steps nor num_epochs is set; set one of them.")
    return fcojax.local_steps(steps, batch_size)


def _cohort(config: ConfigDict) -> Sampler:
    law, size = str(config.get("participation", "uniform")), _whole_or_none(config, "cohort_size")
    (lost,) = _numbers("dropout_probability", config.get("dropout_probability", 0.0))
    return participation(law, size, lost)


def _guard(config: ConfigDict) -> Guard | None:
    """Which uploads are too large; nobody's without ``upload_norm``."""
    norm, quantile = config.get("upload_norm"), config.get("upload_quantile")
    if norm is None:
        if quantile is not None:
            raise ValueError(
                "upload_quantile needs upload_norm beside it, the bound of the first round."
            )
        return None
    (norm,) = _numbers("upload_norm", norm)
    if quantile is None:
        return fcojax.norm_bound(norm)
    (share,) = _numbers("upload_quantile", quantile)
    return fcojax.norm_quantile(share, norm)


def _choice(config: ConfigDict, key: str, choices: tuple[str, ...]) -> str:
    value = config.get(key, choices[0])
    if value not in choices:
        raise ValueError(f"{key} is {value!r}; pass {' or '.join(choices)}.")
    return value


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
    if len(set(values)) < len(values):
        raise ValueError(f"{key} is {values}; pass distinct numbers.")
    return values


def _yes_or_no(config: ConfigDict, key: str) -> bool:
    value = config.get(key, False)
    if not isinstance(value, bool):
        raise ValueError(f"{key} is {value!r}; pass True or False.")
    return value


def _whole_or_none(config: ConfigDict, key: str) -> int | None:
    return None if config.get(key) is None else _whole(config, key)


def _whole(config: ConfigDict, key: str) -> int:
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{key} is {value!r}; pass a whole number of at least 1.")
    return value
