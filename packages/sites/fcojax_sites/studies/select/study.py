"""A sparse model from a file: path, held-out losses, coefficients and a ledger of bytes."""

from typing import Any, Literal

from fcojax.experiments import Study
from fcojax.types import Count, CountOrZero, Positive, Share
from fcojax_sites.studies.select import figures, rows
from fcojax_sites.studies.select.problem import LOSSES, SPLITS

EXPERIMENT = Study(
    title="A sparse model across sites",
    rows=rows.study,
    summarise=rows.summarise,
    figures=figures.draw,
    captions={
        "path": "Left: every coefficient over the strength of the penalty, on all data. The ten "
        "largest of the chosen model have names, its others are dark grey, and features that it "
        "leaves out light grey. Right: the mean loss on held-out data, or the criterion; a bar is "
        "one standard error of the difference to the lowest, over the folds. Dotted: the lowest. "
        "Dashed: the choice; by the one-standard-error rule it is the largest strength whose bar "
        "reaches the lowest.",
        "coefficients": "The chosen model by name, at most its 25 largest coefficients, and the "
        "same features fitted without the penalty, which shrinks coefficients towards zero.",
        "choice": "Coefficients over the strength, and the loss on held-out sites, with the "
        "standard error of its difference to the lowest; dotted: the lowest, dashed: the choice.",
        "effects": "Left: effects without the penalty, 95 per cent intervals; blue: in the choice. "
        "Right: survival at each site (Kaplan and Meier, on a grid), or cases over the chance that "
        "a model without the site predicts, in cells of 5 rows or more.",
        "sites": "The loss on each site, or fold, of the models fitted without it, averaged over "
        "the draws of the folds. The ten with the largest loss at the choice have names.",
    },
    notes="Features are scaled by means and variances computed from the sites' sums, in one "
    "exchange that is not in the ledger. The scaling uses all sites, also held-out ones. Sparse "
    "features are divided by their root mean squares only, so that zeros stay zero. For a row of "
    "the file, the prediction is the sum of coefficients times scaled features, (value - mean) "
    "over deviation or root mean square, plus the intercept, called bias, which Cox regression "
    "does not have. Features that no strength selects are not shown. Intervals, from and to, do "
    "not refer to the chosen model, which the penalty shrinks: with method sums they are those of "
    "the model without the penalty, and the ledger has the exchange of the scaling; with method "
    "rounds those of a model from which Newton steps have removed that shrinkage.",
    printed=("chosen", "coefficients of the scaled features"),
    x64=True,
    keys={
        Literal[*LOSSES]: "loss",
        Literal[*(name for name in SPLITS if name != "nonzeros")]: "by",
        Literal["rounds", "sums"]: "method",
        Literal["norm", "slope", "fused", "trend"]: "group_penalty",
        Literal[False, True]: "one_standard_error insecure",
        Count: "num_clients num_folds num_draws num_strengths max_rounds sizes dim",
        CountOrZero: "seed data_seed nonzeros",
        Positive: "concentration tolerance timeout",
        Share: "l1_fraction group_fraction least",
        str: "groups data_dir features target client names missing categories units drop time "
        "event superlink sites root_certificates",
        str | None: "codec",
        Any: "positive_above",  # infinity if there is none
    },
)
