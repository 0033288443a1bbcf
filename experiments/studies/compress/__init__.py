"""Bytes to a solution for composite methods with compressed uploads and error feedback."""

from typing import Any, Literal

from experiments.studies.compress import claims, rows
from experiments.study import Study
from fcojax.types import Count, CountOrZero, NonNegative, Positive, Share


def _study(title: str, kind: rows.Kind, **given: Any) -> Study:
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
            Literal[*rows.METHODS]: "methods",
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


LASSO = _study("on one heterogeneous lasso", rows.LASSO, claims=claims.exact, x64=True)
NETWORK = _study("of a convolutional network", rows.NETWORK, claims=claims.network)
