"""Rows and tables of one selection: the path, the scores, the coefficients and the ledger."""

import pathlib
from collections.abc import Iterator

import jax
import numpy as np

import fcojax
from experiments.report.rows import Row, Summary, column, select
from experiments.studies.select.problem import Scaling, penalty, split, task
from experiments.study import Config, naming
from fcojax import uploads
from fcojax.extend import Uploads
from fcojax.problems import Problem
from fcojax.problems.clients import ids_of
from fcojax.selection import Intervals, Selection, intervals
from fcojax.selection.ledger import Entry

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
}


def study(config: Config) -> Iterator[Row]:
    """Yield all rows; the selection is one program and takes nearly all of the time."""
    problem, names, scaling, filled, unlabelled = task(config)
    yield {
        "part": "data",
        "file": config.data_dir or "drawn",
        "loss": config.loss,
        "features": len(names),
        "unlabelled": unlabelled,
        "filled": int(filled.sum()),
        "filled_features": int(np.count_nonzero(filled)),
    }
    sites = ids_of(problem.train).tolist()
    for name, size in zip(sites, np.asarray(problem.train.sizes).tolist(), strict=True):
        yield {"part": "site", "site": name, "examples": size}
    with naming("codec", config.codec):
        sent = Uploads() if config.codec is None else uploads.from_text(config.codec, "codec")
    plan = fcojax.Plan(fcojax.local_steps(1), fcojax.everyone(), *sent)
    found = fcojax.select(
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
    found: Selection, of: Intervals | None, names: list[str], shown: np.ndarray
) -> Iterator[Row]:
    assert found.refit is not None and found.refit_outcome is not None
    models = {"value": found.model, "refit": found.refit}
    if of is not None:
        models |= {"low": of.low, "high": of.high}
    columns = {
        column: [float(model["bias"]), *np.asarray(model["kernel"])[shown].tolist()]
        for column, model in models.items()
    }
    for place, name in enumerate(["bias", *(names[index] for index in shown)]):
        values = {column: numbers[place] for column, numbers in columns.items()}
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
    rule = "the least score"
    if chosen["index"] != best["index"]:
        rule = "the largest strength within one standard error of the least score"
    if best["index"] == len(path) - 1:
        rule += ", which is at the last strength: a smaller config.least may find a lower one"
    ledger, [facts] = select(rows, part="ledger"), select(rows, part="data")
    works = list(dict.fromkeys(row["work"] for row in ledger))
    return {
        "verdict": f"The choice has {chosen['nonzero']} of {facts['features']} features, and a "
        f"{chosen['by']} of {chosen['score']:.4g}, where the least is {best['score']:.4g}.",
        "data": _describe_data(config, rows),
        "chosen": {
            "strength": chosen["strength"],
            "share of the first strength": chosen["strength"] / path[0]["strength"],
            "coefficients that are not zero": chosen["nonzero"],
            "features": facts["features"],
            "left out": _left_out(rows, facts["features"] - chosen["nonzero"]),
            "score": chosen["score"],
            "least score": best["score"],
            "standard error of the least score": best["error"],
            "judged by": chosen["by"],
            "rule": rule,
        },
        "solved": {
            "strengths solved": sum(row["verdict"].startswith("solved") for row in path),
            "strengths": len(path),
            "rounds on the path": int(column(path, "rounds").sum()),
            "largest violation": float(column(path, "violation").max()),
            "refit": select(rows, part="refit")[0]["verdict"],
            "intervals": select(rows, part="intervals")[0]["verdict"],
        },
        "coefficients of the scaled features": [
            {
                "name": row["name"],
                "value": row["value"],
                "without the penalty": row["refit"],
                **({"from": row["low"], "to": row["high"]} if "low" in row else {}),
            }
            for row in sorted(select(rows, part="coefficient"), key=lambda row: -abs(row["value"]))
            if row["value"] != 0
        ],
        "scaling": _scaling_of_choice(rows),
        "ledger": [
            {"work": work, **_sent(select(ledger, work=work)), "what for": _WORKS[work]}
            for work in works
        ]
        + [{"work": "total", **_sent(ledger), "what for": ""}],
        "sites": [
            {
                "site": row["site"],
                "examples": row["examples"],
                **_judged(rows, row["site"], chosen["strength"]),
                **_sent(select(ledger, site=row["site"])),
            }
            for row in select(rows, part="site")
        ],
    }


def best_and_chosen(rows: list[Row]) -> tuple[list[Row], Row, Row]:
    """Return the rows of the path, and the rows of the lowest score and of the choice."""
    path = select(rows, part="path")
    best, chosen = (next(row for row in path if row[name]) for name in ("best", "chosen"))
    return path, best, chosen


def _describe_data(config: Config, rows: list[Row]) -> str:
    """Return the data in a sentence, for the caption of every figure."""
    file, sizes = pathlib.Path(config.data_dir).name, column(select(rows, part="site"), "examples")
    text = f"{file or 'drawn'}: {int(sizes.sum()):,} examples of {len(sizes)} sites"
    if file and not config.client:
        text += f", divided by class with concentration {config.concentration:g}"
    text += f", {config.loss} loss."
    [facts] = select(rows, part="data")
    if facts["filled"]:
        text += (
            f" {facts['filled']:,} missing values, of {facts['filled_features']} of "
            f"{facts['features']:,} features, are the feature's mean."
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
    return {"loss when left out": sum(losses) / len(losses)} if losses else {}


def _sent(rows: list[Row]) -> dict[str, int]:
    return {
        "bytes down": int(column(rows, "down").sum()),
        "bytes up": int(column(rows, "up").sum()),
    }
