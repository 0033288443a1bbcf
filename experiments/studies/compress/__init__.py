"""Bytes to a solution for composite methods with compressed uploads and error feedback."""

from typing import Any, Literal

import numpy as np

from experiments.report.claims import Claim, judged
from experiments.report.plots import style
from experiments.report.rows import Row, Summary, by_seed, column, select
from experiments.studies.compress.rows import ALONE, METHODS, ON_LASSO, ON_NETWORK, WHOLE, Kind
from experiments.study import Config, Study
from fcojax.types import Count, CountOrZero, NonNegative, Positive, Share

_TOP, _TIGHT = "top_k:0.1", 1e-6

STATEMENTS = """
Richtarik, Sokolov and Fatkhullin (NeurIPS 2021), introduction
alone | sparse uploads without error feedback converge to another point
    | relative distance with the largest tenth | >= 1e-2
Expected by us
ends | with feedback every codec ends at the solution | largest distance | <= 1e-6
support | and at its support | least F1 | >= 1
rounds | the largest tenth needs at most three times the rounds | ratio | <= 3
times | the best codec sends fewer bytes | times fewer to 1e-6 | >= 5
"""
_ON_A_NETWORK = """
Expected by us
errors | with feedback every codec ends as accurate as whole uploads, up to 0.1
    | largest difference of the error | < 0.1
times | the best codec sends fewer bytes | times fewer to an error of {near} | >= 10
"""


def exact(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return claims for each method on the lasso; none if the config lacks their codecs."""
    known = {WHOLE, _TOP} <= set(config.codecs) and _TOP in config.alone
    if not known or _TIGHT not in config.tolerances:
        return []
    found = []
    for case in (style(method)[0] for method in config.methods):
        own = select(summary["best"], method=case)
        [alone], [top], [whole] = (select(own, codec=at) for at in (_TOP + ALONE, _TOP, WHOLE))
        good = [row for row in own if not row["codec"].endswith(ALONE)]
        numbers = {
            "alone": column([alone], "distance at the end"),
            "ends": column(good, "distance at the end"),
            "support": column(good, "F1 at the end"),
            "rounds": np.divide(*column([top, whole], "rounds to 1e-06")),
            "times": np.nan_to_num(column(good, "times fewer to 1e-06")).max(),
        }
        found += judged(STATEMENTS, numbers, case)
    return found


def network(config: Config, rows: list[Row], summary: Summary) -> list[Claim]:
    """Return claims for each method on a network; none if the config lacks what they need."""
    if WHOLE not in config.codecs:
        return []
    found, near = [], f"{min(config.tolerances):g}"
    for method in config.methods:
        errors, times, case = {}, [], style(method)[0]
        for row in select(summary["best"], method=case):
            if (name := row["codec"]) in config.codecs:
                curves = by_seed(select(rows, part="curve", method=method, codec=name))
                errors[name] = np.array([column(one, "error")[-1] for one in curves.values()])
                times.append(row[f"times fewer to {near}"] or 0.0)
        worst = max(errors.values(), key=np.mean)
        numbers = {"errors": worst - errors[WHOLE], "times": max(times)}
        found += judged(_ON_A_NETWORK.format(near=near), numbers, case)
    return found


def _study(title: str, kind: Kind, **given: Any) -> Study:
    return Study(
        title=f"Compressed uploads {title}",
        rows=kind.rows,
        summarise=kind.summarise,
        figures=kind.draw,
        captions={
            "curves": f"Each codec at its best step: {' and '.join(kind.measures.values())}, over "
            "the kilobytes that all clients have sent. Dashed: without feedback."
        },
        keys={
            Literal[*METHODS]: "methods",
            str: "codecs alone[0+] data_dir",
            Count: "num_clients dim num_rounds eval_every own.num_examples own.num_steps "
            "own.batch_size own.filters[2] own.num_hidden",
            CountOrZero: "seeds data_seed num_true",
            Positive: "step_factors tolerances[2] own.spectrum[2] own.concentration",
            Share: "share_of_writers",
            NonNegative: "own.spread own.scale",
        },
        **given,
    )


LASSO = _study("on one heterogeneous lasso", ON_LASSO, claims=exact, x64=True)
NETWORK = _study("of a convolutional network", ON_NETWORK, claims=network)
