"""Check a config and turn it into settings."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
from ml_collections import ConfigDict

import fcojax
from experiments.config.algorithms import find
from experiments.process.errors import suggest
from experiments.report.rows import points_of
from experiments.report.summary import Criterion
from experiments.study import Sweep, check, naming
from fcojax import Aggregator, Codec, Plan, Sampler, privacy, uploads
from fcojax.algorithms import Work
from fcojax.algorithms.base import Factory
from fcojax.extend import MEAN, Uploads
from fcojax.grid import product
from fcojax.types import PyTree

# The columns of every row.
_COLUMNS = ("algorithm", "seed", "round", "status", "participants", "dropped")
# For each law of participation its form in a config, the types of its numbers, and its sampler.
_LAWS: dict[str, tuple[str, tuple[type, ...], Callable[..., Sampler]]] = {
    "uniform": (
        "uniform",
        (),
        lambda n: fcojax.uniform_cohort(cohort_size=n) if n else fcojax.everyone(),
    ),
    "weighted": (
        "weighted:POWER",
        (float,),
        lambda n, power: fcojax.weighted_cohort(cohort_size=n, power=power),
    ),
    "coin_flips": ("coin_flips:PROBABILITY", (float,), lambda n, p: fcojax.coin_flips(p)),
    "cyclic": (
        "cyclic:GROUPS",
        (int,),
        lambda n, groups: fcojax.cyclic(num_groups=groups, cohort_size=n),
    ),
    "markov": (
        "markov:LEAVE,JOIN",
        (float, float),
        lambda n, a, b: fcojax.markov(leave=a, join=b, cohort_size=n),
    ),
}


class Settings(NamedTuple):
    """A checked config, as objects of the library.

    Attributes:
      algorithms: the factories by label.
      grids: the hyperparameters by label, with a leading axis of points.
      num_rounds: the number of rounds.
      eval_every: rounds between two evaluations.
      eval_all_until: the round up to which every round is evaluated.
      seeds: one run per seed and point.
      plan: the sampler, the local work and the chunk sizes.
      criterion: ranks the points.
      penalty_scales: all strengths of the penalty.
      search: ``grid`` runs all points to the end, ``halving`` fewer at each comparison.
      extend: whether a grid is widened while the best point lies at its edge.
      certificate: whether rows have the KKT violation.
      delta: delta of the privacy loss; ``None`` for a default by the number of clients.
      budget: an epsilon for all runs together; ``None`` for no limit.
      broadcast: compression of the server's messages; ``None`` for whole messages.
    """

    algorithms: dict[str, Factory]
    grids: dict[str, PyTree]
    num_rounds: int
    eval_every: int
    eval_all_until: int
    seeds: tuple[int, ...]
    plan: Plan
    criterion: Criterion
    penalty_scales: tuple[float, ...]
    search: str
    extend: bool = False
    certificate: bool = False
    delta: float | None = None
    budget: float | None = None
    broadcast: uploads.Compressor | None = None

    def ends(self, goal: int) -> list[int]:
        """Return the rounds up to ``goal`` after which there is an evaluation."""
        found, at = [], 0
        while at < goal:
            early = at < self.eval_all_until
            at = at + 1 if early else (at // self.eval_every + 1) * self.eval_every
            found.append(min(at, goal))  # a budget may end between two evaluations
        return found


def participation(law: str, cohort_size: int | None = None, lost: float = 0.0) -> Sampler:
    """Return the sampler for a law of participation.

    Args:
      law: the text in the config, such as ``cyclic:4``.
      cohort_size: clients in a round; ``None`` for all that are available. Coin flips have none.
      lost: the probability that an upload is lost.
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
    with naming("participation", law):
        sampler = build(cohort_size, *numbers)
    return fcojax.dropout(sampler, lost) if lost else sampler


def resolve(config: ConfigDict, sweep: Sweep) -> Settings:
    """Check the keys of a sweep; raise ``ValueError`` for the first mistake."""
    algorithms = _algorithms(config, sweep)
    num_rounds, eval_every = _whole(config, "num_rounds"), _whole(config, "eval_every")
    if num_rounds % eval_every:
        raise ValueError(
            f"eval_every is {eval_every}, which does not divide num_rounds = {num_rounds}; "
            "pass a divisor."
        )
    seeds = _numbers("seeds", config.seeds)
    check(sweep, config)  # before the strengths, which may come from the problem
    strengths = _numbers("penalty_scale", sweep.strengths(config))
    if any(seed != int(seed) for seed in seeds):
        raise ValueError(f"seeds is {seeds}; pass distinct whole numbers.")
    lost = _number(config, "dropout_probability", 0.0)
    if not 0 <= lost < 1:
        raise ValueError(f"dropout_probability is {lost}; pass a number from 0 to below 1.")
    plan = Plan(
        _work(config),
        participation(
            str(config.get("participation", "uniform")),
            _whole_or_none(config, "cohort_size"),
            lost,
        ),
        *_uploads(config),
        client_chunk_size=_whole_or_none(config, "client_chunk_size"),
        point_chunk_size=_whole_or_none(config, "point_chunk_size"),
    )
    return Settings(
        algorithms=algorithms,
        grids={
            label: _grid(label, one.Hparams, config, {"penalty_scale": strengths})
            for label, one in algorithms.items()
        },
        num_rounds=num_rounds,
        eval_every=eval_every,
        eval_all_until=_whole(config, "eval_all_until", least=0)
        if "eval_all_until" in config
        else 0,
        seeds=tuple(int(seed) for seed in seeds),
        plan=plan,
        criterion=_criterion(config),
        penalty_scales=strengths,
        search=_choice(config, "search", ("grid", "halving")),
        extend=_choice(config, "extend", (False, True)),
        certificate=_choice(config, "certificate", (False, True)),
        delta=_delta(config),
        budget=None if config.get("privacy_budget") is None else _number(config, "privacy_budget"),
        broadcast=_broadcast(config),
    )


def _delta(config: ConfigDict) -> float | None:
    if config.get("privacy_delta") is None:
        return None
    delta = _number(config, "privacy_delta")
    if not 0 < delta < 1:
        raise ValueError(f"privacy_delta is {delta}; pass a number strictly between 0 and 1.")
    return delta


def _criterion(config: ConfigDict) -> Criterion:
    within = _number(config, "criterion_within", 0.0)
    if within < 0:
        raise ValueError(f"criterion_within is {within}; pass a number of at least 0.")
    reach, last_rounds = config.get("criterion_reach"), _whole(config, "criterion_rounds")
    num_rounds = _whole(config, "num_rounds")
    if last_rounds > num_rounds:  # the start would count as a round
        raise ValueError(
            f"criterion_rounds is {last_rounds}, more than num_rounds = {num_rounds}; pass at most "
            "that."
        )
    return Criterion(
        str(config.criterion),
        _choice(config, "criterion_goal", ("max", "min")),
        last_rounds,
        within,
        None if reach is None else _number(config, "criterion_reach"),
    )


def set_precision(config: ConfigDict) -> None:
    """Set the precision of products, for the whole process, if the config has one."""
    precision = config.get("precision")
    if precision is None:
        return
    try:
        jax.config.update("jax_default_matmul_precision", precision)
    except ValueError:
        raise ValueError(
            f"precision is {precision!r}; pass highest, high, default, or another value that "
            "jax_default_matmul_precision accepts."
        ) from None


def hyperparameters(config: ConfigDict, sweep: Sweep) -> set[str]:
    """Return the hyperparameters of all algorithms that a config names."""
    factories = _algorithms(config, sweep).values()
    return {field for factory in factories for field in factory.Hparams._fields}


def _algorithms(config: ConfigDict, sweep: Sweep) -> dict[str, Factory]:
    value: Any = config.algorithms
    entries = [value] if isinstance(value, str) else list(value)
    names = [name.strip() for entry in entries for name in str(entry).split(",") if name.strip()]
    if not names:
        raise ValueError("algorithms is empty; name at least one.")
    return find(names, sweep)


def _grid(label: str, hparams: Any, config: ConfigDict, chosen: Mapping[str, Any]) -> PyTree:
    own = (config.to_dict().get("own_grids") or {}).get(label, {})
    own, values = {**chosen, **own}, {}
    for field in hparams._fields:
        if field in _COLUMNS:
            raise ValueError(
                f"{label} has a hyperparameter {field}, but rows have a column of that name; "
                "rename it."
            )
        if field in own or field in config:
            values[field] = _numbers(field, own.get(field, config.get(field)))
        elif field not in hparams._field_defaults:
            raise ValueError(
                f"{label} needs {field}, which has no default and is not in the config; pass "
                f"--config.{field}=VALUE."
            )
    grid = product(hparams, **values)
    points = points_of(grid)
    twice = next((point for place, point in enumerate(points) if point in points[:place]), None)
    if twice is not None:
        raise ValueError(f"{label} has the point {twice} twice, to seven digits; pass it once.")
    return grid


def refuse_numbers_beyond_range(config: ConfigDict) -> None:
    """Refuse negative counts, and integers of more than 32 bits."""
    most = 2**31 - 1
    for key, value in config.items():
        for entry in value if isinstance(value, tuple | list) else (value,):
            if isinstance(entry, bool) or not isinstance(entry, int):
                continue
            if not -most - 1 <= entry <= most:
                raise ValueError(f"{key} is {entry}; whole numbers may be at most {most}.")
            if entry < 0 and (key.startswith("num_") or key == "data_seed"):
                raise ValueError(f"{key} is {entry}; pass a number that is not negative.")


def _work(config: ConfigDict) -> Work:
    steps, epochs, batch_size = (
        _whole_or_none(config, key) for key in ("num_steps", "num_epochs", "batch_size")
    )
    # Most configs set num_steps, so num_epochs overrides it.
    if epochs is not None:
        return fcojax.local_epochs(epochs, batch_size)
    if steps is None:
        raise ValueError("neither num_steps nor num_epochs is set; set one of them.")
    return fcojax.local_steps(steps, batch_size)


def _broadcast(config: ConfigDict) -> uploads.Compressor | None:
    text = config.get("broadcast")
    with naming("broadcast", text):
        return None if text is None else uploads.compressor_from_text(str(text), "broadcast")


def _uploads(config: ConfigDict) -> tuple[Codec | None, Aggregator]:
    """Return the codec, and the aggregator that bounds or clips uploads or adds noise."""
    text = config.get("codec")
    with naming("codec", text):
        codec, aggregator = Uploads() if text is None else uploads.from_text(str(text), "codec")
    own = [name for name in ("clip_norm", "upload_norm") if config.get(name) is not None]
    if own and aggregator is not MEAN:
        own.insert(0, f"codec {text!r}")
    if len(own) > 1:
        raise ValueError(f"{own[0]} and {own[1]} both set the aggregator; pass one of them.")
    bound = _bound(config)
    return codec, _clipped(config) or bound or aggregator


def _clipped(config: ConfigDict) -> Aggregator | None:
    names = ("noise_multiplier", "privacy_budget", "privacy_delta")
    noise, epsilon, delta = (config.get(name) for name in names)
    if config.get("clip_norm") is None:
        if noise or epsilon is not None:
            raise ValueError(
                f"{'noise_multiplier' if noise else 'privacy_budget'} needs clip_norm."
            )
        return None
    if epsilon is not None and (delta is None or not noise):
        missing = "privacy_delta" if noise else "noise_multiplier"
        raise ValueError(f"privacy_budget needs {missing}.")
    clip = _positive(config, "clip_norm")
    with naming("privacy_budget", epsilon):
        budget = None if epsilon is None else privacy.budget(epsilon, delta)
    with naming("noise_multiplier", noise):
        return privacy.gaussian(clip, noise or 0.0, budget=budget)


def _bound(config: ConfigDict) -> Aggregator | None:
    quantile = config.get("upload_quantile")
    if config.get("upload_norm") is None:
        if quantile is not None:
            raise ValueError("upload_quantile needs upload_norm, the bound of the first round.")
        return None
    norm = _positive(config, "upload_norm")
    if quantile is None:
        return fcojax.norm_bound(norm)
    with naming("upload_quantile", quantile):
        return fcojax.norm_quantile(_number(config, "upload_quantile"), norm)


def _choice(config: ConfigDict, key: str, choices: tuple) -> Any:
    value = config.get(key, choices[0])
    if value not in choices or type(value) is not type(choices[0]):
        raise ValueError(f"{key} is {value!r}; pass {' or '.join(map(str, choices))}.")
    return value


def _number(config: ConfigDict, key: str, default: float | None = None) -> float:
    (number,) = _numbers(key, config.get(key, default))
    return number


def _positive(config: ConfigDict, key: str) -> float:
    number = _number(config, key)
    if not number > 0:
        raise ValueError(f"{key} is {number}; pass a finite number above 0.")
    return number


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


def _whole_or_none(config: ConfigDict, key: str) -> int | None:
    return None if config.get(key) is None else _whole(config, key)


def _whole(config: ConfigDict, key: str, least: int = 1) -> int:
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{key} is {value!r}; pass a whole number of at least {least}.")
    return value
