"""From a file to a model one can defend: path, curve of validation, coefficients, ledger."""

from experiments.studies.select import figures, rows, tables
from experiments.study import Study

EXPERIMENT = Study(
    title="A sparse model across sites",
    rows=rows.study,
    summarise=tables.summarise,
    figures=figures.draw,
    captions={
        "path": "Left: every coefficient over the strength of the penalty, on all data. Of those "
        "in the chosen model the ten largest have names, others are dark grey; light grey are "
        "those that it leaves out. Right: the mean score over what was left out, with its standard "
        "error. Dotted the least score. Dashed the choice: the strongest penalty whose score is "
        "below the line, the least score plus its standard error, if that rule is asked for.",
        "coefficients": "The chosen model by name, at most its 25 largest coefficients, and the "
        "same features fitted without the penalty, which pulls coefficients towards zero.",
        "sites": "The loss on each site, or fold, of the models that were fitted without it, over "
        "all draws of the folds. Those ten on which the choice is worst have names.",
    },
    remarks="Features are scaled by means and variances that the sites' sums give, in one exchange "
    "that is not in the ledger. Scaling uses all sites, also those that judge. Sparse features are "
    "scaled by their mean squares alone, so that zeros stay zero. For rows of a file, the model is "
    "its bias plus the sum of every coefficient times what its feature differs from the mean, in "
    "deviations or root mean squares, as in the table of the scaling. Features that no strength "
    "selects are not shown.",
    x64=True,
)
