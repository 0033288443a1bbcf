"""Bytes to a solution for composite methods with compressed uploads and error feedback."""

from functools import partial
from typing import Any, Literal

from experiments.studies.compress import claims, figures, problem, rows
from experiments.study import Study
from fcojax.types import Count, CountOrZero, NonNegative, Positive, Share


def _study(title: str, kind: problem.Kind, **given: Any) -> Study:
    shown = " and ".join(kind.measures.values())
    return Study(
        title=title,
        rows=partial(rows.study, kind),
        summarise=partial(rows.summarise, kind),
        figures=partial(figures.draw, kind),
        captions={
            "curves": f"Each codec at its best step: {shown}, over the kilobytes that all clients "
            "have sent. Dashed: without feedback."
        },
        keys={
            Literal[*rows.METHODS]: "methods",
            str: "codecs alone[0+] data_dir",
            Count: "num_clients dim num_rounds eval_every own.num_examples own.num_steps "
            "own.batch_size own.filters[2] own.num_hidden",
            CountOrZero: "seeds data_seed num_true",
            Positive: "step_factors tolerances[2] own.spectrum[2] own.concentration",
            Share: "share_of_writers",
            NonNegative: "own.spread own.scale own.ridge",
        },
        requires={
            "eval_every a divisor of num_rounds": lambda config: (
                config.num_rounds % config.eval_every == 0
            )
        },
        **given,
    )


LASSO = _study(
    "Compressed uploads on one heterogeneous lasso",
    problem.LASSO,
    claims=partial(claims.exact, "", 5.0),
    x64=True,
)
DIGITS = _study(
    "Compressed uploads on digits",
    problem.DIGITS,
    claims=partial(claims.exact, "sign", 10.0),
    x64=True,
)
NETWORK = _study(
    "Compressed uploads of a convolutional network",
    problem.NETWORK,
    claims=claims.network,
)
