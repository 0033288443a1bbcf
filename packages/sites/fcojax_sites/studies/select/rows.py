"""Rows and tables of one selection: the path, the losses, the coefficients and the ledger."""

import bisect
import collections
import contextlib
import functools
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

import fcojax
import fcojax_sites
from fcojax import privacy, uploads
from fcojax.experiments import Config, Row, Summary, codec, column, naming, select
from fcojax.problems import Problem
from fcojax.types import Params
from fcojax_sites import flower
from fcojax_sites.flower.sums import LeftOut
from fcojax_sites.selection import Intervals, Selection, intervals
from fcojax_sites.selection.ledger import Entry
from fcojax_sites.studies.select import sites as over_sites
from fcojax_sites.studies.select.files import Description, names_in
from fcojax_sites.studies.select.problem import Scaling, penalty, split, task

_MOST_NAMES = 100  # features that the chosen model leaves out
_MOST_FEATURES = 500  # limit for intervals: a site sends two matrices with a row for each feature
_LIKELIHOODS = ("linear", "logistic", "poisson")
_WORKS = {
    "rates": "the step, from the curvature of the loss",
    "start": "the model without features",
    "path": "the models of all strengths, on all data",
    "tune rates": "the step, for every fold",
    "tune start": "the model without features, for every fold",
    "tune paths": "the models of all strengths, for every fold",
    "validation": "their loss on left-out data",
    "refit": "the chosen features without the penalty",
    "moments": "intervals, from two gradients and four matrices a site",
    "statistics": "counts, sums and squares",
    "survival": "at risk and events at 24 times",
    "left out": "models without each site, at the choice",
    "search": "the models of all strengths that were tried",
    "without the penalty": "the chosen features, and all",
    "spread": "squared gradients, for the standard errors",
    "judged": "order of pairs, slopes, cells of chance",
}
_RATIOS = {
    "linear": "difference",
    "logistic": "odds ratio",
    "poisson": "rate ratio",
    "cox": "hazard ratio",
}
_SCALED = "scaled, penalised"  # the heading of the model that the penalty shrinks
# Exchanges of a part of the work, as in the studies of docs/hospital.md.
_USUAL = {
    "statistics": 2,
    "survival": 1,
    "start": 1,
    "path": 9,
    "left out": 5,
    "without the penalty": 8,
    "spread": 1,
    "judged": 1,
}
_print = functools.partial(print, flush=True)
_EVENTS = {"logistic": "a case", "poisson": "a count above 0", "cox": "an event"}
_CITATION = f"fcojax {fcojax.__version__}: federated composite optimisation in JAX, 2026"
_OF_SITE = {"events": "events", "left_out": "no outcome", "missing": "missing"}
_MOST_EFFECTS = 12  # on the page; rows.jsonl has all
_GRID = 24  # times of the survival curves
_EPSILON, _ROUNDS = 3.0, 20  # of the private run that the page plans


def study(config: Config) -> Iterator[Row]:
    """Yield all rows, from a simulation of rounds, or from sums of sites here or elsewhere."""
    if config.superlink:
        yield from over_sites.over_flower(config)
    elif config.method == "sums":
        yield from by_sums(config, *over_sites.in_process(config))
    elif config.sites:
        raise ValueError(
            f"sites is {config.sites!r}, which names sites of SuperNodes; pass --config.superlink "
            "too, or no sites."
        )
    else:
        yield from _by_rounds(config)


def by_sums(
    config: Config,
    federation: flower.Federation,
    transport: flower.Transport,
    names: list[str],
    tell: Callable[[str], Any] = _print,
) -> Iterator[Row]:
    """Yield the rows of a selection over sites that answer by sums.

    Args:
      config: the config.
      federation: the federation.
      transport: how messages travel to the sites.
      names: the names of the features.
      tell: called with a line after every exchange.
    """
    progress = Exchanges(config, tell)
    sites = flower.Sums(federation, transport, progress=progress)
    ids = [site.name for site in sites.sites]
    if (wanted := sorted(names_in(config.sites))) and wanted != ids:
        raise ValueError(f"the sites {', '.join(ids)} answer, not {', '.join(wanted)}.")
    found: list[Row] = []
    while not found:
        with contextlib.suppress(LeftOut):  # begin anew: a faulty site has a part in every sum
            progress.begin()
            found = list(_by_sums(config, sites, names))
    for name, why in sites.left_out.items():
        yield {"part": "without", "site": name, "why": why}
    yield from found


class Exchanges:
    """Tells after every exchange its number, and about how long the others take."""

    def __init__(
        self,
        config: Config,
        tell: Callable[[str], Any],
        clock: Callable[[], float] = time.monotonic,
    ):
        self._usual = dict(_USUAL)
        del self._usual["spread" if config.loss == "cox" else "survival"]
        self._known = not config.nonzeros  # a search takes any number
        self._tell, self._clock = tell, clock
        self._number, self._began = 0, clock()
        self.begin()

    def begin(self) -> None:
        """Begin the study, perhaps anew."""
        self._of_part: collections.Counter[str] = collections.Counter()

    def __call__(self, part: str) -> None:
        """Tell of an exchange for a part of the work."""
        self._number += 1
        self._of_part[part] += 1
        line = f"exchange {self._number}"
        if self._known:
            parts = list(self._usual)
            left = max(0, self._usual[part] - self._of_part[part])
            left += sum(self._usual[later] for later in parts[parts.index(part) + 1 :])
            minutes = left * (self._clock() - self._began) / self._number / 60
            line += f" of about {self._number + left}"
            part += f"; about {max(1, round(minutes))} min left" if left else "; it is the last"
        self._tell(f"{line}: {part}")


def _by_sums(config: Config, sites: flower.Sums, names: list[str]) -> Iterator[Row]:
    ids = [site.name for site in sites.sites]
    of = flower.statistics(sites)
    if empty := [name for name, n in zip(names, of.missing.T, strict=True) if (n == of.rows).all()]:
        raise ValueError(f"{empty[0]} has no value at any site; leave it out of the features.")
    of_columns = of.missing[:, Description.of(config).counted(names)]  # [sites, columns]
    yield {
        "part": "data",
        "file": config.data_dir or ("elsewhere" if config.superlink else "drawn"),
        "loss": config.loss,
        "features": len(names),
        "unlabelled": int(round(of.left_out.sum())),
        "filled": int(of_columns.sum()),
        "filled_columns": int(np.count_nonzero(of_columns.sum(axis=0))),
        "columns": of_columns.shape[1],
        "outcome": of.outcome,
    }
    for place, site in enumerate(sites.sites):
        yield {
            "part": "site",
            "site": site.name,
            "examples": site.num_examples,
            "events": float(of.events[place]),
            "left_out": int(round(of.left_out[place])),
            "missing": int(of_columns[place].sum()),
            "sha256": site.data,
        }
    for place, name in enumerate(names):
        yield {
            "part": "column",
            "name": name,
            "mean": of.mean[place],
            "deviation": of.deviation[place],
            "missing": dict(zip(ids, of.missing[:, place].astype(int).tolist(), strict=True)),
        }
    if config.loss == "cox":
        mean, deviation = of.outcome["time"]
        grid = np.linspace(0, mean + 2 * deviation, _GRID + 1)[1:]
        curves = flower.survival(sites, grid)
        for place, name in enumerate(ids):
            yield {"part": "survival", "site": name, "time": grid} | {
                key: value[place] for key, value in curves.items()
            }
    found = flower.regress(
        sites,
        of,
        by=split(config),
        one_standard_error=config.one_standard_error,
        strengths=config.num_strengths,
        least=config.least,
        tolerance=config.tolerance,
        key=jax.random.key(config.seed),
    )
    chosen = found.selection
    shown = np.flatnonzero(np.any(np.asarray(chosen.path.models["kernel"]) != 0, axis=0))
    yield from _path(chosen, shown)
    yield from _scores(chosen, ids if config.by == "site" and not config.nonzeros else None)
    yield {"part": "intervals", "verdict": _verdict(found)}
    yield from _coefficients(chosen, found, names, shown)
    ends = found.estimate, found.low, found.high
    which, sizes = np.flatnonzero(found.estimated), of.scaling["size"]
    yield from _estimates(config, "no penalty", ends, which, chosen.model, names, sizes)
    for index, why in _reasons(config, found, of.groups, names).items():
        yield {"part": "no estimate", "name": names[index], "why": why}
    scaling = Scaling(of.mean, of.scaling["size"], "deviation")
    yield from _scaling(scaling, names, shown)
    judged = flower.judged(sites, of, found.left_out)
    for place, name in enumerate(ids):
        yield {"part": "judged", "site": name} | {key: of[place] for key, of in judged.items()}
    ledger = sites.ledger()
    yield from _ledger(ledger.entries, ledger.ids)
    yield from _privacy(len(ids), len(names))


def _verdict(found: flower.Regression) -> str:
    """Return what the estimates without the penalty are."""
    left_out = len(found.collinear) + len(found.separated)
    if left_out == np.sum(~found.estimated):
        return "all features without the penalty, at 0.95"
    return (
        "the chosen features alone, as if they had been known before, at 0.95: with all of "
        "them the model without the penalty has no finite solution"
    )


def _reasons(
    config: Config, found: flower.Regression, groups: np.ndarray, names: list[str]
) -> dict[int, str]:
    """Return why columns have no estimate, by their places.

    Args:
      config: the config.
      found: the regression.
      groups: [columns, 2, 2], rows with 0 and with 1, and their events; NaN for other columns.
      names: the names of the features.
    """
    reasons = {}
    for index, others in found.collinear:
        determined = f"determined by {', '.join(names[one] for one in others)}"
        reasons[index] = determined if others else "it is constant"
    of_columns = {
        name: [names.index(f"{name}: {level}") for level in levels[1:]]
        for name, levels in Description.of(config).levels().items()
    }
    for index in found.separated:
        (others, of_others), (own, of_own) = groups[index]
        every, word = of_others + of_own, _EVENTS[config.loss]
        levels = of_columns.get(names[index].rpartition(": ")[0], [])
        if of_own == 0:
            reasons[index] = f"none of its {own:.0f} rows has {word}"
        elif of_others == 0:
            reasons[index] = f"none of the other {others:.0f} rows has {word}"
        elif levels and np.sum(groups[levels, 1, 1]) == every:
            rows = others + own - np.sum(groups[levels, 1, 0])
            reasons[index] = f"none of the {rows:.0f} rows of the reference has {word}"
        elif config.loss == "logistic" and of_own == own:
            reasons[index] = f"all of its {own:.0f} rows have {word}"
        elif config.loss == "logistic" and of_others == others:
            reasons[index] = f"all of the other {others:.0f} rows have {word}"
        else:
            reasons[index] = f"it and other columns separate the rows that have {word}"
    return reasons


def _estimates(
    config: Config,
    of: str,
    models: Sequence[Params],
    which: np.ndarray,
    chosen: Params,
    names: list[str],
    sizes: np.ndarray,
) -> Iterator[Row]:
    """Yield the effects of columns in their own units, with intervals.

    Args:
      config: the config.
      of: what the models are, in words.
      models: the estimate and, if there are intervals, their lower and upper ends.
      which: the places of the columns.
      chosen: the model of the choice.
      names: the names of the features.
      sizes: the sizes by which the features were divided.
    """
    units = Description.of(config).per(names)
    for index in which:
        scale = units[index] / sizes[index]
        values = [scale * float(model["kernel"][index]) for model in models]
        if config.loss != "linear":
            values = np.exp(np.clip(values, -700, 700)).tolist()
        yield {
            "part": "estimate",
            "name": names[index],
            "what": _RATIOS[config.loss],
            "of": of,
            "per": units[index],
            **dict(zip(("value", "low", "high"), values, strict=False)),
            "chosen": bool(chosen["kernel"][index] != 0),
        }


def clients_needed(target: float, num_rounds: int, dim: int, share: float = 0.1) -> int:
    r"""Return how many clients a private run takes until its noise is small beside its signal.

    All n clients take part in every round. The noise on the mean update has a norm of about
    :math:`z C \sqrt d / n`, with the multiplier z for this epsilon and delta
    :math:`n^{-1.1} / 10`; n is the smallest number at which it is at most a share of C.
    """

    def is_enough(number: int) -> bool:
        everyone = fcojax.everyone()
        noise = privacy.noise_for(target, number**-1.1 / 10, everyone, number, num_rounds)
        return noise * dim**0.5 / number <= share

    beyond = 3
    while not is_enough(beyond):
        beyond *= 2
    return bisect.bisect_left(range(beyond), True, 2, key=is_enough)


def _privacy(sites: int, features: int) -> Iterator[Row]:
    """Yield how many sites a private run would take, before anybody tries one."""
    try:
        needed = clients_needed(_EPSILON, _ROUNDS, features)
    except ImportError:  # the accounting is an extra
        needed = None
    yield {
        "part": "privacy",
        "sites": sites,
        "epsilon": _EPSILON,
        "rounds": _ROUNDS,
        "needed": needed,
    }


def _by_rounds(config: Config) -> Iterator[Row]:
    """Yield the rows of a simulation; it is one program and takes nearly all of the time."""
    problem, names, scaling, filled, unlabelled = task(config)
    filled = filled[Description.of(config).counted(names)]
    yield {
        "part": "data",
        "file": config.data_dir or "drawn",
        "loss": config.loss,
        "features": len(names),
        "unlabelled": unlabelled,
        "filled": int(filled.sum()),
        "filled_columns": int(np.count_nonzero(filled)),
        "columns": filled.size,
    }
    sites = np.asarray(problem.train.ids).tolist()
    for name, size in zip(sites, np.asarray(problem.train.sizes).tolist(), strict=True):
        yield {"part": "site", "site": name, "examples": size}
    with naming("codec", config.codec):
        sent = (codec(config.codec),) if config.codec else ()
    plan = fcojax.Plan(fcojax.local_steps(1), uploads=uploads.chain(*sent))
    found = fcojax_sites.select(
        problem,
        penalty(config, names),
        plan=plan,
        by=split(config),
        one_standard_error=config.one_standard_error,
        strengths=config.num_strengths,
        least=config.least,
        num_draws=config.num_draws,
        key=jax.random.key(config.seed),
        tolerance=config.tolerance,
        max_rounds=config.max_rounds,
    )
    shown = np.flatnonzero(np.any(np.asarray(found.path.models["kernel"]) != 0, axis=0))
    yield from _path(found, shown)
    yield from _scores(found, sites if config.by == "site" else None)
    of, verdict = _intervals(config, problem, found)
    yield {"part": "intervals", "verdict": verdict}
    yield from _coefficients(found, of, names, shown)
    if config.loss in _RATIOS:
        models = (found.refit,) if of is None else (of.estimate, of.low, of.high)
        words = "no penalty" if of is None else "debiased"
        yield from _estimates(config, words, models, shown, found.model, names, scaling.size)
    yield from _scaling(scaling, names, shown)
    yield from _ledger(found.ledger.entries + (of.ledger.entries if of else ()), found.ledger.ids)


def _path(found: Selection, shown: np.ndarray) -> Iterator[Row]:
    path = found.path
    kernels = np.asarray(path.models["kernel"])
    for index, verdict in enumerate(path.outcome.verdicts()):
        yield {
            "part": "path",
            "index": index,
            "strength": float(path.strengths[index]),
            "nonzero": int(np.count_nonzero(kernels[index])),
            "objective": float(path.objective[index]),
            "rounds": int(path.outcome.rounds[index]),
            "violation": float(path.outcome.violation[index]),
            "verdict": verdict,
            "score": float(found.mean[index]),
            "error": float(found.standard_error[index]),
            "kernel": kernels[index, shown],
            "best": index == found.best,
            "chosen": index == found.chosen,
            "by": found.by,
        }


def _scores(found: Selection, sites: list[str] | None) -> Iterator[Row]:
    for fold, scores in enumerate(found.scores):
        if np.isnan(scores).all():  # no event, so no loss
            continue
        name = f"fold {fold + 1}" if sites is None else sites[fold % len(sites)]
        for strength, score in zip(np.asarray(found.path.strengths), scores, strict=True):
            yield {"part": "fold", "fold": name, "strength": float(strength), "score": float(score)}


def _intervals(config: Config, problem: Problem, found: Selection) -> tuple[Intervals | None, str]:
    """Return debiased intervals or ``None``, and a description or the reason."""
    num_features = np.size(found.model["kernel"])
    if config.loss == "cox":  # a partial likelihood is not a sum over the rows of a site
        return None, "none, because the loss cox is not a sum over rows"
    if config.loss not in _LIKELIHOODS:
        return None, f"none, because the loss {config.loss} is not a likelihood"
    if num_features > _MOST_FEATURES:
        return None, f"none, because {num_features} features are more than {_MOST_FEATURES}"
    try:
        return intervals(problem, found.model), "debiased, at 0.95, with sandwich errors"
    except ValueError:  # the Hessian is singular
        return None, f"none, because the Hessian of the {num_features} features is singular"


def _coefficients(
    found: Selection, of: Intervals | flower.Regression | None, names: list[str], shown: np.ndarray
) -> Iterator[Row]:
    assert found.refit is not None and found.refit_outcome is not None
    models = {"value": found.model, "refit": found.refit}
    if of is not None:
        models |= {"low": of.low, "high": of.high}
    columns = {
        column: [float(model.get("bias", 0.0)), *np.asarray(model["kernel"])[shown].tolist()]
        for column, model in models.items()
    }
    for place, name in enumerate(["bias", *(names[index] for index in shown)]):
        values = {column: numbers[place] for column, numbers in columns.items()}
        if "low" in values and values["low"] == values["high"] == 0:  # not estimated
            del values["low"], values["high"]
        yield {"part": "coefficient", "name": name, **values}
    out = np.flatnonzero(np.asarray(found.model["kernel"]) == 0)
    for index in out[:_MOST_NAMES]:
        yield {"part": "left out", "name": names[index]}
    yield {"part": "refit", "verdict": found.refit_outcome.verdicts()[0]}


def _scaling(scaling: Scaling, names: list[str], shown: np.ndarray) -> Iterator[Row]:
    """Yield the scaling of the features that some strength selects."""
    for index in shown:
        mean, size = float(scaling.mean[index]), float(scaling.size[index])
        yield {
            "part": "scaling",
            "name": names[index],
            "mean": mean,
            "size": size,
            "what": scaling.what,
        }


def _ledger(entries: tuple[Entry, ...], ids: tuple) -> Iterator[Row]:
    for entry in entries:
        for site, down, up in zip(ids, entry.down, entry.up, strict=True):
            yield {
                "part": "ledger",
                "work": entry.part,
                "site": site,
                "down": float(down),
                "up": float(up),
            }


def summarise(config: Config, rows: list[Row]) -> Summary:
    """Return the choice and its rule, the nonzero coefficients, and the bytes sent."""
    path, best, chosen = best_and_chosen(rows)
    word = "distance" if config.nonzeros else chosen["by"]
    word = "loss" if word.startswith("loss") else word
    rule = f"the lowest {word}"
    if chosen["index"] != best["index"]:
        rule = (
            "the largest strength whose loss is within one standard error of the lowest, by their "
            "differences in the folds"
        )
    if best["index"] == len(path) - 1:
        rule += ", which is at the last strength: a smaller config.least may find a lower one"
    ledger, [facts] = select(rows, part="ledger"), select(rows, part="data")
    works = list(dict.fromkeys(row["work"] for row in ledger))
    of_any = {key: any(row.get(key) for row in select(rows, part="site")) for key in _OF_SITE}
    sites = [
        {
            "site": row["site"],
            "examples": row["examples"],
            **{text: row[key] for key, text in _OF_SITE.items() if key in row and of_any[key]},
            **_judged(rows, row["site"], chosen["strength"]),
            **_sent(select(ledger, site=row["site"]), "down" if "sha256" not in row else ""),
            **{key: row[key][:8] for key in ("sha256",) if key in row},
        }
        for row in select(rows, part="site")
    ]
    verdict = f"The choice has {chosen['nonzero']} of {facts['features']} features"
    if not config.nonzeros:
        verdict += f", and a {chosen['by']} of {chosen['score']:.4g}"
        verdict += f", where the lowest is {best['score']:.4g}"
    verdict += "."
    if chosen["nonzero"] == 0:
        verdict += (
            f" For the lowest, with {best['nonzero']}, pass --config.one_standard_error=False."
            if best["nonzero"]
            else f" No other strength has a lower {word}; to have the first three anyway, pass "
            "--config.nonzeros=3."
        )
    effects = {row["name"]: row for row in select(rows, part="estimate")}
    coefficients = [
        {"name": row["name"], _SCALED: row["value"], "scaled, no penalty": row["refit"]}
        | _effect(effects.get(row["name"]))
        for row in sorted(select(rows, part="coefficient"), key=lambda row: -abs(row["value"]))
        if row["value"] != 0
    ]
    choice = {
        "strength": chosen["strength"],
        "share of the first strength": chosen["strength"] / path[0]["strength"],
        "coefficients that are not zero": chosen["nonzero"],
        "features": facts["features"],
        "left out": _left_out(rows, facts["features"] - chosen["nonzero"]),
        word: chosen["score"],
        f"lowest {word}": best["score"],
        "standard error of the difference": chosen["error"],
        "judged by": chosen["by"],
        "rule": rule,
    }
    solved = sum(row["verdict"].startswith("solved") for row in path)
    violation = float(column(path, "violation").max())
    found, [estimates] = _of_sites(rows), select(rows, part="intervals")
    scaling = _scaling_of_choice(rows)
    if found:  # shorter, for two sheets
        both = f"{solved} of {len(path)} strengths, to a violation of {violation:.2g}"
        coefficients = _effects(rows)
        for known in ("share of the first strength", "coefficients that are not zero", "features"):
            del choice[known]
        for known in ("judged by", word, f"lowest {word}", "standard error of the difference"):
            del choice[known]  # in the first sentence and the first figure
        names = choice["left out"].split(", ")
        more = f" and {len(names) - 12:,} more" if len(names) > 12 else ""
        choice |= {"left out": ", ".join(names[:12]) + more, "solved": both}
        end = {"chosen": choice | {"effects": estimates["verdict"]} | _planned(rows)}
    else:
        end = {
            "chosen": choice,
            "solved": {
                "strengths solved": solved,
                "strengths": len(path),
                "rounds on the path": int(column(path, "rounds").sum()),
                "largest violation": violation,
                "refit": select(rows, part="refit")[0]["verdict"],
                "intervals": estimates["verdict"],
            },
            "scaling": scaling,
        }
    return {
        "verdict": verdict + _discrimination(rows) + _without(rows),
        **({"citation": _CITATION} if found else {}),
        "data": _describe_data(config, rows),
        **found,
        **end,
        "sites": sites,
        "coefficients of the scaled features": coefficients,
        "ledger": [
            {"work": work, **_sent(select(ledger, work=work)), "what for": _WORKS[work]}
            for work in works
        ]
        + [{"work": "total", **_sent(ledger), "what for": ""}],
    }


def _planned(rows: list[Row]) -> Summary:
    """Return what leaves a site, and what a private run would take."""
    [plan] = select(rows, part="privacy")
    needed = "more sites than these; the extra privacy of fcojax computes how many"
    if plan["needed"] is not None:
        needed = f"{plan['needed']:,} sites; there are {plan['sites']}"
    return {
        "what leaves a site": "the sums in the ledger below, without noise, and no row",
        "sites that noise would need": (
            f"for an epsilon of {plan['epsilon']:g} over {plan['rounds']} rounds: {needed}"
        ),
    }


def _effects(rows: list[Row]) -> list[Row]:
    """Return each feature's penalised coefficient, and its effect without the penalty."""
    penalised = {row["name"]: row["value"] for row in select(rows, part="coefficient")}
    columns = {row["name"]: row for row in select(rows, part="column")}
    found = [{"name": "bias", _SCALED: penalised["bias"]}] if penalised["bias"] else []
    effects = {row["name"]: row for row in shown(select(rows, part="estimate"))}
    reasons = {row["name"]: row["why"] for row in select(rows, part="no estimate")}
    chosen = {name for name, value in penalised.items() if value and name in columns}
    for name in (name for name in columns if name in {*effects, *reasons} | chosen):
        found.append(
            {"name": name, _SCALED: penalised.get(name, 0.0)}
            | {key: columns[name][key] for key in ("mean", "deviation")}
            | _effect(effects.get(name))
            | ({"why it has none": reasons.get(name, "")} if reasons else {})
        )
    return found


def _effect(row: Row | None) -> Row:
    """Return the effect of a feature and its interval, under the words of its model."""
    if row is None:
        return {}
    named = {"value": f"{row['what']}, {row['of']}", "low": "from", "high": "to"}
    return {"per": row["per"]} | {word: row[key] for key, word in named.items() if key in row}


def shown(estimates: list[Row]) -> list[Row]:
    """Return the effects of the choice, and the clearest of the others, in their order."""

    def clarity(row: Row) -> tuple[bool, float]:
        zero = 0.0 if row["what"] == "difference" else 1.0
        inside = row["low"] <= zero <= row["high"]
        return row["chosen"], -float(inside)

    ranked = sorted(estimates, key=clarity, reverse=True)[:_MOST_EFFECTS]
    return [row for row in estimates if row in ranked]


def _discrimination(rows: list[Row]) -> str:
    """Return how well models without a site order its rows, if the study is over sites."""
    judged = [row for row in select(rows, part="judged") if row["pairs"]]
    if not judged:
        return ""
    shares = column(judged, "concordance")
    mean = np.average(shares, weights=column(judged, "pairs"))
    return (
        f" Models without a site put {shares.min():.3g} to {shares.max():.3g} of its pairs in the "
        f"right order, {mean:.3g} of all."
    )


def _without(rows: list[Row]) -> str:
    """Return a sentence for each site that was left out."""
    return "".join(f" {row['why']} It is left out." for row in select(rows, part="without"))


def _of_sites(rows: list[Row]) -> Summary:
    """Return the table of missing values of a study over sites."""
    if not select(rows, part="judged"):
        return {}
    return {
        "missing values, which become the mean": [
            {"name": row["name"], "mean": row["mean"], "deviation": row["deviation"]}
            | row["missing"]
            for row in select(rows, part="column")
            if sum(row["missing"].values())
        ],
    }


def best_and_chosen(rows: list[Row]) -> tuple[list[Row], Row, Row]:
    """Return the rows of the path, and the rows of the lowest loss and of the choice."""
    path = select(rows, part="path")
    best, chosen = (next(row for row in path if row[name]) for name in ("best", "chosen"))
    return path, best, chosen


def _describe_data(config: Config, rows: list[Row]) -> str:
    """Return the data in a sentence, for the caption of every figure."""
    file, sizes = pathlib.Path(config.data_dir).name, column(select(rows, part="site"), "examples")
    where = file or ("at the sites" if getattr(config, "superlink", "") else "drawn")
    text = f"{where}: {int(sizes.sum()):,} examples of {len(sizes)} sites"
    if file and not config.client and not any("events" in row for row in select(rows, part="site")):
        text += f", divided by class with concentration {config.concentration:g}"
    text += f", {config.loss} loss."
    [facts] = select(rows, part="data")
    if facts["filled"]:
        text += (
            f" {facts['filled']:,} missing values, of {facts['filled_columns']} of "
            f"{facts['columns']:,} columns, are the feature's mean."
        )
    if facts["unlabelled"]:
        text += f" {facts['unlabelled']:,} rows without a target were left out."
    return text


def _left_out(rows: list[Row], number: int) -> str:
    names = [row["name"] for row in select(rows, part="left out")]
    more = f" and {number - len(names):,} more" if number > len(names) else ""
    return ", ".join(names) + more


def _scaling_of_choice(rows: list[Row]) -> list[Row]:
    """Return the scaling of the features of the chosen model."""
    kept = {row["name"] for row in select(rows, part="coefficient") if row["value"] != 0}
    return [
        {"name": row["name"], "mean": row["mean"], row["what"]: row["size"]}
        for row in select(rows, part="scaling")
        if row["name"] in kept
    ]


def _judged(rows: list[Row], site: str, strength: float) -> dict[str, float]:
    """Return the loss on a site at this strength, if each site was left out in turn."""
    losses = [row["score"] for row in select(rows, part="fold", fold=site, strength=strength)]
    found = {"loss when left out": sum(losses) / len(losses)} if losses else {}
    for row in select(rows, part="judged", site=site):  # in place of the loss, for two sheets
        found = {"in order": row["concordance"], "slope": row["slope"]}
        if any(one["slope"] is None for one in select(rows, part="judged")):
            found["why a dash"] = _no_slope(row)
    return found


def _no_slope(row: Row) -> str:
    """Return why a site has no slope, and perhaps no pairs; empty if it has both."""
    if row["slope"] is not None:
        return ""
    if not row["pairs"]:
        return "no two rows whose outcomes have an order"
    same = "its rows have one prediction, as the model without it has no feature"
    return same if row["tied"] == row["pairs"] else "no slope, as where a prediction separates"


def _sent(rows: list[Row], also: str = "down") -> dict[str, int]:
    ways = (also, "up") if also else ("up",)
    return {f"bytes {way}": int(column(rows, way).sum()) for way in ways}
