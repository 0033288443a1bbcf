"""Rows of one selection: the path, the scores of the folds, the coefficients, the ledger."""

from collections.abc import Iterator

import jax
import numpy as np

import fcojax
from experiments.report.rows import Row
from experiments.studies.select.problem import Scaling, penalty, split, task
from experiments.study import Config
from fcojax.problems.clients import ids_of
from fcojax.selection import Selection

_MOST_NAMES = 100  # of features that the chosen model leaves out


def study(config: Config) -> Iterator[Row]:
    """Yield all rows; the selection is one program and takes nearly all of the time."""
    problem, names, scaling, filled, unlabelled = task(config)
    yield {
        "part": "data", "file": config.data_dir or "drawn", "loss": config.loss,
        "features": len(names), "unlabelled": unlabelled, "filled": int(filled.sum()),
        "filled_features": int(np.count_nonzero(filled)),
    }  # fmt: skip
    sites = ids_of(problem.train).tolist()
    for name, size in zip(sites, np.asarray(problem.train.sizes).tolist(), strict=True):
        yield {"part": "site", "site": name, "examples": size}
    found = fcojax.select(
        problem, penalty(config), by=split(config), one_standard_error=config.one_standard_error,
        strengths=config.num_strengths, least=config.least, num_draws=config.num_draws,
        key=jax.random.key(config.seed), tolerance=config.tolerance, max_rounds=config.max_rounds,
    )  # fmt: skip
    shown = np.flatnonzero(np.any(np.asarray(found.path.models["kernel"]) != 0, axis=0))
    yield from _path(found, shown)
    yield from _scores(found, sites if config.by == "site" else None)
    yield from _coefficients(found, names, shown)
    yield from _scaling(scaling, names, shown)
    yield from _ledger(found)


def _path(found: Selection, shown: np.ndarray) -> Iterator[Row]:
    path = found.path
    kernels = np.asarray(path.models["kernel"])
    for index, verdict in enumerate(path.outcome.verdicts()):
        yield {
            "part": "path", "index": index, "strength": float(path.strengths[index]),
            "nonzero": int(np.count_nonzero(kernels[index])),
            "objective": float(path.objective[index]), "rounds": int(path.outcome.rounds[index]),
            "violation": float(path.outcome.violation[index]), "verdict": verdict,
            "score": float(found.mean[index]), "error": float(found.standard_error[index]),
            "kernel": kernels[index, shown], "best": index == found.best,
            "chosen": index == found.chosen, "by": found.by,
        }  # fmt: skip


def _scores(found: Selection, sites: list[str] | None) -> Iterator[Row]:
    for fold, scores in enumerate(found.scores):
        name = f"fold {fold + 1}" if sites is None else sites[fold % len(sites)]
        for strength, score in zip(np.asarray(found.path.strengths), scores, strict=True):
            yield {"part": "fold", "fold": name, "strength": float(strength), "score": float(score)}


def _coefficients(found: Selection, names: list[str], shown: np.ndarray) -> Iterator[Row]:
    assert found.refit is not None and found.refit_outcome is not None
    columns = (
        ["bias", *(names[index] for index in shown)],
        [float(found.model["bias"]), *np.asarray(found.model["kernel"])[shown].tolist()],
        [float(found.refit["bias"]), *np.asarray(found.refit["kernel"])[shown].tolist()],
    )
    for name, value, refit in zip(*columns, strict=True):
        yield {"part": "coefficient", "name": name, "value": value, "refit": refit}
    out = np.flatnonzero(np.asarray(found.model["kernel"]) == 0)
    for index in out[:_MOST_NAMES]:
        yield {"part": "left out", "name": names[index]}
    yield {"part": "refit", "verdict": found.refit_outcome.verdicts()[0]}


def _scaling(scaling: Scaling, names: list[str], shown: np.ndarray) -> Iterator[Row]:
    """Yield the scaling of the features that some strength selects."""
    for index in shown:
        mean, size = float(scaling.mean[index]), float(scaling.size[index])
        yield {
            "part": "scaling", "name": names[index], "mean": mean, "size": size,
            "what": scaling.what,
        }  # fmt: skip


def _ledger(found: Selection) -> Iterator[Row]:
    for entry in found.ledger.entries:
        for site, down, up in zip(found.ledger.ids, entry.down, entry.up, strict=True):
            yield {
                "part": "ledger", "work": entry.part, "site": site, "down": float(down),
                "up": float(up),
            }  # fmt: skip
