"""Bytes to a solution for composite methods with compressed uploads and error feedback."""

from functools import partial
from typing import Any, Literal

from experiments.studies.compress import claims, rows
from experiments.study import Study
from fcojax.types import Count, CountOrZero, NonNegative, Positive, Share


def _study(title: str, build: Any, step: str, measures: dict[str, str], **given: Any) -> Study:
    kind = rows.Kind(build, measures, step)
    return Study(
        title=f"Compressed uploads {title}",
        rows=partial(rows.study, kind),
        summarise=partial(rows.summarise, kind),
        figures=partial(rows.draw, kind),
        captions={
            "curves": f"Each codec at its best step: {' and '.join(measures.values())}, over the "
            "kilobytes that all clients have sent. Dashed: without feedback."
        },
        keys={
            Literal[*rows.METHODS]: "methods",
            str: "codecs alone[0+] data_dir",
            Count: "num_clients dim num_rounds eval_every own.num_examples own.num_steps "
            "own.batch_size own.filters[2] own.num_hidden",
            CountOrZero: "seeds data_seed num_true",
            Positive: "step_factors tolerances[2] own.spectrum[2] own.concentration",
            Share: "share_of_writers",
            NonNegative: "own.spread own.scale",
        },
        requires={
            "eval_every a divisor of num_rounds": lambda own: own.num_rounds % own.eval_every == 0
        },
        **given,
    )


LASSO = _study(
    "on one heterogeneous lasso",
    rows.lasso,
    ", of 1 / (K L)",
    {"distance": "relative distance", "f1": "F1 of the support"},
    claims=partial(claims.exact, "", 5.0),
    x64=True,
)
NETWORK = _study(
    "of a convolutional network",
    rows.network,
    "",
    {"error": "error on test digits", "density": "density of dense kernels"},
    claims=claims.network,
)
