"""Our expectations of sparse heads, written before the run."""

from experiments.report.claims import Claim, mcnemar, over_seeds
from experiments.report.rows import Row, Summary, select
from experiments.studies.concepts.rows import METHODS, accuracies, rights
from experiments.study import Config

_FEW, _MANY = 5, 50


def claims(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return five claims; none if the config lacks a method or a number of nonzeros."""
    if set(config.methods) != set(METHODS) or not {_FEW, _MANY, config.num_features} <= set(
        config.kept
    ):
        return []

    def at(name, most):
        return accuracies(config, rows, name, most)

    def more(text, name, other, most, needed):
        lead = at(name, most) - at(other, most)
        return over_seeds(text, lead, needed, measure="difference in accuracy")

    # All entries count; those of features that are constant over the rows are zero.
    most = max(row["nonzeros"] for row in select(rows, part="model", method="fed_avg"))
    dense = accuracies(config, rows, "fed_avg", most, least=most)
    ours, theirs = (rights(config, rows, name, _FEW) for name in ("fed_dual_avg", "fed_avg"))
    over_rows = None if ours is None or theirs is None else mcnemar(ours, theirs)
    return [
        more(
            "at 5 nonzeros per class FedDualAvg is more accurate than thresholding",
            "fed_dual_avg",
            "fed_avg",
            _FEW,
            0.05,
        )._replace(examples=over_rows),
        more(
            "at 50 it is no less accurate than thresholding, up to 0.02",
            "fed_dual_avg",
            "fed_avg",
            _MANY,
            -0.02,
        ),
        over_seeds(
            "at 50 it is as accurate as FedAvg's dense model, up to 0.02",
            at("fed_dual_avg", _MANY) - dense,
            -0.02,
            measure="difference in accuracy",
        ),
        more(
            "at 5 FedDA is no less accurate than FedDualAvg, up to 0.05",
            "fed_da",
            "fed_dual_avg",
            _FEW,
            -0.05,
        ),
        more(
            "at 5 composite FL is no less accurate than FedDualAvg, up to 0.05",
            "composite_fl",
            "fed_dual_avg",
            _FEW,
            -0.05,
        ),
    ]
