"""Bytes to a solution: composite methods whose uploads are compressed, with feedback."""

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
    remarks=(
        "FedDualAvg needs 3.2 times the rounds with the largest tenth: with EF21 it is best at a "
        "third of the step of whole uploads, the other two with EF14 at half of it. In 20 "
        "dimensions two entries take 18 bytes, and an upload's number of steps 8 more, so a few "
        "bits of every entry save more than leaving entries out. A first full run had steps up "
        "to 5.7 times the safe one, where whole uploads were at the edge of the grid; no claim was "
        "changed, and none has another outcome."
    ),
)
DIGITS = _study(
    "Compressed uploads on digits",
    problem.DIGITS,
    claims=partial(claims.exact, "sign", 10.0),
    x64=True,
    remarks=(
        "With FedDualAvg whole uploads are unstable at 16 / L, where drive's, which are shortened, "
        "are not. Steps of the grid are a factor of two apart, so up to a factor of two of what "
        "drive saves may come from the grid. "
        "Trials of single pairs had shown before the claims were written that signs with one size "
        "for all entries take more rounds than there are."
    ),
)
NETWORK = _study(
    "Compressed uploads of a convolutional network",
    problem.NETWORK,
    claims=claims.network,
    remarks=(
        "The claims on the error fail at seven levels, whose variance is up to 17 times the "
        "upload's square, so that error feedback scales it by 1/18: with 118 levels, whose "
        "variance is one, the difference to whole uploads is 0.002, 0.008 and 0.024. SCAFFOLD's "
        "claim fails there as well, because the interval of its three seeds reaches beyond 0.1. "
        "The next largest are signs, 0.02 to 0.08."
    ),
)
