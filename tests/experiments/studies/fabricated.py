"""Rows of a sweep computed from formulas, to test claims."""

from experiments.report.summary import Criterion, summarise


def sweep_of(measures, criterion: Criterion, rounds, seeds=(0, 1, 2)):
    """Return rows and a summary.

    ``measures`` are by label and by (client rate, server rate), ``(seed, round) -> columns``.
    """
    fields = ("client_lr", "server_lr")
    rows = [
        {"algorithm": label, **dict(zip(fields, point, strict=True)), "seed": seed, "round": at}
        | {"status": "improving", "objective": 1.0}
        | measures_at(seed, at)
        for label, points in measures.items()
        for point, measures_at in points.items()
        for seed in seeds
        for at in rounds
    ]
    entries = {
        label: summarise([row for row in rows if row["algorithm"] == label], fields, criterion)
        for label in measures
    }
    return rows, {"algorithms": entries}
