"""From a file to a model one can defend: path, curve of validation, coefficients, ledger."""

from experiments.studies.select import figures, rows, tables
from experiments.study import Study

EXPERIMENT = Study(
    title="A sparse model across sites",
    rows=rows.study,
    summarise=tables.summarise,
    figures=figures.draw,
    captions={
        "path": "Left: every coefficient over the strength of the penalty, on all data. Right: the "
        "score over the strength with its standard error; dotted the least, dashed the choice.",
        "coefficients": "The chosen model by name, and its support fitted without the penalty.",
        "sites": "The loss on each fold that was held out, over the strength.",
    },
    remarks="Features are scaled by means and variances that the sites' sums give, in one exchange "
    "that is not in the ledger. Scaling uses all sites, also those that judge. Sparse features are "
    "scaled by their mean squares alone, so that zeros stay zero. Features that no strength "
    "selects are not shown.",
    x64=True,
)
